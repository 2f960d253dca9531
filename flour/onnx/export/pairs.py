"""The ONNX forms of functions of two inputs: extremes, comparisons, logic, bits, remainders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flour.core.errors import UnsupportedSetting
from flour.core.node import Node
from flour.onnx.export.numbers import aligned, roomy
from flour.onnx.export.writer import Writer, dtype_of, form

_DIRECT = {
    "Above": "Greater",
    "AtLeast": "GreaterOrEqual",
    "Same": "Equal",
    "SameText": "Equal",
    "Both": "And",
    "Either": "Or",
    "OnlyOne": "Xor",
    "BitAnd": "BitwiseAnd",
    "BitOr": "BitwiseOr",
    "BitXor": "BitwiseXor",
}


@form(*_DIRECT)
def _direct(out: Writer, item: Node, *both: str) -> str:
    return out(_DIRECT[item.op.name], *aligned(out, item, both))


@form("Maximum", "LargerOf", "SmallerOf")
def _extreme(out: Writer, item: Node, *both: str) -> str:
    """ONNX leaves open what the larger of two numbers is if one of them is NaN; here it is NaN."""
    dtype = dtype_of(item.type)
    x, y = aligned(out, item, both, roomy(dtype))
    wins = out("Less" if item.op.name == "SmallerOf" else "Greater", x, y)
    if np.dtype(dtype).kind == "f":
        wins = out("Or", wins, out("IsNaN", x))
    return out.cast(out("Where", wins, x, y), roomy(dtype), dtype)


@form("Not")
def _not(out: Writer, _: Node, x: str) -> str:
    return out("Not", x)


@form("BitNot")
def _bit_not(out: Writer, _: Node, x: str) -> str:
    return out("BitwiseNot", x)


@form("IsInfinite")
def _is_infinite(out: Writer, item: Node, x: str) -> str:
    op = item.op.fields()
    if np.dtype(dtype_of(item.inputs[0].type)).kind != "f":
        return out("Not", out("Equal", x, x))
    above, below = int(op["above"]), int(op["below"])
    return out("IsInf", x, detect_positive=above, detect_negative=below)


# --- whole numbers ------------------------------------------------------------------------------


@form("ShiftLeft", "ShiftRight")
def _shift(out: Writer, item: Node, *both: str) -> str:
    dtype = dtype_of(item.type)
    if not dtype.startswith("u"):
        raise UnsupportedSetting(
            f"{item.op.name} of {dtype} has no ONNX form", hint="ONNX shifts unsigned numbers only"
        )
    x, y = aligned(out, item, both)
    none, bits = out.constant(0, dtype), out.constant(8 * np.dtype(dtype).itemsize, dtype)
    fine = out("Less", y, bits)
    way = "LEFT" if item.op.name == "ShiftLeft" else "RIGHT"
    return out("Where", fine, out("BitShift", x, out("Where", fine, y, none), direction=way), none)


def _guarded(
    out: Writer, dtype: str, y: str, make: Callable[[str], str], by_minus_one: Callable[[], str]
) -> str:
    """What is made of a divisor that is neither 0 nor -1, which may end a process."""
    zero, one = out.constant(0, dtype), out.constant(1, dtype)
    none = out("Equal", y, zero)
    if dtype.startswith("u"):
        return out("Where", none, zero, make(out("Where", none, one, y)))
    minus = out("Equal", y, out.constant(-1, dtype))
    made = make(out("Where", out("Or", none, minus), one, y))
    return out("Where", none, zero, out("Where", minus, by_minus_one(), made))


@form("WholeQuotient")
def _whole_quotient(out: Writer, item: Node, *both: str) -> str:
    dtype, inner = dtype_of(item.type), roomy(dtype_of(item.type))
    x, y = aligned(out, item, both, inner)
    zero = out.constant(0, inner)
    made = _guarded(out, inner, y, lambda d: out("Div", x, d), lambda: out("Sub", zero, x))
    return out.cast(made, inner, dtype)


@form("Modulo", "Remainder")
def _remainder(out: Writer, item: Node, *both: str) -> str:
    dtype, signed = dtype_of(item.type), item.op.name == "Remainder"
    inner = roomy(dtype)
    x, y = aligned(out, item, both, inner)
    zero = out.constant(0, inner)
    if np.dtype(dtype).kind != "f":

        def rest_by(divisor: str) -> str:
            if not signed:
                return out("Mod", x, divisor)
            # Some runtimes make such a remainder in float64, which has too few digits.
            return out("Sub", x, out("Mul", out("Div", x, divisor), divisor))

        made = _guarded(out, inner, y, rest_by, lambda: zero)
        return out.cast(made, inner, dtype)
    rest = out("Mod", x, y, fmod=1)
    if signed:
        return rest
    # The remainder has the sign of x: one more divisor gives it that of y.
    other = out("Xor", out("Less", rest, zero), out("Less", y, zero))
    other = out("And", other, out("Not", out("Equal", rest, zero)))
    return out("Where", other, out("Add", rest, y), rest)


@form("PowerOf")
def _power_of(out: Writer, item: Node, *both: str) -> str:
    dtype = dtype_of(item.type)
    if np.dtype(dtype).kind != "f":
        raise UnsupportedSetting(
            f"{item.op.name} of {dtype} has no ONNX form",
            hint="runtimes disagree on powers of whole numbers; cast to floats",
        )
    return out("Pow", *aligned(out, item, both))
