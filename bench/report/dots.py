"""Dot charts: one line per name, figures on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.report.svg import COLOURS, WIDTH, Axis, Scale, legend, opening, short, vertical

_LEFT, _RIGHT, _TOP, _ROW, _BOTTOM = 150, 90, 44, 24, 44
#: A name, and a figure for each series; None if it was not measured.
Row = tuple[str, Sequence[float | None]]


def dots(title: str, series: Sequence[str], rows: Sequence[Row], axis: Axis) -> str:
    """One chart with its legend; empty if there is nothing to draw."""
    drawn = [(name, values) for name, values in rows if any(values)]
    every = [value for _, values in drawn for value in values if value]
    if not every:
        return ""
    height = _TOP + _ROW * len(drawn) + _BOTTOM
    scale = Scale([*every, min(every) / 1.2, max(every) * 1.2], axis, _LEFT, WIDTH - _RIGHT)
    parts = [
        opening(title, WIDTH, height),
        *vertical(scale, axis, _LEFT, WIDTH - _RIGHT, _TOP, height - _BOTTOM),
        *legend(series, WIDTH - _RIGHT + 14, _TOP),
    ]
    for line, (name, values) in enumerate(drawn):
        parts += _row(name, values, scale, _TOP + _ROW * (line + 0.5))
    return "\n".join([*parts, "</svg>"])


def _row(name: str, values: Sequence[float | None], scale: Scale, y: float) -> list[str]:
    parts = [
        (
            f'<text x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end" fill="currentColor">'
            f"{escape(name)}</text>"
        ),
        (
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="currentColor" stroke-opacity="0.12"/>'
        ),
    ]
    for number, value in enumerate(values):
        if value:
            parts.append(
                f'<circle cx="{scale.place(value):.1f}" cy="{y:.1f}" r="5" '
                f'fill="{COLOURS[number % len(COLOURS)]}" fill-opacity="0.85">'
                f"<title>{escape(name)}: {short(value)}</title></circle>"
            )
    return parts
