"""The report as one self-contained HTML file: tables, charts, style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path

from bench.report import tables
from bench.report.figures import Figures
from bench.report.markdown import MEANS, machine
from bench.report.sections import Section, sections
from bench.report.tables import Table

_STYLE = Path(__file__).with_name("style.css")
_NUMBER = re.compile(r"^[-–\d.,]+(e[-+]?\d+)?( ?[a-zA-Zµ%/]{1,6})?( ±\d+%)?$")
_BEHIND = re.compile(r"^0\.\d+x$")
#: Contestants in the figures at the top, with their titles there.
_RIVALS = {"sklearn": "scikit-learn", "onnxruntime": "onnxruntime, tuned"}
#: Tables of a section that are open; further ones are folded.
_OPEN = 3


def page(figures: Figures, charts: Mapping[str, str], parts: Sequence[Table] = ()) -> str:
    """The whole file; `parts` are tables of separate measurements."""
    every = sections(figures, parts)
    method = escape(str(figures.run.about.get("method", "")))
    style = _STYLE.read_text(encoding="utf-8")
    links = "".join(f'<a href="#{each.anchor}">{escape(each.title)}</a>' for each in every)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Pretzel: benchmarks</title><style>{style}</style></head><body>"
        f"<header><h1>Pretzel: benchmarks</h1><p>{escape(machine(figures))}</p>"
        f'<p class="small">{method}</p><nav>{links}</nav>{_cards(figures)}</header>'
        f"<main>{''.join(_section(each, charts) for each in every)}</main></body></html>\n"
    )


def _cards(figures: Figures) -> str:
    """The geometric means against the most common alternatives."""
    cards = []
    for table in tables.summary(figures):
        means = {row[0]: row[-1] for row in table.rows}
        rivals = [(means.get(figures.title(who), "–"), title) for who, title in _RIVALS.items()]
        if table.title in MEANS and any(mean != "–" for mean, _ in rivals):
            lines = "".join(
                f"<div><span>{title}</span><b>{mean}</b></div>" for mean, title in rivals
            )
            cards.append(f'<div class="card"><h4>{escape(MEANS[table.title])}</h4>{lines}</div>')
    if not cards:
        return ""
    text = "How many times what ours takes these take, as geometric mean over the workloads."
    return f'<div class="cards">{"".join(cards)}</div><p class="small">{text}</p>'


def _section(section: Section, charts: Mapping[str, str]) -> str:
    drawn = "".join(
        f"<figure>{text}</figure>"
        for start in section.charts
        for name, text in charts.items()
        if name.startswith(start)
    )
    shown = "".join(_table(each, section) for each in section.tables[:_OPEN])
    rest = "".join(
        f"<details><summary>{escape(each.title)}</summary>{_inside(each)}</details>"
        for each in section.tables[_OPEN:]
    )
    means = f"<p>{escape(section.means)}</p>" if section.means else ""
    figure = f'<div class="charts">{drawn}</div>' if drawn else ""
    return (
        f'<section id="{section.anchor}"><h2>{escape(section.title)}</h2>{means}'
        f"{shown}{rest}{figure}</section>"
    )


def _table(table: Table, section: Section) -> str:
    title = f"<h3>{escape(table.title)}</h3>" if table.title != section.title else ""
    return title + _inside(table)


def _inside(table: Table) -> str:
    """The text beside the table, and the table."""
    cells = [row for row in table.rows if not _ours(row)]
    words = [not all(map(_NUMBER.match, column)) for column in zip(*cells, strict=True)]
    words = words or [False] * len(table.columns)
    head = "".join(map(partial(_cell, "th"), table.columns, words))
    rows = "".join(_row(row, words) for row in table.rows)
    said = f"<p>{escape(table.words)}</p>" if table.words else ""
    return f'{said}<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _row(row: Sequence[str], words: Sequence[bool]) -> str:
    kind = ' class="ours"' if _ours(row) else ""
    return f"<tr{kind}>{''.join(map(partial(_cell, 'td'), row, words))}</tr>"


def _ours(row: Sequence[str]) -> bool:
    """Whether it is the row of our own figures."""
    return row[0].endswith(tables.ITSELF.format(""))


def _cell(tag: str, text: str, words: bool) -> str:  # noqa: FBT001 (mapped over a row)
    plain = text.strip("*")
    kinds = [
        *(["words"] if words else []),
        *([plain] if tag == "td" and plain in {"met", "missed"} else []),
        *(["behind"] if not words and _BEHIND.match(text) else []),
    ]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f"<{tag}{kind}>{_inline(text)}</{tag}>"


def _inline(text: str) -> str:
    """Escaped text, with Markdown's bold parts in bold."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
