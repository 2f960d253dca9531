"""Operators that pick and place values by index: known at import, or computed for every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from flour.language.flow import Flow
from flour.onnx.arithmetic import converted, together
from flour.onnx.errors import NotNative
from flour.onnx.registry import Call, onnx_op
from flour.onnx.shapes import off_rows
from flour.onnx.tensor import Tensor, positive, sizes_fit, spread
from flour.ops.indexed import PickAt, PutAt
from flour.ops.segments import RunningProduct, RunningSum, TopPlaces
from flour.ops.source import Fill


def looked_up(call: Call, item: Tensor, places: Tensor) -> Tensor:
    """The values of a row's flat vector at computed places."""
    if places.value is not None and not places.symbolic:
        return item.picked(places.value, places.axis)
    if item.value is not None and item.dtype != "string":
        made = call.flow(places).take(item.value.reshape(-1))
    else:
        made = PickAt()(call.flow(item), call.flow(places))
    return Tensor.of(made, places.shape, places.axis)


def wrapped(call: Call, places: Tensor, size: int) -> Tensor:
    """Indices as int64, negative ones counted from the end of an axis."""
    if places.value is not None:
        whole = places.value.astype(np.int64)
        if ((whole < -size) | (whole >= size)).any():
            raise NotNative(f"an index beyond the axis of {size}")
        return Tensor.constant(np.where(whole < 0, whole + size, whole), places.axis)
    flow = call.flow(places).cast("int64")
    end = Fill(np.array([size]), scalar=True)(flow)
    made = flow.less([0]).where(flow.plus(end), flow)
    return Tensor.of(made, places.shape, places.axis)


def scaled(call: Call, places: Tensor, stride: int, base: Any, axis: int | None) -> Tensor:
    """places * stride + base, broadcast."""
    start = Tensor.constant(np.asarray(base, np.int64), axis)
    step = Tensor.constant(np.array(stride, np.int64))
    far = places if stride == 1 else _whole(call, places, step, times=True)
    return _whole(call, far, start, times=False)


def _whole(call: Call, left: Tensor, right: Tensor, *, times: bool) -> Tensor:
    if left.value is not None and right.value is not None:
        sizes_fit(np.broadcast_shapes(left.shape, right.shape), "what is gathered")
        made = left.value * right.value if times else left.value + right.value
        return Tensor.constant(made, left.axis if left.axis is not None else right.axis)
    return together(call, [left, right], lambda x, y: x.times(y) if times else x.plus(y))


def strides(shape: Sequence[int]) -> list[int]:
    """How far apart neighbours along each axis are in the flat vector."""
    return [prod(shape[place + 1 :]) for place in range(len(shape))]


# --- gathering ------------------------------------------------------------------------------------


@onnx_op("Gather")
def _gather(call: Call) -> Tensor:
    item, places = call[0], call[1]
    along = positive(call.attribute("axis", 0), item.rank)
    off_rows(item, along, "values are picked")
    if item.axis is not None and places.axis is not None:
        raise NotNative("every row picks out of all rows")
    axis = None if places.axis is None else along + places.axis
    if item.axis is not None:
        axis = item.axis if item.axis < along else item.axis + places.rank - 1
    sizes_fit([places.size, item.size // max(item.shape[along], 1)], "what is gathered")
    places = wrapped(call, places, item.shape[along])
    if places.value is not None and item.value is not None and places.axis is None:
        return Tensor.constant(np.take(item.value, places.value, axis=along), axis)
    before, after = item.shape[:along], item.shape[along + 1 :]
    if not item.shape[along]:
        raise NotNative("values are picked where there are none")
    base = np.reshape(item.places().take(0, axis=along), (*before, *(1,) * places.rank, *after))
    wide = places.shaped((*(1,) * len(before), *places.shape, *(1,) * len(after)), axis)
    return looked_up(call, item, scaled(call, wide, strides(item.shape)[along], base, axis))


@onnx_op("GatherElements", since=11)
def _gather_elements(call: Call) -> Tensor:
    item, places = call[0], call[1]
    along = positive(call.attribute("axis", 0), item.rank)
    return looked_up(call, item, _element_places(call, item, places, along))


def _element_places(call: Call, item: Tensor, places: Tensor, along: int) -> Tensor:
    """Where in the flat vector of `item` each index along an axis points."""
    off_rows(item, along, "values are picked")
    if places.known and places.axis is None and item.axis is not None:
        raise NotNative("indices that are no rows for values that are")
    if item.axis != places.axis:
        raise NotNative("every row picks out of all rows")
    grids: list[Any] = list(np.indices(places.shape, sparse=True))
    steps = strides(item.shape)
    grids[along] = 0
    base = sum(grid * step for grid, step in zip(grids, steps, strict=True))
    wide = np.broadcast_to(np.asarray(base), places.shape)
    return scaled(call, wrapped(call, places, item.shape[along]), steps[along], wide, item.axis)


@onnx_op("GatherND", since=11)
def _gather_nd(call: Call) -> Tensor:
    item, places = call[0], call[1]
    batch = call.attribute("batch_dims", 0)
    flat = _nd_places(call, item, places, batch)
    return looked_up(call, item, flat)


def _nd_places(call: Call, item: Tensor, places: Tensor, batch: int = 0) -> Tensor:
    """Where in the flat vector of `item` the values lie that tuples of indices point to."""
    if item.axis is not None and (item.axis >= batch or places.axis != item.axis):
        raise NotNative("every row picks out of all rows")
    if places.axis is not None and places.axis == places.rank - 1:
        raise NotNative("tuples of indices across rows")
    count, outer = places.shape[-1], places.shape[:-1]
    rest, steps = item.shape[batch + count :], strides(item.shape)
    lead = np.indices(item.shape[:batch], sparse=True) if batch else ()
    base: Any = np.zeros((1,) * (len(outer) + len(rest)), np.int64)
    for place, grid in enumerate(lead):
        base = (
            base + grid.reshape(grid.shape + (1,) * (len(outer) + len(rest) - batch)) * steps[place]
        )
    base = base + np.arange(prod(rest)).reshape((1,) * len(outer) + rest)
    total = Tensor.constant(base, places.axis)
    for number in range(count):
        one = places.picked(places.places()[..., number], places.axis)
        wide = wrapped(call, one, item.shape[batch + number])
        wide = wide.shaped(outer + (1,) * len(rest), places.axis)
        step = scaled(call, wide, steps[batch + number], 0, None)
        total = _whole(call, step, total, times=False)
    return spread(total, outer + rest, places.axis)


# --- scattering -----------------------------------------------------------------------------------


def _placed(call: Call, item: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    reduction = call.attribute("reduction", "none")
    if item.dtype in ("string", "bool"):
        raise NotNative(f"{item.dtype}s are placed")
    flows = [call.flow(part) for part in (item, places, updates)]
    return Tensor.of(PutAt(reduction)(*flows), item.shape, item.axis)


@onnx_op("ScatterElements", since=11)
@onnx_op("Scatter", since=9)
def _scatter_elements(call: Call) -> Tensor:
    item, places, updates = call[0], call[1], call[2]
    along = positive(call.attribute("axis", 0), item.rank)
    if updates.axis != item.axis:
        raise NotNative("updates that are no rows for values that are")
    return _placed(call, item, _element_places(call, item, places, along), updates)


@onnx_op("ScatterND", since=11)
def _scatter_nd(call: Call) -> Tensor:
    item, places, updates = call[0], call[1], call[2]
    if item.axis is not None or updates.axis is not None:
        raise NotNative("values are placed in other rows")
    return _placed(call, item, _nd_places(call, item, places), updates)


# --- choosing by what is known --------------------------------------------------------------------


@onnx_op("Compress", since=9)
def _compress(call: Call) -> Tensor:
    item, keep = call[0], np.flatnonzero(call.constant(1, "the condition"))
    if call.attribute("axis") is None:
        if item.axis is not None:
            raise NotNative("values of all rows in one list")
        return item.picked(item.places().reshape(-1)[keep], None)
    along = positive(call.attribute("axis"), item.rank)
    off_rows(item, along, "values are picked")
    return item.picked(item.places().take(keep, axis=along), item.axis)


@onnx_op("NonZero", since=9)
def _non_zero(call: Call) -> Tensor:
    return Tensor.constant(np.array(np.nonzero(call.constant(0, "the input")), np.int64))


@onnx_op("Unique", since=11)
def _unique(call: Call) -> tuple[Tensor, ...]:
    """Of values known at import: how many differ is no business of a row's."""
    item, axis = call[0], call.attribute("axis")
    values = call.constant(0, "the input")
    if item.axis is not None or (values.dtype.kind == "f" and np.isnan(values).any()):
        raise NotNative("values of all rows, or what equals nothing")
    axis = None if axis is None else positive(axis, item.rank)
    found = np.unique(values, True, True, True, axis=axis)
    kept, first, back, counts = (np.asarray(part) for part in found)
    back = back.reshape(-1)
    if not call.attribute("sorted", 1):
        order = np.argsort(first, kind="stable")
        kept = kept.take(order, axis=axis or 0)
        first, counts, back = first[order], counts[order], np.argsort(order)[back]
    places = (Tensor.constant(part.astype(np.int64)) for part in (first, back, counts))
    return replace(Tensor.constant(kept), dtype=item.dtype), *places


@onnx_op("OneHot", since=9)
def _one_hot(call: Call) -> Tensor:
    places, depth = call[0], int(call.constant(1, "the depth").reshape(-1)[0])
    sizes_fit([places.size, max(depth, 0)], "the answer")
    off, on = (Tensor.constant(value) for value in call.constant(2, "the values").reshape(-1))
    along = positive(call.attribute("axis", -1), places.rank + 1)
    axis = places.axis if places.axis is None or places.axis < along else places.axis + 1
    shape = list(places.shape)
    shape.insert(along, 1)
    whole = converted(call, places, "int64")
    wide = Tensor.of(call.flow(whole), places.shape, places.axis).shaped(shape, axis)
    end = Fill(np.array([depth]), scalar=True)
    flow = call.flow(wide)
    # Indices from -depth on count from the end; others beyond it are nowhere.
    flow = flow.less([0]).where(flow.plus(end(flow)), flow)
    sizes = [1] * len(shape)
    sizes[along] = depth
    kinds = Tensor.constant(np.arange(depth).reshape(sizes))

    def choose(x: Flow, kind: Flow, yes: Flow, no: Flow) -> Flow:
        from flour.ops.pairwise import Same

        return Same()(x, kind).where(yes, no)

    return together(call, [Tensor.of(flow, shape, axis), kinds, on, off], choose)


# --- order ----------------------------------------------------------------------------------------


@onnx_op("TopK", since=1)
def _top(call: Call) -> tuple[Tensor, Tensor]:
    item = call[0]
    along = positive(call.attribute("axis", -1), item.rank)
    off_rows(item, along, "values are ordered")
    given = call.optional(1)
    count = int(call.constant(1, "k").reshape(-1)[0]) if given else int(call.attribute("k"))
    length = item.shape[along]
    order = [place for place in range(item.rank) if place != along] + [along]
    ends = item.picked(item.places().transpose(order), None)
    runs = item.size // length
    flow = TopPlaces(length, count, not call.flag("largest"))(call.flow(ends))
    outer = [size for place, size in enumerate(item.shape) if place != along]
    places = Tensor.of(flow, [*outer, count], None)
    starts = np.repeat(np.arange(runs) * length, count).reshape(*outer, count)
    values = looked_up(call, ends, scaled(call, places, 1, starts, None))
    back = np.argsort(order)
    table = values.places().transpose(tuple(back))
    return values.picked(table, item.axis), places.picked(table, item.axis)


@onnx_op("CumSum", since=11)
def _cumsum(call: Call) -> Tensor:
    return _running(call, RunningSum)


@onnx_op("CumProd", since=26)
def _cumprod(call: Call) -> Tensor:
    return _running(call, RunningProduct)


def _running(call: Call, kind: type[RunningSum]) -> Tensor:
    item = call[0]
    along = positive(int(call.constant(1, "the axis").reshape(-1)[0]), item.rank)
    off_rows(item, along, "values are added up")
    order = [place for place in range(item.rank) if place != along] + [along]
    ends = item.picked(item.places().transpose(order), None)
    flags = [bool(call.attribute(name, 0)) for name in ("exclusive", "reverse")]
    flow = kind(item.shape[along], *flags)(call.flow(ends))
    made = Tensor.of(flow, [item.shape[place] for place in order], None)
    back = tuple(np.argsort(order))
    return made.picked(made.places().transpose(back), item.axis)
