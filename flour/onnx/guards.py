"""What onnxruntime is not given, because it would end the process or never come back.

Its kernels check much of what a model says, but not all: a number of heads of zero is a division by
zero, a negative width a copy far out of bounds. Such a death is no error that anybody could catch,
so these uses are refused before a session is made. They were found by changing valid nodes at
random, in processes of their own (docs/19-onnxruntime.md); `flour.onnx.proving` is for what nobody
has found yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flour.core.errors import OpaqueFailed

_ANY = (-(2**31), 2**31 - 1)
_POSITIVE = (1, 2**31 - 1)
_AXIS = (-64, 64)
#: Whole numbers that are data or open ends, and may be as large as they like.
_DATA = ("int64", "value_int")
_ENDS = frozenset({"start", "end", "starts", "ends"})
#: By name, what an attribute's numbers may be, in whatever operator.
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


def guard(model: Any, place: str) -> None:
    """Raise OpaqueFailed if the model has a node that onnxruntime would not survive."""
    for node in _nodes([model.graph, *model.functions]):
        found = {str(item.name): item for item in node.attribute}
        for name, item in found.items():
            _numbers(node, name, item, place)
        if node.op_type in _COMPLETE and "" in node.input:
            raise _refusal(node, "inputs", "one that is left out", "all of them", place)
        if node.op_type in _SPECIAL:
            _SPECIAL[node.op_type](node, found, place)


def _nodes(graphs: list[Any]) -> Iterator[Any]:
    """Every node, those of graphs in attributes included."""
    stack = list(graphs)
    while stack:
        for node in stack.pop().node:
            yield node
            for item in node.attribute:
                stack.extend((*item.graphs, *((item.g,) if item.HasField("g") else ())))


def _numbers(node: Any, name: str, item: Any, place: str) -> None:
    """Every whole number is one that some count, length or axis could be."""
    if name in _ENDS or any(part in name for part in _DATA):
        return
    low, high = _EVERYWHERE.get(name, _ANY)
    for number in (*item.ints, *((item.i,) if item.HasField("i") else ())):
        if not low <= number <= high:
            raise _refusal(node, name, number, f"{low} to {high}", place)


def _tf_idf(node: Any, found: dict[str, Any], place: str) -> None:
    """The pool holds the n-grams that the other lists are about."""
    counts = list(found["ngram_counts"].ints) if "ngram_counts" in found else []
    places = len(found["ngram_indexes"].ints) if "ngram_indexes" in found else 0
    pools = [found[name] for name in ("pool_int64s", "pool_strings") if name in found]
    size = sum(len(pool.ints) + len(pool.strings) for pool in pools)
    ends = [*counts[1:], size]
    grams = 0
    for length, (start, end) in enumerate(zip(counts, ends, strict=False), 1):
        if not 0 <= start <= end <= size or (end - start) % length:
            raise _refusal(node, "ngram_counts", counts[:8], f"parts of a pool of {size}", place)
        grams += (end - start) // length
    if grams != places:
        raise _refusal(
            node, "ngram_indexes", f"{places} of them", f"one for each of {grams}", place
        )


def _split(node: Any, found: dict[str, Any], place: str) -> None:
    """As many parts as there are outputs."""
    parts = found.get("num_outputs")
    if parts is not None and parts.i != len(node.output):
        raise _refusal(node, "num_outputs", parts.i, f"{len(node.output)}", place)


def _transform(node: Any, found: dict[str, Any], place: str) -> None:
    """An axis is there or is not; there, but without a name, it is read all the same."""
    del found
    if list(node.input[2:3]) == [""]:
        raise _refusal(node, "axis", "an input without a name", "an input or nothing", place)


def _trees(node: Any, found: dict[str, Any], place: str) -> None:
    """No test leads back to where a row has been: walking such a tree has no end."""
    ids, owner = _ints(found, "nodes_nodeids"), _ints(found, "nodes_treeids")
    modes = list(found["nodes_modes"].strings) if "nodes_modes" in found else []
    ways = [_ints(found, f"nodes_{way}nodeids") for way in ("true", "false")]
    if {len(part) for part in (owner, modes, *ways)} != {len(ids)}:
        return  # onnxruntime itself refuses it
    known = {key: k for k, key in enumerate(zip(owner, ids, strict=True))}
    inner = [k for k, mode in enumerate(modes) if mode != b"LEAF"]
    edges = [(k, known.get((owner[k], way[k]), -1)) for k in inner for way in ways]
    _no_way_back(node, edges, len(ids), place)


def _forest(node: Any, found: dict[str, Any], place: str) -> None:
    """Likewise for the operator that has its leaves apart."""
    count, edges = len(_ints(found, "nodes_featureids")), []
    for way in ("true", "false"):
        to, leaf = (_ints(found, f"nodes_{way}{what}") for what in ("nodeids", "leafs"))
        pairs = enumerate(zip(to, leaf, strict=False))
        edges += [(k, end) for k, (end, is_leaf) in pairs if not is_leaf]
    _no_way_back(node, [edge for edge in edges if edge[0] < count], count, place)


def _no_way_back(node: Any, edges: list[tuple[int, int]], count: int, where: str) -> None:
    """Take away what nobody leads to until nothing is left, or only what goes round in circles."""
    leads: list[list[int]] = [[] for _ in range(count)]
    ways = [0] * count
    for start, end in edges:
        if 0 <= end < count:
            leads[start].append(end)
            ways[end] += 1
    free = [place for place in range(count) if not ways[place]]
    for start in free:
        for end in leads[start]:
            ways[end] -= 1
            if not ways[end]:
                free.append(end)
    if len(free) < count:
        raise _refusal(node, "nodes_truenodeids", "a way back", "the way to a leaf", where)


def _ints(found: dict[str, Any], name: str) -> list[int]:
    return list(found[name].ints) if name in found else []


#: Operators with inputs that each must be there, whatever their definition says.
_COMPLETE = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
#: By operator, what depends on several attributes.
_SPECIAL: dict[str, Callable[[Any, dict[str, Any], str], None]] = {
    "DFT": _transform,
    "Split": _split,
    "TfIdfVectorizer": _tf_idf,
    "TreeEnsemble": _forest,
    "TreeEnsembleClassifier": _trees,
    "TreeEnsembleRegressor": _trees,
}


def _refusal(node: Any, name: str, value: object, wanted: str, place: str) -> OpaqueFailed:
    return OpaqueFailed(
        f"onnxruntime would not survive {name!r} of {node.op_type}",
        where=place or str(node.name) or None,
        found=f"{value!s:.80}",
        hint=f"it must be {wanted}",
    )
