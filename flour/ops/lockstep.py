"""Several walks at once: eight trees for one row, or eight rows for one tree.

A walk waits for memory at every step, so eight of them take little longer than one. The nodes of a
tree are packed for that: sixteen bytes each, children side by side, what is below the bigger of
them right behind, leaves that lead to themselves. A step is one load of the node, one of the value
it looks at, and a comparison without a branch.

Everything a test may do with missing values is decided before the walk, once for each column and
way of looking at it (a slot): a missing value that goes left becomes minus infinity, one that goes
right NaN. `x < t` is `x <= u` for the float u just below t. A set of categories stands between a
word of ones, which is where a missing value that belongs to it looks, and a word of zeros, which is
where everything else looks that is not in its range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.ops.outline import Outline, at_most
from flour.pieces import Long
from flour.types import Vector
from objectstore import Blob

if TYPE_CHECKING:
    from collections.abc import Callable

    from flour.emission import Column, Emitter
    from flour.ops.walk import Nodes

    #: What to do with a row before and after its walks, and with what a tree's leaf holds.
    Begin = Callable[[str], None]
    Take = Callable[[str, str, str], None]

LANES = 8
_LEFT, _ZEROS = 1, 4  # as in flour.ops.walk
_GOES_LEFT, _ZERO_TOO, _IN_A_SET = 1, 2, 4
#: A slot's number takes the bits below it; it says that the node tests for a set.
_SET_BIT = 30
#: A set has a slot if so many nodes ask for each, and a row takes so many steps for each.
_SHARED, _STEPS_A_SET = 4, 2
#: No set is as big as this.
_BEYOND = 1 << 40
#: A row looks at few of the columns of a few trees: filling slots may be most of the work.
_SLOTS_A_TREE = 8
#: Nanoseconds that a slot takes one row, a step among others, and one that is waited for.
_SLOT, _TOGETHER, _STRAIGHT, _GUESSED, _FORESEEN = 1.0, 1.3, 1.5, 0.8, 5.0
#: The rows a tree is walked for before the next: their slots should stay in a near cache.
_MOST_ROWS, _SLOT_BYTES, _BYTES = 64, 64 * 1024, {"float32": 4, "float64": 8}


class Shared(NamedTuple):
    """Sets that many nodes ask for: each has a slot, which passes for what is in the set."""

    #: The column, what the slot holds for a missing value, the largest number taken for zero.
    column: Blob
    fill: Blob
    zero: Blob
    #: Where the set's words are, and how many categories they tell of.
    start: Blob
    limit: Blob


class Packed(NamedTuple):
    """The nodes of an ensemble, packed for walking."""

    #: Two int64 a node: the bits of its threshold (or of what its leaf holds, or where its set
    #: is), then its slot and twice its left child's number. Where numbers are tested as float32,
    #: two int32 instead: the threshold (or the leaf's number among all, from left to right), then
    #: the slot and, in so many bits (`shift`), the left child's number.
    nodes: Blob
    #: The place of each tree's root; the trees are filled up to a multiple of the lanes.
    roots: Blob
    #: For each slot but the first (which holds minus infinity): the column, what stands there for a
    #: missing value, the largest number that is taken for zero, and the code of a missing category.
    column: Blob
    fill: Blob
    zero: Blob
    code: Blob
    words: Blob
    #: The sets with slots of their own, behind all others, if sets are kept so.
    shared: Shared | None
    #: How many bits of a node of eight bytes are its left child's number; 0 for sixteen bytes.
    shift: int = 0
    #: Which leaf each number of a leaf stands for, where nodes are of eight bytes.
    order: NDArray[np.int64] | None = None


def guessed_step(nodes: int) -> float:
    """What a step takes where trees are walked one by one.

    Its branch is guessed, the less often right the more nodes there are.
    """
    return max(_GUESSED * float(np.log2(max(nodes, 1))) - _FORESEEN, _STRAIGHT)


def pack(op: Nodes, leaf: NDArray[Any], held: str = "") -> Packed | None:
    """The nodes packed, the leaf of number k holding leaf[k]; None where that cannot be done.

    They take half of the bytes where numbers are tested (held) as float32.
    """
    table = Table(op)
    if table.mostly_slots or np.any(np.isnan(leaf)):
        return None
    threshold = table.thresholds()
    if threshold is None:
        return None
    small = table.compact(threshold) if held == "float32" else None
    return small or table.packed(table.first_words(leaf, threshold))


class Table:
    """The nodes that can be reached, in the order in which they are packed."""

    def __init__(self, op: Nodes) -> None:
        self.op = op
        feature, left, right, roots = (
            np.asarray(part.array).astype(np.int64)
            for part in (op.feature, op.left, op.right, op.roots)
        )
        #: The new number of each node, the old numbers of the nodes in their new order.
        self.number = _places(feature, left, right, roots)
        reached = np.flatnonzero(self.number >= 0)
        self.order = reached[np.argsort(self.number[reached])]
        self.feature, self.left = feature[self.order], left[self.order]
        self.inner = self.feature >= 0
        self.roots: NDArray[np.int64] = self.number[roots]
        self._ask()

    def _ask(self) -> None:
        """Which slot each node looks at."""
        op = self.op
        missing = np.asarray(op.missing.array)[self.order].astype(np.int64)
        self.sets = np.zeros(len(self.order), bool)
        if len(op.words):
            self.sets = self.inner & (np.asarray(op.category.array)[self.order] >= 0)
        way = np.where(missing % _ZEROS == _LEFT, _GOES_LEFT, 0)
        way |= np.where(bool(op.zeros) & (missing >= _ZEROS), _ZERO_TOO, 0)
        way |= np.where(self.sets, _IN_A_SET, 0)
        self.slots, found = np.unique((self.feature * 8 + way)[self.inner], return_inverse=True)
        self.slot = np.zeros(len(self.order), np.int64)
        self.slot[self.inner] = found + 1

    @property
    def steps(self) -> float:
        """About how many steps a row takes, at the least."""
        return len(self.roots) * float(np.log2(len(self.order) / max(len(self.roots), 1)))

    @property
    def mostly_slots(self) -> bool:
        """Whether filling slots for one row would take longer than walking tree by tree."""
        filled = -(-len(self.roots) // LANES) * LANES / max(len(self.roots), 1)
        together = self.filling + _TOGETHER * filled * self.steps
        return self.filling > 0 and self.steps * guessed_step(len(self.order)) < together

    @property
    def filling(self) -> float:
        """What filling slots takes a row; nothing where it is little next to walking."""
        slots = len(self.slots)
        return 0.0 if len(self.roots) * _SLOTS_A_TREE >= slots else _SLOT * slots

    def thresholds(self) -> NDArray[np.float64] | None:
        """What a value is at most where it passes; None where some test cannot be said so."""
        threshold: NDArray[np.float64] = np.asarray(self.op.threshold.array)[self.order]
        if self.op.strict:
            below = np.nextafter(threshold, -np.inf)
            threshold = np.where(threshold == -np.inf, np.nan, below)
        return None if np.any(np.isnan(threshold[self.inner & ~self.sets])) else threshold

    def child(self, side: Long) -> NDArray[np.int64]:
        """The new numbers of the nodes' children on one side (of leaves: any number)."""
        old = np.where(self.inner, np.asarray(side.array)[self.order].astype(np.int64), 0)
        return self.number[old]

    def first_words(self, leaf: NDArray[Any], threshold: NDArray[np.float64]) -> NDArray[np.int64]:
        """The bits of thresholds, leaves and the places of sets."""
        tests = self.inner & ~self.sets
        made = np.zeros(len(self.order))
        made[tests] = threshold[tests]
        made[~self.inner] = leaf[self.left[~self.inner]]
        bits: NDArray[np.int64] = made.view(np.int64)
        return bits

    def packed(self, bits: NDArray[np.int64]) -> Packed:
        """The tables native code reads."""
        child = self._next()
        shared, slot = self._shared()
        if shared is None:
            words, place = self._words()
            bits[self.sets] = place
            slot = slot | (self.sets.astype(np.int64) << _SET_BIT)
        else:
            words = np.asarray(self.op.words.array)
            bits[self.sets] = 0  # the number zero, which minus infinity passes and NaN does not
        nodes = np.stack([bits, (slot << 32) | (2 * child)], axis=1).reshape(-1)
        return self._tables(Blob.of(nodes), Blob.of(2 * self._starts()), words, shared)

    def compact(self, threshold: NDArray[np.float64]) -> Packed | None:
        """The tables for numbers tested as float32; None where a node has no room for its own."""
        shared, slot = self._shared()
        shift = len(self.order).bit_length()
        if (self.sets.any() and shared is None) or int(slot.max()) >> (32 - shift):
            return None
        first = np.zeros(len(self.order), np.int32)
        tests = self.inner & ~self.sets
        first[tests] = at_most(threshold[tests], "float32").view(np.int32)
        leaves = Outline(self).leaf_order()
        first[leaves] = np.arange(len(leaves))
        second = ((slot << shift) | self._next()).astype(np.uint32).view(np.int32)
        nodes = np.stack([first, second], axis=1).reshape(-1)
        words = np.asarray(self.op.words.array) if len(self.op.words) else np.zeros(1, np.uint32)
        made = self._tables(Blob.of(nodes), Blob.of(self._starts()), words, shared)
        return made._replace(shift=shift, order=self.left[leaves])

    def _next(self) -> NDArray[np.int64]:
        """Where walks go from each node if they pass: leaves lead to themselves."""
        here = np.arange(len(self.order))
        return np.where(self.inner, self.number[np.where(self.inner, self.left, 0)], here)

    def _starts(self) -> NDArray[np.int64]:
        """The trees' roots; a tree that is one leaf, the first of all, fills the lanes up."""
        idle = np.full(-len(self.roots) % LANES, int(np.flatnonzero(~self.inner)[0]))
        return np.concatenate([self.roots, idle])

    def _tables(
        self, nodes: Blob, roots: Blob, words: NDArray[np.uint32], shared: Shared | None
    ) -> Packed:
        """All tables, given the nodes."""
        way = self.slots % 8
        left, zero, sets = (way & flag != 0 for flag in (_GOES_LEFT, _ZERO_TOO, _IN_A_SET))
        return Packed(
            nodes=nodes,
            roots=roots,
            column=Blob.of((self.slots // 8).astype(np.int32)),
            fill=Blob.of(np.where(left, -np.inf, np.nan)),
            zero=Blob.of(np.where(zero, np.float64(np.float32(1e-35)), -1.0)),
            code=Blob.of(np.where(sets, np.where(left, -1, _BEYOND), 0)),
            words=Blob.of(words),
            shared=shared,
        )

    def _shared(self) -> tuple[Shared | None, NDArray[np.int64]]:
        """The sets that have slots of their own, where few are shared, and each node's slot."""
        if not self.sets.any():
            return None, self.slot
        old = self.order[self.sets]
        start, length = (np.asarray(part.array)[old] for part in (self.op.category, self.op.length))
        asked = np.stack([start, length, self.slot[self.sets]]).astype(np.int64)
        unique, which = np.unique(asked, axis=1, return_inverse=True)
        count = unique.shape[1]
        if _SHARED * count > self.sets.sum() or _STEPS_A_SET * count > self.steps:
            return None, self.slot
        slot = self.slot.copy()
        slot[self.sets] = len(self.slots) + 1 + which.reshape(-1)
        key = self.slots[unique[2] - 1]
        return Shared(
            column=Blob.of((key // 8).astype(np.int32)),
            fill=Blob.of(np.where(key & _GOES_LEFT != 0, -np.inf, np.nan)),
            zero=Blob.of(np.where(key & _ZERO_TOO != 0, np.float64(np.float32(1e-35)), -1.0)),
            start=Blob.of(unique[0]),
            limit=Blob.of(32.0 * unique[1]),
        ), slot

    def _words(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The sets, each between ones and zeros, and where each node's is (and how long)."""
        if not self.sets.any():
            return np.zeros(1, np.uint32), np.empty(0, np.int64)
        old = np.asarray(self.op.words.array)
        spans = np.stack([np.asarray(self.op.category.array), np.asarray(self.op.length.array)])
        unique, which = np.unique(spans[:, self.order[self.sets]], axis=1, return_inverse=True)
        parts, places, size = [np.zeros(1, np.uint32)], [], 1
        ones, zeros = np.full(1, 2**32 - 1, np.uint32), np.zeros(1, np.uint32)
        for start, length in unique.T.tolist():
            parts += [ones, old[start : start + length], zeros]
            places.append(size + 1 + (length << 32))
            size += length + 2
        return np.concatenate(parts), np.array(places, np.int64)[which.reshape(-1)]


def _places(
    feature: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    roots: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The number of each node: tree after tree, children side by side (-1: not reached).

    Behind a pair of children stands all that is below the bigger of them, so that most steps stay
    in the same line of the cache.
    """
    levels, level = [], roots
    while level.size:
        inner = level[feature[level] >= 0]
        levels.append(inner)
        level = np.concatenate([left[inner], right[inner]])
    pairs = np.zeros(len(feature), np.int64)
    for inner in reversed(levels):
        pairs[inner] = 1 + pairs[left[inner]] + pairs[right[inner]]
    made = np.full(len(feature), -1, np.int64)
    below = np.zeros(len(feature), np.int64)  # where the pairs below a node start
    made[roots] = np.cumsum(1 + 2 * pairs[roots]) - 1 - 2 * pairs[roots]
    below[roots] = made[roots] + 1
    for inner in levels:
        one, other = left[inner], right[inner]
        made[one], made[other] = below[inner], below[inner] + 1
        big = np.where(pairs[one] >= pairs[other], one, other)
        small = one + other - big
        below[big] = below[inner] + 2
        below[small] = below[big] + 2 * pairs[big]
    return made


# --- native code ---------------------------------------------------------------------------------


class Walks:
    """Writes walks in lock-step over packed nodes."""

    def __init__(self, e: Emitter, op: Nodes, made: Packed, x: Column, *, block: bool) -> None:
        self.e, self.op, self.x = e, op, x
        self.trees = e.size(len(op.roots))
        self.nodes, self.roots = e.address(made.nodes), e.address(made.roots)
        self.column, self.fill = e.address(made.column), e.address(made.fill)
        self.zero, self.code = e.address(made.zero), e.address(made.code)
        self.words, self.shared = e.address(made.words), made.shared
        self.shift = e.size(made.shift) if made.shift else ""
        self.apart = len(op.words) > 0 and made.shared is None and not made.shift
        #: How slots hold numbers.
        self.dtype = "float32" if made.shift else "float64"
        count = len(made.column)
        own = 0 if made.shared is None else len(made.shared.column)
        self.places = e.scratch("int64", LANES)
        self.offsets = e.scratch("int64", LANES) if block else ""
        rows = 1
        if block:
            held = min(_MOST_ROWS, _SLOT_BYTES // (_BYTES[self.dtype] * (count + own + 1)))
            rows = LANES * max(1, held // LANES)
            self.chunk = e.size(rows)
        self.count = e.size(count)
        self.width = e.size(count + own + 1)
        self.slots = e.scratch(self.dtype, (count + own + 1) * rows)
        self.codes = e.scratch("int64", (count + 1) * rows) if self.apart else ""

    def look(self, row: str, place: str = "0") -> None:
        """Fill the slots of one row, the one at this place among those held."""
        e = self.e
        start = e.var(f"{place} * {self.width}", "h")
        e.store(self.slots, start, "-math.inf", self.dtype)
        if self.codes:
            e.store(self.codes, start, "0", "int64")
        with e.loop(self.count) as u:
            value, gone = self._value(row, self.column, self.zero, u)
            kept = f"({self._of(self.fill, u)} if {gone} else {value})"
            e.store(self.slots, f"{start} + {u} + 1", kept, self.dtype)
            if self.codes:
                self._code(f"{start} + {u} + 1", u, value, gone)
        if self.shared is not None:
            self._look_up(self.shared, row, start)

    def _value(self, row: str, columns: str, zeros: str, u: str) -> tuple[str, str]:
        """What the row holds in a slot's column, and whether that is taken for missing."""
        e, kind = self.e, self.x.type
        assert isinstance(kind, Vector)
        column = f"int64({e.load(columns, u, 'int32', constant=True)})"
        loaded = e.load(row, column, kind.dtype, constant=True)
        value = e.let(self.op.seen(loaded, kind, self.dtype), self.dtype).expr
        gone = f"{value} != {value}"
        if self.op.zeros:
            gone = f"({gone}) or abs({value}) <= {self._of(zeros, u)}"
        return value, e.let(f"({gone})", "bool").expr

    def _look_up(self, sets: Shared, row: str, start: str) -> None:
        """The slots of sets: minus infinity for what is in the set, which passes, NaN for else."""
        e = self.e
        column, fill, zero = (e.address(part) for part in (sets.column, sets.fill, sets.zero))
        first, limit = e.address(sets.start), e.address(sets.limit)
        least = "> -1.0" if self.op.signed else ">= 0.0"
        with e.loop(e.size(len(sets.column))) as u:
            value, gone = self._value(row, column, zero, u)
            kept = e.var("math.nan", "v")
            with e.block(f"if {gone}:"):
                e.line(f"{kept} = {self._of(fill, u)}")
            with e.block(f"elif {value} {least} and {value} < {self._of(limit, u)}:"):
                code = e.let(f"int64({value})", "int64").expr
                where = f"{e.load(first, u, 'int64', constant=True)} + {code} // 32"
                word = e.load(self.words, where, "uint32", constant=True)
                with e.block(f"if (int64({word}) >> ({code} % 32)) & 1 != 0:"):
                    e.line(f"{kept} = -math.inf")
            e.store(self.slots, f"{start} + {self.count} + 1 + {u}", kept, self.dtype)

    def _of(self, table: str, u: str) -> str:
        return self.e.load(table, u, "float64", constant=True)

    def _code(self, where: str, u: str, value: str, gone: str) -> None:
        """The slot's value as the number of a category."""
        e = self.e
        known = e.var(e.load(self.code, u, "int64", constant=True), "k")
        least = "> -1.0" if self.op.signed else ">= 0.0"
        with e.block(f"if {known} != 0 and not {gone}:"):
            inside = f"{value} {least} and {value} < {float(_BEYOND)}"
            e.line(f"{known} = int64({value}) if {inside} else {_BEYOND}")
        e.store(self.codes, where, known, "int64")

    def one_by_one(self, begin: Begin, take: Take, end: Begin, start: str = "0") -> None:
        """Row after row, eight trees at a time: `take` gets what each tree's leaf holds."""
        e = self.e
        with e.loop(e.rows, start) as i:
            self.look(e.var(self.x.row(i), "r"))
            begin(i)
            with e.loop(f"({self.trees} + {LANES - 1}) // {LANES}") as g:
                first = e.var(f"{g} * {LANES}", "h")
                with e.loop(str(LANES)) as lane:
                    root = e.load(self.roots, f"{first} + {lane}", "int64", constant=True)
                    e.store(self.places, lane, root, "int64")
                self.walk()
                with e.loop(f"min({LANES}, {self.trees} - {first})") as lane:
                    take(i, e.var(f"{first} + {lane}", "t"), self.held(lane))
            end(i)

    def by_the_block(self, begin: Begin, take: Take, end: Begin) -> None:
        """Tree after tree, eight rows at a time, for as many rows as there are slots for."""
        e = self.e
        with e.loop(f"({e.rows} + {self.chunk} - 1) // {self.chunk}") as c:
            first = e.var(f"{c} * {self.chunk}", "h")
            count = e.var(f"min({self.chunk}, {e.rows} - {first})", "h")
            with e.loop(count) as i:
                self.look(e.var(self.x.row(f"({first} + {i})"), "r"), i)
                begin(f"({first} + {i})")
            with e.loop(self.trees) as t, e.loop(f"({count} + {LANES - 1}) // {LANES}") as b:
                start = e.var(f"{b} * {LANES}", "h")
                self._eight_rows(start, count, t)
                with e.loop(f"min({LANES}, {count} - {start})") as lane:
                    take(f"({first} + {start} + {lane})", t, self.held(lane))
            with e.loop(count) as i:
                end(f"({first} + {i})")

    def _eight_rows(self, start: str, count: str, tree: str) -> None:
        """One tree for eight rows; where there are fewer, the last is walked again."""
        e = self.e
        with e.loop(str(LANES)) as lane:
            root = e.load(self.roots, tree, "int64", constant=True)
            e.store(self.places, lane, root, "int64")
            row = f"min({start} + {lane}, {count} - 1)"
            e.store(self.offsets, lane, f"{row} * {self.width}", "int64")
        self.walk()

    def walk(self) -> None:
        """Walk from the places; they hold where the walks end."""
        apart = "_apart" if self.offsets else ""
        offsets = [self.offsets] if self.offsets else []
        if self.shift:
            given = [self.places, self.nodes, self.slots, self.shift, *offsets]
            self.e.line(f"walk8_small{apart}({', '.join(given)})")
            return
        sets = "_sets" if self.codes else ""
        codes = [self.codes, self.words] if self.codes else []
        given = [self.places, self.nodes, self.slots, *codes, *offsets]
        self.e.line(f"walk8{sets}{apart}({', '.join(given)})")

    def held(self, lane: str) -> str:
        """What the leaf at the end of a walk holds, or its number where nodes have eight bytes."""
        place = self.e.load(self.places, lane, "int64")
        if self.shift:
            return f"int64({self.e.load(self.nodes, f'2 * {place}', 'int32', constant=True)})"
        return self.e.load(self.nodes, place, "float64", constant=True)
