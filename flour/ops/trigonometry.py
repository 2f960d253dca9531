"""More functions of one number: inverse trigonometry, infinities, negation of bools and bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect
from flour.core.emission import Emitter, ScalarValue
from flour.core.native import expression
from flour.core.types import FLOATS, INTS, Scalar, Type, Vector
from flour.core.words import Number, narrowed, number
from flour.ops.bases import Elementwise
from flour.ops.unary import FloatFunction, ZeroToZero


class Asin(ZeroToZero):
    """The angle whose sine is x: NaN beyond one."""

    function = np.arcsin


class Acos(FloatFunction):
    """The angle whose cosine is x: NaN beyond one."""

    function = np.arccos


class Atan(ZeroToZero):
    """The angle whose tangent is x."""

    function = np.arctan
    monotone = True


class Asinh(ZeroToZero):
    """The number whose hyperbolic sine is x."""

    function = np.arcsinh
    monotone = True


class Acosh(FloatFunction):
    """The number whose hyperbolic cosine is x: NaN below one."""

    function = np.arccosh


class Atanh(ZeroToZero):
    """The number whose hyperbolic tangent is x: NaN beyond one."""

    function = np.arctanh


class IsInfinite(Elementwise):
    """True if x is infinite: above, below, or either way."""

    method = ""
    result = "bool"
    above: bool = True
    below: bool = True

    def compute(self, x: NDArray[Any]) -> Any:
        return (self.above & np.isposinf(x)) | (self.below & np.isneginf(x))

    def structure(self) -> tuple[object, ...]:
        return (self.above, self.below)

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


class Not(Elementwise):
    """True if x is false."""

    method = "logical_not"
    result = "bool"

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype == "bool", f"not applies to bools, got {kind}", "compare first")
        return super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return ~x

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, negated, x)


def negated(x: Number) -> Any:
    """True if x is false."""
    return not x


class BitNot(Elementwise):
    """The bits that x does not have."""

    method = ""

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype in INTS, f"only whole numbers have bits, got {kind}")
        return super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return ~x

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, inverted, x)


def inverted(x: Number) -> Number:
    """The bits that x does not have."""
    return narrowed(~x)
