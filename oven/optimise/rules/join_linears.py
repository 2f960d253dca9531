"""concat(linear(x), linear(x), ...)  →  linear(x) with all their outputs

Why      models that look at the same columns (one for each class or target) are one matrix
         product, which reads the columns once and keeps many sums in registers.
         A map with both its signs (two classes) is one of twice the outputs.
Unless   they do not stand next to each other, look at different columns or sum in different float
         widths; or something else reads one of them.
Numerics the same sums, in the order of the matrix product.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import numpy as np

from flour.core.node import Node, node
from flour.ops.linear import Linear
from flour.ops.structure import Concat
from flour.ops.unary import Negate
from objectstore import Blob
from oven.optimise.affine import dtype_of
from oven.optimise.concat_chain import joined
from oven.optimise.pattern import REASSOCIATES, Match, Rule, op, rest


def _build(m: Match) -> Node | None:
    plain = [(part, _plain(m, part)) for part in m.root.inputs]
    keys = [(one.inputs[0], dtype_of(one)) if one else part for part, one in plain]
    by_key = groupby(zip(keys, plain, strict=True), itemgetter(0))  # neighbours can become one
    runs = [[pair for _, pair in run] for _, run in by_key]
    parts = [
        _joined_run([made for _, made in run if made])
        if len(run) > 1 and run[0][1]
        else [part for part, _ in run]
        for run in runs
    ]
    items = [item for part in parts for item in part]
    if len(items) == len(m.root.inputs):
        return None
    m.take(*(item for run in runs if len(run) > 1 for part, _ in run for item in _above(part)))
    return joined(items, m.root)


def _plain(m: Match, part: Node) -> Node | None:
    """A part as a linear map without other readers."""
    if isinstance(part.op, Linear):
        return part if m.facts.only_for(part, m.root) else None
    item = _of_both_signs(m, part)
    if item is None:
        return None
    linear, dtype = item.op, dtype_of(item)
    assert isinstance(linear, Linear)
    weights, bias = linear.weights.array, linear.bias.array
    both = (np.concatenate([np.negative(numbers), numbers]) for numbers in (weights, bias))
    return node(Linear(*(Blob.of(numbers, dtype) for numbers in both)), item.inputs)


def _of_both_signs(m: Match, part: Node) -> Node | None:
    """The linear map that a part has with both signs, as for two classes; without other readers."""
    if not (isinstance(part.op, Concat) and len(part.inputs) == 2):
        return None
    other, item = part.inputs
    fits = isinstance(other.op, Negate) and other.inputs[0] is item and isinstance(item.op, Linear)
    alone = fits and m.facts.only_for(part, m.root) and m.facts.only_for(other, part)
    return item if alone and set(m.facts.readers(item)) == {part, other} else None


def _above(part: Node) -> tuple[Node, ...]:
    """The nodes from a part down to the linear map."""
    return (part,) if isinstance(part.op, Linear) else (part, *part.inputs)


def _joined_run(run: list[Node]) -> list[Node]:
    """Neighbouring linear maps of one input as one; a repeated map is computed once."""
    if len(set(run)) == 1:
        return run
    dtype, linears = dtype_of(run[0]), [item.op for item in run if isinstance(item.op, Linear)]
    weights = np.concatenate([linear.weights.array for linear in linears])
    biases = [
        linear.bias.array.astype(np.float64) if len(linear.bias) else np.zeros(len(linear.weights))
        for linear in linears
    ]
    biased = any(len(linear.bias) for linear in linears)
    bias = np.concatenate(biases) if biased else np.zeros(0)
    return [node(Linear(Blob.of(weights, dtype), Blob.of(bias, dtype)), run[0].inputs)]


RULE = Rule(op(Concat)(rest("parts")), _build, REASSOCIATES, beside=(Linear,))
