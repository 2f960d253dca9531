"""Operators that move values and compute nothing: shapes, parts, repetitions, constants.

On a row's flat vector each is a table of indices, or no operation at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.language.sources import concat
from flour.onnx.errors import NotNative
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Rows, Tensor, positive, sizes_fit
from flour.onnx.tensors import dtype_of
from flour.onnx.words import Stacked

Indices = NDArray[np.int64]


def off_rows(item: Tensor, axis: int, what: str) -> None:
    """Raise NotNative if the axis is that of the rows."""
    if axis == item.axis:
        raise NotNative(f"{what} along the rows")


# --- reshaping ------------------------------------------------------------------------------------


@onnx_op("Reshape")
def _reshape(call: NodeUse) -> Tensor:
    item = call[0]
    attribute = call.attribute("shape")  # before version 5
    lengths = list(
        call.symbolic(1, "the new shape").reshape(-1) if attribute is None else attribute
    )
    if isinstance(item, Stacked):
        if any(_is(size, 0) for size in lengths):
            raise NotNative("a length copied from joined values of all rows")
        return reshaped(item.sorted_out(), lengths)
    if not call.attribute("allowzero", 0):
        full = _lengths(item)
        lengths = [full[i] if _is(size, 0) else size for i, size in enumerate(lengths)]
    return reshaped(item, lengths)


def _is(size: Any, number: int) -> bool:
    return not isinstance(size, Rows) and int(size) == number


def _lengths(item: Tensor) -> list[Any]:
    """The lengths of the ONNX value: along the rows a multiple of their number."""
    return [Rows(n) if i == item.axis else n for i, n in enumerate(item.shape)]


def reshaped(item: Tensor, lengths: Sequence[Any]) -> Tensor:
    """The values in the same order under other lengths; -1 is inferred."""
    open_ = [i for i, size in enumerate(lengths) if _is(size, -1)]
    rows = [i for i, size in enumerate(lengths) if isinstance(size, Rows)]
    if len(open_) > 1 or len(rows) > 1:
        raise NotNative("a shape in which more than one length is open")
    shape = [size.times if isinstance(size, Rows) else int(size) for size in lengths]
    if open_:
        rest = prod(size for i, size in enumerate(shape) if i != open_[0])
        if not rest or item.size % rest:
            raise NotNative(f"rows of {item.shape} become rows of {shape}")
        shape[open_[0]] = item.size // rest
    axis = rows[0] if rows else open_[0] if open_ and item.axis is not None else None
    return in_order(item, shape, axis)


def in_order(item: Tensor, shape: Sequence[int], axis: int | None) -> Tensor:
    """The tensor in a shape that keeps the order of values within and between rows."""
    if prod(shape) != item.size or (item.axis is None) != (axis is None):
        raise NotNative(f"rows of {item.shape} become rows of {list(shape)}")
    if axis is not None and prod(shape[:axis]) != prod(item.shape[: item.axis]):
        raise NotNative("the values of a row would not stay together")
    return item.shaped(shape, axis)


@onnx_op("Flatten")
def _flatten(call: NodeUse) -> Tensor:
    item = call[0]
    at = call.attribute("axis", 1)
    at = at + item.rank if at < 0 else at
    axis = None if item.axis is None else int(item.axis >= at)
    return in_order(item, [prod(item.shape[:at]), prod(item.shape[at:])], axis)


@onnx_op("Squeeze")
def _squeeze(call: NodeUse) -> Tensor:
    item = call[0]
    axes = call.integers(1, "axes")
    if axes is None:
        if item.axis is not None:
            raise NotNative("a squeeze of all dimensions of one, which may be the rows")
        axes = tuple(i for i, size in enumerate(item.shape) if size == 1)
    dropped = {positive(axis, item.rank) for axis in axes}
    if item.axis in dropped or any(item.shape[axis] != 1 for axis in dropped):
        raise NotNative("a squeeze of a dimension that is not one")
    shape = [size for i, size in enumerate(item.shape) if i not in dropped]
    axis = None if item.axis is None else item.axis - sum(g < item.axis for g in dropped)
    return item.shaped(shape, axis)


@onnx_op("Unsqueeze")
def _unsqueeze(call: NodeUse) -> Tensor:
    item, axes = call[0], call.integers(1, "axes")
    rank = item.rank + len(axes or ())
    new = {positive(axis, rank) for axis in axes or ()}
    old = [i for i in range(rank) if i not in new]
    sizes = dict(zip(old, item.shape, strict=True))
    axis = None if item.axis is None else old[item.axis]
    return item.shaped([sizes.get(i, 1) for i in range(rank)], axis)


@onnx_op("Transpose")
def _transpose(call: NodeUse) -> Tensor:
    item = call[0]
    return transposed(item, call.attribute("perm") or range(item.rank)[::-1])


def transposed(item: Tensor, order: Sequence[int]) -> Tensor:
    """The tensor with its axes in another order."""
    axis = None if item.axis is None else list(order).index(item.axis)
    return item.picked(item.flat_indices().transpose(tuple(order)), axis)


# --- lengths as values ----------------------------------------------------------------------------


@onnx_op("Shape")
def _shape(call: NodeUse) -> Tensor:
    lengths = _lengths(call[0])[call.attribute("start", 0) : call.attribute("end")]
    symbolic = any(isinstance(size, Rows) for size in lengths)
    return Tensor.constant(np.array(lengths, object if symbolic else np.int64))


@onnx_op("Size")
def _size(call: NodeUse) -> Tensor:
    item = call[0]
    if item.axis is None:
        return Tensor.constant(np.array(item.size, np.int64))
    size = np.empty((), object)
    size[()] = Rows(item.size)
    return Tensor.constant(size)


# --- side by side, and apart ----------------------------------------------------------------------


@onnx_op("Concat")
def _concat(call: NodeUse) -> Tensor:
    items = [item for item in call.inputs if item is not None]
    along = positive(call.attribute("axis", 1), items[0].rank)
    return joined(call, items, along) if along or items[0].axis != 0 else _stacked(call, items)


def _stacked(call: NodeUse, items: Sequence[Tensor]) -> Tensor:
    """The rows of all tensors, one tensor after another: blocks, which a reshape puts in order."""
    if len({(item.shape, item.axis) for item in items}) > 1:
        raise NotNative("values are joined along the rows")
    if len(items) == 1:
        return items[0]
    blocks = [item.shaped((1, *item.shape), 1) for item in items]
    return Stacked.of_blocks(joined(call, blocks, 0))


def joined(call: NodeUse, items: Sequence[Tensor], along: int) -> Tensor:
    """The tensors one behind another along an axis."""
    if len({item.axis for item in items}) > 1:
        raise NotNative("values with rows beside values without")
    axis = items[0].axis
    for item in items:
        off_rows(item, along, "values are joined")
    sizes_fit([sum(item.size for item in items)], "the result")
    if all(item.known for item in items):
        values = [item.value for item in items if item.value is not None]
        return Tensor.constant(np.concatenate(values, axis=along), axis)
    full = [item for item in items if item.size]
    starts = np.cumsum([0, *(item.size for item in full)])
    table = np.concatenate(
        [item.flat_indices() + start for item, start in zip(full, starts, strict=False)], axis=along
    )
    flows = [call.flow(item) for item in full]
    both = Tensor.of(flows[0] if len(flows) == 1 else concat(*flows), [int(starts[-1])], None)
    return both.picked(table, axis)


@onnx_op("Split")
def _split(call: NodeUse) -> tuple[Tensor, ...]:
    item = call[0]
    along = positive(call.attribute("axis", 0), item.rank)
    off_rows(item, along, "values are split")
    sizes = call.integers(1, "split") or _even(item.shape[along], call.outputs)
    tables = np.split(item.flat_indices(), np.cumsum(sizes)[:-1], axis=along)
    return tuple(item.picked(part, item.axis) for part in tables)


def _even(length: int, parts: int) -> tuple[int, ...]:
    """Parts of one size; the last may be shorter."""
    size = -(-length // parts)
    return tuple(max(min(size, length - size * i), 0) for i in range(parts))


@onnx_op("Slice", since=1)
def _slice(call: NodeUse) -> Tensor:
    item = call[0]
    starts, ends = call.integers(1, "starts") or (), call.integers(2, "ends") or ()
    axes = call.integers(3, "axes") if len(call.inputs) > 3 else call.attribute("axes")
    steps = call.integers(4, "steps") if len(call.inputs) > 4 else None
    indices = item.flat_indices()
    for i, axis in enumerate(axes if axes is not None else range(len(starts))):
        step = steps[i] if steps else 1
        at = positive(axis, item.rank)
        if at == item.axis and starts[i] == 0 and ends[i] >= 2**31 - 1 and step == 1:
            continue
        off_rows(item, at, "some values are picked")
        indices = indices.take(_range(item.shape[at], starts[i], ends[i], step), axis=at)
    return item.picked(indices, item.axis)


def _range(size: int, start: int, end: int, step: int) -> Indices:
    """The indices of a slice; bounds beyond either end are cut to that end."""
    if not step:
        raise NotNative("a slice with steps of zero")
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return np.arange(max(start, 0), min(end, size), step, dtype=np.int64)
    return np.arange(min(max(start, 0), size - 1), max(end, -1), step, dtype=np.int64)


# --- repeating and filling ------------------------------------------------------------------------


@onnx_op("Expand", since=8)
def _expand(call: NodeUse) -> Tensor:
    item = call[0]
    lengths = list(call.symbolic(1, "the new shape").reshape(-1))
    rows = [rows_at for rows_at, size in enumerate(lengths) if isinstance(size, Rows)]
    rank = max(len(lengths), item.rank)
    at = None if item.axis is None else item.axis + rank - item.rank
    if rows:
        rows_at = rows[0] + rank - len(lengths)
        if len(rows) > 1 or at not in (None, rows_at):
            raise NotNative("a shape in which more than one length is open")
        at = rows_at
    sizes = [size.times if isinstance(size, Rows) else int(size) for size in lengths]
    if item.axis is not None and not rows and len(sizes) > rank - 1 - at and sizes[at - rank] != 1:  # type: ignore[operator]  # at is set with the axis
        raise NotNative("rows are repeated")
    shape = np.broadcast_shapes(tuple(sizes), item.shape)
    sizes_fit(shape, "the result")
    return item.picked(np.broadcast_to(item.flat_indices(), shape), at)


@onnx_op("Tile", since=6)
def _tile(call: NodeUse) -> Tensor:
    item, repeats = call[0], call.symbolic(1, "the repeats").reshape(-1)
    if call[1].symbolic:
        return _tiled_by_rows(item, list(repeats))
    if item.axis is not None and repeats[item.axis] != 1:
        raise NotNative("rows are repeated")
    sizes_fit([n * int(r) for n, r in zip(item.shape, repeats, strict=True)], "the result")
    return item.picked(np.tile(item.flat_indices(), tuple(map(int, repeats))), item.axis)


def _tiled_by_rows(item: Tensor, repeats: list[Any]) -> Tensor:
    """A constant, repeated for every row."""
    along = [i for i, times in enumerate(repeats) if isinstance(times, Rows)]
    if len(along) > 1 or item.axis is not None or not item.known:
        raise NotNative("rows are repeated by their number")
    times = [int(n.times if isinstance(n, Rows) else n) for n in repeats]
    sizes_fit([n * r for n, r in zip(item.shape, times, strict=True)], "the result")
    return item.picked(np.tile(item.flat_indices(), times), along[0])


def filled(call: NodeUse, item: Tensor, table: Indices, value: object, axis: int | None) -> Tensor:
    """The values at these indices; a constant where the table has -1."""
    sizes_fit(table.shape, "the result")
    fill = np.array([value], item.value.dtype if item.value is not None else item.dtype)
    if item.value is not None:
        return Tensor.constant(np.concatenate([item.value.reshape(-1), fill])[table], axis)
    if not (table < 0).any():
        return item.picked(table, axis)
    flow = concat(call.flow(item), call.flow(Tensor.constant(fill)))
    return Tensor.of(flow, [item.size + 1], None).picked(
        np.where(table < 0, item.size, table), axis
    )


@onnx_op("Pad")
def _pad(call: NodeUse) -> Tensor:
    item = call[0]
    pads = call.integers(1, "pads") or call.attribute("paddings") or ()
    axes = [positive(a, item.rank) for a in call.integers(3, "axes") or range(item.rank)]
    fill = call.optional(2)
    value = call.constant(2).reshape(-1)[0] if fill is not None else call.attribute("value", 0)
    mode = call.attribute("mode", "constant")
    around = [(0, 0)] * item.rank
    for i, axis in enumerate(axes):
        around[axis] = (pads[i], pads[i + len(axes)])
    if item.axis is not None and any(around[item.axis]):
        raise NotNative("rows are added")
    table = item.flat_indices()
    cut = tuple(
        slice(max(-low, 0), size - max(-high, 0))
        for (low, high), size in zip(around, item.shape, strict=True)
    )
    wide = [(max(low, 0), max(high, 0)) for low, high in around]
    sizes_fit([n + low + high for n, (low, high) in zip(item.shape, wide, strict=True)], "it")
    how: Any = {"mode": mode} if mode != "constant" else {"constant_values": -1}
    return filled(call, item, np.pad(table[cut], wide, **how), value, item.axis)


@onnx_op("Constant")
def _constant(call: NodeUse) -> Tensor:
    kinds: dict[str, Any] = {
        "value": None,
        "sparse_value": None,
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
        "value_string": object,
        "value_strings": object,
    }
    for name, dtype in kinds.items():
        value = call.attribute(name)
        if value is not None:
            return Tensor.constant(np.asarray(value, dtype))
    raise NotNative("a constant without a value")


@onnx_op("ConstantOfShape", since=9)
def _constant_of_shape(call: NodeUse) -> Tensor:
    lengths = call.symbolic(0, "the shape").reshape(-1)
    value = call.attribute("value", np.zeros(1, np.float32)).reshape(-1)[0]
    rows = [i for i, size in enumerate(lengths) if isinstance(size, Rows)]
    if len(rows) > 1:
        raise NotNative("a shape in which more than one length is open")
    shape = [size.times if isinstance(size, Rows) else int(size) for size in lengths]
    sizes_fit(shape, "the constant")
    return Tensor.constant(np.full(shape, value), rows[0] if rows else None)


@onnx_op("Range", since=11)
def _numbers_from_to(call: NodeUse) -> Tensor:
    start, limit, step = (call.constant(index).reshape(-1)[0] for index in range(3))
    if not step or not np.isfinite((limit - start) / step):
        raise NotNative("an endless range")
    sizes_fit([math.ceil(max((limit - start) / step, 0))], "the range")
    count = max(int(np.ceil((float(limit) - float(start)) / float(step))), 0)
    return Tensor.constant((start + np.arange(count) * step).astype(np.asarray(start).dtype))


@onnx_op("EyeLike", since=9)
def _eye_like(call: NodeUse) -> Tensor:
    item = call[0]
    if item.axis is not None:
        raise NotNative("an identity matrix of as many rows as there are")
    dtype = dtype_of(call.attribute("dtype")) if call.attribute("dtype") else item.dtype
    high, wide = item.shape
    return Tensor.constant(np.eye(high, wide, call.attribute("k", 0)).astype(dtype))
