"""The tables that attribution needs of an ensemble of trees: its steps, and numbers for each edge.

The share of a raw column in what a leaf adds is, by Shapley's definition, a sum over all subsets of
the other columns on the path. That sum is the integral over t from 0 to 1 of a product with one
factor for each other column: o t + z (1 - t), where o is 1 if the row's value leads along the path
and else 0, and z is the part of the training rows that it led along the path. The product of d
factors is a polynomial of degree d, so a Gauss-Legendre sum over half as many points is exact, and
all factors are positive, so nothing cancels. An edge multiplies the product by one of three numbers
for each point, as o is 0 or 1 (and was 0 or 1 at the edges above that ask for the same column), and
what is below the edge is weighed for its column by one of three others: these are the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.op import Columns
from flour.ops.trees.trees import Trees
from flour.ops.trees.walk import LEFT, ZERO, ZEROS

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
#: Points are computed four at a time.
LANES = 4
#: A part of the training rows is at least this: what no row reached still has a number.
LEAST = 1e-30
#: Edges whose tables are made together (about 25 MB), and those that stay in memory.
CHUNK, MOST = 100_000, 250_000
#: Kinds of steps: go down to an inner node, add a leaf, come back from an inner node.
DOWN, LEAF, UP = range(3)
STEP = np.dtype(
    [
        *((name, np.int32) for name in ("depth", "what", "table", "before")),
        *((name, np.int32) for name in ("slot", "right", "column", "leaf")),
        *(("limit", np.float64), ("behind", np.int64)),
    ]
)


class PathTables(NamedTuple):
    """Some trees of an ensemble, ready for native code."""

    steps: NDArray[Any]
    numbers: Numbers
    #: For each tree the addresses of its first step and behind its last, its points (in fours),
    #: and its first output.
    trees: Places
    levels: int
    #: Most points of a tree, in fours.
    quads: int
    #: The arrays that native code reads, by what it is made with.
    programs: dict[tuple[int, int], Places]


class TreePaths:
    """The edges of an ensemble's trees, each by the node it leads to.

    `columns` says which raw column each feature is made of.
    """

    def __init__(self, op: Trees, columns: Places) -> None:
        self.op = op
        feature, left, right = (
            np.asarray(part.array).astype(np.int64) for part in (op.feature, op.left, op.right)
        )
        self.inner = feature >= 0
        self.feature, self.left, self.right = feature, left, right
        self.columns = columns
        #: The values of the leaves, a row for each.
        self.leaves = np.ascontiguousarray(op.value.array, np.float64)
        nodes = np.arange(len(feature))
        inside = nodes[self.inner]
        self.parent = np.full(len(nodes), -1)
        self.parent[left[inside]] = self.parent[right[inside]] = inside
        self.on_right = np.zeros(len(nodes), bool)
        self.on_right[right[inside]] = True
        roots = np.asarray(self.op.roots.array).astype(np.int64)
        self.depth = np.zeros(len(self.inner), np.int64)
        self.levels = [roots]
        while self.levels[-1].size:
            above = self.levels[-1][self.inner[self.levels[-1]]]
            below = np.concatenate([self.left[above], self.right[above]])
            self.depth[below] = len(self.levels)
            self.levels.append(below)
        self.levels.pop()
        self.steps = np.where(self.inner, 2, 1)
        for level in reversed(self.levels[1:]):
            np.add.at(self.steps, self.parent[level], self.steps[level])
        self._paths()

    def _paths(self) -> None:
        """For each edge the nearest one above that asks for the same column, and column counts."""
        self.column = np.full(len(self.inner), -1)
        below = np.flatnonzero(self.parent >= 0)
        self.column[below] = self.columns[self.feature[self.parent[below]]]
        self.before = np.full(len(self.inner), -1)
        self.distinct = np.zeros(len(self.inner), np.int64)
        look, at = below, self.parent[below]
        while look.size:
            going = self.parent[at] >= 0
            look, at = look[going], at[going]
            same = self.column[at] == self.column[look]
            self.before[look[same]] = at[same]
            look, at = look[~same], self.parent[at[~same]]
        for level in self.levels[1:]:
            new = (self.before[level] < 0).astype(np.int64)
            self.distinct[level] = self.distinct[self.parent[level]] + new

    @cached_property
    def reached(self) -> Numbers:
        """For each edge, the part of the training rows that its column led along the path."""
        part = np.ones(len(self.inner))
        for level in self.levels[1:]:
            before = self.before[level]
            part[level] = self._shares(level) * np.where(before >= 0, part[before], 1.0)
            np.maximum(part, LEAST, out=part)
        return part

    def _shares(self, level: Places) -> Numbers:
        """The part of each node's training rows among those of its parent."""
        cover = np.asarray(self.op.cover.array, np.float64)
        whole = cover[self.parent[level]]
        return np.where(whole > 0, cover[level] / np.where(whole > 0, whole, 1.0), 0.5)

    def expected(self) -> Numbers:
        """The mean output over the training rows, by the covers."""
        value = np.asarray(self.op.value.array, np.float64)
        mean = np.zeros((len(self.inner), value.shape[1]))
        leaves = np.flatnonzero(~self.inner)
        mean[leaves] = value[self.left[leaves]]
        for level in reversed(self.levels[1:]):
            np.add.at(mean, self.parent[level], mean[level] * self._shares(level)[:, None])
        total = np.asarray(self.op.base.array, np.float64).copy()
        for root, target in zip(self.op.roots.array, self.op.target.array, strict=True):
            total[target : target + value.shape[1]] += mean[root]
        return total / self.op.divisor if self.op.divisor else total

    # --- the tests -----------------------------------------------------------------------------

    @cached_property
    def tests(self) -> tuple[Places, Places]:
        """The slot of each inner node, and one node of each slot.

        Nodes share a slot that test one feature, with missing values treated alike; each set of
        categories has one.
        """
        missing = np.asarray(self.op.missing.array).astype(np.int64)
        own = np.full(len(self.inner), -1)
        if len(self.op.words):
            own = np.asarray(self.op.category.array).astype(np.int64)
        keys = np.stack([self.feature, missing, own], axis=1)[self.inner]
        slot = np.zeros(len(self.inner), np.int64)
        if not len(keys):
            return slot, np.zeros(0, np.int64)
        _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        slot[self.inner] = which.reshape(-1)
        return slot, np.flatnonzero(self.inner)[first]

    @cached_property
    def read(self) -> tuple[Places, Places, Places]:
        """The feature of each slot, how it takes missing values, and the slots of categories."""
        op, (_, nodes) = self.op, self.tests
        named = np.zeros(0, np.int64)
        if len(op.words):
            named = np.flatnonzero(np.asarray(op.category.array)[nodes] >= 0)
        return self.feature[nodes], np.asarray(op.missing.array)[nodes].astype(np.int64), named

    @cached_property
    def limits(self) -> Numbers:
        """The largest value in its slot that passes each node's test."""
        limit = np.asarray(self.op.threshold.array, np.float64)
        if self.op.strict:
            limit = np.nextafter(limit, -np.inf)
        if len(self.op.words):
            limit = np.where(np.asarray(self.op.category.array) >= 0, 0.5, limit)
        return limit

    def values(self, x: Columns) -> Numbers:
        """The values that the tests of each row compare: a row of slots for each."""
        op, (features, missing, named) = self.op, self.read
        rows = op.rows(x)
        if op.narrow:
            with np.errstate(over="ignore"):
                rows = rows.astype(np.float32)
        found = rows.take(features, axis=1).astype(np.float64)
        gone = np.isnan(found)
        if op.zeros:
            gone |= (np.abs(found) <= ZERO) & (missing >= ZEROS)
        if gone.any():
            goes_left = missing % ZEROS == LEFT
            found = np.where(gone & (missing > 0), np.where(goes_left, -np.inf, np.nan), found)
        for place in named:
            node = self.tests[1][place]
            at = np.full(len(rows), node)
            found[:, place] = ~op.passes(rows[:, self.feature[node]].astype(np.float64), at)
        return np.ascontiguousarray(found)

    # --- the tables ----------------------------------------------------------------------------

    @cached_property
    def kept(self) -> tuple[PathTables, ...]:
        """The tables of all trees, where they take little memory."""
        return tuple(self._tables(part) for part in self._parts())

    def tables(self) -> Iterator[PathTables]:
        """The tables, some trees after the others."""
        if len(self.inner) <= MOST:
            yield from self.kept
        else:
            yield from map(self._tables, self._parts())

    def _parts(self) -> Iterator[Sequence[int]]:
        """The numbers of trees that come together."""
        roots, part, size = np.asarray(self.op.roots.array), list[int](), 0
        for tree, root in enumerate(roots):
            if not self.inner[root]:
                continue
            part.append(tree)
            size += int(self.steps[root])
            if size > CHUNK:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _tables(self, trees: Sequence[int]) -> PathTables:
        op, roots = self.op, np.asarray(self.op.roots.array).astype(np.int64)[list(trees)]
        first = np.full(len(self.inner), -1)
        counts = self.steps[roots] - 2  # no edge leads to the root
        starts = np.cumsum(counts) - counts
        first[roots] = starts - 1
        tree_of = np.full(len(self.inner), -1)
        tree_of[roots] = np.arange(len(roots))
        for level in self.levels[1:]:
            here = level[first[self.parent[level]] >= -1]
            here = here[tree_of[self.parent[here]] >= 0]
            above = self.parent[here]
            behind = np.where(self.on_right[here], self.steps[self.left[above]], 0)
            first[here] = first[above] + 1 + behind
            tree_of[here] = tree_of[above]
        edges = np.flatnonzero((tree_of >= 0) & (self.parent >= 0))
        points = np.zeros(len(roots), np.int64)
        np.maximum.at(points, tree_of[edges], self.distinct[edges])
        points = np.maximum((points + 1) // 2, 1)
        numbers, place = self._numbers(edges, points[tree_of[edges]])
        steps = np.zeros(int(counts.sum()), STEP)
        self._fill(steps, edges, first[edges], place)
        address, size = steps.ctypes.data, STEP.itemsize
        ends = (address + size * starts, address + size * (starts + counts))
        targets = np.asarray(op.target.array)[list(trees)]
        runs = np.stack([*ends, -(-points // LANES), targets], axis=1).astype(np.int64)
        return PathTables(steps, numbers, runs, len(self.levels), int(runs[:, 2].max()), {})

    def _fill(self, steps: NDArray[Any], edges: Places, first: Places, place: Places) -> None:
        above, before = self.parent[edges], self.before[edges]
        leaf = ~self.inner[edges]
        last = first + self.steps[edges] - 1
        for at, what in ((first, np.where(leaf, LEAF, DOWN)), (last, np.where(leaf, LEAF, UP))):
            steps["depth"][at] = self.depth[edges]
            steps["what"][at] = what
            steps["table"][at] = place
            steps["before"][at] = np.where(before >= 0, self.depth[before], 0)
            steps["slot"][at] = self.tests[0][above]
            steps["right"][at] = self.on_right[edges]
            steps["column"][at] = self.column[edges]
            steps["leaf"][at] = np.where(leaf, self.left[edges], -1)
            steps["limit"][at] = self.limits[above]
            steps["behind"][at] = last - at

    def _numbers(self, edges: Places, points: Places) -> tuple[Numbers, Places]:
        """The numbers of all edges, and where each edge's start.

        Six rows for an edge, in pairs of factor and weight: for 0 of what was and is (was 0), for
        was 1 and is 0, for both 1. The first edge of a column has no first pair.
        """
        if not len(self.op.cover):
            return np.zeros(0), np.zeros(len(edges), np.int64)
        width = 2 * LANES * -(-points // LANES)
        missing = self.before[edges] < 0
        sizes = np.where(missing, 2, 3) * width
        ends = np.cumsum(sizes)
        numbers = np.zeros(int(ends[-1]) if len(ends) else 0)
        place = ends - sizes - np.where(missing, width, 0)
        for count in np.unique(points):
            of = np.flatnonzero(points == count)
            made = self._pairs(edges[of], int(count)).reshape(len(of), 3, -1)
            for case in range(3):
                some = np.arange(len(of)) if case else np.flatnonzero(~missing[of])
                span = made.shape[2]
                at = place[of[some], None] + case * span + np.arange(span)
                numbers[at] = made[some, case]
        return numbers, place

    def _pairs(self, edges: Places, points: int) -> Numbers:
        """The numbers of edges in trees of so many points: edge, case, factor or weight, point."""
        t, w = np.polynomial.legendre.leggauss(points)
        t, w = (t + 1) / 2, w / 2
        before = self.before[edges]
        z = self.reached[edges][:, None]
        zp = np.where(before >= 0, self.reached[before], 1.0)[:, None]
        now, was = t + z * (1 - t), t + zp * (1 - t)
        made = np.zeros((len(edges), 3, 2, LANES * -(-points // LANES)))
        made[:, 0, 0, :points] = z / zp
        made[:, 1, 0, :points] = z * (1 - t) / was
        made[:, 2, 0, :points] = now / was
        gained = (1 - zp) / was
        made[:, 1, 1, :points] = w * (-1 / (1 - t) - gained)
        made[:, 2, 1, :points] = w * ((1 - z) / now - gained)
        return made
