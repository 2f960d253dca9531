"""Lists of tensors, and values that may be absent, as far as they are known at import.

The length of a list, and each tensor's index, follow from the graph; so a list is no value at run
time, and costs nothing. Exporters write one where outputs differ in width: the probabilities of a
classifier for each of several labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flour.onnx.control import MOST_ROUNDS
from flour.onnx.errors import NotNative
from flour.onnx.model import GraphDef
from flour.onnx.registry import Call, onnx_op
from flour.onnx.shapes import joined, off_rows
from flour.onnx.tensor import Tensor, positive
from flour.onnx.tensors import dtype_of
from flour.onnx.words import Listed


def _list(call: Call, index: int = 0) -> Listed:
    item = call[index]
    if not isinstance(item, Listed):
        raise NotNative("a list of tensors is needed")
    return item


# --- making them ----------------------------------------------------------------------------------


@onnx_op("SequenceConstruct", since=11)
def _construct(call: Call) -> Tensor:
    return Listed.holding([item for item in call.inputs if item is not None])


@onnx_op("SequenceEmpty", since=11)
def _empty(call: Call) -> Tensor:
    return Listed.holding([], dtype_of(int(call.attribute("dtype", 1))))


@onnx_op("SequenceInsert", since=11)
def _insert(call: Call) -> Tensor:
    items = list(_list(call).items)
    items.insert(_index(call, 2, len(items), len(items) + 1), call[1])
    return Listed.holding(items)


@onnx_op("SequenceErase", since=11)
def _erase(call: Call) -> Tensor:
    listed = _list(call)
    items = list(listed.items)
    del items[_index(call, 1, len(items) - 1, len(items))]
    return Listed.holding(items, listed.dtype)


def _index(call: Call, number: int, default: int, count: int) -> int:
    """An index below `count`, counted from the front, from an optional input."""
    if call.optional(number) is None:
        position = default
    else:
        position = int(call.constant(number, "the place in a list").reshape(-1)[0])
    # An insertion at -1 goes before the last: indices are those of the list before it.
    length = len(_list(call).items)
    position = position + length if position < 0 else position
    if not 0 <= position < count:
        raise NotNative(f"index {position} of a list of {length}")
    return position


@onnx_op("SplitToSequence", since=11)
def _split(call: Call) -> Tensor:
    item = call[0]
    along = positive(call.attribute("axis", 0), item.rank)
    off_rows(item, along, "values are split")
    length = item.shape[along]
    whole = call.optional(1) is not None
    ends = _ends(call, length) if whole else range(1, length + 1)
    parts = np.split(item.flat_indices(), list(ends)[:-1], axis=along) if len(ends) else []
    axis = item.axis
    if not whole and not call.flag("keepdims"):
        parts = [part.squeeze(along) for part in parts]
        axis = None if axis is None else axis - (axis > along)
    return Listed.holding([item.picked(part, axis) for part in parts], item.dtype)


def _ends(call: Call, length: int) -> Sequence[int]:
    """The end of each part: of several lengths, or of one, where the last may be shorter."""
    sizes = call.constant(1, "the lengths")
    if not sizes.ndim:
        size = int(sizes)
        if size < 1:
            raise NotNative(f"parts of {size}")
        return [*range(size, length, size), length] if length else []
    if sizes.min(initial=0) < 0 or sizes.sum() != length:
        raise NotNative(f"parts of {sizes.tolist()} in all of {length}")
    return [int(end) for end in np.cumsum(sizes)]


# --- taking them apart ----------------------------------------------------------------------------


@onnx_op("SequenceAt", since=11)
def _at(call: Call) -> Tensor:
    items = _list(call).items
    return items[_index(call, 1, -1, len(items))]


@onnx_op("SequenceLength", since=11)
def _length(call: Call) -> Tensor:
    return Tensor.constant(np.array(len(_list(call).items), np.int64))


@onnx_op("ConcatFromSequence", since=11)
def _concat(call: Call) -> Tensor:
    items = list(_list(call).items)
    if not items:
        raise NotNative("an empty list is joined")
    along = int(call.attribute("axis", 0))
    if call.attribute("new_axis", 0):
        along = positive(along, items[0].rank + 1)
        items = [_wider(item, along) for item in items]
    return joined(call, items, positive(along, items[0].rank))


def _wider(item: Tensor, along: int) -> Tensor:
    """The tensor with a dimension of one more."""
    shape = [*item.shape[:along], 1, *item.shape[along:]]
    return item.shaped(shape, None if item.axis is None else item.axis + (item.axis >= along))


@onnx_op("SequenceMap", since=17)
def _map(call: Call) -> tuple[Tensor, ...]:
    body, first = call.attribute("body"), _list(call)
    lists = [item for item in call.inputs if isinstance(item, Listed)]
    if not isinstance(body, GraphDef) or not 0 < len(first.items) <= MOST_ROUNDS:
        raise NotNative(f"a list of {len(first.items)} one by one")
    if any(len(item.items) != len(first.items) for item in lists):
        raise NotNative("lists of different lengths together")
    rounds = [
        call.body(body, *(_entry(call, index, number) for index in range(len(call.inputs))))
        for number in range(len(first.items))
    ]
    return tuple(Listed.holding(outputs) for outputs in zip(*rounds, strict=True))


def _entry(call: Call, index: int, number: int) -> Tensor:
    """An input of one round: an entry of a list, or a value that all rounds share."""
    item = call[index]
    return item.items[number] if isinstance(item, Listed) else item


# --- what may be absent ---------------------------------------------------------------------------


@onnx_op("Optional", "OptionalGetElement", since=15)
def _there(call: Call) -> Tensor:
    return call[0]  # an absent value is not in the program at all


@onnx_op("OptionalHasElement", since=15)
def _has(call: Call) -> Tensor:
    return Tensor.constant(np.array(call.optional(0) is not None))
