"""The paper's two workloads as one population: every pipeline of SA and AC counts as much."""

from __future__ import annotations

from collections.abc import Sequence

from bench.histogram import Histogram
from bench.report.figures import Figures, shown
from bench.report.tables import Table, added

PAIR = ("sa", "ac")


def together(figures: Figures) -> Table:
    """Who has answered both: times of a row over all of them, memory and loading in sum."""
    rows = []
    for who in figures.contestants("latency"):
        hot, cold = (_times(figures, who, kind) for kind in ("hot", "cold"))
        memory = [added(figures, name, who) for name in PAIR]
        loading = [figures.value("load_time", name, who, "all") for name in PAIR]
        if hot and cold:
            cells = [*_three(hot), *_three(cold), *map(_sum, (memory, loading))]
            rows.append([figures.title(who), *map(shown, cells)])
    count = sum(_count(figures, name) for name in PAIR)
    columns = [f"{kind} {what} µs" for kind in ("hot", "cold") for what in ("p50", "p99", "worst")]
    text = "Times are over all pipelines, each with the same weight; memory and loading are sums."
    title = f"SA and AC together, {count:g} pipelines"
    return Table(title, text, ["", *columns, "added MiB", "load s"], rows)


def percentile(found: Sequence[tuple[Histogram, float]], share: float) -> float:
    """Of several distributions with weights, each spread over its own calls."""
    whole = sum(weight for _, weight in found)
    steps = sorted(
        (time, weight * part / whole) for each, weight in found for time, part in _parts(each)
    )
    seen = 0.0
    for time, part in steps:
        seen += part
        if seen >= share - 1e-9:
            return time
    return steps[-1][0]


def _parts(found: Histogram) -> list[tuple[float, float]]:
    """Times, and what share of the calls took each."""
    curve = found.curve()
    before = [0.0, *(share for _, share in curve)]
    return [(time, share - last) for (time, share), last in zip(curve, before, strict=False)]


def _times(figures: Figures, who: str, kind: str) -> list[tuple[Histogram, float]]:
    """The distributions of both workloads, by their pipelines; nothing if one is missing."""
    made = []
    for name in PAIR:
        found = figures.find("latency", name, who, f"{kind}_p50")
        if found is None or not found.histogram:
            return []
        made.append((Histogram.of_json(found.histogram), _count(figures, name)))
    return made


def _count(figures: Figures, workload: str) -> float:
    known = {each["name"]: each["count"] for each in figures.run.about.get("specs", [])}
    return float(known.get(workload, 1))


def _three(found: Sequence[tuple[Histogram, float]]) -> list[float]:
    """Median, 99th percentile and worst in microseconds."""
    worst = max(each.most for each, _ in found)
    return [percentile(found, 0.5) / 1e3, percentile(found, 0.99) / 1e3, worst / 1e3]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None
