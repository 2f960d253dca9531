"""Arithmetic on tensors, broadcast as numpy does: pairs, functions of each number, casts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import FLOATS
from flour.language.flow import Flow
from flour.language.sources import concat
from flour.onnx.errors import NotNative
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor, broadcast, native_dtype, positive, spread
from flour.onnx.tensors import dtype_of
from flour.ops import pairwise
from flour.ops.elementwise import Equal
from flour.ops.onnx_cast import WriteFloats, WriteWhole, text_of
from flour.ops.pairwise import SameText
from flour.ops.structure import AsVector, Take, TakeText
from flour.ops.unary import BitNot, IsInfinite, Not

Function = Callable[..., Flow]


def together(call: NodeUse, items: Sequence[Tensor], function: Function) -> Tensor:
    """A function of flows on broadcast tensors; a single value meets every column unchanged."""
    shape, axis = broadcast(items)
    return Tensor.of(function(*[ready(call, item, shape, axis) for item in items]), shape, axis)


def ready(call: NodeUse, item: Tensor, shape: tuple[int, ...], axis: int | None) -> Flow:
    """The tensor as a flow that fits others of the broadcast shape."""
    if item.size == 1 and item.dtype != "string" and prod(shape) != 1:
        return call.flow(item).element(0)
    return call.flow(spread(item, shape, axis))


def symbolic(call: NodeUse, function: Callable[[Any, Any], Any]) -> Tensor | None:
    """The result where the number of rows takes part, computed at import; else None."""
    left, right = call[0], call[1]
    if not (left.symbolic or right.symbolic):
        return None
    if left.value is None or right.value is None:
        raise NotNative("arithmetic of the number of rows with the data")
    one, other = np.broadcast_arrays(left.value.astype(object), right.value.astype(object))
    pairs = zip(one.reshape(-1), other.reshape(-1), strict=True)
    values = [function(a, b) for a, b in pairs]
    results = np.empty(len(values), object)
    results[:] = values
    return Tensor.constant(results.reshape(one.shape))


def operands(call: NodeUse) -> list[Tensor]:
    """The two inputs; before version 7 an attribute says with which axis the second one starts."""
    left, right = call[0], call[1]
    if call.opset < 7 and call.attribute("axis") is not None:
        start = positive(call.attribute("axis"), left.rank)
        shape = (*right.shape, *(1,) * (left.rank - right.rank - start))
        return [left, right.shaped(shape, right.axis)]
    return [left, right]


def two(
    call: NodeUse, function: Function, on_lengths: Callable[[Any, Any], Any] | None = None
) -> Tensor:
    """An operator of two inputs; `on_lengths` is its form for multiples of the number of rows."""
    if on_lengths is not None and (result := symbolic(call, on_lengths)) is not None:
        return result
    if "string" in (call[0].dtype, call[1].dtype):
        raise NotNative("text in arithmetic")
    return together(call, operands(call), function)


# --- arithmetic -----------------------------------------------------------------------------------


@onnx_op("Div")
def _div(call: NodeUse) -> Tensor:
    if call[0].dtype in FLOATS:
        return _with_constant(call, "divide", lambda x, y: x.over(y), operator.floordiv)
    return two(call, pairwise.WholeQuotient(), operator.floordiv)


def _with_constant(call: NodeUse, method: str, function: Function, on_lengths: Any) -> Tensor:
    """Arithmetic; floats known at import become the parameter of an operator."""
    left, right = operands(call)
    if method in ("add", "multiply") and left.known and not right.known:
        left, right = right, left
    plain = left.flow is not None and right.value is not None and left.dtype in FLOATS
    if not plain or right.symbolic or right.size == 0:
        return two(call, function, on_lengths)
    shape, axis = broadcast([left, right])
    assert right.value is not None
    flow = call.flow(spread(left, shape, axis))
    values = right.value if right.size == 1 else np.broadcast_to(right.value, shape)
    return Tensor.of(getattr(flow, method)(values.reshape(-1)), shape, axis)


@onnx_op("Mod", since=10)
def _mod(call: NodeUse) -> Tensor:
    if call.attribute("fmod", 0):
        return two(call, pairwise.Remainder())
    return two(call, pairwise.Modulo())


@onnx_op("Pow")
def _pow(call: NodeUse) -> Tensor:
    base, exponent = call[0], call[1]
    fits = base.dtype in FLOATS and exponent.rank <= base.rank
    # onnxruntime multiplies, too, where the exponent is known to be 2.
    if fits and exponent.size == 1 and exponent.known and np.all(exponent.value == 2):
        return Tensor.of(call.flow(base).square(), base.shape, base.axis)
    whole = exponent.dtype not in FLOATS and base.dtype not in FLOATS
    if whole and (exponent.value is None or np.any(exponent.value < 0)):
        raise NotNative("whole numbers to powers that may be negative")
    if base.dtype == exponent.dtype:
        return two(call, pairwise.PowerOf())
    if whole:
        return two(call, lambda x, y: pairwise.PowerOf()(x, y.cast(base.dtype)))
    narrow = {base.dtype, exponent.dtype} <= {"float32", "int8", "int16", "uint8", "uint16"}
    wide = "float32" if narrow else "float64"

    def function(x: Flow, y: Flow) -> Flow:
        return pairwise.PowerOf()(x.cast(wide), y.cast(wide)).cast(base.dtype)

    return two(call, function)


def _many(call: NodeUse, function: Function) -> Tensor:
    result = call[0]
    for index in range(1, len(call.inputs)):
        result = together(call, [result, call[index]], function)
    return result


# --- comparisons and logic ------------------------------------------------------------------------


@onnx_op("Equal")
def _equal(call: NodeUse) -> Tensor:
    if call[0].dtype == call[1].dtype == "string":
        # Known strings are looked up, so that native code makes none.
        left, right = sorted(operands(call), key=lambda item: item.known)
        shape, axis = broadcast([left, right])
        if left.value is not None and right.value is not None:
            return Tensor.constant(np.asarray(left.value == right.value), axis)
        if right.value is not None:
            texts = np.broadcast_to(right.value, shape).reshape(-1)
            width = len(texts)
            none, other = np.zeros(width, np.int64), np.ones(width, np.int64)
            ends = np.arange(width + 1)
            codes = call.flow(spread(left, shape, axis)).categorise_text(
                texts.tolist(), none, ends, other, other, other, strict=False
            )
            return Tensor.of(Equal([0])(codes), shape, axis)
        flows = [
            call.flow(item).element(0) if item.size == 1 else call.flow(spread(item, shape, axis))
            for item in (left, right)
        ]
        return Tensor.of(SameText()(*flows), shape, axis)
    return two(call, pairwise.Same(), operator.eq)


@onnx_op("BitwiseNot", since=18)
def _bit_not(call: NodeUse) -> Tensor:
    return Tensor.of(BitNot()(call.flow(call[0])), call[0].shape, call[0].axis)


@onnx_op("BitShift", since=11)
def _bit_shift(call: NodeUse) -> Tensor:
    left = call.attribute("direction") == "LEFT"
    return two(call, pairwise.ShiftLeft() if left else pairwise.ShiftRight())


@onnx_op("Where", since=9)
def _where(call: NodeUse) -> Tensor:
    condition, yes, no = call[0], call[1], call[2]
    if condition.known and yes.known and no.known:
        test, one, other = (np.asarray(item.value) for item in _three(call))
        return Tensor.constant(np.where(test, one, other), broadcast(_three(call))[1])
    if yes.dtype == "string":
        # Strings are looked up among those of both sides.
        from flour.ops.indexed import PickAt

        shape, axis = broadcast([condition, yes, no])
        width = prod(shape)
        both = concat(*(call.flow(spread(item, shape, axis)) for item in (yes, no)))
        chosen = call.flow(spread(condition, shape, axis))
        here, there = (call.flow(Tensor.constant(np.arange(width) + s)) for s in (0, width))
        return Tensor.of(PickAt()(both, chosen.where(here, there)), shape, axis)
    return together(call, _three(call), lambda test, x, y: test.where(x, y))


def _three(call: NodeUse) -> list[Tensor]:
    return [call[0], call[1], call[2]]


# --- other dtypes ---------------------------------------------------------------------------------


def converted(call: NodeUse, item: Tensor, dtype: str) -> Tensor:
    """The tensor in another dtype."""
    if item.dtype == dtype or (item.symbolic and dtype in ("int64", "int32")):
        return item
    if item.dtype == "string":
        raise NotNative("numbers read from strings")
    if dtype == "string":
        return spelt(call, item)
    if item.value is not None and not item.symbolic:
        with np.errstate(all="ignore"):
            return Tensor.constant(item.value.astype(native_dtype(dtype)), item.axis)
    return Tensor.of(call.flow(item).cast(native_dtype(dtype)), item.shape, item.axis)


# --- strings of numbers; see flour.ops.onnx_text for the rules ------------------------------------


def spelt(call: NodeUse, item: Tensor) -> Tensor:
    """Numbers as strings."""
    if item.symbolic:
        raise NotNative("the number of rows would become a value")
    if item.value is not None:
        strings = written(item.value.reshape(-1)).reshape(item.shape)
        return Tensor(item.shape, "string", item.axis, None, strings)
    flow = call.flow(item)
    table = _table(flow)
    if table is not None:
        indices, entries = table
        return Tensor.of(TakeText(written(entries).tolist())(indices), item.shape, item.axis)
    op = WriteFloats() if getattr(flow.type, "dtype", "") in FLOATS else WriteWhole()
    return Tensor.of(op(flow), item.shape, item.axis)


def written(values: NDArray[Any]) -> NDArray[np.object_]:
    """Known numbers as onnxruntime writes them."""
    strings = np.empty(len(values), object)
    strings[:] = [text_of(value) for value in values]
    return strings


def _table(flow: Flow) -> tuple[Flow, NDArray[Any]] | None:
    """The indices and the table that numbers are looked up in; None if they are not."""
    if isinstance(flow.node.op, AsVector):
        flow = flow.input(0)
    op = flow.node.op
    return (flow.input(0), op.table.array) if isinstance(op, Take) else None


# --- functions of each number ---------------------------------------------------------------------


#: Operators that are a method of a flow, wherever its dtype is one of ours.
_METHODS = {
    **{name: name.lower() for name in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan")},
    **{name: name.lower() for name in ("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh")},
    **{name: name.lower() for name in ("Exp", "Log", "Sqrt", "Erf", "Sigmoid", "Reciprocal")},
    **{name: name.lower() for name in ("Abs", "Sign", "Relu", "Floor", "Ceil")},
    "IsNaN": "is_nan",
    "Neg": "negate",
    "Round": "rint",
}


def each(call: NodeUse, function: Function) -> Tensor:
    """A function of every value of the first input."""
    item = call[0]
    if item.symbolic or item.dtype == "string":
        raise NotNative("it computes on numbers")
    if not item.size:
        return item
    return Tensor.of(function(call.flow(item)), item.shape, item.axis)


@onnx_op(*_METHODS)
def _method(call: NodeUse) -> Tensor:
    return each(call, methodcaller(_METHODS[call.node.op_type]))


@onnx_op("IsInf", since=10)
def _is_inf(call: NodeUse) -> Tensor:
    above, below = (bool(call.attribute(f"detect_{w}", 1)) for w in ("positive", "negative"))
    return each(call, IsInfinite(above=above, below=below))


@onnx_op("Clip")
def _clip(call: NodeUse) -> Tensor:
    """The larger of x and low, then the smaller of that and high; a bound that lacks is finite."""
    result, dtype = call[0], call[0].dtype
    for place, name, op in ((1, "min", pairwise.LargerOf), (2, "max", pairwise.SmallerOf)):
        bound = call.optional(place)
        limit = getattr(np.finfo(dtype), name) if dtype in FLOATS else None
        value = call.attribute(name, limit)
        if bound is None and value is not None:
            bound = Tensor.constant(np.array(value, dtype))
        if result.size and bound is not None:
            result = together(call, [result, bound], op())
    return result


# --- operators of one expression ------------------------------------------------------------------

onnx_op("Add")(lambda call: _with_constant(call, "add", lambda x, y: x.plus(y), operator.add))
onnx_op("Sub")(lambda call: _with_constant(call, "subtract", lambda x, y: x.minus(y), operator.sub))
onnx_op("Mul")(lambda call: _with_constant(call, "multiply", lambda x, y: x.times(y), operator.mul))
onnx_op("Max")(lambda call: _many(call, pairwise.LargerOf()))
onnx_op("Min")(lambda call: _many(call, pairwise.SmallerOf()))
onnx_op("Sum")(lambda call: _many(call, lambda x, y: x.plus(y)))
onnx_op("Less")(lambda call: two(call, lambda x, y: pairwise.Above()(y, x)))
onnx_op("LessOrEqual", since=12)(lambda call: two(call, lambda x, y: pairwise.AtLeast()(y, x)))
onnx_op("Not")(lambda call: Tensor.of(Not()(call.flow(call[0])), call[0].shape, call[0].axis))
onnx_op("Cast", since=6)(lambda call: converted(call, call[0], dtype_of(call.attribute("to"))))
onnx_op("CastLike", since=15)(lambda call: converted(call, call[0], call[1].dtype))
onnx_op("Identity")(lambda call: call[0])
onnx_op("Greater")(lambda call: two(call, pairwise.Above()))
onnx_op("GreaterOrEqual", since=12)(lambda call: two(call, pairwise.AtLeast()))
onnx_op("And")(lambda call: two(call, pairwise.Both()))
onnx_op("Or")(lambda call: two(call, pairwise.Either()))
onnx_op("Xor")(lambda call: two(call, pairwise.OnlyOne()))
onnx_op("BitwiseAnd", since=18)(lambda call: two(call, pairwise.BitAnd()))
onnx_op("BitwiseOr", since=18)(lambda call: two(call, pairwise.BitOr()))
onnx_op("BitwiseXor", since=18)(lambda call: two(call, pairwise.BitXor()))
