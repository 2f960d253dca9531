"""Choosing the nearest points by distance, and adding up values of the chosen ones.

Among points at exactly the same distance the one with the lower number comes first, or (`heap`)
those that scikit-learn's heap keeps; flour/ops/tree_search.py has that heap.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import isnan

from flour.core import words
from flour.core.check import expect, vector
from flour.core.emission import Emitter, Push, RowValue, ScalarValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import (
    Code,
    FittedNumbers,
    Spelled,
    expression,
    held,
    indexable_row,
    listed,
    write,
)
from flour.core.op import Arity, Array, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, INTS, Type, Vector, promote
from flour.core.words import Number, Numbers, Row, cast, fitted, indexable, scratch, size, stored
from flour.ops.binary import Binary
from flour.ops.tree_search import arrange, push

#: The largest finite float64: only an infinity is larger.
LARGEST = sys.float_info.max


class Nearest(Op, cuts=True, arity=Arity.ONE_TO_MANY):
    """The numbers of the `count` smallest columns, ascending: of equals the first, NaN last.

    With `heap`, equals for the last place are chosen as scikit-learn's heap does, which gives the
    number 0 for what is not finite.
    """

    count: int
    heap: bool = False

    def check(self) -> None:
        if self.count < 1:
            raise ParameterError("at least one neighbour is needed", found=str(self.count))

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "nearest")
        expect(kind.width >= self.count, f"there are no {self.count} nearest of {kind.width}")
        return Vector(self.count, "int64")

    def reference(self, x: Columns) -> Columns:
        if self.heap:
            found = [nearest_by_heap(row, self.count)[0] for row in x]
            return np.array(found, np.int64).reshape(len(x), self.count)
        return np.argsort(x, axis=1, kind="stable")[:, : self.count]

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return held(e, *write(e, nearest_by_heap if self.heap else nearest, x, self.count))


def nearest(x: Row, width: int) -> Any:
    """The numbers of the smallest columns, ascending; those kept stay sorted."""
    count = size(width)
    kept = 0
    values, numbers = scratch(x.dtype, width), scratch("int64", width)
    for j, v in stored(x):
        value = v
        last = values[count - 1]
        if kept < count or is_before(value, last):
            if kept < count:
                kept = kept + 1
            position = kept - 1
            while position > 0:
                left = values[position - 1]
                if not is_before(value, left):
                    break
                values[position] = left
                numbers[position] = numbers[position - 1]
                position = position - 1
            values[position] = value
            numbers[position] = j
    return numbers, width, count


def is_before(left: Number, right: Number) -> Any:
    """True if one number comes before another; NaN is last."""
    return left < right or (isnan(right) and not isnan(left))


def nearest_by_heap(x: Row, width: int) -> Any:
    """The numbers of the smallest columns as scikit-learn's heap chooses among equals."""
    count = size(width)
    near, places = scratch("float64", width), scratch("int64", width)
    for k in range(count):
        near[k] = math.inf
        places[k] = 0
    for j, v in stored(x):
        push(near, places, count, cast(v, "float64"), j)
    arrange(near, places, count)
    return places, width, count


class Gather(Op):
    """The columns of one vector that another vector of numbers picks, row by row.

    A number outside the vector picks its nearest end.
    """

    def infer(self, x: Type, places: Type) -> Vector:
        values, picked = vector(x, "gather"), vector(places, "gather")
        expect(picked.dtype in INTS, f"gather needs whole numbers, got {picked}")
        expect(values.width > 0, "gather needs at least one column to pick from")
        return Vector(picked.width, values.dtype)

    def reference(self, x: Columns, places: Columns) -> Columns:
        return np.take_along_axis(x, np.clip(places, 0, x.shape[1] - 1), axis=1)

    def emit(self, e: Emitter, x: VectorValue, places: VectorValue) -> RowValue:
        columns, last = indexable_row(e, x), e.let(f"{x.size} - 1", "int64")

        def entry(_: str, v: str) -> str:
            return expression(e, picked, columns, Code(v, places.dtype), last)

        return e.map(entry, places, dtype=x.dtype)


def picked(x: Row, place: Number, last: int) -> Number:
    """The column at a place, or at the end that is nearest to it."""
    inside = min(max(place, 0), last)
    return x[inside]


class WeightedRows(Op, method="", arity=Arity.AGGREGATE):
    """The rows of a table that a vector of numbers picks, added up, each times its weight if given.

    A number outside the table picks its nearest row.
    """

    table: Array

    def check(self) -> None:
        if self.table.array.ndim != 2 or not len(self.table):
            raise ParameterError("a table of rows has two dimensions and at least one row")

    def infer(self, places: Type, weights: Type | None = None) -> Vector:
        picked = vector(places, self.name)
        expect(picked.dtype in INTS, f"rows are picked by whole numbers, got {picked}")
        if weights is None:
            return Vector(self.table.shape[1], self._dtype())
        factors = vector(weights, self.name)
        expect(factors.width == picked.width, "there must be one weight for each picked row")
        return Vector(self.table.shape[1], self._dtype(factors.dtype))

    def _dtype(self, *others: str) -> str:
        table_dtype = str(self.table.dtype.name)
        dtype = promote(table_dtype if table_dtype in FLOATS else "float64", *others)
        return dtype if dtype in FLOATS else "float64"

    def reference(self, places: Columns, weights: Columns | None = None) -> Columns:
        rows = self.table.array[np.clip(places, 0, len(self.table) - 1)]
        dtypes = () if weights is None else (weights.dtype.name,)
        rows = rows.astype(self._dtype(*dtypes))
        return (rows if weights is None else rows * weights[:, :, None]).sum(axis=1)

    def emit(self, e: Emitter, places: VectorValue, weights: VectorValue | None = None) -> RowValue:
        dtypes = [] if weights is None else [weights.dtype]
        table = FittedNumbers(self.table, self._dtype(*dtypes))
        return held(e, *write(e, added_rows, places, weights, table, *self.table.shape))


def added_rows(places: Row, weights: Row | None, table: Numbers, rows: int, width: int) -> Any:
    """The rows of the table that are picked, each times its weight, added up."""
    count, last = size(width), size(rows - 1)
    sums, entries = scratch(table.dtype, width), fitted(table)
    weight = None if weights is None else indexable(weights)
    for o in range(count):
        sums[o] = words.zero(table)
    for j, v in stored(places):
        row = min(max(v, 0), last) * count
        if weight is None:
            for o in range(count):
                sums[o] += entries[row + o]
        else:
            factor = weight[j]
            for o in range(count):
                sums[o] += entries[row + o] * factor
    return sums, width, count


class Votes(Op, arity=Arity.AGGREGATE):
    """The total weight of each of `classes` codes, from codes and (if given) their weights."""

    classes: int

    def infer(self, codes: Type, weights: Type | None = None) -> Vector:
        kind = vector(codes, "votes")
        expect(kind.dtype in INTS, f"votes are whole numbers, got {kind}")
        if weights is not None:
            expect(vector(weights, "votes").width == kind.width, "each vote needs one weight")
        return Vector(self.classes, "float64")

    def reference(self, codes: Columns, weights: Columns | None = None) -> Columns:
        votes = np.zeros((len(codes), self.classes))
        rows = np.arange(len(codes))
        for j, column in enumerate(np.clip(codes, 0, self.classes - 1).T):
            votes[rows, column] += 1.0 if weights is None else weights[:, j]
        return votes

    def check(self) -> None:
        if self.classes < 1:
            raise ParameterError("there must be at least one class to vote for")

    def emit(self, e: Emitter, codes: VectorValue, weights: VectorValue | None = None) -> RowValue:
        return held(e, *write(e, votes, codes, weights, self.classes))


def votes(codes: Row, weights: Row | None, classes: int) -> Any:
    """The total weight of each code."""
    count, sums = size(classes), scratch("float64", classes)
    weight = None if weights is None else indexable(weights)
    for o in range(count):
        sums[o] = 0.0
    for j, v in stored(codes):
        code = min(max(v, 0), count - 1)
        sums[code] += 1.0 if weight is None else weight[j]
    return sums, classes, count


class Closeness(Op):
    """1 / distance for each neighbour; if any distance is zero, those get 1 and the others 0.

    With a second input only the columns where it is not zero are neighbours; the rest get zero.
    """

    def infer(self, x: Type, among: Type | None = None) -> Vector:
        kind = vector(x, "closeness")
        expect(kind.dtype in FLOATS, f"closeness needs floats, got {kind}", "call as_float()")
        if among is not None:
            expect(vector(among, "closeness").width == kind.width, "one flag for each distance")
        return kind.having(sparse=False)

    def reference(self, x: Columns, among: Columns | None = None) -> Columns:
        mask = np.ones(x.shape, bool) if among is None else among != 0
        inverse = np.where(mask, 1 / x, 0)
        endless = np.isinf(inverse)
        return np.where(endless.any(axis=1, keepdims=True), endless, inverse).astype(x.dtype)

    def emit(self, e: Emitter, x: VectorValue, among: VectorValue | None = None) -> RowValue:
        return listed(e, write(e, closeness, x, among, x.width), x.dtype, x.width)


def closeness(x: Row, among: Row | None, count: int) -> Any:
    """1 / distance for each of the neighbours; where one is infinite, 1 for those and else 0."""
    weights, endless = scratch(x.dtype, count), False
    columns, flags = indexable(x), None if among is None else indexable(among)
    for j in range(len(x)):
        value = words.one(x) / columns[j]
        value = value if flags is None or flags[j] != 0 else words.zero(x)
        weights[j] = value
        if abs(value) > LARGEST:
            endless = True
    return [weight_among(weights[j], endless) for j in range(len(x))]


def weight_among(weight: Number, endless: Any) -> Number:
    """A weight, where some weights may be infinite."""
    infinite = words.one(weight) if abs(weight) > LARGEST else words.zero(weight)
    return infinite if endless else weight


class Scatter(Op, keeps_zero=True):
    """A sparse vector of `width` columns, each value in the column that `places` gives it."""

    width: int

    def infer(self, places: Type, values: Type) -> Vector:
        picked, stored = vector(places, "scatter"), vector(values, "scatter")
        expect(picked.dtype in INTS, f"places are whole numbers, got {picked}")
        expect(stored.width == picked.width, "there must be one value for each place")
        return Vector(self.width, stored.dtype, sparse=True)

    def check(self) -> None:
        if self.width < 1:
            raise ParameterError("there must be at least one column to scatter into")

    def reference(self, places: Columns, values: Columns) -> Columns:
        dense = np.zeros((len(places), self.width), values.dtype)
        np.put_along_axis(dense, np.clip(places, 0, self.width - 1), values, axis=1)
        return Sparse.of(dense)

    def emit(self, e: Emitter, places: VectorValue, values: VectorValue) -> RowValue:
        columns, numbers = indexable_row(e, places), indexable_row(e, values)
        last = ScalarValue(e.size(self.width - 1), "int64")

        def each(push: Push) -> None:
            write(e, scattered, Spelled(push), columns, numbers, last)

        return e.sparse(values.dtype, self.width, each)


def scattered(push: Callable[..., None], places: Row, values: Row, last: int) -> None:
    """Push each value into the column that its place says."""
    for j in range(len(places)):
        column, value = min(max(places[j], 0), last), values[j]
        push(column, value)


class Maximum(Binary, commutative=True, function=np.maximum):
    """The larger of two flows, column by column; NaN if either is NaN."""
