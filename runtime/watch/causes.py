"""Input columns that explain a drift of what a plan computes.

A column of the window's rows is replaced by values of the reference, and the plan runs again: some
of the outputs' shift goes away. The same column is put into rows of the reference: some of the
shift comes. The mean of both is what this column explains; one alone would find nothing where two
columns move outputs against each other. That and the column's own drift make its score. A shift
that is only in how columns go together is explained by none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError
from oven import Plan
from runtime.watch.rows import Table, answers_of
from runtime.watch.statistics import Drift

#: PSI of a small shift: below it, a column's own drift counts little.
_SMALL = 0.1
#: What a column that drifts counts for, though the outputs do not depend on it.
_IDLE = 0.1
#: A shift of outputs is one if it is so many times that of reference rows drawn twice.
_NOISE = 2.0

Matrix = NDArray[np.float64]


class Cause(NamedTuple):
    """An input column, as a cause of a drift of outputs."""

    column: str
    score: float
    """From 0 to 1.1: what causes are ordered by."""
    drift: Drift
    explained: float | None
    """The part of the outputs' shift, or of the largest where shifts cancel; None if not known."""


def causes_of(
    drifts: Sequence[Drift],
    plan: Plan | None = None,
    reference: Table | None = None,
    window: Table | None = None,
    *,
    rows: int = 1000,
    seed: int = 0,
) -> list[Cause]:
    """The columns of these drifts, the top cause of what `plan` answers first.

    `reference` and `window` are rows by column, of which `rows` each are run for each column. A
    plan whose output is a step explains that step. Without rows, columns' own drift alone counts.
    """
    explained: dict[str, float] = {}
    if plan is not None and reference and window and _rows(reference) and _rows(window):
        explained = _explained(
            [each.column for each in drifts], plan, reference, window, rows, seed
        )
    found = [_cause(each, explained.get(each.column)) for each in drifts]
    return sorted(found, key=lambda each: (each.score, each.drift.score), reverse=True)


def _rows(table: Table) -> int:
    return len(next(iter(table.values())))


def _cause(drift: Drift, explained: float | None) -> Cause:
    moved = drift.score / (drift.score + _SMALL) if drift.score > 0 else 0.0
    return Cause(drift.column, moved * ((explained or 0.0) + _IDLE), drift, explained)


def _explained(
    names: list[str], plan: Plan, reference: Table, window: Table, rows: int, seed: int
) -> dict[str, float]:
    """Part of the outputs' shift that goes away with each column; empty if rows do not run."""
    rng = np.random.default_rng(seed)
    old, new, again = (_drawn(each, rows, rng) for each in (reference, window, reference))
    try:
        usual, control = answers_of(plan, old), answers_of(plan, again)
    except FlourError:
        return {}
    noise, shift = _shift(usual, control), _shifted(plan, usual, new)
    names = [name for name in names if name in old and name in new]
    found = {}
    for name in names:
        left = _shifted(plan, usual, {**new, name: again[name]})
        if shift is None:  # rows of the window are refused; are they without its values?
            found[name] = float(left is not None)
        else:
            alone = _shifted(plan, usual, {**again, name: new[name]}) or noise
            gone = shift - (shift if left is None else left)
            found[name] = max(0.0, (gone + alone - noise) / 2)
    whole = 1.0 if shift is None else max([shift - noise, *found.values()])
    if shift is not None and whole <= (_NOISE - 1) * noise:
        return dict.fromkeys(names, 0.0)
    return {name: each / whole for name, each in found.items()}


def _drawn(table: Table, rows: int, rng: np.random.Generator) -> Table:
    """Draw `rows` rows with replacement, so that columns have the same length in both tables."""
    places = rng.integers(0, len(next(iter(table.values()))), rows)
    return {name: values[places] for name, values in table.items()}


def _shifted(plan: Plan, usual: dict[str, Any], table: Table) -> float | None:
    """The distance of the answers from the usual ones; None if there are none."""
    try:
        return _shift(usual, answers_of(plan, table))
    except FlourError:
        return None


def _shift(old: dict[str, Any], new: dict[str, Any]) -> float:
    """The mean distance of sorted values, in spreads of the old ones, summed over columns."""
    numbers = [name for name in old if np.asarray(old[name]).dtype.kind == "f"]
    total = 0.0
    for name in numbers or old:
        before, after = (np.asarray(each[name]) for each in (old, new))
        before, after = before.reshape(len(before), -1), after.reshape(len(after), -1)
        if not numbers:
            kinds = np.unique(before.astype(str))
            before, after = ((each.astype(str) == kinds) for each in (before[:, :1], after[:, :1]))
        total += _distance(before.astype(np.float64), after.astype(np.float64))
    return total


def _distance(before: Matrix, after: Matrix) -> float:
    before, after = (np.sort(np.nan_to_num(each), axis=0) for each in (before, after))
    away = np.abs(before - after).mean(0)
    return float((away / np.maximum(before.std(0), 1e-9)).sum())
