"""Settings of models in the folder, whatever their layout: the notes of their registration.

    DIR/name/notes.toml         for all versions of a model
    DIR/name/7/notes.toml       for one version, whose settings count before those for all
    DIR/name@7.notes.toml       for a file DIR/name@7.onnx

    private = ["ssn"]                   columns whose values are not to be seen
    batch_wait = 0.002                  also batch_objective, batch_rows, cache_bytes

    [watch]                             the options of Runtime.watch: the server watches the model
    segments = ["country", "age // 10"]

    [keep]                              the options of Runtime.keep: the server keeps its answers
    seconds = 2_592_000

    [feedback]                          the options of runtime.feedback.Feedback
    sample = 0.01

    [stream]                            the server answers a stream: see runtime.streams
    from = "redis://localhost/payments"
    to = "redis://localhost/scores"

Private columns of all files count together. What is not known is refused: a word that is spelt
wrongly would show what should be private.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flour.core.errors import FlourError, is_number, nearest
from flour.core.toml import tomllib
from runtime.repository.errors import BadConfig
from runtime.repository.files import Folder, shown
from runtime.repository.formats import stem
from runtime.repository.listing import FolderModel, Scan, Trouble, reason_of

NAME = "notes.toml"
_NUMBER = (int, float)
_TEXTS = list
_WATCH = {
    "segments": _TEXTS,
    "outliers": _TEXTS,
    "drift": bool,
    "limit": int,
    "costs": bool,
    "window": int,
    "sample": _NUMBER,
    "rows_a_minute": _NUMBER,
}
_KEEP = {
    "inputs": bool,
    "sample": _NUMBER,
    "most_bytes": int,
    "seconds": _NUMBER,
    "subject": str,
    "private": str,
    "rotate": _NUMBER,
}
_FEEDBACK = {
    **dict.fromkeys(("sample", "disagreement", "drifted", "period"), _NUMBER),
    **dict.fromkeys(("uncertain", "most_rows", "most_bytes"), int),
}
_STREAM = {
    **dict.fromkeys(("from", "to", "dead", "group", "consumer"), str),
    "rows": int,
    "wait_ms": _NUMBER,
    "keep": _TEXTS,
}
KNOWN: Mapping[str, Any] = {
    "private": _TEXTS,
    "batch_wait": _NUMBER,
    "batch_objective": _NUMBER,
    "batch_rows": int,
    "cache_bytes": int,
    "watch": _WATCH,
    "keep": _KEEP,
    "feedback": _FEEDBACK,
    "stream": _STREAM,
}


def with_notes(folder: Folder, found: Scan) -> Scan:
    """The models with the notes of such files; one whose file is wrong is not served."""
    models, troubles = [], [*found.troubles]
    there: dict[Path, bool] = {}
    for model in found.models:
        files = [path for path in _places(folder, model) if _is_there(folder, path, there)]
        if not files:
            models.append(model)
            continue
        stamp = (*model.stamp, *folder.stamp(*files))
        try:
            models.append(replace(model, notes=_merged(folder, model.notes, files), stamp=stamp))
        except FlourError as problem:
            where, reason = shown(files[0]), reason_of(problem)
            troubles.append(Trouble(model.name, model.version, where, reason, stamp))
    return Scan(tuple(models), tuple(troubles))


def _places(folder: Folder, model: FolderModel) -> Iterator[Path]:
    """Places for notes of a model, the most general ones first."""
    directory = model.path.parent
    if directory == folder.root:
        yield model.path.with_name(f"{stem(model.path)}.{NAME}")
        return
    if directory.name == model.version and directory.parent != folder.root:
        yield directory.parent / NAME
    yield directory / NAME


def _is_there(folder: Folder, path: Path, known: dict[Path, bool]) -> bool:
    if path not in known:
        known[path] = folder.is_file(path)
    return known[path]


def of_file(path: Path) -> dict[str, object]:
    """The notes of a model's file that is opened alone: those beside it, and above its version."""
    own = path.absolute().parent
    above = [own.parent / NAME] if own.name.isdecimal() else []
    files = [*above, own / NAME, own / f"{stem(path)}.{NAME}"]
    return _merged(Folder(own.parent), {}, [each for each in files if each.is_file()])


def _merged(folder: Folder, given: Mapping[str, object], files: list[Path]) -> dict[str, object]:
    notes: dict[str, object] = dict(given)
    private: dict[str, None] = {}
    for path in files:
        found = read(folder.read_text(path), shown(path))
        private |= dict.fromkeys(found.pop("private", ()))
        notes |= found
    return notes | ({"private": [*private]} if private else {})


def read(text: str, where: str) -> dict[str, Any]:
    """The notes of a file, checked."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadConfig("this is no TOML", where=where, found=str(problem)[:200]) from None
    _check(data, KNOWN, where)
    return data


def _check(data: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    for name, value in data.items():
        if name not in known:
            raise BadConfig(
                f"there is no setting {name!r}"[:100],
                where=where,
                found="settings are " + ", ".join(known),
                hint=nearest(name, known),
            )
        kind = known[name]
        if isinstance(kind, Mapping) and isinstance(value, dict):
            _check(value, kind, f"{where}, [{name}]")
        elif not _fits(value, kind):
            raise BadConfig(f"{name} is not of its type", where=where, found=repr(value)[:80])


def _fits(value: object, kind: Any) -> bool:
    if isinstance(kind, Mapping):
        return False
    if kind is _TEXTS:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, kind) and (kind in {bool, str} or is_number(value))
