"""A run as Markdown: the page of its own, and what goes into README and docs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from bench.report import tables
from bench.report.figures import Figures
from bench.report.sections import Section, sections
from bench.report.tables import Table

#: The folder of charts beside a page.
CHARTS = "charts"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def page(figures: Figures, parts: Sequence[Table] = ()) -> str:
    """The report as a page; `parts` are tables of what was measured apart from this run."""
    return f"# Benchmarks\n\n{body(figures, parts=parts)}"


def body(
    figures: Figures,
    level: int = 2,
    parts: Sequence[Table] | None = None,
    charts: Collection[str] = (),
) -> str:
    """Machine, method and every section; without `parts`, none for them.

    The charts are those that lie in a folder beside the page, by their names.
    """
    said = [machine(figures), str(figures.run.about.get("method", ""))]
    said += [_section(each, level, charts) for each in sections(figures, parts)]
    return "\n\n".join(part.rstrip("\n") for part in said if part) + "\n"


def _section(section: Section, level: int, charts: Collection[str]) -> str:
    """Its title, what it means, its charts, and its tables one level below."""
    said = [f"{'#' * level} {section.title}", section.means]
    drawn = [name for name in charts if name.startswith(section.charts)]
    said.append("\n".join(f"![{name}]({CHARTS}/{name}.svg)" for name in drawn))
    said += [_untitled(each, section).markdown(level + 1) for each in section.tables]
    return "\n\n".join(part.rstrip("\n") for part in said if part)


def _untitled(table: Table, section: Section) -> Table:
    """Without a title that the section has already."""
    return replace(table, title="") if table.title == section.title else table


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
    every = [each for each in tables.summary(figures) if each.title in MEANS]
    means = [{row[0]: row[-1] for row in each.rows if row[-1]} for each in every]
    names = dict.fromkeys(name for known in means for name in known)
    rows = [["Pretzel itself", "", *map(tables.extremes, every)]]
    rows += [
        [name, _where(every, name), *(known.get(name, "–") for known in means)] for name in names
    ]
    columns = ["times ours", "measured on", *(MEANS[each.title] for each in every)]
    lost = [
        f"{MEANS[each.title].capitalize()}: {each.told.replace('Ours', 'Pretzel')}"
        for each in every
        if "nowhere" not in each.told
    ]
    whole = "[All figures](docs/performance.md), [how they are measured](docs/90-bench.md)."
    table = Table("Measured", _reading(figures), columns, rows).markdown(2)
    return "\n".join([table, *(f"- {each}" for each in lost), "", f"{machine(figures)} {whole}"])


def _reading(figures: Figures) -> str:
    """How to read the table, for a reader who has seen nothing else of the bench."""
    counts = {each["name"]: each["count"] for each in figures.run.about.get("specs", [])}
    loads = ", ".join(
        f"{name.upper()}: {counts.get(name, '?')} {_LOADS[name]}"
        for name in figures.workloads("latency")
    )
    return (
        "The first row is what Pretzel takes, from the fastest workload to the slowest. The other "
        "rows are ratios: what a contestant takes, divided by what Pretzel takes, so 10x means ten "
        "times as slow, or ten times as much memory; below 1x, Pretzel takes more. All contestants "
        "were measured side by side in one run. A ratio is the geometric mean over the workloads "
        f"named in its row ({loads}). Memory is what all pipelines of a workload add to a process; "
        "loading is the time to load all of them from files in a new process."
    )


def _where(every: Sequence[Table], name: str) -> str:
    """The workloads of a row; all of them are called so."""
    columns = every[0].columns[1:-1]
    row = next((row for each in every for row in each.rows if row[0] == name), [])
    known = [column for column, cell in zip(columns, row[1:], strict=False) if cell != "–"]
    return "all" if len(known) == len(columns) else ", ".join(known)


#: Of which tables the means stand at the top and in the README, and what they are called there.
MEANS = {
    "Latency of one row, median": "one row, median",
    "Latency of one row, 99th percentile": "one row, 99th percentile",
    "Rows a second on one core": "rows in blocks",
    "Memory": "memory",
    "Loading": "loading",
}
_LOADS = {
    "sa": "pipelines that score the sentiment of texts",
    "ac": "with trees over the outputs of other models",
    "tab": "over tables with missing values and categories",
    "lin": "linear",
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
