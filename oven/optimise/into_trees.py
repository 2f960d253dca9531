"""What rules share that let trees do the work of steps ahead of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.op import Op
from flour.ops.trees.trees import Walk
from oven.optimise.concat_chain import Part
from oven.optimise.pattern import Match
from oven.optimise.thresholds import Floats


def chain(m: Match, part: Part, last: type[Op], between: Callable[[Node], bool]) -> list[Node]:
    """From a part down to an operator: the nodes, if only trees see them; else none.

    `between` says which nodes may come before the last one.
    """
    found: list[Node] = []
    item, reader = part.item, part.reader
    while m.facts.only_for_any(item, reader, Walk):
        found.append(item)
        if isinstance(item.op, last):
            return found
        if not between(item):
            break
        reader, item = item, item.inputs[0]
    return []


def sent_left(walk: Walk, seen: Floats, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each of these nodes, which of these numbers it sends left, by its definition."""
    with np.errstate(over="ignore"):
        seen = seen.astype(np.float32 if walk.narrow else np.float64).astype(np.float64)
    made = walk.passes(np.tile(seen, len(nodes)), np.repeat(nodes, len(seen)))
    return np.asarray(made, bool).reshape(len(nodes), len(seen))
