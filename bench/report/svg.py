"""Line charts as SVG, written directly: few shapes are needed, so no plotting library is.

Axes and texts use the text's colour, so a chart fits light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 170, 34, 46
#: Colours that most people can distinguish, on light and dark; ours is always the first.
COLOURS = (
    "#d1495b",
    "#3f88b5",
    "#e9a23b",
    "#4d9078",
    "#8d6bb1",
    "#7f8c8d",
    "#a9663a",
    "#1bb39a",
    "#c774b2",
    "#8fa83a",
    "#5b6fd6",
    "#b8860b",
)
#: Style of a chart in a file of its own: follows the system's light or dark mode.
_ALONE = "<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#d8dee4}}</style>"

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A named line; `number` is its index among all contestants, which sets its colour."""

    name: str
    points: Sequence[Point]
    number: int | None = None


@dataclass(frozen=True)
class Axis:
    """The title of an axis, and whether it is logarithmic."""

    title: str
    log: bool = False


class Scale:
    """Converts numbers to positions on the page."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        self.log = axis.log
        self.low, self.high = min(values), max(values)
        if not self.log:
            self.low = min(self.low, 0.0)
        if self.low == self.high:
            self.high = self.low * 2 if self.low > 0 else self.low + 1
        self.start, self.end = start, end

    def place(self, value: float) -> float:
        """The position of a number."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        share = (self._scaled(value) - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.log else value

    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        if self.log:
            return self._powers() or [self.low, self.high]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step = next(step * by for by in (1, 2, 5, 10) if (self.high - self.low) / (step * by) <= 6)
        return [
            number * step
            for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]

    def _powers(self) -> list[float]:
        """Powers of ten; also two and five times these if there are few."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        by = (1, 2, 5) if last - first < 3 else (1,)
        every = [each * 10.0**power for power in range(first, last + 1) for each in by]
        return [each for each in every if self.low * 0.999 <= each <= self.high * 1.001]


def chart(title: str, series: Sequence[Series], x: Axis, y: Axis) -> str:
    """One chart with its legend; empty if there is nothing to draw."""
    drawn = [
        Series(
            each.name, _visible(each.points, x, y), index if each.number is None else each.number
        )
        for index, each in enumerate(series)
    ]
    drawn = [each for each in drawn if each.points]
    if not drawn:
        return ""
    every = [point for each in drawn for point in each.points]
    across = Scale([point[0] for point in every], x, _LEFT, WIDTH - _RIGHT)
    up = Scale([point[1] for point in every], y, HEIGHT - _BOTTOM, _TOP)
    numbers = [each.number or 0 for each in drawn]
    parts = [
        opening(title, WIDTH, HEIGHT),
        *vertical(across, x, _LEFT, WIDTH - _RIGHT, _TOP, HEIGHT - _BOTTOM),
        *_horizontal(up, y),
        *legend([each.name for each in drawn], WIDTH - _RIGHT + 14, _TOP, numbers),
    ]
    for each in reversed(drawn):  # ours is drawn above the others
        parts += _line(each, across, up)
    return "\n".join([*parts, "</svg>"])


def alone(drawn: str) -> str:
    """A chart as a file of its own."""
    end = drawn.index(">") + 1
    return drawn[:end] + _ALONE + drawn[end:]


def opening(title: str, width: float, height: float) -> str:
    """The start of a chart: the svg element and the title."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" font-size="12">'
        f'<text x="8" y="18" font-weight="600" fill="currentColor">{escape(title)}</text>'
    )


def legend(
    names: Sequence[str], left: float, top: float, numbers: Sequence[int] | None = None
) -> list[str]:
    """The legend: a coloured box and the name of each line."""
    parts = []
    for index, (name, number) in enumerate(zip(names, numbers or range(len(names)), strict=True)):
        y = top + 18 * index
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{left}" y="{y}" width="12" height="12" rx="2" fill="{colour}"/>')
        parts.append(
            f'<text x="{left + 18}" y="{y + 10}" fill="currentColor">{escape(name)}</text>'
        )
    return parts


def vertical(
    scale: Scale, axis: Axis, left: float, right: float, top: float, bottom: float
) -> list[str]:
    """Vertical lines at round numbers, their labels and the axis' title."""
    parts = []
    for tick in scale.ticks():
        position = scale.place(tick)
        parts.append(_rule(position, position, top, bottom))
        parts.append(_label(position, bottom + 16, tick))
    middle = (left + right) / 2
    return [*parts, _title(f'x="{middle:.0f}" y="{bottom + 36}"', axis)]


def _horizontal(scale: Scale, axis: Axis) -> list[str]:
    parts = []
    for tick in scale.ticks():
        position = scale.place(tick)
        parts.append(_rule(_LEFT, WIDTH - _RIGHT, position, position))
        parts.append(_label(_LEFT - 6, position + 4, tick, "end"))
    side = HEIGHT / 2
    return [*parts, _title(f'x="14" y="{side}" transform="rotate(-90 14 {side})"', axis)]


def _rule(x1: float, x2: float, y1: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" '
        'stroke="currentColor" stroke-opacity="0.13"/>'
    )


def _title(where: str, axis: Axis) -> str:
    return f'<text {where} text-anchor="middle" fill="currentColor">{escape(axis.title)}</text>'


def _label(x: float, y: float, number: float, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" '
        f'fill-opacity="0.7">{short(number)}</text>'
    )


def short(number: float) -> str:
    """A number in short form."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"


def _visible(points: Sequence[Point], x: Axis, y: Axis) -> list[Point]:
    """Points that can be drawn: on a logarithmic axis those above zero."""
    return [
        (a, b)
        for a, b in points
        if (a > 0 or not x.log) and (b > 0 or not y.log) and math.isfinite(a) and math.isfinite(b)
    ]


def _distinct(places: list[Point]) -> list[Point]:
    """The points without those less than a pixel from the one before."""
    kept = places[:1]
    for x, y in places[1:-1]:
        if abs(x - kept[-1][0]) + abs(y - kept[-1][1]) >= 1:
            kept.append((x, y))
    return kept + places[1:][-1:]


def _line(series: Series, across: Scale, up: Scale) -> list[str]:
    number = series.number or 0
    colour = COLOURS[number % len(COLOURS)]
    places = _distinct([(across.place(x), up.place(y)) for x, y in series.points])
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    thick = 2.75 if number == 0 else 1.75
    line = f'points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"'
    parts = [f'<polyline {line} stroke-linejoin="round"/>']
    if len(places) <= 12:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return parts
