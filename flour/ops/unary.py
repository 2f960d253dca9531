"""Functions of one number: exp, log, square, tanh, floor, ... on every element.

Each class is a row of a table: numpy's function is the meaning, and the word of its name, or
`native`, is the same in native code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect
from flour.core.emission import Column, Emitter, ScalarValue
from flour.core.native import expression, write
from flour.core.types import FLOATS, Scalar, Type, Vector
from flour.core.words import Number, narrowed, one, zero
from flour.ops.bases import Elementwise, FloatElementwise

#: Loops over fewer numbers are hardly vector code: the lanes of a register of float32.
LANES = 16


class FloatFunction(FloatElementwise, abstract=True):
    """A function of floats; whole numbers have to be made floats first."""

    alike = True
    function: ClassVar[Callable[..., Any]]

    def compute(self, x: NDArray[Any]) -> Any:
        return type(self).function(x)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, type(self).function, x)


class ZeroToZero(FloatFunction, abstract=True):
    """A function of floats that leaves zero where it is, and so a sparse vector sparse."""

    takes_sparse = True
    keeps_zero = True


class Exp(FloatFunction):
    """e to the power of x."""

    function = np.exp
    monotone = True
    restates = True

    def wants_kernel(self, *inputs: Type) -> bool:
        """True if a row has few columns: one more stage costs one row little and vectorises many.

        Only in float32, of which a register holds most.
        """
        (x,) = inputs
        if not isinstance(x, Vector) or x.sparse:
            return False
        return x.dtype == "float32" and 1 < x.width < LANES

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        """All rows as one long row where they are contiguous."""
        (x,) = inputs
        assert isinstance(x.type, Vector)
        dtype = x.type.dtype

        def every(source: str, target: str, count: str) -> None:
            with e.loop(count) as j:
                value = f"exp({e.load(source, j, dtype, constant=True)})"
                e.store(target, j, value, dtype)

        gapless = f"{x.stride} == {np.dtype(dtype).itemsize} * {x.size}"
        with e.block(f"if {gapless} and {out.stride} == {x.stride}:"):
            every(x.base, out.base, f"{e.rows} * {x.size}")
        with e.block("else:"), e.loop(e.rows) as i:
            every(x.row(i), out.row(i), x.size)


class Expm1(ZeroToZero):
    """e to the power of x, minus 1, exact near zero."""

    function = np.expm1
    monotone = True


class Log(FloatFunction):
    """The natural logarithm of x: NaN below zero."""

    function = np.log
    monotone = True


class Log1p(ZeroToZero):
    """The natural logarithm of 1 + x, exact near zero: NaN below -1."""

    function = np.log1p
    monotone = True


class Log2(FloatFunction):
    """The logarithm of x to base 2."""

    function = np.log2
    monotone = True


class Log10(FloatFunction):
    """The logarithm of x to base 10."""

    function = np.log10
    monotone = True


class Sqrt(ZeroToZero):
    """The square root of x: NaN below zero."""

    function = np.sqrt
    monotone = True


class Sin(ZeroToZero):
    """The sine of x, in radians."""

    function = np.sin
    largest_result = 1.0


class Cos(FloatFunction):
    """The cosine of x, in radians."""

    function = np.cos
    largest_result = 1.0


class Tan(ZeroToZero):
    """The tangent of x, in radians."""

    function = np.tan
    largest_result = 1e17


class Sinh(ZeroToZero):
    """The hyperbolic sine of x."""

    function = np.sinh
    monotone = True


class Cosh(FloatFunction):
    """The hyperbolic cosine of x."""

    function = np.cosh
    widest_at_ends = True


class Tanh(ZeroToZero):
    """The hyperbolic tangent of x."""

    function = np.tanh
    monotone = True


class Erf(ZeroToZero):
    """The error function of x."""

    monotone = True

    function = np.vectorize(math.erf, [float])

    def compute(self, x: NDArray[Any]) -> Any:
        return super().compute(x).astype(x.dtype)


class Reciprocal(FloatFunction):
    """1 / x."""

    function = np.reciprocal

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, self.native, x)

    @staticmethod
    def native(x: Number) -> Number:
        return one(x) / x


# --- functions that whole numbers have too --------------------------------------------------------

_BOOLS = "as_float() in a program; bools of a frame or an array: astype(float), as before training"


class AnyFunction(Elementwise, abstract=True):
    """A function of floats and whole numbers that leaves zero where it is."""

    takes_sparse = True
    keeps_zero = True
    function: ClassVar[np.ufunc]
    #: The function of one number in native code.
    native: ClassVar[Callable[..., Number]]

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype != "bool", f"{self.name} needs numbers, got bool", _BOOLS)
        return super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return type(self).function(x)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, type(self).native, x)


class Abs(AnyFunction):
    """The magnitude of x."""

    function = np.abs
    widest_at_ends = True

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(abs(x))


class Negate(AnyFunction):
    """-x."""

    function = np.negative
    widest_at_ends = True

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [-weights]

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(-x)


class Square(AnyFunction):
    """x * x."""

    function = np.square
    widest_at_ends = True

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(x * x)


class Sign(AnyFunction):
    """-1, 0 or 1 as x is below, at or above zero; NaN stays NaN."""

    function = np.sign
    monotone = True

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(one(x) if x > 0 else (-one(x) if x < 0 else x + zero(x)))


class Relu(AnyFunction):
    """x where it is above zero, else zero; NaN stays NaN."""

    monotone = True

    def compute(self, x: NDArray[Any]) -> Any:
        return np.maximum(x, x.dtype.type(0))

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(zero(x) if x < 0 else x)


class Rounding(AnyFunction, abstract=True):
    """To a whole number, in x's own dtype."""

    monotone = True

    def compute(self, x: NDArray[Any]) -> Any:
        return super().compute(x) if x.dtype.kind == "f" else x

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return write(e, type(self).function, x) if x.dtype in FLOATS else x.expr


class Floor(Rounding):
    """The largest whole number that is not above x."""

    function = np.floor


class Ceil(Rounding):
    """The smallest whole number that is not below x."""

    function = np.ceil


class Trunc(Rounding):
    """x without its fraction."""

    function = np.trunc


class Rint(Rounding):
    """The nearest whole number; halves go to the even one."""

    function = np.rint


class IsNan(Elementwise):
    """True if x is not a number; never for whole numbers."""

    result = "bool"
    takes_sparse = True
    keeps_zero = True

    def compute(self, x: NDArray[Any]) -> Any:
        return x != x  # noqa: PLR0124 (the definition of NaN)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, np.isnan, x)


def whole(expr: str, dtype: str) -> str:
    """The expression in its own dtype: native arithmetic widens small whole numbers."""
    return expr if dtype in FLOATS or dtype == "int64" else f"{dtype}({expr})"
