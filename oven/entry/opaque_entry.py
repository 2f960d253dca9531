"""The entry of a plan that is one part of a model, which onnxruntime runs.

Such a plan has nothing to do but to hand arrays over and answers back. The general way, with a
stage among others in mind, takes several times as long as a small part itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import FLOATS, Type, Vector
from flour.ops.opaque import Opaque, PartWire
from flour.ops.source import Field
from flour.ops.structure import Element
from oven.entry.tables import PlanSteps

Answers = tuple[Any, ...]
Call = Callable[[object], Answers]


class Given(NamedTuple):
    """An array that is handed over as it is: its name in the plan, its wire's, what it must be."""

    label: str
    name: str
    dtype: np.dtype[Any]
    width: int

    def fits(self, block: Any) -> bool:
        """True if a block is such an array."""
        whole = type(block) is np.ndarray and block.dtype == self.dtype and block.ndim == 2
        return whole and block.shape[1] == self.width


def open_opaque_entry(plan: PlanSteps, fallback: Call) -> Call | None:
    """The entry over arrays by name, or over the one array; None if the plan does more."""
    found = {_part(item) for item in plan.outputs}
    item = found.pop() if len(found) == 1 else None  # every output is it, or picked from it
    if item is None or len(plan.steps) > 1 + len(plan.outputs):
        return None
    op, given = item.op, _given(item, plan.inputs)
    assert isinstance(op, Opaque), "it was looked for"
    leaves = [_leaf(output, op) for output in plan.outputs]
    if given is None or any(wire is None for wire in leaves):
        return None
    return _opened(op, given, [wire for wire in leaves if wire is not None], fallback)


def _part(item: Node) -> Node | None:
    while isinstance(item.op, Element | Field):
        (item,) = item.inputs
    return item if isinstance(item.op, Opaque) and item.op.layout == "rows" else None


def _given(item: Node, inputs: Mapping[str, Type]) -> list[Given] | None:
    """The inputs to hand over; None unless they are blocks of numbers in rows."""
    op = item.op
    assert isinstance(op, Opaque), "it was looked for"
    found = []
    for wire, source in zip(op.inputs, item.inputs, strict=True):
        if not isinstance(source.op, Source) or not _is_block(wire) or wire.kind not in FLOATS:
            return None
        kind = inputs.get(source.op.label)
        if not isinstance(kind, Vector) or kind.sparse:
            return None
        found.append(Given(source.op.label, wire.name, np.dtype(wire.kind), wire.shape[1]))
    return found if len(found) == len(inputs) else None


def _is_block(wire: PartWire) -> bool:
    return wire.axis == 0 and len(wire.shape) == 2 and wire.shape[0] == 1


def _leaf(item: Node, op: Opaque) -> PartWire | None:
    """The wire of the part that is an output as it is: a block, or one number a row."""
    single = isinstance(item.op, Element)
    below = item.inputs[0] if single else item
    if isinstance(below.op, Field):
        label = below.op.label
        wire = next((each for each in op.outputs if each.name == label), None)
    else:
        wire = op.outputs[0] if below.op is op and len(op.outputs) == 1 else None
    if wire is None or wire.kind == "string" or wire.axis != 0:
        return None
    return wire if (wire.shape == (1,) if single else _is_block(wire)) else None


def _opened(op: Opaque, given: Sequence[Given], leaves: Sequence[PartWire], fallback: Call) -> Call:
    names = [wire.name for wire in leaves]
    checks = [(wire.shape[1:], np.dtype(wire.kind)) for wire in leaves]
    if len(given) == len(leaves) == 1:
        return _single(op, given[0], names, checks[0], fallback)

    def call(data: object) -> Answers:
        feed = _feed(given, data)
        if feed is None:
            return fallback(data)
        made = op.held().answers(names, feed)
        rows = (len(feed[given[0].name]),)
        for value, (shape, dtype) in zip(made, checks, strict=True):
            if value.shape != rows + shape or value.dtype != dtype:
                return fallback(data)  # which says what is wrong with it
        return tuple(made)

    return call


def _single(
    op: Opaque, one: Given, names: list[str], check: tuple[tuple[int, ...], Any], fallback: Call
) -> Call:
    """An entry for one array and one answer: every look-up counts here, as parts can be small."""
    label, name, want, width = one
    shape, dtype = check
    array, held = np.ndarray, op.held

    def call(data: object) -> Answers:
        block = data.get(label) if type(data) is dict and len(data) == 1 else data
        # Dtypes of numbers are there once; one that is not goes the long way.
        if type(block) is array and block.dtype is want:
            rows, *more = block.shape or (0,)
            if rows and more == [width]:
                (made,) = held().answers(names, {name: block})
                if made.dtype is dtype and made.shape == (rows, *shape):
                    return (made,)
        return fallback(data)

    return call


def _feed(given: Sequence[Given], data: object) -> dict[str, Any] | None:
    """The feed for onnxruntime from a dict of arrays with one number of rows."""
    if type(data) is not dict and len(given) == 1:
        data = {given[0].label: data}
    if type(data) is not dict or len(data) != len(given):
        return None
    feed = {each.name: data.get(each.label) for each in given}
    if not all(each.fits(block) for block, each in zip(feed.values(), given, strict=True)):
        return None
    counts = {len(block) for block in feed.values() if block is not None}
    return feed if len(counts) == 1 and 0 not in counts else None
