"""The report as one HTML file that needs nothing else: tables, charts, style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape

from bench.report.figures import Figures
from bench.report.markdown import every_table, machine
from bench.report.tables import Table

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 2rem; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #8884; text-align: right;
  font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
.words { text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(30rem, 1fr)); gap: 1.5rem; }
.wide { overflow-x: auto; }
svg { width: 100%; height: auto; }
p.small { opacity: .75; }
"""
_NUMBER = re.compile(r"^[-–\d.,]+(e[-+]?\d+)?[a-zA-Zµ%]{0,4}( ±\d+%)?$")


def page(figures: Figures, charts: Mapping[str, str], parts: Sequence[Table] = ()) -> str:
    """The whole file; `parts` are tables of what was measured apart from this run."""
    shown = [*every_table(figures), *parts]
    first = "".join(_table(each) for each in shown[:8])
    rest = "".join(_table(each) for each in shown[8:])
    drawn = "".join(f"<figure>{text}</figure>" for text in charts.values())
    method = escape(str(figures.run.about.get("method", "")))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Pretzel: benchmarks</title><style>{STYLE}</style></head><body>"
        f"<h1>Pretzel: benchmarks</h1><p>{escape(machine(figures))}</p>"
        f'<p class="small">{method}</p>{first}<h2>Charts</h2>'
        f'<div class="charts">{drawn}</div>{rest}</body></html>\n'
    )


def _table(table: Table) -> str:
    words = [not all(map(_NUMBER.match, column)) for column in zip(*table.rows, strict=True)]
    cell, title = partial(_cell, "td"), partial(_cell, "th")
    head = "".join(map(title, table.columns, words))
    rows = "".join(f"<tr>{''.join(map(cell, row, words))}</tr>" for row in table.rows)
    return (
        f"<h3>{escape(table.title)}</h3><p>{escape(table.words)}</p>"
        f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'
    )


def _cell(tag: str, text: str, words: bool) -> str:  # noqa: FBT001 (mapped over a row)
    kind = ' class="words"' if words else ""
    return f"<{tag}{kind}>{_inline(text)}</{tag}>"


def _inline(text: str) -> str:
    """Escaped, with what is bold in Markdown bold."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
