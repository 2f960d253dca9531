"""The columns of a vector by where they come from: the inputs of a concatenation, or itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flour.node import Node, node
from flour.ops.structure import Concat
from flour.types import Vector
from oven.pattern import Facts


class Part(NamedTuple):
    """Some neighbouring columns of a vector, and who computes them for whom."""

    item: Node
    reader: Node
    start: int
    width: int

    @property
    def columns(self) -> slice:
        """Where they are in the whole vector."""
        return slice(self.start, self.start + self.width)


def parts(x: Node, reader: Node, facts: Facts) -> list[Part]:
    """The parts of x, which `reader` reads; one part if anybody else needs it in one piece."""
    if not isinstance(x.op, Concat) or not facts.only_for(x, reader):
        return [Part(x, reader, 0, width_of(x))]
    found: list[Part] = []
    start = 0
    for item in x.inputs:
        found.append(Part(item, x, start, width_of(item)))
        start += found[-1].width
    return found


def joined(items: Sequence[Node]) -> Node:
    """The nodes side by side; a single vector is itself."""
    if len(items) == 1 and isinstance(items[0].type, Vector):
        return items[0]
    return node(Concat(), items)


def width_of(item: Node) -> int:
    """How many columns a node is."""
    return item.type.width if isinstance(item.type, Vector) else 1
