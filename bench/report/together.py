"""The paper's two workloads as one population: every pipeline of SA and AC has the same weight."""

from __future__ import annotations

from collections.abc import Sequence

from bench.histogram import Histogram
from bench.report.figures import Figures, shown
from bench.report.tables import Table, added

PAIR = ("sa", "ac")


def together(figures: Figures) -> Table:
    """Contestants with both workloads: times over all pipelines, sums of memory and loading."""
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
    """A percentile of several weighted distributions."""
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


def _parts(histogram: Histogram) -> list[tuple[float, float]]:
    """Times, with the share of the calls that took each."""
    curve = histogram.curve()
    before = [0.0, *(share for _, share in curve)]
    return [(time, share - last) for (time, share), last in zip(curve, before, strict=False)]


def _times(figures: Figures, who: str, kind: str) -> list[tuple[Histogram, float]]:
    """The distributions of both workloads, weighted by pipelines; empty if one is missing."""
    distributions = []
    for name in PAIR:
        record = figures.find("latency", name, who, f"{kind}_p50")
        if record is None or not record.histogram:
            return []
        distributions.append((Histogram.of_json(record.histogram), _count(figures, name)))
    return distributions


def _count(figures: Figures, workload: str) -> float:
    counts = {each["name"]: each["count"] for each in figures.run.about.get("specs", [])}
    return float(counts.get(workload, 1))


def _three(distributions: Sequence[tuple[Histogram, float]]) -> list[float]:
    """Median, 99th percentile and worst in microseconds."""
    worst = max(each.most for each, _ in distributions)
    return [
        percentile(distributions, 0.5) / 1e3,
        percentile(distributions, 0.99) / 1e3,
        worst / 1e3,
    ]


def _sum(values: Sequence[float | None]) -> float | None:
    present = [each for each in values if each is not None]
    return sum(present) if len(present) == len(values) else None
