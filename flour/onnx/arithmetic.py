"""Add, Sub, Mul, Div and their like: two tensors of one dtype, broadcast as numpy does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flour.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.registry import Call, onnx_op
from flour.onnx.tensor import Tensor, broadcast, spread
from flour.types import FLOATS

Pair = Callable[[Flow, Flow], Flow]


def together(call: Call, left: Tensor, right: Tensor, function: Pair) -> Tensor:
    """A function of two flows on broadcast tensors; a single value meets every column as it is."""
    shape, axis = broadcast([left, right])
    flows = [ready(call, item, shape, axis) for item in (left, right)]
    made = function(*flows)
    return Tensor.of(made, shape, axis)


def ready(call: Call, item: Tensor, shape: tuple[int, ...], axis: int | None) -> Flow:
    """The tensor as a flow that fits others of the broadcast shape."""
    if item.size == 1 and item.dtype != "string" and int(np.prod(shape)) != 1:
        return call.flow(item).element(0)
    return call.flow(spread(item, shape, axis))


@onnx_op("Add", since=7)
def _add(call: Call) -> Tensor:
    return together(call, call[0], call[1], lambda x, y: x.plus(y))


@onnx_op("Identity")
def _identity(call: Call) -> Tensor:
    return call[0]


@onnx_op("Cast", since=6)
def _cast(call: Call) -> Tensor:
    from flour.onnx.tensors import dtype_of

    target = dtype_of(call.attribute("to"))
    if call[0].dtype == target:
        return call[0]
    if "string" in (target, call[0].dtype):
        raise NotNative("text to numbers or back")
    return Tensor.of(call.flow(call[0]).cast(target), call[0].shape, call[0].axis)


@onnx_op("MatMul")
def _matmul(call: Call) -> Tensor:
    x, weights = call[0], call.constant(1, "the second matrix")
    if x.rank != 2 or x.axis != 0 or x.shape[0] != 1 or weights.ndim != 2 or x.dtype not in FLOATS:
        raise NotNative("only rows times a constant matrix")
    made = call.flow(x).linear(weights.T, [])
    return Tensor.of(made, (1, weights.shape[1]), 0)
