"""The release: versions, wheels, the bill of materials, and that two builds have the same bytes."""

from __future__ import annotations

import fnmatch
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import bill
import release
import version

pytestmark = pytest.mark.once
BUNDLED = tomllib.loads((ROOT / "LICENSES" / "bundled.toml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("told", "number"),
    [
        ("", "0.1.0"),
        ("v1.2.3", "1.2.3"),
        ("v1.2.3-4-gabc0", "1.2.4.dev4"),
        ("v1.3.0rc1", "1.3.0rc1"),
        ("v1.3.0rc1-2-gabc0", "1.3.0rc2.dev2"),
    ],
)
def test_the_version_is_that_of_the_tag(told: str, number: str) -> None:
    assert version.numbered(told) == number


def test_a_tag_of_another_form_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"is not v1\.2\.3"):
        version.numbered("v1.2")


CHANGES = "# Changelog\n\n## Unreleased\n{}\n## 0.2.0 (2026-12-01)\n\n- Something.\n"


@pytest.mark.parametrize(
    ("waiting", "number", "tagged", "refused"),
    [
        ("", "0.2.0", "tagged", ""),
        ("", "0.3.0", "tagged", "no section `## 0.3.0`"),
        ("\n- More.\n", "0.2.0", "tagged", "entries under Unreleased"),
        ("\n- More.\n", "0.2.1.dev3", "", ""),
        ("\n- More.\n", "0.3.0rc1", "tagged", ""),
    ],
)
def test_a_tag_needs_its_section(waiting: str, number: str, tagged: str, refused: str) -> None:
    with pytest.raises(release.Unfit, match=refused) if refused else nullcontext():
        release.check_changelog(CHANGES.format(waiting), number, bool(tagged))


def test_a_tree_without_a_repository_is_released_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tree/.venv").mkdir(parents=True)
    for name in ("a.py", ".venv/b.py", ".gitignore"):
        (tmp_path / "tree" / name).write_text("dist/\n", "utf-8")
    made = release.export("HEAD", tmp_path / "made", tmp_path / "tree")
    assert sorted(each.name for each in made.folder.iterdir()) == [".gitignore", "a.py"]


# --- what is built ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of this tree as it is, with a tag and a commit after it."""
    place = tmp_path_factory.mktemp("checkout") / "pretzel"
    git = ("git", "-C", str(place), "-c", "user.name=n", "-c", "user.email=n@example.com")
    source = release.repository(ROOT, place.with_name("copy"))
    listed = ("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others")
    found = subprocess.run((*listed, "--exclude-standard"), cwd=source, stdout=-1, check=True)
    for name in found.stdout.decode().split("\0"):
        if name and not name.startswith(("docs/", "tests/")) and (source / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, place / name)
    changes = CHANGES.format("\n- More.\n")
    for message, text, tag in (
        ("one", changes.replace("More", "."), "v0.2.0"),
        ("two", changes, ""),
    ):
        (place / "CHANGELOG.md").write_text(text, "utf-8")
        steps: list[tuple[str, ...]] = [("init", "-q")] if tag else []
        steps += [("add", "-A"), ("commit", "-q", "-m", message), *([("tag", tag)] if tag else [])]
        for step in steps:
            subprocess.run((*git, *step), check=True, timeout=120)
    return place


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in the place of packs, each with the head of an object file of its processor."""
    folder = tmp_path_factory.mktemp("packs")
    for tag, names in release.WHEELS.items():
        for name in names:
            kind = 183 if tag.endswith("aarch64") else 62
            head = b"\x7fELF\x02\x01\x01" + bytes(11) + kind.to_bytes(2, "little")
            (folder / f"{name}.pack").write_bytes(name.encode() + head)
    return folder


@pytest.fixture(scope="module")
def made(checkout: Path, packs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of two builds of one commit, the second in another place."""
    found = []
    for _ in range(2):
        into = tmp_path_factory.mktemp("dist")
        exported = release.export("HEAD", tmp_path_factory.mktemp("export") / "source", checkout)
        found += release.build(exported, packs, into)
    return found


def test_two_builds_have_the_same_bytes(made: list[Path]) -> None:
    first, second = made[: len(made) // 2], made[len(made) // 2 :]
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.name for path in first if path.read_bytes() != second.pop(0).read_bytes()] == []
    tags = sorted(path.stem.split("-", 2)[2] for path in first if path.suffix == ".whl")
    assert tags == sorted(release.WHEELS)
    assert {path.name.split("-")[1][:10] for path in first} == {"0.2.1.dev1"}


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (lambda name, content: (name.replace("v3.pack", "v3.pack.x"), content), "record is wrong"),
        (lambda name, content: (name.replace("v4.pack", "v5.pack"), content), "."),
        (lambda name, content: (name, content.replace(b"v4\x7fELF", b"v4\x7fELE")), "record"),
        (lambda name, content: (name, content.replace(b"Tag: py3", b"Tag: py2")), "another tag"),
        (lambda name, content: (name, content.replace(b"Version: 0", b"Version: 1")), "."),
    ],
)
def test_a_wheel_that_is_wrong_is_found(
    made: list[Path], tmp_path: Path, spoiled: Any, said: str
) -> None:
    (path,) = (path for path in made[: len(made) // 2] if "x86_64" in path.name)
    release.check_wheel(path, "0.2.1.dev1")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / path.name, "w") as other:
        for name in archive.namelist():
            last = name.endswith((".pack", "/WHEEL", "/METADATA"))
            pair = spoiled(name, archive.read(name)) if last else (name, archive.read(name))
            other.writestr(*pair)
    with pytest.raises((release.Unfit, KeyError), match=said):
        release.check_wheel(tmp_path / path.name, "0.2.1.dev1")


def test_the_bill_lists_what_is_needed_and_bundled(made: list[Path]) -> None:
    (path, _) = (path for path in made if path.suffix == ".json")
    told = json.loads(path.read_bytes())
    parts = {each["bom-ref"]: each for each in told["components"]}
    assert parts["pkg:pypi/numpy"]["scope"] == "required"
    assert parts["pkg:pypi/numpy"]["properties"][0]["value"] == "<2.6,>=1.26"
    assert parts["pkg:pypi/ray"]["properties"][1]["value"] == "cluster ray"
    assert parts["flour/sklearn/english.py"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert told["metadata"]["component"]["version"] == "0.2.1.dev1"
    assert not {"pkg:pypi/pytest", "pkg:pypi/mypy", "pkg:pypi/sphinx"} & parts.keys()


def test_every_file_that_is_no_python_is_listed(made: list[Path]) -> None:
    """Each with its licence, or as ours; and each licence's text is in the wheel."""
    rows = [*BUNDLED["bundled"], BUNDLED["ours"]]
    patterns = [pattern for row in rows for pattern in row["files"]]
    with zipfile.ZipFile(made[1]) as archive:
        names = archive.namelist()
    unused = [one for one in patterns if not fnmatch.filter(names, one) and "packs" not in one]
    assert unused == []
    others = [name for name in names if not name.endswith(".py") and ".dist-info/" not in name]
    assert [name for name in others if not any(fnmatch.fnmatch(name, p) for p in patterns)] == []
    for row in BUNDLED["bundled"]:
        text = "LICENSE" if row["licence"] == "Apache-2.0" else f"LICENSES/{row['licence']}.txt"
        assert [name for name in names if name.endswith(f"licenses/{text}")]


def test_the_licences_are_those_that_packages_state() -> None:
    """Those of what is installed here; a text of a licence states none by its name."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*needed["dependencies"]]
    for extra, wanted in needed["optional-dependencies"].items():
        lines += [f"{each.partition(';')[0]}; extra == '{extra}'" for each in wanted]
    assert list(bill.requirements(lines)) == sorted(
        each.replace("_", "-") for each in BUNDLED["dependencies"]
    )
    wrong = []
    for name, licence in BUNDLED["dependencies"].items():
        try:
            stated = metadata(name).json.get("license_expression")
        except PackageNotFoundError:
            continue
        if stated and licence.split(" ")[0] not in stated:
            wrong.append((name, licence, stated))
    assert wrong == []
    assert Requirement(lines[0]).name in BUNDLED["dependencies"]
