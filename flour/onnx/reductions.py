"""Operators that reduce axes to one number, and those that scale by one.

The reduced axes are moved to the end, so that every number comes from a run of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from flour.core.op import Op
from flour.core.types import FLOATS
from flour.language.flow import Flow
from flour.onnx.arithmetic import converted, together
from flour.onnx.errors import NotNative
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor, positive
from flour.ops.link import FirstLargest
from flour.ops.reduce import ArgMax, ArgMin
from flour.ops.segments import SegmentMax, SegmentMin, SegmentPlace, SegmentProduct, SegmentSum
from flour.ops.unary import IsInfinite

#: A function from runs of a length to a number for each.
Reduce = Callable[[Flow, int], Flow]


def _reducing(whole: str, runs: Callable[[int], Op]) -> Reduce:
    """A reduction by a method where a run is the whole row, else by an operator of runs."""

    def reduce(x: Flow, length: int) -> Flow:
        alone = length and x.type.width == length  # type: ignore[union-attr]  # vectors only
        return getattr(x, whole)().as_vector() if alone else runs(length)(x)

    return reduce


_sum, _max = _reducing("sum", SegmentSum), _reducing("max", SegmentMax)
_min = _reducing("min", SegmentMin)


def reduced_axes(call: NodeUse, item: Tensor, axes: tuple[int, ...] | None) -> tuple[int, ...]:
    """The reduced axes: all of them where none are named (unless that means none)."""
    if not axes:
        if call.attribute("noop_with_empty_axes", 0):
            return ()
        axes = tuple(range(item.rank))
    chosen = tuple(sorted({positive(axis, item.rank) for axis in axes}))
    if item.axis in chosen:
        raise NotNative("a reduction over all rows")
    return chosen


def runs(item: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, int]:
    """The values with these axes last, flat, and the length of each run over them."""
    order = [i for i in range(item.rank) if i not in axes] + list(axes)
    table = item.flat_indices().transpose(order).reshape(-1)
    return item.picked(table, None), prod(item.shape[axis] for axis in axes)


def kept(item: Tensor, axes: tuple[int, ...], *, keep: bool) -> tuple[list[int], int | None]:
    """The shape and axis of the result, with ones for the reduced axes or without them."""
    if keep:
        return [1 if i in axes else n for i, n in enumerate(item.shape)], item.axis
    shape, axis = [n for i, n in enumerate(item.shape) if i not in axes], item.axis
    return shape, None if axis is None else axis - sum(gone < axis for gone in axes)


def reduced(
    call: NodeUse,
    item: Tensor,
    axes: tuple[int, ...],
    function: Reduce,
    empty: float,
    *,
    keep: bool,
) -> Tensor:
    """The tensor with axes reduced to one number each; `empty` is the result for no numbers."""
    shape, axis = kept(item, axes, keep=keep)
    flat, length = runs(item, axes)
    if not length or not prod(shape):
        return Tensor.constant(np.full(shape, empty, item.dtype), axis)
    return Tensor.of(function(call.flow(flat), length), shape, axis)


# --- the family of ReduceX ------------------------------------------------------------------------


def _reduce(
    call: NodeUse, function: Reduce, empty: float = 0, item: Tensor | None = None
) -> Tensor:
    item = call[0] if item is None else item
    axes = reduced_axes(call, item, call.integers(1, "axes"))
    return reduced(call, item, axes, function, empty, keep=call.flag("keepdims"))


def mapped(call: NodeUse, item: Tensor, function: Callable[[Flow], Flow]) -> Tensor:
    """A function of every value, where there is any."""
    if not item.size:
        return item
    return Tensor.of(function(call.flow(item)), item.shape, item.axis)


@onnx_op("ReduceMean")
def _reduce_mean(call: NodeUse) -> Tensor:
    if call[0].dtype not in FLOATS:
        item = converted(call, call[0], "float64")
        return converted(call, _reduce(call, _mean, np.nan, item), call[0].dtype)
    return _reduce(call, _mean, np.nan)


def _mean(x: Flow, length: int) -> Flow:
    return _sum(x, length).divide([length])


def _extreme(call: NodeUse, function: Reduce, sign: int) -> Tensor:
    """The extreme of no numbers is the opposite end of what the dtype can hold."""
    dtype = call[0].dtype
    if dtype == "bool":
        result = _reduce(call, function, int(sign > 0), converted(call, call[0], "uint8"))
        return converted(call, result, "bool")
    if dtype in FLOATS:
        return _reduce(call, function, sign * np.inf)
    limits = np.iinfo(dtype)
    return _reduce(call, function, int(limits.max if sign > 0 else limits.min))


@onnx_op("ReduceProd")
def _reduce_prod(call: NodeUse) -> Tensor:
    if call[0].symbolic:
        product = np.empty((), object)
        product[()] = np.prod(call.symbolic(0))
        return Tensor.constant(product.reshape((1,) if call.flag("keepdims") else ()))
    return _reduce(call, lambda x, length: SegmentProduct(length)(x), 1)


@onnx_op("ReduceSumSquare")
def _reduce_sum_square(call: NodeUse) -> Tensor:
    return _reduce(call, _sum, 0, mapped(call, call[0], lambda x: x.square()))


@onnx_op("ReduceL2")
def _reduce_l2(call: NodeUse) -> Tensor:
    dtype = call[0].dtype
    item = call[0] if dtype in FLOATS else converted(call, call[0], "float64")
    total = _reduce(call, _sum, 0, mapped(call, item, lambda x: x.square()))
    return converted(call, mapped(call, total, lambda x: x.sqrt()), dtype)


@onnx_op("ReduceLogSumExp")
def _reduce_log_sum_exp(call: NodeUse) -> Tensor:
    """max + log(sum(exp(x - max))), which cannot overflow; an infinite max is not subtracted."""
    item = call[0]
    axes = reduced_axes(call, item, call.integers(1, "axes"))
    keep = call.flag("keepdims")
    if item.dtype not in FLOATS:
        raise NotNative(f"powers of {item.dtype}")
    if not prod(item.shape[axis] for axis in axes) or not item.size:
        return reduced(call, item, axes, _sum, -np.inf, keep=keep)
    top = reduced(call, item, axes, _max, 0, keep=True)
    top = mapped(call, top, _finite)
    powers = together(call, [item, top], lambda x, y: x.minus(y).exp())
    total = reduced(call, powers, axes, _sum, 0, keep=True)
    result = together(call, [total, top], lambda x, y: x.log().plus(y))
    shape, axis = kept(item, axes, keep=keep)
    return result.shaped(shape, axis)


def _finite(x: Flow) -> Flow:
    """x, or zero where it is infinite."""
    from flour.ops.source import Fill

    dtype = x.type.dtype  # type: ignore[union-attr]  # vectors only
    return IsInfinite()(x).where(Fill(np.zeros(1, dtype), scalar=True)(x), x)


@onnx_op("ArgMax", "ArgMin")
def _arg(call: NodeUse) -> Tensor:
    item = call[0]
    axes = reduced_axes(call, item, (call.attribute("axis", 0),))
    smallest = call.node.op_type == "ArgMin"
    last = bool(call.attribute("select_last_index", 0))

    def function(x: Flow, length: int) -> Flow:
        if x.type.width == length and not last:  # type: ignore[union-attr]  # vectors only
            if item.dtype not in FLOATS:
                return (ArgMin() if smallest else ArgMax())(x).as_vector()
            if not smallest:
                return FirstLargest()(x).as_vector()
        return SegmentPlace(length, smallest, last)(x)

    shape, axis = kept(item, axes, keep=call.flag("keepdims"))
    flat, length = runs(item, axes)
    if not length:
        raise NotNative("the index of the largest of no numbers")
    return Tensor.of(function(call.flow(flat), length), shape, axis)


# --- along an axis, keeping it --------------------------------------------------------------------


@onnx_op("Softmax")
def _softmax(call: NodeUse) -> Tensor:
    item = call[0]
    # From version 13 on one axis; before, that axis and all behind it.
    axis = positive(call.attribute("axis", -1 if call.opset >= 13 else 1), item.rank)
    axes = (axis,) if call.opset >= 13 else tuple(range(axis, item.rank))
    if item.axis in axes:
        raise NotNative("a reduction over all rows")
    if prod(item.shape[axis] for axis in axes) == item.size:
        return mapped(call, item, lambda x: x.softmax())
    top = reduced(call, item, axes, _max, 0, keep=True)
    powers = mapped(call, together(call, [item, top], lambda x, y: x.minus(y)), lambda x: x.exp())
    total = reduced(call, powers, axes, _sum, 0, keep=True)
    return together(call, [powers, total], lambda x, y: x.over(y))


# --- shifts and scales by fitted numbers, or by the size of the row -------------------------------


@onnx_op("BatchNormalization")
def _batch(call: NodeUse) -> Tensor:
    """(x - mean) / deviation * scale + bias, each a number for every channel."""
    item = call[0]
    training = call.opset < 7 and not call.attribute("is_test", 0)
    if training or call.attribute("training_mode", 0) or call.outputs > 1:
        raise NotNative("statistics of the batch")
    numbers = [call.constant(k).reshape(-1, *(1,) * (item.rank - 2)) for k in range(1, 5)]
    scale, bias, mean, variance = numbers
    deviation = np.sqrt(variance + variance.dtype.type(call.attribute("epsilon", 1e-5)))
    for name, other in (("minus", mean), ("over", deviation), ("times", scale), ("plus", bias)):
        item = together(call, [item, Tensor.constant(other)], lambda x, y, n=name: getattr(x, n)(y))
    return item


@onnx_op("LpNormalization")
def _norm(call: NodeUse) -> Tensor:
    item = call[0]
    axes = reduced_axes(call, item, (call.attribute("axis", -1),))
    square = call.attribute("p", 2) == 2
    sizes = mapped(call, item, lambda x: x.square() if square else x.abs())

    def function(x: Flow, length: int) -> Flow:
        total = SegmentSum(length)(x)
        return total.sqrt() if square else total

    norm = reduced(call, sizes, axes, function, 0, keep=True)
    # A run of zeros stays zero.
    return together(call, [item, norm], lambda x, y: y.equal([0]).where(x.times(y), x.over(y)))


# --- operators of one expression ------------------------------------------------------------------

onnx_op("ReduceSum")(lambda call: _reduce(call, _sum))
onnx_op("ReduceMax")(lambda call: _extreme(call, _max, -1))
onnx_op("ReduceMin")(lambda call: _extreme(call, _min, 1))
