"""The ONNX forms of tables, bins and curves a column, and of columns made out of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.node import Node
from flour.core.types import Record, Vector
from flour.onnx.export.functions import number
from flour.onnx.export.rows import added_axis, shaped, total
from flour.onnx.export.writer import ML, Export, dtype_of, form
from flour.onnx.tensor import NAN_TEXT, NONE_TEXT
from flour.ops.impute import EITHER, NAN, NONE


@form("Fill")
def _fill(out: Export, item: Node, x: str) -> str:
    op, kind = item.op.fields(), item.inputs[0].type
    if isinstance(kind, Record):
        x = next(name for name, _ in kind.fields if name not in kind.unread)
    values = op["values"].array
    return out.spread(values[0] if op["scalar"] else values, x)


@form("LookUp")
def _look_up(out: Export, item: Node, x: str) -> str:
    op, have = item.op.fields(), dtype_of(item.inputs[0].type)
    starts, other = op["starts"].array.astype(np.int64), out.constant(op["other"].array)
    table = np.append(op["table"].array, op["table"].array.dtype.type(0))
    x, zero = out.cast(x, have, "int64"), out.constant(0, np.int64)
    fine = out("GreaterOrEqual", x, zero)
    fine = out("And", fine, out("Less", x, out.constant(np.diff(starts))))
    places = out("Where", fine, out("Add", x, out.constant(starts[:-1])), zero)
    return out("Where", fine, out("Gather", out.constant(table), places), other)


_MISSING = {NAN: [NAN_TEXT], NONE: [NONE_TEXT], EITHER: [NAN_TEXT, NONE_TEXT]}


@form("ImputeText")
def _impute_text(out: Export, item: Node, x: str) -> str:
    values = out.constant(np.array(item.op.fields()["values"].to_list(), object))
    return out("Where", _is_missing_text(out, item, x), values, x)


@form("IsMissingText")
def _is_missing_text(out: Export, item: Node, x: str) -> str:
    """ONNX has no missing strings: texts stand for them."""
    op = item.op.fields()
    texts = _MISSING.get(op["marker"]) or op["text"].to_list()
    how = {"values_int64s": [1] * len(texts), "default_int64": 0}
    return out.cast(out("LabelEncoder", x, domain=ML, keys_strings=texts, **how), "int64", "bool")


@form("Products")
def _products(out: Export, item: Node, x: str) -> str:
    """Terms whose factors are there already are made together."""
    op, dtype = item.op.fields(), dtype_of(item.type)
    left, right = (op[side].array.astype(np.int64) for side in ("left", "right"))
    kind = item.inputs[0].type
    assert isinstance(kind, Vector), "checked by the operator"
    done, terms, width = 0, x, kind.width
    while done < len(left):
        later = np.flatnonzero(np.maximum(left[done:], right[done:]) >= width + done)
        end = done + int(later[0]) if len(later) else len(left)
        sides = (out("Gather", terms, out.constant(s[done:end]), axis=1) for s in (left, right))
        terms = out("Concat", terms, out("Mul", *sides), axis=1)
        done = end
    kept = out.constant(np.arange(op["skip"], width + len(left)), np.int64)
    terms = out("Gather", terms, kept, axis=1)
    one = np.ones(1, dtype)
    return out("Concat", out.spread(one, x), terms, axis=1) if op["bias"] else terms


@form("MatrixProducts")
def _matrix_products(out: Export, item: Node, x: str, y: str) -> str:
    op, kind = item.op.fields(), item.inputs[0].type
    assert isinstance(kind, Vector), "checked by the operator"
    count = kind.width // (op["left"] * op["inner"])
    first = shaped(out, x, count, op["left"], op["inner"])
    made = out("MatMul", first, shaped(out, y, count, op["inner"], op["right"]))
    return shaped(out, made, count * op["left"] * op["right"])


@form("CircularConvolve")
def _circular_convolve(out: Export, item: Node, x: str, y: str) -> str:
    """One side as the matrix that has it in every row, one place further each time."""
    assert isinstance(item.type, Vector), "a vector is made"
    width, dtype = item.type.width, item.type.dtype
    x, y = (
        out.cast(name, dtype_of(source.type), dtype)
        for name, source in zip((x, y), item.inputs, strict=True)
    )
    turned = (np.arange(width)[None] - np.arange(width)[:, None]) % width
    matrix = out("Gather", y, out.constant(turned, np.int64), axis=1)
    return shaped(out, out("MatMul", shaped(out, x, 1, width), matrix), width)


# --- bins, curves -------------------------------------------------------------------------------


@form("Bins")
def _bins(out: Export, item: Node, x: str) -> str:
    """Not below an edge is at it or above it, or NaN."""
    op, have = item.op.fields(), dtype_of(item.inputs[0].type)
    edges, cuts = op["edges"].array, op["starts"].array
    wide = np.result_type(have, edges.dtype).name
    sizes = np.diff(cuts)
    grid = np.zeros((len(sizes), int(sizes.max(initial=0)) or 1), wide)
    there = np.zeros(grid.shape, bool)
    for j, size in enumerate(sizes):
        grid[j, :size], there[j, :size] = edges[cuts[j] : cuts[j + 1]], True
    below = out("Less", added_axis(out, out.cast(x, have, wide), 2), out.constant(grid))
    reached = out("And", out("Not", below), out.constant(there))
    return total(out, out.cast(reached, "bool", "int64"), 2)


def _reached(out: Export, x: str, grid: object, rank: int, *, strictly: bool) -> str:
    """The points of an ascending grid that each column is at or above (strictly: above)."""
    compare = "Greater" if strictly else "GreaterOrEqual"
    hit = out(compare, added_axis(out, x, rank), out.constant(grid))
    return total(out, out.cast(hit, "bool", "int64"), rank)


@form("Interpolate")
def _interpolate(out: Export, item: Node, x: str) -> str:
    op, dtype = item.op.fields(), dtype_of(item.type)
    knots, heights = (op[side].array.astype(dtype) for side in ("knots", "heights"))
    exact, last = dtype == "float64", len(knots) - 1
    rank = 2 if isinstance(item.type, Vector) else 1
    high = _reached(out, x, knots, rank, strictly=not exact)
    one = out.constant(1, np.int64)
    high = out("Clip", high, one, out.constant(last, np.int64))
    low = out("Sub", high, one)
    with np.errstate(all="ignore"):
        slopes = (heights[1:] - heights[:-1]) / (knots[1:] - knots[:-1])
    slope, knot, height = (
        out("Gather", out.constant(values), low) for values in (slopes, knots, heights)
    )
    made = out("Add", out("Mul", slope, out("Sub", x, knot)), height)
    if exact:  # a knot has exactly its height
        at_end = out("GreaterOrEqual", x, out.constant(knots[-1]))
        made = out("Where", at_end, out.constant(heights[-1]), made)
    inside = out("GreaterOrEqual", x, out.constant(knots[0]))
    inside = out("And", inside, out("LessOrEqual", x, out.constant(knots[-1])))
    return out("Where", inside, made, number(out, np.nan, dtype))


@form("Ranks")
def _ranks(out: Export, item: Node, x: str) -> str:
    op, dtype = item.op.fields(), dtype_of(item.type)
    grid, ranks = op["quantiles"].array, op["ranks"].array
    wide = out.cast(x, dtype, "float64")
    rising = _between(out, wide, grid, ranks)
    falling = _between(out, out("Neg", wide), -grid[:, ::-1], -ranks[::-1])
    mean = out("Mul", out.constant(0.5), out("Sub", rising, falling))
    made = out.cast(mean, "float64", dtype)
    for sign, end, value in ((1, -1, 1), (-1, 0, 0)):
        made = out(
            "Where", _at_end(out, op, x, (sign, end, dtype)), number(out, value, dtype), made
        )
    made = out("Where", out("IsNaN", x), x, made)
    zero = number(out, 0, dtype)
    return out("Where", out("Equal", x, zero), x, made) if op["sparse"] else made


def _at_end(out: Export, op: Any, x: str, end: tuple[int, int, str]) -> str:
    """A mask of the numbers at the last quantile (or beyond), or at the first."""
    sign, place, dtype = end
    edge = out.constant(op["quantiles"].array[:, place], np.float64)
    if not op["margin"]:
        return out("Equal" if sign > 0 else "LessOrEqual", out.cast(x, dtype, "float64"), edge)
    moved = out("Add", x, number(out, sign * np.dtype(dtype).type(op["margin"]), dtype))
    compare = "Greater" if sign > 0 else "Less"
    return out(compare, out.cast(moved, dtype, "float64"), edge)


def _between(out: Export, x: str, grid: Any, values: Any) -> str:
    """numpy.interp of every column with its own grid (a row of it)."""
    last, width = grid.shape[1] - 1, len(grid)
    place = _reached(out, x, grid, 2, strictly=False)
    inner = out("Sub", place, out.constant(1, np.int64))
    low = out("Clip", inner, out.constant(0, np.int64), out.constant(max(last - 1, 0), np.int64))
    row = out.constant(np.arange(width) * (last + 1), np.int64)
    at = out("Add", low, row)
    with np.errstate(all="ignore"):
        slopes = np.append(np.diff(values)[None] / np.diff(grid, axis=1), np.zeros((width, 1)), 1)
    slopes = np.where(np.isfinite(slopes), slopes, 0.0)
    heights = np.broadcast_to(values, grid.shape)
    slope, knot, height = (
        out("Gather", out.constant(np.ascontiguousarray(side).reshape(-1)), at)
        for side in (slopes, grid, heights)
    )
    made = out("Add", out("Mul", slope, out("Sub", x, knot)), height)
    made = out("Where", out("Equal", x, knot), height, made)
    beyond = out("Greater", place, out.constant(last, np.int64))
    made = out("Where", beyond, out.constant(float(values[-1])), made)
    below = out("Less", place, out.constant(1, np.int64))
    return out("Where", below, out.constant(float(values[0])), made)
