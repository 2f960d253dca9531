"""Options: the combinations of some columns' new values that may have the wanted answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.core.sparse import densify
from oven.explain.attribution.explainer import SCORE, Explainer
from oven.explain.attribution.tree_tables import Numbers, Places
from oven.explain.counterfactuals.forest import Forest
from oven.explain.counterfactuals.raw_row import RawRow
from oven.explain.counterfactuals.units import Unit, price

Margins = tuple[Numbers, Numbers]
#: Margins this far from zero, as a part of their size, are beyond rounding.
ROUNDING = 1e-9
#: The rounding of a plan may ask for a little more of a solved change; corners that are looked at.
BEYOND, MOST_CORNERS = np.array([0.0, 1e-8, 1e-6, 1e-4]), 256


class Options(NamedTuple):
    """Rows by their new values: a column of values for each unit; the cheapest first."""

    costs: Numbers
    values: list[NDArray[Any]]


class Finder(Protocol):
    """Finds the options of some units together."""

    #: Operations so far, of the same kind as those of `MOST`.
    work: float

    def bounds(self, chosen: Places) -> Numbers:
        """For each row of units: the largest that their smallest margin can be."""

    def options(self, chosen: Sequence[int], below: float) -> Options:
        """The options that cost less than this."""


def margins_of(outputs: Any, margins: Margins, count: int) -> Numbers:
    """The margins of rows whose score is known."""
    score = np.asarray(densify(outputs[SCORE]), np.float64).reshape(count, -1)
    return np.asarray(score @ margins[0].T + margins[1])


class Plain:
    """Every combination of values, for programs of which nothing else is known."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units, self.work = units, 0.0

    def bounds(self, chosen: Places) -> Numbers:
        return np.full(len(chosen), np.inf)

    def options(self, chosen: Sequence[int], below: float) -> Options:
        units = [self.units[i] for i in chosen]
        costs = _outer([unit.costs for unit in units])
        self.work += costs.size * 1e4
        return _picked(costs, costs < below, [unit.values for unit in units])


class Sums:
    """Sums of a term for each column: the gains of values are added up, lines are solved."""

    def __init__(
        self, explainer: Explainer, row: RawRow, margins: Margins, units: Sequence[Unit]
    ) -> None:
        self.units, self.work = units, 0.0

        def measured(changed: dict[str, Any], count: int) -> Numbers:
            outputs = explainer.plan.run_columns(row.block(count, changed), count)
            return margins_of(outputs, margins, count)

        self.base = measured({}, 1)[0]
        self.gains, self.lines = [], []
        size = np.abs(self.base)
        for unit in units:
            count, line = len(unit.values), unit.line
            made = measured({unit.column: unit.values}, count) if count else np.zeros((0, len(size)))
            self.gains.append(made - self.base)
            start = slope = np.zeros(len(size))
            if line is not None:
                around = 0.0 if np.isnan(line.old) else line.old
                step = max(1.0, round(line.scale))
                two = measured({unit.column: [around, around + step]}, 2)
                start, slope = two[0] - self.base, (two[1] - two[0]) / step
                size = np.maximum(size, np.abs(slope * around))
            size = np.maximum(size, np.abs(self.gains[-1]).max(axis=0, initial=0.0))
            self.lines.append((start, slope))
        self.slack = ROUNDING * np.maximum(size, 1e-300)

    def bounds(self, chosen: Places) -> Numbers:
        best = np.full((len(self.units), len(self.base)), -np.inf)
        for i, unit in enumerate(self.units):
            best[i] = self.gains[i].max(axis=0, initial=-np.inf)
            if unit.line is not None:
                slope = self.lines[i][1]
                free = ((slope > 0) & np.isinf(unit.line.high)) | (
                    (slope < 0) & np.isinf(unit.line.low)
                )
                best[i] = np.where(free, np.inf, np.maximum(best[i], self.lines[i][0]))
        found: Numbers = (self.base + self.slack + best[chosen].sum(axis=1)).min(axis=1)
        return found

    def options(self, chosen: Sequence[int], below: float) -> Options:
        along = [i for i in chosen if self.units[i].line is not None]
        parts = []
        for count in range(min(len(along), len(self.base)) + 1):
            for solved in combinations(along, count):
                others = [i for i in chosen if i not in solved]
                for active in combinations(range(len(self.base)), count):
                    parts.append(self._solved(chosen, others, solved, active, below))
        costs = np.concatenate([part.costs for part in parts])
        values = [np.concatenate([p.values[i] for p in parts]) for i in range(len(chosen))]
        order = np.argsort(costs, kind="stable")[:MOST_CORNERS]
        if not along:
            return Options(costs[order], [each[order] for each in values])
        made = []
        for i, held in zip(chosen, values, strict=True):
            held = np.repeat(held[order][:, None], len(BEYOND), axis=1)
            line = self.units[i].line
            if line is not None and self.units[i].whole and not np.isnan(line.old):
                far = line.old + (held.astype(float) - line.old) * (1 + BEYOND)
                held = np.clip(far, line.low, line.high)
            made.append(held.reshape(-1))
        return Options(np.repeat(costs[order], len(BEYOND)), made)

    def _solved(
        self,
        chosen: Sequence[int],
        others: Sequence[int],
        solved: Sequence[int],
        active: Sequence[int],
        below: float,
    ) -> Options:
        """The corners at which some margins are just positive, in as many columns."""
        costs = _outer([self.units[i].costs for i in others])
        base = self.base + _outer_sums([self.gains[i] for i in others])
        self.work += base.size * 10
        places = np.indices(costs.shape).reshape(len(others), costs.size)
        base, costs = base.reshape(-1, len(self.base)), costs.reshape(-1)
        held = {i: self.units[i].values[at] for i, at in zip(others, places, strict=True)}
        fine = np.ones(len(costs), bool)
        if solved:
            slopes = np.stack([self.lines[i][1] for i in solved])
            base = base + sum(self.lines[i][0] for i in solved)
            matrix = slopes[:, list(active)].T
            if abs(np.linalg.det(matrix / np.abs(matrix).max(initial=1e-300))) < 1e-9:
                return Options(np.zeros(0), [np.zeros(0, object) for _ in chosen])
            need = (self.slack - base)[:, list(active)]
            moved = np.linalg.solve(matrix, need.T).T
            for i, move in zip(solved, moved.T, strict=True):
                line: Any = self.units[i].line
                value = (0.0 if np.isnan(line.old) else line.old) + move
                if not self.units[i].whole:  # integers, on the far side
                    value = np.where(move > 0, np.ceil(value), np.floor(value))
                fine &= (value >= line.low) & (value <= line.high) & (value != line.old)
                held[i] = value
                costs = costs + price(value, line)
                shift = value - (0.0 if np.isnan(line.old) else line.old)
                base = base + shift[:, None] * self.lines[i][1]
        fine &= np.all(base >= -self.slack, axis=1) & (costs < below)
        return Options(costs[fine], [held[i][fine] for i in chosen])


class Cuts:
    """Trees that read nothing but cells and categories: products of their tables."""

    def __init__(self, forest: Forest, row: RawRow, margins: Margins, units: Sequence[Unit]) -> None:
        self.units, self.forest, self.work = units, forest, 0.0
        self.missed = forest.missed(row)
        self.count = self.missed.sum(axis=1)
        self.gains = forest.values @ margins[0].T
        outputs = forest.plan.run_columns(row.block(1, {}), 1)
        here = self.gains[self.count == 0]
        self.base = margins_of(outputs, margins, 1)[0] - here.sum(axis=0)
        self.slack = 1e-6 * np.maximum(np.abs(here).sum(axis=0), 1e-30)
        self.numbers = np.array([forest.names.index(unit.column) for unit in units], np.int64)
        self.tables = [self._table(row, unit) for unit in units]

    def _table(self, row: RawRow, unit: Unit) -> NDArray[np.float32]:
        if unit.cells is None:
            return self.forest.table(row, unit.column, unit.values, kept=False)
        lower, upper = self.forest.cells[unit.column]
        some = np.where(np.isfinite(lower), lower, upper)
        some = np.where(np.isfinite(some), some, 0.0)
        return self.forest.table(row, unit.column, some, kept=True)

    def bounds(self, chosen: Places) -> Numbers:
        near = np.flatnonzero(self.count <= chosen.shape[1])
        first = np.searchsorted(near, self.forest.first)
        missed = np.ascontiguousarray(self.missed[near][:, self.numbers].T, np.int8)
        count, gains = self.count[near].astype(np.int8), self.gains[near]
        parts = []
        for some in np.array_split(chosen, 1 + chosen.shape[0] * len(near) // 2_000_000):
            reached = missed[some].sum(axis=1, dtype=np.int8) == count
            margins = [
                np.maximum.reduceat(np.where(reached, gain, -np.inf), first, axis=1).sum(axis=1)
                for gain in gains.T
            ]
            parts.append((np.stack(margins, axis=1) + self.base + self.slack).min(axis=1))
        self.work += chosen.shape[0] * len(near) * 4.0
        return np.concatenate(parts)

    def options(self, chosen: Sequence[int], below: float) -> Options:
        units, numbers = [self.units[i] for i in chosen], self.numbers[list(chosen)]
        least = [unit.costs.min(initial=np.inf) for unit in units]
        kept = [
            np.searchsorted(unit.costs, below - (sum(least) - own), "left")
            for unit, own in zip(units, least, strict=True)
        ]
        costs = _outer([unit.costs[:end] for unit, end in zip(units, kept, strict=True)])
        values = [unit.values[:end] for unit, end in zip(units, kept, strict=True)]
        if not costs.size:
            return _picked(costs, costs < below, values)
        reached = np.flatnonzero(self.missed[:, numbers].sum(axis=1) == self.count)
        tables = []
        for i, number, end in zip(chosen, numbers, kept, strict=True):
            cells = self.units[i].cells
            cells = np.arange(end) if cells is None else cells[:end]
            tables.append(self.tables[i][self.forest.row_of[reached, number][:, None], cells])
        fine = costs < below
        self.work += costs.size * len(reached) * len(self.base)
        for gain, base, slack in zip(self.gains[reached].T, self.base, self.slack, strict=True):
            left = gain.astype(np.float32)[:, None]
            for table in tables[:-1]:
                left = (left[:, :, None] * table[:, None, :]).reshape(len(reached), -1)
            fine &= ((left.T @ tables[-1]).reshape(costs.shape) + base) >= -slack
        return _picked(costs, fine, values)


def _picked(costs: Numbers, fine: NDArray[np.bool_], values: Sequence[NDArray[Any]]) -> Options:
    """The combinations that are fine, the cheapest first."""
    places = np.nonzero(fine)
    order = np.argsort(costs[places], kind="stable")
    at = [place[order] for place in places]
    return Options(costs[places][order], [v[i] for v, i in zip(values, at, strict=True)])


def _outer(parts: Sequence[Numbers]) -> Numbers:
    """The sums of an element of each part: an axis for each."""
    made = np.zeros(())
    for part in parts:
        made = made[..., None] + part
    return made


def _outer_sums(parts: Sequence[Numbers]) -> Numbers:
    """The same of rows."""
    made: Numbers = np.zeros(1) if not parts else parts[0]
    for part in parts[1:]:
        made = made[..., None, :] + part
    return made
