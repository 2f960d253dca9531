"""From a path, bytes or a ModelProto to a `ModelDef`, checking everything in untrusted files.

The `onnx` package parses the protobuf; everything else is checked here, so that a damaged or
hostile model ends in an error that names the node, never in a crash, and never reads a file outside
of the model's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from pathlib import Path
from stat import S_ISCHR, S_ISFIFO
from typing import TYPE_CHECKING, Any, NamedTuple

from flour.onnx.errors import DamagedModel
from flour.onnx.model import Attributes, Dim, GraphDef, GraphPort, Later, ModelDef, NodeDef
from flour.onnx.protobuf import ModelProto
from flour.onnx.tensors import Tensors, dtype_of

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        NodeProto,
        TensorProto,
        ValueInfoProto,
    )
from collections.abc import Iterable, Sequence

#: Protobuf cannot hold more in one message.
MAX_BYTES = 2**31 - 1
#: The most nodes of all graphs, with functions inlined: half a minute's work or more.
MAX_NODES = 1 << 17
MAX_DEPTH = 20
OLDEST, DOMAINS = 1, {"ai.onnx": ""}
#: The newest known versions: in a later one any operator may have another meaning.
NEWEST = {"": 28, "ai.onnx.ml": 5}


def read_model(model: object) -> ModelDef:
    """The model in a file, in bytes, or parsed already."""
    proto, folder = _parsed(model)
    proto = _inlined(proto)
    opsets = _opsets(proto)
    reader = _ModelReader(Tensors(folder))
    try:
        graph = reader.graph(proto.graph, frozenset(), 0)
    except RecursionError:
        raise DamagedModel("the model's graphs are nested too deeply", where="graph") from None
    return ModelDef(
        graph,
        opsets,
        int(proto.ir_version),
        str(proto.producer_name),
        int(proto.model_version),
        str(proto.doc_string),
        {str(item.key): str(item.value) for item in proto.metadata_props},
        frozenset((str(item.domain), str(item.name)) for item in proto.functions),
        str(proto.domain),
    )


# --- the protobuf ---------------------------------------------------------------------------------


class Opened(NamedTuple):
    """A model whose protobuf has been read; accepted wherever a model is."""

    proto: Any
    #: The folder of its file, if it came from one.
    folder: Path | None


class Raw(NamedTuple):
    """A model whose bytes have been read; accepted wherever a model is."""

    data: bytes
    folder: Path | None


def opened(model: object) -> Opened:
    """The model with its file read and parsed, once for all uses."""
    return Opened(*_parsed(model))


def raw(model: object) -> Raw | None:
    """The bytes of a model that is a path or bytes; None for a parsed model."""
    if isinstance(model, str | Path):
        path = Path(model)
        return Raw(_file(path), path.parent)
    if isinstance(model, bytes | bytearray | memoryview):
        return Raw(bytes(model), None)
    return None


def parsed(model: object) -> Any:
    """The model's protobuf, its own functions inlined; nothing else of it is checked."""
    return _inlined(_parsed(model)[0])


def as_written(model: object) -> Any:
    """The model's protobuf with its own functions not inlined; nothing of it is checked."""
    return _parsed(model)[0]


def _parsed(model: object) -> tuple[Any, Path | None]:
    if isinstance(model, Opened):
        return model
    contents = model if isinstance(model, Raw) else raw(model)
    if contents is not None:
        from google.protobuf.message import DecodeError

        proto = ModelProto()
        try:
            proto.ParseFromString(contents.data)
        except (DecodeError, RuntimeError) as problem:
            raise DamagedModel(
                "these bytes are not an ONNX model",
                where="the model's protobuf",
                found=f"{len(contents.data)} bytes: {problem}"[:120],
            ) from None
        if contents.folder is not None:
            Tensors(contents.folder).take_in(proto)
        return proto, contents.folder
    if hasattr(model, "graph") and hasattr(model, "opset_import"):
        return model, None
    raise DamagedModel(
        "this is not an ONNX model",
        where="from_onnx",
        found=type(model).__name__,
        hint="pass a path, the file's bytes, or an onnx.ModelProto",
    )


def _file(path: Path) -> bytes:
    try:
        status = path.stat()
        if S_ISFIFO(status.st_mode) or S_ISCHR(status.st_mode):  # reading it may never end
            raise DamagedModel("the model is no file", where=str(path), found="a pipe or a device")
        if status.st_size > MAX_BYTES:
            raise DamagedModel("the model is larger than protobuf allows", where=str(path.name))
        return path.read_bytes()
    except OSError as problem:
        raise DamagedModel(
            "the model cannot be read", where=str(path), found=problem.strerror or str(problem)
        ) from None


def _inlined(proto: ModelProto) -> ModelProto:
    """The model without functions of its own."""
    if not len(proto.functions):
        return proto
    _fits_in_place(proto)
    from onnx.checker import ValidationError
    from onnx.inliner import inline_local_functions

    try:
        return inline_local_functions(proto)
    except (RuntimeError, ValueError, TypeError, ValidationError) as problem:
        raise DamagedModel(
            "the model's functions cannot be put in place", where="functions", found=str(problem)
        ) from None


def _fits_in_place(proto: ModelProto) -> None:
    """Raise DamagedModel if inlining functions that call others would give too many nodes."""
    bodies = {(str(f.domain), str(f.name)): f for f in proto.functions}
    sizes: dict[tuple[str, str], int] = {}
    waiting = [*bodies]
    while waiting:  # no function waits for itself for ever: each is entered once
        name = waiting[-1]
        calls = list(_called(bodies[name]))
        unknown = [owner for owner in calls if owner in bodies and owner not in sizes]
        if name not in sizes and unknown:
            sizes[name] = 0  # until it is known; circles are found by who puts functions in place
            waiting += unknown
            continue
        waiting.pop()
        sizes[name] = min(sum(max(1, sizes.get(owner, 1)) for owner in calls), MAX_NODES + 1)
    total = sum(sizes.get(owner, 1) for owner in _called(proto.graph))
    if total > MAX_NODES:
        raise DamagedModel(
            "the model's functions stand for too many nodes",
            where="functions",
            found=f"more than {MAX_NODES:,}",
        )


def _called(graph: GraphProto | FunctionProto) -> Iterator[tuple[str, str]]:
    """Every operator of a graph or a function, those of graphs inside of nodes included."""
    stack = [graph]
    while stack:
        for node in stack.pop().node:
            yield str(node.domain), str(node.op_type)
            for item in node.attribute:
                stack.extend((*item.graphs, *((item.g,) if item.HasField("g") else ())))


def _opsets(proto: ModelProto) -> dict[str, int]:
    versions = {
        DOMAINS.get(item.domain, str(item.domain)): int(item.version) for item in proto.opset_import
    }
    if not len(proto.graph.node) and not len(proto.graph.output):
        raise DamagedModel("the model has no graph", where="graph", found="no nodes, no outputs")
    if any(item.domain in ("", "ai.onnx") for item in proto.graph.node) and "" not in versions:
        raise DamagedModel("the model does not say its operator set", where="opset_import")
    if versions.get("", OLDEST) < OLDEST:
        raise DamagedModel(
            "the model is older than this importer reads",
            where="opset_import",
            found=f"operator set {versions['']}, at least {OLDEST} is needed",
            hint="convert it with onnx.version_converter",
        )
    for domain, newest in NEWEST.items():
        if versions.get(domain, newest) > newest:
            raise DamagedModel(
                "the model is newer than this importer reads",
                where=f"opset_import of {domain or 'ai.onnx'}",
                found=f"operator set {versions[domain]}, {newest} is the newest known",
                hint="export it for an older one, or convert it with onnx.version_converter",
            )
    return versions


# --- graphs ---------------------------------------------------------------------------------------


class _ModelReader:
    """Reads graphs and what is inside them."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors, self._nodes = tensors, 0

    def graph(self, proto: GraphProto, outside: frozenset[str], depth: int) -> GraphDef:
        """A graph; `outside` are the names that graphs around it make."""
        if depth > MAX_DEPTH:
            raise DamagedModel("the model's graphs are nested too deeply", where=str(proto.name))
        self._nodes += len(proto.node)
        if self._nodes > MAX_NODES:
            found = f"more than {MAX_NODES:,} nodes"
            raise DamagedModel("the graph is too large", where=str(proto.name), found=found)
        constants = {str(item.name): self._tensors.array(item) for item in proto.initializer}
        for item in proto.sparse_initializer:
            constants[str(item.values.name)] = self._tensors.sparse(item)
        names = [*(str(item.name) for item in proto.initializer)]
        _unique(names, "initialisers")
        inputs = tuple(port_of(item) for item in proto.input if item.name not in constants)
        _unique([port.name for port in inputs], "inputs")
        own = set(constants) | {port.name for port in inputs}
        inner = outside | own | {str(name) for item in proto.node for name in item.output}
        nodes = [self._node(item, inner, depth) for item in proto.node]
        outputs = tuple(port_of(item) for item in proto.output)
        if any(not port.name for port in outputs):
            raise DamagedModel("an output has no name", where=f"the graph '{proto.name}'")
        order = ordered(nodes, own, outside, [port.name for port in outputs])
        return GraphDef(str(proto.name), tuple(order), inputs, outputs, constants)

    def _node(self, proto: NodeProto, names: frozenset[str], depth: int) -> NodeDef:
        domain = str(proto.domain)
        node = NodeDef(
            str(proto.op_type),
            DOMAINS.get(domain, domain),
            str(proto.name),
            tuple(map(str, proto.input)),
            tuple(map(str, proto.output)),
            data=proto.SerializeToString(),
        )
        later = {  # long lists of numbers or texts are read at first use
            str(item.name): _later(item)
            for item in proto.attribute
            if int(item.type) in _LISTS and len(getattr(item, _READERS[item.type][0])) >= LONG
        }
        try:
            values = {
                str(item.name): self._attribute(item, names, depth)
                for item in proto.attribute
                if item.name not in later
            }
        except DamagedModel as problem:
            problem.where = f"{node.place}, {problem.where}" if problem.where else node.place
            raise
        return NodeDef(**{**vars(node), "attributes": Attributes(values, later)})

    def _attribute(self, proto: AttributeProto, names: frozenset[str], depth: int) -> Any:
        kind = int(proto.type) or _guessed(proto)
        if kind not in _READERS:
            raise DamagedModel("an attribute of a kind that is not known", found=str(kind))
        field, convert = _READERS[kind]
        value = getattr(proto, field)
        if convert in _PLAIN:
            return _PLAIN[convert](value)
        readers: dict[str, Callable[[Any], Any]] = {
            "tensor": self._tensors.array,
            "sparse": self._tensors.sparse,
            "graph": lambda item: self.graph(item, names, depth + 1),
            "type": lambda item: item.SerializeToString(),
        }
        one = readers[convert.removesuffix("s")]
        return tuple(map(one, value)) if convert.endswith("s") else one(value)


_DECODED = methodcaller("decode", "utf-8", "surrogateescape")


_PLAIN: Mapping[str, Any] = {
    "float": float,
    "int": int,
    "text": lambda value: str(_DECODED(value)),
    "floats": tuple,
    "ints": tuple,
    "texts": lambda values: tuple(map(_DECODED, values)),
}
#: AttributeProto.AttributeType -> (field, how to read it).
_READERS: Mapping[int, tuple[str, str]] = {
    1: ("f", "float"),
    2: ("i", "int"),
    3: ("s", "text"),
    4: ("t", "tensor"),
    5: ("g", "graph"),
    6: ("floats", "floats"),
    7: ("ints", "ints"),
    8: ("strings", "texts"),
    9: ("tensors", "tensors"),
    10: ("graphs", "graphs"),
    11: ("sparse_tensor", "sparse"),
    13: ("tp", "type"),
    14: ("type_protos", "types"),
}
#: Kinds of lists of numbers or texts.
_LISTS = frozenset({6, 7, 8})
#: Lists from this length on are read at their first use.
LONG = 64


def _later(proto: TensorProto) -> Later:
    """A function that reads an attribute that is a list of numbers or texts; it cannot fail."""
    field, convert = _READERS[int(proto.type)]
    return lambda: _PLAIN[convert](getattr(proto, field))


def _guessed(proto: TensorProto) -> int:
    """The kind of an attribute of an old file, which does not store it."""
    for kind, (field, _) in _READERS.items():
        value = getattr(proto, field)
        repeated = hasattr(value, "__len__") and not isinstance(value, bytes)
        if len(value) if repeated else proto.HasField(field):
            return kind
    return 0


def _unique(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DamagedModel(f"two {what} have one name", where="graph", found=repr(name))
        seen.add(name)


# --- ports ----------------------------------------------------------------------------------------


def port_of(proto: ValueInfoProto) -> GraphPort:
    """An input or output as it is declared."""
    kind = proto.type.WhichOneof("value") or ""
    name = str(proto.name)
    if kind == "tensor_type":
        tensor = proto.type.tensor_type
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(_dim(item, name) for item in tensor.shape.dim)
        return GraphPort(name, dtype_of(int(tensor.elem_type)), shape)
    if kind == "map_type":
        inner = proto.type.map_type.value_type
        single = inner.WhichOneof("value") == "tensor_type"
        dtype = dtype_of(int(inner.tensor_type.elem_type)) if single else ""
        return GraphPort(name, dtype, None, "map", dtype_of(int(proto.type.map_type.key_type)))
    return GraphPort(name, "", None, kind.removesuffix("_type"))


def _dim(proto: Any, name: str) -> Dim:
    if proto.HasField("dim_value"):
        if not 0 <= proto.dim_value < 2**31:
            # Some exporters write -1 for "unknown".
            if proto.dim_value < 0:
                return None
            raise DamagedModel("a dimension is absurd", where=name, found=str(proto.dim_value))
        return int(proto.dim_value)
    return str(proto.dim_param) or None if proto.HasField("dim_param") else None


# --- the order in which nodes can run -------------------------------------------------------------


def ordered(
    nodes: Sequence[NodeDef], own: Iterable[str], outside: Iterable[str], outputs: Sequence[str]
) -> list[NodeDef]:
    """The nodes, each behind those it reads from, otherwise as they are in the file.

    `own` are the graph's inputs and constants, `outside` the values of graphs around it.
    """
    own = {"", *own}
    available = own.union(outside)
    makers = _makers(nodes, own)
    order: list[NodeDef] = []
    waiting = {i: _missing(node, available.difference(makers)) for i, node in enumerate(nodes)}
    for index, names in waiting.items():
        for name in names:
            if name not in makers:
                raise DamagedModel(
                    "no node makes a value that is read", where=nodes[index].place, found=repr(name)
                )
    _sort(nodes, waiting, makers, order)
    if len(order) < len(nodes):
        done = set(map(id, order))
        stuck = next(node for node in nodes if id(node) not in done)
        raise DamagedModel(
            "nodes wait for each other in a circle",
            where=stuck.place,
            found=", ".join(stuck.inputs),
        )
    for name in outputs:
        if name not in makers and name not in available:
            raise DamagedModel("no node makes an output", where="outputs", found=repr(name))
    return order


def _makers(nodes: Sequence[NodeDef], own: set[str]) -> dict[str, int]:
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.outputs:
            if name and (name in makers or name in own):
                raise DamagedModel("a value is made twice", where=node.place, found=repr(name))
            makers[name] = index
    makers.pop("", None)
    return makers


def _missing(node: NodeDef, available: set[str]) -> set[str]:
    read = set(node.inputs)
    for inner in node.graphs():
        read |= inner.free_names()
    return read - available


def _sort(
    nodes: Sequence[NodeDef],
    waiting: dict[int, set[str]],
    makers: dict[str, int],
    order: list[NodeDef],
) -> None:
    """Append the nodes to `order`, depth first, without recursion."""
    state = [0] * len(nodes)  # 0 new, 1 being visited, 2 done
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            index = stack[-1]
            if state[index] == 2:
                stack.pop()
                continue
            before = sorted({makers[name] for name in waiting[index]})
            fresh = [maker for maker in before if state[maker] != 2]
            if not fresh:
                state[index] = 2
                order.append(nodes[index])
                stack.pop()
            elif state[index] == 1 or any(state[maker] == 1 for maker in fresh):
                return
            else:
                state[index] = 1
                stack.extend(reversed(fresh))
