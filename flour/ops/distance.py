"""Distances of a row from fitted points: one number per point.

There are two ways to a Euclidean distance, and they differ once rows are close to a point: the
library multiplies matrices (|x|^2 - 2xy + |y|^2) where it works by brute force and subtracts
column by column in its trees and in scipy. `SquaredDistances` is the first, `Distances` the
second, for every metric.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import maximum
from numpy.typing import NDArray

from flour.core.check import expect, fitted, vector
from flour.core.emission import Column, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import listed, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, Type, Vector
from flour.core.words import (
    Numbers,
    Row,
    added,
    cast,
    number,
    read_row,
    rows,
    scratch,
    size,
    stored,
    times,
    width,
    write_row,
)
from flour.core.words import fitted as fitted_numbers
from flour.ops.metrics import METRICS, ColumnPair, Metric, MetricSums
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
        write(e, completed, x, Array.of(self._norms()), out)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        count, dtype = self.points.shape[0], self.result(x.dtype)
        points, norms = self._columns_first(), Array.of(self._norms())
        return listed(e, write(e, squared_distances, x, points, norms, count, dtype), dtype, count)


def squared_distances(x: Row, points: Numbers, norms: Numbers, outputs: int, dtype: str) -> Any:
    """|x|^2 - 2 x.y + |y|^2 for each of the points."""
    count, dots = size(outputs), scratch("float64", outputs)
    norm = 0.0
    by_column = fitted_numbers(points)
    for o in range(count):
        dots[o] = 0.0
    for j, v in stored(x):
        value = cast(v, "float64")
        norm = norm + value * value
        for o in range(count):
            dots[o] += value * by_column[j * count + o]
    return [cast(maximum(-2.0 * dots[o] + norm + norms[o], 0.0), dtype) for o in range(count)]


def completed(x: Numbers, norms: Numbers, out: Numbers) -> None:
    """Add both squared lengths to the products with -2 y, for every row of a block."""
    for i in range(rows(x)):
        distances, row = write_row(out, i), read_row(x, i)
        norm = 0.0
        for j in range(width(x)):
            value = cast(row[j], "float64")
            norm = added(norm, times(value, value))
        for o in range(width(out)):
            distances[o] = maximum(distances[o] + norm + norms[o], 0.0)


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
        totals = [np.zeros((len(x), self.points.shape[0])) for _ in metric.sums]
        for j, column in enumerate(x.astype(np.float64).T):
            totals = metric.added(
                totals, ColumnPair(column[:, None], points[j], weights[j], self.p)
            )
        return metric.finish(MetricSums(totals, self.points.shape[1], self.p))

    def structure(self) -> tuple[object, ...]:
        return (self.metric,)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        metric, outs = METRICS[self.metric], self.points.shape[0]
        points, weights = self._columns_first(), self._weights()
        row = x if x.dense else e.hold(x)
        how = metric, self.points.shape, self.p
        return listed(e, write(e, distances, row, points, weights, *how), "float64", outs)


def distances(
    x: Row, points: Numbers, weights: Numbers, metric: Metric, shape: tuple[int, int], p: float
) -> Any:
    """The distance to each of the points: sums over columns, then a function of the sums."""
    outputs, columns = shape
    count, exponent = size(outputs), number(p, "float64")
    totals = [scratch("float64", outputs) for _ in metric.sums]
    by_column, factors = fitted_numbers(points), fitted_numbers(weights)
    for total in totals:
        for o in range(count):
            total[o] = 0.0
    for j, v in stored(x):
        value, weight = cast(v, "float64"), factors[j]
        for o in range(count):
            point = by_column[j * count + o]
            terms = metric.terms(ColumnPair(value, point, weight, exponent))
            for total, term in zip(totals, terms, strict=True):
                total[o] = metric.join(total[o], term)
    divisor = number(columns, "float64")
    return [
        metric.finish(MetricSums([total[o] for total in totals], divisor, exponent))
        for o in range(count)
    ]
