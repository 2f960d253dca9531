"""Leaves of trees that have more than 256 of them, chosen without mask registers.

A leaf's number has two bytes. The lower one is chosen at every node, as in flour.ops.trees.slices.
The higher one is the same below most nodes: only those with leaves on both sides of a multiple of
256 choose it, at most one branch of the tree for each multiple. So such a tree has two roots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from objectstore import Blob

if TYPE_CHECKING:
    from flour.ops.trees.slices import Slices

#: The numbers of one byte. A vector stands for each; a node has sixteen bits for where each of its
#: children's vectors is, in units of eight bytes.
_BYTES, _UNITS = 256, 8
_MOST = (1 << 16) // _UNITS - _BYTES
#: Subtrees of so few leaves are chosen from one after the other: what their nodes choose stays in
#: the nearest cache until their parents read it.
_NEAR = 64


class Paired(NamedTuple):
    """The nodes of trees, each tree a group, with those that choose the higher bytes among them."""

    nodes: Blob
    #: The first node of each tree; for each tree, where its lower and its higher bytes are.
    first: Blob
    roots: Blob
    #: The most nodes of a tree.
    most: int


def suits(sliced: Slices) -> bool:
    """Whether there is room for what the nodes of a tree choose."""
    return sliced.leaf == "uint16" and int(_order(sliced)[2].max()) <= _MOST


def paired(sliced: Slices, test: NDArray[np.int64]) -> Paired | None:
    """The nodes that choose two bytes; None where others suit.

    `test` is the lower half of each inner node: its slot and its rank, or where the rows that fail
    it are known, its number in its tree.
    """
    if not suits(sliced):
        return None
    outline = sliced.outline
    index, high, count = _order(sliced)
    node, first = sliced.inner[index], np.concatenate([[0], np.cumsum(count)])
    chosen = np.stack([outline.position % _BYTES, outline.position // _BYTES])
    chosen[high, node] = _BYTES + np.arange(len(index)) - first[outline.tree[node]]
    chosen *= _UNITS
    left, right = (chosen[high, side[node]] for side in (sliced.left, sliced.right))
    return Paired(
        nodes=Blob.of(test[index] | (left << 32) | (right << 48)),
        first=Blob.of(first),
        roots=Blob.of(chosen[:, sliced.table.roots].T.reshape(-1)),
        most=int(count.max()),
    )


def _order(
    sliced: Slices,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The nodes by their number in `sliced.inner`, 1 for those of the higher byte; each tree's."""
    outline, inner = sliced.outline, sliced.inner
    first = outline.position[inner]
    last = first + outline.leaves[inner] - 1
    far = np.flatnonzero(first // _BYTES != last // _BYTES)
    index = np.concatenate([np.arange(len(inner)), far])
    high = (np.arange(len(index)) >= len(inner)).astype(np.int64)
    tree, depth = outline.tree[inner[index]], outline.depth[inner[index]]
    order = np.lexsort((high, depth, _part(sliced, inner[index]), tree))
    return index[order], high[order], np.bincount(tree, minlength=len(sliced.table.roots))


def _part(sliced: Slices, node: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the subtree of few leaves that each node is in, from left to right; or 0."""
    outline = sliced.outline
    small = outline.leaves <= _NEAR
    below = np.concatenate([side[sliced.inner[~small[sliced.inner]]] for side in _sides(sliced)])
    tops = np.concatenate([below, sliced.table.roots])
    key = (outline.tree << 32) + outline.position
    starts = np.sort(key[tops[small[tops]]])
    return np.where(small[node], np.searchsorted(starts, key[node], side="right"), 0)


def _sides(sliced: Slices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return sliced.left, sliced.right
