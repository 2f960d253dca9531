"""Columns read and written at computed indices, and products of two computed matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import empty_like

from flour.core import native
from flour.core.check import expect, numeric, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import InputError, ParameterError
from flour.core.op import Arity, Columns, Op
from flour.core.types import FLOATS, INTS, Scalar, Type, Vector
from flour.core.words import (
    Number,
    Row,
    added,
    cast,
    indexable,
    like,
    narrowed,
    refuse,
    scratch,
    size,
    stored,
)
from flour.ops.structure import nearest_entry


def _replaced(_: Number, new: Number) -> Number:
    return new


#: How an update meets what is there.
REDUCTIONS: dict[str, Callable[..., Any]] = {"none": _replaced, "add": np.add, "mul": np.multiply}
REDUCTIONS |= {"max": np.maximum, "min": np.minimum}


class PickAt(Op, method="", arity=Arity.ONE_TO_MANY):
    """The column of x that each index names; an index outside picks the nearest column."""

    def infer(self, x: Type, places: Type) -> Vector:
        where = vector(places, self.name)
        expect(isinstance(x, Vector), f"there are no columns to look up in {x}")
        assert isinstance(x, Vector)
        expect(where.dtype in INTS, f"columns are named by whole numbers, got {places}")
        expect(x.width > 0, "there is no column to look up")
        return Vector(where.width, x.dtype)

    def reference(self, x: Columns, places: Columns) -> Columns:
        return np.take_along_axis(x, np.clip(places, 0, x.shape[1] - 1).astype(np.int64), axis=1)

    def emit(self, e: Emitter, x: VectorValue, places: VectorValue) -> RowValue:
        values = native.indexable_row(e, x), native.Code(e.size(x.width - 1))
        return native.columnwise(e, nearest_entry, places, *values, dtype=x.dtype)


class InRange(Op, refuses=True, method=""):
    """x as it is; a row is an error that has a number which is none of 0 to `size` - 1."""

    size: int

    def infer(self, x: Type) -> Vector | Scalar:
        kind = numeric(x, "in_range")
        expect(kind.dtype in INTS, f"indices are whole numbers, got {x}")
        return kind

    def reference(self, x: Columns) -> Columns:
        bad = (x < 0) | (x >= self.size)
        if bad.any():
            place = tuple(int(index[0]) for index in np.nonzero(bad))
            raise InputError(
                f"an index is beyond an axis of {self.size}",
                where=f"$[{place[0]}]",
                found=str(x[place]),
                hint="a category or position that the model does not have; onnxruntime refuses "
                "it, too",
            )
        return x

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        if isinstance(x, VectorValue) and not all(part.stored for part in x.parts):
            x = e.keep(x)
        native.write(e, check_indices, native.as_row(e, x), self.size)
        return x


def check_indices(x: Row, count: int) -> None:
    """Refuse indices beyond so many."""
    last = size(count - 1)
    bad = 0
    for _, index in stored(x):
        bad |= cast((index < 0) | (index > last), "int64")
    if bad != 0:
        refuse()


class PutAt(Op, method=""):
    """x with some columns set: each update goes where its index says, in order.

    With a reduction, the update is added to what is there, or multiplied, or the larger or smaller
    of both stays. An index outside means the nearest column.
    """

    reduction: str = "none"

    def check(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise ParameterError(
                f"there is no reduction {self.reduction!r}", hint=", ".join(REDUCTIONS)
            )

    def infer(self, x: Type, places: Type, updates: Type) -> Vector:
        kind, where, new = (vector(item, self.name) for item in (x, places, updates))
        expect(where.dtype in INTS, f"columns are named by whole numbers, got {places}")
        expect(where.width == new.width, "every update needs a place")
        expect(kind.dtype == new.dtype, "the updates need the dtype of what they update")
        expect(kind.width > 0 or not new.width, "there is no column to set")
        return Vector(kind.width, kind.dtype)

    def reference(self, x: Columns, places: Columns, updates: Columns) -> Columns:
        result, rows = x.copy(), np.arange(len(x))
        for index, new in zip(places.T, updates.T, strict=True):
            cells = (rows, np.clip(index, 0, x.shape[1] - 1).astype(np.int64))
            result[cells] = REDUCTIONS[self.reduction](result[cells], new)
        return result

    def emit(self, e: Emitter, x: VectorValue, places: VectorValue, updates: VectorValue) -> Any:
        updated = native.write(e, put_at, x, places, updates, REDUCTIONS[self.reduction], x.width)
        return native.held(e, updated, x.width, x.size)


def put_at(x: Row, places: Row, updates: Row, merged: Callable[..., Any], width: int) -> Any:
    """The row with its updates."""
    where, new = indexable(places), indexable(updates)
    result = empty_like(x)
    columns = indexable(x)
    for j in range(len(x)):
        result[j] = columns[j]
    last = size(width - 1)
    for j in range(len(places)):
        index = min(max(cast(where[j], "int64"), 0), last)
        value = new[j]
        result[index] = narrowed(merged(result[index], value))
    return result


class MatrixProducts(Op, method="", arity=Arity.AGGREGATE):
    """Matrix products of two flows: `count` times (left, inner) @ (inner, right), side by side."""

    left: int
    inner: int
    right: int

    def check(self) -> None:
        if min(self.left, self.inner, self.right) < 1:
            raise ParameterError("a matrix has at least one row and one column")

    def infer(self, x: Type, y: Type) -> Vector:
        first, second = vector(x, self.name), vector(y, self.name)
        expect(first.dtype == second.dtype, "both matrices need one dtype")
        count = first.width // (self.left * self.inner)
        expect(count * self.left * self.inner == first.width, f"{x} holds other matrices")
        expect(count * self.inner * self.right == second.width, f"{y} holds other matrices")
        return Vector(count * self.left * self.right, first.dtype)

    def reference(self, x: Columns, y: Columns) -> Columns:
        count = x.shape[1] // (self.left * self.inner)
        first = x.reshape(len(x), count, self.left, self.inner)
        products = np.matmul(first, y.reshape(len(y), count, self.inner, self.right))
        return products.reshape(len(x), count * self.left * self.right)

    def emit(self, e: Emitter, x: VectorValue, y: VectorValue) -> RowValue:
        count = x.width // (self.left * self.inner)
        width = count * self.left * self.right
        return native.held(e, native.write(e, matrix_products, x, y, self, count, width), width)


def matrix_products(x: Row, y: Row, op: Any, count: int, width: int) -> Any:
    """The products of so many matrices."""
    first, second = indexable(x), indexable(y)
    products = scratch(x.dtype, width)
    left, inner, right = size(op.left), size(op.inner), size(op.right)
    for b in range(size(count)):
        for i in range(left):
            for o in range(right):
                row = b * left + i
                total = like(x, 0)
                for j in range(inner):
                    one, other = first[row * inner + j], second[(b * inner + j) * right + o]
                    if x.dtype in FLOATS:
                        total = added(total, one * other)
                    else:
                        total = like(x, total + one * other)
                products[row * right + o] = total
    return products
