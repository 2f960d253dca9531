"""What is computed from a run's records: looking figures up, ratios, geometric means."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bench.results import Read, Record
from bench.workload import NAMES

OURS = "pretzel"
#: Who is no contestant everywhere: ours in other ways, and what answers over HTTP.
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
    """A run, to be asked."""

    run: Read

    def find(
        self, experiment: str, workload: str, who: str, metric: str, x: float | None = None
    ) -> Record | None:
        """One figure."""
        for each in self.run.records:
            known = each.experiment, each.workload, each.contestant, each.metric
            if known == (experiment, workload, who, metric) and (x is None or each.x == x):
                return each
        return None

    def value(
        self, experiment: str, workload: str, who: str, metric: str, x: float | None = None
    ) -> float | None:
        """One figure's number."""
        found = self.find(experiment, workload, who, metric, x)
        return None if found is None else found.value

    def workloads(self, experiment: str) -> list[str]:
        """Those that were measured, in our order."""
        found = {each.workload for each in self.run.of(experiment)}
        return [name for name in NAMES if name in found]

    def contestants(self, experiment: str, workload: str | None = None) -> list[str]:
        """Those with figures, in the order of the run."""
        found = {
            each.contestant for each in self.run.of(experiment) if workload in {None, each.workload}
        }
        order = list(self.run.about.get("contestants", {}))
        return [name for name in order if name in found]

    def title(self, who: str) -> str:
        """What a contestant is called in tables."""
        titles = self.run.about.get("contestants", {})
        return str(titles.get(who) or _TITLES.get(who, who))

    def number(self, who: str) -> int:
        """A contestant's place among all, for its colour."""
        order = list(self.run.about.get("contestants", {}))
        return order.index(who) if who in order else len(order)

    def places(self, experiment: str, workload: str, metric: str) -> list[float]:
        """Where a curve has points."""
        found = {
            each.x
            for each in self.run.of(experiment, metric)
            if each.workload == workload and each.x is not None
        }
        return sorted(found)

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
    """How many times theirs is ours; None where one of them is missing."""
    if theirs is None or ours is None or ours <= 0 or theirs <= 0:
        return None
    return theirs / ours


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    return math.exp(sum(map(math.log, found)) / len(found))


def shown(value: float | None, digits: int = 3) -> str:
    """A number as a table shows it; a dash for none."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def spread(found: Record | None) -> str:
    """A figure as a table shows it, with half the way from its lowest round to its highest."""
    if found is None or found.value is None:
        return "–"
    text = shown(found.value)
    if found.samples < 2 or found.low is None or found.high is None or found.value <= 0:
        return text
    share = 50 * (found.high - found.low) / found.value
    return f"{text} ±{share:.0f}%"


def times(value: float | None) -> str:
    """A ratio as a table shows it."""
    return "–" if value is None else f"{shown(value)}x"
