"""Distances of a row from fitted points: one number per point.

There are two ways to a Euclidean distance, and they differ once rows are close to a point: the
library multiplies matrices (|x|^2 - 2xy + |y|^2) where it works by brute force and subtracts
column by column in its trees and in scipy. `SquaredDistances` is the first, `Distances` the
second, for every metric.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, fitted, vector
from flour.core.emission import Column, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, Type, Vector
from flour.ops.metrics import METRICS, Pair, Sums
from flour.ops.product import multiply, product


class PointDistances(Op, abstract=True):
    """One number for each of the points (the rows of `points`), computed from the row's columns."""

    points: Array
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE

    def check(self) -> None:
        if self.points.array.ndim != 2 or not self.points.array.shape[0]:
            raise ParameterError(f"{self.name} needs a matrix with one row for each point")

    def infer(self, x: Vector) -> Vector:
        kind = vector(x, self.name)
        expect(kind.dtype in FLOATS, f"{self.name} needs floats, got {kind}", "call as_float()")
        fitted(self.points.shape[1], kind, self.name)
        return Vector(self.points.shape[0], self.result(kind.dtype))

    def result(self, dtype: str) -> str:
        """The dtype of the result, from that of the data."""
        return "float64"

    def _columns_first(self) -> Array:
        """The points transposed, so that a column of all points is contiguous in memory."""
        return Array.of(np.ascontiguousarray(self.points.array.T.astype(np.float64)))


class SquaredDistances(PointDistances):
    """|x|^2 - 2 x.y + |y|^2 for each point y, never below zero, computed in float64.

    Float32 data and float32 points give the result rounded to float32, as the library does.
    """

    takes_sparse = True

    def result(self, dtype: str) -> str:
        return "float32" if dtype == self.points.dtype.name == "float32" else "float64"

    def reference(self, x: Columns) -> Columns:
        points = self.points.array.astype(np.float64)
        squared, norms = _products(x, points)
        squared *= -2
        squared += norms[:, None]
        squared += self._norms()
        return np.maximum(squared, 0).astype(self.result(x.dtype.name))

    def _norms(self) -> Any:
        return _squares(self.points.array.astype(np.float64))

    def wants_kernel(self, *inputs: Type) -> bool:
        (x,) = inputs
        assert isinstance(x, Vector)
        several = self.points.shape[0] > 1
        return several and not x.sparse and self.result(x.dtype) == "float64"

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        """A matrix product with -2 y (doubling is exact), then the squared lengths are added."""
        (x,) = inputs
        doubled = Array.of(-2.0 * self.points.array.astype(np.float64))
        multiply(e, x, product(doubled, Array.of(np.empty(0)), "float64"), out)
        norms = Array.of(self._norms())
        with e.loop(e.rows) as i:
            target = e.var(out.row(i), "w")
            norm = _length(e, x, e.var(x.row(i), "r"))
            with e.loop(out.size) as o:
                dot = e.load(target, o, "float64")
                squared = f"maximum({dot} + {norm} + {e.at(norms, o)}, 0.0)"
                e.store(target, o, squared, "float64")

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        count, dtype = e.size(self.points.shape[0]), self.result(x.dtype)
        dots, norm = e.scratch("float64", self.points.shape[0]), e.var("0.0")
        points = e.address(self._columns_first())
        with e.loop(count) as o:
            e.store(dots, o, "0.0", "float64")

        def column(j: str, v: str) -> None:
            value = e.let(e.cast(v, x.dtype, "float64"), "float64").expr
            e.line(f"{norm} = {norm} + {value} * {value}")
            with e.loop(count) as o:
                point = e.load(points, f"({j}) * {count} + {o}", "float64", constant=True)
                e.store(dots, o, f"{e.load(dots, o, 'float64')} + {value} * {point}", "float64")

        x.each(column)
        norms = Array.of(self._norms())

        def at(o: str) -> str:
            dot = e.load(dots, o, "float64")
            squared = f"maximum(-2.0 * {dot} + {norm} + {e.at(norms, o)}, 0.0)"
            return e.cast(squared, "float64", dtype)

        return e.dense(dtype, self.points.shape[0], at, size=count)


def _length(e: Emitter, x: Column, row: str) -> str:
    """The squared length of a row."""
    assert isinstance(x.type, Vector)
    total = e.var("0.0")
    with e.loop(x.size) as j:
        loaded = e.cast(e.load(row, j, x.type.dtype, constant=True), x.type.dtype, "float64")
        value = e.let(loaded, "float64").expr
        square = f"{value} * {value}" if e.exact else f"loose_mul_float64({value}, {value})"
        e.add(total, square, "float64")
    return total


def _products(x: Any, points: NDArray[Any]) -> tuple[Any, Any]:
    """The dot product of every row and point, and the squared length of every row."""
    if isinstance(x, Sparse):
        wide = x.with_data(x.data.astype(np.float64))
        return wide.matmul(points.T), wide.row_sums(wide.data * wide.data)
    wide = x.astype(np.float64)
    return wide @ points.T, _squares(wide)


def _squares(rows: NDArray[Any]) -> Any:
    """The squared length of every row."""
    return np.einsum("ij,ij->i", rows, rows)


class Distances(PointDistances):
    """The distance to each point by a named metric, column after column, in float64.

    `weights` are factors for minkowski and variances for seuclidean; empty means none.
    """

    metric: str
    p: float = 2.0
    weights: Array = ()  # type: ignore[assignment]  # canonicalised to an empty array

    def check(self) -> None:
        super().check()
        if self.metric not in METRICS:
            raise ParameterError(f"there is no metric {self.metric!r}", hint=", ".join(METRICS))
        if len(self.weights) not in (0, self.points.shape[1]):
            raise ParameterError("distances need one weight for each column, or none")

    def _weights(self) -> Array:
        """One weight per column: ones where none were given."""
        weights = self.weights.array if len(self.weights) else np.ones(self.points.shape[1])
        return Array.of(weights.astype(np.float64))

    def reference(self, x: Columns) -> Columns:
        metric = METRICS[self.metric]
        points, weights = self._columns_first().array, self._weights().array
        shape = (len(x), self.points.shape[0])
        sums = tuple(np.zeros(shape) for _ in range(metric.sums))
        for j, column in enumerate(x.astype(np.float64).T):
            sums = metric.step(sums, Pair(column[:, None], points[j], weights[j], self.p))
        return metric.finish(Sums(sums, self.points.shape[1], self.p))

    def structure(self) -> tuple[object, ...]:
        return (self.metric,)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        metric, outs = METRICS[self.metric], self.points.shape[0]
        count, p = e.size(outs), e.number(self.p, "float64")
        sums = [e.scratch("float64", outs) for _ in range(metric.sums)]
        points, weights = e.address(self._columns_first()), e.address(self._weights())
        for where in sums:
            with e.loop(count) as o:
                e.store(where, o, "0.0", "float64")

        def column(j: str, v: str) -> None:
            value = e.let(e.cast(v, x.dtype, "float64"), "float64").expr
            weight = e.let(e.load(weights, j, "float64", constant=True), "float64").expr
            with e.loop(count) as o:
                index = f"({j}) * {count} + {o}"
                point = e.let(e.load(points, index, "float64", constant=True), "float64").expr
                terms = metric.terms(Pair(value, point, weight, p))
                for where, term in zip(sums, terms, strict=True):
                    total = e.load(where, o, "float64")
                    combined = (
                        f"maximum({total}, {term})" if metric.largest else f"{total} + {term}"
                    )
                    e.store(where, o, combined, "float64")

        (x if x.dense else e.hold(x)).each(column)
        columns = e.number(float(self.points.shape[1]), "float64")

        def at(o: str) -> str:
            totals = tuple(e.load(where, o, "float64") for where in sums)
            return metric.code(Sums(totals, columns, p))

        return e.dense("float64", outs, at, size=count)
