"""The ONNX forms of what a row's columns say together: shares, votes, runs, places, distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flour.core.errors import UnsupportedSetting
from flour.core.node import Node
from flour.core.types import Vector
from flour.onnx.export.functions import log1p, number
from flour.onnx.export.numbers import roomy, spoilt
from flour.onnx.export.writer import Export, dtype_of, form


def _width(item: Node, place: int = 0) -> int:
    kind = item.inputs[place].type
    assert isinstance(kind, Vector), "checked by the operator"
    return kind.width


def _have(item: Node, place: int = 0) -> str:
    return dtype_of(item.inputs[place].type)


def total(out: Export, x: str, axis: int = 1, *, keep: bool = False) -> str:
    """The sum along an axis."""
    return out("ReduceSum", x, out.constant([axis], np.int64), keepdims=int(keep))


def added_axis(out: Export, x: str, axis: int) -> str:
    """x with one more dimension of one."""
    return out("Unsqueeze", x, out.constant([axis], np.int64))


def shaped(out: Export, x: str, *sizes: int) -> str:
    """Every row of x in another shape."""
    return out("Reshape", x, out.constant([0, *sizes], np.int64))


def inside(out: Export, places: str, have: str, size: int) -> str:
    """Numbers of rows or columns as int64; one outside means the nearest."""
    places, low = out.cast(places, have, "int64"), out.constant(0, np.int64)
    return out("Clip", places, low, out.constant(size - 1, np.int64))


# --- a row held against its own total -----------------------------------------------------------


@form("Share")
def _share(out: Export, item: Node, x: str) -> str:
    dtype, whole = dtype_of(item.type), total(out, x, keep=True)
    none = out("Equal", whole, number(out, 0, dtype))
    return out("Div", x, out("Where", none, number(out, 1, dtype), whole))


@form("Proportions")
def _proportions(out: Export, item: Node, x: str) -> str:
    dtype, whole = dtype_of(item.type), total(out, x, keep=True)
    none = out("Equal", whole, number(out, 0, dtype))
    equal = out("Where", none, number(out, 1, dtype), x)
    return out("Div", equal, out("Where", none, number(out, _width(item), dtype), whole))


@form("LogSumExp")
def _log_sum_exp(out: Export, item: Node, x: str) -> str:
    dtype, top = dtype_of(item.type), out("ReduceMax", x, out.constant([1], np.int64), keepdims=0)
    # The largest of a row as a column; NaN if any is NaN, which ONNX leaves open.
    top = added_axis(out, spoilt(out, top, x, dtype), 1)
    zero = number(out, 0, dtype)
    largest = out("Equal", x, top)
    count = total(out, out.cast(largest, "bool", dtype), keep=True)
    odd = out("Or", out("IsInf", top), out("IsNaN", top))
    shifted = out("Sub", x, out("Where", odd, zero, top))
    rest = total(out, out("Where", largest, zero, out("Exp", shifted)), keep=True)
    none = out("Equal", rest, zero)
    rest = out("Where", none, rest, out("Div", rest, count))
    made = out("Add", out("Add", log1p(out, rest, dtype), out("Log", count)), top)
    return out("Squeeze", made, out.constant([1], np.int64))


@form("FirstLargest")
def _first_largest(out: Export, item: Node, x: str) -> str:
    dtype, lost = dtype_of(item.inputs[0].type), out("IsNaN", x)
    known = out("Where", lost, number(out, -np.inf, dtype), x)
    place = out("ArgMax", known, axis=1, keepdims=0)
    first = out("Gather", lost, out.constant(0, np.int64), axis=1)
    return out("Where", first, out.constant(0, np.int64), place)


# --- votes --------------------------------------------------------------------------------------


def _named(out: Export, x: str, classes: int) -> str:
    """(rows, columns, classes): whether a column names a class."""
    return out("Equal", added_axis(out, x, 2), out.constant(np.arange(classes), np.int64))


@form("Tally")
def _tally(out: Export, item: Node, x: str) -> str:
    op: Any = item.op
    hit = _named(out, out.cast(x, _have(item), "int64"), op.classes)
    sides = (out.constant(side.array[:, None], np.float64) for side in (op.weights, op.against))
    return total(out, out("Where", hit, *sides))


@form("Votes")
def _votes(out: Export, item: Node, codes: str, weights: str = "") -> str:
    classes = item.op.fields()["classes"]
    hit = _named(out, inside(out, codes, _have(item), classes), classes)
    one, none = out.constant(1.0), out.constant(0.0)
    if weights:
        one = added_axis(out, out.cast(weights, _have(item, 1), "float64"), 2)
    return total(out, out("Where", hit, one, none))


@form("Duels")
def _duels(out: Export, item: Node, won: str, confidence: str) -> str:
    classes = item.op.fields()["classes"]
    first, second = np.triu_indices(classes, 1)
    earlier, later = (np.eye(classes)[side] for side in (first, second))
    names = out.cast(won, _have(item), "float64")
    votes = [
        out("MatMul", out.cast(out("Equal", names, out.constant(float(who))), "bool", "float64"), m)
        for who, m in enumerate((out.constant(earlier), out.constant(later)))
    ]
    sure = out.cast(confidence, _have(item, 1), "float64")
    sums = out("MatMul", sure, out.constant(later - earlier))
    bound = out("Mul", out.constant(3.0), out("Add", out("Abs", sums), out.constant(1.0)))
    return out("Add", out("Add", *votes), out("Div", sums, bound))


@form("WeightedMedian")
def _weighted_median(out: Export, item: Node, x: str) -> str:
    order = smallest(out, x, _have(item), _width(item))
    held = out("Gather", out.constant(item.op.fields()["weights"].array, np.float64), order)
    held = out("CumSum", held, out.constant(1, np.int64))
    whole = out("Gather", held, out.constant([_width(item) - 1], np.int64), axis=1)
    enough = out("GreaterOrEqual", held, out("Mul", whole, out.constant(0.5)))
    first = out("ArgMax", out.cast(enough, "bool", "int32"), axis=1, keepdims=1)
    made = out("GatherElements", x, out("GatherElements", order, first, axis=1), axis=1)
    return out("Squeeze", made, out.constant([1], np.int64))


# --- neighbours ---------------------------------------------------------------------------------


def smallest(out: Export, x: str, dtype: str, count: int) -> str:
    """Positions of the smallest columns, ascending, the first of equals first; NaN is last."""
    if np.dtype(dtype).kind == "f":
        x = out("Where", out("IsNaN", x), number(out, np.inf, dtype), x)
    return _top(out, x, count, 1, largest=False)


def _top(out: Export, x: str, count: int, axis: int, *, largest: bool) -> str:
    k = out.constant([count], np.int64)
    return out.second("TopK", x, k, axis=axis, largest=int(largest), sorted=1)


form("Nearest")(lambda out, item, x: smallest(out, x, _have(item), item.op.fields()["count"]))


@form("Gather", "PickAt")
def _gather(out: Export, item: Node, x: str, places: str) -> str:
    return out("GatherElements", x, inside(out, places, _have(item, 1), _width(item)), axis=1)


@form("WeightedRows")
def _weighted_rows(out: Export, item: Node, places: str, weights: str = "") -> str:
    table, dtype = item.op.fields()["table"].array, dtype_of(item.type)
    places = inside(out, places, _have(item), len(table))
    rows = out("Gather", out.constant(table, dtype), places)
    if weights:
        factor = out.cast(weights, _have(item, 1), dtype)
        rows = out("Mul", rows, added_axis(out, factor, 2))
    return total(out, rows)


@form("SumOfEntries")
def _sum_of_entries(out: Export, item: Node, x: str) -> str:
    op = item.op.fields()
    table, starts = op["table"].array, op["starts"].array
    last = np.diff(np.append(starts, len(table))) - 1
    x = out.cast(x, _have(item), "int64")
    x = out("Max", x, out.constant(0, np.int64))
    places = out("Add", out("Min", x, out.constant(last, np.int64)), out.constant(starts, np.int64))
    return total(out, out("Gather", out.constant(table), places))


@form("ShortestWay")
def _shortest_way(out: Export, item: Node, places: str, distances: str) -> str:
    table, dtype = item.op.fields()["table"].array, dtype_of(item.type)
    rows = out("Gather", out.constant(table, dtype), inside(out, places, _have(item), len(table)))
    away = added_axis(out, out.cast(distances, _have(item, 1), dtype), 2)
    return out("ReduceMin", out("Add", rows, away), out.constant([1], np.int64), keepdims=0)


@form("Closeness")
def _closeness(out: Export, item: Node, x: str, among: str = "") -> str:
    dtype = dtype_of(item.type)
    zero, one = number(out, 0, dtype), number(out, 1, dtype)
    made = out("Div", one, x)
    if among:
        have = _have(item, 1)
        made = out("Where", out("Equal", among, out.constant(0, have)), zero, made)
    endless = out.cast(out("IsInf", made), "bool", dtype)
    return out("Where", out("Greater", total(out, endless, keep=True), zero), endless, made)


# --- columns that are named by other columns ----------------------------------------------------


@form("Scatter")
def _scatter(out: Export, item: Node, places: str, values: str) -> str:
    assert isinstance(item.type, Vector), "a vector is made"
    zeros = out.spread(np.zeros(item.type.width, item.type.dtype), places)
    places = inside(out, places, _have(item), item.type.width)
    return out("ScatterElements", zeros, places, values, axis=1)


@form("PutAt")
def _put_at(out: Export, item: Node, x: str, places: str, updates: str) -> str:
    places, how = inside(out, places, _have(item, 1), _width(item)), item.op.fields()["reduction"]
    return out("ScatterElements", x, places, updates, axis=1, reduction=how)


@form("Descend")
def _descend(out: Export, item: Node, x: str) -> str:
    """One step of all rows at a time, as deep as the deepest leaf is."""
    op = item.op.fields()
    left, right = (op[side].array.astype(np.int64) for side in ("left", "right"))
    depth = np.ones(len(left), np.int64)
    for node in range(len(left)):  # children come after their parents
        for child in (left[node], right[node]):
            if child >= 0:
                depth[child] = max(depth[child], depth[node] + 1)
    zero = out.constant(0, np.int64)
    place = out.spread(np.zeros(1, np.int64), x)
    further = out("Greater", x, out.constant(0, _have(item)))
    for _ in range(int(depth.max(initial=0))):
        node_ = out("Max", place, zero)
        goes = out("GatherElements", further, node_, axis=1)
        ways = (out("Gather", out.constant(side), node_) for side in (right, left))
        after = out("Where", goes, *ways)
        place = out("Where", out("Less", place, zero), place, after)
    made = out("Sub", out.constant(-1, np.int64), place)
    return out.cast(out("Squeeze", made, out.constant([1], np.int64)), "int64", dtype_of(item.type))


# --- runs of columns ----------------------------------------------------------------------------

_RUNS = {
    "SegmentSum": "ReduceSum",
    "SegmentProduct": "ReduceProd",
    "SegmentMax": "ReduceMax",
    "SegmentMin": "ReduceMin",
}


def _runs(out: Export, item: Node, x: str, key: str = "length") -> str:
    """(rows, runs, length)."""
    length = item.op.fields()[key]
    return shaped(out, x, _width(item) // length, length)


@form(*_RUNS)
def _segment(out: Export, item: Node, x: str) -> str:
    dtype, axis = dtype_of(item.type), out.constant([2], np.int64)
    inner = roomy(dtype)
    x = _runs(out, item, out.cast(x, dtype, inner))
    made = out.cast(out(_RUNS[item.op.name], x, axis, keepdims=0), inner, dtype)
    if item.op.name in ("SegmentSum", "SegmentProduct") or np.dtype(dtype).kind != "f":
        return made
    return spoilt(out, made, x, dtype, 2)


form("SumRuns")(lambda out, item, x: total(out, _runs(out, item, x, "run"), 2))


@form("SegmentPlace")
def _segment_place(out: Export, item: Node, x: str) -> str:
    op, dtype = item.op.fields(), _have(item)
    x = _runs(out, item, x)
    find, worst = ("ArgMin", np.inf) if op["smallest"] else ("ArgMax", -np.inf)
    how: dict[str, Any] = {"axis": 2, "keepdims": 0, "select_last_index": int(op["last"])}
    if np.dtype(dtype).kind != "f":
        return out(find, x, **how)
    lost = out("IsNaN", x)
    place = out(find, out("Where", lost, number(out, worst, dtype), x), **how)
    first = out("Gather", lost, out.constant(0, np.int64), axis=2)
    return out("Where", first, out.constant(0, np.int64), place)


@form("RunningSum")
def _running_sum(out: Export, item: Node, x: str) -> str:
    op = item.op.fields()
    how: dict[str, Any] = {"exclusive": int(op["without_own"]), "reverse": int(op["backwards"])}
    dtype = dtype_of(item.type)
    x = out.cast(_runs(out, item, x), dtype, roomy(dtype))
    made = out.cast(out("CumSum", x, out.constant(2, np.int64), **how), roomy(dtype), dtype)
    return shaped(out, made, _width(item))


@form("TopPlaces")
def _top_places(out: Export, item: Node, x: str) -> str:
    """Sorted by value, then by whether a number is NaN, which is larger than the largest."""
    op, dtype = item.op.fields(), _have(item)
    x, length, largest = _runs(out, item, x), op["length"], not op["smallest"]
    if np.dtype(dtype).kind == "f":
        lost = out("IsNaN", x)
        x = out("Where", lost, number(out, np.inf, dtype), x)
        order = _top(out, x, length, 2, largest=largest)
        flags = out("GatherElements", out.cast(lost, "bool", "float32"), order, axis=2)
        again = _top(out, flags, op["count"], 2, largest=largest)
        made = out("GatherElements", order, again, axis=2)
    else:
        made = _top(out, x, op["count"], 2, largest=largest)
    return shaped(out, made, _width(item) // length * op["count"])


__all__ = ["added_axis", "inside", "shaped", "total"]


@form("SquaredDistances")
def _squared_distances(out: Export, item: Node, x: str) -> str:
    points = item.op.fields()["points"].array.astype(np.float64)
    x = out.cast(x, dtype_of(item.inputs[0].type), "float64")
    norms = total(out, out("Mul", x, x), keep=True)
    made = out("MatMul", x, out.constant(np.ascontiguousarray(-2 * points.T)))
    made = out("Add", out("Add", made, norms), out.constant((points**2).sum(axis=1)))
    made = out("Where", out("Less", made, out.constant(0.0)), out.constant(0.0), made)
    return out.cast(made, "float64", dtype_of(item.type))


# --- metrics ------------------------------------------------------------------------------------
# Every one gets x as (rows, 1, columns), points as (points, columns), and what they are apart.


class _DistanceSides:
    """The two sides of every distance, column by column, and how a sum over columns is made."""

    def __init__(self, out: Export, op: Any, x: str) -> None:
        self.out, self.op = out, op
        self.points = op.points.array.astype(np.float64)
        self.x, self.y = added_axis(out, x, 1), out.constant(self.points)
        self.apart = out("Sub", self.x, self.y)

    def size(self) -> str:
        """The size of the distance in a column."""
        return self.out("Abs", self.apart)

    def square(self) -> str:
        """The square of how far apart a column is."""
        return self.out("Mul", self.apart, self.apart)

    def weighed(self, x: str, how: str) -> str:
        """Times, or over, the weight of the column, if there are any."""
        weights = self.op.fields().get("weights", ())
        return self.out(how, x, self.out.constant(weights.array, np.float64)) if len(weights) else x

    def both(self) -> str:
        """The magnitudes of both sides together."""
        return self.out("Add", self.out("Abs", self.x), self.out("Abs", self.y))

    def sum(self, x: str) -> str:
        """Over the columns."""
        return total(self.out, x, 2)

    def over(self, top: str, bottom: str) -> str:
        """A quotient that is zero where its divisor is."""
        zero, one = self.out.constant(0.0), self.out.constant(1.0)
        none = self.out("Equal", bottom, zero)
        made = self.out("Div", top, self.out("Where", none, one, bottom))
        return self.out("Where", none, zero, made)


def _minkowski(p: _DistanceSides) -> str:
    out, exponent = p.out, float(p.op.p)
    term = p.weighed(out("Pow", p.size(), out.constant(exponent)), "Mul")
    return out("Pow", p.sum(term), out.constant(1 / exponent))


def _chebyshev(p: _DistanceSides) -> str:
    size, axis = p.size(), p.out.constant([2], np.int64)
    return spoilt(p.out, p.out("ReduceMax", size, axis, keepdims=0), size, "float64", 2)


def _hamming(p: _DistanceSides) -> str:
    other = p.out("Not", p.out("Equal", p.x, p.y))
    count = p.sum(p.out.cast(other, "bool", "float64"))
    return p.out("Div", count, p.out.constant(float(p.points.shape[1])))


_METRICS: dict[str, Callable[[_DistanceSides], str]] = {
    "sqeuclidean": lambda p: p.sum(p.square()),
    "euclidean": lambda p: p.out("Sqrt", p.sum(p.square())),
    "manhattan": lambda p: p.sum(p.size()),
    "chebyshev": _chebyshev,
    "minkowski": _minkowski,
    "seuclidean": lambda p: p.out("Sqrt", p.sum(p.weighed(p.square(), "Div"))),
    "canberra": lambda p: p.sum(p.over(p.size(), p.both())),
    "braycurtis": lambda p: p.over(p.sum(p.size()), p.sum(p.both())),
    "hamming": _hamming,
    "chi2": lambda p: p.sum(p.over(p.square(), p.out("Add", p.x, p.y))),
}


@form("Distances")
def _distances(out: Export, item: Node, x: str) -> str:
    op: Any = item.op
    x = out.cast(x, dtype_of(item.inputs[0].type), "float64")
    return _METRICS[op.metric](_DistanceSides(out, op, x))


@form("TreeNearest")
def _tree_nearest(out: Export, item: Node, x: str) -> str:
    """Every point is measured; of equals the first in the tree is taken."""
    op: Any = item.op
    if op.metric == "hamming":
        hint = (
            "most points are as near as others, and which one counts is up to scikit-learn's heap"
        )
        raise UnsupportedSetting("a tree by Hamming's distance has no ONNX form", hint=hint)
    x = out.cast(x, dtype_of(item.inputs[0].type), "float64")
    distances = _METRICS[op.metric](_DistanceSides(out, op, x))
    places = smallest(out, distances, "float64", op.count)
    numbers = out("Gather", out.constant(op.numbers.array.astype(np.float64)), places)
    return out("Concat", numbers, places.removesuffix("_places"), axis=1)


@form("SpreadDistances")
def _spread_distances(out: Export, item: Node, x: str) -> str:
    op, have, dtype = item.op.fields(), dtype_of(item.inputs[0].type), dtype_of(item.type)
    near = np.result_type(have, op["centres"].dtype).name
    away = added_axis(out, out.cast(x, have, near), 1)
    away = out("Sub", away, out.constant(op["centres"].array, near))
    square = out.cast(out("Mul", away, away), near, dtype)
    return total(out, out("Div", square, out.constant(op["spreads"].array, dtype)), 2)


@form("SolveLower")
def _solve_lower(out: Export, item: Node, x: str) -> str:
    """By the inverse, which is as good as the matrix is well conditioned."""
    matrix = item.op.fields()["matrix"].array.astype(np.float64)
    inverse = np.zeros_like(matrix)
    for i in range(len(matrix)):  # a row at a time, as a row of unit vectors would be solved
        unit = np.eye(len(matrix))[i]
        inverse[i] = (unit - matrix[i, :i] @ inverse[:i]) / matrix[i, i]
    return out("MatMul", x, out.constant(np.ascontiguousarray(inverse.T)))
