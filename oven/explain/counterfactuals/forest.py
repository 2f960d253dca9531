"""Trees as tables: which leaves a row reaches when some of its columns move to other cells.

The thresholds that trees ask of a raw column cut it into cells, in which every answer is the same.
A leaf is a product of conditions, one for each column on its path, so the score of every
combination of cells of some columns is a product of matrices, one for each column: leaf by cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.sparse import densify
from oven.explain.attribution.explainer import Explainer
from oven.explain.attribution.terms import ours
from oven.explain.attribution.tree_tables import Numbers, Places
from oven.explain.counterfactuals.raw_row import RawRow

#: Beyond this, no threshold is looked for.
FARTHEST = 1e30
#: Most numbers in the tables of a plan.
MOST = 20_000_000


class Cells(NamedTuple):
    """The least and the greatest number of each cell of a column, ascending."""

    lower: Numbers
    upper: Numbers


class Forest:
    """The leaves of all trees of a score, and what leads to them."""

    def __init__(self, explainer: Explainer) -> None:
        self.plan, self.names = explainer.plan, explainer.terms.columns
        parts = [_leaves(term, paths) for term, paths in zip(explainer.terms.trees, explainer.paths)]
        counts = np.cumsum([0, *(len(part.values) for part in parts)])
        self.ops: list[Any] = [term.node.op for term in explainer.terms.trees]
        #: What each leaf adds to the scores, and the first leaf of each tree.
        self.values = np.concatenate([part.values for part in parts])
        first = [part.first + at for part, at in zip(parts, counts, strict=False)]
        self.first = np.concatenate(first)
        #: The tests that lead to leaves: by leaf and column, so that runs of them are groups.
        leaf = np.concatenate([part.leaf + at for part, at in zip(parts, counts, strict=False)])
        term = np.repeat(np.arange(len(parts)), [len(part.leaf) for part in parts])
        node, right = (np.concatenate([p[i] for p in parts]) for i in (3, 4))
        column = np.concatenate([part.column for part in parts])
        order = np.lexsort((leaf, column))
        self.term, self.node, self.right = term[order], node[order], right[order]
        leaf, column = leaf[order], column[order]
        new = np.ones(len(leaf), bool)
        new[1:] = (leaf[1:] != leaf[:-1]) | (column[1:] != column[:-1])
        self.starts = np.flatnonzero(new)
        #: The inner nodes of each term, and the place of each test among all of them.
        self.inner = [np.flatnonzero(paths.inner) for paths in explainer.paths]
        ahead = np.cumsum([0, *map(len, self.inner)])
        self.test = self.node.copy()
        for i, inner in enumerate(self.inner):
            own = self.term == i
            self.test[own] = np.searchsorted(inner, self.node[own]) + ahead[i]
        self.leaf, self.column = leaf[new], column[new]
        #: The entries of each column, and its groups.
        ends = np.searchsorted(column, np.arange(len(self.names) + 2))
        groups = np.searchsorted(self.column, np.arange(len(self.names) + 2))
        self.entries = [slice(*ends[i : i + 2]) for i in range(len(self.names) + 1)]
        self.groups = [slice(*groups[i : i + 2]) for i in range(len(self.names) + 1)]
        #: By leaf and column: the number of the group among those of the column; -1 if there is none.
        self.fits = len(self.values) * (len(self.names) + 1) <= MOST
        self.row_of = np.full((len(self.values), len(self.names) + 1) if self.fits else (0, 0), -1)
        if self.fits:
            base = np.array([each.start for each in self.groups])[self.column]
            self.row_of[self.leaf, self.column] = np.arange(len(self.leaf)) - base
        self.cells: dict[str, Cells] = {}
        self._tables: dict[str, NDArray[np.float32]] = {}

    # --- tests ---------------------------------------------------------------------------------

    def _passed(
        self, row: RawRow, count: int, changed: Mapping[str, Any], entries: slice
    ) -> NDArray[np.bool_]:
        """Whether each changed row goes the way of these entries: a row for each of them."""
        outputs = self.plan.run_columns(row.block(count, changed), count)
        node, term = self.node[entries], self.term[entries]
        made = np.zeros((count, len(node)), bool)
        for i, op in enumerate(self.ops):
            own = term == i
            if own.any():
                made[:, own] = _passes(op, outputs[f"trees {i}"], node[own])
        return made != self.right[entries]

    def missed(self, row: RawRow) -> NDArray[np.bool_]:
        """By leaf and column: True if the row's own value does not lead there."""
        outputs = self.plan.run_columns(row.block(1, {}), 1)
        passed = [
            _passes(op, outputs[f"trees {i}"], inner)[0]
            for i, (op, inner) in enumerate(zip(self.ops, self.inner, strict=True))
        ]
        fine = np.concatenate(passed)[self.test] != self.right
        made = np.zeros(self.row_of.shape, bool)
        made[self.leaf, self.column] = ~np.logical_and.reduceat(fine, self.starts)
        return made

    def table(self, row: RawRow, name: str, values: Any, *, kept: bool) -> NDArray[np.float32]:
        """By group of a column and value: 1 where the value leads there; a last row of ones."""
        if name in self._tables and kept:
            return self._tables[name]
        number = self.names.index(name)
        entries, groups = self.entries[number], self.groups[number]
        made = np.ones((groups.stop - groups.start + 1, len(values)), np.float32)
        if groups.stop > groups.start and len(values):
            fine = self._passed(row, len(values), {name: values}, entries)
            starts = self.starts[groups] - entries.start
            made[:-1] = np.logical_and.reduceat(fine, starts, axis=1).T
        if kept:
            self._tables[name] = made
        return made

    # --- cells ---------------------------------------------------------------------------------

    def find_cells(self, row: RawRow, names: Sequence[str]) -> None:
        """Cut columns at the values where a test of them begins to answer otherwise."""
        term, node, owner = [], [], []
        for name in names:
            entries = self.entries[self.names.index(name)]
            tests = np.unique(np.stack([self.term[entries], self.node[entries]]), axis=1)
            op_of = [self.ops[i] for i in tests[0]]
            asked = [(i, op.feature.array[n], op.threshold.array[n]) for (i, n), op in zip(tests.T, op_of)]
            _, first = np.unique(np.array(asked, float).reshape(-1, 3), axis=0, return_index=True)
            term.append(tests[0][first])
            node.append(tests[1][first])
            owner.append(np.full(len(first), len(owner)))
        found = _crossings(self, row, names, *map(np.concatenate, (term, node, owner)))
        for name, (below, above) in zip(names, found, strict=True):
            lower, upper = np.append(-np.inf, above), np.append(below, np.inf)
            self.cells[name] = Cells(lower, upper)


class _Leaves(NamedTuple):
    values: Numbers
    first: Places
    leaf: Places
    node: Places
    right: NDArray[np.bool_]
    column: Places


def _leaves(term: Any, paths: Any) -> _Leaves:
    """The leaves of a term, tree after tree, and the tests that lead to them."""
    op, leaves = paths.op, np.flatnonzero(~paths.inner)
    at, here, entries = leaves.copy(), np.arange(len(leaves)), []
    while here.size:
        above = paths.parent[at[here]]
        here, above = here[above >= 0], above[above >= 0]
        entries.append((here, above, paths.on_right[at[here]]))
        at[here] = above
    roots = np.asarray(op.roots.array)
    by_root = np.argsort(roots)
    tree = by_root[np.searchsorted(roots[by_root], at)]
    order = np.argsort(tree, kind="stable")
    place = np.argsort(order)
    span = paths.leaves.shape[1]
    values = np.zeros((len(leaves), len(op.base)))
    columns = np.asarray(op.target.array).astype(np.int64)[tree][:, None] + np.arange(span)
    np.put_along_axis(values, columns, paths.leaves[paths.left[leaves]], axis=1)
    values = values[order] / (op.divisor or 1) @ term.weights.T
    leaf, node, right = (np.concatenate([each[i] for each in entries]) for i in range(3))
    first = np.searchsorted(tree[order], np.arange(len(roots)))
    return _Leaves(values, first, place[leaf], node, right, paths.columns[paths.feature[node]])


def _passes(op: Any, x: Any, node: Places) -> NDArray[np.bool_]:
    """Whether each row passes the tests of these nodes."""
    rows = np.asarray(op.rows(ours(x)))
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32) if op.narrow else rows
    held = rows[:, op.feature.array[node]].astype(np.float64)
    return np.asarray(op.passes(held, node), bool)


def _crossings(
    forest: Forest, row: RawRow, names: Sequence[str], term: Places, node: Places, owner: Places
) -> list[tuple[Numbers, Numbers]]:
    """For each column the neighbours between which one of its tests changes its answer."""
    kinds = [row.dtype(name) for name in names]

    def answers(keys: Places) -> NDArray[np.bool_]:
        changed = {}
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
            values = np.full(len(keys), row.values[name])
            own = owner == i
            values[own] = _number(keys[own], kind)
            changed[name] = values
        outputs = forest.plan.run_columns(row.block(len(keys), changed), len(keys))
        made = np.zeros(len(keys), bool)
        for i, op in enumerate(forest.ops):
            own = term == i
            rows = np.asarray(op.rows(ours(outputs[f"trees {i}"])))[own]
            with np.errstate(over="ignore"):
                rows = rows.astype(np.float32) if op.narrow else rows
            held = np.take_along_axis(rows, op.feature.array[node[own]][:, None], axis=1)[:, 0]
            made[own] = op.passes(held.astype(np.float64), node[own])
        return made

    low = np.array([_key(-FARTHEST, kind) for kind in kinds], np.int64)[owner]
    high = np.array([_key(FARTHEST, kind) for kind in kinds], np.int64)[owner]
    start = answers(low)
    crosses = start != answers(high)
    while np.any(high - 1 > low):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        same = answers(middle) == start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    found = []
    for i, kind in enumerate(kinds):
        own = crosses & (owner == i)
        at = np.unique(low[own])
        found.append((_number(at, kind).astype(float), _number(at + 1, kind).astype(float)))
    return found


def _key(number: float, kind: Any) -> int:
    """The place of a number among all of its dtype."""
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return int(max(info.min, -(2**53))) if number < 0 else int(min(info.max, 2**53))
    held = np.array(number, kind).view(f"i{kind.itemsize}").astype(np.int64)
    return int(held ^ ((held >> 63) & np.iinfo(f"i{kind.itemsize}").max))


def _number(keys: Places, kind: Any) -> NDArray[Any]:
    """The numbers at these places."""
    if kind.kind in "iu":
        return keys.astype(kind)
    held = keys ^ ((keys >> 63) & np.iinfo(f"i{kind.itemsize}").max)
    return held.astype(f"i{kind.itemsize}").view(kind)
