"""Minimal changes of a row that change its answer: proved where a program allows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb, inf, isnan
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from flour.core.errors import FlourError, ParameterError
from oven.explain.attribution import explainer_of
from oven.explain.attribution.explainer import Explainer
from oven.explain.counterfactuals.columns import ReadColumns
from oven.explain.counterfactuals.forest import MOST as MOST_NUMBERS
from oven.explain.counterfactuals.forest import Forest
from oven.explain.counterfactuals.options import Cuts, Finder, Plain, Sums, margins_of
from oven.explain.counterfactuals.raw_row import RawRow
from oven.explain.counterfactuals.units import Allowed, Unit, price, units_of
from oven.explain.counterfactuals.wanted import Wanted
from oven.plans.counterfactual import Change, Counterfactual
from oven.plans.plan import Plan

#: Multiplications that a search may take (a row of the plan counts as ten thousand), and sets of
#: columns that it may look at.
MOST_WORK, MOST_SETS = 3e9, 100_000
#: Options of some columns that are compared at once, and those that the plan is asked about.
MOST_OPTIONS, MOST_ROWS = 4e6, 50_000


class _Known(NamedTuple):
    columns: ReadColumns
    forest: Forest | None


_known: WeakKeyDictionary[Plan, dict[str, _Known]] = WeakKeyDictionary()


def counterfactual(
    plan: Plan,
    row: object,
    *,
    want: object,
    free: Sequence[str] | None = None,
    within: Mapping[str, Any] | None = None,
    most: int = 3,
) -> Counterfactual:
    """The smallest change of a row after which the plan answers `want`.

    `want` is a label, or a pair (low, high) for a number. Only `free` columns change (all, unless
    they are named), `within` bounds: a pair for numbers, a list for categories and for the words
    that may replace a document's. At most `most` columns change, or words of documents.
    """
    if not isinstance(most, int) or most < 1:
        raise ParameterError("this many changes make no sense", where="most", found=repr(most))
    held, wanted = RawRow(plan, row), Wanted(plan, want)
    allowed = Allowed(held, free, within, plan.training())
    return _Search(held, wanted, allowed, most).answer()


class _Found(NamedTuple):
    cost: float
    changed: dict[str, Any]


class _Search:
    """One search for a row: few changes before many, cheap ones before dear ones."""

    def __init__(self, row: RawRow, wanted: Wanted, allowed: Allowed, most: int) -> None:
        self.row, self.wanted, self.allowed, self.most = row, wanted, allowed, most
        self.before = row.run(1, {})
        self.done = bool(wanted.met(self.before)[0])
        #: True as long as everything has been looked at, and the rows that the plan answered.
        self.whole, self.rows = True, 0
        if self.done:
            return
        self.margins = wanted.margins(row.plan)
        known = _facts(row.plan, wanted.score if self.margins is not None else "")
        self.explainer = known.columns.explainer
        units = list(units_of(allowed, known.columns, known.forest, most))
        self.whole = all(unit.whole or unit.line is not None for unit in units)
        self.units = [unit for unit in units if len(unit.values) or unit.line is not None]
        self.finder = self._finder(known)

    def _finder(self, known: _Known) -> Finder:
        if self.explainer is None or self.margins is None:
            return Plain(self.units)
        finder: Finder = Plain(self.units)
        if known.columns.is_sum:
            finder = sums = Sums(self.explainer, self.row, self.margins, self.units)
            here = sums.base
        elif known.forest is not None:
            tables = [
                len(unit.values) * len(known.forest.leaf) // max(1, len(self.units))
                for unit in self.units
            ]
            if sum(tables) > MOST_NUMBERS:
                return finder
            finder = Cuts(known.forest, self.row, self.margins, self.units)
            here = self._margins({}, 1)[0]
        else:
            return finder
        # Where a score above zero does not decide, margins say nothing: the plan is asked.
        return Plain(self.units) if np.all(here > 0) else finder

    def _margins(self, changed: Mapping[str, Any], count: int) -> Any:
        assert self.explainer is not None
        assert self.margins is not None
        held = self.explainer.plan.run_columns(self.row.block(count, changed), count)
        return margins_of(held, self.margins, count)

    # --- the search ------------------------------------------------------------------------------

    def answer(self) -> Counterfactual:
        """The answer for the row."""
        if self.done:
            return self._told(_Found(0.0, {}))
        for size in range(1, self.most + 1):
            best = self._of(size)
            if best is not None:
                lines = (u.whole for u in self.units if u.line is not None and size > 1)
                self.whole &= all(lines)
                return self._told(best)
        return self._told(None if self.whole else self._greedy())

    def _of(self, size: int) -> _Found | None:
        """The cheapest change of this size."""
        best: _Found | None = None
        least = np.array([
            unit.costs.min(initial=inf) if unit.line is None else 0.0 for unit in self.units
        ])
        for chosen in self._sets(size):
            below = inf if best is None else best.cost
            if least[chosen].sum() >= below:
                continue
            values = [max(1, len(self.units[i].values)) for i in chosen]
            if self._work() > MOST_WORK or np.prod(values, dtype=float) > MOST_OPTIONS:
                self.whole = False
                continue
            found = self._cheapest(chosen.tolist(), below)
            best = found or best
        return best

    def _work(self) -> float:
        return self.finder.work + 1e4 * self.rows

    def _sets(self, size: int) -> Any:
        """Sets of units that together have this size, the most promising first."""
        for count in range(1, size + 1):
            if count < size and all(unit.size == 1 for unit in self.units):
                continue
            among = np.arange(len(self.units))
            if comb(len(among), count) > MOST_SETS:
                self.whole = False
                order = np.argsort(-self.finder.bounds(among[:, None]), kind="stable")
                while comb(len(order), count) > MOST_SETS:
                    order = order[: len(order) * 9 // 10]
                among = np.sort(order)
            sets = np.array([*combinations(among.tolist(), count)], np.int64).reshape(-1, count)
            if any(unit.size > 1 for unit in self.units):
                sizes = np.array([unit.size for unit in self.units])
                columns = [unit.column for unit in self.units]
                apart = [len({columns[i] for i in each}) == count for each in sets.tolist()]
                sets = sets[(sizes[sets].sum(axis=1) == size) & np.array(apart, bool)]
            if len(sets):
                bounds = self.finder.bounds(sets)
                order = np.argsort(-bounds, kind="stable")
                yield from sets[order[bounds[order] >= 0]]

    def _cheapest(self, chosen: Sequence[int], below: float) -> _Found | None:
        """The first option that the plan says has the wanted answer."""
        costs, values = self.finder.options(chosen, below)
        names = [self.units[i].column for i in chosen]
        at, step = 0, 8
        while at < len(costs):
            if at > MOST_ROWS or self._work() > MOST_WORK:
                self.whole = False
                return None
            some = slice(at, at + step)
            changed = {name: held[some] for name, held in zip(names, values, strict=True)}
            met = self._met(changed, len(costs[some]))
            if met.any():
                place = int(np.argmax(met))
                first = {name: held[place] for name, held in changed.items()}
                return self._nearer(chosen, _Found(float(costs[some][place]), first))
            at, step = at + step, min(2 * step, 4096)
        return None

    def _met(self, changed: Mapping[str, Any], count: int) -> Any:
        self.rows += count
        try:
            return self.wanted.met(self.row.run(count, changed))
        except FlourError:  # some value is refused: ask for each row alone
            if count == 1:
                return np.zeros(1, bool)
            alone = [self._met({n: v[i : i + 1] for n, v in changed.items()}, 1) for i in range(count)]
            return np.concatenate(alone)

    def _nearer(self, chosen: Sequence[int], found: _Found) -> _Found:
        """A change of columns that are only looked at here and there, as near as it can be."""
        changed = dict(found.changed)
        for unit in (self.units[i] for i in chosen):
            old = self.row.values[unit.column]
            loose = not unit.whole and unit.line is None and unit.values.dtype != object
            if not loose or isnan(old):
                continue
            for _ in range(5):
                line = np.linspace(float(old), float(changed[unit.column]), 65)[1:]
                if self.row.dtype(unit.column).kind in "iu":
                    line = np.unique(np.round(line))
                others = {n: np.repeat(v, len(line)) for n, v in changed.items()}
                met = self._met({**others, unit.column: line}, len(line))
                nearest = line[met][np.argmin(np.abs(line[met] - old))] if met.any() else line[-1]
                old = float(line[np.abs(line - nearest).argmin() - 1]) if met.any() else old
                changed[unit.column] = nearest
        return _Found(self._cost(changed), changed)

    def _cost(self, changed: Mapping[str, Any]) -> float:
        total = 0.0
        for name, value in changed.items():
            units = [unit for unit in self.units if unit.column == name]
            if units[0].values.dtype == object:
                total += next(u.costs[0] for u in units if value in list(u.values))
            else:
                total += float(price(value, self.allowed.line(name)))
        return total

    def _greedy(self) -> _Found | None:
        """The change that gains most, and then the next, until the answer is the wanted one."""
        changed: dict[str, Any] = {}
        left = self.most
        while left and self.margins is not None:
            best, size = None, 0
            for unit in self.units:
                if unit.column in changed or unit.size > left or not len(unit.values):
                    continue
                count = len(unit.values)
                rows = {name: np.repeat(value, count) for name, value in changed.items()}
                gain = self._margins({**rows, unit.column: unit.values}, count).min(axis=1)
                place = int(np.argmax(gain))
                if best is None or gain[place] > best[0]:
                    best, size = (gain[place], unit.column, unit.values[place]), unit.size
            if best is None:
                return None
            changed[best[1]] = best[2]
            left -= size
            if self._met({name: [value] for name, value in changed.items()}, 1)[0]:
                return _Found(self._cost(changed), changed)
        return None

    def _told(self, found: _Found | None) -> Counterfactual:
        """The answer, with what the plan says of the changed row."""
        changed = {} if found is None else found.changed
        after = self.row.run(1, {name: [value] for name, value in changed.items()})
        columns = self.row.block(1, {name: [value] for name, value in changed.items()})
        values = self.row.values_of(columns)
        return Counterfactual(
            want=self.wanted.want,
            found=found is not None,
            proved=self.whole,
            changes=tuple(Change(name, self.row.values[name], values[name]) for name in changed),
            values=values,
            row=self.row.as_row(columns),
            before={name: self.before[name][0] for name in self.wanted.told},
            after={name: after[name][0] for name in self.wanted.told},
            cost=0.0 if found is None else found.cost,
        )


def _facts(plan: Plan, score: str) -> _Known:
    """What is known of a plan, once it has been asked for."""
    known = _known.setdefault(plan, {})
    if score not in known:
        explainer: Explainer | None = explainer_of(plan, score) if score else None
        columns = ReadColumns(plan, explainer)
        forest = Forest(explainer) if explainer is not None and columns.is_trees else None
        known[score] = _Known(columns, forest if forest is not None and forest.fits else None)
    return known[score]
