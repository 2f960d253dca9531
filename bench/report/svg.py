"""Line charts as SVG, written directly: a dozen shapes need no plotting library.

Colours are set by style sheets, so that a chart fits a light page and a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 170, 34, 46
#: Told apart by most eyes; ours is always the first.
COLOURS = ("#d1495b", "#2e6f95", "#e9a23b", "#4d9078", "#8d6bb1", "#7a7a7a", "#a05a2c", "#1b998b")

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named line."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Axis:
    """What is along an axis, and whether by its logarithm."""

    title: str
    log: bool = False


class _Scale:
    """From numbers to places on the page."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        self.log = axis.log
        self.low, self.high = min(values), max(values)
        if not self.log:
            self.low = min(self.low, 0.0)
        if self.low == self.high:
            self.high = self.low * 2 if self.low > 0 else self.low + 1
        self.start, self.end = start, end

    def place(self, value: float) -> float:
        low, high = self._moved(self.low), self._moved(self.high)
        share = (self._moved(value) - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def _moved(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.log else value

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)] or [self.low, self.high]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step = next(step * by for by in (1, 2, 5, 10) if (self.high - self.low) / (step * by) <= 6)
        return [
            number * step
            for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]


def chart(title: str, series: Sequence[Series], x: Axis, y: Axis) -> str:
    """One chart with its legend; an empty text where there is nothing to draw."""
    drawn = [Series(each.name, _visible(each.points, x, y)) for each in series]
    drawn = [each for each in drawn if each.points]
    if not drawn:
        return ""
    every = [point for each in drawn for point in each.points]
    across = _Scale([point[0] for point in every], x, _LEFT, WIDTH - _RIGHT)
    up = _Scale([point[1] for point in every], y, HEIGHT - _BOTTOM, _TOP)
    parts = [
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
            'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="12">'
        ),
        f'<text x="{_LEFT}" y="18" font-weight="600" fill="currentColor">{escape(title)}</text>',
        *_grid(across, up),
        *_titles(x, y),
    ]
    for number, each in enumerate(drawn):
        parts += _line(each, number, across, up)
    return "\n".join([*parts, "</svg>"])


def _visible(points: Sequence[Point], x: Axis, y: Axis) -> list[Point]:
    """Points that can be drawn: on a logarithm's axis those above zero."""
    return [
        (a, b)
        for a, b in points
        if (a > 0 or not x.log) and (b > 0 or not y.log) and math.isfinite(a) and math.isfinite(b)
    ]


def _grid(across: _Scale, up: _Scale) -> list[str]:
    parts = []
    for tick in up.ticks():
        place = up.place(tick)
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{place:.1f}" y2="{place:.1f}" '
            'stroke="currentColor" stroke-opacity="0.15"/>'
        )
        parts.append(_label(_LEFT - 6, place + 4, tick, "end"))
    parts += [_label(across.place(tick), HEIGHT - _BOTTOM + 16, tick) for tick in across.ticks()]
    return parts


def _label(x: float, y: float, number: float, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" '
        f'fill-opacity="0.7">{_short(number)}</text>'
    )


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def _titles(x: Axis, y: Axis) -> list[str]:
    middle, side = (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT / 2
    below = f'x="{middle}" y="{HEIGHT - 10}"'
    beside = f'x="14" y="{side}" transform="rotate(-90 14 {side})"'
    return [
        f'<text {place} text-anchor="middle" fill="currentColor">{escape(axis.title)}</text>'
        for place, axis in ((below, x), (beside, y))
    ]


def _line(series: Series, number: int, across: _Scale, up: _Scale) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    places = [(across.place(x), up.place(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    thick = 2.5 if number == 0 else 1.75
    line = f'points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"'
    parts = [f"<polyline {line}/>"]
    if len(places) <= 12:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    top, left = _TOP + 18 * number, WIDTH - _RIGHT + 14
    parts.append(f'<rect x="{left}" y="{top}" width="12" height="12" rx="2" fill="{colour}"/>')
    parts.append(
        f'<text x="{left + 18}" y="{top + 10}" fill="currentColor">{escape(series.name)}</text>'
    )
    return parts
