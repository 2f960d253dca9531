"""Manifold learners that place new rows among the training points they are nearest to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import minimum, sqrt

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, held, listed, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import FLOATS, INTS, Type, Vector, promote
from flour.core.words import (
    Number,
    Numbers,
    Row,
    added,
    cast,
    indexable,
    number,
    scratch,
    size,
    stored,
)
from flour.core.words import fitted as fitted_numbers


class ShortestWay(Op, arity=Arity.AGGREGATE):
    """The way to each column of a table by the best of some rows: their distance plus the table's.

    `places` picks rows of the table; a number outside it picks its nearest row.
    """

    table: Array

    def check(self) -> None:
        if self.table.array.ndim != 2 or not len(self.table):
            raise ParameterError("a table of ways has two dimensions and at least one row")
        if self.table.dtype.name not in FLOATS:
            raise ParameterError("ways are floats", found=str(self.table.dtype))

    def infer(self, places: Type, distances: Type) -> Vector:
        picked, lengths = vector(places, self.name), vector(distances, self.name)
        expect(picked.dtype in INTS, f"rows are picked by whole numbers, got {picked}")
        expect(is_float(lengths), f"distances are floats, got {lengths}", "call as_float() first")
        expect(lengths.width == picked.width, "there must be one distance for each picked row")
        expect(picked.width > 0, "there is no way without a neighbour")
        return Vector(self.table.shape[1], promote(lengths.dtype, self.table.dtype.name))

    def reference(self, places: Columns, distances: Columns) -> Columns:
        table: Any = self.table.array
        return (table[np.clip(places, 0, len(table) - 1)] + distances[:, :, None]).min(axis=1)

    def emit(self, e: Emitter, places: VectorValue, distances: VectorValue) -> RowValue:
        dtype = promote(distances.dtype, self.table.dtype.name)
        return held(e, *write(e, shortest, places, distances, self.table, *self.table.shape, dtype))


def shortest(places: Row, distances: Row, table: Numbers, rows: int, width: int, dtype: str) -> Any:
    """The shortest way to each column of the table, over one of the picked rows."""
    count, last = size(width), size(rows - 1)
    best, ways = scratch(dtype, width), fitted_numbers(table)
    lengths = indexable(distances)
    for j, v in stored(places):
        row, start = min(max(v, 0), last) * count, cast(lengths[j], dtype)
        for o in range(count):
            length = cast(ways[row + o], dtype) + start
            best[o] = length if j == 0 else minimum(best[o], length)
    return best, width, count


class Barycentre(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE):
    """The weights with which some rows of `points` add up to x as nearly as they can.

    `places` picks the rows. The weights add up to one; `reg` times the sum of squared distances
    is added to the diagonal of the equations, so that there is always an answer.
    """

    points: Array
    reg: float

    def check(self) -> None:
        if self.points.array.ndim != 2 or not len(self.points):
            raise ParameterError("points are a matrix with at least one row")

    def infer(self, x: Type, places: Type) -> Vector:
        kind, picked = vector(x, self.name), vector(places, self.name)
        fitted(self.points.shape[1], kind, self.name)
        expect(kind.dtype == "float64", f"barycentre computes in float64, got {kind}")
        expect(picked.dtype in INTS, f"rows are picked by whole numbers, got {picked}")
        return Vector(picked.width, "float64")

    def reference(self, x: Columns, places: Columns) -> Columns:
        points = self.points.array.astype(np.float64)
        differences = points[np.clip(places, 0, len(points) - 1)] - x[:, None, :]
        products = differences @ differences.transpose(0, 2, 1)
        trace = np.trace(products, axis1=1, axis2=2)
        ridge = np.where(trace > 0, self.reg * trace, self.reg)
        products += ridge[:, None, None] * np.eye(places.shape[1])
        weights = np.linalg.solve(products, np.ones((*places.shape, 1)))[:, :, 0]
        return weights / weights.sum(axis=1, keepdims=True)

    def emit(self, e: Emitter, x: VectorValue, places: VectorValue) -> RowValue:
        points = FittedNumbers(self.points, "float64")
        found = write(e, barycentre, x, places, points, *self.points.shape, places.width, self.reg)
        return listed(e, found, "float64", places.width)


def barycentre(
    x: Row, places: Row, points: Numbers, rows: int, columns: int, count: int, reg: float
) -> Any:
    """The weights of the picked points, by the equations of their differences from the row."""
    width = size(columns)
    row, picked = indexable(x), indexable(places)
    k, last = len(places), size(rows - 1)
    table, differences = fitted_numbers(points), scratch("float64", count * columns)
    for i in range(k):
        start = min(max(picked[i], 0), last) * width
        for j in range(width):
            differences[i * width + j] = table[start + j] - row[j]
    matrix, weights = scratch("float64", count * count), scratch("float64", count)
    for i in range(k):
        for j in range(i + 1):
            total = 0.0
            for c in range(width):
                total = added(total, differences[i * width + c] * differences[j * width + c])
            matrix[i * k + j] = total
    add_ridge(matrix, k, number(reg, "float64"))
    factorise(matrix, k)
    whole = solve_ones(matrix, weights, k)
    return [weights[j] / whole for j in range(k)]


def add_ridge(matrix: Numbers, k: int, reg: Number) -> None:
    """Add to the diagonal in proportion to its sum."""
    trace = 0.0
    for i in range(k):
        trace = trace + matrix[i * k + i]
    ridge = reg * trace if trace > 0.0 else reg
    for i in range(k):
        matrix[i * k + i] += ridge


def factorise(matrix: Numbers, k: int) -> None:
    """Put Cholesky's factor in the place of the lower half."""
    for i in range(k):
        for j in range(i + 1):
            total = matrix[i * k + j]
            for c in range(j):
                total = total - matrix[i * k + c] * matrix[j * k + c]
            matrix[i * k + j] = sqrt(total) if i == j else total / matrix[j * k + j]


def solve_ones(matrix: Numbers, weights: Numbers, k: int) -> Number:
    """Solve for a right side of ones with the factor and its transpose; the sum of the answer."""
    for i in range(k):
        total = 1.0
        for j in range(i):
            total = total - matrix[i * k + j] * weights[j]
        weights[i] = total / matrix[i * k + i]
    whole = 0.0
    for down in range(k):
        i = k - 1 - down
        rest = weights[i]
        for j in range(i + 1, k):
            rest = rest - matrix[j * k + i] * weights[j]
        weights[i] = rest / matrix[i * k + i]
        whole = whole + weights[i]
    return whole
