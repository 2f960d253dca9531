"""Missing values estimated from the other columns: by the nearest rows, or rounds of regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import clip, empty_like, isnan, nan, sqrt
from numpy.typing import NDArray

from flour.core import native
from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Array, Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Number, Numbers, Row, added, cast, indexable, scratch, size
from flour.core.words import fitted as fitted_numbers


class ImputeNearest(Op):
    """x, and where it is NaN the mean of that column over the nearest rows of a table.

    The distance of two rows is taken over the columns that both have, scaled up to all columns.
    Only rows that have the column are averaged, at most `count` of them, each with the weight one
    or (`closeness`) one over its distance; among rows equally far the first are taken. Where no row
    can be compared, the column's entry in `means` is used.
    """

    points: Array
    means: Array
    count: int
    closeness: bool = False

    def check(self) -> None:
        shape = self.points.shape
        if len(shape) != 2 or self.means.shape != shape[1:] or self.count < 1:
            raise ParameterError("impute_nearest needs rows of points, and a mean for each column")
        if {self.points.dtype.name, self.means.dtype.name} != {"float64"}:
            raise ParameterError("impute_nearest keeps its points in float64")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "impute_nearest", self.points.shape[1])
        expect(is_float(kind), f"only floats can be NaN, got {kind}", "call as_float() first")
        return kind.having(sparse=False)

    # --- the definition ----------------------------------------------------------------------

    def reference(self, x: Columns) -> Columns:
        filled = x.copy()
        for row in np.flatnonzero(np.isnan(x).any(axis=1)):
            distances = self._distances(x[row].astype(np.float64))
            for j in np.flatnonzero(np.isnan(x[row])):
                filled[row, j] = self._value(distances, int(j))
        return filled

    def _distances(self, row: NDArray[Any]) -> NDArray[Any]:
        points: Any = self.points.array
        both = ~np.isnan(points) & ~np.isnan(row)
        differences, counts = np.where(both, points - row, 0.0), both.sum(axis=1)
        squares = (differences * differences).sum(axis=1) / np.maximum(counts, 1) * len(row)
        return np.where(counts == 0, np.nan, np.sqrt(squares))

    def _value(self, distances: NDArray[Any], j: int) -> Any:
        column: Any = self.points.array[:, j]
        usable = np.flatnonzero(~np.isnan(column) & ~np.isnan(distances))
        if not usable.size:
            return self.means.array[j]
        near = usable[np.argsort(distances[usable], kind="stable")[: self.count]]
        weights = np.ones(len(near))
        if self.closeness:
            nearest = distances[near]
            weights = (nearest == 0).astype(float) if (nearest == 0).any() else 1 / nearest
        return (weights * column[near]).sum() / weights.sum()

    # --- native code -------------------------------------------------------------------------

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        filled = native.write(e, filled_by_nearest, x, self, len(self.points))
        return native.held(e, filled, x.width, x.size)


def filled_by_nearest(x: Row, op: Any, count: int) -> Numbers:
    """The row, with means in the place of NaN."""
    columns, filled = indexable(x), empty_like(x)
    distances = scratch("float64", count)
    missing = 0
    for j in range(len(x)):
        value = columns[j]
        filled[j] = value
        if isnan(value):
            missing += 1
    if missing > 0:
        rows = size(count)
        points = fitted_numbers(op.points)
        measure(columns, points, distances, rows, len(x))
        for j in range(len(x)):
            if isnan(columns[j]):
                filled[j] = cast(mean_of_nearest(j, op, points, distances, rows, len(x)), x.dtype)
    return filled


def measure(columns: Row, points: Numbers, distances: Numbers, rows: int, width: int) -> None:
    """Write the distance to every row of the table; NaN for one that cannot be compared."""
    for p in range(rows):
        total, common = 0.0, 0
        for j in range(width):
            difference = points[p * width + j] - cast(columns[j], "float64")
            if not isnan(difference):
                total = total + difference * difference
                common += 1
        all_columns = cast(width, "float64")
        distances[p] = sqrt(total / cast(common, "float64") * all_columns) if common > 0 else nan


def mean_of_nearest(
    j: int, op: Any, points: Numbers, distances: Numbers, rows: int, width: int
) -> Number:
    """The weighted mean of column j over the nearest rows that have it."""
    count = size(op.count)
    near, numbers = scratch("float64", op.count), scratch("int64", op.count)
    length = 0
    for p in range(rows):
        value, distance = points[p * width + j], distances[p]
        known = not isnan(value) and not isnan(distance)
        if known and not (length == count and near[count - 1] <= distance):
            position = count - 1 if length == count else length
            if length < count:
                length += 1
            while position > 0 and near[position - 1] > distance:
                near[position] = near[position - 1]
                numbers[position] = numbers[position - 1]
                position = position - 1
            near[position] = distance
            numbers[position] = p
    mean = op.means[j]
    if length > 0:
        total, weights = 0.0, 0.0
        nearest = near[0]
        for i in range(length):
            weight = closeness(near[i], nearest) if op.closeness else 1.0
            total = total + weight * points[numbers[i] * width + j]
            weights = weights + weight
        mean = total / weights
    return mean


def closeness(distance: Number, nearest: Number) -> Number:
    """One over a distance; if any is zero, one for those that are."""
    same = 1.0 if distance == 0.0 else 0.0
    return same if nearest == 0.0 else 1.0 / distance


class ImputeInTurn(Op):
    """`filled`, its columns recomputed in turn from all others wherever x is NaN.

    Step s writes column targets[s] as the row's product with weights[s] plus biases[s], limited
    to the column's [low, high]. A row without any value is left as it was filled.
    """

    targets: Array
    weights: Array
    biases: Array
    low: Array
    high: Array

    def check(self) -> None:
        steps, width = self.biases.array.size, self.low.array.size
        shapes = [item.shape for item in (self.targets, self.weights, self.biases, self.high)]
        if shapes != [(steps,), (steps, width), (steps,), (width,)] or self.low.shape != (width,):
            raise ParameterError("impute_in_turn needs a target, weights and a bias for each step")
        rest = (self.weights, self.biases, self.low, self.high)
        targets: Any = self.targets.array
        if targets.dtype != np.int64 or any(item.dtype != np.float64 for item in rest):
            raise ParameterError("impute_in_turn computes in float64, its targets are int64")
        if np.any((targets < 0) | (targets >= width)):
            raise ParameterError(f"a step writes a column that {width} columns do not have")

    def infer(self, x: Type, filled: Type) -> Vector:
        kinds = [vector(kind, "impute_in_turn") for kind in (x, filled)]
        for kind in kinds:
            fitted(len(self.low), kind, "impute_in_turn")
            expect(is_float(kind), f"only floats can be NaN, got {kind}", "call as_float() first")
        return kinds[1].having(sparse=False)

    def reference(self, x: Columns, filled: Columns) -> Columns:
        result, missing = filled.copy(), np.isnan(x)
        missing[missing.all(axis=1)] = False
        low: Any = self.low.array
        high: Any = self.high.array
        steps = zip(self.targets.array, self.weights.array, self.biases.array, strict=True)
        for target, weights, bias in steps:
            rows = missing[:, target]
            value = result[rows].astype(np.float64) @ weights + bias
            result[rows, target] = np.clip(value, low[target], high[target])
        return result

    def emit(self, e: Emitter, x: VectorValue, filled: VectorValue) -> RowValue:
        result = native.write(e, filled_in_turn, x, filled, self, len(self.biases))
        return native.held(e, result, filled.width, x.size)


def filled_in_turn(x: Row, filled: Row, op: Any, count: int) -> Numbers:
    """The filled row after all steps."""
    columns, result = indexable(x), empty_like(filled)
    first = indexable(filled)
    present = 0
    for j in range(len(x)):
        if not isnan(columns[j]):
            present += 1
        result[j] = first[j]
    if present > 0:
        for s in range(size(count)):
            target = op.targets[s]
            if isnan(columns[target]):
                weights = fitted_numbers(op.weights)
                total = 0.0
                for j in range(len(x)):
                    value = cast(result[j], "float64")
                    total = added(total, value * weights[s * len(x) + j])
                total = clip(total + op.biases[s], op.low[target], op.high[target])
                result[target] = cast(total, filled.dtype)
    return result
