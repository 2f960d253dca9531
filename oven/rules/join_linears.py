"""concat(linear(x), linear(x), ...)  →  linear(x) with all their outputs

Why      models that look at the same columns (one for each class or target) are one matrix
         product, which reads the columns once and keeps many sums in registers.
Unless   they do not stand next to each other, look at different columns or sum in different float
         widths; or something else reads one of them.
Numerics the same sums, in the order of the matrix product.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from flour.node import Node, node
from flour.ops.linear import Linear
from flour.ops.structure import Concat
from objectstore import Blob
from oven.affine import Numbers, dtype_of
from oven.parts import joined
from oven.pattern import Match, op, rest
from oven.rule import REASSOCIATES, Rule


def _run(m: Match, part: Node) -> object:
    """Equal for neighbours that can become one."""
    if isinstance(part.op, Linear) and m.facts.only_for(part, m.root):
        return (part.inputs[0], dtype_of(part))
    return part


def _build(m: Match) -> Node | None:
    runs = [list(run) for _, run in groupby(m.root.inputs, lambda part: _run(m, part))]
    parts = [_one(run) if isinstance(run[0].op, Linear) and len(run) > 1 else run for run in runs]
    items = [item for part in parts for item in part]
    if len(items) == len(m.root.inputs):
        return None
    m.take(*(item for run in runs if len(run) > 1 for item in run))
    return joined(items, m.root)


def _one(run: list[Node]) -> list[Node]:
    """Neighbouring linear maps of one input as one; the same map twice is not two."""
    if len(set(run)) == 1:
        return run
    dtype = dtype_of(run[0])
    weights = np.concatenate([_linear(item).weights.array for item in run])
    biased = any(len(_linear(item).bias) for item in run)
    bias = np.concatenate([_bias(_linear(item)) for item in run]) if biased else np.zeros(0)
    return [node(Linear(Blob.of(weights, dtype), Blob.of(bias, dtype)), run[0].inputs)]


def _linear(item: Node) -> Linear:
    assert isinstance(item.op, Linear)
    return item.op


def _bias(linear: Linear) -> Numbers:
    found = linear.bias.array.astype(np.float64)
    return found if len(found) else np.zeros(len(linear.weights))


RULE = Rule(pattern=op(Concat)(rest("parts")), build=_build, preserves=REASSOCIATES)
