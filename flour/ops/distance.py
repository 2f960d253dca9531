"""Distances of a row from fitted points: one number per point.

There are two ways to a Euclidean distance, and they differ once rows are close to a point: the
library multiplies matrices (|x|^2 - 2xy + |y|^2) where it works by brute force and subtracts
column by column in its trees and in scipy. `SquaredDistances` is the first, `Distances` the
second, for every metric. Functions of metrics are of numpy arrays and of native code alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import maximum, sqrt, where
from numpy.typing import NDArray

from flour.core.check import expect, fitted, vector
from flour.core.emission import Column, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import Code, listed, write, written_as
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, Type, Vector
from flour.core.words import (
    Number,
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
from flour.ops.product import multiply, product


class PointDistances(Op, abstract=True, arity=Arity.AGGREGATE, bound=Bound.COMPUTE):
    """One number for each of the points (the rows of `points`), computed from the row's columns."""

    points: Array

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


class SquaredDistances(PointDistances, takes_sparse=True):
    """|x|^2 - 2 x.y + |y|^2 for each point y, never below zero, computed in float64.

    Float32 data and float32 points give the result rounded to float32, as the library does.
    """

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


class ColumnPair(NamedTuple):
    """A column's numbers in the row and in the point, its weight, and the exponent."""

    x: Number
    y: Number
    w: Number
    p: Number


class MetricSums(NamedTuple):
    """The sums of a metric, the number of columns, and the exponent."""

    totals: Sequence[Number]
    columns: Number
    p: Number


class Metric(NamedTuple):
    """One way to measure distance, as sums over columns."""

    #: The terms that a column adds to the sums.
    terms: Callable[[ColumnPair], tuple[Number, ...]]
    #: The distance from the sums.
    finish: Callable[[MetricSums], Number]
    sums: tuple[int, ...] = (0,)
    #: How a term joins its sum.
    join: Callable[[Number, Number], Number] = np.add

    def added(self, totals: Sequence[Number], pair: ColumnPair) -> list[Number]:
        """The sums after one more column."""
        pairs = zip(totals, self.terms(pair), strict=True)
        return [self.join(total, term) for total, term in pairs]


@written_as(lambda _, top, bottom: Code(f"({top} / {bottom} if {bottom} != 0.0 else 0.0)"))
def ratio(top: Number, bottom: Number) -> Number:
    """top / bottom, zero where bottom is zero."""
    fine = bottom != 0
    return np.where(fine, top / np.where(fine, bottom, 1), 0.0)


# --- terms ----------------------------------------------------------------------------------------


def squared(a: ColumnPair) -> tuple[Number, ...]:
    """The squared difference."""
    return ((a.x - a.y) * (a.x - a.y),)


def apart(a: ColumnPair) -> tuple[Number, ...]:
    """The difference."""
    return (abs(a.x - a.y),)


def weighted_power(a: ColumnPair) -> tuple[Number, ...]:
    """A power of the difference, times the weight."""
    return (a.w * abs(a.x - a.y) ** a.p,)


def scaled_square(a: ColumnPair) -> tuple[Number, ...]:
    """The squared difference over the variance."""
    return ((a.x - a.y) * (a.x - a.y) / a.w,)


def relative(a: ColumnPair) -> tuple[Number, ...]:
    """The difference over both magnitudes."""
    return (ratio(abs(a.x - a.y), abs(a.x) + abs(a.y)),)


def apart_and_both(a: ColumnPair) -> tuple[Number, ...]:
    """The difference and both magnitudes, each for a sum of its own."""
    return abs(a.x - a.y), abs(a.x) + abs(a.y)


def unequal(a: ColumnPair) -> tuple[Number, ...]:
    """One where the numbers differ."""
    return (where(a.x != a.y, 1.0, 0.0),)


def chi_squared(a: ColumnPair) -> tuple[Number, ...]:
    """The squared difference over the sum: for histograms."""
    return (ratio((a.x - a.y) * (a.x - a.y), a.x + a.y),)


# --- distances from sums --------------------------------------------------------------------------


def itself(s: MetricSums) -> Number:
    """The only sum."""
    return s.totals[0]


def root(s: MetricSums) -> Number:
    """The square root of the sum."""
    return sqrt(s.totals[0])


def power_root(s: MetricSums) -> Number:
    """The root of the sum whose power the terms are."""
    return s.totals[0] ** (1.0 / s.p)


def quotient(s: MetricSums) -> Number:
    """The first sum over the second."""
    return ratio(s.totals[0], s.totals[1])


def mean(s: MetricSums) -> Number:
    """The sum over the number of columns."""
    return s.totals[0] / s.columns


METRICS: dict[str, Metric] = {
    "sqeuclidean": Metric(squared, itself),
    "euclidean": Metric(squared, root),
    "manhattan": Metric(apart, itself),
    "chebyshev": Metric(apart, itself, join=np.maximum),
    "minkowski": Metric(weighted_power, power_root),
    "seuclidean": Metric(scaled_square, root),
    "canberra": Metric(relative, itself),
    "braycurtis": Metric(apart_and_both, quotient, sums=(0, 1)),
    "hamming": Metric(unequal, mean),
    # The distance behind the chi2 kernels.
    "chi2": Metric(chi_squared, itself),
}
