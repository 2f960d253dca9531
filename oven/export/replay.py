"""Rows replayed through an artefact before it is handed out, in a process of its own.

An artefact must answer with the bits of the portable plan. Rows are given, or made up from the
types of the inputs and the texts that the program knows.
"""

from __future__ import annotations

import base64
import ctypes
import json
import shutil
import sys
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError
from flour.core.op import Columns
from flour.core.sparse import densify
from flour.core.types import Record, Text, Type, Vector
from flour.data.coerce import coerce
from objectstore import Strings
from oven.errors import NotExportable
from oven.export import targets
from oven.export.c_file import filled
from oven.export.image import CallerArray, Image
from oven.export.targets import run, run_apart
from oven.plans.plan import Plan
from oven.run.run_signature import WORD

#: Rows that are made up, and texts of the program that they are made of.
_ROWS, _KNOWN = 200, 2000
#: The tolerance between a portable plan's numbers and those of the exported plan.
_CLOSE = {"float64": 1e-9, "float32": 1e-3}
#: In float32: numbers from here on are compared by their size; rows with a number that is further
#: away (relative above 1) are counted; a larger share of them is too many.
RELATIVE, FAR, _MOST_FAR = 1e-3, 1e-4, 0.05
_STYLES, _MISSING = ("missing", "usual", "positive"), 0.05
#: Arrays of a block begin so many bytes apart.
_APART = 64
#: How errors name what is verified.
_ARTEFACT = "the artefact, which is not handed out,"
_ODD = ["", "?", "naïve café", "ÅNGSTRÖM ﬁ 𝒳 😀", "a" * 70]


Answers = Mapping[str, NDArray[Any]]


class Differences(NamedTuple):
    """How far answers in float32 are from those of the float64 plan."""

    rows: int
    #: The largest difference of numbers, and that over their size for those from `RELATIVE` on.
    absolute: float
    relative: float
    #: Rows with a number that is further away than `FAR`.
    far: int
    #: The share of rows with equal labels, if there are any.
    equal: float | None
    #: True if there are thresholds of trees.
    trees: bool


class AnsweredRows(NamedTuple):
    """Rows in the caller's form, and their answers."""

    rows: int
    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    #: The largest difference between a number of the portable plan and of the plan exported,
    #: relative to numbers above 1.
    away: float
    #: The bytes of all texts, and of the longest.
    text: NDArray[np.uint8]
    longest: int


def sample_of(image: Image, plan: Plan, data: object = None) -> AnsweredRows:
    """Rows with the answers that the artefact must give."""
    columns, rows = _accepted(image.plan, data)
    if not rows:
        raise NotExportable(
            "there are no rows to verify the export with",
            hint="give some, or none at all: then rows are made up",
        )
    answers = image.plan.run_columns(columns, rows)
    flat = {each.name: _column(each, columns) for each in image.inputs}
    texts = [name for each in image.inputs if (name := each.name) and each.dtype == "string"]
    packed, cells, longest = _cells({name: flat[name] for name in texts})
    made = {each.name: _numbers(each, answers[each.label]) for each in image.outputs}
    away = _away(image, answers, plan.run_columns(columns, rows))
    return AnsweredRows(rows, {**flat, **cells}, made, away, packed, longest)


def _accepted(plan: Plan, data: object) -> tuple[dict[str, Columns], int]:
    """The caller's rows, or made up ones that the plan does not refuse."""
    if data is not None:
        columns, count = coerce(plan.inputs, plan.reader.nulls.of_rows(data))
        # In every form of an export, a null is what the model knows.
        return plan.reader.nulls.settled(columns, spoken=True), count
    words = np.array([*_texts(plan), *_ODD], object)
    for style in _STYLES:
        rng = np.random.default_rng(20)
        made = {name: _made_up(kind, style, words, rng) for name, kind in plan.inputs.items()}
        columns, count = coerce(plan.inputs, made if len(made) > 1 else next(iter(made.values())))
        try:
            plan.run_columns(columns, count)
        except FlourError as problem:
            refused = problem
        else:
            return columns, count
    raise NotExportable(
        "rows to verify the export with cannot be made up",
        found=str(refused)[:200],
        hint="give some: export(..., rows=X[:100]), or --rows FILE",
    )


def _texts(plan: Plan) -> list[str]:
    """Texts that the program compares with."""
    tables = (each for each in plan.program.parameters() if isinstance(each, Strings))
    ordered = sorted(tables, key=lambda each: each.digest)
    return [text for table in ordered for text in table.to_list()[:_KNOWN]][:_KNOWN]


def _made_up(kind: Type, style: str, words: NDArray[Any], rng: np.random.Generator) -> Any:
    """Rows of one type."""
    if isinstance(kind, Record):
        return {name: _made_up(each, style, words, rng) for name, each in kind.fields}
    if isinstance(kind, Text):
        sizes = rng.integers(0, 30, _ROWS)
        return [" ".join(map(str, rng.choice(words, size))) for size in sizes]
    dtype: str = kind.dtype  # type: ignore[union-attr]  # words and pairs are refused before
    shape = (_ROWS, kind.width) if isinstance(kind, Vector) else (_ROWS,)
    if dtype == "string":
        return rng.choice(words, shape)
    if not dtype.startswith("float"):
        return rng.integers(0, 2 if dtype == "bool" else 12, shape).astype(dtype)
    made = rng.normal(size=shape) * rng.choice([0.1, 1, 1, 30], shape)
    if style == "missing":
        made = np.where(rng.random(shape) < _MISSING, np.nan, made)
    return (np.abs(made) + 0.1 if style == "positive" else made).astype(dtype)


def _column(each: CallerArray, columns: Mapping[str, Columns]) -> NDArray[Any]:
    column: Any = columns[each.record][each.label] if each.record else columns[each.label]
    if each.dtype == "string":
        return np.array(column, object)
    return np.ascontiguousarray(column, each.dtype)


def _numbers(each: CallerArray, column: Columns) -> NDArray[Any]:
    """An answer as the artefact gives it: labels by their numbers."""
    if each.labels:
        number = {label: place for place, label in enumerate(each.labels)}
        column = [number[label] for label in column]
    is_float = each.dtype.startswith("float")  # float64 if the image is of float32
    return np.ascontiguousarray(densify(column), None if is_float else each.dtype)


def _cells(
    texts: Mapping[str, NDArray[Any]],
) -> tuple[NDArray[np.uint8], dict[str, NDArray[np.int64]], int]:
    """The bytes of all texts, and for each its offset and its size (-1: None, -2: NaN)."""
    pieces, cells, end, longest = list[bytes](), dict[str, NDArray[np.int64]](), 0, 0
    for name, column in texts.items():
        made = np.zeros((column.size, 2), np.int64)
        for row, text in enumerate(column.reshape(-1)):
            data = _encoded(text, name, row) if isinstance(text, str) else b""
            size = len(data) if isinstance(text, str) else -1 if text is None else -2
            made[row] = end, size
            pieces.append(data)
            end, longest = end + len(data), max(longest, size)
        cells[name] = made
    return np.frombuffer(b"".join(pieces) + bytes(8), np.uint8), cells, longest


def _encoded(text: str, name: str, row: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotExportable(
            "exports take texts of UTF-8, which has no half of a surrogate pair",
            where=f"column {name!r}, row {row}",
            found=repr(text)[:80],
            hint="verify with rows that have none",
        ) from None


def _away(image: Image, made: Mapping[str, Any], usual: Mapping[str, Any]) -> float:
    """How far portable answers are from the plan's own; NotExportable where that is too far."""
    most = 0.0
    for each in image.outputs:
        if each.labels or not each.dtype.startswith("float"):
            continue
        ours, theirs = (np.asarray(densify(answers[each.label])) for answers in (made, usual))
        apart = float((_apart(ours, theirs) / np.fmax(1.0, np.abs(theirs))).max(initial=0.0))
        if apart > _CLOSE[str(ours.dtype)]:
            raise NotExportable(
                f"portable code answers otherwise for output {each.label!r}",
                hint="this is a bug: please report it with the model",
            )
        most = max(most, apart)
    return most


def _apart(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
    """The differences of numbers; infinity where one of them alone is NaN."""
    with np.errstate(invalid="ignore"):
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        return np.nan_to_num(np.where(same, 0.0, np.abs(ours - theirs)), nan=np.inf)


def check(image: Image, sample: AnsweredRows, answers: Answers) -> None:
    """Hold an artefact's answers against the right ones, bit for bit."""
    for each in image.outputs:
        wanted, found = sample.outputs[each.name], answers[each.name].reshape(-1)
        flat = wanted.reshape(-1)
        same = flat.view(np.uint8) == found.view(np.uint8)
        differing = ~same.reshape(flat.size, -1).all(axis=1)
        if flat.dtype.kind == "f":
            differing &= ~(np.isnan(flat) & np.isnan(found))
        if differing.any():
            place = int(np.flatnonzero(differing)[0])
            raise NotExportable(
                "the artefact does not answer with the plan's bits, and was not handed out",
                where=f"output {each.label!r}, row {place // each.width}",
                found=f"{found[place]!r} for {flat[place]!r}",
            )


def compare(image: Image, sample: AnsweredRows, answers: Answers) -> Differences:
    """Compare answers in float32 with the float64 plan's; NotExportable if many are far away."""
    absolute, relative, equal = 0.0, 0.0, list[NDArray[np.bool_]]()
    far = np.zeros(sample.rows, bool)
    for each in image.outputs:
        ours, theirs = (
            np.asarray(side[each.name]).reshape(sample.rows, -1)
            for side in (answers, sample.outputs)
        )
        if theirs.dtype.kind != "f":
            equal.append((ours == theirs).all(axis=1))
            continue
        size = np.abs(theirs)
        apart = _apart(ours, theirs)
        absolute = max(absolute, float(apart.max(initial=0.0)))
        large = size >= RELATIVE
        relative = max(relative, float((apart[large] / size[large]).max(initial=0.0)))
        far |= (apart > FAR * np.maximum(1.0, size)).any(axis=1)
    if far.mean() > _MOST_FAR or not np.isfinite(absolute):
        raise NotExportable(
            "float32 is too short for this model: too many answers are others",
            found=f"{far.sum():,} of {far.size:,} rows are further away than {FAR}",
            hint="scale large numbers first, or export it without float32",
        )
    share = float(np.all(equal, axis=0).mean()) if equal else None
    trees = any(item.op.name == "Trees" for item in image.plan.flow.nodes())
    return Differences(sample.rows, absolute, relative, int(far.sum()), share, trees)


# --- artefacts ------------------------------------------------------------------------------------


def by_library(image: Image, sample: AnsweredRows, library: Path, triple: str) -> Answers:
    """A shared library's answers, from a process of its own."""
    arrays = [*(sample.inputs[each.name] for each in image.inputs), sample.text]
    blank = {e.name: np.zeros(sample.outputs[e.name].shape, e.dtype) for e in image.outputs}
    sizes = [-(-array.nbytes // _APART) * _APART for array in (*arrays, *blank.values())]
    starts, count = [0, *accumulate(sizes)], len(image.inputs)
    texts = (k for k, each in enumerate(image.inputs) if each.dtype == "string")
    # One block of memory has inputs, the bytes of texts, and outputs.
    order = {
        "ROWS": sample.rows,
        "LONGEST": sample.longest,
        "INPUTS": starts[:count],
        "OUTPUTS": starts[count + 1 : -1],
        "TEXT": starts[count],
        "GIVEN": starts[count + 1],
        "SIZE": starts[-1],
        "CELLS": [(starts[k], len(arrays[k])) for k in texts],
    }
    file = library.with_suffix(".block")
    padded = (each.tobytes().ljust(size, b"\0") for each, size in zip(arrays, sizes, strict=False))
    file.write_bytes(b"".join(padded))
    if targets.is_own(triple):
        run_apart(__name__, [image.name, str(library), str(file), json.dumps(order)], _ARTEFACT)
    else:
        _emulate(image, order, library, file, triple)
    made = np.fromfile(file, np.uint8)
    for start, array in zip(starts[count + 1 :], blank.values(), strict=False):
        array[...] = made[start:][: array.nbytes].view(array.dtype).reshape(array.shape)
    return blank


def _emulate(
    image: Image, order: Mapping[str, Any], library: Path, file: Path, triple: str
) -> None:
    """Answer an order by a program of the library's processor."""
    ways = targets.emulator(triple)
    assert ways is not None, "it was asked for before"
    compiler, emulator = ways
    program, source = library.with_suffix(".replay"), library.with_suffix(".replay.c")
    sides = {side: "".join(f"block + {k}, " for k in order[side]) for side in ("INPUTS", "OUTPUTS")}
    cells = "".join(f"{{{start}, {count}}}, " for start, count in order["CELLS"])
    parts = {**order, **sides, "CELLS": cells}
    source.write_text(filled("replay.c", image, **parts), encoding="utf-8")
    run([compiler, "-O1", str(source), str(library), "-o", str(program)], "the C compiler")
    run([*emulator, str(program), str(file)], _ARTEFACT)


def main(name: str, library: str, file: str, order: str) -> None:
    """Answer an order of `by_library`."""
    known = json.loads(order)
    block, longest = np.zeros(known["SIZE"], np.uint8), ctypes.c_size_t(known["LONGEST"])
    block[: known["GIVEN"]] = np.fromfile(file, np.uint8)
    start = block.ctypes.data
    for place, count in known["CELLS"]:
        block[place:].view(np.int64)[: 2 * count : 2] += start + known["TEXT"]
    loaded = ctypes.CDLL(library)
    predict, scratch_size = (getattr(loaded, f"{name}_{n}") for n in ("predict", "scratch_size"))
    scratch_size.restype = ctypes.c_size_t
    given, made = ([start + place for place in known[side]] for side in ("INPUTS", "OUTPUTS"))
    words = [(ctypes.c_size_t * len(side))(*side) for side in ([*given, longest.value], made)]
    scratch = ctypes.create_string_buffer(scratch_size(longest))
    if code := predict(*words, ctypes.c_size_t(known["ROWS"]), scratch):
        sys.exit(f"predict returned {code}")
    block.tofile(file)


def by_package(image: Image, sample: AnsweredRows, folder: Path) -> Answers:
    """The answers of a package for node."""
    node = shutil.which("node")
    if node is None:
        raise NotExportable(
            "node is needed to verify the export, and is not installed",
            hint="install node 18 or later; verify=False, or --no-verify, hands it out unseen",
        )
    script, order = Path(__file__).with_name("replay.mjs"), folder / "replay.json"
    given = [_for_json(sample, each) for each in image.inputs]
    order.write_text(json.dumps(given), encoding="utf-8")
    run([node, str(shutil.copy(script, folder)), str(order)], _ARTEFACT)
    answers = json.loads(order.read_text(encoding="utf-8"))
    return {each.name: _of_json(each, answers[each.label]) for each in image.outputs}


def _for_json(sample: AnsweredRows, each: CallerArray) -> tuple[str, str, object]:
    """A column as JSON has it: its name, and bytes of numbers that JSON rounds, or its values."""
    array = sample.inputs[each.name]
    if array.dtype.kind == "f" or (array.itemsize == WORD and each.dtype != "string"):
        return each.label, str(array.dtype), base64.b64encode(array.tobytes()).decode()
    if each.dtype != "string":
        return each.label, "", array.reshape(-1).tolist()
    data, spelled = sample.text.tobytes(), {-1: None, -2: {"nan": True}}
    cells = array.tolist()
    texts = [data[at : at + size].decode() if size >= 0 else spelled[size] for at, size in cells]
    return each.label, "", texts


def _of_json(each: CallerArray, answer: str | list[float]) -> NDArray[Any]:
    if isinstance(answer, str):
        return np.frombuffer(base64.b64decode(answer), each.dtype)
    return _numbers(each, answer if each.labels else [int(value) for value in answer])
