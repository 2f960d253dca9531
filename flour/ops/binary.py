"""Arithmetic between two flows: x + y, x - y, x * y, x / y; a scalar meets every column.

Both sides are converted to numpy's promoted dtype first, which is what numpy's own arithmetic
does. Flows are written with the ordinary signs: `(x - mean) / spread`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, numeric
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.native import Code, write
from flour.core.op import Columns, Op
from flour.core.raw_columns import Made
from flour.core.sparse import Sparse, densify
from flour.core.types import FLOATS, Extent, Scalar, Type, Vector, promote
from flour.core.words import Number
from flour.ops.bases import meeting
from flour.ops.elementwise import Cast, WithParameter
from flour.ops.unary import whole


class Binary(Op, abstract=True, by_column=True):
    """Two inputs of one width (or a scalar and a vector), the same operation on every column."""

    function: ClassVar[np.ufunc]

    def infer(self, x: Type, y: Type) -> Type:
        left, right = numeric(x, self.name), numeric(y, self.name)
        widths = {kind.width for kind in (left, right) if isinstance(kind, Vector)}
        expect(
            len(widths) < 2,
            f"{self.name} needs two vectors of one width, or a scalar and a vector",
            "pick columns with select([...]) or element(column) first",
        )
        dtype = self.dtype(left.dtype, right.dtype)
        expect(dtype != "bool", f"{self.name} needs numbers, got bool", "call as_float() first")
        if not widths:
            return Scalar(dtype)
        return Vector(widths.pop(), dtype, self._sparse(left, right))

    def dtype(self, left: str, right: str) -> str:
        """The dtype of the result, from the dtypes of the inputs."""
        return promote(left, right)

    def _sparse(self, left: Vector | Scalar, right: Vector | Scalar) -> bool:
        """True if the result is sparse: stores only the values that are not zero."""
        return False

    def compute(self, x: NDArray[Any], y: NDArray[Any]) -> Any:
        """The operation on arrays of one dtype."""
        return type(self).function(x, y)

    def reference(self, x: Columns, y: Columns) -> Columns:
        dtype = self.dtype(x.dtype.name, y.dtype.name)
        x, y = meeting(x, y)
        return self.compute(x.astype(dtype), y.astype(dtype))

    def emit(self, e: Emitter, x: RowValue, y: RowValue) -> RowValue:
        dtype = self.dtype(x.dtype, y.dtype)

        def expression(_: str, left: str, right: str) -> str:
            both = e.cast(left, x.dtype, dtype), e.cast(right, y.dtype, dtype)
            return whole(write(e, type(self).function, *map(Code, both)), dtype)

        # scalar / x is not zero where x is, so it must see every column of a sparse x.
        keeps = self.keeps_zero and (self.commutative or not isinstance(x, ScalarValue))
        return e.map(expression, x, y, dtype=dtype, keeps_zero=keeps)


class Plus(Binary, function=np.add, commutative=True):
    """x + y of two flows; a scalar meets every column."""

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [_met(weights, kind) for kind in inputs]


class Minus(Binary, function=np.subtract):
    """x - y of two flows; a scalar meets every column."""

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [_met(weights, inputs[0]), -_met(weights, inputs[1])]


def _met(weights: NDArray[np.float64], kind: Type) -> NDArray[np.float64]:
    """The weights of an input that meets these columns: of a scalar, which meets all, their sum."""
    return weights if isinstance(kind, Vector) else weights.sum(axis=1, keepdims=True)


class Scaling(Binary, abstract=True, takes_sparse=True, keeps_zero=True):
    """Scaling by a scalar, which keeps a sparse vector sparse: a zero stays zero."""

    def reference(self, x: Columns, y: Columns) -> Columns:
        if isinstance(x, Sparse) and _is_flat(y):
            return x.with_data(super().reference(x.data, y[x.rows]))
        return super().reference(densify(x), densify(y))


def _is_flat(x: Columns) -> bool:
    """True if x is a column of scalars: one number per row."""
    return not isinstance(x, Sparse) and x.ndim == 1


class Times(Scaling, function=np.multiply, commutative=True):
    """x * y of two flows; a scalar meets every column, and a sparse x stays sparse."""

    def _sparse(self, left: Vector | Scalar, right: Vector | Scalar) -> bool:
        return (isinstance(left, Vector) and left.sparse and isinstance(right, Scalar)) or (
            isinstance(right, Vector) and right.sparse and isinstance(left, Scalar)
        )

    def reference(self, x: Columns, y: Columns) -> Columns:
        if isinstance(y, Sparse) and _is_flat(x):
            x, y = y, x
        return super().reference(x, y)


class Over(Scaling, function=np.true_divide):
    """x / y of two flows; a scalar meets every column, and a sparse x over a scalar stays sparse.

    Whole numbers divide as float64.
    """

    def dtype(self, left: str, right: str) -> str:
        both = promote(left, right)
        return both if both in FLOATS else "float64"

    def _sparse(self, left: Vector | Scalar, right: Vector | Scalar) -> bool:
        return isinstance(left, Vector) and left.sparse and isinstance(right, Scalar)


class Quotient(WithParameter):
    """operand / x, column by column (`1 / flow` is written so)."""

    @staticmethod
    def native(x: Number, fitted: Number) -> Number:
        return fitted / x


class CastLike(Op, takes_sparse=True, by_column=True):
    """x in the dtype of y, as arithmetic in place (`y += x`) leaves it."""

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        return inputs[0]

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return made[0]

    def infer(self, x: Type, y: Type) -> Type:
        kind, like = numeric(x, self.name), numeric(y, self.name)
        return Scalar(like.dtype) if isinstance(kind, Scalar) else kind.having(dtype=like.dtype)

    def reference(self, x: Columns, y: Columns) -> Columns:
        if isinstance(x, Sparse):
            return x.with_data(x.data.astype(y.dtype))
        return x.astype(y.dtype)

    def emit(self, e: Emitter, x: RowValue, y: RowValue) -> RowValue:
        return Cast(y.dtype).emit(e, x)
