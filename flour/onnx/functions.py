"""Operators that are a function of each number: exp, abs, rounding, clipping."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller

import numpy as np

from flour.core.types import FLOATS
from flour.language.flow import Flow
from flour.onnx.arithmetic import op_of, together
from flour.onnx.errors import NotNative
from flour.onnx.registry import Call, onnx_op
from flour.onnx.tensor import Tensor
from flour.ops import pairwise
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


@onnx_op("IsInf", since=10)
def _is_inf(call: Call) -> Tensor:
    above, below = (bool(call.attribute(f"detect_{w}", 1)) for w in ("positive", "negative"))
    return each(call, op_of(IsInfinite(above=above, below=below)))


@onnx_op("Clip")
def _clip(call: Call) -> Tensor:
    """The larger of x and low, then the smaller of that and high; a bound that lacks is finite."""
    result, dtype = call[0], call[0].dtype
    for place, name, op in ((1, "min", pairwise.LargerOf), (2, "max", pairwise.SmallerOf)):
        bound = call.optional(place)
        limit = getattr(np.finfo(dtype), name) if dtype in FLOATS else None
        value = call.attribute(name, limit)
        if bound is None and value is not None:
            bound = Tensor.constant(np.array(value, dtype))
        if result.size and bound is not None:
            result = together(call, [result, bound], op_of(op()))
    return result
