"""File formats of models, and the importer of each.

Plans end in .pretzel or .plan and are read by `oven.load`, graphs are called graph.toml or end in
.graph; the formats of other libraries' models
are the rows of `flour.core.model_formats`, which flour/__init__.py fills in. The ending says which
formats a file may have, its first bytes which it has.

Which libraries wrote a model's file, as far as the file says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flour
from flour.core.errors import FlourError
from flour.core.model_formats import FORMATS, that_begins, with_ending
from flour.core.provenance import Origin, at
from flour.language.flow import Flow
from flour.language.graph_file import graph_of, is_graph_file
from flour.sklearn.versions import version_in
from objectstore import Archive
from runtime.repository.errors import UnsupportedModel, Untrusted
from runtime.repository.files import Folder, shown

PLAN, LIGHTGBM, XGBOOST, ONNX, SKLEARN = "plan", "lightgbm", "xgboost", "onnx", "sklearn"
SKOPS = "skops"
GRAPH = "graph"

_PLANS = (".pretzel", ".plan")
#: How joblib, and people with pickles, name what is compressed: it is read as it is.
_PACKED = (".gz", ".z", ".bz2", ".xz", ".lzma")
#: How models of other libraries end, which a folder says that it leaves out.
_OTHERS = (
    *(".cbm", ".pmml", ".dill", ".cloudpickle", ".sav", ".rds", ".h5", ".hdf5", ".keras"),
    *(".pt", ".pth", ".pb", ".tflite", ".safetensors", ".mlmodel", ".npz"),
)
_HEAD = 16


def endings() -> list[str]:
    """How names of model files end."""
    known = (ending for each in FORMATS.values() for ending in each.endings)
    return list(dict.fromkeys((*_PLANS, *known)))


def by_name(path: Path) -> tuple[str, ...]:
    """The formats that a file of this name may have; none if it is no model."""
    ending = path.suffix.lower()
    if is_graph_file(path):
        return (GRAPH,)
    if ending in _PACKED:
        known = with_ending(path.with_suffix("").suffix)
        return tuple(each.name for each in known if each.runs_code)
    return (PLAN,) if ending in _PLANS else tuple(each.name for each in with_ending(ending))


def looks_like_model(path: Path) -> bool:
    """Return whether a name is that of a model, even of a format that cannot be read."""
    return bool(by_name(path) or _is_packed(path) or path.suffix.lower() in _OTHERS)


def stem(path: Path) -> str:
    """The name of a model's file without its ending, and that of the compression."""
    return path.with_suffix("").stem if _is_packed(path) else path.stem


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() in _PACKED and bool(by_name(path.with_suffix("")))


def of(folder: Folder, path: Path) -> str:
    """The format of a file."""
    possible = by_name(path)
    if not possible:
        raise UnsupportedModel(
            "this is not a model in a supported format",
            where=shown(path),
            found=shown("".join(path.suffixes[-2:])) or None,
            hint="supported are " + ", ".join(endings()),
        )
    if len(possible) == 1:
        return possible[0]
    with folder.open(path) as file:
        head = file.read(_HEAD)
    return that_begins([FORMATS[name] for name in possible], head).name


def check_trust(form: str, where: str, *, trust_pickle: bool) -> None:
    """Raise unless a file of this format may be read."""
    if form in FORMATS and FORMATS[form].runs_code and not trust_pickle:
        raise Untrusted(
            "this is a pickle, which runs code when it is read",
            where=where,
            hint="if you trust its author: --trust-pickle; better: import it once, "
            "pretzel import FILE --trust-pickle --into DIR, and serve the plan",
        )


def check_whole(folder: Folder, path: Path, form: str) -> None:
    """Raise if the file is empty, or is a plan that is damaged: every byte of it is read."""
    with folder.open(path) as file:
        empty = not file.read(1)
    if empty:
        raise UnsupportedModel("the file is empty", where=shown(path))
    if form == PLAN:
        with Archive.open(path) as archive:
            archive.verify()


def estimator(raw: bytes, where: str) -> Any:
    """The fitted estimator in a pickle that is trusted."""
    return pickled(raw, where)[0]


def pickled(raw: bytes, where: str) -> tuple[Any, dict[str, str]]:
    """The fitted estimator in a pickle that is trusted, and which libraries wrote it."""
    from flour.sklearn import versions
    from flour.sklearn.file import read_with_version

    found, version = read_with_version(raw, where)
    written = {"sklearn": versions.version_in(raw) and version, "xgboost": versions.xgboost_in(raw)}
    return found, {library: each for library, each in written.items() if each}


def program(form: str, raw: bytes, where: str, *, covers: bool = False) -> Flow:
    """The program of a model, with the outputs that its importer gives it.

    With `covers`, trees keep how much of the training data reached each node, where the file says.
    """
    if form == GRAPH:
        return graph_of(raw, where)
    if form == SKLEARN:
        return of_estimator(estimator(raw, where), where, covers=covers)
    read = importer(form, where)
    how = {"covers": True} if covers and form in (LIGHTGBM, XGBOOST, SKOPS) else {}
    try:
        with at(Origin(Path(where).name, 0)):
            flow: Flow = read(raw, **how)
    except FlourError as problem:
        problem.where = ", ".join(filter(None, (where, problem.where)))
        raise
    return flow


def of_estimator(
    found: object, where: str, *, covers: bool = False, log_probabilities: bool = False
) -> Flow:
    """The program of an estimator that was read from a file, where its steps come from."""
    with at(Origin(Path(where).name, 0)):
        return flour.from_sklearn(found, covers=covers, log_probabilities=log_probabilities)


def importer(form: str, where: str) -> Callable[..., Flow]:
    """The importer of a format whose files are data."""
    if form not in FORMATS or FORMATS[form].runs_code:
        raise UnsupportedModel(f"models of the format {form!r} are not supported", where=where)
    found: Callable[..., Flow] = getattr(flour, f"from_{form}")
    return found


_XGBOOST = re.compile(rb'"version":\s*\[\s*(\d+),\s*(\d+),\s*(\d+)')
_LIGHTGBM = re.compile(rb"^version=(\S{1,40})", re.MULTILINE)


def written_by(form: str, raw: bytes) -> dict[str, str]:
    """Libraries and their versions; of a pickle, whose reading says more, `pickled_by` knows."""
    read = _READ.get(form)
    return {} if read is None else read(raw)


def _lightgbm(raw: bytes) -> dict[str, str]:
    found = _LIGHTGBM.search(raw, 0, 1 << 10)
    return {} if found is None else {"lightgbm": f"file format {found[1].decode(errors='replace')}"}


def _xgboost(raw: bytes) -> dict[str, str]:
    if raw[:2] in (b"{L", b"{i", b"{U"):  # Universal Binary JSON
        from flour.boosters import ubjson

        numbers = ubjson.loads(raw).get("version", ())
        return {"xgboost": ".".join(str(int(each)) for each in numbers)} if len(numbers) else {}
    found = _XGBOOST.search(raw)
    return {} if found is None else {"xgboost": b".".join(found.groups()).decode()}


def _skops(raw: bytes) -> dict[str, str]:
    version = version_in(raw)
    return {"sklearn": version} if version else {}


def _onnx(raw: bytes) -> dict[str, str]:
    from flour.onnx.reading import read_model

    model = read_model(raw)
    opsets = {
        f"operators of {name or 'onnx'}": str(number) for name, number in model.opsets.items()
    }
    return opsets | ({"written by": model.producer} if model.producer else {})


_READ: dict[str, Callable[[bytes], dict[str, str]]] = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "onnx": _onnx,
    "skops": _skops,
}
