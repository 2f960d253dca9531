"""Functions of one number: exp, log, square, tanh, asin, floor, not, ... on every element.

Each class is a row of a table: numpy's function is the meaning, and the word of its name, or
`native`, is the same in native code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect
from flour.core.emission import Column, Emitter, ScalarValue
from flour.core.native import expression, write
from flour.core.types import FLOATS, INTS, Scalar, Type, Vector
from flour.core.words import Number, narrowed, number, one, zero
from flour.ops.bases import Elementwise, FloatElementwise

#: Loops over fewer numbers are hardly vector code: the lanes of a register of float32.
LANES = 16


class FloatFunction(FloatElementwise, abstract=True, alike=True):
    """A function of floats; whole numbers have to be made floats first."""


class ZeroToZero(FloatFunction, abstract=True, takes_sparse=True, keeps_zero=True):
    """A function of floats that leaves zero where it is, and so a sparse vector sparse."""


class Exp(FloatFunction, function=np.exp, monotone=True, restates=True):
    """e to the power of x."""

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


class Expm1(ZeroToZero, function=np.expm1, monotone=True):
    """e to the power of x, minus 1, exact near zero."""


class Log(FloatFunction, function=np.log, monotone=True):
    """The natural logarithm of x: NaN below zero."""


class Log1p(ZeroToZero, function=np.log1p, monotone=True):
    """The natural logarithm of 1 + x, exact near zero: NaN below -1."""


class Log2(FloatFunction, function=np.log2, monotone=True):
    """The logarithm of x to base 2."""


class Log10(FloatFunction, function=np.log10, monotone=True):
    """The logarithm of x to base 10."""


class Sqrt(ZeroToZero, function=np.sqrt, monotone=True):
    """The square root of x: NaN below zero."""


class Sin(ZeroToZero, function=np.sin, largest_result=1.0):
    """The sine of x, in radians."""


class Cos(FloatFunction, function=np.cos, largest_result=1.0):
    """The cosine of x, in radians."""


class Tan(ZeroToZero, function=np.tan, largest_result=1e17):
    """The tangent of x, in radians."""


class Sinh(ZeroToZero, function=np.sinh, monotone=True):
    """The hyperbolic sine of x."""


class Cosh(FloatFunction, function=np.cosh, widest_at_ends=True):
    """The hyperbolic cosine of x."""


class Tanh(ZeroToZero, function=np.tanh, monotone=True):
    """The hyperbolic tangent of x."""


class Erf(ZeroToZero, monotone=True, function=np.vectorize(math.erf, [float])):
    """The error function of x."""

    def compute(self, x: NDArray[Any]) -> Any:
        return super().compute(x).astype(x.dtype)


class Reciprocal(FloatFunction, function=np.reciprocal):
    """1 / x."""

    @staticmethod
    def native(x: Number) -> Number:
        return one(x) / x


# --- functions that whole numbers have too --------------------------------------------------------

_BOOLS = "as_float() in a program; bools of a frame or an array: astype(float), as before training"


class AnyFunction(Elementwise, abstract=True, takes_sparse=True, keeps_zero=True):
    """A function of floats and whole numbers that leaves zero where it is."""

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype != "bool", f"{self.name} needs numbers, got bool", _BOOLS)
        return super().output(kind)


class Abs(AnyFunction, function=np.abs, widest_at_ends=True):
    """The magnitude of x."""

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(abs(x))


class Negate(AnyFunction, function=np.negative, widest_at_ends=True):
    """-x."""

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [-weights]

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(-x)


class Square(AnyFunction, function=np.square, widest_at_ends=True):
    """x * x."""

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(x * x)


class Sign(AnyFunction, function=np.sign, monotone=True):
    """-1, 0 or 1 as x is below, at or above zero; NaN stays NaN."""

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(one(x) if x > 0 else (-one(x) if x < 0 else x + zero(x)))


class Relu(AnyFunction, monotone=True):
    """x where it is above zero, else zero; NaN stays NaN."""

    def compute(self, x: NDArray[Any]) -> Any:
        return np.maximum(x, x.dtype.type(0))

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(zero(x) if x < 0 else x)


class Rounding(AnyFunction, abstract=True, monotone=True):
    """To a whole number, in x's own dtype."""

    def compute(self, x: NDArray[Any]) -> Any:
        return super().compute(x) if x.dtype.kind == "f" else x

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return write(e, type(self).function, x) if x.dtype in FLOATS else x.expr


class Floor(Rounding, function=np.floor):
    """The largest whole number that is not above x."""


class Ceil(Rounding, function=np.ceil):
    """The smallest whole number that is not below x."""


class Trunc(Rounding, function=np.trunc):
    """x without its fraction."""


class Rint(Rounding, function=np.rint):
    """The nearest whole number; halves go to the even one."""


class IsNan(Elementwise, result="bool", takes_sparse=True, keeps_zero=True):
    """True if x is not a number; never for whole numbers."""

    native = np.isnan

    def compute(self, x: NDArray[Any]) -> Any:
        return x != x  # noqa: PLR0124 (the definition of NaN)


def whole(expr: str, dtype: str) -> str:
    """The expression in its own dtype: native arithmetic widens small whole numbers."""
    return expr if dtype in FLOATS or dtype == "int64" else f"{dtype}({expr})"


class Asin(ZeroToZero, function=np.arcsin):
    """The angle whose sine is x: NaN beyond one."""


class Acos(FloatFunction, function=np.arccos):
    """The angle whose cosine is x: NaN beyond one."""


class Atan(ZeroToZero, function=np.arctan, monotone=True):
    """The angle whose tangent is x."""


class Asinh(ZeroToZero, function=np.arcsinh, monotone=True):
    """The number whose hyperbolic sine is x."""


class Acosh(FloatFunction, function=np.arccosh):
    """The number whose hyperbolic cosine is x: NaN below one."""


class Atanh(ZeroToZero, function=np.arctanh):
    """The number whose hyperbolic tangent is x: NaN beyond one."""


class IsInfinite(Elementwise, method="", result="bool"):
    """True if x is infinite: above, below, or either way."""

    above: bool = True
    below: bool = True

    def compute(self, x: NDArray[Any]) -> Any:
        return (self.above & np.isposinf(x)) | (self.below & np.isneginf(x))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, is_infinite, x, self.above, self.below)


def is_infinite(x: Number, above: bool, below: bool) -> Any:  # noqa: FBT001 (as the operator's)
    """True if x is infinite on a side that counts."""
    if x.dtype in FLOATS:
        highest = number(np.inf, x.dtype) if above else 0
        lowest = number(-np.inf, x.dtype) if below else 0
        found = (above and x == highest) or (below and x == lowest)
    else:
        found = False
    return found


class Not(Elementwise, method="logical_not", result="bool", function=np.invert):
    """True if x is false."""

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype == "bool", f"not applies to bools, got {kind}", "compare first")
        return super().output(kind)

    @staticmethod
    def native(x: Number) -> Any:
        return not x


class BitNot(Elementwise, method="", function=np.invert):
    """The bits that x does not have."""

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype in INTS, f"only whole numbers have bits, got {kind}")
        return super().output(kind)

    @staticmethod
    def native(x: Number) -> Number:
        return narrowed(~x)
