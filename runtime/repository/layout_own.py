"""Our own layout: plain folders of model files.

    DIR/name.pretzel            version 1 of `name`
    DIR/name@7.onnx             version 7
    DIR/name/7/anything.ubj     version 7
    DIR/name/model.txt          version 1
    DIR/name/graph.toml         a graph of the folder's models; also name.graph.toml, name.graph

Beside a model there may be rows with their expected answers: `verify.jsonl` in its folder, or
`name@7.verify.jsonl` beside `name@7.onnx`. Triton's layout without a configuration reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flour.core.errors import FlourError
from runtime.repository import formats
from runtime.repository.files import Folder, shown
from runtime.repository.io_contract import Plain
from runtime.repository.listing import FIRST_VERSION, Findings, FolderModel

LAYOUT = "pretzel"
ROWS = "verify.jsonl"
LEADS_OUT = "this link leads out of the folder"
#: Settings and examples of other servers, in MLflow's folders, too: they are not models.
_SETTINGS = {"settings.json", "model-settings.json", "config.json", "metadata.json", "package.json"}
_SETTINGS |= {"requirements.txt", "input_example.json", "serving_input_example.json"}


def is_model(path: Path) -> bool:
    """Return whether a name is that of a model, even of a format that cannot be read."""
    return formats.looks_like_model(path) and path.name.lower() not in _SETTINGS


def file(folder: Folder, path: Path, into: Findings) -> None:
    """A model file in the folder that is served."""
    if is_model(path):
        stem = formats.stem(path).removesuffix(".graph")
        name, _, version = stem.partition("@")
        rows = path.with_name(f"{stem}.{ROWS}")
        add(folder, path, rows, (name, version or FIRST_VERSION), into)


def named_folder(folder: Folder, directory: Path, into: Findings) -> None:
    """A folder for one model, with a file or with folders for its versions."""
    for version, path in _versions(folder, directory, into):
        add(folder, path, path.with_name(ROWS), (directory.name, version), into)


def _versions(folder: Folder, directory: Path, into: Findings) -> Iterator[tuple[str, Path]]:
    entries = folder.entries(directory)
    files = [path for path in entries if is_model(path) and folder.is_file(path)]
    if any(map(formats.by_name, files)) or not any(map(folder.is_folder, entries)):
        yield from _only(directory, files, (directory.name, FIRST_VERSION), into)
        return
    for version in entries:
        if folder.is_folder(version):
            inside = [path for path in folder.entries(version) if is_model(path)]
            yield from _only(version, inside, (directory.name, version.name), into)
        elif version.is_dir():
            into.trouble(directory.name, version.name, version, LEADS_OUT)


def _only(
    directory: Path, files: list[Path], address: tuple[str, str], into: Findings
) -> Iterator[tuple[str, Path]]:
    """The model of a folder; several are reported as a problem, none is allowed."""
    files = [path for path in files if formats.by_name(path)] or files[:1]
    if len(files) > 1:
        names = ", ".join(shown(path.name) for path in files[:8])
        into.trouble(*address, directory, f"a version has one model file; found {names}")
    elif files:
        yield address[1], files[0]


def add(folder: Folder, path: Path, rows: Path, address: tuple[str, str], into: Findings) -> None:
    """Add a model of this layout, or the problem with it."""
    stamp = folder.stamp(path, rows)
    try:
        if not folder.holds(path):
            folder.guard(path)
        form = formats.of(folder, path)
    except FlourError as problem:
        into.trouble(*address, path, problem, stamp)
        return
    found = rows if folder.is_file(rows) else None
    into.add(FolderModel(*address, LAYOUT, path, form, Plain(), found, stamp))


def next_version(directory: Path) -> int:
    """The number after the last version of a model's folder, which need not be there."""
    used = [each for each in directory.glob("*") if not each.is_dir() or any(each.iterdir())]
    return max((int(each.name) for each in used if each.name.isdecimal()), default=0) + 1
