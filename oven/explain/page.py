"""HTML pages without scripts, fonts or other external resources."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from flour.language.show_html import STYLE

_STYLE = """\
:root { color-scheme: light dark; --line: #8885; --mark: #d9822b33;
        --bar: #3b7dd8; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font: 600 1rem ui-monospace, monospace; margin: 1.5rem 0 .3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left;
         vertical-align: top; }
tr.black { background: var(--mark); }
.bar { background: var(--bar); border-radius: 3px; height: .45rem; margin-top: .3rem; }
pre { border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; padding: .8rem;
      font: 13px/1.45 ui-monospace, monospace; }"""


def page(title: str, head: str, body: str) -> str:
    """A whole document."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>Pretzel: {escape(title)}</title>\n"
        f"<style>\n{STYLE}{_STYLE}\n</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(head)}</p>\n{body}</body>\n</html>\n"
    )


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    marked: Collection[int] = (),
    bars: str = "",
) -> str:
    """A table; `marked` rows stand out, and percentages in the column called `bars` have a bar."""
    drawn = columns.index(bars) if bars else -1
    lines = ["<table>", _row("th", columns, black=False)]
    lines += [
        _row("td", row, black=number in marked, drawn=drawn) for number, row in enumerate(rows)
    ]
    return "\n".join([*lines, "</table>\n"])


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
