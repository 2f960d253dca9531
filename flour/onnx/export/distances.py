"""The ONNX forms of distances to fitted points, and of systems of equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flour.core.errors import UnsupportedSetting
from flour.core.node import Node
from flour.onnx.export.numbers import spoilt
from flour.onnx.export.rows import added_axis, smallest, total
from flour.onnx.export.writer import Export, dtype_of, form


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
