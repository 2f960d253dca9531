"""linear((x - m) / s), linear(x * a + b), ...  →  linear(x) with other weights and bias

Why      a scaler ahead of a linear model is one multiplication per column, which fits into the
         weights, and one subtraction per column, which fits into the bias. Scaled columns beside
         others in a concatenation are folded too.
Unless   an operator other than a linear model reads the scaled columns; they are rounded to a
         narrower float than the model computes in, which changes answers; a number is zero,
         infinite or close to it; or folding an offset would cost digits: x - m is exact where x is
         close to m, and the folded sum must cancel w·m against w·x, so Σ|w·m| may be at most 256
         times (in float32 4 times) the scale of the answer, which is known only where the
         difference is scaled. An offset behind the factor cancels likewise.
Numerics the dot product is re-associated: |Δ| ≤ n · ε · Σ(|w·a·x| + |w·a·m|).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flour.core.node import Node, node
from flour.ops.elementwise import Add, Subtract
from flour.ops.linear import Linear
from objectstore import Blob
from oven.optimise.affine import HUGE, MOST_CANCELLATION, STEPS, Affine, Numbers, compose, dtype_of
from oven.optimise.concat_chain import ChainPart, joined, parts, seams
from oven.optimise.pattern import REASSOCIATES, Match, Rule, hole, op


class Scaled(NamedTuple):
    """The node below the scaling steps of a part, and the steps as one function; None if none."""

    below: Node
    scale: Affine | None
    moves: bool = False


def _scaled(m: Match, part: ChainPart, weights: Numbers, bias: Numbers) -> Scaled:
    """A part without its scaling steps, if they can be folded into the weights."""
    steps: list[Node] = []
    item, reader = part.item, part.reader
    while isinstance(item.op, STEPS) and m.facts.only_for_any(item, reader, Linear):
        steps.append(item)
        item, reader = item.inputs[0], item
    if not steps or dtype_of(item) != dtype_of(m["linear"]):
        return Scaled(part.item, None)
    scale = compose((step.op for step in reversed(steps)), dtype_of(item))
    if not scale.sane or not _is_accurate(scale, weights[:, part.columns], bias, dtype_of(item)):
        return Scaled(part.item, None)
    m.take(*steps)
    return Scaled(item, scale, any(isinstance(step.op, Add | Subtract) for step in steps))


def _is_accurate(scale: Affine, weights: Numbers, bias: Numbers, dtype: str) -> bool:
    """True if folding costs no digits: neither in sums that cancel, nor in the weights."""
    if scale.centre.any() and np.all(scale.factor == 1):
        return False  # the distance of x from the centre is not known
    # An offset behind the factor (as in x * a + b) cancels like one ahead of it.
    lost = np.abs(weights) @ np.broadcast_to(np.abs(scale.offset), weights.shape[1:])
    own = np.sqrt(np.square(weights).sum(axis=1))
    if len(bias):
        own = own + np.abs(bias)
    with np.errstate(all="ignore"):
        size = np.abs(weights * scale.factor)
    # Every weight stays a normal number, and is zero only where it was.
    normal = np.all(size < HUGE) and np.all((size > 1 / HUGE) | (weights == 0))
    return bool(normal and np.all(lost <= MOST_CANCELLATION[dtype] * own))


def _build(m: Match) -> Node | None:
    linear = m.op("linear", Linear)
    weights = linear.weights.array.astype(np.float64)
    bias = linear.bias.array.astype(np.float64)
    if not np.all(np.isfinite(weights)):
        return None
    every = parts(m, m["x"])
    folded = [(part, _scaled(m, part, weights, bias)) for part in every]
    if all(scaled.scale is None for _, scaled in folded):
        return None
    m.take(*seams(m, m["x"]))
    moved, moves = np.zeros(len(weights)), False
    for part, (_, scale, shifts) in folded:
        if scale is not None:
            mine = weights[:, part.columns]
            moved = moved + mine @ np.broadcast_to(scale.offset, mine.shape[1:])
            weights[:, part.columns] = mine * scale.factor
            moves = moves or shifts
    if moves or len(bias):
        bias = bias + moved if len(bias) else moved
    dtype = dtype_of(m["linear"])
    replacement = Linear(Blob.of(weights, dtype), Blob.of(bias, dtype))
    return node(replacement, [joined([scaled.below for _, scaled in folded], m["x"])])


RULE = Rule(op(Linear)(hole("x")), _build, REASSOCIATES, beside=STEPS)
