"""Helpers of the rules that move preprocessing steps into the trees after them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.op import Op
from flour.ops.trees.walk import Walk
from oven.optimise.concat_chain import ChainPart
from oven.optimise.pattern import Match
from oven.optimise.thresholds import Floats


def chain(m: Match, part: ChainPart, last: type[Op], between: Callable[[Node], bool]) -> list[Node]:
    """The nodes from a part down to an operator `last`, if only trees read them; else none.

    `between` says which nodes may come before the last one.
    """
    nodes: list[Node] = []
    item, reader = part.item, part.reader
    while m.facts.only_for_any(item, reader, Walk):
        nodes.append(item)
        if isinstance(item.op, last):
            return nodes
        if not between(item):
            break
        reader, item = item, item.inputs[0]
    return []


def sent_left(walk: Walk, seen: Floats, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True if each of these nodes sends each of these numbers left, by its definition."""
    with np.errstate(over="ignore"):
        seen = seen.astype(np.float32 if walk.narrow else np.float64).astype(np.float64)
    passed = walk.passes(np.tile(seen, len(nodes)), np.repeat(nodes, len(seen)))
    return np.asarray(passed, bool).reshape(len(nodes), len(seen))
