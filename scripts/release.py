"""Builds a release from a clean export of a commit: wheels, source distribution, bill of materials.

    scripts/release [--commit COMMIT] [--into FOLDER] [--packs FOLDER] [--trial] [--smoke PYTHON]...

One wheel is for any machine and has no machine code. Those for Linux hold the packs of their
processors. Two builds of one commit have the same bytes. `--packs` takes packs that are built
already; those of a `--trial` hold the code of a few models, which takes one minute and not twelve.
Each `--smoke` installs the wheels with this interpreter into a new environment and uses
them with the source out of reach.
"""

from __future__ import annotations

import argparse
import base64
import csv
import email
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from bill import bill_of_materials
from packaging.metadata import Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PACKS = "oven/compiler/packs/"
PURE = "py3-none-any"
#: The packs of each wheel. They call functions of the C library that are older than any of its
#: versions with a tag, which here are those that numpy's and llvmlite's own wheels need at least.
WHEELS = {
    PURE: (),
    "py3-none-manylinux_2_17_x86_64": ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-vbmi"),
    "py3-none-manylinux_2_17_aarch64": ("aarch64",),
}
#: Platforms as pip names them, and the wheels that they get.
CHOICES = {
    "manylinux_2_17_x86_64": "py3-none-manylinux_2_17_x86_64",
    "manylinux_2_17_aarch64": "py3-none-manylinux_2_17_aarch64",
    "musllinux_1_2_x86_64": PURE,
    "macosx_14_0_arm64": PURE,
    "win_amd64": PURE,
}
#: The numbers that ELF has for the processors of the wheels.
_ELF = {"x86_64": 62, "aarch64": 183}
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
#: Development versions, too.
_OURS = ("--pre", "pretzel-runtime")
#: Builds may take so long, and one command for each so many seconds.
_HOUR = 3600


class Export(NamedTuple):
    """The files of a commit, and what it is."""

    folder: Path
    commit: str
    seconds: int
    #: A tag with a version is on the commit.
    tagged: bool


class Unfit(SystemExit):
    """Something that must not be released."""

    def __init__(self, what: str) -> None:
        super().__init__(f"scripts/release: {what}")


def main() -> None:
    """Export, build, check, install."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("--packs", type=Path)
    parser.add_argument("--trial", action="store_true")
    parser.add_argument("--smoke", action="append", default=[], metavar="PYTHON", type=_program)
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    if leftover := sorted(options.into.glob("pretzel_runtime-*")):
        raise Unfit(f"there is a release in {options.into}: {leftover[0].name}")
    with tempfile.TemporaryDirectory() as work:
        source = export(options.commit, Path(work) / "source")
        _say("packs")
        packs = options.packs or _packs(source.folder, Path(work) / "packs", trial=options.trial)
        _say("distributions")
        for path in build(source, packs, options.into.resolve()):
            print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
        for python in options.smoke:
            _say(f"use with {python}")
            smoke(python, options.into.resolve(), source.folder, Path(work))


def _say(what: str) -> None:
    print(f"== release: {what}", flush=True)


def _run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, check=True, timeout=_HOUR
    )
    return done.stdout.decode().strip()


def _git(checkout: Path, *arguments: str | Path) -> str:
    named = ("-c", "safe.directory=*", "-c", "user.name=release", "-c", "user.email=none@localhost")
    return _run("git", *named, *arguments, cwd=checkout)


def repository(tree: Path, into: Path) -> Path:
    """The repository that a tree is a checkout of; where there is none, a new one of a copy."""
    if (tree / ".git").exists():
        return tree
    shutil.copytree(tree, into, ignore=shutil.ignore_patterns(".*cache*", ".venv*", "__pycache__"))
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "a copy")):
        _git(into, *arguments)
    return into


# --- building -----------------------------------------------------------------------------------


def export(commit: str, into: Path, checkout: Path = ROOT) -> Export:
    """The files of a commit, in a new folder, and nothing else."""
    into.mkdir(parents=True)
    archive = into.with_suffix(".tar")
    checkout = repository(checkout, into.with_suffix(".repository"))
    _git(checkout, "archive", "--output", archive, commit)
    _run("tar", "xf", archive, "-C", into, cwd=checkout)
    seconds, name = _git(checkout, "show", "-s", "--format=%ct %H", commit).split()
    tags = _git(checkout, "tag", "--list", "v[0-9]*", "--points-at", commit)
    return Export(into, name, int(seconds), bool(tags))


def _program(path: str) -> str:
    return str(Path(path).absolute()) if os.sep in path else path


def _packs(source: Path, into: Path, *, trial: bool) -> Path:
    """The packs of all wheels, of the export's own code."""
    names = ",".join(name for levels in WHEELS.values() for name in levels)
    command = [sys.executable, "scripts/build_packs.py", "--levels", names, "--into", str(into)]
    command += ["--models", "6"] if trial else []
    # One thread: training adds numbers up in the same order each time.
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    said = _run(*command, cwd=source, PYTHONPATH=str(source), **one)
    print(said)
    return into


def build(source: Export, packs: Path, into: Path) -> list[Path]:
    """Source distribution, wheels, bill of materials and digests of an export; all checked."""
    epoch = {"SOURCE_DATE_EPOCH": str(source.seconds)}
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=source.folder, **epoch)
        (sdist,) = (path.replace(into / path.name) for path in Path(folder).glob("*.tar.gz"))
        (pure,) = Path(folder).glob("*.whl")
        check_source(sdist, pure, source.seconds)
        version = str(parse_sdist_filename(sdist.name)[1])
        check_changelog((source.folder / "CHANGELOG.md").read_text("utf-8"), version, source.tagged)
        bill = into / f"pretzel_runtime-{version}.cdx.json"
        bill.write_bytes(bill_of_materials(pure, source.folder, source.commit, source.seconds))
        wheels = [
            wheel(pure, tag, [packs / f"{name}.pack" for name in names], bill, source.seconds)
            for tag, names in WHEELS.items()
        ]
    for path in wheels:
        check_wheel(path, version)
    check_choices(into)
    made = [sdist, *wheels, bill]
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (into / "SHA256SUMS").write_text("".join(lines))
    return made


def wheel(pure: Path, tag: str, packs: Iterable[Path], bill: Path, seconds: int) -> Path:
    """The pure wheel with packs and a bill of materials, beside that, with this tag."""
    name, version, *_ = pure.stem.split("-")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(pure) as archive:
        held = {each: archive.read(each) for each in archive.namelist()}
    if there := [each for each in held if each.startswith(PACKS)]:
        raise Unfit(f"the export has packs already: {', '.join(there)}")
    held |= {f"{PACKS}{path.name}": path.read_bytes() for path in packs}
    held[f"{info}/sboms/{bill.name}"] = bill.read_bytes()
    told = held.pop(f"{info}/WHEEL").decode()
    held[f"{info}/WHEEL"] = re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", told).encode()
    del held[f"{info}/RECORD"]
    held[f"{info}/RECORD"] = _record(held, f"{info}/RECORD")
    path = bill.with_name(f"{name}-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in held.items():
            entry = zipfile.ZipInfo(each, time.gmtime(seconds)[:6])
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, content, compresslevel=9)
    return path


def _record(held: Mapping[str, bytes], own: str) -> bytes:
    """The table of a wheel's files with their digests."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name, content in held.items():
        rows.writerow((name, f"sha256={_digest(content)}", len(content)))
    rows.writerow((own, "", ""))
    return text.getvalue().encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


# --- checks -------------------------------------------------------------------------------------


def check_changelog(text: str, version: str, tagged: bool) -> None:  # noqa: FBT001 (a fact)
    """`Unfit` if a tagged version has no section of its own, or entries wait for one."""
    if not tagged or Version(version).is_prerelease:
        return
    if version not in re.findall(r"^## ([^ \n]*)", text, re.MULTILINE):
        raise Unfit(f"CHANGELOG.md has no section `## {version}`")
    if text.partition("## Unreleased\n")[2].partition("\n## ")[0].strip():
        raise Unfit(f"CHANGELOG.md has entries under Unreleased, and this is {version}")


def check_source(sdist: Path, pure: Path, seconds: int) -> None:
    """`Unfit` unless the source distribution makes the same wheel, where there is no git."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
        (root,) = Path(folder).iterdir()
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        _run(*command, cwd=root, SOURCE_DATE_EPOCH=str(seconds), PATH="")
        again = Path(folder) / pure.name
        if not again.exists() or again.read_bytes() != pure.read_bytes():
            raise Unfit(f"{sdist.name} makes another wheel than the checkout does")


def check_wheel(path: Path, version: str) -> None:
    """`Unfit` unless a wheel's name, tag, metadata and packs are right."""
    name, number, _, tags = parse_wheel_filename(path.name)
    (tag,) = map(str, tags)
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() or len(set(archive.namelist())) != len(archive.namelist()):
            raise Unfit(f"{path.name} is damaged")
        held = {each: archive.read(each) for each in archive.namelist()}
    info = f"pretzel_runtime-{version}.dist-info"
    if (str(name), str(number)) != ("pretzel-runtime", version):
        raise Unfit(f"{path.name} is not of version {version}")
    if email.message_from_bytes(held[f"{info}/WHEEL"]).get_all("Tag") != [tag]:
        raise Unfit(f"{path.name} has another tag inside")
    told = Metadata.from_email(held[f"{info}/METADATA"])  # it raises where a field is wrong
    if str(told.version) != version or told.description_content_type != "text/markdown":
        raise Unfit(f"{path.name}: the metadata is of another version, or without a description")
    rows = list(csv.reader(held[f"{info}/RECORD"].decode().splitlines()))
    if {row[0]: row[1] for row in rows if row[1]} != {
        each: f"sha256={_digest(content)}" for each, content in held.items() if each != rows[-1][0]
    }:
        raise Unfit(f"{path.name}: the record is wrong")
    packs = sorted(each for each in held if each.startswith(PACKS))
    right = {number for machine, number in _ELF.items() if tag.endswith(machine)}
    if any(_processors(held[each]) != right for each in packs):
        raise Unfit(f"{path.name} has machine code for other processors")
    if packs != sorted(f"{PACKS}{each}.pack" for each in WHEELS[tag]):
        raise Unfit(f"{path.name} has the packs {', '.join(packs) or 'of no processor'}")


def _processors(pack: bytes) -> set[int]:
    """The numbers that ELF has for the processors of a pack's object files."""
    places = (found.start() for found in re.finditer(re.escape(b"\x7fELF\x02\x01\x01"), pack))
    return {int.from_bytes(pack[place + 18 : place + 20], "little") for place in places}


def check_choices(dist: Path) -> None:
    """`Unfit` unless pip takes the right wheel on each platform."""
    for platform, wanted in CHOICES.items():
        with tempfile.TemporaryDirectory() as folder:
            where = ("--platform", platform, "--only-binary", ":all:", "-d", folder)
            _run(*_PIP, "download", "--no-deps", "--no-index", "-f", dist, *where, *_OURS, cwd=dist)
            (found,) = Path(folder).iterdir()
        if not found.name.endswith(f"-{wanted}.whl"):
            raise Unfit(f"pip takes {found.name} on {platform}")


# --- use ----------------------------------------------------------------------------------------


def smoke(python: str, dist: Path, source: Path, work: Path) -> None:
    """Use the wheel that pip chooses for this machine, and the one for any machine."""
    version = _run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])", cwd=work)
    venv = work / f"venv{version}"
    _run(python, "-m", "venv", venv, cwd=work)
    pip = (venv / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    chosen = work / f"chosen{version}"
    _run(*pip, "download", "--no-deps", "--no-index", "-f", dist, "-d", chosen, *_OURS, cwd=work)
    (best,) = chosen.glob("*.whl")
    (pure,) = dist.glob(f"*-{PURE}.whl")
    if best.name == pure.name:
        raise Unfit(f"pip of {python} takes {pure.name}, and not one with machine code")
    compiler = f"llvmlite {metadata.version('llvmlite')}"  # packs are for one version of it
    (work / "smoke.py").write_bytes((source / "scripts" / "smoke.py").read_bytes())
    for path in (best, pure):
        again = ["--force-reinstall", "--no-deps"] if path == pure else []
        _run(*pip, "install", *again, "--retries", "10", f"{path}[sklearn]", cwd=work)
        # -I: no current directory, no PYTHON* variables, no user site: only what was installed.
        command: list[str | Path] = [pip[0], "-I", work / "smoke.py"]
        command += [compiler] if path == best else []
        print(f"{path.name}: {_run(*command, cwd=work, PRETZEL_CACHE=str(venv / path.stem))}")


if __name__ == "__main__":
    main()
