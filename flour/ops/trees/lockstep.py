"""Several walks at once: all trees for one row, or eight rows for one tree.

A walk waits for memory at every step, so eight of them take little longer than one. Where there are
more trees than that, they take a step each in turn, and a walk's node has been loaded by its next
turn.

The nodes of a tree are packed for that: sixteen bytes each, children side by side, the nodes below
the bigger child right behind, leaves that lead to themselves. A step is one load of the node, one
of the value it tests, and a comparison without a branch.

Missing values are handled before the walk, once for each column and treatment of missing values (a
slot): a missing value that goes left becomes minus infinity, one that goes right NaN. `x < t` is
`x <= u` for the float u just below t. The bitmap of a set of categories stands between a word of
ones, which a missing value that belongs to the set reads, and a word of zeros, which any value out
of its range reads. Where each set has one category (as one-hot columns have), there may be slots
that hold codes instead: every value but the node's code fails.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.chunked_array import Long
from objectstore import Blob

if TYPE_CHECKING:
    from flour.ops.trees.walk import Nodes

LANES = 8
_LEFT, _ZEROS = 1, 4  # as in flour.ops.trees.walk
_GOES_LEFT, _ZERO_TOO, _IN_A_SET = 1, 2, 4
#: This bit says that the node tests for a set; the bits below it are the slot's number.
_SET_BIT = 30
#: Sets have slots of their own if there are this many nodes and this many steps of a row for each:
#: then filling a slot takes less time than it saves.
_SHARED, _STEPS_A_SET = 4, 2
#: Leaves are stored once per value if at least this many share one on average.
_ALIKE = 4
#: Nodes of an ensemble that stay in a core's nearest cache: eight walks at once hardly wait then.
_NEAR_BYTES = 64 * 1024
#: Trees of fewer nodes end too soon for walks in turns to pay.
_DEEP = 100
#: From here on float32 does not tell whole numbers (codes) apart.
MANY = 1 << 24
#: No set is as big as this.
BEYOND = 1 << 40
#: With more slots than this per tree, filling them may be most of the work for a row.
_SLOTS_A_TREE = 8
#: Nanoseconds for a slot of one row, for a step among others, and for one that is waited for.
_SLOT, _TOGETHER, _STRAIGHT, _GUESSED, _FORESEEN = 1.0, 1.3, 1.5, 0.8, 5.0


class Shared(NamedTuple):
    """Sets that many nodes test for: each has a slot, which passes for the members of the set."""

    #: The column, the slot's content for a missing value, the largest number taken for zero.
    column: Blob
    fill: Blob
    zero: Blob
    #: The first of the set's words, and the number of categories they cover.
    start: Blob
    limit: Blob


class CodeSlots(NamedTuple):
    """Slots for codes of categories: the column, and the largest number taken for zero."""

    column: Blob
    zero: Blob


class Packed(NamedTuple):
    """The nodes of an ensemble, packed for walking."""

    #: Two int64 per node: the bits of its threshold (or of its leaf's content, or the position of
    #: its set), then its slot and twice its left child's number. Where numbers are tested as
    #: float32, two int32 instead: the threshold (or the leaf's number among all, from left to
    #: right), then the slot and, in `shift` bits, the left child's number.
    nodes: Blob
    #: The position of each tree's root; the trees are filled up to a multiple of the lanes.
    roots: Blob
    #: For each slot but the first (which holds minus infinity): the column, its content for a
    #: missing value, the largest number that is taken for zero, and the code of a missing category.
    column: Blob
    fill: Blob
    zero: Blob
    code: Blob
    words: Blob
    #: The sets with slots of their own, behind all other slots, if there are any.
    shared: Shared | None
    #: The slots of codes, behind all others, where each set is one category and has no slot.
    coded: CodeSlots | None = None
    #: The bits of a node of eight bytes that hold its left child's number; 0 for sixteen bytes.
    shift: int = 0
    #: The leaf that each stored number stands for, where nodes are of eight bytes.
    order: NDArray[np.int64] | None = None
    #: All walks go in lock-step, however many there are.
    together: bool = False

    @property
    def in_turns(self) -> bool:
        """True if all trees take steps in turns, as their nodes may not be in a near cache."""
        trees = len(self.roots)
        deep = len(self.nodes) > 2 * _DEEP * trees
        return (
            not self.together and trees > LANES and deep and self.nodes.array.nbytes > _NEAR_BYTES
        )


def guessed_step(nodes: int) -> float:
    """The time of a step where trees are walked one by one, in nanoseconds.

    The branch predictor is right less often the more nodes there are.
    """
    return max(_GUESSED * float(np.log2(max(nodes, 1))) - _FORESEEN, _STRAIGHT)


def pack(
    op: Nodes, leaf: NDArray[Any], tested_as: str = "", same: NDArray[np.int64] | None = None
) -> Packed | None:
    """The nodes packed, the leaf of number k holding leaf[k]; None where that cannot be done.

    They take half of the bytes where numbers are tested as float32 (`tested_as`). `same` gives for
    each leaf the first leaf with the same content.
    """
    table = NodeTable(op)
    if table.mostly_slots or np.any(np.isnan(leaf)):
        return None
    threshold = table.thresholds()
    if threshold is None:
        return None
    small = table.compact(threshold, same) if tested_as == "float32" else None
    return small or table.packed(table.first_words(leaf, threshold))


class NodeTable:
    """The nodes that can be reached, in the order in which they are packed."""

    def __init__(self, op: Nodes) -> None:
        self.op = op
        feature, left, right, roots = (
            np.asarray(part.array).astype(np.int64)
            for part in (op.feature, op.left, op.right, op.roots)
        )
        #: The new number of each node, the old numbers of the nodes in their new order.
        self.number = _numbers(feature, left, right, roots)
        reached = np.flatnonzero(self.number >= 0)
        self.order = reached[np.argsort(self.number[reached])]
        self.feature, self.left = feature[self.order], left[self.order]
        self.inner = self.feature >= 0
        self.roots: NDArray[np.int64] = self.number[roots]
        self._assign_slots()

    def _assign_slots(self) -> None:
        """Compute the slot that each node tests."""
        op = self.op
        missing = np.asarray(op.missing.array)[self.order].astype(np.int64)
        self.sets = np.zeros(len(self.order), bool)
        if len(op.words):
            self.sets = self.inner & (np.asarray(op.category.array)[self.order] >= 0)
        treatment = np.where(missing % _ZEROS == _LEFT, _GOES_LEFT, 0)
        treatment |= np.where(bool(op.zeros) & (missing >= _ZEROS), _ZERO_TOO, 0)
        treatment |= np.where(self.sets, _IN_A_SET, 0)
        self.slots, index = np.unique(
            (self.feature * 8 + treatment)[self.inner], return_inverse=True
        )
        self.slot = np.zeros(len(self.order), np.int64)
        self.slot[self.inner] = index + 1

    @property
    def steps(self) -> float:
        """A low estimate of the steps that a row takes."""
        return len(self.roots) * float(np.log2(len(self.order) / max(len(self.roots), 1)))

    @property
    def mostly_slots(self) -> bool:
        """True if filling slots for one row would take longer than walking tree by tree."""
        filled = -(-len(self.roots) // LANES) * LANES / max(len(self.roots), 1)
        together = self.filling + _TOGETHER * filled * self.steps
        return self.filling > 0 and self.steps * guessed_step(len(self.order)) < together

    @property
    def filling(self) -> float:
        """The time to fill a row's slots; 0 where it is little next to walking."""
        slots = len(self.slots)
        return 0.0 if len(self.roots) * _SLOTS_A_TREE >= slots else _SLOT * slots

    def thresholds(self) -> NDArray[np.float64] | None:
        """The largest value that passes each test; None where a test has no such form."""
        threshold: NDArray[np.float64] = np.asarray(self.op.threshold.array)[self.order]
        if self.op.strict:
            below = np.nextafter(threshold, -np.inf)
            threshold = np.where(threshold == -np.inf, np.nan, below)
        return None if np.any(np.isnan(threshold[self.inner & ~self.sets])) else threshold

    def child(self, side: Long) -> NDArray[np.int64]:
        """The new numbers of the nodes' children on one side (of leaves: any number)."""
        old = np.where(self.inner, np.asarray(side.array)[self.order].astype(np.int64), 0)
        return self.number[old]

    def spans(self, nodes: NDArray[Any]) -> NDArray[np.int64]:
        """The first word and the number of words of each of these nodes' sets of categories."""
        fields, old = (self.op.category, self.op.length), self.order[nodes]
        return np.stack([np.asarray(part.array)[old].astype(np.int64) for part in fields])

    def first_words(self, leaf: NDArray[Any], threshold: NDArray[np.float64]) -> NDArray[np.int64]:
        """The bits of thresholds, of leaves' contents and of the positions of sets."""
        tests = self.inner & ~self.sets
        content = np.zeros(len(self.order))
        content[tests] = threshold[tests]
        content[~self.inner] = leaf[self.left[~self.inner]]
        bits: NDArray[np.int64] = content.view(np.int64)
        return bits

    def packed(self, bits: NDArray[np.int64]) -> Packed:
        """The tables native code reads."""
        child, words = self._next(), np.asarray(self.op.words.array)
        (shared, slot), code = self.shared(), self.single
        if shared is not None:
            bits[self.sets] = 0  # the number zero, which minus infinity passes and NaN does not
        elif code is not None:
            bits[self.sets] = code.astype(np.float64).view(np.int64)
        else:
            words, position = self._words()
            bits[self.sets] = position
            slot = slot | (self.sets.astype(np.int64) << _SET_BIT)
        nodes = np.stack([bits, (slot << 32) | (2 * child)], axis=1).reshape(-1)
        return self.tables(Blob.of(nodes), Blob.of(2 * self._starts()), words, shared)

    def compact(
        self, threshold: NDArray[np.float64], same: NDArray[np.int64] | None = None
    ) -> Packed | None:
        """The tables for numbers tested as float32; None where a node's numbers do not fit."""
        (shared, slot), code = self.shared(), self.single
        shift = len(self.order).bit_length()
        fits = shared is not None or code is not None or not self.sets.any()
        if not fits or int(slot.max()) >> (32 - shift):
            return None
        first = np.zeros(len(self.order), np.int32)
        tests = self.inner & ~self.sets
        first[tests] = at_most(threshold[tests], "float32").view(np.int32)
        if shared is None and code is not None:
            first[self.sets] = code.astype(np.float32).view(np.int32)
        leaves = Outline(self).leaf_order()
        order, first[leaves] = counted(self.left[leaves], same)
        second = ((slot << shift) | self._next()).astype(np.uint32).view(np.int32)
        nodes = np.stack([first, second], axis=1).reshape(-1)
        words = np.asarray(self.op.words.array)
        packed = self.tables(Blob.of(nodes), Blob.of(self._starts()), words, shared)
        return packed._replace(shift=shift, order=order)

    @cached_property
    def single(self) -> NDArray[np.int64] | None:
        """The only category of each node's set, if all have one and none has missing values."""
        if not self.sets.any() or np.any(self.slots[self.slot[self.sets] - 1] & _GOES_LEFT):
            return None
        unique, which = np.unique(self.spans(self.sets), axis=1, return_inverse=True)
        words = np.asarray(self.op.words.array).astype("<u4")
        each = [_only(words[start : start + length]) for start, length in unique.T.tolist()]
        return np.array(each, np.int64)[which.reshape(-1)] if min(each) >= 0 else None

    def _next(self) -> NDArray[np.int64]:
        """The number of the node that a passing walk goes to: leaves lead to themselves."""
        here = np.arange(len(self.order))
        return np.where(self.inner, self.number[np.where(self.inner, self.left, 0)], here)

    def _starts(self) -> NDArray[np.int64]:
        """The trees' roots; a tree that is one leaf, the first of all, fills the lanes up."""
        idle = np.full(-len(self.roots) % LANES, int(np.flatnonzero(~self.inner)[0]))
        return np.concatenate([self.roots, idle])

    def tables(
        self, nodes: Blob, roots: Blob, words: NDArray[np.uint32], shared: Shared | None
    ) -> Packed:
        """All tables, given the nodes."""
        slots, coded = self.slots, None
        if shared is None and self.single is not None:
            apart = slots & _IN_A_SET != 0
            slots, behind = slots[~apart], slots[apart]
            coded = CodeSlots(
                Blob.of((behind // 8).astype(np.int32)), largest_zeros(behind & _ZERO_TOO != 0)
            )
        left, sets = (slots & flag != 0 for flag in (_GOES_LEFT, _IN_A_SET))
        return Packed(
            nodes=nodes,
            roots=roots,
            column=Blob.of((slots // 8).astype(np.int32)),
            fill=Blob.of(np.where(left, -np.inf, np.nan)),
            zero=largest_zeros(slots & _ZERO_TOO != 0),
            code=Blob.of(np.where(sets, np.where(left, -1, BEYOND), 0)),
            words=Blob.of(words if len(words) else np.zeros(1, np.uint32)),
            shared=shared,
            coded=coded,
        )

    def shared(self, *, always: bool = False) -> tuple[Shared | None, NDArray[np.int64]]:
        """The sets with slots of their own, if few are shared by many nodes; each node's slot."""
        if not self.sets.any():
            return None, self.slot
        tests = np.stack([*self.spans(self.sets), self.slot[self.sets]])
        unique, which = np.unique(tests, axis=1, return_inverse=True)
        count = unique.shape[1]
        many = _SHARED * count > self.sets.sum() or _STEPS_A_SET * count > self.steps
        if many and not always:
            return None, self._behind()
        slot = self.slot.copy()
        slot[self.sets] = len(self.slots) + 1 + which.reshape(-1)
        key = self.slots[unique[2] - 1]
        return Shared(
            column=Blob.of((key // 8).astype(np.int32)),
            fill=Blob.of(np.where(key & _GOES_LEFT != 0, -np.inf, np.nan)),
            zero=largest_zeros(key & _ZERO_TOO != 0),
            start=Blob.of(unique[0]),
            limit=Blob.of(32.0 * unique[1]),
        ), slot

    def _behind(self) -> NDArray[np.int64]:
        """Each node's slot, where the slots of codes come behind all others."""
        if self.single is None:
            return self.slot
        rank = np.argsort(np.argsort(self.slots & _IN_A_SET != 0, kind="stable"))
        return np.where(self.inner, rank[self.slot - 1] + 1, 0)

    def _words(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The words of all sets, each between ones and zeros; each node's position and length."""
        if not self.sets.any():
            return np.zeros(1, np.uint32), np.empty(0, np.int64)
        old = np.asarray(self.op.words.array)
        unique, which = np.unique(self.spans(self.sets), axis=1, return_inverse=True)
        parts, places, size = [np.zeros(1, np.uint32)], [], 1
        ones, zeros = np.full(1, 2**32 - 1, np.uint32), np.zeros(1, np.uint32)
        for start, length in unique.T.tolist():
            parts += [ones, old[start : start + length], zeros]
            places.append(size + 1 + (length << 32))
            size += length + 2
        return np.concatenate(parts), np.array(places, np.int64)[which.reshape(-1)]


def largest_zeros(missing: NDArray[np.bool_], dtype: str = "float64") -> Blob:
    """The largest number that each slot takes for zero, where zeros are treated as missing."""
    return Blob.of(np.where(missing, np.float64(np.float32(1e-35)), -1.0).astype(dtype))


def _only(words: NDArray[np.uint32]) -> int:
    """The only number in a set; -1 if there is none, or another."""
    members = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    return int(members[0]) if len(members) == 1 and members[0] < MANY else -1


def counted(
    leaves: NDArray[np.int64], same: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The leaves that are stored, and the stored one of each leaf.

    All are stored, as blocks of rows number them, unless hardly any differ: then the few stay in
    cache.
    """
    if same is not None:
        kept, which = np.unique(same[leaves], return_inverse=True)
        if len(kept) * _ALIKE <= len(leaves):
            return kept, which.reshape(-1)
    return leaves, np.arange(len(leaves))


def _numbers(
    feature: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    roots: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The number of each node: tree after tree, children side by side (-1: not reached).

    Behind a pair of children stand all nodes below the bigger of them, so that most steps stay in
    the same cache line.
    """
    levels, level = [], roots
    while level.size:
        inner = level[feature[level] >= 0]
        levels.append(inner)
        level = np.concatenate([left[inner], right[inner]])
    pairs = np.zeros(len(feature), np.int64)
    for inner in reversed(levels):
        pairs[inner] = 1 + pairs[left[inner]] + pairs[right[inner]]
    numbers = np.full(len(feature), -1, np.int64)
    below = np.zeros(len(feature), np.int64)  # the first of the pairs below a node
    numbers[roots] = np.cumsum(1 + 2 * pairs[roots]) - 1 - 2 * pairs[roots]
    below[roots] = numbers[roots] + 1
    for inner in levels:
        one, other = left[inner], right[inner]
        numbers[one], numbers[other] = below[inner], below[inner] + 1
        big = np.where(pairs[one] >= pairs[other], one, other)
        small = one + other - big
        below[big] = below[inner] + 2
        below[small] = below[big] + 2 * pairs[big]
    return numbers


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
