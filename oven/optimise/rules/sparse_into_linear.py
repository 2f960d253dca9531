"""linear(to_dense(x))  →  linear(x)

Why      a linear map adds up the stored numbers and does not need the zeros. Importers make
         columns dense because the library does, although a row of a thousand one-hot columns
         holds a single one.
Unless   a weight is NaN or infinite (0 · inf is NaN); another operator reads the dense columns;
         or there is one output, where the code is the same either way.
Numerics the terms that are zero are left out.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.ops.linear import Linear
from flour.ops.structure import Concat, ToDense
from oven.optimise.pattern import REASSOCIATES, Match, Rule, hole, op


def _stored(m: Match, item: Node, reader: Node) -> Node:
    """The node below a conversion to dense form."""
    if isinstance(item.op, ToDense) and m.facts.only_for(item, reader):
        m.take(item)
        return item.inputs[0]
    return item


def _guard(m: Match) -> bool:
    weights = m.op("linear", Linear).weights.array.astype(np.float64)
    return len(weights) > 1 and bool(np.all(np.isfinite(weights)))


def _build(m: Match) -> Node | None:
    x = _stored(m, m["x"], m.root)
    reader = m.root if x is m["x"] else m["x"]
    if isinstance(x.op, Concat) and m.facts.only_for(x, reader):
        items = [_stored(m, item, x) for item in x.inputs]
        x = x if items == list(x.inputs) else node(Concat(), items)
    return None if x is m["x"] else node(m.root.op, [x])


RULE = Rule(op(Linear)(hole("x")), _build, REASSOCIATES, _guard, beside=(ToDense,))
