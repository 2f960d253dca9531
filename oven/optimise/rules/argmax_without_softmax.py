"""argmax(softmax(x))  →  argmax(x)

Why      where only the label is asked for, the probabilities need not be computed.
Unless   another operator reads the probabilities: they are computed anyway. A sigmoid is not
         dropped: from 37 on it is 1.0 for every score, and the first of equals wins.
Numerics softmax ties scores closer than an ulp of 1, and the first of them wins; without it the
         larger does. Infinite or NaN scores make every probability NaN, and label 0 wins;
         without softmax it is the first infinite or NaN one.
"""

from __future__ import annotations

from flour.core.node import Node, node
from flour.ops.link import Softmax
from flour.ops.reduce import ArgMax, ArgMin
from oven.optimise.pattern import REASSOCIATES, Match, Rule, hole, op


def _guard(m: Match) -> bool:
    # ArgMin is an ArgMax by inheritance; the smallest shares may all be zero, which are ties.
    return m.alone() and not isinstance(m.root.op, ArgMin)


def _build(m: Match) -> Node:
    return node(m.root.op, [m["x"]])


RULE = Rule(op(ArgMax)(op(Softmax)(hole("x"))), _build, REASSOCIATES, _guard)
