"""linear(concat(a, b, c))  →  linear(concat(a, c)) + linear(b)

Why      each branch is scored where it is produced. Constants become part of the bias; a
         normalised branch is divided once, after its sum; dense columns beside sparse ones get
         the dense kernel. Two pipelines that share a branch and its weights share that score.
Unless   no branch gains by it: joining columns costs nothing in a fused stage, so ordinary
         dense branches stay together; or another operator reads the concatenation; or branches
         work in a narrower float than the whole.
Numerics the dot product is re-associated: |Δ| ≤ n · ε · Σ|wᵢxᵢ|.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.core.types import FLOATS, Scalar
from flour.ops.binary import Over, Plus
from flour.ops.linear import Linear
from flour.ops.source import Fill
from flour.ops.structure import Concat
from objectstore import Blob
from oven.optimise.affine import Numbers, dtype_of
from oven.optimise.concat_chain import ChainPart, joined, parts, seams
from oven.optimise.pattern import REASSOCIATES, Match, Rule, hole, op

#: From this many dense columns on, a kernel of their own pays.
MANY = 8


def _normalised(m: Match, part: ChainPart) -> bool:
    """True if the part is divided as a whole, and dividing its sums instead is less work."""
    item, outs = part.item, m.op("linear", Linear).weights.shape[0]
    divided = isinstance(item.op, Over) and isinstance(item.inputs[1].type, Scalar)
    return divided and outs < part.width and m.facts.only_for(item, part.reader)


def _groups(m: Match, every: list[ChainPart]) -> list[list[ChainPart]]:
    """The parts in groups that are scored together; constants form their own."""
    rest = [part for part in every if not isinstance(part.item.op, Fill)]
    apart = [part for part in rest if _normalised(m, part)]
    rest = [part for part in rest if part not in apart]
    dense = [part for part in rest if not getattr(part.item.type, "sparse", False)]
    outs = m.op("linear", Linear).weights.shape[0]
    mixed = len(dense) < len(rest) and outs > 1 and sum(part.width for part in dense) >= MANY
    if mixed:
        rest = [part for part in rest if part not in dense]
    # The first group gets the bias: plain sums come first, as they start from it at no cost.
    return [*([dense] if mixed else []), *([rest] if rest else []), *([part] for part in apart)]


def _guard(m: Match) -> bool:
    # One float width all the way: sums in a narrower one would round differently.
    dtype = dtype_of(m["linear"])
    every = (m["x"], *(part.item for part in parts(m, m["x"])))
    return dtype in FLOATS and all(dtype_of(item) == dtype for item in every)


def _build(m: Match) -> Node | None:
    linear, dtype = m.op("linear", Linear), dtype_of(m["linear"])
    weights = linear.weights.array
    every = parts(m, m["x"])
    groups = _groups(m, every)
    constants = [part for part in every if isinstance(part.item.op, Fill)]
    if not groups or (len(groups) == 1 and not constants):
        return None
    bias = _with_constants(linear, constants)
    if bias is None:
        return None
    m.take(*seams(m, m["x"]))
    total: Node | None = None
    like = seams(m, m["x"])[-1]  # sparse branches may stay sparse even if the whole was dense
    for group in groups:
        mine = np.concatenate([weights[:, part.columns] for part in group], axis=1)
        scored = Linear(Blob.of(mine, dtype), Blob.of(bias, dtype))
        scores = node(scored, [joined([part.item for part in group], like)])
        total, bias = scores if total is None else node(Plus(), [total, scores]), bias[:0]
    return total


def _with_constants(linear: Linear, constants: list[ChainPart]) -> Numbers | None:
    """The bias plus the constants' share, if that is finite."""
    bias = linear.bias.array.astype(np.float64)
    for part in constants:
        assert isinstance(part.item.op, Fill)
        weights = linear.weights.array[:, part.columns].astype(np.float64)
        with np.errstate(all="ignore"):
            added = weights @ part.item.op.values.array.astype(np.float64)
        bias = bias + added if len(bias) else added
    return bias if np.all(np.isfinite(bias)) else None


RULE = Rule(op(Linear)(hole("x")), _build, REASSOCIATES, _guard, beside=(Concat, Fill))
