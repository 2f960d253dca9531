"""Operators that pick and place values by index: known at import, or computed for every row."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np

from flour.core.check import vector
from flour.core.node import Node
from flour.language.flow import Flow
from flour.onnx.arithmetic import converted, together
from flour.onnx.errors import NotNative
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.shapes import off_rows
from flour.onnx.tensor import Tensor, positive, sizes_fit, spread
from flour.ops.indexed import InRange, PickAt, PutAt
from flour.ops.pairwise import Same
from flour.ops.segments import RunningSum, TopPlaces
from flour.ops.source import Fill


def looked_up(call: NodeUse, item: Tensor, indices: Tensor) -> Tensor:
    """The values of a row's flat vector at computed indices."""
    if indices.value is not None and not indices.symbolic:
        return item.picked(indices.value, indices.axis)
    if item.value is not None and item.dtype != "string":
        picked = call.flow(indices).take(item.value.reshape(-1))
    else:
        picked = PickAt()(call.flow(item), call.flow(indices))
    return Tensor.of(picked, indices.shape, indices.axis)


def wrapped(call: NodeUse, indices: Tensor, size: int) -> Tensor:
    """Indices as int64, negative ones counted from the end of an axis."""
    if indices.value is not None:
        whole = indices.value.astype(np.int64)
        if ((whole < -size) | (whole >= size)).any():
            raise NotNative(f"an index beyond the axis of {size}")
        return Tensor.constant(np.where(whole < 0, whole + size, whole), indices.axis)
    flow = call.flow(indices).cast("int64")
    end = Fill(np.array([size]), scalar=True)(flow)
    counted = flow.less([0]).where(flow.plus(end), flow)
    return Tensor.of(in_range(flow, size, counted), indices.shape, indices.axis)


def in_range(indices: Flow, size: int, counted: Flow | None = None) -> Flow:
    """The indices, which are an error for a row beyond the axis; unchecked where none can be."""
    counted = indices if counted is None else counted
    return counted if _most(indices.node) < size else InRange(size)(counted)


def _most(item: Node) -> float:
    """The largest index that a node can have, if it has none below zero; else infinity."""
    match item.op.name:
        case "ArgMax" | "ArgMin" | "FirstLargest" | "Nearest":
            return vector(item.inputs[0].type, item.op.name).width - 1
        case "TopPlaces" | "SegmentPlace":
            return float(item.op.fields()["length"]) - 1
        case "AsVector" | "Cast" | "Concat" | "Element" | "Select":
            return max(map(_most, item.inputs))
    return 1 if getattr(item.type, "dtype", "") == "bool" else inf


def scaled(call: NodeUse, indices: Tensor, stride: int, base: object, axis: int | None) -> Tensor:
    """indices * stride + base, broadcast."""
    start = Tensor.constant(np.asarray(base, np.int64), axis)
    step = Tensor.constant(np.array(stride, np.int64))
    offsets = indices if stride == 1 else _whole(call, indices, step, times=True)
    return _whole(call, offsets, start, times=False)


def _whole(call: NodeUse, left: Tensor, right: Tensor, *, times: bool) -> Tensor:
    if left.value is not None and right.value is not None:
        sizes_fit(np.broadcast_shapes(left.shape, right.shape), "what is gathered")
        result = left.value * right.value if times else left.value + right.value
        return Tensor.constant(result, left.axis if left.axis is not None else right.axis)
    return together(call, [left, right], lambda x, y: x.times(y) if times else x.plus(y))


def strides(shape: Sequence[int]) -> list[int]:
    """The distance in the flat vector of neighbours along each axis."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


# --- gathering ------------------------------------------------------------------------------------


@onnx_op("Gather")
def _gather(call: NodeUse) -> Tensor:
    item, indices = call[0], call[1]
    along = positive(call.attribute("axis", 0), item.rank)
    off_rows(item, along, "values are picked")
    if item.axis is not None and indices.axis is not None:
        raise NotNative("indices into the values of all rows")
    axis = None if indices.axis is None else along + indices.axis
    if item.axis is not None:
        axis = item.axis if item.axis < along else item.axis + indices.rank - 1
    sizes_fit([indices.size, item.size // max(item.shape[along], 1)], "what is gathered")
    indices = wrapped(call, indices, item.shape[along])
    if indices.value is not None and item.value is not None and indices.axis is None:
        return Tensor.constant(np.take(item.value, indices.value, axis=along), axis)
    before, after = item.shape[:along], item.shape[along + 1 :]
    if not item.shape[along]:
        raise NotNative("indices into an axis of length zero")
    base = np.reshape(
        item.flat_indices().take(0, axis=along), (*before, *(1,) * indices.rank, *after)
    )
    wide = indices.shaped((*(1,) * len(before), *indices.shape, *(1,) * len(after)), axis)
    return looked_up(call, item, scaled(call, wide, strides(item.shape)[along], base, axis))


@onnx_op("GatherElements", since=11)
def _gather_elements(call: NodeUse) -> Tensor:
    item, indices = call[0], call[1]
    along = positive(call.attribute("axis", 0), item.rank)
    return looked_up(call, item, _element_indices(call, item, indices, along))


def _element_indices(call: NodeUse, item: Tensor, indices: Tensor, along: int) -> Tensor:
    """The index in the flat vector of `item` of each index along an axis."""
    off_rows(item, along, "values are picked")
    if indices.known and indices.axis is None and item.axis is not None:
        raise NotNative("indices without rows into values with rows")
    if item.axis != indices.axis:
        raise NotNative("indices into the values of all rows")
    grids: list[Any] = list(np.indices(indices.shape, sparse=True))
    steps = strides(item.shape)
    grids[along] = 0
    base = sum(grid * step for grid, step in zip(grids, steps, strict=True))
    wide = np.broadcast_to(np.asarray(base), indices.shape)
    return scaled(call, wrapped(call, indices, item.shape[along]), steps[along], wide, item.axis)


@onnx_op("GatherND", since=11)
def _gather_nd(call: NodeUse) -> Tensor:
    item, indices = call[0], call[1]
    batch = call.attribute("batch_dims", 0)
    return looked_up(call, item, _nd_indices(call, item, indices, batch))


def _nd_indices(call: NodeUse, item: Tensor, indices: Tensor, batch: int = 0) -> Tensor:
    """The indices in the flat vector of `item` of the values that tuples of indices select."""
    if item.axis is not None and (item.axis >= batch or indices.axis != item.axis):
        raise NotNative("indices into the values of all rows")
    if indices.axis is not None and indices.axis == indices.rank - 1:
        raise NotNative("tuples of indices across rows")
    count, outer = indices.shape[-1], indices.shape[:-1]
    rest, steps = item.shape[batch + count :], strides(item.shape)
    lead = np.indices(item.shape[:batch], sparse=True) if batch else ()
    base: Any = np.zeros((1,) * (len(outer) + len(rest)), np.int64)
    for axis, grid in enumerate(lead):
        base = (
            base + grid.reshape(grid.shape + (1,) * (len(outer) + len(rest) - batch)) * steps[axis]
        )
    base = base + np.arange(prod(rest)).reshape((1,) * len(outer) + rest)
    total = Tensor.constant(base, indices.axis)
    for number in range(count):
        one = indices.picked(indices.flat_indices()[..., number], indices.axis)
        wide = wrapped(call, one, item.shape[batch + number])
        wide = wide.shaped(outer + (1,) * len(rest), indices.axis)
        step = scaled(call, wide, steps[batch + number], 0, None)
        total = _whole(call, step, total, times=False)
    return spread(total, outer + rest, indices.axis)


# --- scattering -----------------------------------------------------------------------------------


def _placed(call: NodeUse, item: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    reduction = call.attribute("reduction", "none")
    if item.dtype in ("string", "bool"):
        raise NotNative(f"{item.dtype}s are placed")
    flows = [call.flow(part) for part in (item, indices, updates)]
    return Tensor.of(PutAt(reduction)(*flows), item.shape, item.axis)


@onnx_op("ScatterElements", since=11)
def _scatter_elements(call: NodeUse) -> Tensor:
    item, indices, updates = call[0], call[1], call[2]
    along = positive(call.attribute("axis", 0), item.rank)
    if updates.axis != item.axis:
        raise NotNative("updates without rows to values with rows")
    return _placed(call, item, _element_indices(call, item, indices, along), updates)


@onnx_op("ScatterND", since=11)
def _scatter_nd(call: NodeUse) -> Tensor:
    item, indices, updates = call[0], call[1], call[2]
    if item.axis is not None or updates.axis is not None:
        raise NotNative("values are placed in other rows")
    return _placed(call, item, _nd_indices(call, item, indices), updates)


# --- choosing by values known at import -----------------------------------------------------------


@onnx_op("Compress", since=9)
def _compress(call: NodeUse) -> Tensor:
    item, keep = call[0], np.flatnonzero(call.constant(1, "the condition"))
    if call.attribute("axis") is None:
        if item.axis is not None:
            raise NotNative("values of all rows in one list")
        return item.picked(item.flat_indices().reshape(-1)[keep], None)
    along = positive(call.attribute("axis"), item.rank)
    off_rows(item, along, "values are picked")
    return item.picked(item.flat_indices().take(keep, axis=along), item.axis)


@onnx_op("NonZero", since=9)
def _non_zero(call: NodeUse) -> Tensor:
    return Tensor.constant(np.array(np.nonzero(call.constant(0, "the input")), np.int64))


@onnx_op("OneHot", since=9)
def _one_hot(call: NodeUse) -> Tensor:
    indices, depth = call[0], int(call.constant(1, "the depth").reshape(-1)[0])
    sizes_fit([indices.size, max(depth, 0)], "the answer")
    off, on = (Tensor.constant(value) for value in call.constant(2, "the values").reshape(-1))
    along = positive(call.attribute("axis", -1), indices.rank + 1)
    axis = indices.axis if indices.axis is None or indices.axis < along else indices.axis + 1
    shape = list(indices.shape)
    shape.insert(along, 1)
    whole = converted(call, indices, "int64")
    wide = Tensor.of(call.flow(whole), indices.shape, indices.axis).shaped(shape, axis)
    end = Fill(np.array([depth]), scalar=True)
    flow = call.flow(wide)
    # Indices from -depth on count from the end; others out of range give no one.
    flow = flow.less([0]).where(flow.plus(end(flow)), flow)
    sizes = [1] * len(shape)
    sizes[along] = depth
    kinds = Tensor.constant(np.arange(depth).reshape(sizes))

    def choose(x: Flow, kind: Flow, yes: Flow, no: Flow) -> Flow:
        return Same()(x, kind).where(yes, no)

    return together(call, [Tensor.of(flow, shape, axis), kinds, on, off], choose)


# --- order ----------------------------------------------------------------------------------------


@onnx_op("TopK", since=1)
def _top(call: NodeUse) -> tuple[Tensor, Tensor]:
    item = call[0]
    along = positive(call.attribute("axis", -1), item.rank)
    off_rows(item, along, "values are ordered")
    k = call.optional(1)
    count = int(call.constant(1, "k").reshape(-1)[0]) if k else int(call.attribute("k"))
    length = item.shape[along]
    order = [i for i in range(item.rank) if i != along] + [along]
    ends = item.picked(item.flat_indices().transpose(order), None)
    runs = item.size // length
    flow = TopPlaces(length, count, not call.flag("largest"))(call.flow(ends))
    outer = [size for i, size in enumerate(item.shape) if i != along]
    indices = Tensor.of(flow, [*outer, count], None)
    starts = np.repeat(np.arange(runs) * length, count).reshape(*outer, count)
    values = looked_up(call, ends, scaled(call, indices, 1, starts, None))
    back = np.argsort(order)
    table = values.flat_indices().transpose(tuple(back))
    return values.picked(table, item.axis), indices.picked(table, item.axis)


@onnx_op("CumSum", since=11)
def _cumsum(call: NodeUse) -> Tensor:
    item = call[0]
    along = positive(int(call.constant(1, "the axis").reshape(-1)[0]), item.rank)
    off_rows(item, along, "values are added up")
    order = [i for i in range(item.rank) if i != along] + [along]
    ends = item.picked(item.flat_indices().transpose(order), None)
    flags = [bool(call.attribute(name, 0)) for name in ("exclusive", "reverse")]
    flow = RunningSum(item.shape[along], *flags)(call.flow(ends))
    sums = Tensor.of(flow, [item.shape[i] for i in order], None)
    back = tuple(np.argsort(order))
    return sums.picked(sums.flat_indices().transpose(back), item.axis)
