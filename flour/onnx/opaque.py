"""Parts of a model without native code, as operators that onnxruntime runs.

`opaque` makes one such operator of some nodes and the values they read. The shape of a row of its
outputs comes from onnxruntime itself: the part is loaded for two numbers of rows, and the dimension
that grows with them is that of the rows. Without such a dimension the part cannot be a step among
others, and the model runs as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core import provenance
from flour.core.errors import OpaqueFailed
from flour.core.types import Vector
from flour.data.coerce import WHOLE_DTYPES
from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.model import ModelDef, NodeDef
from flour.onnx.tensor import Tensor
from flour.onnx.words import Special
from flour.ops.opaque import Opaque, PartWire
from flour.sessions import ort

#: Constants from this size on are parameters of their own, shared by all models that use them.
SHARED_BYTES = 1024
#: In a model that is one part, constants below this size stay inside the session: it packs them,
#: and passing one in costs half a microsecond.
OWN_BYTES = 1 << 16
#: Two numbers of rows that no dimension of a model is likely to be a multiple of.
PROBES = (7, 11)


#: The most attempts to cut a model into parts before it runs as a whole.
MAX_TRIES = 200


class Unrowed(NotNative):
    """A part whose outputs are not one tensor for each row."""


@dataclass(frozen=True)
class OpaquePart:
    """Nodes that onnxruntime runs, their inputs from outside, and the outputs others read."""

    model: ModelDef
    nodes: tuple[NodeDef, ...]
    reads: Mapping[str, Tensor]
    constants: Mapping[str, Any]
    leaves: tuple[str, ...]
    #: Constants from this size on are passed in.
    large: int = SHARED_BYTES

    @property
    def place(self) -> str:
        """The part's nodes, for messages."""
        names = [node.place for node in self.nodes[:4]]
        return ", ".join(names) + (", ..." if len(self.nodes) > 4 else "")

    @property
    def weights(self) -> dict[str, Any]:
        """The constants that are parameters of their own."""
        return {
            name: array
            for name, array in self.constants.items()
            if is_large(array) and array.nbytes >= self.large
        }

    def layout(self) -> str:
        """True if its values are rows behind one another, or one tensor for each row."""
        axes = {item.axis is None for item in self.reads.values()}
        if len(axes) > 1:
            raise Unrowed("values with rows and values without in one part")
        return "each" if axes == {True} else "rows"

    def proto(self, rows: int | None) -> bytes:
        """The part as a model of its own, for a number of rows or any."""
        from onnx import TensorProto, helper

        weights = self.weights
        inputs = [_declared(name, item, rows) for name, item in self.reads.items()]
        inputs += [weight_input(n, a) for n, a in weights.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.leaves]
        small = [small_constant(n, a) for n, a in self.constants.items() if n not in weights]
        nodes = [_node(item) for item in self.nodes]
        graph = helper.make_graph(nodes, "part", inputs, outputs, small)
        for item in graph.output:  # onnxruntime infers their types
            item.type.tensor_type.elem_type = TensorProto.UNDEFINED
            item.ClearField("type")
        opsets = [helper.make_opsetid(*entry) for entry in oldest(self.model, nodes).items()]
        # From version 4 on constants need not be inputs; newer ones than 10 may be unknown.
        version = min(max(self.model.ir_version, 4), 10)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
        data: bytes = model.SerializeToString()
        return data


def opaque(part: OpaquePart) -> dict[str, Tensor]:
    """The part's outputs as tensors by name; Unrowed if they are not one tensor for each row."""
    layout = part.layout()
    for node in _with_inner(_node(item) for item in part.nodes):
        if (node.domain, node.op_type) in part.model.functions:
            raise Unrowed(f"'{node.op_type}' is a function of the model's own")
    shapes = _shapes(part, layout)
    weights = part.weights
    op = Opaque(
        ort.as_array(part.proto(None)),
        tuple(weights.values()),
        tuple(weights),
        reads=tuple(PartWire(n, t.dtype, t.shape, t.axis or 0) for n, t in part.reads.items()),
        leaves=tuple(PartWire(n, t.dtype, t.shape, t.axis or 0) for n, t in shapes.items()),
        layout=layout,
        mixes=not keeps_rows_apart(part),
        place=part.place,
    )
    if not part.reads:
        raise Unrowed("it has no input that depends on a row")
    with provenance.step(part.place):
        output = op(*(_flow(item) for item in part.reads.values()))
    flows = {name: output if len(shapes) == 1 else output.field(name) for name in shapes}
    return {name: Tensor.of(flows[name], t.shape, t.axis) for name, t in shapes.items()}


def _flow(item: Tensor) -> Flow:
    assert item.flow is not None, "constants are part of the model"
    kind = item.flow.type
    return item.flow.to_dense() if isinstance(kind, Vector) and kind.sparse else item.flow


# --- the shapes of outputs ------------------------------------------------------------------------


def _shapes(part: OpaquePart, layout: str) -> dict[str, Tensor]:
    """A row of each output, without a flow yet."""
    if layout == "each":
        probed = _probe(part, 1)
        return {n: Tensor(shape, dtype, None) for n, (dtype, shape) in probed.items()}
    few, many = (_probe(part, rows) for rows in PROBES)
    return {name: _rows(name, dtype, shape, many[name][1]) for name, (dtype, shape) in few.items()}


def _rows(name: str, dtype: str, few: tuple[int, ...], many: tuple[int, ...]) -> Tensor:
    """The shape of a row, from the shapes for two numbers of rows."""
    grown = [axis for axis, (a, b) in enumerate(zip(few, many, strict=False)) if a != b]
    if len(few) != len(many) or len(grown) != 1:
        raise Unrowed(f"'{name}' has no dimension of rows")
    axis = grown[0]
    times, rest = divmod(few[axis], PROBES[0])
    if rest or many[axis] != times * PROBES[1]:
        raise Unrowed(f"'{name}' does not grow with the rows")
    return Tensor((*few[:axis], times, *few[axis + 1 :]), dtype, axis)


def _probe(part: OpaquePart, rows: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The dtypes and shapes of the outputs for this number of rows, as onnxruntime infers them."""
    session = _session_for(part, rows)
    outputs = {item.name: (item.type, item.shape) for item in session.get_outputs()}
    shapes = [shape for _, shape in outputs.values()]
    # onnxruntime gives [] for a single number, but also for a value of unknown shape.
    if not all(shape and all(isinstance(size, int) for size in shape) for shape in shapes):
        outputs = _tried(part, session, rows)
    result = {}
    for name, (kind, shape) in outputs.items():
        if kind not in WHOLE_DTYPES:
            raise Unrowed(f"'{name}' is {kind}")
        result[name] = WHOLE_DTYPES[kind], tuple(map(int, shape))
        if min(result[name][1], default=0) < 0:
            what = "onnxruntime works out a negative length"
            raise OpaqueFailed(what, where=part.place, found=f"{name}: {shape}")
    return result


def _session_for(part: OpaquePart, rows: int) -> Any:
    """A session of the part for so many rows; Unrowed where only other numbers of rows fit."""
    try:
        return ort.session(part.proto(rows), part.place)
    except OpaqueFailed:
        ort.session(part.proto(None), part.place)  # an error of its own if no number of rows fits
        raise Unrowed(f"its constants do not fit {rows} rows") from None


def _tried(part: OpaquePart, session: Any, rows: int) -> dict[str, tuple[str, Any]]:
    """The shapes of the outputs for zeros, where shapes cannot depend on the values."""
    if not all(map(_is_known, part.nodes)):
        raise Unrowed("the shape of an output depends on the values")
    feed = {name: _zeros(item, rows) for name, item in part.reads.items()} | part.weights
    try:
        values = session.run(None, feed)
    except Exception as problem:
        raise ort.failure("onnxruntime cannot run", problem, part.place) from problem
    kinds = {item.name: item.type for item in session.get_outputs()}
    return {
        name: (kind, np.shape(v)) for (name, kind), v in zip(kinds.items(), values, strict=True)
    }


def _zeros(item: Tensor, rows: int) -> Any:
    shape = _joined(item, rows)
    return np.full(shape, "", object) if item.dtype == "string" else np.zeros(shape, item.dtype)


def _joined(item: Tensor, rows: int) -> tuple[int, ...]:
    """The ONNX shape of this number of rows of a tensor."""
    if item.axis is None:
        return item.shape
    return PartWire("", item.dtype, item.shape, item.axis).joined(rows)


# --- protobuf -------------------------------------------------------------------------------------


def _declared(name: str, item: Tensor, rows: int | None) -> Any:
    from onnx import helper

    shape: list[int | None] = list(_joined(item, rows or 1))
    if rows is None and item.axis is not None:
        shape[item.axis] = None
    return helper.make_tensor_value_info(name, _element(item.dtype), shape)


def _element(dtype: str) -> int:
    from onnx import TensorProto, helper

    return (
        TensorProto.STRING
        if dtype == "string"
        else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    )


def weight_input(name: str, array: NDArray[Any]) -> Any:
    """The declaration of a constant that is passed in."""
    from onnx import helper

    return helper.make_tensor_value_info(name, _element(str(array.dtype)), array.shape)


def small_constant(name: str, array: NDArray[Any]) -> Any:
    """A constant as a part of the model."""
    from onnx import helper, numpy_helper

    values = np.asarray(array)
    if values.dtype.kind in "OUS":
        texts = [str(item).encode("utf-8", "surrogateescape") for item in values.reshape(-1)]
        return helper.make_tensor(name, _element("string"), values.shape, texts)  # type: ignore[arg-type]  # strings are bytes
    return numpy_helper.from_array(values, name)


def _node(item: NodeDef) -> Any:
    from onnx import NodeProto

    return NodeProto.FromString(item.data)


def is_large(array: NDArray[Any]) -> bool:
    """True if a constant is a parameter of its own."""
    kinds = {*WHOLE_DTYPES.values()} - {"string"}
    return bool(array.nbytes >= SHARED_BYTES and array.ndim <= 8 and array.dtype.name in kinds)


def oldest(model: ModelDef, nodes: Iterable[Any]) -> dict[str, int]:
    """The operator sets, ONNX's own as old as it may be: onnxruntime lags behind the newest.

    An operator means the same in every version from the one on that it was last changed in.
    """
    from onnx import defs

    opset = model.opsets.get("")
    if opset is None:
        return dict(model.opsets)
    since = 7
    for node in _with_inner(nodes):
        if node.domain in ("", "ai.onnx"):
            with suppress(
                defs.SchemaError, TypeError
            ):  # an unknown operator, or a name that is no text
                since = max(since, defs.get_schema(node.op_type, opset).since_version)
    return {**model.opsets, "": min(opset, since)}


def _with_inner(nodes: Iterable[Any]) -> Iterator[Any]:
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        for item in node.attribute:
            for graph in (item.g, *item.graphs):
                stack.extend(graph.node)


# --- what mixes rows ------------------------------------------------------------------------------

#: Operators that compute one value from each value, or from values at the same index.
_ELEMENTWISE = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater
    GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log
    Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin
    Sinh Softplus Softsign Sqrt StringConcat Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
    RegexFullMatch
    """.split()  # noqa: SIM905 (a line each would be a page)
)


#: The operators on each value, by domain.
_APART = {
    "": _ELEMENTWISE,
    "ai.onnx.ml": frozenset({"Binarizer", "CategoryMapper", "LabelEncoder"}),
}
#: The operators on one row of a matrix at a time, and on a vector as one row, by domain.
_ROWWISE = {
    "": frozenset({"TfIdfVectorizer"}),
    "ai.onnx.ml": frozenset(
        """
        ArrayFeatureExtractor FeatureVectorizer Imputer LinearClassifier LinearRegressor
        Normalizer OneHotEncoder Scaler SVMClassifier SVMRegressor TreeEnsemble
        TreeEnsembleClassifier TreeEnsembleRegressor
        """.split()  # noqa: SIM905 (a line each would be a page)
    ),
}


def keeps_rows_apart(part: OpaquePart) -> bool:
    """True if certainly no row's output depends on another row; unknown operators may mix rows."""
    flat = {name for name, item in part.reads.items() if item.axis != 0 or item.rank < 2}
    for node in part.nodes:
        reads_flat = not flat.isdisjoint(node.inputs)
        if not _is_known(node) or (reads_flat and not _is_elementwise(node)):
            return False
        if reads_flat:
            flat.update(node.outputs)
        elif node.op_type.endswith("Classifier"):
            flat.update(node.outputs[:1])  # labels are a vector
    return True


def _is_elementwise(node: NodeDef) -> bool:
    return node.op_type in _APART.get(node.domain, ())


def _is_known(node: NodeDef) -> bool:
    """True if the operator is known here: the shapes of its outputs depend on no values."""
    return _is_elementwise(node) or node.op_type in _ROWWISE.get(node.domain, ())


# --- which nodes go together ----------------------------------------------------------------------


@dataclass(frozen=True)
class Settled:
    """Parts, as their outputs by name and the nodes in them."""

    tensors: dict[str, Tensor]
    nodes: list[NodeDef]


class PendingNodes:
    """Nodes without native code that no native one has needed yet.

    They become one part as soon as a native operator reads one of their outputs. Until then further
    nodes without native code join them, so that parts are as large as possible.
    """

    def __init__(self, model: ModelDef, large: int = SHARED_BYTES) -> None:
        self._model, self._large = model, large
        self._makers = {name: node for node in model.graph.nodes for name in node.outputs if name}
        self._readers: dict[str, list[NodeDef]] = {}
        for node in model.graph.nodes:
            for name in reads(node):
                self._readers.setdefault(name, []).append(node)
        self._nodes: list[NodeDef] = []
        self._outputs: set[str] = set()
        self._tries = 0

    def add(self, node: NodeDef) -> None:
        """Add a node that has no native code."""
        self._nodes.append(node)
        self._outputs.update(filter(None, node.outputs))

    def tried(self, names: Iterable[str], values: Mapping[str, Tensor]) -> Settled:
        """The parts for those of these names that pending nodes make, without settling on them."""
        needed = self._outputs.intersection(names)
        settled = Settled({}, [])
        while needed - settled.tensors.keys():
            self._tries += 1
            if self._tries > MAX_TRIES:
                raise Unrowed("too many parts that might stand alone")
            nodes = self._together(min(needed - settled.tensors.keys()))
            settled.tensors.update(opaque(self._part(nodes, values)))
            settled.nodes.extend(nodes)
        return settled

    def settle(self, settled: Settled) -> None:
        """Accept these parts: their nodes are no longer pending."""
        done = set(map(id, settled.nodes))
        self._nodes = [node for node in self._nodes if id(node) not in done]
        self._outputs = {name for node in self._nodes for name in node.outputs if name}

    def _together(self, name: str) -> list[NodeDef]:
        """The pending nodes connected with the one that makes this value."""
        near: dict[str, list[NodeDef]] = {}
        for node in self._nodes:
            for each in self._outputs.intersection((*reads(node), *node.outputs)):
                near.setdefault(each, []).append(node)
        inside: set[int] = set()
        waiting = [self._makers[name]]
        while waiting:
            node = waiting.pop()
            if id(node) not in inside:
                inside.add(id(node))
                for each in self._outputs.intersection((*reads(node), *node.outputs)):
                    waiting += near.pop(each, ())
        return [node for node in self._nodes if id(node) in inside]

    def _part(self, nodes: Sequence[NodeDef], values: Mapping[str, Tensor]) -> OpaquePart:
        nodes = list(self._with_makers(nodes, values))
        own = {name for node in nodes for name in node.outputs if name}
        constants: dict[str, Any] = {}
        inputs: dict[str, Tensor] = {}
        for name in sorted({name for node in nodes for name in reads(node)} - own):
            item = values.get(name)
            if item is None:
                raise Unrowed(f"'{name}' is no tensor of rows")
            if item.value is not None:
                constants[name] = item.value
            else:
                inputs[name] = item
        inside = {id(node) for node in nodes}
        answers = {port.name for port in self._model.graph.outputs}
        leaves = tuple(
            name
            for node in nodes
            for name in node.outputs
            if name in self._outputs
            if name in answers or any(id(r) not in inside for r in self._readers.get(name, ()))
        )
        return OpaquePart(self._model, tuple(nodes), inputs, constants, leaves, self._large)

    def _with_makers(
        self, nodes: Sequence[NodeDef], values: Mapping[str, Tensor]
    ) -> Iterator[NodeDef]:
        """The nodes, and those that make their inputs that no column can hold."""
        chosen = {id(node) for node in nodes}
        for node in reversed(self._model.graph.nodes):
            if id(node) in chosen:
                for name in reads(node):
                    item = values.get(name)
                    if item is not None and not _fits_a_column(item):
                        if name not in self._makers:
                            raise Unrowed(f"'{name}' is a map, or {item.dtype}, as no column is")
                        chosen.add(id(self._makers[name]))
        return (node for node in self._model.graph.nodes if id(node) in chosen)


def _fits_a_column(item: Tensor) -> bool:
    """True if a column can hold it: not the number of rows, a map, or words between operators.

    Nor can a value that is the same for every row, repeated by their number, be a constant of a
    part.
    """
    words = item.flow is not None and not isinstance(item.flow.type, Vector)
    special = words or isinstance(item, Special)
    repeated = item.known and item.axis is not None
    return not (item.symbolic or item.labels is not None or special or repeated)


def reads(node: NodeDef) -> list[str]:
    """Every value a node reads, those that its inner graphs read from outside included."""
    inner = (name for graph in node.graphs() for name in graph.free_names())
    return [name for name in (*node.inputs, *inner) if name]
