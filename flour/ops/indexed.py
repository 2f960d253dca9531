"""Columns read and written at computed indices, and products of two computed matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, numeric, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.errors import InputError, ParameterError
from flour.core.op import Arity, Columns, Op
from flour.core.types import FLOATS, INTS, Scalar, Type, Vector
from flour.ops.unary import whole

REDUCTIONS = ("none", "add", "mul", "max", "min")


class PickAt(Op):
    """The column of x that each index names; an index outside picks the nearest column."""

    method = ""
    arity = Arity.ONE_TO_MANY

    def infer(self, x: Type, places: Type) -> Vector:
        where = vector(places, self.name)
        expect(isinstance(x, Vector), f"there are no columns to look up in {x}")
        assert isinstance(x, Vector)
        expect(where.dtype in INTS, f"columns are named by whole numbers, got {places}")
        expect(x.width > 0, "there is no column to look up")
        return Vector(where.width, x.dtype)

    def reference(self, x: Columns, places: Columns) -> Columns:
        inside = np.clip(places, 0, x.shape[1] - 1).astype(np.int64)
        return np.take_along_axis(x, inside, axis=1)

    def emit(self, e: Emitter, x: VectorValue, places: VectorValue) -> RowValue:
        at, last = e.indexable(x), e.size(x.width - 1)

        def entry(_: str, index: str) -> str:
            return at(e.let(f"min(max(int64({index}), 0), {last})", "int64").expr)

        return e.map(entry, places, dtype=x.dtype, width=places.width)


class InRange(Op):
    """x as it is; a row is an error that has a number which is none of 0 to `size` - 1."""

    method = ""
    size: int

    def infer(self, x: Type) -> Vector | Scalar:
        kind = numeric(x, "in_range")
        expect(kind.dtype in INTS, f"indices are whole numbers, got {x}")
        return kind

    def refuses_rows(self) -> bool:
        return True

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
        last = e.size(self.size - 1)
        if isinstance(x, ScalarValue):
            bad = f"{x.expr} < 0 or {x.expr} > {last}"
        else:
            if not all(part.stored for part in x.parts):
                x = e.keep(x)
            bad = e.var("0")
            x.each(lambda _, v: e.line(f"{bad} |= int64(({v} < 0) | ({v} > {last}))"))
            bad = f"{bad} != 0"
        with e.block(f"if {bad}:"):
            e.line("return 1")
        return x


class PutAt(Op):
    """x with some columns set: each update goes where its index says, in order.

    With a reduction, the update is added to what is there, or multiplied, or the larger or smaller
    of both stays. An index outside means the nearest column.
    """

    method = ""
    reduction: str = "none"

    def check(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise ParameterError(
                f"there is no reduction {self.reduction!r}", hint=", ".join(REDUCTIONS)
            )

    def structure(self) -> tuple[object, ...]:
        return (self.reduction,)

    def infer(self, x: Type, places: Type, updates: Type) -> Vector:
        kind, where, new = (vector(item, self.name) for item in (x, places, updates))
        expect(where.dtype in INTS, f"columns are named by whole numbers, got {places}")
        expect(where.width == new.width, "every update needs a place")
        expect(kind.dtype == new.dtype, "the updates need the dtype of what they update")
        expect(kind.width > 0 or not new.width, "there is no column to set")
        return Vector(kind.width, kind.dtype)

    def reference(self, x: Columns, places: Columns, updates: Columns) -> Columns:
        result = x.copy()
        rows = np.arange(len(x))
        for index, new in zip(places.T, updates.T, strict=True):
            cells = (rows, np.clip(index, 0, x.shape[1] - 1).astype(np.int64))
            result[cells] = self._merged(result[cells], new)
        return result

    def _merged(self, old: NDArray[Any], new: NDArray[Any]) -> Any:
        merge = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        return merge[self.reduction](old, new) if self.reduction in merge else new

    def emit(self, e: Emitter, x: VectorValue, places: VectorValue, updates: VectorValue) -> Any:
        where, new = e.indexable(places), e.indexable(updates)
        out, at = e.scratch(x.dtype, x.width), e.indexable(x)
        with e.loop(x.size) as j:
            e.store(out, j, at(j), x.dtype)
        last = e.size(x.width - 1)
        with e.loop(places.size) as j:
            index = e.let(f"min(max(int64({where(j)}), 0), {last})", "int64").expr
            value = e.let(new(j), x.dtype).expr
            e.store(out, index, self._code(e.load(out, index, x.dtype), value, x.dtype), x.dtype)
        return e.dense(
            x.dtype, x.width, lambda j: e.load(out, j, x.dtype), size=x.size, stored=True
        )

    def _code(self, old: str, new: str, dtype: str) -> str:
        if self.reduction == "none":
            return new
        code = {
            "add": f"({old} + {new})",
            "mul": f"({old} * {new})",
            "max": f"maximum({old}, {new})",
            "min": f"minimum({old}, {new})",
        }[self.reduction]
        return whole(code, dtype)


class MatrixProducts(Op):
    """Matrix products of two flows: `count` times (left, inner) @ (inner, right), side by side."""

    method = ""
    left: int
    inner: int
    right: int
    arity = Arity.AGGREGATE

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
        dtype, count = x.dtype, x.width // (self.left * self.inner)
        first, second = e.indexable(x), e.indexable(y)
        width = count * self.left * self.right
        out = e.scratch(dtype, width)
        left, inner, right = (e.size(n) for n in (self.left, self.inner, self.right))
        with e.loop(e.size(count)) as b, e.loop(left) as i, e.loop(right) as o:
            row = e.let(f"({b} * {left} + {i})", "int64").expr
            total = e.var(f"{dtype}(0)")
            with e.loop(inner) as j:
                one = e.let(first(f"{row} * {inner} + {j}"), dtype).expr
                other = e.let(second(f"({b} * {inner} + {j}) * {right} + {o}"), dtype).expr
                if dtype in FLOATS:
                    e.add(total, f"{one} * {other}", dtype)
                else:
                    e.line(f"{total} = {dtype}({total} + {one} * {other})")
            e.store(out, f"{row} * {right} + {o}", total, dtype)
        return e.dense(dtype, width, lambda j: e.load(out, j, dtype), stored=True)
