"""The rows of a period that are chosen, each with the chance that it had.

A row is drawn with its chance. Where there is no room for all of these, those stay whose random
number is smallest beside their chance, as in priority sampling; the least certain rows are chosen
for sure. So a sum over the chosen rows, each over its chance, estimates that of all without bias.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush, heappushpop
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]


class Selection:
    """Chooses at most `most` rows by their chances, and the `uncertain` least certain ones."""

    def __init__(self, most: int, uncertain: int, rng: np.random.Generator) -> None:
        self._most, self._uncertain, self._rng = most, uncertain, rng
        self._number, self._part = 0, 1.0
        #: Heaps with the row on top that goes next.
        self._drawn: list[tuple[float, int, float, str, Row]] = []
        self._least: list[tuple[float, int, Row]] = []

    def add(
        self,
        chances: NDArray[np.float64],
        reasons: NDArray[Any],
        margins: NDArray[np.float64] | None,
        row: Callable[[int], Row],
    ) -> None:
        """Take rows in; `row` makes one of them, by its place."""
        with np.errstate(divide="ignore"):
            keys = self._rng.random(len(chances)) / chances
        for at in np.flatnonzero(keys < self._part).tolist():
            drawn = -keys[at], self._number + at, chances[at], reasons[at], row(at)
            if len(self._drawn) < self._most:
                heappush(self._drawn, drawn)
            else:  # rows are drawn by a smaller part of their chances from now on
                self._part = min(self._part, -heappushpop(self._drawn, drawn)[0])
        margins = np.zeros(0) if margins is None else margins
        for at in np.argsort(margins, kind="stable")[: self._uncertain].tolist():
            if len(self._least) < self._uncertain:
                heappush(self._least, (-margins[at], self._number + at, row(at)))
            elif -margins[at] > self._least[0][0]:
                heappushpop(self._least, (-margins[at], self._number + at, row(at)))
        self._number += len(chances)

    def take(self) -> list[Row]:
        """The chosen rows, each once, with the reason and what it stands for."""
        chosen = {
            number: {**row, "@reason": reason, "@weight": max(1.0, 1 / (chance * self._part))}
            for _, number, chance, reason, row in self._drawn
        }
        for _, number, row in self._least:
            chosen[number] = {**row, "@reason": "uncertain", "@weight": 1.0}
        return [chosen[number] for number in sorted(chosen)]
