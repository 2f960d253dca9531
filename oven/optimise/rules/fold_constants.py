"""f(constant, constant, ...)  →  constant;   constant(f(x))  →  constant(x)

Why      a value that is the same for every row is computed once, when the plan is baked; and a
         constant needs only the number of rows of its input, so the input is not computed.
Unless   the operator sums floats, where one row and many may differ in the last bit; or it is
         not one dense block of numbers; or the constant's input is an input of the program already,
         or can refuse a row (a strict encoder).
Numerics none: the constant is the reference's own answer.
"""

from __future__ import annotations

import numpy as np

from flour.core.errors import FlourError
from flour.core.node import Node, node
from flour.core.op import Arity, Op
from flour.core.reference import apply_op
from flour.core.source import Source
from flour.core.types import Category, Scalar, Type, Vector
from flour.ops.source import Field, Fill, Pick
from oven.optimise.finite import may_refuse
from oven.optimise.pattern import BITS, Applied, Match, Rest, Rule


def _guard(m: Match) -> bool:
    item = m.root
    if not item.inputs:
        return False
    return isinstance(item.op, Fill) or (
        all(isinstance(source.op, Fill) for source in item.inputs)
        and item.op.arity is not Arity.AGGREGATE
        and _dense(item.type)
    )


def _dense(kind: Type) -> bool:
    if isinstance(kind, Vector):
        return not kind.sparse and kind.dtype != "string"
    return isinstance(kind, Scalar) and kind.dtype != "string"


def _build(m: Match) -> Node | None:
    item = m.root
    if isinstance(item.op, Fill):
        # This constant, reading an input of the program instead of a computed node.
        below = item.inputs[0]
        if _is_given(below) or may_refuse(below):
            return None
        limit = m.facts.place[below]
        earliest = next((each for each in m.facts.nodes if _is_given(each)), None)
        if earliest is None or m.facts.place[earliest] > limit:
            return None
        return node(item.op, [earliest])
    columns = [source.op.reference(np.zeros(1)) for source in item.inputs]
    try:
        with np.errstate(all="ignore"):
            value = apply_op(item, columns)
    except FlourError:
        return None
    scalar = isinstance(item.type, Scalar)
    constant = node(Fill(np.asarray(value).reshape(-1), scalar), item.inputs[0].inputs)
    return constant if constant.type == item.type else None


def _is_given(item: Node) -> bool:
    """True if the value is an input of the program, or a column of one, in one block of memory."""
    if not isinstance(item.type, Vector | Scalar | Category):
        return False
    if isinstance(item.op, Source):
        return True
    return isinstance(item.op, Field | Pick) and isinstance(item.inputs[0].op, Source)


RULE = Rule(Applied((Op,), "step", (Rest("inputs"),)), _build, BITS, _guard, beside=(Fill,))
