"""Raw columns as a plan's score reads them: its categories, and the thresholds of its trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.node import categories_of, topological
from flour.core.sparse import Sparse
from flour.ops.trees.trees import Trees
from oven.explain.attribution import explainer_of
from oven.explain.attribution.terms import ours, raw_columns
from oven.explain.counterfactuals.raw_row import RawRow
from oven.plans.plan import Plan

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
#: Beyond this, no threshold is looked for; most codes of a category.
FARTHEST, CODES = 1e30, 1024


class ReadColumns:
    """The categories and the cells of columns: within a cell, all tests of trees agree."""

    def __init__(self, plan: Plan, row: RawRow, score: str) -> None:
        self.categories = _categories(plan)
        #: The least and the greatest number of each cell, and whether these are all.
        self.cells: dict[str, tuple[Numbers, Numbers, bool]] = {}
        explainer = explainer_of(plan, score) if score else None
        terms = None if explainer is None else explainer.terms
        #: True if the score is a sum of numbers that are made of one column each.
        self.is_sum = terms is not None and not (terms.inexact or terms.trees)
        if explainer is None or terms is None or terms.inexact or terms.linear:
            return
        ops: list[Any] = [term.node.op for term in terms.trees]
        found = [_tests(i, ops[i], term.made) for i, term in enumerate(terms.trees)]
        term, node, owner, codes, cuts, near = (
            np.concatenate(parts) for parts in zip(*found, strict=True)
        )
        for name, number in {n: i for i, n in enumerate(terms.columns)}.items():
            known = codes[owner == number].max(initial=0)
            if known and name not in self.categories:
                self.categories[name] = [*range(min(int(known), CODES))]
        asked = [i for i, n in enumerate(terms.columns) if n not in self.categories]
        asked = [i for i in asked if row.dtype(terms.columns[i]).kind in "fiu"]
        kept = np.isin(owner, asked)
        term, node, owner, cuts, near = (e[kept] for e in (term, node, owner, cuts, near))
        names = {i: terms.columns[i] for i in asked}
        odd = any(op.zeros for op in ops) or any(isinstance(h, Sparse) for h in row.held.values())

        def passed(numbers: dict[str, Any]) -> NDArray[np.bool_]:
            outputs = explainer.plan.run_columns(row.copies(len(node), numbers), len(node))
            made = np.zeros(len(node), bool)
            for i, op in enumerate(ops):
                at = np.flatnonzero(term == i)
                rows = op.rows(ours(outputs[f"trees {i}"]))[at, op.feature.array[node[at]]]
                with np.errstate(over="ignore"):
                    rows = rows.astype(np.float32 if op.narrow else np.float64)
                made[at] = op.passes(rows.astype(np.float64), node[at])
            return made

        if not len(node):
            return
        for i, below, above, whole in _crossings(row, names, owner, (cuts, near), passed):
            lower, upper = np.append(-np.inf, above), np.append(below, np.inf)
            self.cells[names[i]] = lower, upper, whole and not odd


def _categories(plan: Plan) -> dict[str, list[Any]]:
    """The categories that encoders know, by column."""
    names, made = raw_columns(order := topological(plan.flow.outputs.values()))
    found = categories_of(order, made)
    return {names[number]: [*dict.fromkeys(each)] for number, each in found.items()}


def _tests(number: int, op: Trees, made: Places) -> tuple[NDArray[Any], ...]:
    """The different tests of a term: it, a node of each, its column, how many codes it knows.

    And its threshold, with how near to it trees read another number.
    """
    node = np.flatnonzero(np.asarray(op.feature.array) >= 0)
    feature, codes = np.asarray(op.feature.array)[node], np.zeros(len(node), np.int64)
    if len(op.words):
        named = np.asarray(op.category.array)[node] >= 0
        codes = np.where(named, 32 * np.asarray(op.length.array)[node], 0)
    keys = np.stack([feature, np.asarray(op.threshold.array)[node], codes], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    cuts = np.clip(keys[first, 1], -FARTHEST, FARTHEST)
    near = np.maximum(np.abs(cuts), 1e-6) * (1e-7 if op.narrow else 4e-14)
    return np.full(len(first), number), node[first], made[feature[first]], codes[first], cuts, near


def _crossings(
    row: RawRow,
    names: dict[int, str],
    owner: Places,
    cuts: tuple[Numbers, Numbers],
    passed: Callable[[dict[str, Any]], NDArray[np.bool_]],
) -> Iterator[tuple[int, Numbers, Numbers, bool]]:
    """For each column the neighbours between which one of its tests changes, and if all tests do.

    All tests are bisected together: from near their `cuts` on where they change there, as columns
    do that are read as they are, else from the farthest numbers, first by orders of magnitude.
    """
    kinds = {i: row.dtype(name) for i, name in names.items()}
    low, high = np.full(len(owner), -FARTHEST), np.full(len(owner), FARTHEST)
    for i, kind in kinds.items():
        if kind.kind in "iu":
            least, most = max(np.iinfo(kind).min, -(2**53)), min(np.iinfo(kind).max, 2**53)
            low[owner == i], high[owner == i] = least, most

    def held(numbers: Numbers, i: int) -> NDArray[Any]:
        own = np.floor(numbers[owner == i]) if kinds[i].kind in "iu" else numbers[owner == i]
        return np.asarray(own.astype(kinds[i]))

    def answers(numbers: Numbers) -> NDArray[np.bool_]:
        changed = {
            name: np.full(len(numbers), row.values[name], kinds[i]) for i, name in names.items()
        }
        for i, name in names.items():
            changed[name][owner == i] = held(numbers, i)
        return np.asarray(passed(changed))

    first, settled = answers(low), np.zeros(len(owner), bool)
    crosses = first != answers(high)
    whole = np.isin(owner, [i for i, kind in kinds.items() if kind.kind in "iu"])
    below, above = (np.clip(cuts[0] + by, low, high) for by in (-cuts[1], cuts[1] + whole))
    begun = crosses & (answers(below) == first) & (answers(above) != first)
    low, high = np.where(begun, below, low), np.where(begun, above, high)
    for i in names:
        low[owner == i], high[owner == i] = held(low, i), held(high, i)
    while not settled.all():
        far = ~whole & (high - low > 1e-3 * np.maximum(np.abs(high), 1e-6))
        middle = (low + high) / 2
        orders = (np.arcsinh(low[far] / 1e-6) + np.arcsinh(high[far] / 1e-6)) / 2
        middle[far] = 1e-6 * np.sinh(orders)
        for i in names:
            middle[owner == i] = held(middle, i)
        close = high - low <= 1e-13 * np.maximum(np.abs(high), 1e-6)
        settled = close | (middle == low) | (middle == high)
        same = answers(middle) == first
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    for i in names:
        own = crosses & (owner == i)
        ends = np.unique(np.stack([low[own], high[own]], axis=1), axis=0)
        yield i, ends[:, 0], ends[:, 1], bool(crosses[owner == i].all())
