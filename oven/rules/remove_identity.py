"""x - 0, x + -0, x * 1, x / 1, a cast to what x already is, all columns in order, ...  →  x

Why      importers write what the library does in general; for many models a step does nothing.
Unless   a zero has the wrong sign: -0.0 - 0.0 is -0.0, but -0.0 + 0.0 is 0.0, so only adding
         -0.0 and subtracting +0.0 leave every bit; or the type would change.
Numerics none: x stays as it is, NaN, infinities and signed zeros included.
"""

from __future__ import annotations

import numpy as np

from flour.node import Node
from flour.op import Op
from flour.ops.binary import CastLike
from flour.ops.elementwise import Add, Cast, Clip, Divide, Multiply, Subtract, WithParameter
from flour.ops.storage import ToDense, ToSparse
from flour.ops.structure import Concat, Select
from flour.types import Vector
from oven.affine import dtype_of
from oven.pattern import Match, op, rest
from oven.rule import BITS, Rule


def _does_nothing(item: Node) -> bool:
    x = item.inputs[0]
    match item.op:
        case Subtract() | Add() | Multiply() | Divide():
            return _neutral(item.op, dtype_of(x))
        case Clip(low=low, high=high):
            return bool(np.all(low.array == -np.inf) and np.all(high.array == np.inf))
        case Select(columns=columns):
            assert isinstance(x.type, Vector)
            return np.array_equal(columns.array, np.arange(x.type.width))
        case Concat():
            return len(item.inputs) == 1
    return True  # casts and changes of storage: the same type says it all


def _neutral(step: WithParameter, dtype: str) -> bool:
    """Whether every operand, in the width it is used in, is the neutral element, sign included."""
    value = step.fitted(np.empty(0, dtype))
    if isinstance(step, Multiply | Divide):
        return bool(np.all(value == 1))
    return bool(np.all(value == 0) and np.all(np.signbit(value) == isinstance(step, Add)))


def _guard(m: Match) -> bool:
    item, x = m.root, m.root.inputs[0]
    return item.type == x.type and _does_nothing(item)


def _build(m: Match) -> Node:
    return m.root.inputs[0]


_KINDS: tuple[type[Op], ...] = (Subtract, Add, Multiply, Divide, Clip, Cast, CastLike)

RULE = Rule(
    pattern=op(*_KINDS, Select, Concat, ToDense, ToSparse, name="step")(rest("inputs")),
    guard=_guard,
    build=_build,
    preserves=BITS,
)
