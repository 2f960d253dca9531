"""y + x beside x + y  →  one of them, for every commutative operator

Why      equal sub-programs are one node by construction, across all outputs; this finds those
         that are equal only up to the order of their inputs.
Unless   the twin is not in the program: then either order is as good, and the order the user
         wrote keeps programs of one shape alike.
Numerics none: IEEE addition and multiplication commute (which NaN comes out is not kept).
"""

from __future__ import annotations

from flour.core.node import Node, node
from flour.ops.binary import Binary
from oven.optimise.pattern import BITS, Match, Rule, hole, op


def _guard(m: Match) -> bool:
    return m.root.op.commutative and m["x"] is not m["y"]


def _build(m: Match) -> Node | None:
    twin = node(m.root.op, [m["y"], m["x"]])
    index = m.facts.place
    return twin if twin in index and index[twin] < index[m.root] else None


RULE = Rule(op(Binary)(hole("x"), hole("y")), _build, BITS, _guard)
