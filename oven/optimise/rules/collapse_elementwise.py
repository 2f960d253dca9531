"""x - m - n, x / s * a, (x - m) / s * a + b, ...  →  at most one of each: (x - c) * k + d

Why      every step costs something for every column of every row.
Unless   there would not be fewer steps (so a single scaler keeps the library's bits); a
         decision depends on the result (a comparison, a bin, a nearest neighbour: the last bit
         can turn a tie, and data often is exactly on a fitted edge); another operator reads a step;
         or a number is zero, infinite or close to it.
Numerics each number moves by a few ulps: products and quotients of parameters are rounded once,
         when the plan is baked. A leading offset stays where it is unless the one behind it is
         at least 1/256 of its size, so that no digits cancel.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.core.op import Op
from flour.core.types import FLOATS
from flour.ops.binary import CastLike, Minus, Over, Plus, Times
from flour.ops.elementwise import Add, Cast, Clip, Multiply, OneMinus, Subtract
from flour.ops.linear import Linear
from flour.ops.link import Sigmoid, Softmax
from flour.ops.reduce import Norm, Sum
from flour.ops.structure import AsVector, Concat, Element, Select, ToDense
from flour.ops.unary import Exp, Relu, Square, Tanh
from oven.optimise.affine import MOST_CANCELLATION, STEPS, Affine, compose, dtype_of, is_float
from oven.optimise.pattern import REASSOCIATES, Match, ProgramFacts, Rule, chain, hole

#: Continuous operators: a small change of the input is a small change of the result. Their readers
#: must be continuous too.
_MOVING: tuple[type[Op], ...] = (Concat, Select, Element, AsVector, ToDense, CastLike)
_ARITHMETIC: tuple[type[Op], ...] = (*STEPS, Plus, Minus, Times, Over, Sum, Norm, Square)
_CURVES: tuple[type[Op], ...] = (Clip, OneMinus, Sigmoid, Softmax, Exp, Relu, Tanh)
_SMOOTH = _MOVING + _ARITHMETIC + _CURVES


def _guard(m: Match) -> bool:
    x = m["x"]
    above = m.facts.sole_reader(m.root)
    if len(m.many("steps")) < 2 or (above is not None and isinstance(above.op, STEPS)):
        return False  # whole chains only: half of one would be rounded twice
    return is_float(x.type) and m.alone() and _nothing_decides(m.root, m.facts)


def _nothing_decides(item: Node, facts: ProgramFacts) -> bool:
    """True if the values only flow into sums and smooth functions, or out of the program."""
    seen: set[Node] = set()
    stack = [item]
    while stack:
        for reader in facts.readers(stack.pop()):
            if reader in seen or isinstance(reader.op, Linear):
                continue  # a linear map's sums are re-associated anyway
            float_cast = isinstance(reader.op, Cast) and dtype_of(reader) in FLOATS
            if not isinstance(reader.op, _SMOOTH) and not float_cast:
                return False
            seen.add(reader)
            stack.append(reader)
    return True


def _build(m: Match) -> Node | None:
    before = m.ops("steps")
    x = m["x"]
    total = compose(reversed(before), dtype_of(x))
    if not total.sane:
        return None
    moved, most = np.abs(total.centre * total.factor), MOST_CANCELLATION[dtype_of(x)]
    if total.shift.any() and np.all(moved <= most * np.abs(total.shift)):  # no digits are lost
        total = Affine(np.zeros(1), total.factor, total.offset)
    after: list[Op] = []
    if total.centre.any():
        after.append(Subtract(total.centre))
    if np.any(total.factor != 1):
        after.append(Multiply(total.factor))
    if total.shift.any():
        after.append(Add(total.shift))
    if len(after) >= len(before):
        return None
    for step in after:
        x = node(step, [x])
    return x if x.type == m.root.type else None


RULE = Rule(chain(*STEPS)(hole("x")), _build, REASSOCIATES, _guard)
