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

from flour.errors import OpaqueFailed

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


#: By operator, what depends on several attributes.
_SPECIAL: dict[str, Callable[[Any, dict[str, Any], str], None]] = {
    "Split": _split,
    "TfIdfVectorizer": _tf_idf,
}


def _refusal(node: Any, name: str, value: object, wanted: str, place: str) -> OpaqueFailed:
    return OpaqueFailed(
        f"onnxruntime would not survive the attribute {name!r} of {node.op_type}",
        where=place or str(node.name) or None,
        found=f"{value!s:.80}",
        hint=f"it must be {wanted}",
    )
