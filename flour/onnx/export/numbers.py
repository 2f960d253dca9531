"""The ONNX forms of arithmetic, functions, comparisons, reductions, and of moving columns about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flour.core.errors import UnsupportedSetting
from flour.core.node import Node
from flour.core.types import Record, Vector, promote
from flour.onnx.export.writer import Export, dtype_of, form
from flour.ops.elementwise import Threshold

_FUNCTIONS = {
    **{name: name for name in ("Exp", "Log", "Sqrt", "Sin", "Cos", "Tanh", "Atan", "Atanh")},
    **{name: name for name in ("Asin", "Acos", "Asinh", "Acosh")},
    **{name: name for name in ("Reciprocal", "Abs", "Sign", "Relu", "Floor", "Ceil")},
    "Negate": "Neg",
    "Rint": "Round",
    "IsNan": "IsNaN",
    "Sigmoid": "Sigmoid",
}
_OPERATIONS = {"Subtract": "Sub", "Add": "Add", "Multiply": "Mul", "Divide": "Div"}
_PAIRS = {"Plus": "Add", "Minus": "Sub", "Times": "Mul", "Over": "Div"}
_COMPARISONS = {
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
    "Equal": "Equal",
    "NotEqual": "Equal",
}
_REDUCTIONS = {"Sum": "ReduceSum", "Max": "ReduceMax", "Min": "ReduceMin"}


def parameter(out: Export, item: Node, values: object, dtype: str) -> str:
    """A fitted number for each column, or the one for all, as a constant that broadcasts."""
    flat = np.asarray(values).reshape(-1).astype(dtype)
    return out.constant(flat if isinstance(item.inputs[0].type, Vector) else flat.reshape(-1)[0])


def roomy(dtype: str) -> str:
    """The dtype to compute integers of up to 32 bits in: few runtimes have all of those.

    What wraps around does so when it is cast back.
    """
    kind = np.dtype(dtype)
    return "int64" if kind.kind in "iu" and kind.itemsize < 8 else dtype


@form(*_FUNCTIONS)
def _function(out: Export, item: Node, x: str) -> str:
    made = dtype_of(item.type)
    inner = dtype_of(item.inputs[0].type) if made == "bool" else made
    x = out.cast(x, dtype_of(item.inputs[0].type), inner)
    if np.dtype(inner).kind not in "fc":  # ONNX has none of these for whole numbers
        if _FUNCTIONS[item.op.name] in ("Ceil", "Floor", "Round"):
            return out("Identity", x)
        if _FUNCTIONS[item.op.name] == "IsNaN":
            return out("Not", out("Equal", x, x))
        if item.op.name == "Relu":
            wide = out("Max", out.cast(x, inner, roomy(inner)), out.constant(0, roomy(inner)))
            return out.cast(wide, roomy(inner), inner)
    return out(_FUNCTIONS[item.op.name], x)


@form(*_OPERATIONS)
def _operation(out: Export, item: Node, x: str) -> str:
    have, op = dtype_of(item.inputs[0].type), item.op.fields()
    inner = np.result_type(have, op["operand"].dtype).name if op["wide"] else have
    fitted = parameter(out, item, op["operand"].array, inner)
    made = out(_OPERATIONS[item.op.name], out.cast(x, have, inner), fitted)
    return out.cast(made, inner, dtype_of(item.type))


def aligned(out: Export, item: Node, names: tuple[str, ...], dtype: str | None = None) -> list[str]:
    """The inputs in one dtype; one value per row beside a vector is a matrix of one column."""
    wide, made = any(isinstance(source.type, Vector) for source in item.inputs), []
    dtype = dtype or promote(*(dtype_of(source.type) for source in item.inputs))
    for name, source in zip(names, item.inputs, strict=True):
        side = out.cast(name, dtype_of(source.type), dtype)
        made.append(out.column(side) if wide and not isinstance(source.type, Vector) else side)
    return made


@form(*_PAIRS)
def _pair(out: Export, item: Node, *both: str) -> str:
    return out(_PAIRS[item.op.name], *aligned(out, item, both, dtype_of(item.type)))


@form(*_COMPARISONS)
def _comparison(out: Export, item: Node, x: str) -> str:
    have, operand = dtype_of(item.inputs[0].type), item.op.fields()["operand"]
    common = np.result_type(have, operand.dtype).name if isinstance(item.op, Threshold) else have
    fitted = parameter(out, item, operand.array, common)
    made = out(_COMPARISONS[item.op.name], out.cast(x, have, common), fitted)
    return out("Not", made) if item.op.name == "NotEqual" else made


@form("Binarize")
def _binarize(out: Export, item: Node, x: str) -> str:
    have = dtype_of(item.inputs[0].type)
    inner = have if np.dtype(have).kind == "f" else "float64"  # 0.5 is no whole number, and no bool
    limit = out.constant(item.op.fields()["threshold"], inner)
    return out.cast(out("Greater", out.cast(x, have, inner), limit), "bool", have)


@form("OneIfTiny")
def _one_if_tiny(out: Export, item: Node, x: str) -> str:
    dtype = dtype_of(item.type)
    limit = item.op.fields()["epsilons"] * float(np.finfo(dtype).eps)
    small = out("Less", x, out.constant(limit, dtype))
    zero = out("Equal", x, out.constant(0, dtype))
    return out("Where", out("Or", small, zero), out.constant(1, dtype), x)


@form("Where")
def _where(out: Export, item: Node, *sides: str) -> str:
    wide = isinstance(item.type, Vector)
    made = []
    for place, (name, source) in enumerate(zip(sides, item.inputs, strict=True)):
        side = out.cast(name, dtype_of(source.type), dtype_of(item.type)) if place else name
        made.append(out.column(side) if wide and not isinstance(source.type, Vector) else side)
    return out("Where", *made)


@form(
    "Cast",
    "AsFloat",
    "CastLike",
    "InRange",
    "NumpyFloat",
    "RequireFinite",
    "RequireAny",
    "RequirePresent",
    "ToDense",
    "ToSparse",
    "WriteFloats",
    "WriteWhole",
)
def _cast(out: Export, item: Node, x: str, *_: str) -> str:
    return out.cast(x, dtype_of(item.inputs[0].type), dtype_of(item.type))


@form(*_REDUCTIONS)
def _reduction(out: Export, item: Node, x: str) -> str:
    dtype, axis = dtype_of(item.type), out.constant([1], np.int64)
    inner = roomy(dtype)
    x = out.cast(x, dtype_of(item.inputs[0].type), inner)
    made = out.cast(out(_REDUCTIONS[item.op.name], x, axis, keepdims=0), inner, dtype)
    if item.op.name == "Sum" or np.dtype(dtype).kind != "f":
        return made
    return spoilt(out, made, x, dtype)


def spoilt(out: Export, made: str, x: str, dtype: str, axis: int = 1) -> str:
    """The largest along an axis, NaN if a number is, which ONNX leaves open."""
    lost = out("Where", out("IsNaN", x), x, out.constant(0, dtype))
    return out("Add", made, out("ReduceSum", lost, out.constant([axis], np.int64), keepdims=0))


@form("Norm")
def _norm(out: Export, item: Node, x: str) -> str:
    kind, axis = item.op.fields()["kind"], out.constant([1], np.int64)
    if kind == "l2":
        return out("Sqrt", out("ReduceSum", out("Mul", x, x), axis, keepdims=0))
    size = out("Abs", x)
    if kind == "l1":
        return out("ReduceSum", size, axis, keepdims=0)
    return spoilt(out, out("ReduceMax", size, axis, keepdims=0), size, dtype_of(item.type))


@form("ArgMax", "ArgMin")
def _arg(out: Export, item: Node, x: str) -> str:
    return place_of(out, item.op.name, (x, dtype_of(item.inputs[0].type)), 1, last=False)


def place_of(out: Export, find: str, what: tuple[str, str], axis: int, *, last: bool) -> str:
    """The position of the extreme along an axis; NaN comes first, which ONNX leaves open."""
    x, dtype = what
    how: dict[str, Any] = {"axis": axis, "keepdims": 0, "select_last_index": int(last)}
    if np.dtype(dtype).kind != "f":
        return out(find, x, **how)
    lost = out.cast(out("IsNaN", x), "bool", dtype)
    some = out("ReduceMax", lost, out.constant([axis], np.int64), keepdims=0)
    places = (out("ArgMax", lost, **how), out(find, x, **how))
    return out("Where", out.cast(some, dtype, "bool"), *places)


@form("Linear")
def _linear(out: Export, item: Node, x: str) -> str:
    dtype, op = dtype_of(item.type), item.op.fields()
    x = out.cast(x, dtype_of(item.inputs[0].type), dtype)
    made = out("MatMul", x, out.constant(np.ascontiguousarray(op["weights"].array.T), dtype))
    bias = op["bias"].array.reshape(-1)
    return out("Add", made, out.constant(bias, dtype)) if bias.size else made


# --- columns ------------------------------------------------------------------------------------


@form("Concat")
def _concat(out: Export, item: Node, *parts: str) -> str:
    made = []
    for name, source in zip(parts, item.inputs, strict=True):
        part = out.cast(name, dtype_of(source.type), dtype_of(item.type))
        made.append(part if isinstance(source.type, Vector) else out.column(part))
    return out("Concat", *made, axis=1)


@form("Select")
def _select(out: Export, item: Node, x: str) -> str:
    return out("Gather", x, out.constant(item.op.fields()["columns"].array, np.int64), axis=1)


@form("Element")
def _element(out: Export, item: Node, x: str) -> str:
    return out("Gather", x, out.constant(item.op.fields()["column"], np.int64), axis=1)


@form("AsVector")
def _as_vector(out: Export, item: Node, x: str) -> str:
    return x if isinstance(item.inputs[0].type, Vector) else out.column(x)


@form("Field")
def _field(out: Export, item: Node, _: str) -> str:
    return out("Squeeze", item.op.fields()["label"], out.constant([1], np.int64))


@form("Pick")
def _pick(out: Export, item: Node, _: str) -> str:
    record, labels = item.inputs[0].type, item.op.fields()["labels"]
    assert isinstance(record, Record), "columns are picked from records"
    parts = [out.cast(name, dtype_of(record[name]), dtype_of(item.type)) for name in labels]
    return out("Concat", *parts, axis=1)


@form("Take", "TakeText")
def _take(out: Export, item: Node, x: str) -> str:
    table = item.op.fields()["table"]
    values = table.array if item.op.name == "Take" else np.array(table.to_list(), object)
    places = out.cast(x, dtype_of(item.inputs[0].type), "int64")
    low, high = out.constant(0, np.int64), out.constant(len(values) - 1, np.int64)
    return out("Gather", out.constant(values), out("Clip", places, low, high))


# --- functions of two inputs ----------------------------------------------------------------------


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


@form("Maximum", "LargerOf", "SmallerOf")
def _extreme(out: Export, item: Node, *both: str) -> str:
    """ONNX leaves open what the larger of two numbers is if one of them is NaN; here it is NaN."""
    dtype = dtype_of(item.type)
    x, y = aligned(out, item, both, roomy(dtype))
    wins = out("Less" if item.op.name == "SmallerOf" else "Greater", x, y)
    if np.dtype(dtype).kind == "f":
        wins = out("Or", wins, out("IsNaN", x))
    return out.cast(out("Where", wins, x, y), roomy(dtype), dtype)


@form("IsInfinite")
def _is_infinite(out: Export, item: Node, x: str) -> str:
    op = item.op.fields()
    if np.dtype(dtype_of(item.inputs[0].type)).kind != "f":
        return out("Not", out("Equal", x, x))
    above, below = int(op["above"]), int(op["below"])
    return out("IsInf", x, detect_positive=above, detect_negative=below)


# --- whole numbers ------------------------------------------------------------------------------


@form("ShiftLeft", "ShiftRight")
def _shift(out: Export, item: Node, *both: str) -> str:
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
    out: Export, dtype: str, y: str, make: Callable[[str], str], by_minus_one: Callable[[], str]
) -> str:
    """A division guarded against divisors of 0 and -1, which may end a process."""
    zero, one = out.constant(0, dtype), out.constant(1, dtype)
    none = out("Equal", y, zero)
    if dtype.startswith("u"):
        return out("Where", none, zero, make(out("Where", none, one, y)))
    minus = out("Equal", y, out.constant(-1, dtype))
    made = make(out("Where", out("Or", none, minus), one, y))
    return out("Where", none, zero, out("Where", minus, by_minus_one(), made))


@form("WholeQuotient")
def _whole_quotient(out: Export, item: Node, *both: str) -> str:
    dtype, inner = dtype_of(item.type), roomy(dtype_of(item.type))
    x, y = aligned(out, item, both, inner)
    zero = out.constant(0, inner)
    made = _guarded(out, inner, y, lambda d: out("Div", x, d), lambda: out("Sub", zero, x))
    return out.cast(made, inner, dtype)


@form("Modulo", "Remainder")
def _remainder(out: Export, item: Node, *both: str) -> str:
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

        return out.cast(_guarded(out, inner, y, rest_by, lambda: zero), inner, dtype)
    rest = out("Mod", x, y, fmod=1)
    if signed:
        return rest
    # The remainder has the sign of x: one more divisor gives it that of y.
    other = out("Xor", out("Less", rest, zero), out("Less", y, zero))
    other = out("And", other, out("Not", out("Equal", rest, zero)))
    return out("Where", other, out("Add", rest, y), rest)


@form("PowerOf")
def _power_of(out: Export, item: Node, *both: str) -> str:
    dtype = dtype_of(item.type)
    if np.dtype(dtype).kind != "f":
        raise UnsupportedSetting(
            f"{item.op.name} of {dtype} has no ONNX form",
            hint="runtimes disagree on powers of whole numbers; cast to floats",
        )
    return out("Pow", *aligned(out, item, both))


# --- operators of one expression ------------------------------------------------------------------

form("Square")(lambda out, _, x: out("Mul", x, x))
form("OneMinus")(lambda out, item, x: out("Sub", out.constant(1, dtype_of(item.type)), x))
form("Softmax")(lambda out, _, x: out("Softmax", x, axis=1))
form(*_DIRECT)(lambda out, item, *both: out(_DIRECT[item.op.name], *aligned(out, item, both)))
form("Not")(lambda out, _, x: out("Not", x))
form("BitNot")(lambda out, _, x: out("BitwiseNot", x))

__all__ = ["aligned", "parameter", "place_of", "roomy", "spoilt"]
