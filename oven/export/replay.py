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
from collections.abc import Mapping, Sequence
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
from oven.export.image import CallerArray, Image
from oven.export.targets import run, run_apart
from oven.plans.plan import Plan

#: Rows that are made up, and texts of the program that they are made of.
_ROWS, _KNOWN = 200, 2000
#: The tolerance between a portable plan's numbers and those of the exported plan.
_CLOSE = {"float64": 1e-9, "float32": 1e-3}
#: In float32: numbers from here on are compared by their size; rows with a number that is further
#: away (relative above 1) are counted; a larger share of them is too many.
RELATIVE, FAR, _MOST_FAR = 1e-3, 1e-4, 0.05
_STYLES, _MISSING = ("missing", "usual", "positive"), 0.05
#: How errors name what is verified.
_ARTEFACT = "the artefact, which is not handed out,"
_ODD = ["", "?", "naïve café", "ÅNGSTRÖM ﬁ 𝒳 😀", "a" * 70]


Answers = Mapping[str, NDArray[Any]]


class Replayed(NamedTuple):
    """Rows that an artefact answered with the right bits."""

    rows: int
    #: The largest difference between a number of the portable plan and of the plan exported,
    #: relative to numbers above 1.
    away: float


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
    away: float
    #: The bytes of all texts, and of the longest.
    text: NDArray[np.uint8]
    longest: int


def sample_of(image: Image, plan: Plan, data: object = None) -> AnsweredRows:
    """Rows with the answers that the artefact must give."""
    columns, rows = _accepted(image.plan, data)
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
        return coerce(plan.inputs, plan.reader.nulls.of_rows(data))
    for style in _STYLES:
        made_up = _MadeUp(style, _texts(plan))
        made = {name: made_up.column(kind) for name, kind in plan.inputs.items()}
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


class _MadeUp:
    """Makes columns of numbers in a style, and of texts that a program knows."""

    def __init__(self, style: str, known: Sequence[str]) -> None:
        self.style, self.words = style, np.array([*known, *_ODD], object)
        self.rng = np.random.default_rng(20)

    def column(self, kind: Type) -> Any:
        """Rows of one type."""
        rng = self.rng
        if isinstance(kind, Record):
            return {name: self.column(each) for name, each in kind.fields}
        if isinstance(kind, Text):
            sizes = rng.integers(0, 30, _ROWS)
            return [" ".join(map(str, rng.choice(self.words, size))) for size in sizes]
        dtype: str = kind.dtype  # type: ignore[union-attr]  # words and pairs are refused before
        shape = (_ROWS, kind.width) if isinstance(kind, Vector) else (_ROWS,)
        if dtype == "string":
            return rng.choice(self.words, shape)
        if not dtype.startswith("float"):
            return rng.integers(0, 2 if dtype == "bool" else 12, shape).astype(dtype)
        made = rng.normal(size=shape) * rng.choice([0.1, 1, 1, 30], shape)
        if self.style == "missing":
            made = np.where(rng.random(shape) < _MISSING, np.nan, made)
        return (np.abs(made) + 0.1 if self.style == "positive" else made).astype(dtype)


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
            data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""
            size = len(data) if isinstance(text, str) else -1 if text is None else -2
            made[row] = end, size
            pieces.append(data)
            end, longest = end + len(data), max(longest, size)
        cells[name] = made
    return np.frombuffer(b"".join(pieces) + bytes(8), np.uint8), cells, longest


def _away(image: Image, made: Mapping[str, Any], usual: Mapping[str, Any]) -> float:
    """How far portable answers are from the plan's own; NotExportable where that is too far."""
    most = 0.0
    for each in image.outputs:
        if each.labels or not each.dtype.startswith("float"):
            continue
        ours, theirs = (np.asarray(densify(answers[each.label])) for answers in (made, usual))
        close = _CLOSE[str(ours.dtype)]
        if not np.allclose(ours, theirs, rtol=close, atol=close, equal_nan=True):
            raise NotExportable(
                f"portable code answers otherwise for output {each.label!r}",
                hint="this is a bug: please report it with the model",
            )
        with np.errstate(invalid="ignore"):
            apart = np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))
        most = max(most, float(np.nanmax(apart, initial=0.0)))
    return most


def check(image: Image, sample: AnsweredRows, answers: Answers) -> Replayed:
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
    return Replayed(sample.rows, sample.away)


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
        with np.errstate(invalid="ignore"):
            same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
            apart = np.nan_to_num(np.where(same, 0.0, np.abs(ours - theirs)), nan=np.inf)
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


def by_library(image: Image, sample: AnsweredRows, library: Path) -> Answers:
    """A shared library's answers, from a process of its own."""
    order, made = library.with_suffix(".order.npz"), library.with_suffix(".made.npz")
    arrays = {f"in_{k}": sample.inputs[each.name] for k, each in enumerate(image.inputs)}
    numbers = np.array([sample.rows, sample.longest, len(image.inputs)])
    cells = np.array([k for k, each in enumerate(image.inputs) if each.dtype == "string"], np.intp)
    rest = {"text": sample.text, "numbers": numbers, "cells": cells}
    np.savez(order, **{**arrays, **rest, **_blank(image, sample)})  # type: ignore[arg-type]  # names
    names = [image.name, str(library), str(order), str(made)]
    run_apart(__name__, names, _ARTEFACT)
    with np.load(made) as answers:
        return {each.name: answers[f"out_{k}"] for k, each in enumerate(image.outputs)}


def by_package(image: Image, sample: AnsweredRows, folder: Path) -> Answers:
    """The answers of a package for node."""
    node = shutil.which("node")
    if node is None:
        raise NotExportable(
            "node is needed to verify the export, and is not installed",
            hint="install node 18 or later; verify=False, or --no-verify, hands it out unseen",
        )
    columns = [(each, sample.inputs[each.name]) for each in image.inputs]
    given = {each.label: _for_json(sample, each, array) for each, array in columns}
    script, order = folder / "replay.mjs", folder / "replay.json"
    try:
        script.write_text(_REPLAY, encoding="utf-8")
        order.write_text(json.dumps(given), encoding="utf-8")
        run([node, str(script)], _ARTEFACT)
        answers = json.loads(order.read_text(encoding="utf-8"))
    finally:
        script.unlink(missing_ok=True)
        order.unlink(missing_ok=True)
    return {each.name: _of_json(each, answers[each.label]) for each in image.outputs}


def _for_json(sample: AnsweredRows, each: CallerArray, array: NDArray[Any]) -> Any:
    """A column as JSON has it: texts, whole numbers, or the bytes of floats."""
    if each.dtype == "string":
        data = sample.text.tobytes()
        spelled = {-1: None, -2: 0}
        return [
            data[start : start + size].decode() if size >= 0 else spelled[size]
            for start, size in array.tolist()
        ]
    if array.dtype.kind == "f":
        return {str(array.dtype): base64.b64encode(array.tobytes()).decode()}
    return array.reshape(-1).tolist()


def _of_json(each: CallerArray, answer: dict[str, str] | list[float]) -> NDArray[Any]:
    if isinstance(answer, dict):
        (data,) = answer.values()
        return np.frombuffer(base64.b64decode(data), each.dtype)
    return _numbers(each, answer)


_REPLAY = """\
import { readFileSync, writeFileSync } from "node:fs";
import { load } from "./index.js";
const file = new URL("./replay.json", import.meta.url);
const arrays = { float64: Float64Array, float32: Float32Array };
const input = JSON.parse(readFileSync(file, "utf8"), (key, value) => {
  if (!(key in arrays)) return value;
  const bytes = new Uint8Array(Buffer.from(value, "base64"));
  return new arrays[key](bytes.buffer);
});
for (const [name, value] of Object.entries(input)) {
  const kind = Object.keys(value)[0];
  if (kind in arrays) input[name] = value[kind];
}
const output = (await load()).predict(input);
for (const [name, value] of Object.entries(output)) {
  const kind = value instanceof Float64Array ? "float64" : "float32";
  if (ArrayBuffer.isView(value) && value.constructor === arrays[kind]) {
    output[name] = { [kind]: Buffer.from(value.buffer).toString("base64") };
  } else output[name] = Array.from(value);
}
writeFileSync(file, JSON.stringify(output));
"""


def _blank(image: Image, sample: AnsweredRows) -> Answers:
    return {
        f"out_{k}": np.zeros(sample.outputs[each.name].shape, each.dtype)
        for k, each in enumerate(image.outputs)
    }


def main(name: str, library: str, order: str, made: str) -> None:
    """Answer an order of `by_library`."""
    with np.load(order) as file:
        given = dict(file)
    rows, longest, inputs = map(int, given["numbers"])
    arrays = [given[f"in_{k}"] for k in range(inputs)]
    loaded = ctypes.CDLL(library)
    predict, size = (getattr(loaded, f"{name}_{word}") for word in ("predict", "scratch_size"))
    size.restype, size.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    predict.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    for k in given["cells"]:
        arrays[k][:, 0] += given["text"].ctypes.data
    answers = {key: array for key, array in given.items() if key.startswith("out_")}
    words = [array.ctypes.data for array in arrays] + [longest]
    table = (ctypes.c_size_t * len(words))(*words)
    into = (ctypes.c_size_t * len(answers))(*(a.ctypes.data for a in answers.values()))
    scratch = np.empty(size(longest), np.uint8)
    code = predict(table, into, rows, scratch.ctypes.data)
    if code:
        sys.exit(f"predict returned {code}")
    np.savez(made, **answers)
