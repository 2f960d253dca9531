"""The inputs and outputs of a model in ONNX's terms: name, type and shape."""

from __future__ import annotations

from typing import Any, NamedTuple

from flour.data.coerce import WHOLE_DTYPES
from flour.onnx.program import OnnxProgram
from flour.onnx.reading import parsed
from flour.onnx.tensors import dtype_of
from flour.onnx.whole import WholeProgram
from flour.onnx.words import Listed

_NAMES = {dtype: name for name, dtype in WHOLE_DTYPES.items()}
#: Element types that columns cannot have.
_OTHERS = {
    **{name: name for name in ("float16", "bfloat16", "complex64", "complex128")},
    **{name: name for name in ("int4", "uint4", "int2", "uint2")},
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}


class ValueInfo(NamedTuple):
    """An input or output: "tensor(float)" of shape ["N", 4], a sequence, a map."""

    name: str
    type: str
    shape: list[int | str | None] | None


def signature(
    model: object, program: OnnxProgram
) -> tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]:
    """The inputs and the outputs of a model; undeclared types and shapes come from the program."""
    graph = parsed(model).graph
    constants = program.model.graph.constants
    tensors = {item.port.name: item.tensor for item in program.outputs}
    inputs = tuple(_value(item, None) for item in graph.input if item.name not in constants)
    outputs = tuple(_value(item, tensors.get(item.name)) for item in graph.output)
    if isinstance(program, WholeProgram):
        outputs = tuple(_told(item, *program.told[item.name]) for item in outputs)
    return inputs, outputs


def _told(value: ValueInfo, kind: str, shape: list[int | str | None]) -> ValueInfo:
    """An output of a whole model as it is declared, else as onnxruntime works it out."""
    undefined = value.type in ("", "tensor(undefined)")
    return ValueInfo(
        value.name,
        kind if undefined else value.type,
        shape if undefined or value.shape is None else value.shape,
    )


def overridable(model: object, program: OnnxProgram) -> tuple[ValueInfo, ...]:
    """The inputs that are constants unless something else is fed into them."""
    constants = program.model.graph.constants
    return tuple(_value(item, None) for item in parsed(model).graph.input if item.name in constants)


def _value(proto: Any, tensor: Any) -> ValueInfo:
    kind = type_name(proto.type)
    shape, undefined = _shape(proto.type), not kind or kind == "tensor(undefined)"
    if tensor is not None and undefined and (tensor.labels or isinstance(tensor, Listed)):
        return ValueInfo(str(proto.name), _listed(tensor), [])
    if tensor is not None and undefined:
        kind = _named(tensor.dtype)
    if tensor is not None and (undefined or shape is None):
        shape = [None if axis == tensor.axis else n for axis, n in enumerate(tensor.shape)]
    return ValueInfo(str(proto.name), kind, shape)


def _named(dtype: str) -> str:
    return _NAMES.get(dtype) or f"tensor({_OTHERS[dtype]})"


def _listed(listed: Any) -> str:
    """A list of maps by names, or of tensors."""
    if listed.labels is None:
        return f"seq({_named(listed.items[0].dtype)})"
    key = "string" if isinstance(listed.labels[0], str) else "int64"
    return f"seq(map({key},tensor(float)))"


def type_name(proto: Any) -> str:
    """A type as onnxruntime writes it."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element(proto.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({_element(proto.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({type_name(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_name(proto.optional_type.elem_type)})"
        case "map_type":
            key = _element(proto.map_type.key_type)
            return f"map({key},{type_name(proto.map_type.value_type)})"
    return ""


def _element(kind: int) -> str:
    if not kind:
        return "undefined"
    dtype = dtype_of(kind)
    name = _OTHERS.get(dtype) or _NAMES.get(dtype, "")
    return name.removeprefix("tensor(").removesuffix(")") or f"onnx{kind}"


def _shape(proto: Any) -> list[int | str | None] | None:
    if proto.WhichOneof("value") != "tensor_type" or not proto.tensor_type.HasField("shape"):
        return [] if proto.WhichOneof("value") != "tensor_type" else None
    return [
        int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value >= 0
        else dim.dim_param or None
        for dim in proto.tensor_type.shape.dim
    ]
