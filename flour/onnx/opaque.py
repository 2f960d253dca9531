"""Parts of a model without native code, as operators that onnxruntime runs.

`part_of` makes one such operator of some nodes and the values they read. What a row of its answers
is, onnxruntime itself is asked: the part is loaded for two numbers of rows, and a dimension that
grows with them is the one along which rows lie. Where no such dimension is found, the part cannot
be a step among others, and the model runs as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from flour.core import provenance
from flour.core.errors import OpaqueFailed
from flour.core.types import Vector
from flour.data.coerce import WHOLE_DTYPES
from flour.language.flow import Flow
from flour.onnx import ort
from flour.onnx.errors import NotNative
from flour.onnx.model import ModelDef, NodeDef
from flour.onnx.narrow import as_onnx
from flour.onnx.tensor import NARROW, Tensor
from flour.onnx.words import Special
from flour.ops.opaque import Opaque, Wire

#: Constants from this size on are parameters of their own, which all that use them share.
SHARED_BYTES = 1024
#: Of a model that is one part, those below this size stay the session's own: it packs them, and
#: handing one in costs half a microsecond.
OWN_BYTES = 1 << 16
#: Two numbers of rows that no dimension of a model is likely to be a multiple of.
PROBES = (7, 11)


#: So many times at most a model is tried to be cut, then it runs as a whole.
MAX_TRIES = 200


class Unrowed(NotNative):
    """A part whose answers are not one tensor for each row."""


@dataclass(frozen=True)
class Part:
    """Nodes that onnxruntime runs, what they read from outside, and what others read of them."""

    model: ModelDef
    nodes: tuple[NodeDef, ...]
    reads: Mapping[str, Tensor]
    constants: Mapping[str, Any]
    leaves: tuple[str, ...]
    #: Constants from this size on are handed in.
    large: int = SHARED_BYTES

    @property
    def place(self) -> str:
        """Its nodes, for messages."""
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
        """Whether its values are rows behind one another, or one tensor for each row."""
        axes = {item.axis is None for item in self.reads.values()}
        if len(axes) > 1:
            raise Unrowed("values with rows and values without meet")
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
        for item in graph.output:  # onnxruntime works out what they are
            item.type.tensor_type.elem_type = TensorProto.UNDEFINED
            item.ClearField("type")
        opsets = [helper.make_opsetid(*entry) for entry in oldest(self.model, nodes).items()]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=_ir(self.model))
        data: bytes = made.SerializeToString()
        return data


def opaque(part: Part) -> dict[str, Tensor]:
    """What the part leaves, as tensors by name; Unrowed where that cannot be."""
    layout = part.layout()
    _refuse_functions(part)
    shapes = _shapes(part, layout)
    weights = part.weights
    op = Opaque(
        ort.as_array(part.proto(None)),
        tuple(weights.values()),
        tuple(weights),
        reads=tuple(Wire(n, t.dtype, t.shape, t.axis or 0) for n, t in part.reads.items()),
        leaves=tuple(Wire(n, t.dtype, t.shape, t.axis or 0) for n, t in shapes.items()),
        layout=layout,
        mixes=not keeps_rows_apart(part),
        place=part.place,
    )
    if not part.reads:
        raise Unrowed("it reads nothing of a row")
    with provenance.step(part.place):
        made = op(*(_flow(item) for item in part.reads.values()))
    flows = {name: made if len(shapes) == 1 else made.field(name) for name in shapes}
    return {name: Tensor.of(flows[name], t.shape, t.axis) for name, t in shapes.items()}


def _refuse_functions(part: Part) -> None:
    """Raise Unrowed where a node calls a function of the model's own that is not put in place."""
    for node in _with_inner(_node(item) for item in part.nodes):
        if (node.domain, node.op_type) in part.model.functions:
            raise Unrowed(f"'{node.op_type}' is a function of the model's own")


def _flow(item: Tensor) -> Flow:
    assert item.flow is not None, "constants are part of the model"
    kind = item.flow.type
    return item.flow.to_dense() if isinstance(kind, Vector) and kind.sparse else item.flow


# --- the shapes of answers ------------------------------------------------------------------------


def _shapes(part: Part, layout: str) -> dict[str, Tensor]:
    """A row of each answer, without a flow yet."""
    if layout == "each":
        found = _probe(part, 1)
        return {n: Tensor(shape, dtype, None) for n, (dtype, shape) in found.items()}
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


def _probe(part: Part, rows: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The dtypes and shapes of the answers for so many rows, as onnxruntime works them out."""
    session = _session_for(part, rows)
    found = {item.name: (item.type, item.shape) for item in session.get_outputs()}
    if any(not _is_static(shape) for _, shape in found.values()):
        found = _tried(part, session, rows)
    made = {}
    for name, (kind, shape) in found.items():
        if kind not in WHOLE_DTYPES:
            raise Unrowed(f"'{name}' is {kind}")
        made[name] = WHOLE_DTYPES[kind], tuple(map(int, shape))
        if min(made[name][1], default=0) < 0:
            what = "onnxruntime works out a negative length"
            raise OpaqueFailed(what, where=part.place, found=f"{name}: {shape}")
    return made


def _session_for(part: Part, rows: int) -> Any:
    """A session of the part for so many rows; Unrowed where only other numbers of rows fit."""
    try:
        return ort.session(part.proto(rows), part.place)
    except OpaqueFailed:
        ort.session(part.proto(None), part.place)  # an error of its own if no number of rows fits
        raise Unrowed(f"its constants do not fit {rows} rows") from None


def _is_static(shape: Any) -> bool:
    # onnxruntime says [] of a single number, but also of a value it knows nothing about.
    return bool(shape) and all(isinstance(size, int) for size in shape)


def _tried(part: Part, session: Any, rows: int) -> dict[str, tuple[str, Any]]:
    """The shapes of answers to zeros, where the answers' shapes cannot depend on the values."""
    if not all(map(_is_known, part.nodes)):
        raise Unrowed("the shape of an answer is known only when it runs")
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
    """The ONNX shape of so many rows of a tensor."""
    if item.axis is None:
        return item.shape
    return Wire("", item.dtype, item.shape, item.axis).joined(rows)


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


def weight_input(name: str, array: Any) -> Any:
    """The declaration of a constant that is handed in."""
    from onnx import helper

    return helper.make_tensor_value_info(name, _element(str(array.dtype)), array.shape)


def small_constant(name: str, array: Any) -> Any:
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


def is_large(array: Any) -> bool:
    """Whether a constant is a parameter of its own."""
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
            with suppress(defs.SchemaError, TypeError):  # unknown, or no text at all
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


def _ir(model: ModelDef) -> int:
    """A version of the format in which constants need not be inputs, and that is not too new."""
    return min(max(model.ir_version, 4), 10)


# --- what mixes rows ------------------------------------------------------------------------------

#: Operators that make of every value, or of values in the same place, one value.
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


#: By domain, what makes of every value one value.
_APART = {
    "": _ELEMENTWISE,
    "ai.onnx.ml": frozenset({"Binarizer", "CategoryMapper", "LabelEncoder"}),
}
#: By domain, what looks at one row of a matrix at a time, and at a vector as if it were one row.
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


def keeps_rows_apart(part: Part) -> bool:
    """Whether surely no row's answer depends on another row; what is not known may mix them."""
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
    """Whether it is known what it does: the shapes of its answers depend on no values."""
    return _is_elementwise(node) or node.op_type in _ROWWISE.get(node.domain, ())


# --- which nodes go together ----------------------------------------------------------------------


@dataclass(frozen=True)
class Settled:
    """Parts with what they leave, by name, and the nodes in them."""

    tensors: dict[str, Tensor]
    nodes: list[NodeDef]


class Pending:
    """Nodes without native code that no native one has needed yet.

    They become one part as soon as a native operator reads what they make. Until then a node that
    turns out to have no native code either joins them, so that parts are as large as they can be.
    """

    def __init__(self, model: ModelDef, large: int = SHARED_BYTES) -> None:
        self._model, self._large = model, large
        self._makers = {name: node for node in model.graph.nodes for name in node.outputs if name}
        self._readers: dict[str, list[NodeDef]] = {}
        for node in model.graph.nodes:
            for name in reads(node):
                self._readers.setdefault(name, []).append(node)
        self._nodes: list[NodeDef] = []
        self._made: set[str] = set()
        self._tries = 0

    def add(self, node: NodeDef) -> None:
        """A node that has no native code."""
        self._nodes.append(node)
        self._made.update(filter(None, node.outputs))

    def tried(self, names: Iterable[str], values: Mapping[str, Tensor]) -> Settled:
        """What parts would leave if these of the names that pending nodes make were needed."""
        wanted = self._made.intersection(names)
        found = Settled({}, [])
        while wanted - found.tensors.keys():
            self._tries += 1
            if self._tries > MAX_TRIES:
                raise Unrowed("too many parts that might stand alone")
            nodes = self._together(min(wanted - found.tensors.keys()))
            found.tensors.update(opaque(self._part(nodes, values)))
            found.nodes.extend(nodes)
        return found

    def settle(self, found: Settled) -> None:
        """It stays at that: these nodes are pending no more."""
        done = set(map(id, found.nodes))
        self._nodes = [node for node in self._nodes if id(node) not in done]
        self._made = {name for node in self._nodes for name in node.outputs if name}

    def _together(self, name: str) -> list[NodeDef]:
        """The pending nodes that hang together with the one that makes this value."""
        near: dict[str, list[NodeDef]] = {}
        for node in self._nodes:
            for each in self._made.intersection((*reads(node), *node.outputs)):
                near.setdefault(each, []).append(node)
        inside: set[int] = set()
        waiting = [self._makers[name]]
        while waiting:
            node = waiting.pop()
            if id(node) not in inside:
                inside.add(id(node))
                for each in self._made.intersection((*reads(node), *node.outputs)):
                    waiting += near.pop(each, ())
        return [node for node in self._nodes if id(node) in inside]

    def _part(self, nodes: Sequence[NodeDef], values: Mapping[str, Tensor]) -> Part:
        nodes = list(self._with_makers(nodes, values))
        made = {name for node in nodes for name in node.outputs if name}
        known: dict[str, Any] = {}
        given: dict[str, Tensor] = {}
        for name in sorted({name for node in nodes for name in reads(node)} - made):
            item = values.get(name)
            if item is None:
                raise Unrowed(f"'{name}' is no tensor of rows")
            if item.value is not None:
                known[name] = as_onnx(item.value, item.dtype)
            else:
                given[name] = item
        leaves = self._leaves(nodes)
        return Part(self._model, tuple(nodes), given, known, leaves, self._large)

    def _with_makers(
        self, nodes: Sequence[NodeDef], values: Mapping[str, Tensor]
    ) -> Iterator[NodeDef]:
        """The nodes, and those that make what they read and no column can hold."""
        wanted = {id(node) for node in nodes}
        for node in reversed(self._model.graph.nodes):
            if id(node) in wanted:
                for name in reads(node):
                    item = values.get(name)
                    if item is not None and not _fits_a_column(item):
                        if name not in self._makers:
                            raise Unrowed(f"'{name}' is a map, or {item.dtype}, as no column is")
                        wanted.add(id(self._makers[name]))
        return (node for node in self._model.graph.nodes if id(node) in wanted)

    def _leaves(self, nodes: Sequence[NodeDef]) -> tuple[str, ...]:
        """What others read of these nodes, those of them that are pending."""
        inside = {id(node) for node in nodes}
        answers = {port.name for port in self._model.graph.outputs}
        return tuple(
            name
            for node in nodes
            for name in node.outputs
            if name in self._made
            if name in answers or any(id(r) not in inside for r in self._readers.get(name, ()))
        )


def _fits_a_column(item: Tensor) -> bool:
    """Whether a stage can be given it: not the number of rows, a map, or words on their way.

    Nor is what is the same for every row, but as often as there are rows, a constant of a part.
    Narrow types are in programs only as wider ones.
    """
    words = item.flow is not None and not isinstance(item.flow.type, Vector)
    special = words or isinstance(item, Special)
    repeated = item.known and item.axis is not None
    narrow = item.dtype in NARROW and not item.known
    return not (item.symbolic or item.labels is not None or special or repeated or narrow)


def reads(node: NodeDef) -> list[str]:
    """Every value a node reads, those that its inner graphs take from around them included."""
    inner = (name for graph in node.graphs() for name in graph.free_names())
    return [name for name in (*node.inputs, *inner) if name]
