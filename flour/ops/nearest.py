"""Choosing the nearest points by distance, and adding up values of the chosen ones.

Among points at exactly the same distance the one with the lower number comes first, or (`heap`)
those that scikit-learn's heap keeps; flour/ops/tree_search.py has that heap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import isnan

from flour.core.check import expect, vector
from flour.core.emission import Emitter, Push, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import held, write
from flour.core.op import Arity, Array, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, INTS, Type, Vector, promote
from flour.core.words import Number, Row, scratch, size, stored
from flour.ops.binary import Binary
from flour.ops.elementwise import one
from flour.ops.reduce import zero
from flour.ops.tree_search import emit_push, emit_sorted, push

#: The largest finite float64, as native code writes it: only an infinity is larger.
LARGEST = "1.7976931348623157e308"


class Nearest(Op):
    """The numbers of the `count` smallest columns, ascending: of equals the first, NaN last.

    With `heap`, equals for the last place are chosen as scikit-learn's heap does, which gives the
    number 0 for what is not finite.
    """

    count: int
    heap: bool = False
    cuts = True
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        if self.count < 1:
            raise ParameterError("at least one neighbour is needed", found=str(self.count))

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "nearest")
        expect(kind.width >= self.count, f"there are no {self.count} nearest of {kind.width}")
        return Vector(self.count, "int64")

    def reference(self, x: Columns) -> Columns:
        if self.heap:
            return self._by_heap(x)
        return np.argsort(x, axis=1, kind="stable")[:, : self.count]

    def _by_heap(self, x: Columns) -> Columns:
        found = np.empty((len(x), self.count), np.int64)
        for row, out in zip(x, found, strict=True):
            near, places = [np.inf] * self.count, [0] * self.count
            for number, value in enumerate(row.tolist()):
                push(near, places, value, number)
            out[:] = np.array(places)[np.argsort(near, kind="stable")]
        return found

    def structure(self) -> tuple[object, ...]:
        return (self.heap,)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        if self.heap:
            return self._emit_heap(e, x)
        return held(e, *write(e, nearest, x, self.count))

    def _emit_heap(self, e: Emitter, x: VectorValue) -> RowValue:
        count = e.size(self.count)
        near, places = e.scratch("float64", self.count), e.scratch("int64", self.count)
        with e.loop(count) as k:
            e.store(near, k, "math.inf", "float64")
            e.store(places, k, "0", "int64")

        def offer(j: str, v: str) -> None:
            value = e.let(e.cast(v, x.dtype, "float64"), "float64").expr
            emit_push(e, (near, places, count), value, j)

        x.each(offer)
        emit_sorted(e, near, places, count)
        return e.dense(
            "int64", self.count, lambda j: e.load(places, j, "int64"), size=count, stored=True
        )


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
    """Whether one number comes before another; NaN is last."""
    return left < right or (isnan(right) and not isnan(left))


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
        at = e.indexable(x)
        last = e.let(f"{x.size} - 1", "int64").expr
        return e.map(
            lambda _, v: at(e.let(f"min(max({v}, 0), {last})", "int64").expr),
            places,
            dtype=x.dtype,
            width=places.width,
        )


class WeightedRows(Op):
    """The rows of a table that a vector of numbers picks, added up, each times its weight if given.

    A number outside the table picks its nearest row.
    """

    method = ""
    table: Array
    arity = Arity.AGGREGATE

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
        dtype = self._dtype(*([] if weights is None else [weights.dtype]))
        outs, last = e.size(self.table.shape[1]), e.size(len(self.table) - 1)
        sums, table = e.scratch(dtype, self.table.shape[1]), e.address(self.table, dtype)
        weight = None if weights is None else e.indexable(weights)
        with e.loop(outs) as o:
            e.store(sums, o, zero(dtype), dtype)

        def add(j: str, v: str) -> None:
            row = e.let(f"min(max({v}, 0), {last}) * {outs}", "int64").expr
            factor = "" if weight is None else " * " + e.let(weight(j), dtype).expr
            with e.loop(outs) as o:
                value = e.load(table, f"{row} + {o}", dtype, constant=True)
                e.store(sums, o, f"{e.load(sums, o, dtype)} + {value}{factor}", dtype)

        places.each(add)
        size = self.table.shape[1]
        return e.dense(dtype, size, lambda o: e.load(sums, o, dtype), size=outs, stored=True)


class Votes(Op):
    """The total weight of each of `classes` codes, from codes and (if given) their weights."""

    classes: int
    arity = Arity.AGGREGATE

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
        count, sums = e.size(self.classes), e.scratch("float64", self.classes)
        weight = None if weights is None else e.indexable(weights)
        with e.loop(count) as o:
            e.store(sums, o, "0.0", "float64")

        def add(j: str, v: str) -> None:
            code = e.let(f"min(max({v}, 0), {count} - 1)", "int64").expr
            vote = "1.0" if weight is None else weight(j)
            e.store(sums, code, f"{e.load(sums, code, 'float64')} + {vote}", "float64")

        codes.each(add)
        return e.dense(
            "float64", self.classes, lambda o: e.load(sums, o, "float64"), size=count, stored=True
        )


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
        inverse = np.where(endless.any(axis=1, keepdims=True), endless, inverse)
        return inverse.astype(x.dtype)

    def emit(self, e: Emitter, x: VectorValue, among: VectorValue | None = None) -> RowValue:
        weights, endless = e.scratch(x.dtype, x.width), e.var("False")
        at, single = e.indexable(x), one(x.dtype)
        flag = None if among is None else e.indexable(among)
        with e.loop(x.size) as j:
            inverse = f"{single} / {at(j)}"
            if flag is not None:
                inverse = f"({inverse} if {flag(j)} != 0 else {zero(x.dtype)})"
            value = e.let(inverse, x.dtype).expr
            e.store(weights, j, value, x.dtype)
            with e.block(f"if abs({value}) > {LARGEST}:"):
                e.line(f"{endless} = True")

        def weight(j: str) -> str:
            value = e.let(e.load(weights, j, x.dtype), x.dtype).expr
            infinite = f"({single} if abs({value}) > {LARGEST} else {zero(x.dtype)})"
            return f"({infinite} if {endless} else {value})"

        return e.dense(x.dtype, x.width, weight, size=x.size)


class Scatter(Op):
    """A sparse vector of `width` columns, each value in the column that `places` gives it."""

    width: int
    keeps_zero = True

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
        index, value = e.indexable(places), e.indexable(values)
        last = e.size(self.width - 1)

        def each(push: Push) -> None:
            with e.loop(places.size) as j:
                column = e.let(f"min(max({index(j)}, 0), {last})", "int64").expr
                push(column, e.let(value(j), values.dtype).expr)

        return e.sparse(values.dtype, self.width, each)


class Maximum(Binary):
    """The larger of two flows, column by column; NaN if either is NaN."""

    commutative = True
    function = np.maximum
