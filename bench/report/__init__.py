"""What runs say: a page of Markdown, plots as SVG, and all of it in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import results
from bench.machine import ROOT
from bench.report import html, markdown, micro, plots, svg
from bench.report.figures import Figures

README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"


def write(paths: Sequence[Path], *, readme: bool = False) -> list[Path]:
    """Write the report of runs beside the first one; the files that were written.

    With `readme`, the summary goes into README.md and docs/performance.md too, between the marks
    that are there for it, and charts into a folder beside the latter.
    """
    figures = Figures(results.read(paths))
    place = paths[0].with_suffix("")
    place.mkdir(exist_ok=True)
    drawn, parts = plots.plots(figures), micro.newest()
    made = [place / "report.html", place / "report.md"]
    made[0].write_text(html.page(figures, drawn, parts), encoding="utf-8")
    made[1].write_text(markdown.page(figures, parts), encoding="utf-8")
    for name, text in drawn.items():
        made.append(place / f"{name}.svg")
        made[-1].write_text(svg.alone(text), encoding="utf-8")
    if readme:
        markdown.put(README, markdown.short(figures))
        kept = _keep(drawn)
        names = [each.stem for each in kept]
        markdown.put(PERFORMANCE, markdown.body(figures, level=3, charts=names))
        made += [README, PERFORMANCE, *kept]
    return made


def _keep(drawn: Mapping[str, str]) -> list[Path]:
    """Put the charts for the documents where they belong: those of all workloads, of SA and AC."""
    folder = PERFORMANCE.parent / markdown.CHARTS
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    made = []
    for name, text in drawn.items():
        if not name.endswith(("-tab", "-lin", "-gbt")):
            made.append(folder / f"{name}.svg")
            made[-1].write_text(svg.alone(text) + "\n", encoding="utf-8")
    return made
