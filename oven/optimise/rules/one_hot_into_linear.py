"""linear(one_hot(codes))  →  the weight of each code, looked up

Why      the product of a row with a single one in it and a column of weights is one of the
         weights. The look-ups become columns of the linear map's input with weight one, so they
         are added like any other column, and neither the ones nor the zeros are ever made.
Unless   there are several outputs (then a stored one already adds a row of weights, see
         sparse_into_linear); another operator reads the one-hot columns; or the weights would be
         rounded to a narrower float than they are used in.
Numerics the terms that were zero are left out; the others are added in the same order.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.core.types import FLOATS
from flour.ops.encode import LookUp, OneHot
from flour.ops.linear import Linear
from flour.ops.structure import ToDense
from objectstore import Blob
from oven.optimise.affine import Numbers, dtype_of
from oven.optimise.concat_chain import ChainPart, joined, parts, seams
from oven.optimise.pattern import REASSOCIATES, Match, Rule, hole, op


def _one_hot(m: Match, part: ChainPart) -> Node | None:
    """The one-hot node that computes a part, stored densely or not."""
    item, reader = part.item, part.reader
    if isinstance(item.op, ToDense) and m.facts.only_for(item, reader):
        item, reader = item.inputs[0], item
    return item if isinstance(item.op, OneHot) and m.facts.only_for(item, reader) else None


def _guard(m: Match) -> bool:
    dtype = dtype_of(m["linear"])
    weights = m.op("linear", Linear).weights
    same = dtype in FLOATS and dtype_of(m["x"]) == dtype
    return same and weights.shape[0] == 1 and bool(np.all(np.isfinite(weights.array)))


def _build(m: Match) -> Node | None:
    linear, dtype = m.op("linear", Linear), dtype_of(m["linear"])
    one_hots = [(part, _one_hot(m, part)) for part in parts(m, m["x"])]
    if all(hot is None or not part.width for part, hot in one_hots):
        return None
    items: list[Node] = []
    weights: list[Numbers] = []
    for part, hot in one_hots:
        mine = linear.weights.array.astype(np.float64)[:, part.columns]
        if hot is None or not part.width:
            items.append(part.item)
            weights.append(mine)
            continue
        assert isinstance(hot.op, OneHot)
        columns = len(hot.op.starts) - 1
        table, other = Blob.of(mine[0], dtype), Blob.of(np.zeros(columns), dtype)
        items.append(node(LookUp(table, hot.op.starts, other), hot.inputs))
        weights.append(np.ones((1, columns)))
        m.take(*{part.item, hot})
    m.take(*seams(m, m["x"]))
    replacement = linear.replace(weights=Blob.of(np.concatenate(weights, axis=1), dtype))
    return node(replacement, [joined(items, m["x"])])


RULE = Rule(op(Linear)(hole("x")), _build, REASSOCIATES, _guard, beside=(OneHot,))
