"""linear(x / |x|)  →  linear(x) / |x| + bias

Why      one division for each output instead of one for each column; and the linear map then
         follows x directly, so other rules can merge the two.
Unless   another operator reads the normalised columns; there are as many outputs as columns; or the
         division happens in a narrower float than the linear map.
Numerics the dot product is re-associated: |Δ| ≤ n · ε · Σ|wᵢxᵢ| / |x|. For rows near the end of
         the float range the sum may overflow where the normalised one does not.
"""

from __future__ import annotations

from flour.core.node import Node, node
from flour.core.types import Scalar, Vector
from flour.ops.binary import Over
from flour.ops.elementwise import Add
from flour.ops.linear import Linear
from objectstore import Blob
from oven.optimise.affine import dtype_of, is_float
from oven.optimise.pattern import REASSOCIATES, Match, Rule, hole, op


def _guard(m: Match) -> bool:
    x, length = m["x"].type, m["length"].type
    if not (isinstance(x, Vector) and isinstance(length, Scalar) and is_float(x)):
        return False
    outs = m.op("linear", Linear).weights.shape[0]
    same = {dtype_of(m[name]) for name in ("x", "length", "over", "linear")}
    return m.alone() and outs < x.width and len(same) == 1


def _build(m: Match) -> Node:
    linear = m.op("linear", Linear)
    dtype = dtype_of(m["linear"])
    bare = Linear(Blob.of(linear.weights, dtype), Blob.of([], dtype))
    quotient = node(m["over"].op, [node(bare, [m["x"]]), m["length"]])
    return node(Add(Blob.of(linear.bias, dtype)), [quotient]) if len(linear.bias) else quotient


RULE = Rule(op(Linear)(op(Over)(hole("x"), hole("length"))), _build, REASSOCIATES, _guard)
