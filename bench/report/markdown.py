"""A run as Markdown: a page of its own, and the parts for the docs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.report import tables
from bench.report.figures import Figures
from bench.report.sections import Section, sections
from bench.report.tables import Table

#: The folder of charts, as a page in a folder of docs names it.
CHARTS = "../charts"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def page(figures: Figures, parts: Sequence[Table] = ()) -> str:
    """The report as a page; `parts` are tables of separate measurements."""
    return f"# Benchmarks\n\n{body(figures, parts=parts)}"


def body(
    figures: Figures,
    level: int = 2,
    parts: Sequence[Table] | None = None,
    charts: Collection[str] = (),
) -> str:
    """Machine, method and every section; without `parts`, none for them.

    `charts` are names of charts in that folder.
    """
    said = [machine(figures), str(figures.run.about.get("method", ""))]
    said += [_section(each, level, charts) for each in sections(figures, parts)]
    return "\n\n".join(part.rstrip("\n") for part in said if part) + "\n"


def _section(section: Section, level: int, charts: Collection[str]) -> str:
    """A section: title, meaning, charts, and tables one level below."""
    said = [f"{'#' * level} {section.title}", section.means]
    drawn = [name for name in charts if name.startswith(section.charts)]
    said.append("\n".join(f"![{name}]({CHARTS}/{name}.svg)" for name in drawn))
    said += [_untitled(each, section).markdown(level + 1) for each in section.tables]
    return "\n\n".join(part.rstrip("\n") for part in said if part)


def _untitled(table: Table, section: Section) -> Table:
    """The table without its title, if the section has the same."""
    return replace(table, title="") if table.title == section.title else table


def machine(figures: Figures) -> str:
    """The machine and the date of the run."""
    return machine_of(figures.run.about)


def machine_of(about: Mapping[str, Any]) -> str:
    """The same, from the first line of a run."""
    where = about.get("machine", {})
    packages = ", ".join(f"{name} {version}" for name, version in about.get("packages", {}).items())
    virtual = ", virtual" if where.get("virtual") else ""
    clock = f" at {float(where['mhz']):,.0f} MHz" if where.get("mhz") else ""
    vectors = f" with {where['vectors']}" if where.get("vectors") else ""
    return (
        f"Measured on {str(where.get('when', '?'))[:10]} at commit {where.get('commit', '?')}: "
        f"{where.get('cpu', '?')}{clock}{vectors}, "
        f"{where.get('cores', '?')} cores{virtual}, "
        f"{_memory(str(where.get('memory', '?')))}, {where.get('system', '?')}, "
        f"{_governor(where)}load {where.get('load', '?')} at the start, "
        f"Python {where.get('python', '?')}, {packages}."
    )


def _governor(where: Mapping[str, Any]) -> str:
    """The processor's governor of clocks, if the machine has told it."""
    governor = where.get("governor", "not told")
    return "" if governor == "not told" else f"clock governor {governor}, "


def _memory(text: str) -> str:
    """The machine's memory in GiB."""
    number, _, unit = text.partition(" ")
    return f"{int(number) / 1024**2:.1f} GiB" if unit == "kB" and number.isdigit() else text


def short(figures: Figures) -> str:
    """The part for the summary: one table of means, and where ours is behind."""
    every = [each for each in tables.summary(figures) if each.title in MEANS]
    shown = [*_beside_lesser(figures, every)]
    means = [{row[0]: row[-1] for row in each.rows if row[-1]} for each, _ in shown]
    names = dict.fromkeys(name for column in means for name in column if "Pretzel" not in name)
    rows = [["Pretzel itself", "", *(tables.extremes(each) for each, _ in shown)]]
    rows += [
        [name, _where(every, name), *(column.get(name, "–") for column in means)] for name in names
    ]
    columns = ["times ours", "measured on", *(title for _, title in shown)]
    lost = [
        f"{MEANS[each.title].capitalize()}: {each.told.replace('Ours', 'Pretzel')}"
        for each in every
        if "nowhere" not in each.told
    ]
    whole = (
        "[All figures](../contributing/performance.md), "
        "[how they are measured](../contributing/bench.md)."
    )
    table = Table("Measured", _reading(figures), columns, rows).markdown(2)
    return "\n".join([table, *(f"- {each}" for each in lost), "", f"{machine(figures)} {whole}"])


def _beside_lesser(figures: Figures, every: Sequence[Table]) -> Iterator[tuple[Table, str]]:
    """The tables with their titles; after those of speed, ours with code for AVX2."""
    beside = _is_beside_lesser(figures)
    lesser = {each.title: each for each in tables.summary(figures, base=LESSER)} if beside else {}
    for table in every:
        yield table, MEANS[table.title]
        if table.title in LEVELLED and beside:
            yield lesser[table.title], f"{MEANS[table.title]}, AVX2"


def _is_beside_lesser(figures: Figures) -> bool:
    """True if our code for AVX2 was measured on a processor that has more than that."""
    vectors = figures.run.about.get("machine", {}).get("vectors")
    return vectors != "AVX2" and LESSER in figures.contestants("latency")


def _reading(figures: Figures) -> str:
    """How to read the table, without the rest of the report."""
    counts = {each["name"]: each["count"] for each in figures.run.about.get("specs", [])}
    loads = "\n".join(
        f"- {name.upper()}: {counts.get(name, '?')} {_LOADS[name]}"
        for name in figures.workloads("latency")
    )
    return (
        "The first row is what Pretzel takes, from the fastest workload to the slowest. The other "
        "rows are ratios: what a contestant takes, divided by what Pretzel takes in the same run. "
        "Below 1x, Pretzel takes more.\n\nA ratio is the geometric mean over the "
        f"workloads named in its row:\n\n{loads}\n\nMemory is what all pipelines of a workload add "
        "to a process; loading is from files, in a new one."
        f"{_READING_LESSER if _is_beside_lesser(figures) else ''}"
    )


def _where(every: Sequence[Table], name: str) -> str:
    """The workloads of a row; "all" if it has all."""
    columns = every[0].columns[1:-1]
    row = next((row for each in every for row in each.rows if row[0] == name), [])
    measured = [column for column, cell in zip(columns, row[1:], strict=False) if cell != "–"]
    return "all" if len(measured) == len(columns) else ", ".join(measured)


#: Tables whose means are shown at the top and in the summary, with their names there.
MEANS = {
    "Latency of one row, median": "one row, median",
    "Latency of one row, 99th percentile": "one row, 99th percentile",
    "Rows a second on one core": "rows in blocks",
    "Memory": "memory",
    "Loading": "loading",
}
#: Ours for processors without AVX-512, and the tables of which the summary has a column for it.
LESSER = "pretzel_v3"
LEVELLED = frozenset(["Latency of one row, median", "Rows a second on one core"])
_READING_LESSER = (
    " In columns headed AVX2, Pretzel's code is that for processors without AVX-512 (x86-64-v3), "
    "run on the same machine; the others run as they were built, and use what the machine has."
)
_LOADS = {
    "sa": "pipelines that score the sentiment of texts",
    "ac": "with trees over the outputs of other models",
    "tab": "over tables with missing values and categories",
    "lin": "linear",
    "gbt": "boosted trees",
}


def put(path: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace the text between the marks of a file."""
    whole = path.read_text(encoding="utf-8")
    if begin not in whole or end not in whole:
        raise LookupError(f"{path.name} has no place for it: {begin} ... {end}")
    before, rest = whole.split(begin, 1)
    after = rest.split(end, 1)[1]
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
