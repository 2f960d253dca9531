"""Which charts a run gives: memory, latency, throughput, load."""

from __future__ import annotations

from bench.histogram import Histogram
from bench.report.figures import Figures
from bench.report.svg import Axis, Series, chart
from bench.workload import NAMES


def plots(figures: Figures) -> dict[str, str]:
    """SVG texts by name, in the order of the report."""
    made: dict[str, str] = {}
    for name in NAMES:
        made[f"memory-{name}"] = _memory(figures, name)
        made[f"latency-{name}"] = _latency(figures, name, "hot")
        made[f"cold-{name}"] = _latency(figures, name, "cold")
        made[f"throughput-{name}"] = _throughput(figures, name)
        made[f"load-{name}"] = _load(figures, name)
    return {name: text for name, text in made.items() if text}


def _series(figures: Figures, experiment: str, workload: str, metric: str) -> list[Series]:
    return [
        Series(figures.title(who), figures.points(experiment, workload, who, metric))
        for who in figures.contestants(experiment, workload)
    ]


def _memory(figures: Figures, workload: str) -> str:
    series = _series(figures, "memory", workload, "pss")
    title = f"{workload.upper()}: memory of a process by pipelines loaded"
    return chart(title, series, Axis("pipelines"), Axis("MiB, proportional set size"))


def _latency(figures: Figures, workload: str, kind: str) -> str:
    """The distribution over all calls; time by its logarithm."""
    series = []
    for who in figures.contestants("latency", workload):
        found = figures.find("latency", workload, who, f"{kind}_p50")
        if found is not None and found.histogram:
            curve = Histogram.of_json(found.histogram).curve()
            points = [(time / 1e3, 100 * share) for time, share in curve]
            series.append(Series(figures.title(who), points))
    title = f"{workload.upper()}: one row, {kind}, share of calls by time"
    return chart(title, series, Axis("µs", log=True), Axis("% of calls"))


def _throughput(figures: Figures, workload: str) -> str:
    series = _series(figures, "batch_throughput", workload, "rows_1_callers")
    title = f"{workload.upper()}: rows a second on one core"
    return chart(title, series, Axis("rows in a block", log=True), Axis("rows/s", log=True))


def _load(figures: Figures, workload: str) -> str:
    series = _series(figures, "heavy_load", workload, "answered")
    title = f"{workload.upper()}: answered by load offered, in capacities of each"
    return chart(title, series, Axis("times the capacity"), Axis("requests/s", log=True))
