"""A run as Markdown: the page of its own, and what goes into README and docs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import tables
from bench.report.figures import Figures
from bench.report.goals import goals
from bench.report.tables import Asked, Table

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def page(figures: Figures, parts: Sequence[Table] = ()) -> str:
    """The report as a page; `parts` are tables of what was measured apart from this run."""
    more = "".join(f"\n{each.markdown(2)}" for each in parts)
    return f"# Benchmarks\n\n{body(figures)}{more}"


def body(figures: Figures, level: int = 2) -> str:
    """Machine, method and every table."""
    parts = [machine(figures), str(figures.run.about.get("method", ""))]
    parts += [each.markdown(level) for each in every_table(figures)]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def every_table(figures: Figures) -> list[Table]:
    """In the order of the report; those without rows are left out."""
    made = [goals(figures), *tables.summary(figures)]
    made += [tables.details(figures, name) for name in figures.workloads("answers")]
    made += [*_blocks(figures), *_alone(figures)]
    made += [tables.absent(figures), tables.settings(figures)]
    return [each for each in made if each.rows]


def _blocks(figures: Figures) -> list[Table]:
    about = "Blocks of so many rows, of all pipelines in turn."
    return [
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


def _alone(figures: Figures) -> list[Table]:
    made = []
    for name in figures.workloads("ablations"):
        title = f"{name.upper()}: ours with one mechanism switched off"
        about = "What a mechanism is worth is what is lost without it."
        made.append(tables.plain(figures, title, about, Asked("ablations", name)))
    for name in figures.workloads("heavy_load"):
        made += _loaded(figures, name)
    title = "Blocks of one model, while the others have twice what there is room for"
    about = "With an executor of its own a model should hardly notice the others."
    made.append(tables.plain(figures, title, about, Asked("reservation", "ac")))
    for metric, text in (("rate", "requests a second"), ("p50", "median"), ("p99", "p99")):
        title = f"Over HTTP, by connections: {text}"
        about = "One row a request; a connection asks again once it is answered."
        asked = Asked("end_to_end", "lin", metric)
        made.append(tables.curve(figures, title, about, asked, more=metric == "rate"))
    for metric in ("load", "rss", "added", "hot_p50", "hot_p99", "cold_p99"):
        title = f"Thousands of small plans: {metric.replace('_', ' ')}"
        about = "So many plans in one process."
        made.append(tables.curve(figures, title, about, Asked("scale", "lin", metric), more=False))
    return made


def _loaded(figures: Figures, name: str) -> list[Table]:
    """Under more and more load, up to twice what there is room for."""
    about = "Requests come when they come, and a wait counts from when its request was due."
    return [
        tables.curve(
            figures,
            f"{name.upper()} under load, by capacities offered: {text}",
            about,
            Asked("heavy_load", name, metric),
            more=metric == "rows",
        )
        for metric, text in (
            ("rows", "rows answered"),
            ("single_p99", "p99 of single rows"),
            ("blocks_p99", "p99 of blocks"),
        )
    ]


def machine(figures: Figures) -> str:
    """What it was measured on, and when."""
    about = figures.run.about
    where = about.get("machine", {})
    packages = ", ".join(f"{name} {found}" for name, found in about.get("packages", {}).items())
    virtual = ", virtual" if where.get("virtual") else ""
    clock = f" at {float(where['mhz']):,.0f} MHz" if where.get("mhz") else ""
    return (
        f"Measured on {str(where.get('when', '?'))[:10]} at commit {where.get('commit', '?')}: "
        f"{where.get('cpu', '?')}{clock}, {where.get('cores', '?')} cores{virtual}, "
        f"{_memory(str(where.get('memory', '?')))}, {where.get('system', '?')}, clock governor "
        f"{where.get('governor', '?')}, load {where.get('load', '?')} at the start, "
        f"Python {where.get('python', '?')}, {packages}."
    )


def _memory(told: str) -> str:
    """What the machine has, in a unit for people."""
    number, _, unit = told.partition(" ")
    return f"{int(number) / 1024**2:.1f} GiB" if unit == "kB" and number.isdigit() else told


def short(figures: Figures) -> str:
    """What goes into the README: one table of means, and where ours is behind."""
    every = [each for each in tables.summary(figures) if each.title in _SHORT]
    names = dict.fromkeys(row[0] for each in every for row in each.rows)
    means = [{row[0]: row[-1] for row in each.rows} for each in every]
    rows = [[name, *(known.get(name, "–") for known in means)] for name in names]
    columns = ["", *(_SHORT[each.title] for each in every)]
    loads = ", ".join(_LOADS[name] for name in figures.workloads("latency"))
    text = (
        "How many times what ours takes others take, side by side in one run, as geometric mean "
        f"over the workloads each can run ({loads}). Above 1x ours is better."
    )
    lost = [f"{_SHORT[each.title]}: {each.told}" for each in every if "nowhere" not in each.told]
    whole = "[All figures](docs/performance.md), [how they are measured](docs/90-bench.md)."
    table = Table("Measured", text, columns, rows).markdown(2)
    return "\n".join([table, *(f"- {each}" for each in lost), "", f"{machine(figures)} {whole}"])


#: What of the summary is in the README, and what its columns are called there.
_SHORT = {
    "Latency of one row, median": "one row, median",
    "Latency of one row, 99th percentile": "one row, p99",
    "Rows a second on one core": "time of a block",
    "Memory": "memory",
    "Loading": "loading",
}
_LOADS = {
    "sa": "sentiment of text",
    "ac": "ensembles over numbers",
    "tab": "tables with categories",
    "lin": "linear models",
    "gbt": "boosted trees",
}


def put(path: Path, text: str) -> None:
    """Replace what stands between the marks of a file."""
    whole = path.read_text(encoding="utf-8")
    if BEGIN not in whole or END not in whole:
        raise LookupError(f"{path.name} has no place for it: {BEGIN} ... {END}")
    before, rest = whole.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
