"""scripts/test looks at failures of named tests again, alone; that decides, and is said."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT, ended
from tests.second_look import TIMED, Look
from tests.suite_time import SLOW

BASH = shutil.which("bash") or "bash"
#: One test fails whenever nobody has asked before; another one always.
TESTS = """
from pathlib import Path
import pytest
MARKER = Path(__file__).with_name("marker")
def test_good(): pass
def test_flaky():
    known, _ = MARKER.exists(), MARKER.touch()
    assert known
@pytest.mark.parametrize("number", range({bad}))
def test_bad(number): assert False
"""
ALONE = "== passed alone, failed in company: tests/test_it.py::test_flaky"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with what scripts/test needs, which has been set up."""
    (tmp_path / "pyproject.toml").touch()
    for name in ("scripts/test", "tests/second_look.py", "tests/suite_time.py", "tests/slow.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    with (tmp_path / "tests" / "second_look.py").open("a", encoding="utf-8") as file:
        file.write('\nTIMED["tests/test_it.py::test_flaky"] = "chance"\n')
    shim(tmp_path / "scripts" / "setup", "")
    shim(tmp_path / ".venv" / "bin" / "python", f'exec {sys.executable} "$@"')
    return tmp_path


def shim(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{BASH}\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def ran(checkout: Path, *options: str, bad: int = 0) -> tuple[int, list[str]]:
    """How scripts/test ends there, and what it says."""
    (checkout / "tests" / "test_it.py").write_text(TESTS.format(bad=bad), encoding="utf-8")
    known = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    command: list[str | Path] = [BASH, checkout / "scripts" / "test", "-p", "xdist", "-n", "0"]
    done = ended(
        *command,
        *options,
        env={
            **known,
            "PASSED_ALONE": str(checkout / "passed-alone"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # most of them take a second to be read
        },
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_what_passes_alone_is_said_and_no_failure(checkout: Path) -> None:
    code, said = ran(checkout)
    assert code == 0, said
    assert ALONE in said
    assert "1 passed" in said[-1], "pytest's closing line is the last one"
    pattern = r" +[0-9.]+ s +(\d+) tests  tests  \([0-9.]+ s test_it\.py::test_\w+.*\)"
    rows = [found[1] for line in said if (found := re.fullmatch(pattern, line))]
    assert rows == ["3", "1"], "one of them is skipped, and one ran again"
    text = (checkout / ".cache" / "pytest" / "suite-times").read_text(encoding="utf-8")
    passes = [json.loads(line) for line in text.splitlines()]
    assert [each["folders"]["tests"]["tests"] for each in passes] == [3, 1]
    assert [each["whole"] for each in passes] == [True, False]
    assert all(each["seconds"] >= each["folders"]["tests"]["seconds"] for each in passes)
    code, said = ran(checkout)
    assert (code, "2 passed" in said[-1]) == (0, True)
    assert ALONE in said, "it is said in every pass that follows"
    assert "they run alone" not in "".join(said), "nothing was to be looked at again"


def test_slow_tests_are_left_out_unless_they_are_asked_for(checkout: Path) -> None:
    ran(checkout, "--slow", "--list-slow")
    slow = checkout / "tests" / "slow.txt"
    assert slow.read_text("utf-8") == ""
    slow.write_text("tests/test_it.py::test_good\n", encoding="utf-8")
    assert "1 passed, 1 skipped, 1 deselected" in ran(checkout)[1][-1]
    for options in (["--slow"], ["tests"]):
        assert "2 passed, 1 skipped" in ran(checkout, *options)[1][-1]


def test_a_failure_of_another_test_is_final(checkout: Path) -> None:
    code, said = ran(checkout, bad=1)
    assert code == 1
    assert ALONE not in said
    assert "2 failed, 1 passed" in said[-1]


class _Report:
    failed = True

    def __init__(self, name: str) -> None:
        self.nodeid = name


TROUBLE = ["", "another test", "a file", "a process", "an interruption"]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_other_trouble_is_no_accident(tmp_path: Path, trouble: str) -> None:
    look = Look(tmp_path / "again", tmp_path / "passed")
    look.pytest_runtest_logreport(_Report(next(iter(TIMED)) + "[1]"))  # type: ignore[arg-type]  # as much as is read
    if trouble == "another test":
        look.pytest_runtest_logreport(_Report("tests/test_it.py::test_it"))  # type: ignore[arg-type]  # as much as is read
    if trouble == "a file":
        look.pytest_collectreport(_Report("tests/test_it.py"))  # type: ignore[arg-type]  # as much as is read
    look.pytest_testnodedown(None, "Not properly terminated" if trouble == "a process" else None)
    look.pytest_sessionfinish(2 if trouble == "an interruption" else 1)
    assert (tmp_path / "again").exists() == (not trouble)


def test_every_named_test_is_there() -> None:
    for name in [*TIMED, *SLOW.read_text("utf-8").split()]:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name
