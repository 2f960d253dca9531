"""Walk an ONNX model and write the program it computes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flour.core import provenance
from flour.core.errors import FlourError, OpaqueFailed, ParameterError
from flour.core.modules import paused_collector
from flour.core.reference import evaluate
from flour.core.types import FLOATS, MAP_KEYS, Pairs, Record, Scalar, Text, Type, Vector
from flour.language.flow import Flow, outputs, source
from flour.language.sources import concat
from flour.onnx.errors import NotNative, TooLarge
from flour.onnx.model import GraphDef, GraphPort, ModelDef, NodeDef
from flour.onnx.opaque import OWN_BYTES, SHARED_BYTES, PendingNodes
from flour.onnx.program import ROWS, OnnxProgram, ProgramInput, ProgramOutput, is_single
from flour.onnx.reading import opened, read_model
from flour.onnx.registry import NodeUse, adapter_of
from flour.onnx.tensor import Tensor, native_dtype, sizes_fit
from flour.onnx.whole import is_better_whole, whole
from flour.onnx.words import Listed, Map, refuse_words
from flour.ops.opaque import Opaque
from flour.sessions.proving import proving

#: Operators that are named in the model's domain but come from this version on.
LATEST = 1 << 30
#: The most values of all tensors of a row: each is a constant, or a table of indices.
MAX_MADE = 1 << 28
#: numpy has no arrays of more dimensions than 64, and rows take one.
MAX_RANK = 63
#: The exceptions that reading a node unlike its operator's definition may raise.
_MISTAKES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(TypeError, ValueError),
)


def from_onnx(
    model: object,
    *,
    native_only: bool = False,
    rows: bool | None = None,
    fixed: Mapping[str, Any] | None = None,
    prove: bool = False,
) -> Flow:
    """The program of an ONNX model: a path, the file's bytes or a ModelProto.

    Inputs and outputs have the model's names; several inputs of one value per row are the columns
    of a record. The first dimension is that of the rows if the model leaves it open, or if `rows`
    says so; else a whole tensor is one row, flattened. With `native_only`, a model that needs
    onnxruntime for a part is refused. Inputs named in `fixed` become constants of that value:
    shapes, axes and thresholds that a model takes as inputs. With `prove`, parts for onnxruntime
    are first run in a process of their own, as onnxruntime can end the process that it is in.
    """
    with paused_collector(), proving(on=prove):
        whole = opened(model)
        made = import_model(whole, native_only=native_only, rows=rows, fixed=fixed)
        return _gathered(whole, made, rows=rows, fixed=fixed or {}).flow


def _gathered(
    model: object, program: OnnxProgram, *, rows: bool | None, fixed: Mapping[str, Any]
) -> OnnxProgram:
    """The program with all of the model in one part, where that is possible and faster.

    There must be no difference from outside: inputs and outputs are the same, and rows that were
    independent remain so.
    """
    if not is_better_whole(program):
        return program
    try:
        one = OnnxImport(_definition(model, fixed), native_only=False, rows=rows, apart=False).run()
    except FlourError:
        return program
    parts = [item.op for item in one.flow.nodes() if isinstance(item.op, Opaque)]
    mixed = any(item.op.mixes_rows() for item in program.flow.nodes())
    same = (one.flow.types, one.flow.inputs()) == (program.flow.types, program.flow.inputs())
    return one if same and len(parts) == 1 and (mixed or not parts[0].mixes_rows()) else program


def import_model(
    model: object,
    *,
    native_only: bool = False,
    rows: bool | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> OnnxProgram:
    """The program of an ONNX model, and the means to call it with ONNX's own arrays."""
    definition = _definition(model, fixed or {})
    try:
        program = _over_rows(OnnxImport(definition, native_only=native_only, rows=rows))
        return program or whole(model, definition)
    except FlourError as problem:
        problem.where = problem.where or f"the graph '{definition.graph.name}'"
        raise


def _over_rows(importer: OnnxImport) -> OnnxProgram | None:
    """The program over rows; None where the whole model may go to onnxruntime instead."""
    try:
        return importer.run()
    except NotNative:
        if importer.native_only:
            raise
    except OpaqueFailed:
        # For onnxruntime one map is one row: a part made for that may not fit several rows.
        if not any(port.kind == "map" for port in importer.model.graph.inputs):
            raise
    return None


def _definition(model: object, fixed: Mapping[str, Any]) -> ModelDef:
    definition = read_model(model)
    return _with_fixed(definition, fixed) if fixed else definition


def _with_fixed(model: ModelDef, fixed: Mapping[str, Any]) -> ModelDef:
    """The model with these inputs as constants of their declared types."""
    ports = {port.name: port for port in model.graph.inputs}
    values = {}
    for name, value in fixed.items():
        if name not in ports:
            raise ParameterError(
                f"the model has no input {name!r} to fix",
                where="fixed",
                found=", ".join(ports) or "no inputs",
            )
        dtype = native_dtype(ports[name].dtype)
        values[name] = np.asarray(value, object if dtype == "string" else dtype)
    return replace(model, graph=model.graph.fixed(values))


class OnnxImport:
    """One model being imported: the values made so far, by name."""

    def __init__(
        self, model: ModelDef, *, native_only: bool, rows: bool | None, apart: bool = True
    ) -> None:
        self.model = model
        #: Nodes with native code are kept apart from those without; else all go to onnxruntime.
        self._apart = apart
        self.native_only = native_only
        if rows is None:  # an input's first dimension is open, or a row of one is a map
            has_rows = any(
                port.kind == "map" or (port.shape and not isinstance(port.shape[0], int))
                for port in model.graph.inputs
            )
        self.static = not (has_rows if rows is None else rows)
        #: The first dimension of every input is that of the rows, even if declared otherwise.
        self.all_rows = rows is True
        self.values: ChainMap[str, Tensor] = ChainMap()
        #: The reasons why values are missing, by name.
        self.absent: dict[str, str] = {}
        self.refused: list[tuple[NodeDef, str]] = []
        self._anchor: Flow | None = None
        self._total_size = 0
        self._answered = {port.name for port in model.graph.outputs}
        self._pending = PendingNodes(model, SHARED_BYTES if apart else OWN_BYTES)

    def run(self) -> OnnxProgram:
        """The whole program."""
        graph = self.model.graph
        entries = self._enter(graph.inputs)
        self._constants(graph)
        for node in graph.nodes:
            self._try(node)
        if not self.native_only:
            tried = self._pending.tried((port.name for port in graph.outputs), self.values)
            self.values.update(tried.tensors)
            self._pending.settle(tried)
        self._complain()
        answers = tuple(ProgramOutput(port, self.values[port.name]) for port in graph.outputs)
        flows = {item.port.name: self._flow(item.tensor) for item in answers}
        return OnnxProgram(self.model, _reading(outputs(**flows)), entries, answers, self.static)

    # --- inputs and outputs ----------------------------------------------------------------------

    def _enter(self, ports: Sequence[GraphPort]) -> tuple[ProgramInput, ...]:
        """The program's inputs, as values by name."""
        shapes = {}
        for port in ports:
            try:
                shapes[port.name] = self._row(port)
            except NotNative as problem:
                self.absent[port.name] = f"input '{port.name}': {problem.what}"
        kinds = {p.name: _source_type(p, *shapes[p.name]) for p in ports if p.name in shapes}
        flows = _sources(kinds, static=self.static)
        for port in ports:
            if port.name in shapes:
                self.values[port.name] = _entered(port, flows[port.name], *shapes[port.name])
        tensors = [self.values[port.name] for port in ports if port.name in shapes]
        first = next((item for item in tensors if item.axis is not None), None)
        anchor = first or next(iter(tensors), None)
        self._anchor = anchor.flow if anchor else source(ROWS, Scalar("float64")).as_vector()
        return tuple(ProgramInput(p, self.values[p.name]) for p in ports if p.name in shapes)

    def _row(self, port: GraphPort) -> tuple[tuple[int, ...], int | None]:
        """The shape and axis of an input's rows."""
        if port.kind == "map" and port.key in MAP_KEYS and port.dtype in FLOATS:
            return (1,), 0
        if port.kind != "tensor":
            raise NotNative(f"a {port.kind} as input")
        native_dtype(port.dtype)
        if port.shape is None:
            raise NotNative("its number of dimensions is not declared")
        rows = not self.static and bool(port.shape)
        rows = rows and (self.all_rows or not isinstance(port.shape[0], int))
        inner = port.shape[1:] if rows else port.shape
        if any(not isinstance(size, int) for size in inner):
            raise NotNative(f"more than its first dimension is open: {list(port.shape)}")
        shape = ((1,) if rows else ()) + tuple(size for size in inner if isinstance(size, int))
        sizes_fit(shape, "the input")
        return shape, 0 if rows else None

    def _flow(self, tensor: Tensor) -> Flow:
        """An output's flow: dense as ONNX's tensors are, one value per row a scalar."""
        if isinstance(tensor, Listed):
            flows = [self._flow(replace(item, axis=None)) for item in tensor.items if item.size]
            if not flows:
                raise NotNative("an empty list")
            return flows[0] if len(flows) == 1 else concat(*flows)
        flow = self._call(NodeDef("output", "", "", (), ()), (), self._anchor).flow(tensor)
        if not isinstance(flow.type, Vector):
            return flow
        flow = flow.to_dense() if flow.type.sparse else flow
        return flow.element(0) if is_single(tensor) else flow

    # --- nodes ------------------------------------------------------------------------------

    def _constants(self, graph: GraphDef) -> None:
        for name, value in graph.constants.items():
            self.values[name] = Tensor.constant(value)

    def _try(self, node: NodeDef) -> None:
        """Make a node's outputs, or record why it has no native code."""
        if not self.native_only:
            self._try_among(node)
            return
        missing = [name for name in self._reads(node) if name in self.absent]
        try:
            if missing:
                raise NotNative(f"reads '{missing[0]}', which is not native")
            self.apply(node)
        except NotNative as problem:
            if not missing:
                self.refused.append((node, problem.what))
            self.absent.update(dict.fromkeys(filter(None, node.outputs), problem.what))

    def _try_among(self, node: NodeDef) -> None:
        """Make a node's outputs, or leave the node to onnxruntime, with those before it."""
        if not self._apart:
            self._pending.add(node)
            return
        around = self.values
        try:
            adapter_of(node.domain, node.op_type, self._opset(node))
            tried = self._pending.tried(self._reads(node), around)
            self.values = around.new_child(tried.tensors)
            if missing := [name for name in self._reads(node) if name not in self.values]:
                raise NotNative(f"reads '{missing[0]}', which is no tensor of rows")
            self.apply(node)
        except NotNative as problem:
            self.values = around
            self.refused.append((node, problem.what))
            self._pending.add(node)
        else:
            around.update(self.values.maps[0])
            self.values = around
            self._pending.settle(tried)

    def _opset(self, node: NodeDef) -> int:
        return self.model.opsets.get(node.domain, LATEST)

    @staticmethod
    def _reads(node: NodeDef) -> list[str]:
        return [*node.inputs, *(name for inner in node.graphs() for name in inner.free_names())]

    def apply(self, node: NodeDef) -> None:
        """Make a node's outputs; if all its inputs are constants, so are they."""
        inputs = tuple(self.values[name] if name else None for name in node.inputs)
        refuse_words(node.op_type, inputs)
        is_constant = all(item is None or item.known for item in inputs) and not node.graphs()
        anchor = source(ROWS, Scalar("float64")).as_vector() if is_constant else self._anchor
        call = self._call(node, inputs, anchor)
        adapter = adapter_of(node.domain, node.op_type, call.opset)
        with provenance.step(node.place):
            results = _adapted(adapter, call)
        if any(item is not None and item.rank > MAX_RANK for item in results):
            raise NotNative(f"a tensor of more than {MAX_RANK} dimensions")
        refuse_words(
            "", [item for item in results if item is not None] if self.answers(node) else ()
        )
        self._total_size += sum(
            item.size
            for item in results
            if item is not None and not any(item is each for each in inputs)
        )
        if self._total_size > MAX_MADE:
            raise NotNative("values and index tables would fill the memory")
        for name, item in zip(node.outputs, results, strict=False):
            if name and item is not None:
                self.values[name] = folded(item) if is_constant else item
        for name in node.outputs[len(results) :]:
            if name:
                self.absent[name] = f"{node.title} does not make this output here"

    def answers(self, node: NodeDef) -> bool:
        """True if an output of the node is an output of the model."""
        return not self._answered.isdisjoint(node.outputs)

    def _call(self, node: NodeDef, inputs: tuple[Tensor | None, ...], anchor: Any) -> NodeUse:
        return NodeUse(node, inputs, self._opset(node), self, anchor)

    def inner(self, graph: GraphDef, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The outputs of an inner graph; every node of it must be native."""
        if len(inputs) != len(graph.inputs):
            raise NotNative(f"an inner graph of {len(graph.inputs)} inputs gets {len(inputs)}")
        around = self.values
        self.values = around.new_child()
        try:
            for port, item in zip(graph.inputs, inputs, strict=True):
                self.values[port.name] = item
            self._constants(graph)
            for node in graph.nodes:
                try:
                    missing = next(
                        (name for name in self._reads(node) if name in self.absent), None
                    )
                    if missing is not None and missing not in self.values:
                        raise NotNative(f"reads '{missing}', which is not native")
                    self.apply(node)
                except NotNative as problem:
                    raise NotNative(f"{node.place}: {problem.what}") from None
            results = tuple(self.values[port.name] for port in graph.outputs)
            refuse_words("", results)
            return results
        finally:
            self.values = around

    def _complain(self) -> None:
        """Raise if an output of the model has no native code."""
        missing = [port.name for port in self.model.graph.outputs if port.name in self.absent]
        if not missing:
            return
        reasons = [f"{node.place}: {why}" for node, why in self.refused]
        reasons += [why for name, why in self.absent.items() if why.startswith("input ")]
        raise NotNative(
            "parts of the model have no native code",
            where=", ".join(missing),
            found="; ".join(reasons[:8] or [self.absent[missing[0]]]),
        )


def _reading(flow: Flow) -> Flow:
    """The program with a document as its input, where its only string is read as a document."""
    inputs = flow.inputs()
    if [*inputs.values()] != [Scalar("string")]:
        return flow
    try:
        return flow.retype(**dict.fromkeys(inputs, Text()))
    except FlourError:
        return flow


def folded(item: Tensor) -> Tensor:
    """A tensor that depends on no input, as a constant."""
    if isinstance(item, Listed):
        return replace(item, items=tuple(map(folded, item.items)))
    if item.flow is None:
        return item
    node = item.flow.node
    columns: Mapping[str, Any] = {ROWS: np.zeros(1)}
    value = np.asarray(evaluate([node], columns)[node])[0]
    return replace(Tensor.constant(value.reshape(item.shape), item.axis), labels=item.labels)


def _adapted(adapter: Any, call: NodeUse) -> tuple[Tensor | None, ...]:
    """The outputs of an adapter; an unexpected exception in it is a reason, too."""
    try:
        result = adapter(call)
        return result if isinstance(result, tuple) else (result,)
    except NotNative:
        raise
    except TooLarge as problem:
        problem.where = call.node.place
        raise
    except FlourError as problem:
        raise NotNative(problem.what) from problem
    except MemoryError as problem:
        raise NotNative("its values would fill the memory") from problem
    except _MISTAKES as problem:
        raise NotNative(f"this use is not understood ({problem})"[:160]) from problem


def _entered(port: GraphPort, flow: Flow, shape: tuple[int, ...], axis: int | None) -> Tensor:
    """The tensor of a row of an input."""
    if port.kind == "map":
        return Map(shape, port.dtype, axis, flow, key=port.key)
    # The model's own dtype, for data of any float width.
    dtype = str(getattr(flow.type, "dtype", "string"))
    return Tensor.of(flow if dtype == "string" else flow.cast(dtype), shape, axis)


def _source_type(port: GraphPort, shape: tuple[int, ...], axis: int | None) -> Type:
    if port.kind == "map":
        return Pairs(keys=port.key)
    tensor, dtype = Tensor(shape, port.dtype, axis), native_dtype(port.dtype)
    return Scalar(dtype) if is_single(tensor) else Vector(tensor.size, dtype)


def _sources(kinds: Mapping[str, Type], *, static: bool) -> dict[str, Flow]:
    """The program's inputs; several of one value per row are the columns of a record."""
    narrow = all(
        isinstance(kind, Scalar) or (isinstance(kind, Vector) and kind.width == 1)
        for kind in kinds.values()
    )
    if static or len(kinds) < 2 or not narrow:
        return {name: source(name, kind) for name, kind in kinds.items()}
    fields = tuple((name, Scalar(kind.dtype)) for name, kind in kinds.items())  # type: ignore[union-attr]  # no records here
    record = source("X", Record(fields))
    return {name: record.columns([name]) for name in kinds}


__all__ = ["OnnxImport", "from_onnx", "import_model"]
