"""Minimal changes of a row that change its answer: proved where a program allows it.

The plan itself says what a changed row is answered, so every change that is told is one. Trees have
the same answer between two thresholds, so a value of each cell is enough; a column that moves a sum
along a line is solved for. Few columns come before many, and cheap changes before dear ones: the
first one with the wanted answer is the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import are_texts, check_values, is_count, is_time
from oven.explain.counterfactuals.candidates import LARGEST, Candidates, objects
from oven.explain.counterfactuals.columns import ReadColumns
from oven.explain.counterfactuals.raw_row import RawRow
from oven.explain.counterfactuals.wanted import Numbers, Wanted
from oven.plans.counterfactual import ChangedValue, Counterfactual
from oven.plans.plan import Plan

Chosen = NDArray[np.int64]
#: Rows that a search asks the plan about, combinations held at once, and those a beam keeps.
MOST_ROWS, MOST_HELD, BEAM = 50_000, 1_000_000, 4
#: Rows that the plan answers at a time: after each part, one of them may be the wanted one.
PART = 2048
#: Steps at which a line is looked at, and how far, in parts of it, a solved change is exceeded:
#: the plan, and the library that trained the model, may round otherwise.
STEPS, BEYOND = np.array([-10, -3, -1, 0, 1, 2, 5, 10]), np.array([1e-9, 1e-8, 1e-6, 1e-4])

_known: WeakKeyDictionary[Plan, dict[str, ReadColumns]] = WeakKeyDictionary()


def counterfactual(  # noqa: PLR0913 (each has a default)
    plan: Plan,
    row: object,
    *,
    want: object,
    free: Sequence[str] | None = None,
    within: Mapping[str, Any] | None = None,
    most: int = 3,
    seconds: float = math.inf,
    fixed: Collection[str] = (),
) -> Counterfactual:
    """The smallest change of a row after which the plan answers `want`.

    `want` is a label, or a pair (low, high) for a number; see `pretzel.Model.counterfactual`.
    After `seconds`, nothing further is tried, and what was found is not proved. Columns that are
    `fixed` change only if they are named in `free`.
    """
    listed = within is None or isinstance(within, Mapping)
    check_values(
        (
            ("most", most, is_count(most, 1), "how many columns may change, from 1 on"),
            ("seconds", seconds, is_time(seconds), "a number from 0 on"),
            ("free", free, free is None or are_texts(free), "names of columns"),
            ("within", within, listed, "by column, a pair (low, high) or a list of texts"),
        ),
        "no change can be looked for like this",
        "counterfactual",
    )
    free = [free] if isinstance(free, str) else free
    held, wanted = RawRow(plan, row), Wanted(plan, want)
    free = [each for each in held.places if each not in fixed] if free is None else free
    candidates = Candidates(held, free, within, plan.training())
    return _Search(held, wanted, candidates, most, monotonic() + seconds).answer()


class _Found(NamedTuple):
    cost: float
    changed: dict[str, Any]


class _Search:
    def __init__(
        self, row: RawRow, wanted: Wanted, candidates: Candidates, most: int, until: float
    ) -> None:
        self.row, self.wanted, self.candidates, self.most = row, wanted, candidates, most
        self.until = until
        self.before, self.rows = row.run(1, {}), 0
        #: By column that can be solved for: what it adds at zero, and for each step from there.
        self.lines: dict[str, tuple[Numbers, Numbers]] = {}
        self.size: Any = 0.0
        self.base = wanted.margins(self.before)[0]

    def answer(self) -> Counterfactual:
        """The answer for the row."""
        if self.wanted.met(self.before)[0]:
            return self._told(_Found(0.0, {}))
        known = _known.setdefault(self.row.plan, {})
        score = self.wanted.score
        if score not in known:
            known[score] = ReadColumns(self.row.plan, self.row, score)
        is_line = self._is_line if known[score].is_sum and len(self.base) else lambda _: False
        self.candidates.corners = corners = self.wanted.is_label and len(self.base) > 1
        self.candidates.fill(known[score], is_line)
        if not self.wanted.is_label:  # what is narrower than the rounding of lines may be missed
            width = self.wanted.high - self.wanted.low
            self.candidates.whole &= bool(2e-9 * np.max(self.size) <= width)
        for size in range(1, self.most + 1):
            best = self._solved(size)
            best = self._tried(size, math.inf if best is None else best.cost) or best
            if size > 1 and self.lines:  # corners of several classes or of integers may be missed
                integer = self.row.whole & self.lines.keys()
                self.candidates.whole &= not (integer or (corners and len(self.lines) > 1))
            if best is not None:
                return self._told(self._nearer(best))
            if self._is_late():
                break
        return self._told(None)

    def _is_late(self) -> bool:
        """True if the time is over, so that nothing more is proved."""
        late = monotonic() > self.until
        self.candidates.whole &= not late
        return late

    # --- lines -----------------------------------------------------------------------------------

    def _is_line(self, name: str) -> bool:
        """True if a column moves all margins along lines, which are kept."""
        old, _, _, scale = self.candidates.ranges[name]
        step, here = max(1.0, float(round(scale))), 0.0 if math.isnan(old) else old
        margins = self.wanted.margins(self.row.run(len(STEPS), {name: here + step * STEPS}))
        slope = (margins[-1] - margins[0]) / (STEPS[-1] - STEPS[0])
        size = np.abs(margins).max(axis=0)
        slope[np.abs(slope) <= 1e-13 * size] = 0.0
        bent = np.abs(margins - margins[3] - STEPS[:, None] * slope)
        self.size = np.maximum(self.size, size)
        if np.all(bent <= 1e-6 * size):
            self.lines[name] = margins[3] - self.base, slope / step
        return name in self.lines

    def _solved(self, size: int) -> _Found | None:
        """The cheapest change of which one column is solved for, beside others' candidates."""
        best: _Found | None = None
        found: list[tuple[float, Chosen, str, float]] = []
        chosen = np.zeros((min(1, len(self.lines)), 0), np.int64)
        if len(chosen) and size > 1:
            made = self._combined(size - 1, -1.0, math.inf)
            few = made is not None and self.rows + len(made[0]) <= MOST_ROWS
            self.candidates.whole &= few
            chosen = made[0] if made is not None and few else chosen[:0]
        if not len(chosen):
            return None
        self.rows += len(chosen)
        outputs = self.row.run(len(chosen), self.candidates.changed(chosen))
        margins, costs = self.wanted.margins(outputs), self.candidates.costs[chosen].sum(axis=1)
        for name, (start, slope) in self.lines.items():
            old, low, high, _ = self.candidates.ranges[name]
            here = 0.0 if math.isnan(old) else old
            with np.errstate(divide="ignore", invalid="ignore"):
                ends = (1e-9 * self.size - margins - start) / slope
            least = np.where(slope > 0, ends, -np.inf).max(axis=1).clip(min=low - here)
            most = np.where(slope < 0, ends, np.inf).min(axis=1).clip(max=high - here)
            value = here + np.clip(0.0, least, most)
            if name in self.row.whole:
                value = np.where(value > here, np.ceil(value), np.floor(value))
            total = costs + self.candidates.ranges[name].costs(value)
            unit = self.candidates.units.index((name, ""))
            fine = (least <= most) & ~np.any(self.candidates.unit[chosen] == unit, axis=1)
            fine &= np.all((slope != 0) | (margins + start > 0), axis=1) & (np.abs(value) < LARGEST)
            at = np.flatnonzero(fine)[np.argsort(total[fine], kind="stable")[:BEAM]]
            found += [(total[i], chosen[i], name, value[i]) for i in at]
        for cost, others, name, value in sorted(found, key=lambda each: each[0]):
            if best is None or cost < best.cost:  # go just so far that the plan agrees
                old, low, high, _ = numbers = self.candidates.ranges[name]
                far = value + (value - (0.0 if math.isnan(old) else old)) * BEYOND
                far = np.round(far) if name in self.row.whole else far
                values = np.clip(far, low, high).astype(self.row.dtype(name))
                changed = self.candidates.changed(np.repeat(others[None], len(values), axis=0))
                costs = self.candidates.costs[others].sum() + numbers.costs(values)
                best = self._first({**changed, name: values}, costs) or best
                if abs(old) > 1e6 * max(1.0, abs(value)):  # parts of it are far too coarse here
                    self.candidates.loose.add(name)
        return best

    # --- combinations ----------------------------------------------------------------------------

    def _tried(self, size: int, below: float) -> _Found | None:
        """The cheapest combination of candidates with the wanted answer."""
        costs = self.candidates.costs
        if len(costs) < size:
            return None
        top = min(below, 1.001 * float(costs[-size:].sum()))
        usual = costs[min(len(costs) - 1, 255)] if size == 1 else costs[-1] / 32
        low, high = -1.0, max(float(costs[size - 1]), float(usual))
        while low < top:
            made = self._combined(size, low, min(high, top))
            if made is None or self.rows + len(made[0]) > MOST_ROWS:
                self.candidates.whole = False
                return self._beam(size)
            order = np.argsort(made[1], kind="stable")
            for start in range(0, len(order), PART):
                if self._is_late():
                    return None
                part = order[start : start + PART]
                found = self._first(self.candidates.changed(made[0][part]), made[1][part])
                if found is not None:
                    return found
            low, high = high, (3.0 if size == 1 else 1.5) * high
        return None

    def _combined(self, size: int, low: float, high: float) -> tuple[Chosen, Numbers] | None:
        """Candidates of different units with their costs, within these; None if too many."""
        costs, unit = self.candidates.costs, self.candidates.unit
        made = np.flatnonzero(costs <= high)[:, None]
        total = costs[made[:, 0]]
        for _ in range(size - 1):
            after = made[:, -1] + 1
            left = 1e-12 * abs(high) + high - total  # sums are rounded, and looked at below
            count = np.maximum(np.searchsorted(costs, left, "right") - after, 0)
            if count.sum() > MOST_HELD:
                return None
            at = np.repeat(np.arange(len(made)), count)
            new = np.arange(len(at)) + np.repeat(after - np.cumsum(count) + count, count)
            apart = np.all(unit[made[at]] != unit[new][:, None], axis=1)
            made = np.concatenate([made[at], new[:, None]], axis=1)[apart]
            total = (total[at] + costs[new])[apart]
        fine = (total > low) & (total <= high)
        return made[fine], total[fine]

    def _beam(self, size: int) -> _Found | None:
        """A change of the candidates that lead furthest, one after the other."""
        every, kept = np.arange(len(self.candidates.costs)), np.zeros((1, 0), np.int64)
        if not len(self.base):
            return None
        for number in range(size):
            if self._is_late():
                return None
            at, new = (each.reshape(-1) for each in np.meshgrid(np.arange(len(kept)), every))
            apart = np.all(self.candidates.unit[kept[at]] != self.candidates.unit[new][:, None], 1)
            made = np.concatenate([kept[at], new[:, None]], axis=1)[apart]
            outputs = self.row.run(len(made), self.candidates.changed(made))
            kept = made[np.argsort(-self.wanted.margins(outputs).min(axis=1))[:BEAM]]
            if number == size - 1:
                made = made[self.wanted.met(outputs)]
        costs = self.candidates.costs[made].sum(axis=1)
        order = np.argsort(costs)[:1]
        return self._first(self.candidates.changed(made[order]), costs[order])

    def _first(self, changed: Mapping[str, Any], costs: Numbers) -> _Found | None:
        """The first of these rows that has the wanted answer, as the plan says."""
        met = self._met(len(costs), changed)
        if not met.any():
            return None
        at = int(np.argmax(met))
        moved = {name: values[at] for name, values in changed.items()}
        moved = {n: value for n, value in moved.items() if value != self.row.values[n]}
        return _Found(float(costs[at]), moved)

    def _met(self, count: int, changed: Mapping[str, Any]) -> NDArray[np.bool_]:
        self.rows += count
        return self.wanted.met(self.row.run(count, changed))

    def _nearer(self, found: _Found) -> _Found:
        """The change with columns, of which only some values were tried, as near as can be."""
        changed, cost = dict(found.changed), found.cost
        for name in sorted(self.candidates.loose & changed.keys()):
            numbers, old = self.candidates.ranges[name], self.row.values[name]
            for _ in range(0 if math.isnan(old) else 12):
                close = abs(changed[name] - old) <= 1e-9 * max(1.0, abs(changed[name]))
                if close or self._is_late():
                    break
                line = np.linspace(old, changed[name], 65)[1:]
                line = np.round(line) if name in self.row.whole else line
                line = line.astype(self.row.dtype(name))
                others = {n: _copies(value, len(line)) for n, value in changed.items()}
                met = self._met(len(line), {**others, name: line})
                at = int(np.argmax(met)) if met.any() else len(line) - 1
                cost += float(numbers.costs(line[at]) - numbers.costs(changed[name]))
                changed[name], old = line[at], line[at - 1] if at else old
        return _Found(cost, changed)

    def _told(self, found: _Found | None) -> Counterfactual:
        """The answer, with what the plan says of the changed row."""
        changed = {} if found is None else found.changed
        block = self.row.copies(1, {name: _copies(value, 1) for name, value in changed.items()})
        after = self.row.plan.run_columns(block, 1)
        ranges = self.candidates.ranges.items()
        pairs = ((name, self.row.values[name], self.row.value_of(name, block)) for name in changed)
        moved = [each for each in pairs if not each[1] != each[1] != each[2] != each[2]]
        return Counterfactual(
            want=self.wanted.want,
            found=found is not None,
            proved=self.candidates.whole,
            outside=tuple(n for n, each in ranges if each.old < each.low or each.old > each.high),
            cost=0.0 if found is None else found.cost,
            changes=tuple(ChangedValue(*each) for each in moved),
            row=self.row.as_row(block),
            before={name: self.before[name][0] for name in self.wanted.told},
            after={name: after[name][0] for name in self.wanted.told},
        )


def _copies(value: str | float, count: int) -> NDArray[Any]:
    return objects([value] * count) if isinstance(value, str) else np.repeat(value, count)
