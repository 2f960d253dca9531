"""Sixty-four rows at a time through a small ensemble: the tests compare numbers, not ranks.

Ranking a column pays where many nodes look at it. A few small trees over dozens of columns ask each
only a few times, so their columns are turned on their side (64 rows of one column in a few vector
registers) and compared with each node's threshold as they are. Which rows fail which node is then
known, and rows go down the trees as in flour.ops.trees.slices.

Where values are narrowed to float32, or come so, the thresholds are rounded down to float32: what
is at most the one is at most the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Vector
from flour.ops.trees.lockstep import Table
from flour.ops.trees.outline import at_most
from flour.ops.trees.slices import PART, ROWS, Slices, held_as
from objectstore import Blob

if TYPE_CHECKING:
    from flour.core.types import Type
    from flour.ops.trees.walk import Nodes

#: So many columns are turned at once.
SIDE = 8
#: Nanoseconds for 64 rows: a node's test by the width of its numbers, going on from there, a
#: column that is looked at, eight that are turned, a tree, and all else.
_TEST, _SPLIT, _COLUMN, _TURN, _TREE, _REST = {"float32": 1.0, "float64": 2.1}, 0.75, 3, 30, 18, 60
#: The answers of all nodes should stay in the nearest cache.
_MOST_NODES = 2048
#: Two registers hold the values of so many leaves.
_FEW = {"float32": 32, "float64": 16, "int64": 0}


class Tiled(NamedTuple):
    """An ensemble for tests of numbers."""

    #: The first column of each eight that are turned.
    groups: Blob
    #: For each column looked at: where it is in a tile in bytes, where its nodes end that missing
    #: values fail, and where those end that they pass.
    slots: Blob
    #: The largest number that is missing like NaN.
    zeros: Blob
    #: The limits of the nodes, column after column, and the number of each node.
    limits: Blob
    places: Blob
    #: The nodes of tree t are those from first[t] to first[t + 1]; see
    #: oven.compiler.intrinsics.slices.
    nodes: Blob
    first: Blob
    #: Where each tree's leaves start, and what the leaves hold.
    offset: Blob
    value: Blob
    #: The width of a leaf's number; whether two registers hold all leaves of any tree.
    leaf: str
    few: bool
    #: The most nodes of one tree.
    most: int
    #: How tiles hold their numbers.
    dtype: str
    #: From how many rows on a block costs less than walking row by row.
    least: int


def tiles(op: Nodes, x: Type | None, leaf: NDArray[Any]) -> Tiled | None:
    """The ensemble for tests of numbers (leaf k holds leaf[k]), or None where it does not suit."""
    held, table = held_as(op, x), Table(op)
    threshold = table.thresholds()
    if not held or threshold is None or table.sets.any():
        return None
    made = Tiles(Slices(op, table, threshold, held))
    return made.tables(leaf) if made.suits() else None


class Tiles:
    """Where everything goes, and what that costs."""

    def __init__(self, made: Slices) -> None:
        self.made, self.dtype = made, made.held
        table, inner = made.table, made.inner
        key = table.slots[table.slot[inner] - 1]
        slot, passes = key // 2, key % 2
        self.order = np.lexsort((made.threshold[inner], passes, slot))
        self.used, self.start, self.count = np.unique(
            slot[self.order], return_index=True, return_counts=True
        )
        self.ends = self.start + self.count
        passed = np.concatenate([[0], np.cumsum(passes[self.order])])
        self.middle = self.ends - (passed[self.ends] - passed[self.start])
        self.column = self.used // 4
        self.groups = _groups(self.column)

    def suits(self) -> bool:
        """Whether a block costs less than by ranks, and than walking its rows."""
        made = self.made
        if not 0 < len(made.inner) <= _MOST_NODES:
            return False
        ranked = made.cost().block if made.fits() else np.inf
        return self.cost() < min(ranked, ROWS * made.walking()[0])

    def cost(self) -> float:
        """What a block takes, in nanoseconds."""
        nodes = len(self.made.inner) * (_TEST[self.dtype] + _SPLIT)
        columns = len(self.used) * _COLUMN + len(self.groups) * _TURN
        return nodes + columns + len(self.made.table.roots) * _TREE + _REST

    def tables(self, leaf: NDArray[Any]) -> Tiled:
        """The tables native code reads."""
        made, order = self.made, self.order
        inner, roots = made.inner, made.table.roots
        place = _placed(self.groups, self.column, self.dtype)
        count = made.leaves[roots]
        passed = made.leaves[made.left[inner]]
        zero = np.where(self.used % 2 != 0, np.float64(np.float32(1e-35)), -1.0)
        few = _FEW[str(leaf.dtype)]
        # Behind the last tree's values there is as much as two registers read.
        rest = np.zeros((few, *leaf.shape[1:]), leaf.dtype)
        value = np.concatenate([leaf[made.table.left[made.outline.leaf_order()]], rest])
        return Tiled(
            groups=Blob.of(self.groups),
            slots=Blob.of(np.stack([place, self.middle, self.ends], axis=1).reshape(-1)),
            zeros=Blob.of(zero.astype(self.dtype)),
            limits=Blob.of(at_most(made.threshold[inner[order]], self.dtype)),
            places=Blob.of(order.astype(np.int32)),
            nodes=Blob.of((made.rows[inner] << 32) | (passed << 48)),
            first=Blob.of(made.first),
            offset=Blob.of(np.cumsum(count) - count),
            value=Blob.of(value.reshape(-1)),
            leaf="uint8" if int(count.max()) <= 256 else "uint16",
            few=int(count.max()) <= few,
            most=int(np.diff(made.first).max()),
            dtype=self.dtype,
            least=int(np.clip(np.ceil(self.cost() / made.walking()[1]), 1, ROWS)),
        )


def _groups(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first columns of the eights that have all of these (ascending) among them."""
    made: list[int] = []
    for column in columns.tolist():
        if not made or column >= made[-1] + SIDE:
            made.append(column)
    return np.array(made, np.int64)


def _placed(groups: NDArray[np.int64], columns: NDArray[np.int64], dtype: str) -> NDArray[np.int64]:
    """Where columns are in a tile, in bytes."""
    group = np.searchsorted(groups, columns, side="right") - 1
    made: NDArray[np.int64] = SIDE * group + columns - groups[group]
    return made * ROWS * np.dtype(dtype).itemsize


class Turned(NamedTuple):
    """How the columns of an ensemble are ranked that are turned on their side before."""

    groups: Blob
    #: Where each column is in a tile in bytes, and the largest number that is missing like NaN.
    place: Blob
    zeros: Blob
    #: Of float32: the thresholds, where each column's start in bytes, and how many times 31 there
    #: are.
    threshold: Blob
    start: Blob
    parts: Blob
    #: How tiles hold their numbers, and whether they are narrowed before.
    dtype: str
    narrowed: bool


def turned(made: Slices, x: Type) -> Turned | None:
    """The tables for ranks of columns that are turned, if they can be."""
    dtype = made.ranked_as()
    if not dtype or not len(made.used):
        return None
    assert isinstance(x, Vector)
    column = made.used // 4
    groups = _groups(column)
    zero = np.where(made.used % 2 != 0, np.float64(np.float32(1e-35)), -1.0)
    threshold, start, parts = _parts(made) if dtype == "float32" else [Blob.of([0.0])] * 3
    return Turned(
        groups=Blob.of(groups),
        place=Blob.of(_placed(groups, column, dtype)),
        zeros=Blob.of(zero.astype(dtype)),
        threshold=threshold,
        start=start,
        parts=parts,
        dtype=dtype,
        narrowed=dtype != made.held and x.dtype == "float64",
    )


def _parts(made: Slices) -> tuple[Blob, Blob, Blob]:
    """The thresholds of each column as float32, by 31, each time with one nothing exceeds."""
    parts = -(-made.counts // PART)
    start = np.cumsum(parts) - parts
    limits = at_most(made.limits, "float32")
    padded = np.full((int(parts.sum()), PART + 1), np.inf, np.float32)
    rank = np.arange(len(limits)) - np.repeat(made.at[:-1], made.counts)
    padded[np.repeat(start, made.counts) + rank // PART, rank % PART] = limits
    return Blob.of(padded.reshape(-1)), Blob.of(4 * (PART + 1) * start), Blob.of(parts)
