"""Tables as lists of rows, to be written as Markdown or HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bench.report.figures import OURS, Figures, geometric_mean, ratio, shown, spread, times
from bench.report.told import Place, behind
from bench.results import Record

#: Title of the first row of a table of ratios: our own figures, which the ratios refer to.
ITSELF = "{} itself"
#: Explains "±" in tables that have it.
SPREAD = "± is half the way from the lowest round to the highest."
_FOLDERS = re.compile(r"[^\s'\"(]*/(?=\.cache/)")


@dataclass(frozen=True)
class Table:
    """A table: title, explanation, column names, rows, and a conclusion."""

    title: str
    text: str
    columns: list[str]
    rows: list[list[str]]
    told: str = ""

    @property
    def words(self) -> str:
        """The text beside the table."""
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


Measured = Callable[[Figures, str, str], float | None]
"""A function from a run, a workload and a contestant to a figure; less is better."""


class Question(NamedTuple):
    """A table of ratios: the experiment, title, text, figure and unit."""

    experiment: str
    title: str
    text: str
    measured: Measured
    unit: str


def summary(figures: Figures, experiments: Collection[str] = (), base: str = OURS) -> list[Table]:
    """The main tables: of these experiments, or of all."""
    return [
        ratios(figures, each, base)
        for each in QUESTIONS
        if figures.workloads(each.experiment) and each.experiment in (experiments or _ASKED)
    ]


def ratios(figures: Figures, question: Question, base: str = OURS) -> Table:
    """Our figures, and the ratio of each contestant's to ours; the last column is the mean.

    `base` is which of ours: the same plans compiled for lesser processors are contestants, too.
    """
    workloads = figures.workloads(question.experiment)
    measured = [question.measured(figures, name, base) for name in workloads]
    if question.unit == "rows/s":
        measured = [None if each is None else 1 / each for each in measured]
    cells = ["–" if each is None else f"{shown(each)} {question.unit}" for each in measured]
    rows = [[ITSELF.format(figures.title(base)), *cells, ""]]
    places: list[Place] = []
    for who in figures.contestants(question.experiment):
        if who == base:
            continue
        by_workload = [_against(figures, question, name, who, base) for name in workloads]
        title = figures.title(who)
        rows.append([title, *map(times, by_workload), times(geometric_mean(by_workload))])
        pairs = zip(workloads, by_workload, strict=True)
        if not who.startswith(OURS):
            places += [(title, f"on {name.upper()}", by) for name, by in pairs if by is not None]
    columns = ["times ours", *(name.upper() for name in workloads), "geometric mean"]
    return Table(question.title, question.text, columns, rows, behind(places))


def extremes(table: Table) -> str:
    """The range of our own figures over the workloads of a table of ratios."""
    cells = [cell for cell in table.rows[0][1:-1] if cell != "–"]
    cells.sort(key=lambda cell: float(cell.split()[0].replace(",", "")))
    if not cells:
        return "–"
    unit = cells[0].split()[-1]
    ends = dict.fromkeys(cell.removesuffix(f" {unit}") for cell in (cells[0], cells[-1]))
    return f"{' to '.join(ends)} {unit}"


def _against(
    figures: Figures, question: Question, workload: str, who: str, base: str
) -> float | None:
    theirs, ours = (question.measured(figures, workload, each) for each in (who, base))
    return ratio(theirs, ours)


def peak(figures: Figures, workload: str, who: str, callers: int = 1) -> float | None:
    """The most rows a second over all sizes of blocks."""
    points = figures.points("batch_throughput", workload, who, f"rows_{callers}_callers")
    return max((rows for _, rows in points), default=None)


def added(figures: Figures, workload: str, who: str) -> float | None:
    """MiB that all pipelines add to the empty process; None if not all were loaded."""
    most = max(figures.places("memory", workload, "added"), default=None)
    return None if most is None else figures.value("memory", workload, who, "added", most)


def core_peak(figures: Figures, workload: str, who: str) -> float | None:
    """The most rows by a second of processor time over all sizes of blocks.

    A caller's rows a second would not do: threads of the contestant may help it.
    """
    points = figures.points("batch_throughput", workload, who, "cpu_1_callers")
    return max((1e6 / micros for _, micros in points if micros), default=None)


def _row_at_best(figures: Figures, workload: str, who: str) -> float | None:
    """Seconds of a core per row where these are the fewest."""
    best = core_peak(figures, workload, who)
    return None if best is None else 1 / best


def _value(experiment: str, metric: str) -> Measured:
    """The figure of a metric, unchanged."""
    return lambda figures, workload, who: figures.value(experiment, workload, who, metric)


_HOT = "One row, all pipelines, hot; above 1x ours is faster."
QUESTIONS = (
    Question("latency", "Latency of one row, median", _HOT, _value("latency", "hot_p50"), "µs"),
    Question(
        "latency",
        "Latency of one row, 99th percentile",
        f"{_HOT} Over all calls of all pipelines.",
        _value("latency", "hot_p99"),
        "µs",
    ),
    Question(
        "latency",
        "Latency of one row, 99th percentile of pipelines",
        f"{_HOT} The paper's figure: over pipelines, of the mean of each one's calls.",
        _value("latency", "hot_p99_of_means"),
        "µs",
    ),
    Question(
        "batch_throughput",
        "Rows a second on one core",
        "By processor time, at the best size of blocks; above 1x ours does more.",
        _row_at_best,
        "rows/s",
    ),
    Question(
        "memory",
        "Memory",
        "What all pipelines add to the process with nothing loaded; above 1x ours takes less.",
        added,
        "MiB",
    ),
    Question(
        "load_time",
        "Loading",
        "All pipelines from files in a fresh process, imports apart; above 1x ours is faster.",
        _value("load_time", "all"),
        "s",
    ),
    Question(
        "cost",
        "Cost",
        "Processor time of one row; above 1x ours takes less.",
        _value("cost", "cpu"),
        "µs",
    ),
)
_ASKED = frozenset(each.experiment for each in QUESTIONS)


def details(figures: Figures, workload: str) -> Table:
    """All figures of one workload in their units."""
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
    """The figures of a table: experiment, workload, and for a curve the metric."""

    experiment: str
    workload: str
    metric: str = ""


def curve(figures: Figures, title: str, about: str, asked: Asked, *, more: bool) -> Table:
    """A metric over x, one row for each contestant; with `more`, larger is better."""
    experiment, workload, metric = asked
    points = figures.places(experiment, workload, metric)
    records = {
        (each.contestant, each.x): each
        for each in figures.run.of(experiment, metric)
        if each.workload == workload
    }
    names = list(dict.fromkeys(who for who, _ in records))
    rows = [
        [figures.title(who), *(spread(records.get((who, point))) for point in points)]
        for who in names
    ]
    unit = next((each.unit for each in records.values()), "")
    text = f"{about} In {unit}; {'more' if more else 'less'} is better.".strip()
    columns = ["", *(f"{point:g}" for point in points)]
    return Table(title, text, columns, rows, _curve_told(figures, records, more=more))


def _curve_told(
    figures: Figures, records: Mapping[tuple[str, float | None], Record], *, more: bool
) -> str:
    """The points of a curve at which ours is behind."""
    places: list[Place] = []
    for (who, x), theirs in records.items():
        ours = records.get((OURS, x))
        if who == OURS or ours is None or x is None:
            continue
        pair = (ours.value, theirs.value) if more else (theirs.value, ours.value)
        by = ratio(*pair)
        if by is not None:
            places.append((figures.title(who), f"at {x:g}", by))
    return behind(places)


def plain(figures: Figures, title: str, about: str, asked: Asked) -> Table:
    """Metrics as columns, one row for each variant."""
    experiment, workload, _ = asked
    records = [each for each in figures.run.of(experiment) if each.workload == workload]
    metrics = list(dict.fromkeys((each.metric, each.unit) for each in records))
    rows = []
    for who in dict.fromkeys(each.contestant for each in records):
        cells = (spread(figures.find(experiment, workload, who, metric)) for metric, _ in metrics)
        rows.append([figures.title(who), *cells])
    columns = ["", *(f"{metric.replace('_', ' ')} ({unit})" for metric, unit in metrics)]
    return Table(title, about, columns, rows)


def absent(figures: Figures) -> Table:
    """Contestants that were left out, with reasons."""
    rows = [
        [figures.title(each.contestant), each.workload, _reason(each.note)]
        for each in figures.run.of("absent")
    ]
    text = "Who could not take part, or had to leave."
    return Table("Absent", text, ["", "workload", "reason"], rows)


def _reason(note: str) -> str:
    """The reason in one line, without folder names of this machine."""
    return _FOLDERS.sub("", " ".join(note.split()).replace("|", "/"))


def settings(figures: Figures) -> Table:
    """The settings and versions of all contestants."""
    texts = figures.run.about.get("settings", {})
    rows = [
        [figures.title(each.contestant), texts.get(each.contestant, ""), each.note]
        for each in figures.run.of("versions")
    ]
    return Table("Settings and versions", "", ["", "settings", "versions"], rows)
