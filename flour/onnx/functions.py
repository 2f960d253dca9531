"""Operators that are a function of each number: exp, abs, activations, rounding, clipping."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from operator import methodcaller

import numpy as np

from flour.core.types import FLOATS
from flour.language.flow import Flow
from flour.onnx.arithmetic import converted, op_of, together
from flour.onnx.errors import NotNative
from flour.onnx.registry import Call, onnx_op
from flour.onnx.tensor import Tensor
from flour.ops import pairwise
from flour.ops.source import Fill
from flour.ops.trigonometry import IsInfinite

Function = Callable[[Flow], Flow]

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


def each(call: Call, function: Function) -> Tensor:
    """A function of every value of the first input."""
    item = call[0]
    if item.symbolic or item.dtype == "string":
        raise NotNative("it computes on numbers")
    if not item.size:
        return item
    return Tensor.of(function(call.flow(item)), item.shape, item.axis)


@onnx_op(*_METHODS)
def _method(call: Call) -> Tensor:
    method = _METHODS[call.node.op_type]
    return each(call, methodcaller(method))


@onnx_op("Identity")
def _identity(call: Call) -> Tensor:
    return call[0]


@onnx_op("Dropout")
def _dropout(call: Call) -> Tensor | tuple[Tensor, ...]:
    training = call.optional(2)
    if call.opset < 7 and not call.attribute("is_test", 0):
        raise NotNative("dropout while training draws random numbers")
    if training is not None and (training.value is None or bool(training.value)):
        ratio = call.optional(1)
        if ratio is None or ratio.value is None or ratio.value.any():
            raise NotNative("dropout while training draws random numbers")
    if call.outputs < 2:
        return call[0]
    return call[0], Tensor.constant(np.ones(call[0].shape, bool), call[0].axis)


@onnx_op("IsInf", since=10)
def _is_inf(call: Call) -> Tensor:
    above, below = (bool(call.attribute(f"detect_{w}", 1)) for w in ("positive", "negative"))
    return each(call, op_of(IsInfinite(above=above, below=below)))


@onnx_op("Clip")
def _clip(call: Call) -> Tensor:
    low, high = (call.attribute(name) for name in ("min", "max"))
    bounds = [
        None if value is None else Tensor.constant(np.array(value, call[0].dtype))
        for value in (low, high)
    ]
    return _between(call, bounds[0], bounds[1])


@onnx_op("Clip", since=11)
def _clip_by_inputs(call: Call) -> Tensor:
    return _between(call, call.optional(1), call.optional(2))


def _between(call: Call, low: Tensor | None, high: Tensor | None) -> Tensor:
    """The larger of x and low, then the smaller of that and high."""
    result = call[0]
    if result.size and low is not None:
        result = together(call, [result, low], op_of(pairwise.LargerOf()))
    if result.size and high is not None:
        result = together(call, [result, high], op_of(pairwise.SmallerOf()))
    return result


# --- activations ----------------------------------------------------------------------------------


def _floats(call: Call, function: Function) -> Tensor:
    if call[0].dtype not in FLOATS:
        raise NotNative(f"it computes on floats, not on {call[0].dtype}")
    return each(call, function)


def _where_below(x: Flow, below: Flow, else_: Flow) -> Flow:
    return x.less([0.0]).where(below, else_)


def _number(x: Flow, value: float, dtype: str) -> Flow:
    """The same number for every row of x."""
    return Fill(np.array([value], dtype), scalar=True)(x)


@onnx_op("LeakyRelu")
def _leaky(call: Call) -> Tensor:
    slope = [call.attribute("alpha", 0.01)]
    return _floats(call, lambda x: _where_below(x, x.multiply(slope), x))


@onnx_op("PRelu")
def _prelu(call: Call) -> Tensor:
    item, slope = call[0], call[1]
    if call.opset < 7 and slope.rank == 1 and item.rank > 1:  # a slope for every channel
        slope = slope.shaped((slope.size, *(1,) * (item.rank - 2)), slope.axis)
    product = together(call, [item, slope], lambda x, y: x.times(y))
    none = np.zeros(1, item.dtype)
    return together(call, [item, product], lambda x, y: x.less(none).where(y, x))


@onnx_op("Elu")
def _elu(call: Call) -> Tensor:
    alpha = [call.attribute("alpha", 1.0)]
    return _floats(call, lambda x: _where_below(x, x.expm1().multiply(alpha), x))


@onnx_op("Celu", since=12)
def _celu(call: Call) -> Tensor:
    alpha = [call.attribute("alpha", 1.0)]
    return _floats(call, lambda x: _where_below(x, x.divide(alpha).expm1().multiply(alpha), x))


@onnx_op("Selu")
def _selu(call: Call) -> Tensor:
    alpha = [call.attribute("alpha", 1.67326319217681884765625)]
    gamma = [call.attribute("gamma", 1.05070102214813232421875)]
    return _floats(call, lambda x: _where_below(x, x.expm1().multiply(alpha), x).multiply(gamma))


@onnx_op("ThresholdedRelu", since=10)
def _thresholded(call: Call) -> Tensor:
    limit = np.array([call.attribute("alpha", 1.0)], call[0].dtype)
    return _floats(call, lambda x: x.greater(limit).where(x, _number(x, 0, limit.dtype.name)))


@onnx_op("HardSigmoid")
def _hard_sigmoid(call: Call) -> Tensor:
    alpha, beta = [call.attribute("alpha", 0.2)], [call.attribute("beta", 0.5)]
    return _floats(call, lambda x: x.multiply(alpha).add(beta).clip([0.0], [1.0]))


@onnx_op("HardSwish", since=14)
def _hard_swish(call: Call) -> Tensor:
    return _floats(call, lambda x: x.times(x.multiply([1 / 6]).add([0.5]).clip([0.0], [1.0])))


def _softplus_of(x: Flow) -> Flow:
    """log(1 + exp(x)), without overflow."""
    return x.relu().plus(x.abs().negate().exp().log1p())


@onnx_op("Softplus")
def _softplus(call: Call) -> Tensor:
    return _floats(call, _softplus_of)


@onnx_op("Softsign")
def _softsign(call: Call) -> Tensor:
    return _floats(call, lambda x: x.over(x.abs().add([1.0])))


@onnx_op("Mish", since=18)
def _mish(call: Call) -> Tensor:
    return _floats(call, lambda x: x.times(_softplus_of(x).tanh()))


@onnx_op("Swish", since=24)
def _swish(call: Call) -> Tensor:
    alpha = [call.attribute("alpha", 1.0)]
    return _floats(call, lambda x: x.times(x.multiply(alpha).sigmoid()))


@onnx_op("Gelu", since=20)
def _gelu(call: Call) -> Tensor:
    if call.attribute("approximate", "none") == "tanh":
        return _floats(call, _gelu_by_tanh)
    return _floats(call, lambda x: x.times(x.divide([sqrt(2)]).erf().add([1.0])).multiply([0.5]))


def _gelu_by_tanh(x: Flow) -> Flow:
    inner = x.times(x).times(x).multiply([0.044715]).plus(x).multiply([sqrt(2 / pi)])
    return x.times(inner.tanh().add([1.0])).multiply([0.5])


@onnx_op("Shrink", since=9)
def _shrink(call: Call) -> Tensor:
    bias, limit = call.attribute("bias", 0.0), call.attribute("lambd", 0.5)
    item = call[0]
    wide = converted(call, item, item.dtype if item.dtype in FLOATS else "float64")
    x = call.flow(wide)
    dtype = np.dtype(wide.dtype).type
    none = _number(x, 0, wide.dtype)
    upper = x.greater([dtype(limit)]).where(x.subtract([bias]), none)
    lower = x.less(np.array([-limit], dtype)).where(x.add([bias]), upper)
    return converted(call, Tensor.of(lower, item.shape, item.axis), item.dtype)
