"""Sixteen rows at a time through an ensemble, without walking: one bit a leaf.

For each row and tree a mask holds the leaves that are still possible. A node whose test fails rules
out the leaves of its left side: one AND. The nodes are sorted by feature and threshold, so for each
feature the failing ones are a prefix, and sixteen rows share every comparison. What remains is the
leftmost leaf of each mask. Exact by construction: the same tests on the same numbers, and leaf
values are added in the order of the trees.

Trees are scored in groups, so that the masks of a group stay in the first-level cache.

For ensembles whose trees have at most 64 leaves and test numbers only; where rows are few, or trees
are bigger, they are walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.types import Vector
from objectstore import Blob

if TYPE_CHECKING:
    from flour.emission import Column, Emitter
    from flour.ops.trees import Trees

LANES = 16
#: Fewer rows than this are walked: most lanes would idle.
LEAST_ROWS = 8
MOST_LEAVES = 64
#: Trees are scored in groups whose masks stay in the first-level cache.
GROUP_BYTES = 16 * 1024
_COMPARED, _LEFT = 0, 1


class Layout(NamedTuple):
    """The nodes of an ensemble, sorted for scoring."""

    #: The features that are tested, and for each two spans of nodes: where NaN passes, the rest.
    used: Blob
    spans: Blob
    threshold: Blob
    tree: Blob
    mask: Blob
    #: Where each tree's leaf values start, and the values from the leftmost leaf to the rightmost.
    offset: Blob
    value: Blob
    bits: str
    width: str
    #: How many trees make a group.
    group: int


def layout(op: Trees) -> Layout | None:
    """The ensemble sorted for scoring, or None where it has to be walked."""
    unordered = np.any(np.isnan(np.asarray(op.threshold.array)))  # thresholds have to be sorted
    if len(op.words) or op.zeros or unordered:
        return None
    table = _Shape(op)
    if table.most > MOST_LEAVES:
        return None
    return table.layout(op)


class _Shape:
    """Which leaves lie below each node, for all trees at once, level by level."""

    def __init__(self, op: Trees) -> None:
        self.feature, self.left, self.right, roots = (
            np.asarray(part.array).astype(np.int64)
            for part in (op.feature, op.left, op.right, op.roots)
        )
        self.roots: NDArray[np.int64] = roots
        levels = self._levels()
        self.count = np.ones(len(self.feature), np.int64)
        for nodes in reversed(levels):
            inner = nodes[self.feature[nodes] >= 0]
            self.count[inner] = self.count[self.left[inner]] + self.count[self.right[inner]]
        self.first = np.zeros(len(self.feature), np.int64)
        for nodes in levels:
            inner = nodes[self.feature[nodes] >= 0]
            left, right = self.left[inner], self.right[inner]
            self.first[left] = self.first[inner]
            self.first[right] = self.first[inner] + self.count[left]
            self.tree[left] = self.tree[right] = self.tree[inner]
        self.most = int(self.count[roots].max())

    def _levels(self) -> list[NDArray[np.int64]]:
        self.tree = np.full(len(self.feature), -1, np.int64)
        self.tree[self.roots] = np.arange(len(self.roots))
        levels, nodes = [], self.roots
        while nodes.size:
            levels.append(nodes)
            inner = nodes[self.feature[nodes] >= 0]
            nodes = np.concatenate([self.left[inner], self.right[inner]])
        return levels

    def layout(self, op: Trees) -> Layout:
        """The sorted arrays."""
        bits = "uint32" if self.most <= 32 else "uint64"
        width = "float32" if op.narrow else "float64"
        nodes = np.flatnonzero((self.feature >= 0) & (self.tree >= 0))
        threshold = _narrowed(np.asarray(op.threshold.array)[nodes], op)
        side = np.asarray(op.missing.array)[nodes] != _LEFT
        used, which = np.unique(self.feature[nodes], return_inverse=True)
        group = GROUP_BYTES // (LANES * np.dtype(bits).itemsize)
        groups = -(-len(self.roots) // group)
        place = (self.tree[nodes] // group * max(len(used), 1) + which) * 2 + side
        order = np.lexsort((self.tree[nodes], threshold, place))
        nodes, threshold = nodes[order], threshold[order]
        counts = np.bincount(place, minlength=2 * len(used) * groups)
        leaves = np.flatnonzero((self.feature < 0) & (self.tree >= 0))
        leaves = leaves[np.lexsort((self.first[leaves], self.tree[leaves]))]
        starts = np.cumsum(self.count[self.roots]) - self.count[self.roots]
        return Layout(
            used=Blob.of(used.astype(np.int32)),
            spans=Blob.of(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)),
            threshold=Blob.of(threshold.astype(width)),
            tree=Blob.of((self.tree[nodes] % group * LANES).astype(np.int32)),
            mask=Blob.of(self._masks(nodes).astype(bits)),
            offset=Blob.of(starts.astype(np.int32)),
            value=Blob.of(np.asarray(op.value.array)[self.left[leaves]].astype(op.dtype)),
            bits=bits,
            width=width,
            group=group,
        )

    def _masks(self, nodes: NDArray[np.int64]) -> NDArray[np.uint64]:
        """All leaves but those of the left side of each node."""
        left = self.left[nodes]
        size, first = self.count[left].astype(np.uint64), self.first[left].astype(np.uint64)
        return ~(((np.uint64(1) << size) - np.uint64(1)) << first)


def _narrowed(threshold: NDArray[Any], op: Trees) -> NDArray[Any]:
    """The thresholds at which float32 values answer as they do at the float64 ones."""
    if not op.narrow:
        return threshold
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
    if op.strict:
        return np.where(near < threshold, np.nextafter(near, np.float32(np.inf)), near)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)


# --- native code ---------------------------------------------------------------------------------


def score(e: Emitter, op: Trees, made: Layout, x: Column, out: Column) -> None:
    """Emit the scoring of a whole block of rows, sixteen at a time."""
    _Scoring(e, op, made, x, out).blocks()


class _Scoring:
    def __init__(self, e: Emitter, op: Trees, made: Layout, x: Column, out: Column) -> None:
        self.e, self.op, self.made, self.x, self.out = e, op, made, x, out
        self.features, self.trees = e.size(len(made.used)), e.size(len(op.roots))
        self.values = e.scratch(made.width, max(len(made.used), 1) * LANES)
        self.group = e.size(made.group)
        self.masks = e.scratch(made.bits, min(len(op.roots), made.group) * LANES)
        self.sums = e.scratch(op.dtype, len(op.base) * LANES)

    def blocks(self) -> None:
        """The loop over blocks of rows."""
        e = self.e
        with e.loop(f"({e.rows} + {LANES - 1}) // {LANES}") as block:
            first = e.var(f"{block} * {LANES}", "h")
            count = e.var(f"min({LANES}, {e.rows} - {first})", "h")
            self.gather(first, count)
            with e.loop(self.out.size) as o, e.loop(str(LANES)) as lane:
                where = f"{o} * {LANES} + {lane}"
                e.store(self.sums, where, e.at(self.op.base, o, self.op.dtype), self.op.dtype)
            with e.loop(f"({self.trees} + {self.group} - 1) // {self.group}") as g:
                self.trees_of(g)
            self.write(first, count)

    def trees_of(self, g: str) -> None:
        """One group of trees, from all leaves possible to the sums."""
        e, bits = self.e, self.made.bits
        start = e.var(f"{g} * {self.group}", "h")
        end = e.var(f"min({start} + {self.group}, {self.trees})", "h")
        with e.loop(f"({end} - {start}) * {LANES}") as m:
            full = 2**32 - 1 if bits == "uint32" else 2**64 - 1
            e.store(self.masks, m, f"{bits}({full})", bits)
        with e.loop(self.features) as u:
            self.rule_out(u, f"({g} * {self.features} + {u})")
        self.add_up(start, end)

    def gather(self, first: str, count: str) -> None:
        """The tested features of the rows, feature by feature; missing rows repeat the last."""
        e, kind = self.e, self.x.type
        assert isinstance(kind, Vector)
        used = e.address(self.made.used)
        with e.loop(str(LANES)) as lane:
            row = e.var(self.x.row(f"({first} + min({lane}, {count} - 1))"), "r")
            with e.loop(self.features) as u:
                column = f"int64({e.load(used, u, 'int32', constant=True)})"
                value = e.load(row, column, kind.dtype, constant=True)
                value = self.op.seen(value, kind, self.made.width)
                e.store(self.values, f"{u} * {LANES} + {lane}", value, self.made.width)

    def rule_out(self, u: str, place: str) -> None:
        """One feature: every node that fails for some row rules leaves out for it."""
        e, width = self.e, self.made.width
        here = e.var(f"{self.values} + {u} * {LANES * (4 if width == 'float32' else 8)}", "v")
        top = e.var(e.load(here, "0", width))
        with e.loop(str(LANES), "1") as lane:
            e.line(f"{top} = maximum({top}, {e.load(here, lane, width)})")
        spans = e.address(self.made.spans)
        # A node where NaN goes left fails only in an ordered comparison.
        for part, prefix in ((0, "o"), (1, "u")):
            where = (f"2 * {place} + {part + i}" for i in (0, 1))
            ends = (e.load(spans, at, "int32", constant=True) for at in where)
            start, end = (e.var(f"int64({number})", "h") for number in ends)
            with e.loop(end, start) as k:
                self.node(k, here, top, prefix)

    def node(self, k: str, here: str, top: str, prefix: str) -> None:
        """One node, for all lanes; thresholds ascend, so one that nobody exceeds is the end."""
        e, made = self.e, self.made
        limit = e.let(e.load(e.address(made.threshold), k, made.width, constant=True), made.width)
        passes = ">" if self.op.strict else ">="
        with e.block(f"if {limit.expr} {passes} {top}:"):
            e.line("break")
        tree = e.load(e.address(made.tree), k, "int32", constant=True)
        mask = e.load(e.address(made.mask), k, made.bits, constant=True)
        size = 4 if made.bits == "uint32" else 8
        where = f"{self.masks} + int64({tree}) * {size}"
        test = f"{prefix}{'ge' if self.op.strict else 'gt'}"
        e.line(f"and16_{test}_{made.width}_{made.bits}({where}, {here}, {limit.expr}, {mask})")

    def add_up(self, begin: str, end: str) -> None:
        """The leaf values, tree after tree."""
        e, op, made = self.e, self.op, self.made
        offset, target = e.address(made.offset), e.address(op.target)
        span = "1" if op.value.shape[1] == 1 else e.size(op.value.shape[1])
        value = e.address(made.value)
        with e.loop(end, begin) as t:
            start = e.var(f"int64({e.load(offset, t, 'int32', constant=True)})", "h")
            into = e.var(f"int64({e.load(target, t, 'int32', constant=True)}) * {LANES}", "h")
            with e.loop(str(LANES)) as lane:
                mask = e.load(self.masks, f"({t} - {begin}) * {LANES} + {lane}", made.bits)
                leaf = e.var(f"({start} + first_bit_{made.bits}({mask})) * {span}", "k")
                with e.loop(span) as v:
                    one = e.load(value, f"{leaf} + {v}", op.dtype, constant=True)
                    where = f"{into} + {v} * {LANES} + {lane}"
                    total = f"{e.load(self.sums, where, op.dtype)} + {one}"
                    e.store(self.sums, where, total, op.dtype)

    def write(self, first: str, count: str) -> None:
        """The sums of the rows that are there."""
        e, op = self.e, self.op
        by = e.number(op.divisor, op.dtype) if op.divisor else ""
        with e.loop(count) as lane:
            into = e.var(self.out.row(f"({first} + {lane})"), "w")
            with e.loop(self.out.size) as o:
                total = e.load(self.sums, f"{o} * {LANES} + {lane}", op.dtype)
                e.store(into, o, f"{total} / {by}" if by else total, op.dtype)
