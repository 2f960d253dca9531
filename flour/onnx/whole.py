"""A model as one operator, with ONNX's own values in and out: whatever onnxruntime can run, runs.

For models whose answers are not one tensor for each row: several open dimensions, sequences and
maps, operators that mix rows in ways nobody can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flour.core.errors import MissingColumn, OpaqueFailed
from flour.core.types import Text, Tokens, Whole
from flour.language.flow import Flow, outputs, source
from flour.onnx import ort
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
from flour.ops.opaque import Opaque, Wire
from flour.ops.trees.trees import TreeLeaves, Trees


@dataclass(frozen=True)
class WholeProgram(OnnxProgram):
    """A program over ONNX's own values: nothing is translated."""

    def feed(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The values by input name, all there."""
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
    """Whether a part takes longer than all that is native around it could save.

    Trees and texts are worth the way from stage to stage; arithmetic around a part is not.
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

    Constants of so many bytes are parameters of their own.
    """
    constants = definition.graph.constants
    weights = {n: a for n, a in constants.items() if is_large(a) and a.nbytes >= large}
    data = _standing_alone(model, definition, weights)
    place = "the whole model"
    session = ort.session(data, place)
    given = [item for item in session.get_inputs() if item.name not in weights]
    made = {item.name: item for item in session.get_outputs()}.values()  # one may be there twice
    op = Opaque(
        ort.as_array(data),
        tuple(weights.values()),
        tuple(weights),
        reads=tuple(Wire(item.name, item.type) for item in given),
        leaves=tuple(Wire(item.name, item.type) for item in made),
        layout="whole",
        place=place,
    )
    return WholeProgram(definition, _flow(op), (), (), static=True)


def _flow(op: Opaque) -> Flow:
    answer = op(*(source(wire.name, Whole(wire.kind)) for wire in op.inputs))
    if len(op.outputs) == 1:
        return answer.named(op.outputs[0].name)
    return outputs(**{wire.name: answer.field(wire.name) for wire in op.outputs})


def _standing_alone(model: object, definition: ModelDef, weights: Mapping[str, Any]) -> bytes:
    """The model with its constants inside, the large ones among its inputs."""
    from onnx import ModelProto

    made = ModelProto()
    made.CopyFrom(as_written(model) if definition.functions else parsed(model))
    made.ir_version = min(max(made.ir_version, 4), 10)
    versions = oldest(definition, made.graph.node)
    for item in made.opset_import:
        if item.domain in ("", "ai.onnx"):
            item.version = versions[""]
    constants = definition.graph.constants
    graph = made.graph
    kept = [item for item in graph.input if item.name not in constants]
    del graph.input[:], graph.initializer[:], graph.sparse_initializer[:]
    graph.input.extend([*kept, *(weight_input(n, a) for n, a in weights.items())])
    graph.initializer.extend(small_constant(n, a) for n, a in constants.items() if n not in weights)
    data: bytes = made.SerializeToString()
    return data
