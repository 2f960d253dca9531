"""The charts of a run: at least one for each question of the report."""

from __future__ import annotations

from bench.experiments.memory import UNSHARED
from bench.histogram import Histogram
from bench.report.dots import Row, dots
from bench.report.figures import Figures
from bench.report.svg import Axis, Series, chart
from bench.workload import NAMES


def plots(figures: Figures) -> dict[str, str]:
    """SVG texts by name, in the order of the report."""
    charts: dict[str, str] = {}
    for name in NAMES:
        charts[f"latency-{name}"] = _latency(figures, name, "hot")
        charts[f"cold-{name}"] = _latency(figures, name, "cold")
        charts[f"throughput-{name}"] = _throughput(figures, name)
        series = _series(figures, "memory", name, "pss")
        unshared = figures.points("memory", name, UNSHARED, "pss")
        series.append(Series(figures.title(UNSHARED), unshared, figures.number(UNSHARED)))
        title = f"{name.upper()}: memory of a process by pipelines loaded"
        charts[f"memory-{name}"] = chart(
            title, series, Axis("pipelines"), Axis("MiB, proportional set size")
        )
        charts[f"load-{name}"] = _load(figures, name)
        charts[f"waits-{name}"] = _waits(figures, name)
    charts["loading"] = _by_workload(figures, "load_time", "each", "Loading a pipeline", "ms each")
    charts["cost"] = _by_workload(figures, "cost", "cpu", "Processor time of one row", "µs")
    charts["ablations-row"] = _without(figures, "hot_p50", "a hot row, median", "µs")
    charts["ablations-load"] = _without(figures, "load", "loading", "s")
    metrics = ("p50", "p99")
    variants = dict.fromkeys(each.contestant for each in figures.run.of("reservation"))
    rows: list[Row] = [
        (name, [figures.value("reservation", "ac", name, metric) for metric in metrics])
        for name in variants
    ]
    title = "Blocks of one model while the others are overloaded"
    charts["reservation"] = dots(title, metrics, rows, Axis("ms", log=True))
    charts["http-rate"] = _http(figures, "rate", "requests a second", "requests/s")
    charts["http-p99"] = _http(figures, "p99", "99th percentile", "ms")
    for metric, text, unit in _SCALE:
        charts[f"scale-{metric.replace('_', '-')}"] = _scale(figures, metric, text, unit)
    return {name: text for name, text in charts.items() if text}


_SCALE = (
    ("load", "loading", "s"),
    ("added", "memory added", "MiB"),
    ("hot_p99", "one row, 99th percentile", "µs"),
)


def _series(figures: Figures, experiment: str, workload: str, metric: str) -> list[Series]:
    return [
        Series(
            figures.title(who),
            figures.points(experiment, workload, who, metric),
            figures.number(who),
        )
        for who in figures.contestants(experiment, workload)
    ]


def _latency(figures: Figures, workload: str, kind: str) -> str:
    """The distribution over all calls; time on a logarithmic axis."""
    series = []
    for who in figures.contestants("latency", workload):
        record = figures.find("latency", workload, who, f"{kind}_p50")
        if record is not None and record.histogram:
            curve = Histogram.of_json(record.histogram).curve()
            points = [(time / 1e3, 100 * share) for time, share in curve]
            series.append(Series(figures.title(who), points, figures.number(who)))
    title = f"{workload.upper()}: one row, {kind}, share of calls by time"
    return chart(title, series, Axis("µs", log=True), Axis("% of calls"))


def _throughput(figures: Figures, workload: str) -> str:
    series = _series(figures, "batch_throughput", workload, "rows_1_callers")
    title = f"{workload.upper()}: rows a second, one asking"
    return chart(title, series, Axis("rows in a block", log=True), Axis("rows/s", log=True))


def _load(figures: Figures, workload: str) -> str:
    series = _series(figures, "heavy_load", workload, "rows")
    title = f"{workload.upper()}: rows answered by load offered, in capacities of each"
    return chart(title, series, Axis("times the capacity"), Axis("rows/s", log=True))


def _waits(figures: Figures, workload: str) -> str:
    series = _series(figures, "heavy_load", workload, "single_p99")
    title = f"{workload.upper()}: 99th percentile of single rows by load offered"
    return chart(title, series, Axis("times the capacity"), Axis("ms", log=True))


def _by_workload(figures: Figures, experiment: str, metric: str, title: str, unit: str) -> str:
    """A dot for each workload."""
    names = figures.workloads(experiment)
    rows: list[Row] = [
        (
            figures.title(who),
            [figures.value(experiment, workload, who, metric) for workload in names],
        )
        for who in figures.contestants(experiment)
    ]
    return dots(title, [each.upper() for each in names], rows, Axis(unit, log=True))


def _without(figures: Figures, metric: str, text: str, unit: str) -> str:
    """Ours with one mechanism switched off."""
    names = figures.workloads("ablations")
    variants = dict.fromkeys(each.contestant for each in figures.run.of("ablations"))
    rows: list[Row] = [
        (variant, [figures.value("ablations", name, variant, metric) for name in names])
        for variant in variants
    ]
    series = [each.upper() for each in names]
    return dots(f"Ours with one mechanism off: {text}", series, rows, Axis(unit, log=True))


def _http(figures: Figures, metric: str, text: str, unit: str) -> str:
    connections = figures.places("end_to_end", "lin", metric)
    servers = dict.fromkeys(each.contestant for each in figures.run.of("end_to_end"))
    rows: list[Row] = [
        (
            figures.title(who),
            [figures.value("end_to_end", "lin", who, metric, count) for count in connections],
        )
        for who in servers
    ]
    series = [f"{count:g} open" for count in connections]
    return dots(f"Over HTTP, by connections: {text}", series, rows, Axis(unit, log=True))


def _scale(figures: Figures, metric: str, text: str, unit: str) -> str:
    series = _series(figures, "scale", "lin", metric)
    return chart(f"Small plans in one process: {text}", series, Axis("plans"), Axis(unit, log=True))
