"""Computations on a run's records: look-ups, ratios, geometric means."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bench.results import Read, Record
from bench.workload import NAMES

OURS = "pretzel"
#: Titles of those that are not contestants in all experiments: variants of ours, and servers.
_TITLES = {
    "pretzel_unshared": "Pretzel, no object store",
    "echo": "bare echo",
    "bentoml": "BentoML",
    "litserve": "LitServe",
    "mlserver": "MLServer",
    "rayserve": "Ray Serve",
}


@dataclass(frozen=True)
class Figures:
    """Look-ups in a run."""

    run: Read

    def find(
        self, experiment: str, workload: str, who: str, metric: str, x: float | None = None
    ) -> Record | None:
        """The record of one figure, None if there is none."""
        for each in self.run.records:
            key = each.experiment, each.workload, each.contestant, each.metric
            if key == (experiment, workload, who, metric) and (x is None or each.x == x):
                return each
        return None

    def value(
        self, experiment: str, workload: str, who: str, metric: str, x: float | None = None
    ) -> float | None:
        """The number of one figure."""
        record = self.find(experiment, workload, who, metric, x)
        return None if record is None else record.value

    def workloads(self, experiment: str) -> list[str]:
        """The measured workloads, in the usual order."""
        measured = {each.workload for each in self.run.of(experiment)}
        return [name for name in NAMES if name in measured]

    def contestants(self, experiment: str, workload: str | None = None) -> list[str]:
        """The contestants with figures, in the order of the run."""
        measured = {
            each.contestant for each in self.run.of(experiment) if workload in {None, each.workload}
        }
        return [name for name in self.run.about.get("contestants", {}) if name in measured]

    def title(self, who: str) -> str:
        """A contestant's title in tables."""
        return str(self.run.about.get("contestants", {}).get(who) or _TITLES.get(who, who))

    def number(self, who: str) -> int:
        """A contestant's index among all, for its colour."""
        order = list(self.run.about.get("contestants", {}))
        return order.index(who) if who in order else len(order)

    def places(self, experiment: str, workload: str, metric: str) -> list[float]:
        """The x values of a curve."""
        xs = {
            each.x
            for each in self.run.of(experiment, metric)
            if each.workload == workload and each.x is not None
        }
        return sorted(xs)

    def points(
        self, experiment: str, workload: str, who: str, metric: str
    ) -> list[tuple[float, float]]:
        """One contestant's curve."""
        return sorted(
            (each.x, each.value)
            for each in self.run.of(experiment, metric)
            if each.workload == workload and each.contestant == who
            if each.x is not None and each.value is not None
        )


def ratio(theirs: float | None, ours: float | None) -> float | None:
    """Theirs divided by ours; None if one is missing."""
    if theirs is None or ours is None or ours <= 0 or theirs <= 0:
        return None
    return theirs / ours


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the values that are not None."""
    present = [value for value in values if value is not None]
    return None if not present else math.exp(sum(map(math.log, present)) / len(present))


def shown(value: float | None, digits: int = 3) -> str:
    """A number for a table; a dash for None."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def spread(found: Record | None) -> str:
    """A figure for a table, with half the range of its rounds."""
    if found is None or found.value is None:
        return "–"
    text = shown(found.value)
    if found.samples < 2 or found.low is None or found.high is None or found.value <= 0:
        return text
    share = 50 * (found.high - found.low) / found.value
    return f"{text} ±{share:.0f}%"


def times(value: float | None) -> str:
    """A ratio for a table."""
    return "–" if value is None else f"{shown(value)}x"
