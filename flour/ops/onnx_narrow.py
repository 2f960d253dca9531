"""Numbers rounded to those that a narrower type has: float16, bfloat16, float8, float4, int4, ...

Programs keep such values in the next wider of their own dtypes (float32, int8, uint8), which holds
every one of them exactly; these operators round to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_float
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.errors import ParameterError
from flour.core.types import INTS, Scalar, Type, Vector
from flour.ops.bases import Elementwise


class Format(NamedTuple):
    """A narrow kind of float: bits of the fraction, the smallest exponent, the largest number."""

    digits: int
    least: int
    largest: float
    #: The value of larger numbers and of infinity, unless they saturate to the largest.
    over: float
    #: Its only zero has no sign.
    unsigned_zero: bool = False
    #: It has neither a NaN nor infinities, so larger numbers always become the largest.
    finite: bool = False
    #: Too large numbers always become infinite: the type cannot saturate.
    overflows: bool = False


INFINITY, NAN = float("inf"), float("nan")
FORMATS = {
    "float16": Format(10, -14, 65504.0, INFINITY, overflows=True),
    "bfloat16": Format(7, -126, 255 * 2.0**120, INFINITY, overflows=True),
    "float8_e4m3fn": Format(3, -6, 448.0, NAN),
    "float8_e4m3fnuz": Format(3, -7, 240.0, NAN, unsigned_zero=True),
    "float8_e5m2": Format(2, -14, 57344.0, INFINITY),
    "float8_e5m2fnuz": Format(2, -15, 57344.0, NAN, unsigned_zero=True),
    "float4_e2m1fn": Format(1, 0, 6.0, 6.0, finite=True),
}
_SIGN = 0x7FFFFFFFFFFFFFFF


class Rounded(Elementwise):
    """The nearest number that a narrower float type has, as float32; ties go to the even one.

    Too large numbers and infinities become the type's largest with `saturate`; float16 and
    bfloat16 have infinities and always overflow to them.
    """

    method = ""
    result = "float32"
    format: str
    saturate: bool = True

    def check(self) -> None:
        if self.format not in FORMATS:
            formats = ", ".join(FORMATS)
            raise ParameterError(f"there is no format {self.format!r}", hint=f"one of {formats}")

    def output(self, kind: Vector | Scalar) -> Type:
        expect(is_float(kind), f"{self.name} rounds floats, got {kind}", "call as_float() first")
        return super().output(kind)

    def _facts(self) -> tuple[Format, float, float]:
        """The format, the value of numbers too large for it, and the value of NaN."""
        kind = FORMATS[self.format]
        saturates = kind.finite or (self.saturate and not kind.overflows)
        return kind, kind.largest if saturates else kind.over, -0.0 if kind.finite else NAN

    def compute(self, x: NDArray[Any]) -> Any:
        kind, over, none = self._facts()
        wide = np.asarray(x, np.float64)
        exponent = ((wide.view(np.int64) & _SIGN) >> 52) - 1023
        step = np.ldexp(1.0, np.maximum(exponent, kind.least) - kind.digits)
        with np.errstate(all="ignore"):
            nearest = np.rint(wide / step) * step + (0.0 if kind.unsigned_zero else -0.0)
        nearest = np.where(np.abs(nearest) > kind.largest, np.copysign(over, nearest), nearest)
        return np.where(np.isnan(wide), none, nearest).astype(np.float32)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        kind, over, none = self._facts()
        # Facts are numbers of the program, so that all formats share one piece of machine code.
        facts = _Facts(
            e.size(kind.digits),
            e.size(kind.least),
            e.number(kind.largest, "float64"),
            e.number(over, "float64"),
            e.number(none, "float64"),
            e.number(0.0 if kind.unsigned_zero else -0.0, "float64"),
            e.scratch("float64", 1),
        )
        source = x.dtype
        return _mapped(e, x, "float32", lambda v: facts.nearest(e, e.cast(v, source, "float64")))


class _Facts(NamedTuple):
    """A format in native code: the locals with its numbers, and memory for the bits of a float."""

    digits: str
    least: str
    largest: str
    over: str
    none: str
    zero: str
    buffer: str

    def nearest(self, e: Emitter, value: str) -> str:
        """The expression of the nearest number."""
        x = e.let(value, "float64").expr
        bits = _through(e, self.buffer, x, "float64", "int64")
        exponent = e.let(f"max((({bits} & {_SIGN}) >> 52) - 1023, {self.least})", "int64").expr
        power = f"({exponent} - {self.digits} + 1023) << 52"
        step = _through(e, self.buffer, power, "int64", "float64")
        nearest = e.let(f"rint({x} / {step}) * {step} + {self.zero}", "float64").expr
        beyond = f"({self.over} if {nearest} > 0 else -{self.over})"
        fine = f"({beyond} if abs({nearest}) > {self.largest} else {nearest})"
        return f"float32({fine} if {x} == {x} else {self.none})"


def _through(e: Emitter, buffer: str, value: str, source: str, target: str) -> str:
    """The bits of a value as one of another dtype of the same size."""
    e.store(buffer, "0", value, source)
    return e.let(e.load(buffer, "0", target), target).expr


def _mapped(e: Emitter, x: RowValue, dtype: str, function: Callable[[str], str]) -> RowValue:
    """A function of every element, or of the one number."""
    if isinstance(x, ScalarValue):
        return e.let(function(x.expr), dtype)
    return e.map(lambda _, value: function(value), x, dtype=dtype, width=x.width)


ROUNDINGS = {"up": 0x7FFFFF, "nearest": 0x400000, "down": 0}


class Exponent(Elementwise):
    """x rounded to a power of two, as ONNX's float8 without a fraction holds it, in float32.

    Signs are dropped, the least power (2**-127) stands for zero, NaN for infinities. A number that
    rounds up beyond the largest power becomes that power with `saturate`, else NaN.
    """

    method = ""
    result = "float32"
    rounding: str = "up"
    saturate: bool = True

    def check(self) -> None:
        if self.rounding not in ROUNDINGS:
            roundings = ", ".join(ROUNDINGS)
            raise ParameterError(f"nothing rounds {self.rounding!r}", hint=f"one of {roundings}")

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype == "float32", f"{self.name} takes float32, got {kind}", "cast it first")
        return super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        bits = np.ascontiguousarray(x, np.float32).view(np.int32).astype(np.int64) & 0x7FFFFFFF
        power, rest = bits >> 23, bits & 0x7FFFFF
        half = (self.rounding == "nearest") & (power == 0)  # a tie stays where nothing is below
        power = power + (rest + ROUNDINGS[self.rounding] - half > 0x7FFFFF)
        power = np.minimum(power, np.where(bits >> 23 < 255, 254, 255)) if self.saturate else power
        powers = np.ldexp(1.0, np.minimum(power, 254) - 127)
        return np.where(power > 254, np.nan, powers).astype(np.float32)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        up, half = e.size(ROUNDINGS[self.rounding]), e.size(self.rounding == "nearest")
        most, none = e.size(254 if self.saturate else 255), e.number(NAN, "float32")
        buffer = e.scratch("float64", 1)

        def power(value: str) -> str:
            code = f"int64({_through(e, buffer, value, 'float32', 'int32')}) & 2147483647"
            bits = e.let(code, "int64").expr
            below = e.let(f"{bits} >> 23", "int64").expr
            rest = f"({bits} & 8388607) + {up} - ({half} if {below} == 0 else 0)"
            more = f"min({below} + (1 if {rest} > 8388607 else 0), {most})"
            exponent = e.let(f"(255 if {below} == 255 else {more})", "int64").expr
            number = _through(e, buffer, f"({exponent} - 127 + 1023) << 52", "int64", "float64")
            return f"({none} if {exponent} == 255 else float32({number}))"

        return _mapped(e, x, "float32", power)


class LowBits(Elementwise):
    """The lowest bits of a whole number, as an int8 or (where nothing is signed) an uint8."""

    method = ""
    bits: int
    signed: bool = True

    def check(self) -> None:
        if not 1 <= self.bits <= 8:
            raise ParameterError("a byte has one to eight bits", found=str(self.bits))

    def structure(self) -> tuple[object, ...]:
        return (self.signed,)

    @property
    def dtype(self) -> str:
        """The dtype that holds the bits."""
        return "int8" if self.signed else "uint8"

    def output(self, kind: Vector | Scalar) -> Type:
        expect(kind.dtype in INTS, f"only whole numbers have bits, got {kind}", "cast them first")
        return (
            Scalar(self.dtype)
            if isinstance(kind, Scalar)
            else kind.having(dtype=self.dtype, sparse=False)
        )

    def compute(self, x: NDArray[Any]) -> Any:
        half = (1 << (self.bits - 1)) * self.signed
        low = ((x.astype(np.int64) + half) & ((1 << self.bits) - 1)) - half
        return low.astype(self.dtype)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        half, mask = e.size((1 << (self.bits - 1)) * self.signed), e.size((1 << self.bits) - 1)
        dtype = self.dtype
        return _mapped(e, x, dtype, lambda v: f"{dtype}(((int64({v}) + {half}) & {mask}) - {half})")
