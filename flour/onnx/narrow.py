"""Types narrower than those of programs: float16, bfloat16, float8, float4, int4, int2.

A tensor of such a type is in a program as the next wider type (its *carrier*), whose values are
always exactly ones of the narrow type:

    float16, bfloat16, float8_*, float4_e2m1fn    float32
    int4, int2 | uint4, uint2                     int8 | uint8

Operators that move, compare or choose values need no change. Operators that compute do so in the
carrier, and their result is rounded once, to the nearest. (onnxruntime has no arithmetic of these
types either, and keeps float32 between nodes that compute.) ONNX's definition of an operator tells
the outputs that are narrow: those whose type is that of a narrow input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.op import Op
from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.registry import Call
from flour.onnx.tensor import NARROW, Tensor, carrier

#: Operators that handle narrow types themselves, or pass whole tensors to inner graphs.
_KNOWING = frozenset(
    ("Cast", "CastLike", "DequantizeLinear", "If", "Loop", "QuantizeLinear", "Scan")
)
#: Operators whose results are some of their input values, which need no rounding.
_MOVING = frozenset(
    """
    Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity Max Min
    Abs Ceil Clip Floor Neg OneHot Pad ReduceMax ReduceMin Relu Reshape ReverseSequence Round Sign
    Slice SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unsqueeze Where
    """.split()  # noqa: SIM905 (a line each would be a page)
)


class Rounding(NamedTuple):
    """The choice among the ways to round numbers to a narrow type."""

    saturate: bool = True
    #: Of exponents alone (float8_e8m0fnu): "up", "down" or "nearest".
    mode: str = "up"


def is_narrow(item: Tensor | None) -> bool:
    """Whether a tensor's type is narrower than those of programs."""
    return item is not None and item.dtype in NARROW


# --- rounding -------------------------------------------------------------------------------------


def rounded(flow: Flow, dtype: str, how: Rounding | None = None) -> Flow:
    """Numbers of any type as values of a narrow one, in its carrier."""
    for op in _steps(str(getattr(flow.type, "dtype", "string")), dtype, how or Rounding()):
        flow = op(flow)
    return flow


def rounded_array(values: object, dtype: str, how: Rounding | None = None) -> Any:
    """The same of an array that is known at import."""
    for op in _steps(np.asarray(values).dtype.name, dtype, how or Rounding()):
        with np.errstate(all="ignore"):
            values = op.reference(values)
    return values


def _steps(source: str, dtype: str, how: Rounding) -> list[Op]:
    """The operators that round numbers of a type to a narrow one, one after another."""
    from flour.ops.elementwise import Cast
    from flour.ops.onnx_narrow import Exponent, LowBits, Rounded

    if source == "string":
        raise NotNative("text to numbers")
    if carrier(dtype) != "float32":
        whole = [Cast("int64")] if source.startswith(("float", "bool")) else []
        return [*whole, LowBits(int(dtype[-1]), dtype.startswith("int"))]
    # Only float16 is rounded directly from float64; the others are rounded twice, as everywhere.
    direct = source == "float32" or (source == "float64" and dtype == "float16")
    wide = [] if direct else [Cast("float32")]
    if dtype == "float8_e8m0fnu":
        return [*wide, Exponent(how.mode, how.saturate)]
    return [*wide, Rounded(dtype, how.saturate)]


# --- ONNX's arrays --------------------------------------------------------------------------------


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The dtype of ONNX's arrays of a type; all but float16 are of the package ml_dtypes."""
    if dtype not in NARROW or dtype == "float16":
        return np.dtype(object if dtype == "string" else dtype)
    import ml_dtypes

    result: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
    return result


def as_onnx(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """An array of carriers as an ONNX array."""
    return values.astype(numpy_dtype(dtype)) if dtype in NARROW else values


# --- operators ------------------------------------------------------------------------------------

Adapter = Callable[["Call"], Any]


def adapted(adapter: Adapter, call: Call) -> tuple[Tensor | None, ...]:
    """The outputs of an adapter; it gets carriers, and its outputs are narrow where ONNX's are."""
    narrow = any(map(is_narrow, call.inputs)) and call.node.op_type not in _KNOWING
    result = adapter(_carried(call) if narrow else call)
    answers = result if isinstance(result, tuple) else (result,)
    if not narrow:
        return answers
    kinds = _answered(call)
    return tuple(
        _typed(call, item, kinds(index)) if item is not None else None
        for index, item in enumerate(answers)
    )


def _carried(call: Call) -> Call:
    """The call with carriers in place of narrow tensors."""
    inputs = (
        replace(item, dtype=carrier(item.dtype)) if item is not None and is_narrow(item) else item
        for item in call.inputs
    )
    return replace(call, inputs=tuple(inputs))


def _answered(call: Call) -> Callable[[int], str]:
    """The narrow type of each output by its number, or the empty string."""
    schema = _schema(call.node.op_type, call.opset, call.node.domain)
    allowed = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}
    bound: dict[str, str] = {}
    for index, item in enumerate(call.inputs):
        if item is not None and is_narrow(item):
            variable = _formal(schema.inputs, index)
            if f"tensor({NARROW[item.dtype]})" not in allowed.get(variable, ()):
                raise NotNative(f"{call.node.op_type} takes no {item.dtype}")
            bound[variable] = item.dtype
    return lambda index: bound.get(_formal(schema.outputs, index), "")


@cache
def _schema(op_type: str, opset: int, domain: str) -> Any:
    from onnx import defs

    try:
        return defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        raise NotNative(f"the types of {op_type} are not known") from None


def _formal(formals: Sequence[Any], index: int) -> str:
    """The type of a formal input or output; the last one may stand for many."""
    return str(formals[min(index, len(formals) - 1)].type_str) if formals else ""


def _typed(call: Call, item: Tensor, dtype: str) -> Tensor:
    """An output in its type, rounded if it was computed."""
    if not dtype:
        return item
    if call.node.op_type in _MOVING:
        return replace(item, dtype=dtype)
    return in_type(call, item, dtype)


def in_type(call: Call, item: Tensor, dtype: str, how: Rounding | None = None) -> Tensor:
    """Numbers as a tensor of a narrow type."""
    if item.value is not None:
        return replace(item, dtype=dtype, value=rounded_array(item.value, dtype, how), labels=None)
    tensor = Tensor.of(rounded(call.flow(item), dtype, how), item.shape, item.axis)
    return replace(tensor, dtype=dtype)
