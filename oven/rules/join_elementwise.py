"""concat(f(a), f(b), ...)  →  f(concat(a, b, ...))

Why      many small models side by side (one for each class, each target, each member of an
         ensemble) do the same to every column; done to all columns at once it is one loop, and
         what they did it to stands side by side, where join_linears can find it.
Unless   the parts are not all the same function, with the same static settings and float width;
         or something else reads one of them.
Numerics none: the same operation on the same numbers, each with its own parameters.
"""

from __future__ import annotations

import numpy as np

from flour.node import Node, node
from flour.ops.bases import Elementwise
from flour.ops.structure import AsVector, Concat
from objectstore import Blob
from oven.affine import dtype_of
from oven.parts import width_of
from oven.pattern import Match, op, rest
from oven.rule import BITS, Rule


def _functions(m: Match) -> list[Node] | None:
    """The parts without what makes vectors of scalars, if they are all alike."""
    found = []
    for part in m.root.inputs:
        item = part.inputs[0] if isinstance(part.op, AsVector) else part
        lone = m.facts.only_for(part, m.root) and (item is part or m.facts.only_for(item, part))
        if not lone or not isinstance(item.op, Elementwise):
            return None
        found.append(item)
    return found if len({_kind(item) for item in found}) == 1 else None


def _kind(item: Node) -> tuple[object, ...]:
    """What must agree: the class, all that is not a column of parameters, and the float width."""
    op = item.op
    static = tuple(
        (value.dtype.name if isinstance(value, Blob) else value) for value in op.fields().values()
    )
    return (type(op), static, dtype_of(item.inputs[0]), dtype_of(item))


def _guard(m: Match) -> bool:
    return len(m.root.inputs) > 1


def _build(m: Match) -> Node | None:
    items = _functions(m)
    if items is None or type(items[0].op).infer is not Elementwise.infer:
        return None
    m.take(*m.root.inputs, *items)
    joined = items[0].op.replace(
        **{
            key: _side_by_side(items, key)
            for key, value in items[0].op.fields().items()
            if isinstance(value, Blob)
        }
    )
    made = node(joined, [node(Concat(), [item.inputs[0] for item in items])])
    return made if made.type == m.root.type else None


def _side_by_side(items: list[Node], key: str) -> Blob:
    """A parameter of all parts; one number that is the same for all of them stays one."""
    values: list[Blob] = [item.op.fields()[key] for item in items]
    if len(set(values)) == 1 and values[0].array.size == 1:
        return values[0]
    wide = [
        np.broadcast_to(value.array.reshape(-1), (width_of(item),))
        for value, item in zip(values, items, strict=True)
    ]
    return Blob.of(np.concatenate(wide))


RULE = Rule(pattern=op(Concat)(rest("parts")), guard=_guard, build=_build, preserves=BITS)
