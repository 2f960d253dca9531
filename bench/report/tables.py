"""Tables as lists of rows, to be written as Markdown or HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bench.report.figures import OURS, Figures, geometric_mean, ratio, shown, spread, times
from bench.report.told import Place, behind
from bench.results import Record

#: Said where it stands behind figures.
SPREAD = "± is half the way from the lowest round to the highest."
_FOLDERS = re.compile(r"[^\s'\"(]*/(?=\.cache/)")


@dataclass(frozen=True)
class Table:
    """A title, a sentence on how to read it, names of columns, rows, and what they come to."""

    title: str
    text: str
    columns: list[str]
    rows: list[list[str]]
    told: str = ""

    @property
    def words(self) -> str:
        """What stands beside it."""
        spread = SPREAD if any("±" in cell for row in self.rows for cell in row) else ""
        return " ".join(filter(None, (self.text, spread, self.told)))

    def markdown(self, level: int = 3) -> str:
        """As Markdown."""
        lines = [f"{'#' * level} {self.title}", ""] if self.title else []
        lines += [self.words, ""] if self.words else []
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
    rows: list[list[str]] = []
    places: list[Place] = []
    for who in others:
        found = [ratio(measured(name, who), measured(name, OURS)) for name in workloads]
        mean, name = times(geometric_mean(found)), figures.title(who)
        rows.append([name, *map(times, found), mean])
        places += [
            (name, f"on {load.upper()}", by)
            for load, by in zip(workloads, found, strict=True)
            if by is not None
        ]
    columns = ["times ours", *(name.upper() for name in workloads), "geometric mean"]
    return Table(title, text, columns, rows, behind(places))


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
        cells = [
            *(spread(figures.find("latency", workload, who, each)) for each in _LATENCIES),
            shown(peak(figures, workload, who)),
            shown(added(figures, workload, who)),
            spread(figures.find("load_time", workload, who, "all")),
        ]
        rows.append([figures.title(who), *cells, _difference(figures, workload, who)])
    return Table(workload.upper(), _about(figures, workload), columns, rows)


_LATENCIES = ("hot_p50", "hot_p99", "hot_worst", "cold_p99")


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


class Asked(NamedTuple):
    """Which figures a table is of: an experiment, a workload, and on a curve the metric."""

    experiment: str
    workload: str
    metric: str = ""


def curve(figures: Figures, title: str, about: str, asked: Asked, *, more: bool) -> Table:
    """A metric by where it was measured, one row for each contestant; `more` of it is better."""
    experiment, workload, metric = asked
    places = figures.places(experiment, workload, metric)
    known = {
        (each.contestant, each.x): each
        for each in figures.run.of(experiment, metric)
        if each.workload == workload
    }
    names = list(dict.fromkeys(who for who, _ in known))
    rows = [
        [figures.title(who), *(spread(known.get((who, place))) for place in places)]
        for who in names
    ]
    unit = next((each.unit for each in known.values()), "")
    text = f"{about} In {unit}; {'more' if more else 'less'} is better."
    columns = ["", *(f"{place:g}" for place in places)]
    return Table(title, text, columns, rows, _curve_told(figures, known, more=more))


def _curve_told(
    figures: Figures, known: Mapping[tuple[str, float | None], Record], *, more: bool
) -> str:
    """Where along a curve ours is behind."""
    found: list[Place] = []
    for (who, place), theirs in known.items():
        ours = known.get((OURS, place))
        if who == OURS or ours is None or place is None:
            continue
        pair = (ours.value, theirs.value) if more else (theirs.value, ours.value)
        by = ratio(*pair)
        if by is not None:
            found.append((figures.title(who), f"at {place:g}", by))
    return behind(found)


def plain(figures: Figures, title: str, about: str, asked: Asked) -> Table:
    """Metrics as columns, one row for each variant."""
    experiment, workload, _ = asked
    found = [each for each in figures.run.of(experiment) if each.workload == workload]
    metrics = list(dict.fromkeys((each.metric, each.unit) for each in found))
    rows = []
    for who in dict.fromkeys(each.contestant for each in found):
        cells = (spread(figures.find(experiment, workload, who, metric)) for metric, _ in metrics)
        rows.append([figures.title(who), *cells])
    columns = ["", *(f"{metric.replace('_', ' ')} ({unit})" for metric, unit in metrics)]
    return Table(title, about, columns, rows)


def absent(figures: Figures) -> Table:
    """Who took no part in what, and why."""
    rows = [
        [figures.title(each.contestant), each.workload, _reason(each.note)]
        for each in figures.run.of("absent")
    ]
    text = "Who could not take part, or had to leave."
    return Table("Absent", text, ["", "workload", "reason"], rows)


def _reason(note: str) -> str:
    """In one line, without the folders that are this machine's affair."""
    return _FOLDERS.sub("", " ".join(note.split()).replace("|", "/"))


def settings(figures: Figures) -> Table:
    """How everybody was set up."""
    known = figures.run.about.get("settings", {})
    rows = [
        [figures.title(each.contestant), known.get(each.contestant, ""), each.note]
        for each in figures.run.of("versions")
    ]
    return Table("Settings and versions", "", ["", "settings", "versions"], rows)
