"""Numbers as whole ones (or float8, float4) times a scale: there, back, and products of them.

A scale or zero point is one for all values, one for each index of an axis, or one for each block of
indices. Quotients are rounded to the nearest whole number, at a tie to the even
one, before the zero point is added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.onnx.arithmetic import converted, op_of, together
from flour.onnx.errors import NotNative
from flour.onnx.narrow import Rounding
from flour.onnx.products import whole_product
from flour.onnx.reductions import reduced
from flour.onnx.registry import Call, onnx_op
from flour.onnx.tensor import Tensor, carrier, positive
from flour.onnx.tensors import dtype_of
from flour.ops import pairwise
from flour.ops.elementwise import Clip
from flour.ops.segments import SegmentMax, SegmentMin
from flour.ops.unary import Rint

#: The smallest and the largest number of each output type.
LIMITS = {
    **{f"{sign}int{bits}": (0, 2**bits - 1) for sign in "u" for bits in (2, 4, 8, 16)},
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (2, 4, 8, 16)},
}


def _fitted(call: Call, item: Tensor, x: Tensor) -> Tensor:
    """A scale or zero point in a shape that meets the values."""
    if item.axis is not None:
        raise NotNative("a scale for every row")
    if item.size == 1:
        return item.shaped((), None)
    axis, block = positive(call.attribute("axis", 1), x.rank), call.attribute("block_size", 0)
    if not block:
        if item.rank != 1:
            raise NotNative(f"scales of shape {item.shape} along an axis")
        return item.shaped([item.size if k == axis else 1 for k in range(x.rank)], None)
    if x.axis == axis:
        raise NotNative("blocks of several rows")
    indices = np.repeat(item.flat_indices(), block, axis).take(range(x.shape[axis]), axis)
    return item.picked(indices, None)


def _step(call: Call, method: str, left: Tensor, right: Tensor) -> Tensor:
    """Arithmetic of two tensors of one dtype."""
    return together(call, [left, right], lambda x, y: getattr(x, method)(y))


def _each(call: Call, item: Tensor, op: Any) -> Tensor:
    """An operator on every value."""
    return Tensor.of(op(call.flow(item)), item.shape, item.axis)


@onnx_op("DequantizeLinear", since=10)
def _dequantize(call: Call) -> Tensor:
    x, scale, zero = call[0], call[1], call.optional(2)
    kind = call.attribute("output_dtype", 0)
    result = converted(call, x, "float32")
    if zero is not None and not x.dtype.startswith("float"):
        if zero.dtype != x.dtype:
            raise NotNative(f"a zero point of {zero.dtype} for values of {x.dtype}")
        result = _step(call, "minus", result, converted(call, _fitted(call, zero, x), "float32"))
    result = _step(call, "times", result, converted(call, _fitted(call, scale, x), "float32"))
    return converted(call, result, dtype_of(kind) if kind else scale.dtype)


@onnx_op("QuantizeLinear", since=10)
def _quantize(call: Call) -> Tensor:
    x, scale, zero = call[0], call[1], call.optional(2)
    kind = call.attribute("output_dtype", 0)
    target = zero.dtype if zero is not None else dtype_of(kind) if kind else "uint8"
    precise = call.attribute("precision", 0)
    ratio = _quotient(
        call, x, _fitted(call, scale, x), dtype_of(precise) if precise else scale.dtype
    )
    if target in LIMITS:
        return _whole(call, ratio, None if zero is None else _fitted(call, zero, x), target)
    if carrier(target) != "float32" or target == "float32":
        raise NotNative(f"numbers as {target}")
    return converted(call, ratio, target, Rounding(bool(call.attribute("saturate", 1))))


def _quotient(call: Call, x: Tensor, scale: Tensor, precision: str) -> Tensor:
    """Values over scales, rounded as a type rounds."""
    items = [converted(call, converted(call, item, precision), "float32") for item in (x, scale)]
    return converted(call, converted(call, _step(call, "over", *items), precision), "float32")


def _whole(call: Call, ratio: Tensor, zero: Tensor | None, target: str) -> Tensor:
    """Quotients as whole numbers, moved to the zero point, within the limits of their type."""
    result = _each(call, ratio, Rint())
    if zero is not None:
        result = _step(call, "plus", result, converted(call, zero, result.dtype))
    low, high = LIMITS[target]
    limited = Clip(np.array([low], result.dtype), np.array([high], result.dtype))
    return converted(call, _each(call, result, limited), target)


@onnx_op("QLinearMatMul", since=10)
def _product(call: Call) -> Tensor:
    x, y, scales = call[0], call[3], [call[1], call[4], call[6]]
    result = whole_product(call, (x, call[2]), (y, call[5]))
    first, second, last = (converted(call, item, "float32") for item in scales)
    first = first.shaped((first.size, 1), None) if first.size > 1 else first.shaped((), None)
    second, last = (i if i.size > 1 else i.shaped((), None) for i in (second, last))
    factor = _step(call, "over", _step(call, "times", first, second), last)
    wide = [converted(call, item, "float64") for item in (result, factor)]
    zero = call[7] if call[7].size > 1 else call[7].shaped((), None)
    return _whole(call, _step(call, "times", *wide), zero, zero.dtype)


@onnx_op("DynamicQuantizeLinear", since=11)
def _dynamic(call: Call) -> tuple[Tensor, ...]:
    x = call[0]
    if x.axis is not None:
        raise NotNative("a reduction over all rows")
    none, one, most = (Tensor.constant(np.float32(value)) for value in (0, 1, 255))
    low = together(call, [_extreme(call, x, SegmentMin), none], op_of(pairwise.SmallerOf()))
    high = together(call, [_extreme(call, x, SegmentMax), none], op_of(pairwise.LargerOf()))
    span = _step(call, "minus", high, low)
    same = together(call, [span, none], op_of(pairwise.Same()))
    span = together(call, [same, one, span], lambda test, a, b: test.where(a, b))
    scale = _step(call, "over", span, most)
    start = _step(call, "over", _step(call, "minus", none, low), scale)
    zero = _whole(call, start, None, "uint8")
    return _whole(call, _step(call, "over", x, scale), zero, "uint8"), scale, zero


def _extreme(call: Call, x: Tensor, of: type[SegmentMin | SegmentMax]) -> Tensor:
    """The least or the largest of all values."""
    every = tuple(range(x.rank))
    return reduced(call, x, every, lambda flow, count: of(count)(flow), 0, keep=False)
