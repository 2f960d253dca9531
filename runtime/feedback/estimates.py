"""Estimates from weighted rows, with intervals, for all rows and by segment.

A row stands for `weight` rows. Intervals of shares are Wilson's for the effective number of rows,
those of means are of the normal distribution, that of the AUC is DeLong's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.watch.rows import Table
from runtime.watch.segments import Segments

Numbers = NDArray[np.float64]
#: Segments that are told apart.
_MOST = 1000


class Estimate(NamedTuple):
    """A value, and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FeedbackReport:
    """Counts, and estimates by segment; those of `()` are of all rows.

    `unknown` labels are of no chosen row; `unfit` counts labels that are no class of the version
    that answered, or no number: no estimate has them. `bias` is the mean of an answer less its
    label, or of the probability of the second class less its share; `coverage` is the share of
    labels inside of conformal intervals or sets.
    """

    chosen: int
    labels: int
    unknown: int
    rows: Mapping[tuple[str, ...], int]
    estimates: Mapping[tuple[str, ...], Mapping[str, Estimate]]
    unfit: Mapping[str, int] = field(default_factory=dict)

    def below(self, name: str, least: float) -> list[tuple[str, ...]]:
        """The segments where an estimate is surely below a bound: ("coverage", 0.9)."""
        every = self.estimates.items()
        return [each for each, found in every if name in found and found[name].high < least]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        segments = [
            {"segment": [*name], "rows": self.rows[name]}
            | {what: each._asdict() for what, each in found.items()}
            for name, found in self.estimates.items()
        ]
        counts = {"chosen": self.chosen, "labels": self.labels, "unknown": self.unknown}
        return {**counts, "unfit": {**self.unfit}, "segments": segments}

    def __str__(self) -> str:
        lines = [f"{self.chosen} rows chosen, {self.labels} labels, {self.unknown} of other rows"]
        if self.unfit:
            named = ", ".join(f"{name!r} ({count})" for name, count in [*self.unfit.items()][:8])
            lines.append(f"{sum(self.unfit.values())} labels are no answer of the model: {named}")
        for name, found in self.estimates.items():
            told = (f"{n} {e.value:.4g} ({e.low:.4g} to {e.high:.4g})" for n, e in found.items())
            lines.append(f"{', '.join(name) or 'all'}, {self.rows[name]} rows: {', '.join(told)}")
        return "\n".join(lines)


def by_segment(
    table: Table, segments: Sequence[str], level: float
) -> tuple[dict[tuple[str, ...], int], dict[tuple[str, ...], dict[str, Estimate]]]:
    """Rows and estimates of all rows of a table, and of each segment."""
    z, count = NormalDist().inv_cdf((1 + level) / 2), len(table["@weight"])
    masks = dict[tuple[str, ...], NDArray[np.bool_]]({(): np.ones(count, bool)})
    if segments:
        cells = Segments(segments, [*table], _MOST)
        cells.add(table)
        places = cells.cells_of(table)
        named = zip(cells.cells(), np.unique(places), strict=True)
        masks |= {cell.segment: places == place for cell, place in named}
    numbers = {
        name: each for name, each in table.items() if name in {*_WAYS, "@score", "@positive"}
    }
    found = {
        name: _estimates({n: e[mask] for n, e in numbers.items()}, table["@weight"][mask], z)
        for name, mask in masks.items()
    }
    return {name: int(mask.sum()) for name, mask in masks.items()}, found


def _estimates(values: Mapping[str, Numbers], weights: Numbers, z: float) -> dict[str, Estimate]:
    found = {n[1:]: _WAYS[n](each, weights, z) for n, each in values.items() if n in _WAYS}
    for name in found.keys() & {"log_loss", "brier", "mae"}:  # these are never negative
        found[name] = found[name]._replace(low=max(0.0, found[name].low))
    positive = values.get("@positive", np.zeros(0)) > 0
    if positive.any() and not positive.all():
        found["auc"] = auc(values["@score"], positive, weights, z)
    return found


def share(hits: Numbers, weights: Numbers, z: float) -> Estimate:
    """The share of hits, which are 1."""
    p, n = float(np.average(hits, weights=weights)), weights.sum() ** 2 / (weights**2).sum()
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    ends = ((p + z * z / (2 * n) + side) / (1 + z * z / n) for side in (-half, half))
    return Estimate(p, *(min(1.0, max(0.0, float(end))) for end in ends))


def mean(values: Numbers, weights: Numbers, z: float) -> Estimate:
    """The mean of values."""
    found = float(np.average(values, weights=weights))
    half = z * math.sqrt(_spread(values - found, weights))
    return Estimate(found, found - half, found + half)


def root(squares: Numbers, weights: Numbers, z: float) -> Estimate:
    """The root of the mean of squares."""
    return Estimate(*(math.sqrt(max(0.0, each)) for each in mean(squares, weights, z)))


def auc(scores: Numbers, positive: NDArray[np.bool_], weights: Numbers, z: float) -> Estimate:
    """The chance that a positive row has a higher score than another one."""
    above = _below(scores[positive], scores[~positive], weights[~positive])
    under = 1 - _below(scores[~positive], scores[positive], weights[positive])
    found = float(np.average(above, weights=weights[positive]))
    spread = _spread(above - found, weights[positive]) + _spread(under - found, weights[~positive])
    half = z * math.sqrt(spread)
    return Estimate(found, max(0.0, found - half), min(1.0, found + half))


def _spread(away: Numbers, weights: Numbers) -> float:
    """The variance of a weighted mean, by the distances from it."""
    few = len(away) / max(len(away) - 1, 1)
    return float(((weights * away) ** 2).sum() / weights.sum() ** 2) * few


def _below(values: Numbers, others: Numbers, weights: Numbers) -> Numbers:
    """By value the share of others below it; equal ones count half."""
    order = np.argsort(others)
    total = np.concatenate([[0.0], np.cumsum(weights[order])])
    left, right = (total[np.searchsorted(others[order], values, s)] for s in ("left", "right"))
    return np.asarray((left + right) / (2 * total[-1]))


_WAYS = {
    "@accuracy": share,
    "@coverage": share,
    "@log_loss": mean,
    "@brier": mean,
    "@mae": mean,
    "@rmse": root,
    "@bias": mean,
}
