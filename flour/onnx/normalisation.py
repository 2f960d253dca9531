"""Operators that shift and scale by numbers of the training data, or by the size of the row."""

from __future__ import annotations

import numpy as np

from flour.language.flow import Flow
from flour.onnx.arithmetic import together
from flour.onnx.errors import NotNative
from flour.onnx.reductions import mapped, reduced, reduced_axes
from flour.onnx.registry import Call, onnx_op
from flour.onnx.tensor import Tensor
from flour.ops.segments import SegmentSum


@onnx_op("BatchNormalization")
def _batch(call: Call) -> Tensor:
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
def _norm(call: Call) -> Tensor:
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
