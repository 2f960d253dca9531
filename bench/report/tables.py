"""Tables as lists of rows, to be written as Markdown or HTML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.report.figures import OURS, Figures, geometric_mean, ratio, shown, times


@dataclass(frozen=True)
class Table:
    """A title, a sentence on how to read it, names of columns, rows."""

    title: str
    text: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self, level: int = 3) -> str:
        """As Markdown."""
        lines = [f"{'#' * level} {self.title}", "", self.text, ""] if self.title else []
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|---" * len(self.columns) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"


Measured = Callable[[str, str], float | None]
"""From (workload, contestant) to a figure, in which less is better."""


def ratios(figures: Figures, title: str, text: str, experiment: str, measured: Measured) -> Table:
    """Ours, and how many times as much everybody else needs; the last column is the mean."""
    workloads = figures.workloads(experiment)
    others = [name for name in figures.contestants(experiment) if name != OURS]
    rows = []
    for who in others:
        found = [ratio(measured(name, who), measured(name, OURS)) for name in workloads]
        mean = times(geometric_mean(found))
        rows.append([figures.title(who), *map(times, found), mean])
    columns = ["times ours", *(name.upper() for name in workloads), "geometric mean"]
    return Table(title, text, columns, rows)


def summary(figures: Figures) -> list[Table]:
    """The tables everybody looks at first."""
    made = []
    if figures.workloads("latency"):
        made += _latency(figures)
    if figures.workloads("batch_throughput"):
        made.append(_throughput(figures))
    if figures.workloads("memory"):
        made.append(_memory(figures))
    if figures.workloads("load_time"):
        made.append(_loading(figures))
    if figures.workloads("cost"):
        made.append(_cost(figures))
    return made


def _latency(figures: Figures) -> list[Table]:
    made = []
    for metric, name in (("hot_p50", "median"), ("hot_p99", "99th percentile")):
        text = "One row, all pipelines, hot; above 1x ours is faster."
        found = ratios(
            figures,
            f"Latency of one row, {name}",
            text,
            "latency",
            lambda load, who, metric=metric: figures.value("latency", load, who, metric),  # type: ignore[misc]
        )
        made.append(found)
    return made


def _throughput(figures: Figures) -> Table:
    def needed(workload: str, who: str) -> float | None:
        best = peak(figures, workload, who)
        return None if best is None else 1 / best

    text = "The best over all sizes of blocks, one thread; above 1x ours does more."
    return ratios(figures, "Rows a second on one core", text, "batch_throughput", needed)


def peak(figures: Figures, workload: str, who: str, callers: int = 1) -> float | None:
    """The most rows a second over all sizes of blocks."""
    points = figures.points("batch_throughput", workload, who, f"rows_{callers}_callers")
    return max((rows for _, rows in points), default=None)


def _memory(figures: Figures) -> Table:
    text = "What all pipelines add to the process with nothing loaded; above 1x ours takes less."
    return ratios(figures, "Memory", text, "memory", lambda load, who: added(figures, load, who))


def added(figures: Figures, workload: str, who: str) -> float | None:
    """MiB that all pipelines add to the empty process."""
    points = figures.points("memory", workload, who, "added")
    return points[-1][1] if points else None


def _loading(figures: Figures) -> Table:
    text = "All pipelines from files in a fresh process, imports apart; above 1x ours is faster."
    return ratios(
        figures,
        "Loading",
        text,
        "load_time",
        lambda load, who: figures.value("load_time", load, who, "all"),
    )


def _cost(figures: Figures) -> Table:
    text = "Processor time of one row; above 1x ours takes less."
    return ratios(
        figures,
        "Cost",
        text,
        "cost",
        lambda load, who: figures.value("cost", load, who, "cpu"),
    )


def details(figures: Figures, workload: str) -> Table:
    """Everything of one workload in the units it was measured in."""
    columns = [
        "",
        "p50 µs",
        "p99 µs",
        "worst µs",
        "cold p99 µs",
        "rows/s at best",
        "added MiB",
        "load s",
        "largest difference",
    ]
    rows = []
    for who in figures.contestants("latency", workload) or figures.contestants("memory", workload):
        numbers = [
            *(figures.value("latency", workload, who, f"hot_{each}") for each in _HOT),
            figures.value("latency", workload, who, "cold_p99"),
            peak(figures, workload, who),
            added(figures, workload, who),
            figures.value("load_time", workload, who, "all"),
        ]
        rows.append([figures.title(who), *map(shown, numbers), _difference(figures, workload, who)])
    return Table(workload.upper(), _about(figures, workload), columns, rows)


_HOT = ("p50", "p99", "worst")


def _difference(figures: Figures, workload: str, who: str) -> str:
    found = figures.find("answers", workload, who, "worst")
    if found is None:
        return "–"
    return f"{shown(found.value, 2)}{f' **({found.note})**' if found.note else ''}"


def _about(figures: Figures, workload: str) -> str:
    for spec in figures.run.about.get("specs", []):
        if spec["name"] == workload:
            return f"{spec['count']} pipelines, scale {spec['scale']:g}, seed {spec['seed']}."
    return ""


def curve(figures: Figures, title: str, experiment: str, workload: str, metric: str) -> Table:
    """A metric by where it was measured, one row for each contestant."""
    places = figures.places(experiment, workload, metric)
    names = list(
        dict.fromkeys(
            each.contestant
            for each in figures.run.of(experiment, metric)
            if each.workload == workload
        )
    )
    rows = []
    for who in names:
        known = dict(figures.points(experiment, workload, who, metric))
        rows.append([figures.title(who), *(shown(known.get(place)) for place in places)])
    unit = next((each.unit for each in figures.run.of(experiment, metric)), "")
    return Table(title, f"In {unit}.", ["", *(f"{place:g}" for place in places)], rows)


def plain(figures: Figures, title: str, experiment: str, workload: str) -> Table:
    """Metrics as columns, one row for each variant."""
    found = [each for each in figures.run.of(experiment) if each.workload == workload]
    metrics = list(dict.fromkeys((each.metric, each.unit) for each in found))
    rows = []
    for who in dict.fromkeys(each.contestant for each in found):
        values = (figures.value(experiment, workload, who, metric) for metric, _ in metrics)
        rows.append([figures.title(who), *map(shown, values)])
    columns = ["", *(f"{metric.replace('_', ' ')} ({unit})" for metric, unit in metrics)]
    return Table(title, "", columns, rows)


def absent(figures: Figures) -> Table:
    """Who took no part in what, and why."""
    rows = [
        [
            figures.title(each.contestant),
            each.workload,
            " ".join(each.note.split()).replace("|", "/"),
        ]
        for each in figures.run.of("absent")
    ]
    return Table(
        "Absent", "Who could not take part, or had to leave.", ["", "workload", "reason"], rows
    )


def settings(figures: Figures) -> Table:
    """How everybody was set up."""
    known = figures.run.about.get("settings", {})
    rows = [
        [figures.title(each.contestant), known.get(each.contestant, ""), each.note]
        for each in figures.run.of("versions")
    ]
    return Table("Settings and versions", "", ["", "settings", "versions"], rows)
