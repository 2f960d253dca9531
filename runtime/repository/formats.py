"""File formats of models, and the importer of each.

Plans end in .pretzel or .plan and are read by `oven.load`, graphs are called graph.toml or end in
.graph; the formats of other libraries' models
are the rows of `flour.core.model_formats`, which flour/__init__.py fills in. The ending says which
formats a file may have, its first bytes which it has; pickles may have any ending of no format.

Which libraries wrote a model's file, as far as the file says.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import flour
from flour.core.errors import FlourError, ImportRefused
from flour.core.model_formats import FORMATS, refuse_other, that_begins, with_ending
from flour.core.provenance import Origin, at
from flour.language.flow import Flow
from flour.language.graph_file import graph_of, is_graph_file
from flour.pickles import is_pickle
from flour.sklearn.versions import version_in, xgboost_in
from objectstore import Archive
from runtime.repository.errors import UnsupportedModel, Untrusted
from runtime.repository.files import Folder, shown

_ONNX = "write ONNX where it was trained, and import that: "


class Foreign(NamedTuple):
    """A format without an importer."""

    name: str
    hint: str
    #: How such files begin, and the name of a file in an archive of this format.
    begins: str = r"(?!)"
    holds: str = r"(?!)"


PMML = Foreign(
    "PMML",
    "PMML has no importer: import the model that it was exported from "
    "(the pickle, the booster's own file), or an ONNX export of it",
    begins=r"(\xef\xbb\xbf)?\s*<[^\0]{0,600}?PMML[\s>]",
)
MOJO = Foreign(
    "a MOJO of H2O",
    "a MOJO of H2O has no importer: convert a GBM's to ONNX (onnxmltools.convert_h2o); that of an "
    "H2OXGBoostEstimator holds a model of XGBoost, the file 'boosterBytes'",
    holds=r"model\.ini",
)
_FORMATS = (
    PMML,
    MOJO,
    Foreign(
        "a model of Keras",
        _ONNX + "model.export('model.onnx', format='onnx'), or tf2onnx",
        holds=r"model\.weights\.h5",
    ),
    Foreign(
        "HDF5, which Keras keeps models in",
        _ONNX + "tf2onnx.convert.from_keras(model)",
        begins=r"\x89HDF\r\n\x1a\n",
    ),
    Foreign(
        "a file of PyTorch",
        _ONNX + "torch.onnx.export(model, (rows,), 'model.onnx')",
        begins=r"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.",
        holds=r"[^/]+/(data|constants)\.pkl",
    ),
    Foreign(
        "a model of Core ML",
        "import the model that it was converted from, or an ONNX export of that",
        begins=r"\x08[\x01-\x1f]\x12[\x80-\xff]*[\0-\x7f]\n",
    ),
)
_BEGINS = [(re.compile(each.begins.encode("latin-1"), re.DOTALL), each) for each in _FORMATS]
_HOLDS = [(re.compile(each.holds), each) for each in _FORMATS]


def foreign(file: IO[bytes], head: bytes) -> Foreign | None:
    """The format without an importer that a file has, which begins with `head`; None of others."""
    found = next((each for begins, each in _BEGINS if begins.match(head)), None)
    if found is None and head.startswith(b"PK\x03\x04"):
        with suppress(zipfile.BadZipFile, OSError, ValueError), zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            found = next((e for holds, e in _HOLDS if any(map(holds.fullmatch, names))), None)
    return found


PLAN, LIGHTGBM, XGBOOST, ONNX, SKLEARN = "plan", "lightgbm", "xgboost", "onnx", "sklearn"
SKOPS, EMBEDDING = "skops", "embedding"
GRAPH = "graph"

_PLANS = (".pretzel", ".plan")
#: How joblib, and people with pickles, name what is compressed: it is read as it is.
_PACKED = (".gz", ".z", ".bz2", ".xz", ".lzma")
#: How models of other libraries end, which a folder says that it leaves out.
_OTHERS = (
    *(".cbm", ".pmml", ".dill", ".cloudpickle", ".sav", ".rds", ".h5", ".hdf5", ".keras"),
    *(".pt", ".pth", ".pb", ".tflite", ".safetensors", ".mlmodel", ".npz", ".mojo"),
)
#: Advice for formats that people have, by the ending.
_NEURAL = (".keras", ".h5", ".hdf5", ".pb", ".tflite", ".pt", ".pth", ".safetensors")
_ADVICE = {".pmml": PMML.hint, ".mojo": MOJO.hint, ".zip": MOJO.hint} | dict.fromkeys(
    _NEURAL, "write ONNX where it was trained (tf2onnx, torch.onnx.export)"
)
_HEAD = 1 << 10


def endings() -> list[str]:
    """Endings of model files' names."""
    known = (ending for each in FORMATS.values() for ending in each.endings)
    return list(dict.fromkeys((*_PLANS, *known)))


def by_name(path: Path) -> tuple[str, ...]:
    """The formats that a file of this name may have; none if it is no model."""
    ending = path.suffix.lower()
    if is_graph_file(path):
        return (GRAPH,)
    if ending in _PACKED:
        known = with_ending(path.with_suffix("").suffix)
        return tuple(each.name for each in known if each.name == SKLEARN)
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
    if possible in ((PLAN,), (GRAPH,), (ONNX,)):
        return possible[0]
    with folder.open(path) as file:
        head = file.read(_HEAD)
        strange = foreign(file, head)
    if strange is not None:
        raise UnsupportedModel(
            f"this is {strange.name}, which has no importer", where=shown(path), hint=strange.hint
        )
    if len(possible) == 1:
        return possible[0]
    if is_pickle(head):
        return SKLEARN
    if not possible:
        refuse_other(head, shown(path))
        advice = filter(None, [_ADVICE.get(path.suffix.lower())])
        raise UnsupportedModel(
            "this is not a model in a supported format",
            where=shown(path),
            found=shown("".join(path.suffixes[-2:])) or None,
            hint="; ".join((*advice, "supported are " + ", ".join(endings()))),
        )
    return that_begins([FORMATS[name] for name in possible], head).name


def check_whole(folder: Folder, path: Path, form: str) -> None:
    """Raise if the file is empty, or is a plan that is damaged: every byte of it is read."""
    with folder.open(path) as file:
        empty = not file.read(1)
    if empty:
        raise UnsupportedModel("the file is empty", where=shown(path))
    if form == PLAN:
        with Archive.open(path) as archive:
            archive.verify()


def program(  # noqa: PLR0913 (a file, and how to read it)
    form: str,
    raw: bytes,
    where: str,
    *,
    covers: bool = False,
    leaves: bool = False,
    log_probabilities: bool = False,
    trust_pickle: bool = False,
    found: object = None,
    sample: object = None,
    part: str = "",
) -> Flow:
    """The program of a model, with the outputs that its importer gives it.

    With `covers`, trees keep how much of the training data reached each node, where the file says;
    with `leaves`, boosters answer with the leaf that each tree ends in.
    A pickle is read as data, unless its `estimator` has been `found`; with `trust_pickle`, one that
    is refused so is unpickled. A `sample` says what an estimator's columns are, and `part` is the
    key of a model in the mapping that a pickle holds.
    """
    if form == GRAPH:
        return graph_of(raw, where)
    if form == SKLEARN:

        def read(found: object) -> Flow:
            with at(Origin(Path(where).name, 0)):
                return flour.from_sklearn(
                    found, sample, covers=covers, log_probabilities=log_probabilities
                )

        try:
            return read(estimator(form, raw, where, part) if found is None else found)
        except ImportRefused as problem:
            return read(trusted(raw, where, problem, part, trust_pickle=trust_pickle))
    if form not in FORMATS:
        raise UnsupportedModel(f"models of the format {form!r} are not supported", where=where)
    refuse_other(raw, where)
    importer: Callable[..., Flow] = getattr(flour, f"from_{form}")
    boosters = (LIGHTGBM, XGBOOST)
    able = {"covers": (covers, (*boosters, SKOPS)), "leaves": (leaves, boosters)}
    how = {name: True for name, (asked, forms) in able.items() if asked and form in forms}
    given = (raw, sample) if form == SKOPS else (raw,)
    try:
        with at(Origin(Path(where).name, 0)):
            return importer(*given, **how)
    except FlourError as problem:
        problem.where = ", ".join(filter(None, (where, problem.where)))
        raise


def trusted(
    raw: bytes, where: str, problem: ImportRefused, part: str = "", *, trust_pickle: bool
) -> Any:
    """The estimator of a pickle that is refused as data, unpickled if its author is trusted."""
    from flour.sklearn.file import unpickled
    from flour.sklearn.versions import differs

    if not trust_pickle or differs(version_in(raw)):
        problem.where = ", ".join(dict.fromkeys(filter(None, (where, problem.where))))
        raise problem
    return unpickled(raw, where, part)


def original(form: str, raw: bytes, where: str, part: str = "", *, trust_pickle: bool) -> Any:
    """The original of a file for `flour.sklearn.originals`: the estimator of a pickle."""
    if form != SKLEARN:
        return raw
    from flour.sklearn.file import unpickled
    from flour.sklearn.versions import differs

    if not trust_pickle and not differs(version_in(raw)):
        raise Untrusted(
            "verifying asks the original estimator, and unpickling it runs code of its author",
            where=where,
            hint="if you trust its author: --trust-pickle, in Python trust_pickle=True; "
            "importing it without verifying needs no trust",
        )
    return unpickled(raw, where, part)


def estimator(form: str, raw: bytes, where: str, part: str = "") -> Any:
    """The estimator in a pickle or a file of skops, read as data; None of other formats."""
    from flour.sklearn.file import read_as_data

    return read_as_data(raw, where, part) if form in (SKLEARN, SKOPS) else None


def contents(form: str, raw: bytes, found: object) -> list[dict[str, Any]]:
    """The steps of a model in a file, of which `estimator` is the one that is `found`."""
    from flour.sklearn.contents import StepContents, steps

    if found is not None:
        return [each._asdict() for each in steps(found)]
    parts = _PARTS[form](raw) if form in _PARTS else {}
    shown = {kind: {name: str(each) for name, each in of.items()} for kind, of in parts.items()}
    return [
        StepContents("", kind, of, len(raw), native=True, reason="")._asdict()
        for kind, of in shown.items()
    ]


def _of_lightgbm(raw: bytes) -> dict[str, dict[str, object]]:
    from flour.boosters import lightgbm

    head, trees = lightgbm.parse(lightgbm.text_of(raw))
    known = {"objective": head.get("objective", "none"), "trees": len(trees)}
    return {"lightgbm.Booster": {**known, "columns": lightgbm.width_of(head)}}


def _of_xgboost(raw: bytes) -> dict[str, dict[str, object]]:
    from flour.boosters import xgboost

    model = xgboost.parse(raw)
    known = {"objective": model.objective, "trees": len(model.trees), "columns": model.width}
    return {"xgboost.Booster": known}


def _of_onnx(raw: bytes) -> dict[str, dict[str, object]]:
    from flour.onnx.reading import read_model

    counts = Counter(node.title for node in read_model(raw).graph.nodes)
    return {title: {"nodes": count} for title, count in counts.items()}


def _of_embedding(raw: bytes) -> dict[str, dict[str, object]]:
    from flour.embeddings import facts_of

    return facts_of(raw)


_PARTS: dict[str, Callable[[bytes], dict[str, dict[str, object]]]] = {
    "embedding": _of_embedding,
    "lightgbm": _of_lightgbm,
    "xgboost": _of_xgboost,
    "onnx": _of_onnx,
}
_XGBOOST = re.compile(rb'"version":\s*\[\s*(\d+),\s*(\d+),\s*(\d+)')
_LIGHTGBM = re.compile(rb"^version=(\S{1,40})", re.MULTILINE)


def written_by(form: str, raw: bytes) -> dict[str, str]:
    """Libraries and their versions, as far as a file says them."""
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


def _estimator(raw: bytes) -> dict[str, str]:
    known = {"sklearn": version_in(raw), "xgboost": xgboost_in(raw)}
    return {library: version for library, version in known.items() if version}


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
    "skops": _estimator,
    "sklearn": _estimator,
}
