"""x - 0, x + -0, x * 1, x / 1, x cast to what it is, all columns of x in order, ...  →  x

Why      importers emit the general form of a step, which does nothing for many models. So does
         taking the only column out of a vector to make a vector of it, and looking up the label
         of class i if the labels are 0, 1, 2, ...
Unless   a zero has the wrong sign: -0.0 - 0.0 is -0.0, but -0.0 + 0.0 is 0.0, so only adding
         -0.0 and subtracting +0.0 leave every bit; or the type would change.
Numerics none: x stays as it is, NaN, infinities and signed zeros included.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.core.op import Op
from flour.core.types import Scalar, Vector
from flour.ops.binary import CastLike
from flour.ops.elementwise import Add, Cast, Clip, Divide, Multiply, Subtract
from flour.ops.reduce import ArgMax
from flour.ops.structure import AsVector, Concat, Element, Select, Take, ToDense, ToSparse
from oven.optimise.affine import dtype_of
from oven.optimise.concat_chain import width_of
from oven.optimise.pattern import BITS, Match, Rule, op, rest


def _does_nothing(item: Node) -> bool:
    x = item.inputs[0]
    match item.op:
        case Subtract() | Add() | Multiply() | Divide():
            value = item.op.fitted(np.empty(0, dtype_of(x)))
            if isinstance(item.op, Multiply | Divide):
                return bool(np.all(value == 1))
            return bool(
                np.all(value == 0) and np.all(np.signbit(value) == isinstance(item.op, Add))
            )
        case Clip(low=low, high=high):
            return bool(np.all(low.array == -np.inf) and np.all(high.array == np.inf))
        case Select(columns=columns):
            assert isinstance(x.type, Vector)
            return np.array_equal(columns.array, np.arange(x.type.width))
        case Concat():
            return len(item.inputs) == 1
    return True  # casts and changes of storage do nothing if the type stays


def _counts(take: Take, x: Node) -> bool:
    """True if entry i of the table is i, for every possible index."""
    table = take.table
    if table.dtype != np.int64 or not np.array_equal(table.array, np.arange(len(table))):
        return False
    match x.op:
        case ArgMax():  # and ArgMin
            return width_of(x.inputs[0]) <= len(table) and x.type == Scalar("int64")
        case Cast(dtype="int64"):
            return dtype_of(x.inputs[0]) == "bool" and len(table) >= 2
    return False


def _only_column(item: Node) -> Node:
    """A vector of one column for that column taken out of it."""
    whole = item.inputs[0] if isinstance(item.op, Element) else item
    return whole if isinstance(whole.type, Vector) and whole.type.width == 1 else item


def _build(m: Match) -> Node | None:
    item, x = m.root, m.root.inputs[0]
    if isinstance(item.op, Take):
        return x if _counts(item.op, x) else None
    if isinstance(item.op, AsVector):
        x = _only_column(x)
        return x if x.type == item.type else None
    if isinstance(item.op, Concat) and len(item.inputs) > 1:
        # Scalars and vectors of one column are the same to a concatenation.
        parts = [_only_column(part) for part in item.inputs]
        replacement = node(item.op, parts)
        return replacement if replacement.type == item.type else None
    return x if item.type == x.type and _does_nothing(item) else None


_ARITHMETIC: tuple[type[Op], ...] = (Subtract, Add, Multiply, Divide, Clip, Cast, CastLike)
_MOVING: tuple[type[Op], ...] = (Select, AsVector, Concat, Take, ToDense, ToSparse)

RULE = Rule(op(*_ARITHMETIC, *_MOVING, name="step")(rest("inputs")), _build, BITS)
