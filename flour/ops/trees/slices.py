"""Sixty-four rows at a time through an ensemble, without walking: one bit a row.

The rows at a node are the bits of one number. A test splits them in two: those that fail go right,
the others left, which is two ANDs for all 64. Nobody waits for a node to know which is next, and
no branch is ever taken wrong. What a row loses by visiting every node, 64 rows win back.

The tests compare ranks, not numbers: how many of the thresholds that nodes look for in a column
its value exceeds. A rank is one byte, so that one comparison of a vector register tests all rows;
columns with more thresholds than that have several ranks, each of a share of them. A set of
categories is 64 bits, looked up at once for all rows.

Exact by construction: ranks order values as the thresholds do, and the values of the leaves are
added in the order of the trees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Type, Vector
from flour.ops.trees.lockstep import Table, guessed_step
from flour.ops.trees.outline import Outline
from objectstore import Blob

if TYPE_CHECKING:
    from flour.ops.trees.trees import Trees
    from flour.ops.trees.walk import Nodes

ROWS = 64
#: Sixteen bits say where a node's rows are, which slot it looks at, and how many leaves it has.
_MOST = 1 << 16
#: No row holds more categories than this: they are looked up 64 at a time.
_MOST_BLOCKS = 16
#: So many sets have ranks of their own (a cache's size), if each is asked for by so many nodes.
_MOST_SHARED, _SHARED = 512, 2
#: How many thresholds a rank of one byte counts: see oven.compiler.intrinsics.slices.
_SHARE = 254


class Slots(NamedTuple):
    """The columns that are looked at (twice where some nodes take zeros for missing)."""

    column: Blob
    #: The largest number that is taken for zero.
    zero: Blob
    #: Where its thresholds start, in bytes, and the power of two they are padded to.
    start: Blob
    power: Blob
    #: Where its ranks are, and how many it has.
    share: Blob
    shares: Blob


class Members(NamedTuple):
    """The columns whose categories are looked up, once for each way of taking missing ones."""

    column: Blob
    zero: Blob
    #: Minus infinity where missing values are in every set, else NaN.
    fill: Blob
    #: Where the rows of its categories are, and how many times 64 of them there are.
    start: Blob
    blocks: Blob


class Layout(NamedTuple):
    """The nodes of an ensemble, tree after tree, and in each in the order of their depth."""

    #: See oven.compiler.intrinsics.slices; the nodes of tree t are those from first[t] to first[t +
    #: 1].
    nodes: Blob
    first: Blob
    #: With sets: the nodes that test numbers, and those that test for sets (two int64 each: the
    #: node, and where its words are). Where few sets are shared by many nodes, the sets instead,
    #: each with the place of its ranks: 1 for the rows that are not in it.
    numbers: Blob
    first_number: Blob
    sets: Blob
    first_set: Blob
    words: Blob
    tests: Slots
    members: Members
    threshold: Blob
    #: Where each tree's leaf values start, and the values from the leftmost leaf to the rightmost.
    offset: Blob
    value: Blob
    #: The width of a leaf's number.
    leaf: str
    #: The most inner nodes of one tree; how many ranks a row has; how many numbers say which rows
    #: are in which category.
    most: int
    shares: int
    blocks: int
    #: How many sets are looked up once for all nodes that share them.
    shared: int
    cost: Cost


def held_as(op: Nodes, x: Type | None) -> str:
    """The float width that values can be tested in, or nothing where they are no floats.

    Without a type, as for floats as wide as the trees look at.
    """
    if x is None:
        return "float32" if op.narrow else "float64"
    assert isinstance(x, Vector)
    if not x.dtype.startswith("float") or (op.absent and x.sparse):
        return ""
    return "float32" if op.narrow else x.dtype


def slices(op: Trees, x: Type | None = None) -> Slices | None:
    """The ensemble in slices, or None where it has to be walked."""
    table = Table(op)
    threshold = table.thresholds()
    if threshold is None:
        return None
    made = Slices(op, table, threshold, held_as(op, x))
    return made if made.fits() and made.cost().block < ROWS * made.cost().walk else None


class Cost(NamedTuple):
    """What ways through an ensemble take, in nanoseconds on the machine this was measured on.

    Only which of them is less matters, and that is much the same on others.
    """

    #: 64 rows at a time; one row by walks among others, and alone.
    block: float
    walk: float
    alone: float

    @property
    def least(self) -> int:
        """From how many rows on a block of 64 costs less than walking row by row."""
        return int(min(max(np.ceil(self.block / self.alone), 1), ROWS))


#: A node of 64 rows, a tree, a column, each halving of its thresholds after the first four, and
#: all else.
_NODE, _TREE, _COLUMN, _HALVING, _REST = 0.9, 25.0, 24.0, 25.0, 50.0
#: A column that is no float, besides; one of float32, and each 31 of its thresholds.
_LONE, _NARROW, _PART = 75.0, 10.0, 14.0
#: So many thresholds are searched for at once, and so many times that, among float32.
PART, MOST_PARTS = 31, 16
#: A step of a walk where the nodes fit a core's own cache, and where they do not.
_STEP, _FAR_STEP, _NEAR_BYTES = 1.4, 2.4, 1 << 20
#: What a row alone waits longer for: nobody has been at its nodes just before.
_ALONE = 1.3


class Slices:
    """Where every node, leaf and threshold goes."""

    def __init__(self, op: Nodes, table: Table, threshold: NDArray[np.float64], held: str) -> None:
        self.op, self.table, self.threshold, self.held = op, table, threshold, held
        self.outline = Outline(table)
        self.left, self.right = self.outline.left, self.outline.right
        self.tree, self.depth = self.outline.tree, self.outline.depth
        self.leaves, self.position = self.outline.leaves, self.outline.position
        self._order()
        self._ranks()

    def _order(self) -> None:
        """The inner nodes in their order, and where the rows at each node are kept."""
        inner = np.flatnonzero(self.table.inner)
        self.inner = inner[np.lexsort((inner, self.depth[inner], self.tree[inner]))]
        self.first = np.concatenate(
            [[0], np.cumsum(np.bincount(self.tree[self.inner], minlength=len(self.table.roots)))]
        )
        self.place = np.arange(len(self.inner)) - self.first[self.tree[self.inner]]
        self.rows = np.zeros(len(self.tree), np.int64)
        self.rows[self.left[self.inner]] = 2 * self.place + 1
        self.rows[self.right[self.inner]] = 2 * self.place + 2

    def _ranks(self) -> None:
        """The different thresholds of each slot, and the rank of each node among them.

        Which way missing values go is no part of the slot here: there are ranks for both ways.
        """
        table = self.table
        tests = self.inner[~table.sets[self.inner]]
        key = table.slots[table.slot[tests] - 1]
        order = np.lexsort((self.threshold[tests], key // 2))
        slot, limit = (key // 2)[order], self.threshold[tests][order]
        new = np.ones(len(slot), bool)
        new[1:] = (slot[1:] != slot[:-1]) | (limit[1:] != limit[:-1])
        self.used, at = np.unique(slot[new], return_index=True)
        self.limits, self.at = limit[new], np.append(at, new.sum())
        self.counts = np.diff(self.at)
        self.shares = -(-self.counts // _SHARE)
        self.share = np.cumsum(self.shares) - self.shares
        place = np.searchsorted(self.used, slot)
        rank = np.cumsum(new) - 1 - self.at[place]
        self.rank, self.number = (np.zeros(len(table.order), np.int64) for _ in range(2))
        self.rank[tests[order]] = rank % _SHARE
        goes_left = key[order] % 2
        self.number[tests[order]] = 2 * (self.share[place] + rank // _SHARE) + goes_left

    def fits(self) -> bool:
        """Whether every number has room in a node."""
        most = int(np.diff(self.first).max(initial=0))
        wide = max(2 * int(self.shares.sum()), int(self.counts.max(initial=0)) + 2, 2 * most + 2)
        return wide < _MOST and int(self.set_blocks().max(initial=0)) <= _MOST_BLOCKS

    def cost(self) -> Cost:
        """What ways through the ensemble take."""
        block = len(self.inner) * _NODE + len(self.table.roots) * _TREE + self._ranking()
        block += _REST
        return Cost(block, *self.walking())

    def _ranking(self) -> float:
        """What the ranks of 64 rows take."""
        if self.ranked_as() == "float32":
            return float((_NARROW + _PART * -(-self.counts // PART)).sum())
        power = np.maximum(np.ceil(np.log2(self.counts + 1)), 4)
        lone = 0.0 if self.held else _LONE
        return float((_COLUMN + lone + _HALVING * (power - 4)).sum())

    def ranked_as(self) -> str:
        """The float width in which columns are ranked, if they are turned on their side before."""
        many = int(self.counts.max(initial=0)) > PART * MOST_PARTS
        return "float64" if self.held and many else self.held

    def walking(self) -> tuple[float, float]:
        """What walking a row takes, among others and alone."""
        table = self.table
        leaves = np.flatnonzero(~table.inner)
        step = _STEP if 16 * len(self.tree) <= _NEAR_BYTES else _FAR_STEP
        steps = float(self.depth[leaves].sum()) / max(len(leaves), 1) * len(table.roots)
        if table.mostly_slots:
            step = max(step, guessed_step(len(self.tree)))
            return steps * step, steps * step
        walk = steps * step + table.filling
        return walk, walk * _ALONE

    def layout(self) -> Layout:
        """The tables native code reads."""
        op: Any = self.op
        table, inner = self.table, self.inner
        passed, sets, slot = self.leaves[self.left[inner]], table.sets[inner], self.number[inner]
        members, set_nodes, words, shared = self._sets(sets)
        if shared.size:
            slot[sets] = shared
        node = slot | (self.rank[inner] << 16) | (self.rows[inner] << 32)
        apart = sets.any() and not shared.size
        numbers = inner[~sets]
        number = self.number[numbers] | (self.rank[numbers] << 16) | (self.place[~sets] << 32)
        leaves = self.outline.leaf_order()
        count = self.leaves[table.roots]
        width = np.asarray(op.value.array)[table.left[leaves]].astype(op.dtype)
        padded, tests = self._tests()
        return Layout(
            nodes=_whole(node.astype(np.uint64) | (passed.astype(np.uint64) << np.uint64(48))),
            first=_whole(self.first),
            numbers=_whole(number if apart else number[:1]),
            first_number=_whole(self._starts(~sets) if apart else self.first[:1]),
            sets=_whole(set_nodes),
            first_set=_whole(self._starts(sets) if apart else self.first[:1]),
            words=Blob.of(words),
            tests=tests,
            members=members,
            threshold=Blob.of(padded),
            offset=_whole(np.cumsum(count) - count),
            # Flat, as the values of the leaves are where rows are scored one by one: kept once.
            value=Blob.of(width.reshape(-1)),
            leaf="uint8" if int(count.max()) <= 256 else "uint16",
            most=int(np.diff(self.first).max(initial=0)),
            shares=int(self.shares.sum()),
            shared=len(set_nodes) // 2 if shared.size else 0,
            blocks=int((self.set_blocks() + 1).sum()),
            cost=self.cost(),
        )

    def members(self, nodes: NDArray[np.int64], blocks: int) -> NDArray[np.bool_]:
        """Which of the first categories each node that tests for a set lets pass."""
        start, length = (
            np.asarray(part.array)[self.table.order[nodes]].astype(np.int64)[:, None]
            for part in (self.op.category, self.op.length)
        )
        code, words = np.arange(64 * blocks), np.asarray(self.op.words.array).astype(np.int64)
        word = words[np.minimum(start + code // 32, len(words) - 1)]
        made: NDArray[np.bool_] = (code < 32 * length) & ((word >> (code % 32)) & 1 != 0)
        return made

    def _starts(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Where each tree's share of the chosen nodes starts."""
        starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(chosen)])[self.first]
        return starts

    def _tests(self) -> tuple[NDArray[np.float64], Slots]:
        """The thresholds of each slot, padded to one fewer than a power of two, behind pivots."""
        power = np.maximum(np.ceil(np.log2(self.counts + 1)), 4).astype(np.int64)
        size = 15 + (1 << power)
        start = np.cumsum(size) - size + 16
        padded = np.full(max(int(size.sum()), 1), np.inf)
        for where, low, high, step in zip(
            start, self.at[:-1], self.at[1:], 1 << (power - 4), strict=True
        ):
            padded[where : where + high - low] = self.limits[low:high]
            padded[where - 16 : where - 1] = padded[where + step - 1 : where + 15 * step : step]
        return padded, Slots(
            column=Blob.of((self.used // 4).astype(np.int32)),
            zero=_zeros(self.used % 2),
            start=_whole(8 * start),
            power=_whole(power),
            share=_whole(2 * ROWS * self.share),
            shares=_whole(self.shares),
        )

    # --- sets ------------------------------------------------------------------------------------

    def set_nodes(self) -> NDArray[np.int64]:
        return self.inner[self.table.sets[self.inner]]

    def set_blocks(self) -> NDArray[np.int64]:
        """For each slot that is tested for sets, how many times 64 categories they reach."""
        nodes = self.set_nodes()
        if not nodes.size:
            return np.zeros(0, np.int64)
        length = np.asarray(self.op.length.array)[self.table.order[nodes]].astype(np.int64)
        _, which = np.unique(self.table.slot[nodes], return_inverse=True)
        most = np.zeros(int(which.max()) + 1, np.int64)
        np.maximum.at(most, which, length)
        return np.maximum((most + 1) // 2, 1)

    def _sets(
        self, chosen: NDArray[np.bool_]
    ) -> tuple[Members, NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """The slots, the nodes and the words of sets; every set of a slot has as many words.

        Where nodes share sets, the sets stand for them, and the ranks each node looks at are told.
        """
        nodes, blocks = self.set_nodes(), self.set_blocks()
        used, which = np.unique(self.table.slot[nodes], return_inverse=True)
        start = np.cumsum(blocks + 1) - (blocks + 1)
        key = self.table.slots[used - 1]
        slots = Members(
            column=Blob.of((key // 8).astype(np.int32)),
            zero=_zeros(key // 2 % 2),
            fill=Blob.of(np.where(key % 2 != 0, -np.inf, np.nan)),
            start=_whole(start),
            blocks=_whole(blocks),
        )
        if not nodes.size:
            return slots, np.zeros(2, np.int64), np.zeros(1, np.uint64), nodes[:0]
        spans = np.stack(
            [
                np.asarray(part.array)[self.table.order[nodes]]
                for part in (self.op.category, self.op.length)
            ]
        ).astype(np.int64)
        unique, found = np.unique(np.stack([*spans, which]), axis=1, return_inverse=True)
        words, places, size, known = [], [], 0, np.asarray(self.op.words.array)
        for begin, length, slot in unique.T.tolist():
            made = np.zeros(2 * int(blocks[slot]), np.uint32)
            made[:length] = known[begin : begin + length]
            places.append(size)
            words.append(made.view(np.uint64))
            size += int(blocks[slot])
        found, place = found.reshape(-1), np.array(places, np.int64)
        count, ranks = len(place), 2 * int(self.shares.sum())
        if count > _MOST_SHARED or _SHARED * count > len(nodes):
            node, place, found = which | (self.place[chosen] << 32), place[found], found[:0]
        else:
            node = unique[2] | ((ranks + np.arange(count)) << 32)
        sets = np.stack([node, place], axis=1).reshape(-1)
        return slots, sets, np.concatenate(words), found + ranks


def _zeros(taken: NDArray[Any]) -> Blob:
    """The largest number that counts as zero, where zeros are taken for missing."""
    return Blob.of(np.where(taken != 0, np.float64(np.float32(1e-35)), -1.0))


def _whole(values: NDArray[Any]) -> Blob:
    """Whole numbers (never none: an address needs a place)."""
    made = np.asarray(values).astype(np.int64) if values.size else np.zeros(1, np.int64)
    return Blob.of(made)
