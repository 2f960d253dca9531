"""The report of runs: a page of Markdown, charts as SVG, and all of it in one HTML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench import results
from bench.machine import ROOT
from bench.report import html, markdown, micro, plots, svg
from bench.report.figures import Figures

SUMMARY = ROOT / "docs" / "explanation" / "performance.md"
PERFORMANCE = ROOT / "docs" / "contributing" / "performance.md"


def write(paths: Sequence[Path], *, docs: bool = False) -> list[Path]:
    """Write the report of runs beside the first one; returns the written files.

    With `docs`, the summary is also written into docs/explanation/performance.md and its full page,
    between marks, and charts into docs/charts.
    """
    figures = Figures(results.read(paths))
    folder = paths[0].with_suffix("")
    folder.mkdir(exist_ok=True)
    drawn, parts = plots.plots(figures), micro.newest()
    written = [folder / "report.html", folder / "report.md"]
    written[0].write_text(html.page(figures, drawn, parts), encoding="utf-8")
    written[1].write_text(markdown.page(figures, parts), encoding="utf-8")
    for name, text in drawn.items():
        written.append(folder / f"{name}.svg")
        written[-1].write_text(svg.alone(text), encoding="utf-8")
    if docs:
        markdown.put(SUMMARY, markdown.short(figures))
        folder = PERFORMANCE.parent / markdown.CHARTS
        folder.mkdir(exist_ok=True)
        page = PERFORMANCE.read_text(encoding="utf-8")
        for old in re.findall(rf"{markdown.CHARTS}/([\w-]+)\.svg", page):  # other pages have others
            (folder / f"{old}.svg").unlink(missing_ok=True)
        kept = []
        for name, text in drawn.items():
            if not name.endswith(("-tab", "-lin", "-gbt")):
                kept.append(folder / f"{name}.svg")
                kept[-1].write_text(svg.alone(text) + "\n", encoding="utf-8")
        names = [each.stem for each in kept]
        markdown.put(PERFORMANCE, markdown.body(figures, level=3, charts=names))
        written += [SUMMARY, PERFORMANCE, *kept]
    return written
