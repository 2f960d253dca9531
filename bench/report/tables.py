"""Tables as lists of rows, to be written as Markdown or HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bench.report.figures import OURS, Figures, geometric_mean, ratio, shown, spread, times
from bench.report.told import Place, behind
from bench.results import Record

#: The row of a table of ratios that has no ratios: what everything is a multiple of.
ITSELF = "{} itself"
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


Measured = Callable[[Figures, str, str], float | None]
"""From a run, a workload and a contestant to a figure, in which less is better."""


class Question(NamedTuple):
    """What a table of ratios is about: an experiment, its title and text, the figure, its unit."""

    experiment: str
    title: str
    text: str
    measured: Measured
    unit: str


def summary(figures: Figures, experiments: Collection[str] = ()) -> list[Table]:
    """The tables everybody looks at first: of these experiments, or of all."""
    return [
        ratios(figures, each)
        for each in QUESTIONS
        if figures.workloads(each.experiment) and each.experiment in (experiments or _ASKED)
    ]


def ratios(figures: Figures, question: Question) -> Table:
    """Ours, and how many times as much everybody else needs; the last column is the mean."""
    workloads = figures.workloads(question.experiment)
    rows = [_ours(figures, question, workloads)]
    places: list[Place] = []
    for who in figures.contestants(question.experiment):
        if who == OURS:
            continue
        found = [_against(figures, question, name, who) for name in workloads]
        title = figures.title(who)
        rows.append([title, *map(times, found), times(geometric_mean(found))])
        pairs = zip(workloads, found, strict=True)
        places += [(title, f"on {name.upper()}", by) for name, by in pairs if by is not None]
    columns = ["times ours", *(name.upper() for name in workloads), "geometric mean"]
    return Table(question.title, question.text, columns, rows, behind(places))


def _ours(figures: Figures, question: Question, workloads: list[str]) -> list[str]:
    """What ours takes: the measure of the rows below."""
    found = [question.measured(figures, name, OURS) for name in workloads]
    if question.unit == "rows/s":
        found = [None if each is None else 1 / each for each in found]
    cells = ["–" if each is None else f"{shown(each)} {question.unit}" for each in found]
    return [ITSELF.format(figures.title(OURS)), *cells, ""]


def extremes(table: Table) -> str:
    """What ours takes on the workloads of a table of ratios: from the least to the most."""
    cells = [cell for cell in table.rows[0][1:-1] if cell != "–"]
    cells.sort(key=lambda cell: float(cell.split()[0].replace(",", "")))
    if not cells:
        return "–"
    unit = cells[0].split()[-1]
    ends = dict.fromkeys(cell.removesuffix(f" {unit}") for cell in (cells[0], cells[-1]))
    return f"{' to '.join(ends)} {unit}"


def _against(figures: Figures, question: Question, workload: str, who: str) -> float | None:
    theirs, ours = (question.measured(figures, workload, each) for each in (who, OURS))
    return ratio(theirs, ours)


def peak(figures: Figures, workload: str, who: str, callers: int = 1) -> float | None:
    """The most rows a second over all sizes of blocks."""
    points = figures.points("batch_throughput", workload, who, f"rows_{callers}_callers")
    return max((rows for _, rows in points), default=None)


def added(figures: Figures, workload: str, who: str) -> float | None:
    """MiB that all pipelines add to the empty process; None of who did not load them all."""
    most = max(figures.places("memory", workload, "added"), default=None)
    return None if most is None else figures.value("memory", workload, who, "added", most)


def _row_at_best(figures: Figures, workload: str, who: str) -> float | None:
    """Seconds for a row where there are most rows a second."""
    best = peak(figures, workload, who)
    return None if best is None else 1 / best


def _value(experiment: str, metric: str) -> Measured:
    """A figure as it was measured."""
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
        "The best over all sizes of blocks, one thread; above 1x ours does more.",
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
    text = f"{about} In {unit}; {'more' if more else 'less'} is better.".strip()
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
