"""The columns of a vector by where they come from: the inputs of a concatenation, or itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flour.core.node import Node, node
from flour.core.types import Vector
from flour.ops.structure import Concat, ToDense
from oven.optimise.pattern import Match


class ChainPart(NamedTuple):
    """Adjacent columns of a vector, with the node that computes them and the node that reads it."""

    item: Node
    reader: Node
    start: int
    width: int

    @property
    def columns(self) -> slice:
        """Their position in the whole vector."""
        return slice(self.start, self.start + self.width)


def parts(m: Match, x: Node) -> list[ChainPart]:
    """The parts of the root's input; a single one if another node reads the whole input."""
    inner = seams(m, x)
    if not inner:
        return [ChainPart(x, m.root, 0, width_of(x))]
    parts_found: list[ChainPart] = []
    start = 0
    for item in inner[-1].inputs:
        parts_found.append(ChainPart(item, inner[-1], start, width_of(item)))
        start += parts_found[-1].width
    return parts_found


def seams(m: Match, x: Node) -> list[Node]:
    """The nodes that only join the parts: a concatenation, and the one that makes it dense."""
    above = [x] if isinstance(x.op, ToDense) and m.facts.only_for(x, m.root) else []
    inner = x.inputs[0] if above else x
    reader = x if above else m.root
    whole = isinstance(inner.op, Concat) and m.facts.only_for(inner, reader)
    return [*above, inner] if whole else []


def joined(items: Sequence[Node], like: Node) -> Node:
    """The nodes side by side, stored as `like` is; a single vector is itself."""
    whole = items[0] if len(items) == 1 else node(Concat(), items)
    if not isinstance(whole.type, Vector):
        whole = node(Concat(), items)
    assert isinstance(whole.type, Vector)
    assert isinstance(like.type, Vector)
    return node(ToDense(), [whole]) if whole.type.sparse and not like.type.sparse else whole


def width_of(item: Node) -> int:
    """The number of columns of a node."""
    return item.type.width if isinstance(item.type, Vector) else 1
