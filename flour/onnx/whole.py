"""A model as one operator that onnxruntime runs, with ONNX's own values in and out.

For models whose outputs are not one tensor for each row: several open dimensions, sequences and
maps, operators that mix rows in unknown ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flour.core.errors import MissingColumn, OpaqueFailed
from flour.core.types import Text, Tokens, Whole
from flour.language.flow import Flow, outputs, source
from flour.onnx.model import ModelDef
from flour.onnx.opaque import (
    OWN_BYTES,
    SHARED_BYTES,
    is_large,
    oldest,
    small_constant,
    weight_input,
)
from flour.onnx.program import OnnxProgram
from flour.onnx.reading import as_written, parsed, read_model
from flour.ops.opaque import Opaque, PartWire
from flour.ops.trees.trees import TreeLeaves, Trees
from flour.sessions import ort


@dataclass(frozen=True)
class WholeProgram(OnnxProgram):
    """A program over ONNX's own values, without a conversion."""

    #: Of each output the type and shape that onnxruntime works out.
    told: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    def feed(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The values by input name; all must be present."""
        for name in self.flow.inputs():
            if name not in arrays:
                raise MissingColumn(
                    f"there is no value for the input {name!r}",
                    where="$",
                    found=", ".join(arrays) or "nothing",
                )
        return dict(arrays)

    def run(
        self, run: Callable[[Any], Mapping[str, Any]], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """ONNX's answers to ONNX's values."""
        return run(self.feed(arrays))

    def answer(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The values by output name."""
        return dict(columns)


def whole_model(model: object) -> WholeProgram | None:
    """The program of a model that onnxruntime runs from end to end; None where it cannot."""
    try:
        return whole(model, read_model(model), OWN_BYTES)
    except OpaqueFailed:
        return None


def is_better_whole(program: OnnxProgram) -> bool:
    """True if a part takes longer than the native code around it could save.

    Native trees and texts are worth a change of stages; arithmetic around a part is not.
    """
    nodes = list(program.flow.nodes())
    if isinstance(program, WholeProgram) or not any(isinstance(i.op, Opaque) for i in nodes):
        return False
    return not any(
        isinstance(item.op, Trees | TreeLeaves) or isinstance(item.type, Text | Tokens)
        for item in nodes
    )


def whole(model: object, definition: ModelDef, large: int = SHARED_BYTES) -> WholeProgram:
    """The program of a model that onnxruntime runs from end to end.

    Constants of at least `large` bytes are parameters of their own.
    """
    constants = definition.graph.constants
    weights = {n: a for n, a in constants.items() if is_large(a) and a.nbytes >= large}
    data = _standing_alone(model, definition, weights)
    where = "the whole model"
    session = ort.session(data, where)
    inputs = [item for item in session.get_inputs() if item.name not in weights]
    outputs = {
        item.name: item for item in session.get_outputs()
    }.values()  # an output may be listed twice
    op = Opaque(
        ort.as_array(data),
        tuple(weights.values()),
        tuple(weights),
        reads=tuple(PartWire(item.name, item.type) for item in inputs),
        leaves=tuple(PartWire(item.name, item.type) for item in outputs),
        layout="whole",
        place=where,
    )
    told = {item.name: (str(item.type), item.shape) for item in outputs}
    return WholeProgram(definition, _flow(op), (), (), static=True, told=told)


def _flow(op: Opaque) -> Flow:
    answer = op(*(source(wire.name, Whole(wire.kind)) for wire in op.inputs))
    if len(op.outputs) == 1:
        return answer.named(op.outputs[0].name)
    return outputs(**{wire.name: answer.field(wire.name) for wire in op.outputs})


def _standing_alone(model: object, definition: ModelDef, weights: Mapping[str, Any]) -> bytes:
    """The model with its constants inside, the large ones among its inputs."""
    from onnx import ModelProto

    proto = ModelProto()
    proto.CopyFrom(as_written(model) if definition.functions else parsed(model))
    proto.ir_version = min(max(proto.ir_version, 4), 10)
    versions = oldest(definition, proto.graph.node)
    for item in proto.opset_import:
        if item.domain in ("", "ai.onnx"):
            item.version = versions[""]
    constants = definition.graph.constants
    graph = proto.graph
    inputs = [item for item in graph.input if item.name not in constants]
    del graph.input[:], graph.initializer[:], graph.sparse_initializer[:]
    graph.input.extend([*inputs, *(weight_input(n, a) for n, a in weights.items())])
    graph.initializer.extend(small_constant(n, a) for n, a in constants.items() if n not in weights)
    data: bytes = proto.SerializeToString()
    return data
