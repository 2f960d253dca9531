"""The wheel holds the five packages and nothing else; CI also installs it (scripts/check-wheel)."""

from __future__ import annotations

import email
import email.message
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.house import PACKAGES, ROOT, files


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
        text = archive.read("pretzel_runtime-0.1.0.dist-info/METADATA").decode()
    return email.message_from_string(text)


def test_the_wheel_has_exactly_the_five_packages(names: list[str]) -> None:
    top = {name.split("/")[0] for name in names}
    assert top == {*PACKAGES, "pretzel_runtime-0.1.0.dist-info"}


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
        text = archive.read("pretzel_runtime-0.1.0.dist-info/licenses/LICENSE").decode()
    assert text == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_metadata(metadata: email.message.Message) -> None:
    assert metadata["Name"] == "pretzel-runtime"
    assert metadata["Version"] == "0.1.0"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == "<3.15,>=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_serving_needs_no_training_library(metadata: email.message.Message) -> None:
    needed = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(each.split("<")[0] for each in needed) == ["llvmlite", "numba", "numpy"]


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
