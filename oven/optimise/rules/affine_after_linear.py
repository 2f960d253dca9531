"""linear(x) - m, linear(x) / s, linear(x) * a + b, ...  →  linear(x) with other weights and bias

Why      a projection that is centred or scaled afterwards (as PCA is) does both while it sums.
Unless   another operator reads the bare sums, or a number is zero, infinite or close to it.
Numerics the dot product is re-associated: |Δ| ≤ n · ε · (Σ|w·x| + |m|). A difference that cancels
         loses no more digits than the sum it is taken from had lost already.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.ops.linear import Linear
from objectstore import Blob
from oven.optimise.affine import HUGE, STEPS, compose, dtype_of, is_float
from oven.optimise.pattern import REASSOCIATES, Match, Rule, chain, hole, op


def _guard(m: Match) -> bool:
    above = m.facts.sole_reader(m.root)
    whole = above is None or not isinstance(above.op, STEPS)
    return whole and m.alone() and is_float(m.root.type)


def _build(m: Match) -> Node | None:
    linear, dtype = m.op("linear", Linear), dtype_of(m.root)
    scale = compose(reversed(m.ops("steps")), dtype)
    if not scale.sane:
        return None
    with np.errstate(all="ignore"):
        weights = linear.weights.array.astype(np.float64) * scale.factor.reshape(-1, 1)
        bias = np.broadcast_to(scale.offset, len(weights))
        if len(linear.bias):
            bias = bias + linear.bias.array.astype(np.float64) * scale.factor
    size = np.abs(weights)
    kept = (size > 1 / HUGE) | (linear.weights.array == 0)
    if not (np.all(kept) and np.all(size < HUGE) and np.all(np.isfinite(bias))):
        return None
    return node(Linear(Blob.of(weights, dtype), Blob.of(bias, dtype)), [m["x"]])


RULE = Rule(chain(*STEPS)(op(Linear)(hole("x"))), _build, REASSOCIATES, _guard)
