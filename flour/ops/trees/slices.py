"""Sixty-four rows at a time through an ensemble, without walking.

From the deepest nodes to the root, each node chooses for every row between the leaves that its two
children have chosen: a comparison and a blend of vectors of bytes. No step waits for a node to know
the next one, and no branch is mispredicted. That makes up, over 64 rows, for visiting every node.

With AVX-512, trees of many leaves are gone down instead. The rows at a node are the bits of one
number; those that fail go right, the others left, which is two ANDs for all 64.

The tests compare ranks, not numbers: the rank of a value is the number of its column's thresholds
that it exceeds. A rank is one byte, so that one comparison of a vector register tests all rows;
columns with more thresholds than that have several ranks, each of a share of them. A set of
categories is 64 bits, looked up at once for all rows.

Exact by construction: ranks order values as the thresholds do, and the values of the leaves are
added in the order of the trees.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Type, Vector
from flour.ops.trees.lockstep import NodeTable, Outline, guessed_step, largest_zeros
from flour.ops.trees.pairs import Paired, paired, suits
from objectstore import Blob

if TYPE_CHECKING:
    from flour.ops.trees.walk import LeafSums, Nodes

ROWS = 64
#: Sixteen bits each for the position of a node's rows, its slot, and its number of leaves.
_MOST = 1 << 16
#: A column has at most this many blocks of 64 categories, which are looked up at once.
_MOST_BLOCKS = 16
#: At most this many sets have ranks of their own (a cache's size), if on average at least this many
#: nodes test for each.
_MOST_SHARED, _SHARED = 512, 1
#: So many nodes of neighbouring trees are chosen from together: what they choose stays in the
#: nearest cache.
GROUP_NODES = 256
#: A leaf's number is one byte where no tree has more leaves.
BYTE_LEAVES = 256
#: So many numbers that nothing exceeds stand behind a column's thresholds: registers that are read
#: from the last of them on have at most as many more.
_BESIDE = 3
#: Trees of more leaves than this go by masks of rows where there are registers for them.
_FEW_LEAVES = 128
#: The number of thresholds that a rank of one byte counts: see oven.compiler.intrinsics.slices.
_SHARE = 254


class Slots(NamedTuple):
    """The tested columns (twice where some nodes take zeros for missing)."""

    column: Blob
    #: The largest number that is taken for zero.
    zero: Blob
    #: The offset of its thresholds, in bytes, and the power of two they are padded to.
    start: Blob
    power: Blob
    #: The offset of its ranks, and their number.
    share: Blob
    shares: Blob


class Members(NamedTuple):
    """The columns whose categories are looked up, once for each treatment of missing ones."""

    column: Blob
    zero: Blob
    #: Minus infinity where missing values are in every set, else NaN.
    fill: Blob
    #: The offset of the rows of its categories, and the number of blocks of 64 categories.
    start: Blob
    blocks: Blob


class SlicedTables(NamedTuple):
    """The nodes of an ensemble, group of trees after group, ordered by depth within a group."""

    #: See oven.compiler.intrinsics.slices and blends; the nodes of group g are those from first[g]
    #: to first[g + 1].
    nodes: Blob
    #: The same for masks of rows, where AVX-512 takes those.
    masked: Blob | None
    #: The same for trees of more than 256 leaves where there are no mask registers.
    paired: Paired | None
    first: Blob
    #: The first tree of each group, and where the leaf numbers of each tree's root are.
    starts: Blob
    roots: Blob
    #: With sets: the nodes that test numbers, and those that test for sets (two int64 each: the
    #: node, and the offset of its words). Where few sets are shared by many nodes, the sets
    #: instead, each with the offset of its ranks: 1 for the rows that are not in it.
    numbers: Blob
    first_number: Blob
    sets: Blob
    first_set: Blob
    words: Blob
    tests: Slots
    members: Members
    threshold: Blob
    #: The offset of each tree's leaf values, and the values from the leftmost leaf to the
    #: rightmost.
    offset: Blob
    value: Blob
    #: The width of a leaf's number.
    leaf: str
    #: The most inner nodes and trees of a group; the number of a row's ranks; the number of 64-bit
    #: masks that say which rows are in which category.
    most: int
    trees: int
    shares: int
    blocks: int
    #: The number of sets that are looked up once for all nodes that share them.
    shared: int
    cost: Cost


def held_as(op: Nodes, x: Type | None) -> str:
    """The float width that values can be tested in; empty where they are no floats.

    Without a type, as for floats of the width that the trees test.
    """
    if x is None:
        return "float32" if op.narrow else "float64"
    assert isinstance(x, Vector)
    if not x.dtype.startswith("float") or (op.absent and x.sparse):
        return ""
    return "float32" if op.narrow else x.dtype


def slices(op: LeafSums, x: Type | None = None) -> Slices | None:
    """The ensemble in slices, or None where it has to be walked."""
    table = NodeTable(op)
    threshold = table.thresholds()
    if threshold is None:
        return None
    sliced = Slices(op, table, threshold, held_as(op, x))
    return sliced if sliced.fits() and sliced.cost().block < ROWS * sliced.cost().walk else None


class Cost(NamedTuple):
    """Estimated times of the ways to score an ensemble, in nanoseconds on the measured machine.

    Only their order matters, which is much the same on other machines.
    """

    #: 64 rows at a time; one row by walks among others, and alone; one row with all nodes of a tree
    #: at once.
    block: float
    walk: float
    alone: float
    row: float
    #: Whether a leaf's number is one byte: blocks pay without AVX-512, too. Else how many rows are
    #: walked there in the time of a block of pairs; 0 where there are none.
    narrow: bool
    paired: float
    #: The number of columns whose categories are looked up.
    codes: int

    @property
    def by_pairs(self) -> bool:
        """True if blocks of pairs pay somewhere."""
        return 0.0 < self.paired < ROWS

    @property
    def condition(self) -> str:
        """The condition for blocks, by the processor; empty where they pay on all."""
        if self.narrow or (self.by_pairs and self.paired < _PAIRED_SHORT):
            return ""
        return "bit_masks or wide_registers" if self.by_pairs else "bit_masks"

    @property
    def least(self) -> tuple[int, int, int]:
        """The smallest number of rows for which a block costs less than each row.

        Where all nodes of a tree are tested at once, where rows are walked, and without AVX-512.
        """
        walked = few_rows_walked(self.alone, self.codes)
        quick = _FEW_QUICK * self.block / self.row
        numbers, codes = self.block - _CODES * self.codes, _FEW_CODES * self.codes
        masks, halves = ((part * numbers + codes) / walked for part in (_FEW_BLOCK, _HALF_BLOCK))
        if self.paired:  # half of a block is left out
            halves = self.paired if self.paired > ROWS / 2 else self.paired / 2
        first, second, third = (at_least(time) for time in (quick, masks, halves))
        return first, second, third


#: The times for a node of 64 rows, a tree, a column, each halving of its thresholds after the first
#: four, and all else.
_NODE, _TREE, _COLUMN, _HALVING, _REST = 0.9, 25.0, 24.0, 25.0, 50.0
#: A column whose values are codes of categories.
_CODES = 145.0
#: A column that is no float, besides; one of float32, and each 31 of its thresholds.
_LONE, _NARROW, _PART = 75.0, 10.0, 14.0
#: Thresholds of float32 that are compared at once, and the most such parts of a column.
PART, MOST_PARTS = 31, 16
#: A step of a walk where the nodes fit a core's own cache, and where they do not.
_STEP, _FAR_STEP, _NEAR_BYTES = 1.4, 2.4, 1 << 20
#: A tree and a column of one row, where all nodes of a tree are tested at once: of few trees, and
#: of many trees that test few columns. The lesser one counts, so that no block begins too early.
_ROWS_TREE, _ROWS_COLUMN = np.array([7.5, 4.0]), np.array([7.0, 14.0])
#: What a block of eight rows takes of a long one by ranks, with mask registers and without, and for
#: each column of codes; what each of these rows takes by walks: fitted to random ensembles.
_FEW_BLOCK, _HALF_BLOCK, _FEW_CODES = 0.75, 0.6, 37.0
_FEW_WALKED, _FEW_ALONE, _FEW_CODE = 25.0, 0.44, 6.0
#: Pairs of bytes without mask registers: a node; a column of float32 and each 31 of its thresholds;
#: another column and each halving of its thresholds, of the second to fifth four; how much a walk
#: takes there of what it is thought to take, and how much of that its columns do not take.
_PAIRED_NODE, _PAIRED_NARROW, _PAIRED_PART = 1.5, 66.0, 24.0
_PAIRED_COLUMN, _PAIRED_HALVING, _PAIRED_WALKED, _PAIRED_FILLED = 107.0, 33.0, 0.7, 0.5
#: Registers of 16 bytes take nearly twice as long: blocks pay below this, of at least so many rows.
_PAIRED_SHORT, PAIRED_SHORT_LEAST = 45.0, 56
#: The same factor of a block where rows are scored with all nodes of a tree at once.
_FEW_QUICK = 1.4
#: The factor for a row alone: no other row has just brought its nodes into the cache.
_ALONE = 1.3


def at_least(rows: float) -> int:
    """So many rows, as a block has them."""
    return int(np.clip(np.ceil(rows), 1, ROWS))


def few_rows_walked(alone: float, codes: int = 0) -> float:
    """The time to walk each of a few rows."""
    return _FEW_WALKED + _FEW_ALONE * alone + _FEW_CODE * codes


class Slices:
    """The positions of every node, leaf and threshold in the tables of an ensemble."""

    def __init__(
        self, op: Nodes, table: NodeTable, threshold: NDArray[np.float64], held: str
    ) -> None:
        self.op, self.table, self.threshold, self.held = op, table, threshold, held
        self.outline = Outline(table)
        self.left, self.right = self.outline.left, self.outline.right
        self.tree, self.depth = self.outline.tree, self.outline.depth
        self.leaves, self.position = self.outline.leaves, self.outline.position
        self._order()
        self._ranks()

    def _order(self) -> None:
        """Compute the order of the inner nodes, and the position of the rows at each node."""
        inner = np.flatnonzero(self.table.inner)
        self._group(np.bincount(self.tree[inner], minlength=len(self.table.roots)))
        group = self.group[self.tree[inner]]
        self.inner = inner[np.lexsort((inner, self.tree[inner], self.depth[inner], group))]
        self.first = np.concatenate(
            [[0], np.cumsum(np.bincount(group, minlength=len(self.starts) - 1))]
        )
        self.place = np.arange(len(self.inner)) - self.first[self.group[self.tree[self.inner]]]
        self.rows = np.zeros(len(self.tree), np.int64)
        self.rows[self.left[self.inner]] = 2 * self.place + 1
        self.rows[self.right[self.inner]] = 2 * self.place + 2

    def _group(self, counts: NDArray[np.int64]) -> None:
        """Compute the group of each tree, and the first tree of each group.

        The trees of a group are chosen from together, so that no node waits for the one before it.
        """
        # A tree that goes by masks of rows is a group of its own, also if it is one leaf.
        most = GROUP_NODES if self.leaf == "uint8" and not self.wide else -1
        starts, size = [0], 0
        for tree, count in enumerate(counts.tolist()):
            if size + count > most and tree > starts[-1]:
                starts.append(tree)
                size = 0
            size += count
        self.starts = np.array([*starts, len(counts)], np.int64)
        self.group = np.repeat(np.arange(len(starts)), np.diff(self.starts))

    def _ranks(self) -> None:
        """Compute the different thresholds of each slot, and the rank of each node among them.

        The direction of missing values is no part of the slot here: there are ranks for both.
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
        index = np.searchsorted(self.used, slot)
        rank = np.cumsum(new) - 1 - self.at[index]
        self.rank, self.number = (np.zeros(len(table.order), np.int64) for _ in range(2))
        self.rank[tests[order]] = rank % _SHARE
        goes_left = key[order] % 2
        self.number[tests[order]] = 2 * (self.share[index] + rank // _SHARE) + goes_left

    def fits(self) -> bool:
        """True if every number fits into the bits that a node has for it."""
        most = int(np.diff(self.first).max(initial=0))
        wide = max(2 * int(self.shares.sum()), int(self.counts.max(initial=0)) + 2, 2 * most + 2)
        return wide < _MOST and int(self.set_blocks().max(initial=0)) <= _MOST_BLOCKS

    def cost(self) -> Cost:
        """The estimated times of the ways to score the ensemble."""
        block = len(self.inner) * _NODE + len(self.table.roots) * _TREE + self._ranking()
        block += _REST + len(self.set_blocks()) * _CODES
        rows = len(self.table.roots) * _ROWS_TREE + len(self.used) * _ROWS_COLUMN
        walk, alone = self.walking()
        paired = self._pairing() if suits(self.outline, self.inner) else 0.0
        codes = len(self.set_blocks())
        return Cost(block, walk, alone, float(rows.min()), self.leaf == "uint8", paired, codes)

    def _pairing(self) -> float:
        """Rows walked in the time of a block of pairs, without mask registers."""
        ranking = _PAIRED_NARROW + _PAIRED_PART * -(-self.counts // PART)
        if self.ranked_as() != "float32":
            power = np.clip(np.ceil(np.log2(self.counts + 1)), 4, 8)
            ranking = _PAIRED_COLUMN + _PAIRED_HALVING * (power - 4)
        sets = len(self.set_blocks()) * _CODES
        block = len(self.inner) * _PAIRED_NODE + float(ranking.sum()) + _REST + sets
        filling = 0.0 if self.table.mostly_slots else self.table.filling
        return block / (_PAIRED_WALKED * self.walking()[0] - _PAIRED_FILLED * filling)

    def _ranking(self) -> float:
        """The time to rank the columns of 64 rows."""
        if self.ranked_as() == "float32":
            return float((_NARROW + _PART * -(-self.counts // PART)).sum())
        power = np.maximum(np.ceil(np.log2(self.counts + 1)), 4)
        return float((_COLUMN + (0.0 if self.held else _LONE) + _HALVING * (power - 4)).sum())

    def ranked_as(self) -> str:
        """The float width in which transposed columns are ranked; empty if not transposed."""
        many = int(self.counts.max(initial=0)) > PART * MOST_PARTS
        return "float64" if self.held and many else self.held

    def walking(self) -> tuple[float, float]:
        """The time to walk a row, among others and alone."""
        table = self.table
        leaves = np.flatnonzero(~table.inner)
        step = _STEP if 16 * len(self.tree) <= _NEAR_BYTES else _FAR_STEP
        steps = float(self.depth[leaves].sum()) / max(len(leaves), 1) * len(table.roots)
        if table.mostly_slots:
            step = max(step, guessed_step(len(self.tree)))
            return steps * step, steps * step
        walk = steps * step + table.filling
        return walk, walk * _ALONE

    def layout(self) -> SlicedTables:
        """The tables native code reads."""
        op: Any = self.op
        table, inner = self.table, self.inner
        sets, slot = table.sets[inner], self.number[inner]
        members, set_nodes, words, shared = self._sets(sets)
        if shared.size:
            slot[sets] = shared
        node = slot | (ranks(self.rank[inner]) << 16)
        apart = sets.any() and not shared.size
        numbers = inner[~sets]
        number = (
            self.number[numbers] | (ranks(self.rank[numbers]) << 16) | (self.place[~sets] << 32)
        )
        leaves = self.outline.leaf_order()
        count = self.leaves[table.roots]
        width = np.asarray(op.value.array)[table.left[leaves]].astype(op.dtype)
        padded, slots = self._tests()
        return SlicedTables(
            nodes=_whole(node | (self.ways() << 32)),
            masked=_whole(node | (self.masks() << 32)) if self.wide else None,
            # The nodes that choose two bytes, if blocks of them pay anywhere.
            paired=paired(self.outline, self.inner, self.place if apart else node)
            if self.cost().by_pairs
            else None,
            first=_whole(self.first),
            starts=_whole(self.starts),
            roots=_whole(self.chosen[table.roots]),
            numbers=_whole(number if apart else number[:1]),
            first_number=_whole(self._starts(~sets) if apart else self.first[:1]),
            sets=_whole(set_nodes),
            first_set=_whole(self._starts(sets) if apart else self.first[:1]),
            words=Blob.of(words),
            tests=slots,
            members=members,
            threshold=Blob.of(padded),
            offset=_whole(np.cumsum(count) - count),
            # Flat, like the values of the leaves for rows scored one by one, so that one copy is
            # kept.
            value=Blob.of(width.reshape(-1)),
            leaf=self.leaf,
            most=int(np.diff(self.first).max(initial=0)),
            trees=int(np.diff(self.starts).max()),
            shares=int(self.shares.sum()),
            shared=len(set_nodes) // 2 if shared.size else 0,
            blocks=int((self.set_blocks() + 1).sum()),
            cost=self.cost(),
        )

    @property
    def leaf(self) -> str:
        """The dtype of the number of a leaf within its tree."""
        most = int(self.leaves[self.table.roots].max())
        return "uint8" if most <= BYTE_LEAVES else "uint16"

    @property
    def wide(self) -> bool:
        """True if masks of rows suit AVX-512 better, as vectors of all leaves fill its cache."""
        return _FEW_LEAVES < int(self.leaves[self.table.roots].max()) <= BYTE_LEAVES

    def ways(self) -> NDArray[np.int64]:
        """For each inner node, where its rows come from and go to, in two numbers of sixteen bits.

        Where a leaf's number is one byte: where the leaf numbers of the two children are, in units
        of eight bytes. Else: where the rows of the node are, and how many leaves are on its left.
        """
        left, right = self.left[self.inner], self.right[self.inner]
        if self.leaf == "uint8":
            return self.chosen[left] | (self.chosen[right] << 16)
        return self.masks()

    def masks(self) -> NDArray[np.int64]:
        """The place of each inner node's mask of rows, and the number of leaves on its left."""
        return self.rows[self.inner] | (self.leaves[self.left[self.inner]] << 16)

    @cached_property
    def chosen(self) -> NDArray[np.int64]:
        """The place of each node's leaf numbers, for 64 rows, in units of eight bytes."""
        place = self.position.copy()
        place[self.inner] = BYTE_LEAVES + self.place
        return place * (ROWS // 8)

    @cached_property
    def place_in_tree(self) -> NDArray[np.int64]:
        """The number of each inner node within its tree."""
        tree = self.tree[self.inner]
        order = np.argsort(tree, kind="stable")
        counts = np.bincount(tree, minlength=len(self.table.roots))
        place = np.zeros(len(tree), np.int64)
        place[order] = np.arange(len(tree)) - np.repeat(np.cumsum(counts) - counts, counts)
        return place

    def members(self, nodes: NDArray[np.int64], blocks: int) -> NDArray[np.bool_]:
        """The categories, of the first 64 * blocks, that pass each node that tests for a set."""
        start, length = self.table.spans(nodes)[:, :, None]
        code, words = np.arange(64 * blocks), np.asarray(self.op.words.array).astype(np.int64)
        bitmap = words[np.minimum(start + code // 32, len(words) - 1)]
        passing: NDArray[np.bool_] = (code < 32 * length) & ((bitmap >> (code % 32)) & 1 != 0)
        return passing

    def _starts(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The first of the chosen nodes of each tree."""
        starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(chosen)])[self.first]
        return starts

    def _tests(self) -> tuple[NDArray[np.float64], Slots]:
        """The thresholds of each slot, padded to one fewer than a power of two, behind pivots."""
        power = np.maximum(np.ceil(np.log2(self.counts + 1)), 4).astype(np.int64)
        size = 15 + (1 << power) + _BESIDE
        start = np.cumsum(size) - size + 16
        padded = np.full(max(int(size.sum()), 1), np.inf)
        for where, low, high, step in zip(
            start, self.at[:-1], self.at[1:], 1 << (power - 4), strict=True
        ):
            padded[where : where + high - low] = self.limits[low:high]
            padded[where - 16 : where - 1] = padded[where + step - 1 : where + 15 * step : step]
        return padded, Slots(
            column=Blob.of((self.used // 4).astype(np.int32)),
            zero=largest_zeros(self.used % 2 != 0),
            start=_whole(8 * start),
            power=_whole(power),
            share=_whole(2 * ROWS * self.share),
            shares=_whole(self.shares),
        )

    # --- sets ------------------------------------------------------------------------------------

    def set_nodes(self) -> NDArray[np.int64]:
        return self.inner[self.table.sets[self.inner]]

    def set_blocks(self) -> NDArray[np.int64]:
        """For each slot that is tested for sets, their number of blocks of 64 categories."""
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

        Where nodes share sets, the sets are listed instead of nodes, with the rank that each node
        tests.
        """
        nodes, blocks = self.set_nodes(), self.set_blocks()
        used, which = np.unique(self.table.slot[nodes], return_inverse=True)
        start = np.cumsum(blocks + 1) - (blocks + 1)
        key = self.table.slots[used - 1]
        slots = Members(
            column=Blob.of((key // 8).astype(np.int32)),
            zero=largest_zeros(key // 2 % 2 != 0),
            fill=Blob.of(np.where(key % 2 != 0, -np.inf, np.nan)),
            start=_whole(start),
            blocks=_whole(blocks),
        )
        if not nodes.size:
            return slots, np.zeros(2, np.int64), np.zeros(1, np.uint64), nodes[:0]
        tests = np.stack([*self.table.spans(nodes), which])
        unique, index = np.unique(tests, axis=1, return_inverse=True)
        words, offsets, size, all_words = [], [], 0, np.asarray(self.op.words.array)
        for begin, length, slot in unique.T.tolist():
            bitmap = np.zeros(2 * int(blocks[slot]), np.uint32)
            bitmap[:length] = all_words[begin : begin + length]
            offsets.append(size)
            words.append(bitmap.view(np.uint64))
            size += int(blocks[slot])
        index, offset = index.reshape(-1), np.array(offsets, np.int64)
        count, ranks = len(offset), 2 * int(self.shares.sum())
        if count > _MOST_SHARED or _SHARED * count > len(nodes):
            node, offset, index = which | (self.place[chosen] << 32), offset[index], index[:0]
        else:
            node = unique[2] | ((ranks + np.arange(count)) << 32)
        sets = np.stack([node, offset], axis=1).reshape(-1)
        return slots, sets, np.concatenate(words), index + ranks


def ranks(rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank that a node tests in two forms of one byte.

    Without a sign, and one more with the highest bit flipped: see oven.compiler.intrinsics.blends.
    """
    return rank | (((rank + 1) ^ 128) << 8)


def _whole(values: NDArray[Any]) -> Blob:
    """Whole numbers as a blob; never an empty one, which would have no address."""
    whole = np.asarray(values).astype(np.int64) if values.size else np.zeros(1, np.int64)
    return Blob.of(whole)
