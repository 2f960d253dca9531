"""(x - m) / s > t  →  x > t′;   trees over scaled columns  →  trees with other thresholds

Why      a tree only tests on which side of a threshold a number is, so a step that grows with x
         can be undone in the thresholds, once, when the plan is baked.
Unless   a step does not grow with x (a factor that is negative, zero, infinite or NaN), or turns
         whole numbers into floats; another operator reads the transformed columns; they are tested
         by a set of categories, or a zero counts as missing; or a test fails for every number,
         which no threshold expresses. Nor are many nodes with float32 thresholds changed to
         float64: steps on a few columns cost a row less than nodes twice as big.
Numerics none: t′ is the exact float where the transformed comparison flips, found by bisection
         over all floats and checked against its neighbours. Every step is monotone because it is
         one correctly rounded operation. NaN stays NaN, and takes the same way as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node
from flour.core.op import Op
from flour.core.types import Vector
from flour.ops.bases import Elementwise
from flour.ops.elementwise import (
    Add,
    Cast,
    Clip,
    Divide,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Multiply,
    Subtract,
    WithParameter,
)
from flour.ops.trees.walk import Walk
from objectstore import Blob
from oven.optimise.affine import dtype_of, is_float
from oven.optimise.concat_chain import ChainPart, joined, parts, seams, width_of
from oven.optimise.pattern import BITS, Match, Rule, op, rest
from oven.optimise.thresholds import Flags, Floats, after, last_passing

Indices = NDArray[np.int64]
#: From this many nodes per column on, thresholds stay float32.
_MANY = 64


class Transformed(NamedTuple):
    """A part of the input: the node below the steps, and the steps in order."""

    below: Node
    steps: tuple[Elementwise, ...]
    part: ChainPart

    def transformed(self, x: Floats, columns: Indices) -> Floats:
        """The numbers after the steps, for a number in each of these columns."""
        with np.errstate(all="ignore"):
            for step in self.steps:
                x = np.asarray(step.on_columns(columns).reference(x))
        return x


def _without_steps(m: Match, part: ChainPart) -> Transformed:
    """Walk down from a part as long as its steps can be undone."""
    steps: list[Elementwise] = []
    item, reader = part.item, part.reader
    while _monotone(item) and m.facts.only_for_any(item, reader, *_READERS):
        assert isinstance(item.op, Elementwise)
        steps.append(item.op)
        m.take(item)
        reader, item = item, item.inputs[0]
    return Transformed(item, tuple(reversed(steps)), part)


def _monotone(item: Node) -> bool:
    """True if it is one correctly rounded operation on floats that never decreases."""
    if not (item.inputs and _dense_float(item) and _dense_float(item.inputs[0])):
        return False
    if isinstance(item.op, WithParameter):
        value = item.op.fitted(np.empty(0, dtype_of(item.inputs[0])))
        growing = isinstance(item.op, Subtract | Add) or (
            isinstance(item.op, Multiply | Divide) and bool(np.all(value > 0))
        )
        return growing and bool(np.all(np.isfinite(value)))
    if isinstance(item.op, Clip):
        return bool(np.all(np.asarray(item.op.low) <= np.asarray(item.op.high)))
    return isinstance(item.op, Cast)


def _dense_float(item: Node) -> bool:
    return is_float(item.type) and not (isinstance(item.type, Vector) and item.type.sparse)


# --- one comparison ------------------------------------------------------------------------------


class Flips(NamedTuple):
    """The test that is true up to the float where a comparison flips, and the new comparison."""

    below: Callable[[Floats, Floats], Flags]
    made: Callable[[Floats], Op]


_COMPARISONS: dict[type[Op], Flips] = {
    Greater: Flips(np.less_equal, Greater),
    GreaterEqual: Flips(np.less, Greater),
    Less: Flips(np.less, LessEqual),
    LessEqual: Flips(np.less_equal, LessEqual),
}
_READERS: tuple[type[Op], ...] = (Walk, *_COMPARISONS)


def _compared(m: Match, flips: Flips) -> Node | None:
    x = m.root.inputs[0]
    column = _without_steps(m, ChainPart(x, m.root, 0, width_of(x)))
    operand: Blob = m.root.op.fields()["operand"]
    limits = np.broadcast_to(operand.array.reshape(-1), (width_of(x),))
    if not column.steps or np.any(np.isnan(limits.astype(np.float64))):
        return None
    columns = np.arange(width_of(x))

    def stays(x: Floats) -> Flags:
        return flips.below(column.transformed(x, columns), limits)

    last = last_passing(stays, len(columns), dtype_of(column.below))
    return None if last is None else node(flips.made(last.astype(np.float64)), [column.below])


# --- a forest of them ----------------------------------------------------------------------------


def _walked(m: Match, walk: Walk) -> Node | None:
    every = [_without_steps(m, part) for part in parts(m, m.root.inputs[0])]
    kind = m.root.inputs[0].type
    absent = walk.absent and isinstance(kind, Vector) and kind.sparse
    zeros = walk.zeros or absent  # a zero is missing: decided on the steps' result
    many = walk.narrow and len(walk.feature) >= _MANY * width_of(m.root.inputs[0])
    if zeros or many or not any(each.steps for each in every):
        return None
    threshold = _thresholds(walk, every)
    if threshold is None:
        return None
    m.take(*seams(m, m.root.inputs[0]))
    # The thresholds include the rounding to float32.
    changed = walk.replace(threshold=Blob.of(threshold), narrow=False)
    return node(changed, [joined([each.below for each in every], m.root.inputs[0])])


def _thresholds(walk: Walk, every: Sequence[Transformed]) -> NDArray[np.float64] | None:
    """The thresholds of all nodes, pulled back through the steps of the column they test."""
    feature = walk.feature.array.astype(np.int64)
    thresholds = walk.threshold.array.astype(np.float64)
    for each in every:
        columns = each.part.columns
        nodes = np.flatnonzero((feature >= columns.start) & (feature < columns.stop))
        if not nodes.size or not (each.steps or walk.narrow):
            continue
        if len(walk.words) and np.any(walk.category.array.astype(np.int64)[nodes] >= 0):
            return None
        pulled = _pulled(walk, each, feature[nodes] - columns.start, thresholds[nodes])
        if pulled is None:
            return None
        thresholds[nodes] = pulled
    return thresholds


def _pulled(
    walk: Walk, column: Transformed, columns: Indices, limits: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    def passes(x: Floats) -> Flags:
        value = column.transformed(x, columns)
        with np.errstate(over="ignore"):
            value = value.astype(np.float32 if walk.narrow else np.float64)
        return value < limits if walk.strict else value <= limits

    if np.any(np.isnan(limits)):
        return None
    dtype = dtype_of(column.below) if column.steps else "float64"
    last = last_passing(passes, len(columns), dtype)
    if last is None or (walk.strict and np.any(np.isinf(last))):
        return None
    return (after(last) if walk.strict else last).astype(np.float64)


def _build(m: Match) -> Node | None:
    flips = _COMPARISONS.get(type(m.root.op))
    return _compared(m, flips) if flips is not None else _walked(m, m.op("test", Walk))


RULE = Rule(op(*_READERS, name="test")(rest("inputs")), _build, BITS)
