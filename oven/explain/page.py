"""HTML pages without scripts, fonts or other external resources."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from flour.language.show_html import document

__all__ = ["document", "page", "preformatted", "table"]


def page(title: str, head: str, body: str) -> str:
    """A page about a plan."""
    said = f"<p>{escape(head)}</p>\n" if head else ""
    return document(title, said + body, name=f"Pretzel: {title}")


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    marked: Collection[int] = (),
    bars: str = "",
) -> str:
    """A table; `marked` rows stand out, and percentages in the column called `bars` have a bar."""
    drawn = columns.index(bars) if bars else -1
    lines = ['<div class="wide"><table>', _row("th", columns, black=False)]
    lines += [
        _row("td", row, black=number in marked, drawn=drawn) for number, row in enumerate(rows)
    ]
    return "\n".join([*lines, "</table></div>\n"])


def _row(cell: str, texts: Sequence[str], *, black: bool, drawn: int = -1) -> str:
    bar = '<div class="bar" style="width: {}"></div>'
    cells = "".join(
        f"<{cell}>{escape(text)}{bar.format(escape(text)) if place == drawn else ''}</{cell}>"
        for place, text in enumerate(texts)
    )
    return f'<tr class="black">{cells}</tr>' if black else f"<tr>{cells}</tr>"


def preformatted(title: str, text: str) -> str:
    """Text as it is, under a heading."""
    return f"<h2>{escape(title)}</h2>\n<pre>{escape(text)}</pre>\n"
