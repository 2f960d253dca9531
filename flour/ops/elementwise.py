"""Arithmetic and comparisons with fitted numbers, column by column: x - offset, x > limit, ...

Estimators are compositions of these, so each keeps its exact order of operations: dividing by a
scale and multiplying by its reciprocal differ in the last bit, and so do (x - m) / s and x * a + b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flour.core import words
from flour.core.check import expect, numeric
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.errors import ParameterError
from flour.core.native import Code, FittedNumbers, expression
from flour.core.op import Array, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import ANYTHING, DTYPES, FLOATS, Extent, Scalar, Type, Vector, level, promote
from flour.core.words import Number, cast
from flour.ops.bases import Elementwise, FloatElementwise, meeting


class WithParameter(FloatElementwise, abstract=True):
    """An infix operation between each column and its fitted number.

    The number is first cast to the data's float width, as `x - mean.astype(x.dtype)` does. With
    `wide` the operation happens in the wider of both and its result is cast back, as `x -= mean`
    does: the two differ for float32 data and float64 parameters.
    """

    #: The operation on a number and the fitted one of its column, or on arrays of both.
    native: ClassVar[Callable[..., Number]]
    operand: Array
    wide: bool = False

    def fitted(self, x: NDArray[Any]) -> Any:
        """The parameter in the float width the operation happens in."""
        return self.operand.array.reshape(-1).astype(self._dtype(x.dtype.name))

    def _dtype(self, dtype: str) -> str:
        return promote(dtype, self.operand.dtype.name) if self.wide else dtype

    def compute(self, x: NDArray[Any]) -> Any:
        return type(self).native(x, self.fitted(x))

    def reference(self, x: Columns) -> Columns:
        result = super().reference(x)
        if result.dtype == x.dtype:
            return result
        if isinstance(result, Sparse):
            return result.with_data(result.data.astype(x.dtype))
        return result.astype(x.dtype)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        operand = FittedNumbers(self.operand, self._dtype(x.dtype))
        return expression(e, with_fitted, x, Code(j), operand, type(self).native)


def with_fitted(x: Number, j: int, fitted: Any, native: Callable[[Any, Any], Any]) -> Number:
    """The operation in the dtype of the fitted numbers, and its result in that of x."""
    return cast(native(cast(x, fitted.dtype), fitted[j]), x.dtype)


class Arithmetic(WithParameter, abstract=True):
    """An operation whose results are as large as one fitted number makes them."""

    #: Of the fitted numbers' magnitudes, that one.
    widest: ClassVar[np.ufunc] = np.maximum

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        (x,), operand, dtype = inputs, self.operand.array, getattr(kinds[0], "dtype", "")
        if x == ANYTHING and operand.size:
            return x
        plain = operand.size and dtype == "float64" and operand.dtype.kind == "f"
        size = float(self.widest.reduce(abs(operand), axis=None)) if plain else 0.0
        if not 0.0 < size < np.inf or x.largest == np.inf:
            return super().extent(inputs, kinds)
        results = (abs(float(self.native(each, size))) for each in (x.largest, -x.largest))
        return Extent(x.nan, level(max(results)))

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [weights]


class Subtract(Arithmetic, monotone=True):
    """x - operand, column by column."""

    @staticmethod
    def native(x: Number, fitted: Number) -> Number:
        return x - fitted


class Add(Arithmetic, monotone=True):
    """x + operand, column by column."""

    @staticmethod
    def native(x: Number, fitted: Number) -> Number:
        return x + fitted


class Multiply(Arithmetic, widest_at_ends=True, keeps_zero=True, takes_sparse=True):
    """x * operand, column by column."""

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [weights * self.fitted(weights)]

    @staticmethod
    def native(x: Number, fitted: Number) -> Number:
        return x * fitted


class Divide(Arithmetic, widest_at_ends=True, keeps_zero=True, takes_sparse=True):
    """x / operand, column by column."""

    widest = np.minimum

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [weights / self.fitted(weights)]

    @staticmethod
    def native(x: Number, fitted: Number) -> Number:
        return x / fitted


class Clip(FloatElementwise, function=np.clip, monotone=True):
    """x limited to [low, high], column by column; NaN stays NaN."""

    low: Array
    high: Array

    def compute(self, x: NDArray[Any]) -> Any:
        low, high = (side.array.reshape(-1).astype(x.dtype) for side in (self.low, self.high))
        return np.clip(x, low, high)


class OneMinus(FloatElementwise, moves=True, widest_at_ends=True):
    """1 - x: the probability of the other class."""

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [-weights]

    def compute(self, x: NDArray[Any]) -> Any:
        return 1 - x

    @staticmethod
    def native(x: Number) -> Number:
        return words.one(x) - x


def one(dtype: str) -> str:
    """A one of this dtype, as an expression."""
    return {"float64": "1.0", "float32": "float32(1.0)"}.get(dtype, "1")


class Greater(Elementwise, result="bool"):
    """True if x > operand, column by column; never for NaN."""

    operand: Array

    def compute(self, x: NDArray[Any]) -> Any:
        return x > self.operand.array.reshape(-1)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, is_greater, x, Code(j), self.operand)


def is_greater(x: Number, j: int, operand: Any) -> Any:
    """True if x is above the number of its column."""
    return x > operand[j]


class Cast(Elementwise, takes_sparse=True, keeps_zero=True, monotone=True, moves=True):
    """The values in another dtype, converted as numpy's astype does."""

    dtype: str

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]] | None:
        return [weights] if self.dtype in FLOATS else None

    def check(self) -> None:
        if self.dtype not in DTYPES or self.dtype == "string":
            raise ParameterError(f"values cannot become {self.dtype!r}", hint="float64, int64, ...")

    def output(self, kind: Vector | Scalar) -> Type:
        return Scalar(self.dtype) if isinstance(kind, Scalar) else kind.having(dtype=self.dtype)

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        if self.dtype not in FLOATS:
            return Extent(nan=False, largest=1e20, counts=inputs[0].counts)
        if "float32" not in (self.dtype, getattr(kinds[0], "dtype", "")):
            return inputs[0]._replace(largest=level(inputs[0].largest))
        return super().extent(inputs, kinds)._replace(counts=inputs[0].counts)

    def compute(self, x: NDArray[Any]) -> Any:
        return x.astype(self.dtype)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        def code(_: str, v: str) -> str:
            return self._code(e, v, x.dtype)

        return e.map(code, x, dtype=self.dtype, keeps_zero=True)

    def _code(self, e: Emitter, value: str, have: str) -> str:
        """The converted value; NaN is the lowest number, as for numpy: LLVM leaves it open."""
        if have not in FLOATS or self.dtype not in ("int32", "int64"):
            return e.cast(value, have, self.dtype)
        held, lowest = e.let(value, have).expr, f"{self.dtype}({np.iinfo(self.dtype).min + 1} - 1)"
        return f"({e.cast(held, have, self.dtype)} if {held} == {held} else {lowest})"


class AsFloat(Cast):
    """Ints and bools become float64, floats stay what they are (what check_array does)."""

    dtype: str = "float64"

    def output(self, kind: Vector | Scalar) -> Type:
        return kind if kind.dtype in ("float32", "float64") else super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return x if x.dtype.kind == "f" else x.astype(self.dtype)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        return x if x.dtype in ("float32", "float64") else super().emit(e, x)


class NumpyFloat(AsFloat):
    """The floats that numpy's functions compute whole numbers in: float32 for those of 16 bits."""

    method = ""  # numpy's functions in a fitted estimator

    def output(self, kind: Vector | Scalar) -> Type:
        expect(
            np.dtype(kind.dtype).itemsize > 1,
            f"numpy computes this function of {kind.dtype} in float16, which programs do not have",
            "make floats of the data first: X.astype(float)",
        )
        return self._cast(kind.dtype).output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return self._cast(x.dtype.name).compute(x)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        return self._cast(x.dtype).emit(e, x)

    def _cast(self, dtype: str) -> Cast:
        return AsFloat("float32" if np.dtype(dtype).itemsize == 2 else "float64")


class Threshold(Elementwise, abstract=True, result="bool"):
    """Each column against its number, in the wider of both dtypes; a NaN never compares.

    (`not_equal` is the exception: NaN differs from everything.)
    """

    operand: Array

    def compute(self, x: NDArray[Any]) -> Any:
        return type(self).function(x, self.operand.array.reshape(-1))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        wide = promote(x.dtype, self.operand.dtype.name)
        value, operand = e.cast(x.expr, x.dtype, wide), e.at(self.operand, j, wide)
        return expression(e, type(self).function, Code(value), Code(operand))


class GreaterEqual(Threshold, function=np.greater_equal):
    """True if x >= operand, column by column; never for NaN."""


class Less(Threshold, function=np.less):
    """True if x < operand, column by column; never for NaN."""


class LessEqual(Threshold, function=np.less_equal):
    """True if x <= operand, column by column; never for NaN."""


class Equal(Threshold, function=np.equal):
    """True if x == operand, column by column; never for NaN."""


class NotEqual(Threshold, function=np.not_equal):
    """True if x != operand, column by column; always for NaN."""


class Where(Op):
    """`yes` where x is true, else `no`: column by column, scalars meet every column."""

    def infer(self, x: Type, yes: Type, no: Type) -> Type:
        kinds = [numeric(kind, "where") for kind in (x, yes, no)]
        expect(kinds[0].dtype == "bool", f"where chooses by bools, got {x}", "compare first: x > 0")
        widths = {kind.width for kind in kinds if isinstance(kind, Vector)}
        expect(len(widths) < 2, "where needs vectors of one width, or scalars")
        dtype = promote(kinds[1].dtype, kinds[2].dtype)
        return Vector(widths.pop(), dtype) if widths else Scalar(dtype)

    def reference(self, x: Columns, yes: Columns, no: Columns) -> Columns:
        return np.where(*meeting(x, yes, no))

    def emit(self, e: Emitter, x: RowValue, yes: RowValue, no: RowValue) -> RowValue:
        dtype = promote(yes.dtype, no.dtype)

        def choose(_: str, mask: str, left: str, right: str) -> str:
            both = e.cast(left, yes.dtype, dtype), e.cast(right, no.dtype, dtype)
            return f"({both[0]} if {mask} else {both[1]})"

        return e.map(choose, x, yes, no, dtype=dtype)
