"""A run as Markdown: the page of its own, and what goes into README and docs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import tables
from bench.report.figures import Figures
from bench.report.goals import goals
from bench.report.tables import Table

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
    return [
        tables.curve(
            figures,
            f"{name.upper()}: rows a second by size of block, {callers} asking",
            "batch_throughput",
            name,
            f"rows_{callers}_callers",
        )
        for name in figures.workloads("batch_throughput")
        for callers in (1, 2)
    ]


def _alone(figures: Figures) -> list[Table]:
    made = []
    for name in figures.workloads("ablations"):
        title = f"{name.upper()}: ours with one mechanism switched off"
        made.append(tables.plain(figures, title, "ablations", name))
    for name in figures.workloads("heavy_load"):
        for metric, text in (
            ("rows", "rows answered"),
            ("single_p99", "p99 of single rows"),
            ("blocks_p99", "p99 of blocks"),
        ):
            title = f"{name.upper()} under load, by capacities offered: {text}"
            made.append(tables.curve(figures, title, "heavy_load", name, metric))
    title = "Blocks of one model, while the others have twice what there is room for"
    made.append(tables.plain(figures, title, "reservation", "ac"))
    for metric, text in (("rate", "requests a second"), ("p50", "median"), ("p99", "p99")):
        title = f"Over HTTP, by connections: {text}"
        made.append(tables.curve(figures, title, "end_to_end", "lin", metric))
    for metric in ("load", "rss", "added", "hot_p50", "hot_p99", "cold_p99"):
        title = f"Thousands of small plans: {metric.replace('_', ' ')}"
        made.append(tables.curve(figures, title, "scale", "lin", metric))
    return made


def machine(figures: Figures) -> str:
    """What it was measured on, and when."""
    about = figures.run.about
    where = about.get("machine", {})
    packages = ", ".join(f"{name} {found}" for name, found in about.get("packages", {}).items())
    virtual = ", virtual" if where.get("virtual") else ""
    return (
        f"Measured on {str(where.get('when', '?'))[:10]} at commit {where.get('commit', '?')}: "
        f"{where.get('cpu', '?')}, {where.get('cores', '?')} cores{virtual}, "
        f"{where.get('memory', '?')}, {where.get('system', '?')}, clock governor "
        f"{where.get('governor', '?')}, load {where.get('load', '?')} at the start, "
        f"Python {where.get('python', '?')}, {packages}."
    )


def short(figures: Figures) -> str:
    """What goes into the README: the ratios of latency, throughput and memory."""
    wanted = ("Latency of one row, 99th percentile", "Rows a second on one core", "Memory")
    chosen = [each for each in tables.summary(figures) if each.title in wanted]
    parts = [f"**{each.title}.** {each.text}\n\n{_bare(each)}" for each in chosen]
    return "\n".join(["## Measured\n", *parts, f"{machine(figures)}\n"])


def _bare(table: Table) -> str:
    return Table("", "", table.columns, table.rows).markdown()


def put(path: Path, text: str) -> None:
    """Replace what stands between the marks of a file."""
    whole = path.read_text(encoding="utf-8")
    if BEGIN not in whole or END not in whole:
        raise LookupError(f"{path.name} has no place for it: {BEGIN} ... {END}")
    before, rest = whole.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
