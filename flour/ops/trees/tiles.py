"""Sixty-four rows at a time through a small ensemble: the tests compare numbers, not ranks.

Ranking a column pays where many nodes test it. A few small trees over dozens of columns test each
only a few times, so their columns are transposed (64 rows of one column in a few vector registers)
and compared with each node's threshold directly. That gives the rows that fail each node, and rows
go down the trees as in flour.ops.trees.slices.

Where values are float32, or are narrowed to it, the thresholds are rounded down to float32: a
float32 is at most the threshold if and only if it is at most the rounded one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Vector
from flour.ops.trees.lockstep import NodeTable, at_most, largest_zeros
from flour.ops.trees.pairs import Paired, paired
from flour.ops.trees.slices import PART, ROWS, Slices, at_least, few_rows_walked, held_as
from objectstore import Blob

if TYPE_CHECKING:
    from flour.core.emission import Emitter
    from flour.core.types import Type
    from flour.ops.trees.walk import Nodes

#: The number of columns that are transposed at once.
SIDE = 8
#: Nanoseconds for 64 rows: a node's test by the width of its numbers, splitting its rows, a tested
#: column, eight that are transposed, a tree, and all else.
_TEST, _SPLIT, _COLUMN, _TURN, _TREE, _REST = {"float32": 1.0, "float64": 2.1}, 0.75, 3, 30, 18, 60
#: The same for a few rows, fitted to 100 random ensembles.
_FEW_NODE, _FEW_TREE, _FEW_COLUMN, _FEW_REST = {"float32": 1.35, "float64": 1.65}, 1.5, 2.5, 110.0
#: The results of all nodes should stay in the nearest cache.
_MOST_NODES = 2048
#: The number of leaves whose values two registers hold.
_FEW = {"float32": 32, "float64": 16, "int64": 0}


class Tiled(NamedTuple):
    """An ensemble for tests of numbers."""

    #: The first column of each eight that are transposed.
    groups: Blob
    #: For each tested column: its offset in a tile in bytes, the end of its nodes that missing
    #: values fail, and the end of those that they pass.
    slots: Blob
    #: The largest number that is missing like NaN.
    zeros: Blob
    #: The limits of the nodes, column after column, and the number of each node.
    limits: Blob
    places: Blob
    #: As for blocks of ranks: see flour.ops.trees.slices.
    nodes: Blob
    paired: Paired | None
    first: Blob
    starts: Blob
    roots: Blob
    #: The first of each tree's leaves, and the contents of the leaves.
    offset: Blob
    value: Blob
    #: The width of a leaf's number; whether two registers hold all leaves of any tree.
    leaf: str
    few: bool
    #: The most nodes of one group.
    most: int
    #: The dtype of the numbers in a tile.
    dtype: str
    #: The smallest number of rows for which a block costs less than walking row by row.
    least: int

    def full_blocks(self, e: Emitter) -> str:
        """The number of blocks, with the last one if it has rows enough."""
        return full_blocks(e, e.size(self.least))


def full_blocks(e: Emitter, least: str) -> str:
    """The number of blocks, with the last one if it has at least this many rows."""
    return e.var(f"({e.rows} + {ROWS} - {least}) // {ROWS}", "h")


def tiles(op: Nodes, x: Type | None, leaf: NDArray[Any]) -> Tiled | None:
    """The ensemble for tests of numbers (leaf k holds leaf[k]), or None where it does not suit."""
    held, table = held_as(op, x), NodeTable(op)
    threshold = table.thresholds()
    if not held or threshold is None or table.sets.any():
        return None
    tiled = Tiles(Slices(op, table, threshold, held))
    return tiled.tables(leaf) if tiled.suits() else None


class Tiles:
    """The order of nodes and columns in the tables, and the estimated cost of using them."""

    def __init__(self, sliced: Slices) -> None:
        self.sliced, self.dtype = sliced, sliced.held
        table, inner = sliced.table, sliced.inner
        key = table.slots[table.slot[inner] - 1]
        slot, passes = key // 2, key % 2
        self.order = np.lexsort((sliced.threshold[inner], passes, slot))
        self.used, self.start, self.count = np.unique(
            slot[self.order], return_index=True, return_counts=True
        )
        self.ends = self.start + self.count
        passed = np.concatenate([[0], np.cumsum(passes[self.order])])
        self.middle = self.ends - (passed[self.ends] - passed[self.start])
        self.column = self.used // 4
        self.groups = _groups(self.column)

    def suits(self) -> bool:
        """True if a block costs less than by ranks, and than walking its rows."""
        sliced = self.sliced
        if not 0 < len(sliced.inner) <= _MOST_NODES:
            return False
        ranked = sliced.cost().block if sliced.fits() else np.inf
        return self.cost() < min(ranked, ROWS * sliced.walking()[0])

    def cost(self) -> float:
        """The estimated time of a block, in nanoseconds."""
        nodes = len(self.sliced.inner) * (_TEST[self.dtype] + _SPLIT)
        columns = len(self.used) * _COLUMN + len(self.groups) * _TURN
        return nodes + columns + len(self.sliced.table.roots) * _TREE + _REST

    def _few_rows(self) -> float:
        """The time of a block of few rows: their columns and nodes are far in memory."""
        nodes = len(self.sliced.inner) * _FEW_NODE[self.dtype]
        trees = len(self.sliced.table.roots) * _FEW_TREE
        return nodes + trees + len(self.used) * _FEW_COLUMN + _FEW_REST

    def tables(self, leaf: NDArray[Any]) -> Tiled:
        """The tables native code reads."""
        sliced, order = self.sliced, self.order
        inner, roots = sliced.inner, sliced.table.roots
        offset = _placed(self.groups, self.column, self.dtype)
        count, rows = sliced.leaves[roots], self._few_rows() / few_rows_walked(sliced.walking()[1])
        few = _FEW[str(leaf.dtype)]
        # Behind the last tree's values there is padding for what two registers read.
        rest = np.zeros((few, *leaf.shape[1:]), leaf.dtype)
        value = np.concatenate([leaf[sliced.table.left[sliced.outline.leaf_order()]], rest])
        return Tiled(
            groups=Blob.of(self.groups),
            slots=Blob.of(np.stack([offset, self.middle, self.ends], axis=1).reshape(-1)),
            zeros=largest_zeros(self.used % 2 != 0, self.dtype),
            limits=Blob.of(at_most(sliced.threshold[inner[order]], self.dtype)),
            places=Blob.of(order.astype(np.int32)),
            nodes=Blob.of(sliced.ways() << 32),
            paired=paired(sliced.outline, inner, sliced.place),
            first=Blob.of(sliced.first),
            starts=Blob.of(sliced.starts),
            roots=Blob.of(sliced.chosen[roots]),
            offset=Blob.of(np.cumsum(count) - count),
            value=Blob.of(value.reshape(-1)),
            leaf=sliced.leaf,
            few=int(count.max()) <= few,
            most=int(np.diff(sliced.first).max()),
            dtype=self.dtype,
            least=at_least(rows),
        )


def _groups(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first columns of groups of eight that cover all of these columns (ascending)."""
    groups: list[int] = []
    for column in columns.tolist():
        if not groups or column >= groups[-1] + SIDE:
            groups.append(column)
    return np.array(groups, np.int64)


def _placed(groups: NDArray[np.int64], columns: NDArray[np.int64], dtype: str) -> NDArray[np.int64]:
    """The offsets of columns in a tile, in bytes."""
    group = np.searchsorted(groups, columns, side="right") - 1
    position: NDArray[np.int64] = SIDE * group + columns - groups[group]
    return position * ROWS * np.dtype(dtype).itemsize


class Turned(NamedTuple):
    """The tables to rank the columns of an ensemble after transposing them."""

    groups: Blob
    #: The offset of each column in a tile in bytes, and the largest number that is missing like
    #: NaN.
    place: Blob
    zeros: Blob
    #: Of float32: the thresholds, the offset of each column's in bytes, and the number of parts of
    #: 31.
    threshold: Blob
    start: Blob
    parts: Blob
    #: The dtype of the numbers in a tile, and whether they are narrowed to it.
    dtype: str
    narrowed: bool


def turned(sliced: Slices, x: Type) -> Turned | None:
    """The tables to rank transposed columns, if they can be transposed."""
    dtype = sliced.ranked_as()
    if not dtype or not len(sliced.used):
        return None
    assert isinstance(x, Vector)
    column = sliced.used // 4
    groups = _groups(column)
    threshold, start, parts = _parts(sliced) if dtype == "float32" else [Blob.of([0.0])] * 3
    return Turned(
        groups=Blob.of(groups),
        place=Blob.of(_placed(groups, column, dtype)),
        zeros=largest_zeros(sliced.used % 2 != 0, dtype),
        threshold=threshold,
        start=start,
        parts=parts,
        dtype=dtype,
        narrowed=dtype != sliced.held and x.dtype == "float64",
    )


def _parts(sliced: Slices) -> tuple[Blob, Blob, Blob]:
    """The thresholds of each column as float32 in parts of 31, each followed by infinity."""
    parts = -(-sliced.counts // PART)
    start = np.cumsum(parts) - parts
    limits = at_most(sliced.limits, "float32")
    padded = np.full((int(parts.sum()), PART + 1), np.inf, np.float32)
    rank = np.arange(len(limits)) - np.repeat(sliced.at[:-1], sliced.counts)
    padded[np.repeat(start, sliced.counts) + rank // PART, rank % PART] = limits
    return Blob.of(padded.reshape(-1)), Blob.of(4 * (PART + 1) * start), Blob.of(parts)
