"""Leaves of trees that have more than 256 of them, chosen without mask registers.

A leaf's number has two bytes. The lower one is chosen at every node, as in flour.ops.trees.slices.
The higher one is the same below most nodes: only those with leaves on both sides of a multiple of
256 choose it, at most one branch of the tree for each multiple. So such a tree has two roots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.ops.trees.lockstep import Outline
from objectstore import Blob

#: The numbers of one byte. A vector stands for each; a node has sixteen bits for where each of its
#: children's vectors is, in units of eight bytes.
_BYTES, _UNITS = 256, 8
#: The most nodes of a tree: what these choose takes 48 KiB. Bigger trees leave the nearest cache,
#: and rows are walked in less time.
_MOST = 768


class Paired(NamedTuple):
    """The nodes of trees, each tree a group, with those that choose the higher bytes among them."""

    nodes: Blob
    #: The first node of each tree; for each tree, where its lower and its higher bytes are.
    first: Blob
    roots: Blob
    #: The most nodes of a tree.
    most: int


def suits(outline: Outline, inner: NDArray[np.int64]) -> bool:
    """True if a leaf's number has two bytes, and what the nodes of each tree choose is near."""
    leaves = int(outline.leaves[outline.table.roots].max())
    both = np.concatenate([inner, inner[_far(outline, inner)]])
    return leaves > _BYTES and int(np.bincount(outline.tree[both]).max()) <= _MOST


def paired(outline: Outline, inner: NDArray[np.int64], test: NDArray[np.int64]) -> Paired | None:
    """The nodes that choose two bytes; None where others suit.

    `test` is the lower half of each inner node: its slot and its rank, or where the rows that fail
    it are known, its number in its tree.
    """
    if not suits(outline, inner):
        return None
    index, high, count = _order(outline, inner)
    node, first = inner[index], np.concatenate([[0], np.cumsum(count)])
    chosen = np.stack([outline.position % _BYTES, outline.position // _BYTES])
    chosen[high, node] = _BYTES + np.arange(len(index)) - first[outline.tree[node]]
    chosen *= _UNITS
    left, right = (chosen[high, side[node]] for side in (outline.left, outline.right))
    return Paired(
        nodes=Blob.of(test[index] | (left << 32) | (right << 48)),
        first=Blob.of(first),
        roots=Blob.of(chosen[:, outline.table.roots].T.reshape(-1)),
        most=int(count.max()),
    )


def _order(
    outline: Outline, inner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Each node by its number in `inner`, 1 for those of the higher byte; how many a tree has."""
    index = np.concatenate([np.arange(len(inner)), np.flatnonzero(_far(outline, inner))])
    high = (np.arange(len(index)) >= len(inner)).astype(np.int64)
    tree, depth = outline.tree[inner[index]], outline.depth[inner[index]]
    order = np.lexsort((high, depth, tree))
    return index[order], high[order], np.bincount(tree, minlength=len(outline.table.roots))


def _far(outline: Outline, inner: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True if the leaves below each node stand on both sides of a multiple of 256."""
    first = outline.position[inner]
    far: NDArray[np.bool_] = first // _BYTES != (first + outline.leaves[inner] - 1) // _BYTES
    return far
