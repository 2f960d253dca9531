"""Operators that shift and scale by means and deviations: of the training data, or of the row."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flour.core.types import FLOATS
from flour.language.flow import Flow
from flour.onnx.arithmetic import together
from flour.onnx.errors import NotNative
from flour.onnx.reductions import reduced, reduced_axes
from flour.onnx.registry import Call, onnx_op
from flour.onnx.shapes import in_order
from flour.onnx.tensor import Tensor, positive
from flour.ops.segments import SegmentSum


def _mean(call: Call, item: Tensor, axes: tuple[int, ...]) -> Tensor:
    def function(x: Flow, length: int) -> Flow:
        return SegmentSum(length)(x).divide([length])

    return reduced(call, item, axes, function, np.nan, keep=True)


def _less(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return together(call, [x, y], lambda a, b: a.minus(b))


def _times(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return together(call, [x, y], lambda a, b: a.times(b))


def _plus(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return together(call, [x, y], lambda a, b: a.plus(b))


def _each(call: Call, item: Tensor, function: Any) -> Tensor:
    return Tensor.of(function(call.flow(item)), item.shape, item.axis)


def _square(call: Call, item: Tensor) -> Tensor:
    return _each(call, item, lambda x: x.square())


def _standard(
    call: Call, item: Tensor, axes: tuple[int, ...], epsilon: float
) -> tuple[Tensor, ...]:
    """(normalised, mean, 1 / deviation) over these axes."""
    if item.dtype not in FLOATS:
        raise NotNative("it computes on floats")
    if item.axis in axes:
        raise NotNative("a reduction over all rows")
    mean = _mean(call, item, axes)
    centred = _less(call, item, mean)
    variance = _mean(call, _square(call, centred), axes)
    inverse = _each(call, variance, lambda x: x.add([epsilon]).sqrt().reciprocal())
    return _times(call, centred, inverse), mean, inverse


@onnx_op("BatchNormalization")
def _batch(call: Call) -> Tensor | tuple[Tensor, ...]:
    test = call.opset >= 7 or call.attribute("is_test", 0)
    if call.attribute("training_mode", 0):
        return _training(call)
    if call.outputs > 1 or not test:
        raise NotNative("statistics of the batch")
    item = call[0]
    shape = [1, item.shape[1]] + [1] * (item.rank - 2)
    scale, bias, mean, variance = (call[index].shaped(shape, None) for index in range(1, 5))
    deviation = _deviation(call, variance, call.attribute("epsilon", 1e-5))
    normal = together(call, [_less(call, item, mean), deviation], lambda x, y: x.over(y))
    return _plus(call, _times(call, normal, scale), bias)


def _training(call: Call) -> tuple[Tensor, ...]:
    """Normalise by the batch's own mean and variance, and update the running ones."""
    item, epsilon = call[0], call.attribute("epsilon", 1e-5)
    axes = (0, *range(2, item.rank))
    normal, mean, _ = _standard(call, item, axes, epsilon)
    variance = _mean(call, _square(call, _less(call, item, mean)), axes)
    shape = [1, item.shape[1]] + [1] * (item.rank - 2)
    scale, bias, *before = (call[index].shaped(shape, None) for index in range(1, 5))
    momentum = np.array(call.attribute("momentum", 0.9), item.dtype)
    old, new = Tensor.constant(momentum), Tensor.constant(1 - momentum)
    moved = (
        _plus(call, _times(call, statistic, old), _times(call, now, new)).shaped(shape[1:2], None)
        for statistic, now in zip(before, (mean, variance), strict=True)
    )
    return _plus(call, _times(call, normal, scale), bias), *moved


def _deviation(call: Call, variance: Tensor, epsilon: float) -> Tensor:
    if variance.value is None:
        return _each(call, variance, lambda x: x.add([epsilon]).sqrt())
    return Tensor.constant(np.sqrt(variance.value + np.dtype(variance.dtype).type(epsilon)))


@onnx_op("LayerNormalization", since=17)
def _layer(call: Call) -> tuple[Tensor, ...]:
    item = call[0]
    axis = positive(call.attribute("axis", -1), item.rank)
    axes = tuple(range(axis, item.rank))
    normal, mean, inverse = _standard(call, item, axes, call.attribute("epsilon", 1e-5))
    normal = _times(call, normal, call[1])
    bias = call.optional(2)
    return (normal if bias is None else _plus(call, normal, bias)), mean, inverse


@onnx_op("RMSNormalization", since=23)
def _root_mean_square(call: Call) -> Tensor:
    item = call[0]
    axes = tuple(range(positive(call.attribute("axis", -1), item.rank), item.rank))
    if item.axis in axes:
        raise NotNative("a reduction over all rows")
    mean = _mean(call, _square(call, item), axes)
    epsilon = [call.attribute("epsilon", 1e-5)]
    inverse = _each(call, mean, lambda x: x.add(epsilon).sqrt().reciprocal())
    return _times(call, _times(call, item, inverse), call[1])


@onnx_op("InstanceNormalization", since=6)
def _instance(call: Call) -> Tensor:
    item = call[0]
    axes = tuple(range(2, item.rank))
    normal, _, _ = _standard(call, item, axes, call.attribute("epsilon", 1e-5))
    shape = [1, item.shape[1]] + [1] * (item.rank - 2)
    scale, bias = (part.shaped(shape, part.axis) for part in (call[1], call[2]))
    return _plus(call, _times(call, normal, scale), bias)


@onnx_op("GroupNormalization", since=21)
def _group(call: Call) -> Tensor:
    item, groups = call[0], call.attribute("num_groups")
    shape = [item.shape[0], groups, prod(item.shape[1:]) // groups]
    normal, _, _ = _standard(
        call, in_order(item, shape, item.axis), (2,), call.attribute("epsilon", 1e-5)
    )
    normal = in_order(normal, item.shape, item.axis)
    wide = [1, item.shape[1]] + [1] * (item.rank - 2)
    scale, bias = (part.shaped(wide, part.axis) for part in (call[1], call[2]))
    return _plus(call, _times(call, normal, scale), bias)


@onnx_op("MeanVarianceNormalization", since=9)
def _mean_variance(call: Call) -> Tensor:
    item = call[0]
    axes = reduced_axes(call, item, tuple(call.attribute("axes", (0, 2, 3))))
    mean = _mean(call, item, axes)
    squares = _mean(call, _square(call, item), axes)
    variance = _less(call, squares, _square(call, mean))
    deviation = _each(call, variance, lambda x: x.sqrt().add([1e-9]))
    return together(call, [_less(call, item, mean), deviation], lambda x, y: x.over(y))


@onnx_op("LpNormalization")
def _norm(call: Call) -> Tensor:
    item = call[0]
    axes = reduced_axes(call, item, (call.attribute("axis", -1),))
    square = call.attribute("p", 2) == 2
    sizes = _square(call, item) if square else _each(call, item, lambda x: x.abs())

    def function(x: Flow, length: int) -> Flow:
        total = SegmentSum(length)(x)
        return total.sqrt() if square else total

    norm = reduced(call, sizes, axes, function, 0, keep=True)
    quotient = together(call, [item, norm], lambda x, y: x.over(y))
    # A run of zeros stays zero.
    nothing = together(call, [item, norm], lambda x, y: x.times(y))
    return together(
        call, [norm, nothing, quotient], lambda size, none, x: size.equal([0]).where(none, x)
    )
