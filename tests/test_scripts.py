"""The scripts: they are sound shell, and scripts/setup installs when it must and only then."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.house import ROOT, ended

SCRIPTS = sorted(
    [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    + [ROOT / ".ci" / "run"]
)
BASH = shutil.which("bash") or "bash"

# Stands in for the environment's Python: works like it, but only writes down what pip was to do.
SHIM = """#!{bash}
if [ "$1 $2" = "-m pip" ]; then
    printf '%s\\n' "$*" >>"$PIP_LOG"
    exit 0
fi
exec {python} "$@"
"""


def script_name(path: Path) -> str:
    """Return a script's name as the test report shows it."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("script", SCRIPTS, ids=script_name)
def test_scripts_are_sound(script: Path) -> None:
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert os.access(script, os.X_OK)
    assert subprocess.run([BASH, "-n", str(script)], check=False).returncode == 0


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with scripts/setup, a project file and an environment that has pip."""
    place = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", place / "scripts")
    (place / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    python = place / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(SHIM.format(bash=BASH, python=sys.executable), encoding="utf-8")
    python.chmod(0o755)
    return place


def set_up(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/setup there, without a terminal."""
    env = {**os.environ, "CI": "true", "PIP_LOG": str(checkout / "pip.log"), **variables}
    command = (BASH, checkout / "scripts" / "setup")
    return ended(*command, env=env, stdin=subprocess.DEVNULL, timeout=180)


def installs(checkout: Path) -> list[str]:
    """Return what pip was asked to do so far."""
    log = checkout / "pip.log"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_setup_installs_once(checkout: Path) -> None:
    for _ in range(3):
        done = set_up(checkout)
        assert done.returncode == 0, done.stderr
    assert installs(checkout) == ["-m pip install --quiet --editable .[dev]"]


def test_setup_is_silent_when_there_is_nothing_to_do(checkout: Path) -> None:
    set_up(checkout)
    done = set_up(checkout)
    assert (done.stdout, done.stderr) == ("", "")


def test_setup_installs_again_when_the_requirements_change(checkout: Path) -> None:
    set_up(checkout)
    (checkout / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    set_up(checkout)
    assert len(installs(checkout)) == 2


def test_setup_installs_again_when_the_checkout_moved(checkout: Path) -> None:
    set_up(checkout)
    moved = checkout.rename(checkout.with_name("moved"))
    set_up(moved)
    assert len(installs(moved)) == 2


def test_a_failed_install_is_not_remembered(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    working = python.read_text(encoding="utf-8")
    python.write_text(working.replace("exit 0", "exit 1"), encoding="utf-8")
    assert set_up(checkout).returncode != 0
    python.write_text(working, encoding="utf-8")
    assert set_up(checkout).returncode == 0
    assert len(installs(checkout)) == 2


def test_setup_says_which_python_it_needs(checkout: Path, tmp_path: Path) -> None:
    shutil.rmtree(checkout / ".venv")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "cat", "dirname", "mv"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    done = set_up(checkout, PATH=str(tools), PYTHON="")
    assert done.returncode != 0
    assert "no Python 3.11, 3.12, 3.13 or 3.14" in done.stderr
    assert "python3-venv" in done.stderr


def test_both_clients_of_the_demonstration_get_the_same_answers() -> None:
    spec = importlib.util.spec_from_file_location("client", ROOT / "scripts" / "demo_client.py")
    assert spec is not None
    assert spec.loader is not None
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    age, city = flour.scalar("age"), flour.category("city")
    program = flour.outputs(old=age.greater(40.0), there=city.one_hot(["Graz", "Łódź"]))
    rows = pd.DataFrame({"age": [30.0, np.nan, 50.5], "city": ["Łódź", "Oslo", "Graz"]})
    with Runtime() as runtime:
        runtime.register("m", program)
        with Server(runtime, ServerSettings(port=0)) as server:
            one, other = client.Triton(server.url), client.Plain(server.url)
            tensors = list(client.tensors_of(other.metadata("m"), rows))
            first, second = one.infer("m", tensors), other.infer("m", tensors)
    assert first.keys() == second.keys() == {"old", "there"}
    for name, values in first.items():
        assert np.array_equal(values, second[name])
    assert first["there"].tolist() == [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]


def test_the_demonstration_ends_well_and_soon() -> None:
    """It verifies by itself that every answer over HTTP is scikit-learn's."""
    command = (sys.executable, ROOT / "scripts" / "demo.py", "--once")
    done = ended(*command, stdin=subprocess.DEVNULL, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all answers are scikit-learn's" in done.stdout
    assert done.stdout.count("verified: all") == done.stdout.count("over HTTP") == 5
