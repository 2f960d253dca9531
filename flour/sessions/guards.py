"""Uses of operators that onnxruntime is not given, as it would end the process or never return.

Its kernels check much of a model's attributes, but not all: a number of heads of zero is a division
by zero, a negative width a copy far out of bounds. Such a crash cannot be caught as an error, so
these uses are refused before a session is made. They were found by changing valid nodes at random,
in processes of their own (docs/reference/onnxruntime.md); `flour.sessions.proving` is for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flour.core.errors import OpaqueFailed

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, NodeProto

_ANY = (-(2**31), 2**31 - 1)
_POSITIVE = (1, 2**31 - 1)
_AXIS = (-64, 64)
#: Whole numbers that are data or open ends, and may be of any size.
_DATA = ("int64", "value_int")
_ENDS = frozenset({"start", "end", "starts", "ends"})
#: The range of an attribute's numbers, by its name, for every operator.
_EVERYWHERE = {
    "axis": _AXIS,
    "axes": _AXIS,
    "batch_dims": (0, 64),
    "dilations": _POSITIVE,
    "group": _POSITIVE,
    "inputdimensions": (0, 2**31 - 1),
    "kernel_shape": _POSITIVE,
    "kv_num_heads": _POSITIVE,
    "max_gram_length": (1, 1 << 16),
    "max_skip_count": (0, 1 << 16),
    "min_gram_length": (1, 1 << 16),
    "n_targets": (1, 1 << 24),
    "num_heads": _POSITIVE,
    "q_num_heads": _POSITIVE,
    "strides": _POSITIVE,
}


def guard(model: ModelProto, where: str) -> None:
    """Raise OpaqueFailed if the model has a node that onnxruntime would not survive."""
    for node in _nodes([model.graph, *model.functions]):
        attributes = {str(item.name): item for item in node.attribute}
        for name, item in attributes.items():
            _numbers(node, name, item, where)
        if node.op_type in _COMPLETE and "" in node.input:
            raise _refusal(node, "inputs", "one that is left out", "all of them", where)
        if node.op_type in _SPECIAL:
            _SPECIAL[node.op_type](node, attributes, where)


def _nodes(graphs: list[Any]) -> Iterator[Any]:
    """Every node, those of graphs in attributes included."""
    stack = list(graphs)
    while stack:
        for node in stack.pop().node:
            yield node
            for item in node.attribute:
                stack.extend((*item.graphs, *((item.g,) if item.HasField("g") else ())))


def _numbers(node: NodeProto, name: str, item: AttributeProto, where: str) -> None:
    """Every whole number is in the range of counts, lengths and axes."""
    if name in _ENDS or any(part in name for part in _DATA):
        return
    low, high = _EVERYWHERE.get(name, _ANY)
    for number in (*item.ints, *((item.i,) if item.HasField("i") else ())):
        if not low <= number <= high:
            raise _refusal(node, name, number, f"{low} to {high}", where)


def _tf_idf(node: NodeProto, attributes: dict[str, Any], where: str) -> None:
    """The pool holds exactly the n-grams that the other lists describe."""
    counts = list(attributes["ngram_counts"].ints) if "ngram_counts" in attributes else []
    columns = len(attributes["ngram_indexes"].ints) if "ngram_indexes" in attributes else 0
    pools = [attributes[name] for name in ("pool_int64s", "pool_strings") if name in attributes]
    size = sum(len(pool.ints) + len(pool.strings) for pool in pools)
    ends = [*counts[1:], size]
    grams = 0
    for length, (start, end) in enumerate(zip(counts, ends, strict=False), 1):
        if not 0 <= start <= end <= size or (end - start) % length:
            raise _refusal(node, "ngram_counts", counts[:8], f"parts of a pool of {size}", where)
        grams += (end - start) // length
    if grams != columns:
        raise _refusal(
            node, "ngram_indexes", f"{columns} of them", f"one for each of {grams}", where
        )


def _split(node: NodeProto, attributes: dict[str, Any], where: str) -> None:
    """The number of parts is that of the outputs."""
    parts = attributes.get("num_outputs")
    if parts is not None and parts.i != len(node.output):
        raise _refusal(node, "num_outputs", parts.i, f"{len(node.output)}", where)


def _transform(node: NodeProto, attributes: dict[str, Any], where: str) -> None:
    """The axis is an input or absent; an empty name would be read as an input."""
    del attributes
    if list(node.input[2:3]) == [""]:
        raise _refusal(node, "axis", "an input without a name", "an input or nothing", where)


def _trees(node: NodeProto, attributes: dict[str, Any], where: str) -> None:
    """No test leads back to a node above it: walking such a tree would not end."""
    ids, owner = _ints(attributes, "nodes_nodeids"), _ints(attributes, "nodes_treeids")
    modes = list(attributes["nodes_modes"].strings) if "nodes_modes" in attributes else []
    branches = [_ints(attributes, f"nodes_{branch}nodeids") for branch in ("true", "false")]
    if {len(part) for part in (owner, modes, *branches)} != {len(ids)}:
        return  # onnxruntime itself refuses it
    index_of = {key: k for k, key in enumerate(zip(owner, ids, strict=True))}
    inner = [k for k, mode in enumerate(modes) if mode != b"LEAF"]
    edges = [(k, index_of.get((owner[k], branch[k]), -1)) for k in inner for branch in branches]
    _no_cycle(node, edges, len(ids), where)


def _forest(node: NodeProto, attributes: dict[str, Any], where: str) -> None:
    """No test of the operator with separate leaves leads back to a node above it."""
    count, edges = len(_ints(attributes, "nodes_featureids")), []
    for branch in ("true", "false"):
        to, leaf = (_ints(attributes, f"nodes_{branch}{what}") for what in ("nodeids", "leafs"))
        pairs = enumerate(zip(to, leaf, strict=False))
        edges += [(k, end) for k, (end, is_leaf) in pairs if not is_leaf]
    _no_cycle(node, [edge for edge in edges if edge[0] < count], count, where)


def _no_cycle(node: NodeProto, edges: list[tuple[int, int]], count: int, where: str) -> None:
    """Remove nodes without a parent until none is left; nodes that remain are on a cycle."""
    leads: list[list[int]] = [[] for _ in range(count)]
    parents = [0] * count
    for start, end in edges:
        if 0 <= end < count:
            leads[start].append(end)
            parents[end] += 1
    free = [index for index in range(count) if not parents[index]]
    for start in free:
        for end in leads[start]:
            parents[end] -= 1
            if not parents[end]:
                free.append(end)
    if len(free) < count:
        raise _refusal(node, "nodes_truenodeids", "a way back", "the way to a leaf", where)


def _ints(attributes: dict[str, Any], name: str) -> list[int]:
    return list(attributes[name].ints) if name in attributes else []


#: Operators whose inputs must all be present, although their definition has optional ones.
_COMPLETE = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
#: The checks over several attributes, by operator.
_SPECIAL: dict[str, Callable[[Any, dict[str, Any], str], None]] = {
    "DFT": _transform,
    "Split": _split,
    "TfIdfVectorizer": _tf_idf,
    "TreeEnsemble": _forest,
    "TreeEnsembleClassifier": _trees,
    "TreeEnsembleRegressor": _trees,
}


def _refusal(node: NodeProto, name: str, value: object, allowed: str, where: str) -> OpaqueFailed:
    return OpaqueFailed(
        f"onnxruntime would not survive {name!r} of {node.op_type}",
        where=where or str(node.name) or None,
        found=f"{value!s:.80}",
        hint=f"it must be {allowed}",
    )
