"""The outline of an ensemble's trees: depth of the nodes and order of the leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from flour.ops.trees.lockstep import NodeTable


class Outline:
    """Of each node, by its number in a table: its children, tree, depth, and leaves."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        count = len(table.order)
        self.left = np.where(table.inner, table.child(table.op.left), 0)
        self.right = np.where(table.inner, table.child(table.op.right), 0)
        self.tree, self.depth = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.tree[table.roots] = np.arange(len(table.roots))
        levels = self._levels()
        #: The number of leaves below each node, and of its tree's leaves to the left of those.
        self.leaves, self.position = np.ones(count, np.int64), np.zeros(count, np.int64)
        for inner in reversed(levels):
            self.leaves[inner] = self.leaves[self.left[inner]] + self.leaves[self.right[inner]]
        for inner in levels:
            left, right = self.left[inner], self.right[inner]
            self.position[left] = self.position[inner]
            self.position[right] = self.position[inner] + self.leaves[left]

    def _levels(self) -> list[NDArray[np.int64]]:
        """The inner nodes by their depth."""
        levels, here = [], self.table.roots
        while here.size:
            inner = here[self.table.inner[here]]
            levels.append(inner)
            for child in (self.left[inner], self.right[inner]):
                self.tree[child], self.depth[child] = self.tree[inner], self.depth[inner] + 1
            here = np.concatenate([self.left[inner], self.right[inner]])
        return levels

    def leaf_order(self) -> NDArray[np.int64]:
        """The leaves, tree after tree, each from left to right."""
        leaves = np.flatnonzero(~self.table.inner)
        ordered: NDArray[np.int64] = leaves[np.lexsort((self.position[leaves], self.tree[leaves]))]
        return ordered


def at_most(limits: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    """The largest numbers of the type that are at most these."""
    with np.errstate(over="ignore"):
        near = limits.astype(dtype)
        below = np.nextafter(near, np.asarray(-np.inf, dtype))
    limited: NDArray[Any] = np.where(near.astype(np.float64) > limits, below, near)
    return limited
