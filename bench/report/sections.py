"""The sections of the report in order: each with its meaning, tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.report import tables
from bench.report.figures import Figures
from bench.report.goals import goals
from bench.report.tables import Asked, Table
from bench.report.together import together


@dataclass(frozen=True)
class Section:
    """A title, its meaning, tables, and the prefixes of its charts' names."""

    title: str
    means: str
    tables: list[Table]
    charts: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The anchor in links."""
        return self.title.lower().replace(" ", "-")


def sections(figures: Figures, parts: Sequence[Table] | None = None) -> list[Section]:
    """The sections of a run, without empty ones; `parts` are tables of separate measurements.

    Without parts, a note says how to measure them; None leaves the section out.
    """
    filled = [
        Section(
            title, means.replace("\n", " "), [each for each in find(figures) if each.rows], charts
        )
        for title, means, find, charts in _PARTS
    ]
    filled = [each for each in filled if each.tables]
    if parts is None:
        return filled
    means = (_MICRO if parts else _NO_MICRO).replace("\n", " ")
    return [*filled, Section("Part by part", means, list(parts))]


def _goals(figures: Figures) -> list[Table]:
    return [goals(figures)]


def _summary(*experiments: str) -> Callable[[Figures], list[Table]]:
    """The tables of ratios of these experiments."""
    return lambda figures: tables.summary(figures, experiments)


def _blocks(figures: Figures) -> list[Table]:
    about = "Blocks of so many rows, of all pipelines in turn."
    return tables.summary(figures, ("batch_throughput",)) + [
        tables.curve(
            figures,
            f"{name.upper()}: rows a second by size of block, {callers} asking",
            about,
            Asked("batch_throughput", name, f"rows_{callers}_callers"),
            more=True,
        )
        for name in figures.workloads("batch_throughput")
        for callers in (1, 2)
    ]


def _memory(figures: Figures) -> list[Table]:
    """The means, then curves over the number of pipelines for the paper's workloads."""
    return tables.summary(figures, ("memory",)) + [
        tables.curve(
            figures,
            f"{name.upper()}: {text} by pipelines loaded",
            "",
            Asked("memory", name, metric),
            more=False,
        )
        for name in figures.workloads("memory")
        if name in {"sa", "ac"}
        for metric, text in (("rss", "resident memory"), ("pss", "proportional set size"))
    ]


def _details(figures: Figures) -> list[Table]:
    return [
        together(figures),
        *(tables.details(figures, name) for name in figures.workloads("answers")),
    ]


def _ablations(figures: Figures) -> list[Table]:
    return [
        tables.plain(
            figures,
            f"{name.upper()}: ours with one mechanism switched off",
            "",
            Asked("ablations", name),
        )
        for name in figures.workloads("ablations")
    ]


#: Explanation of the table of late requests.
_LATE = (
    "In every wait above: a wait counts from when its request was due, and one thread sends all."
)


def _loaded(figures: Figures) -> list[Table]:
    """Under increasing load, up to twice the capacity."""
    return [
        tables.curve(
            figures,
            f"{name.upper()} under load, by capacities offered: {text}",
            _LATE if metric == "late_p99" else "",
            Asked("heavy_load", name, metric),
            more=metric in {"rows", "asked"},
        )
        for name in figures.workloads("heavy_load")
        for metric, text in (
            ("rows", "rows answered"),
            ("asked", "requests offered"),
            ("single_p99", "p99 of single rows"),
            ("blocks_p99", "p99 of blocks"),
            ("late_p99", "p99 of how late requests were sent"),
        )
    ]


def _reserved(figures: Figures) -> list[Table]:
    title = "Blocks of one model, while the others have twice what there is room for"
    return [tables.plain(figures, title, "", Asked("reservation", "ac"))]


def _entries(figures: Figures) -> list[Table]:
    return [
        tables.curve(
            figures,
            f"Over HTTP, by connections: {text}",
            "",
            Asked("end_to_end", "lin", metric),
            more=metric == "rate",
        )
        for metric, text in (
            ("rate", "requests a second"),
            *(("p50", "median"), ("p99", "p99"), ("p999", "p99.9")),
        )
    ]


def _thousands(figures: Figures) -> list[Table]:
    return [
        tables.curve(
            figures,
            f"Thousands of small plans: {metric.replace('_', ' ')}",
            "",
            Asked("scale", "lin", metric),
            more=False,
        )
        for metric in ("load", "rss", "added", "hot_p50", "hot_p99", "cold_p99")
    ]


def _participants(figures: Figures) -> list[Table]:
    return [tables.absent(figures), tables.settings(figures)]


_ONE_ROW = """\
The time of a call with one row, which is how services usually call. The median is the usual call.
The 99th percentile over all calls includes rows and pipelines that are not in the processor's
caches any more; that over pipelines' means, the paper's figure, shows whether some pipelines are
slow as a whole. The first call of each pipeline is in the charts called cold."""
_TOGETHER = """\
The throughput for blocks of rows. With one row the cost of a call dominates, with a thousand only
arithmetic and memory bandwidth. Threads of ours may help one who asks for a long block, so the
figures of one core are of processor time; those by size of block are of time on the clock."""
_ROOM = """\
How many pipelines fit into a machine. Parameters that pipelines share, such as SA's dictionaries,
are stored once with ours; if each has trees of its own, as in AC, only the form in which they are
stored makes a difference."""
_RESTART = "How long callers wait for a process that starts again."
_PRICE = """\
The processor time that is paid for on rented machines; the time of a library's own threads
counts."""
_UNITS = "The same figures in units, and the difference of answers from scikit-learn's."
_WORTH = "The value of a mechanism is what is lost without it."
_OVERLOAD = """\
What is answered when more is asked than can be done? Arrival times are fixed, and a wait counts
from the arrival of its request. Each contestant is offered multiples of its own capacity: the same
column is many more requests for a faster one."""
_RESERVED = "With an executor of its own a model should hardly be slowed down by the others."
_NETWORK = """\
Answers over the network. One row per request; a connection sends its next request after its last
answer. The echo computes nothing: its time is that of sockets, JSON and the client."""
_TENANTS = """\
A model for each of thousands of customers in one process: does it hold them, how soon does it
answer, and are calls slower with many models?"""
_MICRO = """\
Ratios of single parts, by `scripts/bench`. A column with a contestant's name is its time divided by
ours. Other columns are explained in each file."""
_NO_MICRO = """\
Ratios of single parts appear here once `scripts/bench` has measured them (some minutes); then
`python -m bench report` writes this page again."""
#: Title, what it means, its tables, its charts.
_PARTS: tuple[tuple[str, str, Callable[[Figures], list[Table]], tuple[str, ...]], ...] = (
    ("Goals", "", _goals, ()),
    ("One row", _ONE_ROW, _summary("latency"), ("latency-", "cold-")),
    ("Blocks", _TOGETHER, _blocks, ("throughput-",)),
    ("Memory", _ROOM, _memory, ("memory-",)),
    ("Loading", _RESTART, _summary("load_time"), ("loading",)),
    ("Cost", _PRICE, _summary("cost"), ("cost",)),
    ("Workloads", _UNITS, _details, ()),
    ("Mechanisms", _WORTH, _ablations, ("ablations",)),
    ("Load", _OVERLOAD, _loaded, ("load-", "waits-")),
    ("Reservation", _RESERVED, _reserved, ("reservation",)),
    ("HTTP", _NETWORK, _entries, ("http",)),
    ("Thousands", _TENANTS, _thousands, ("scale-",)),
    ("Who took part", "", _participants, ()),
)
