"""linear with weights that are zero for whole columns  →  linear of the other columns

Why      a sparse model (an L1 penalty, a selection) uses few of the columns that are prepared
         for it; the others need not be computed, and drop_unused_columns removes them down to
         the sources.
Unless   such a column can be NaN or infinite, as an unchecked input of floats can (0 · NaN is NaN,
         and so is the original's answer), or can refuse a row (an encoder that is strict about
         unknown categories, a check for NaN), and nothing else of its part is used; or picking the
         others costs more than it saves: parts of a concatenation go as a whole, within a dense
         part more than half must be unused, within a sparse part nothing is picked.
Numerics Answers keep their bits up to the order of sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node
from flour.core.types import Vector
from flour.ops.bases import Elementwise
from flour.ops.linear import Linear
from flour.ops.source import Fill, Pick
from flour.ops.structure import Concat, Select, ToDense
from objectstore import Blob
from oven.optimise.finite import finite, may_refuse
from oven.optimise.pattern import REASSOCIATES, Match, ProgramFacts, Rule, hole, op

Mask = NDArray[np.bool_]


def _worth_keeping(item: Node, used: Mask, facts: ProgramFacts) -> Mask:
    """The columns to keep: at least those used, and as many more as are cheaper to keep."""
    kind = item.type
    if not used.any() or used.all() or not isinstance(kind, Vector):
        return used
    lone = facts.sole_reader(item) is not None
    match item.op:
        case Concat() if lone:
            return _by_part(item, used, facts)
        case Elementwise() if lone and type(item.op).infer is Elementwise.infer:
            return _worth_keeping(item.inputs[0], used, facts)
        case ToDense() if lone:
            return _worth_keeping(item.inputs[0], used, facts)
        case Pick():
            return used
    few = not kind.sparse and 2 * np.count_nonzero(used) <= kind.width
    return used if few else np.ones_like(used)


def _by_part(item: Node, used: Mask, facts: ProgramFacts) -> Mask:
    widths = [part.type.width if isinstance(part.type, Vector) else 1 for part in item.inputs]
    pieces = np.split(used, np.cumsum(widths)[:-1])
    kept = [
        _worth_keeping(part, piece, facts) for part, piece in zip(item.inputs, pieces, strict=True)
    ]
    # What can refuse a row has to be computed, though nothing is made of it.
    return np.concatenate(
        [
            mask if mask.any() or not may_refuse(part) else np.ones_like(mask)
            for part, mask in zip(item.inputs, kept, strict=True)
        ]
    )


def _build(m: Match) -> Node | None:
    linear, x = m.op("linear", Linear), m["x"]
    weights = linear.weights.array
    used = np.any(weights != 0, axis=0)
    if used.all() or not finite(x) or (not used.any() and may_refuse(x)):
        return None
    kept = _worth_keeping(x, used, m.facts)
    if kept.all():
        return None
    kind = m.root.type
    if not kept.any() and isinstance(kind, Vector):
        bias = linear.bias.array if len(linear.bias) else np.zeros(kind.width)
        return node(Fill(Blob.of(bias, kind.dtype)), [x])
    narrowed = linear.replace(weights=np.ascontiguousarray(weights[:, kept]))
    return node(narrowed, [node(Select(np.flatnonzero(kept)), [x])])


RULE = Rule(op(Linear)(hole("x")), _build, REASSOCIATES)
