"""Parts of the status page, which has the look of oven.explain.page.

Everything that comes from models, files or clients is escaped where it is put in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple


class TableCell(NamedTuple):
    """A cell of a table: text, and style classes."""

    text: str
    look: str = ""
    """Classes of the style: number, name, short, good, bad, wait, dim."""
    links: tuple[tuple[str, str], ...] = ()
    """Links instead of the text: labels and targets."""


#: The cells of a row; one that is nothing but its text is that.
Row = Sequence[TableCell | str]


def links(known: Iterable[tuple[str, str]]) -> str:
    """The navigation: links."""
    return "<nav>" + " ".join(_link(text, to) for text, to in known) + "</nav>"


def _link(text: str, to: str) -> str:
    return f'<a href="{escape(to)}">{escape(text)}</a>'


def facts(known: Iterable[tuple[str, str, str]]) -> str:
    """Names with values and style classes, side by side."""
    items = "".join(
        f'<div><dt>{escape(name)}</dt><dd class="{look}">{escape(value)}</dd></div>'
        for name, value, look in known
    )
    return f"<dl>{items}</dl>\n"


def section(title: str, body: str, note: str = "") -> str:
    """A part of the page under a heading."""
    said = f'<p class="dim">{escape(note)}</p>\n' if note else ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{said}{body}</section>\n"


def footer(text: str) -> str:
    """The footer."""
    return f"<footer>{escape(text)}</footer>\n"


def table(columns: Mapping[str, str], rows: Iterable[Row]) -> str:
    """A table of headings with their styles; cells have these styles, beside their own."""
    head = "".join(f'<th class="{look}">{escape(text)}</th>' for text, look in columns.items())
    body = "\n".join(f"<tr>{''.join(map(_cell, row, columns.values()))}</tr>" for row in rows)
    inside = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f'<div class="wide"><table>\n{inside}\n</table></div>\n'


def _cell(cell: TableCell | str, usual: str) -> str:
    cell = TableCell(cell) if isinstance(cell, str) else cell
    inside = " ".join(_link(*each) for each in cell.links) if cell.links else escape(cell.text)
    look = f"{usual} {cell.look}".strip()
    return f'<td class="{look}">{inside}</td>' if look else f"<td>{inside}</td>"


def box(title: str, body: str, *, opened: bool = False) -> str:
    """A box that opens."""
    state = " open" if opened else ""
    return f"<details{state}>\n<summary>{escape(title)}</summary>\n{body}</details>\n"


def paragraph(text: str, look: str = "") -> str:
    """A paragraph."""
    return f'<p class="{look}">{escape(text)}</p>\n'


def buttons(known: Iterable[tuple[str, str]]) -> str:
    """Buttons, each with the address that it posts to."""
    return (
        "<div>"
        + "".join(
            f'<form method="post" action="{escape(to)}"><button>{escape(text)}</button></form>'
            for text, to in known
        )
        + "</div>\n"
    )


def search(wanted: str) -> str:
    """A search form for models by a part of their names."""
    return (
        f'<form><input name="q" value="{escape(wanted)}" placeholder="name of a model" '
        'aria-label="name of a model"><button>Find</button></form>\n'
    )


# --- figures as people read them -----------------------------------------------------------------


def size(nbytes: float | None) -> str:
    """A number of bytes."""
    if nbytes is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def duration(seconds: float | None) -> str:
    """A time, short ones in small units."""
    if seconds is None:
        return "–"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"


def number(value: float | None) -> str:
    """A count, in groups of three digits."""
    return "–" if value is None else f"{value:,.0f}"
