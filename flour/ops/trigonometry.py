"""More functions of one number: inverse trigonometry, infinities, negation of bools and bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect
from flour.core.emission import Emitter, ScalarValue
from flour.core.types import FLOATS, INTS, Scalar, Type, Vector
from flour.ops.bases import Elementwise
from flour.ops.unary import FloatFunction, ZeroToZero, whole


class Asin(ZeroToZero):
    """The angle whose sine is x: NaN beyond one."""

    function = np.arcsin
    code = "asin({x})"


class Acos(FloatFunction):
    """The angle whose cosine is x: NaN beyond one."""

    function = np.arccos
    code = "acos({x})"


class Atan(ZeroToZero):
    """The angle whose tangent is x."""

    function = np.arctan
    code = "atan({x})"
    monotone = True


class Asinh(ZeroToZero):
    """The number whose hyperbolic sine is x."""

    function = np.arcsinh
    code = "asinh({x})"
    monotone = True


class Acosh(FloatFunction):
    """The number whose hyperbolic cosine is x: NaN below one."""

    function = np.arccosh
    code = "acosh({x})"


class Atanh(ZeroToZero):
    """The number whose hyperbolic tangent is x: NaN beyond one."""

    function = np.arctanh
    code = "atanh({x})"


class IsInfinite(Elementwise):
    """Whether x is infinite: above, below, or either way."""

    result = "bool"
    above: bool = True
    below: bool = True

    def compute(self, x: NDArray[Any]) -> Any:
        return (self.above & np.isposinf(x)) | (self.below & np.isneginf(x))

    def structure(self) -> tuple[object, ...]:
        return (self.above, self.below)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        if x.dtype not in FLOATS:
            return f"({x.expr} != {x.expr})"
        value = e.let(x.expr, x.dtype).expr
        limits = [("inf", self.above), ("-inf", self.below)]
        sides = [
            f"{value} == {e.number(float(side), x.dtype)}" for side, counts in limits if counts
        ]
        return (
            f"({' or '.join(sides)})" if sides else f"({value} != {value} and {value} == {value})"
        )


class Not(Elementwise):
    """Whether x is false."""

    method = "logical_not"
    result = "bool"

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype == "bool", f"not applies to bools, got {kind}", "compare first")
        return super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return ~x

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return f"(not {x.expr})"


class BitNot(Elementwise):
    """The bits that x does not have."""

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype in INTS, f"only whole numbers have bits, got {kind}")
        return super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return ~x

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return whole(f"(~{x.expr})", x.dtype)
