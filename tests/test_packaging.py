"""The wheel holds the five packages and nothing else; CI also installs it (scripts/release)."""

from __future__ import annotations

import email
import email.message
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.house import PACKAGES, ROOT, files

sys.path.insert(0, str(ROOT / "scripts"))

from version import version

INFO = f"pretzel_runtime-{version()}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel in this process."""
    place = str(tmp_path_factory.mktemp("wheel"))
    return Path(next(WheelBuilder(str(ROOT)).build(directory=place, versions=["standard"])))


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    """Return the names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    """Return what the wheel says about itself."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{INFO}/METADATA").decode()
    return email.message_from_string(text)


def test_the_wheel_has_exactly_the_five_packages(names: list[str]) -> None:
    top = {name.split("/")[0] for name in names}
    assert top == {*PACKAGES, INFO}


def test_the_wheel_has_every_source_file(names: list[str]) -> None:
    sources = {path.relative_to(ROOT).as_posix() for path in files(*PACKAGES)}
    assert sources == {name for name in names if name.endswith(".py")}


def test_the_wheel_has_no_tests_or_benchmarks(names: list[str]) -> None:
    assert [name for name in names if name.startswith(("tests/", "bench/", "scripts/"))] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_the_packages_say_they_are_typed(package: str, names: list[str]) -> None:
    assert f"{package}/py.typed" in names


def test_the_licence_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{INFO}/licenses/LICENSE").decode()
    assert text == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_metadata(metadata: email.message.Message) -> None:
    assert metadata["Name"] == "pretzel-runtime"
    assert metadata["Version"] == version()
    assert metadata["License-Expression"] == "Apache-2.0 AND BSD-3-Clause AND Unicode-3.0"
    assert metadata["Requires-Python"] == "<3.15,>=3.10"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_serving_needs_no_training_library(metadata: email.message.Message) -> None:
    needed = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(each.split("<")[0] for each in needed) == ["llvmlite", "numba", "numpy", "tomli"]
    (tomli,) = [each for each in needed if each.startswith("tomli")]
    assert tomli.endswith("; python_version < '3.11'")


def test_the_ranges_are_those_that_are_tested() -> None:
    """scripts/test-environments names all versions; other texts say the same."""
    script = (ROOT / "scripts" / "test-environments").read_text(encoding="utf-8")
    environments = [
        line.split() for line in re.findall(r'^    "(3\.\d+ .*)"$', script, re.MULTILINE)
    ]
    pythons = [python for python, *_ in environments]
    libraries = ("numpy", "scikit-learn", "numba", "llvmlite", "pandas")
    rows = []
    for python, *wanted in environments:
        had = {name: pin.removesuffix(".*") for name, _, pin in (e.partition("==") for e in wanted)}
        rows.append([python, *(had.get(name, "none") or "newest" for name in libraries)])

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    first, last = (int(each.removeprefix("3.")) for each in (pythons[0], pythons[-1]))
    assert project["requires-python"] == f">=3.{first},<3.{last + 1}"
    stated = [each for each in project["classifiers"] if "Python :: 3." in each]
    assert [each.rpartition(" ")[2] for each in stated] == pythons
    extras = project["optional-dependencies"]
    ranges = dict(
        each.split(">=")
        for each in project["dependencies"] + extras["sklearn"] + extras["pandas"][1:]
    )
    oldest = dict(zip(libraries, rows[0][1:], strict=True))
    assert oldest == {name: ranges[name].partition(",")[0] for name in libraries}

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (
        f"Python {', '.join(pythons[:-1])} or {pythons[-1]}, and numpy {oldest['numpy']}" in readme
    )
    platforms = ROOT / "docs" / "contributing" / "platforms.md"
    table = platforms.read_text(encoding="utf-8").partition("| Python | numpy |")[2]
    told = [line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()[2:]]
    assert told == rows
    commands = [f'"{name}>={oldest[name]}"' for name in ("numpy", "llvmlite")]
    assert f"pip install {' '.join(commands)}" in table


def test_every_requirement_is_a_range(metadata: email.message.Message) -> None:
    loose = [
        each
        for each in metadata.get_all("Requires-Dist", [])
        if not each.startswith("pretzel-runtime[") and not (">=" in each and "<" in each)
    ]
    assert loose == []


def test_no_command_is_promised_that_is_not_there(names: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = [entry.split(":")[0] for entry in project.get("scripts", {}).values()]
    assert [each for each in modules if each.replace(".", "/") + ".py" not in names] == []


def test_the_source_archive_can_be_tested(tmp_path: Path) -> None:
    made = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with tarfile.open(made) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for path in files(*PACKAGES, "tests", "scripts")}
    assert wanted - held == set()
    assert {"LICENSE", "README.md", "pyproject.toml", "scripts/test", ".ci/run"} <= held
