"""linear(linear(x))  →  linear(x)

Why      a projection (PCA, random projection, ...) ahead of a linear model is one matrix away
         from being part of it, also where it stands beside other columns in a concatenation.
Unless   another operator reads the projection; the product would be more work than its factors (a
         narrow waist); the factors work in different float widths, as rounding to a narrower one
         in between changes answers; or a product is not finite.
Numerics the dot products are re-associated: |Δ| ≤ (n + k) · ε · Σ|w₂||w₁||x|, which bounds the
         rounding of the two steps as well.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.core.types import FLOATS, Vector
from flour.ops.linear import Linear
from objectstore import Blob
from oven.optimise.affine import Numbers, dtype_of
from oven.optimise.concat_chain import ChainPart, joined, parts, seams
from oven.optimise.pattern import REASSOCIATES, Match, Rule, hole, op


def _inner(m: Match, part: ChainPart) -> Linear | None:
    """The projection that computes a part, if it can be folded."""
    item, outs = part.item, m.op("linear", Linear).weights.shape[0]
    if not isinstance(item.op, Linear) or not m.facts.only_for(item, part.reader):
        return None
    dtype = dtype_of(item)
    if dtype not in FLOATS or dtype != dtype_of(m["linear"]):
        return None
    waist, width = item.op.weights.shape
    x = item.inputs[0].type
    sparse = isinstance(x, Vector) and x.sparse  # a column that is not stored costs nothing
    less = outs <= waist if sparse else outs * width <= waist * (outs + width)
    return item.op if less else None


def _build(m: Match) -> Node | None:
    linear = m.op("linear", Linear)
    weights = linear.weights.array.astype(np.float64)
    bias = linear.bias.array.astype(np.float64)
    projections = [(part, _inner(m, part)) for part in parts(m, m["x"])]
    if all(inner is None for _, inner in projections):
        return None
    blocks: list[Numbers] = []
    with np.errstate(all="ignore"):
        for part, inner in projections:
            mine = weights[:, part.columns]
            if inner is not None:
                if len(inner.bias) or len(bias):
                    bias = bias if len(bias) else np.zeros(len(weights))
                if len(inner.bias):
                    bias = bias + mine @ inner.bias.array.astype(np.float64)
                mine = mine @ inner.weights.array.astype(np.float64)
            blocks.append(mine)
    product = np.concatenate(blocks, axis=1)
    if not (np.all(np.isfinite(product)) and np.all(np.isfinite(bias))):
        return None
    m.take(*seams(m, m["x"]), *(part.item for part, inner in projections if inner))
    dtype = dtype_of(m["linear"])
    below = [part.item.inputs[0] if inner else part.item for part, inner in projections]
    return node(Linear(Blob.of(product, dtype), Blob.of(bias, dtype)), [joined(below, m["x"])])


RULE = Rule(op(Linear)(hole("x")), _build, REASSOCIATES)
