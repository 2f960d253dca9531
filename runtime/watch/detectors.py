"""Detectors of a change in a stream of scores, which alarm where river's do."""

from __future__ import annotations

import math

#: Page-Hinkley's share of the past that a step keeps.
_KEPT = 1 - 0.0001


class PageHinkley:
    """Alarms when scores' sum of distances from their mean leaves its extreme by `threshold`."""

    def __init__(self, *, least: int = 30, delta: float = 0.005, threshold: float = 50.0) -> None:
        self._least, self._delta, self._threshold = least, delta, threshold
        self._reset()

    def _reset(self) -> None:
        self._count, self._mean, self._up, self._down = 0, 0.0, 0.0, 0.0
        self._lowest, self._highest = math.inf, -1.0

    def update(self, score: float) -> bool:
        """True if this score makes it alarm; after an alarm it starts anew."""
        self._count += 1
        self._mean += (score - self._mean) / self._count
        away = score - self._mean
        self._up = _KEPT * self._up + away - self._delta
        self._down = _KEPT * self._down + away + self._delta
        self._lowest, self._highest = min(self._lowest, self._up), max(self._highest, self._down)
        far = max(self._up - self._lowest, self._highest - self._down)
        alarms = self._count >= self._least and far > self._threshold
        if alarms:
            self._reset()
        return alarms


class Adwin:
    """Bifet and Gavalda's adaptive window: alarms when two parts of the window differ in mean.

    The window is kept as buckets: level `n` has sums and variances of 2^n scores each, the oldest
    first.
    """

    def __init__(
        self, *, delta: float = 0.002, clock: int = 32, buckets: int = 5, least: int = 5,
        grace: int = 10,
    ) -> None:  # fmt: skip
        self._delta, self._clock, self._buckets = delta, clock, buckets
        self._least, self._grace = least, grace
        self._reset()

    def _reset(self) -> None:
        self._levels: list[list[tuple[float, float]]] = [[]]
        self._width = self._ticks = 0
        self._total = self._variance = 0.0

    def update(self, score: float) -> bool:
        """True if this score makes it alarm; after an alarm it starts anew."""
        self._levels[0].append((score, 0.0))
        if self._width:
            away = score - self._total / self._width
            self._variance += self._width * away * away / (self._width + 1)
        self._width += 1
        self._total += score
        self._compress()
        self._ticks += 1
        alarms = False
        if self._ticks % self._clock == 0 and self._width > self._grace:
            while self._width and self._differs():
                alarms = True
                self._drop_oldest()
        if alarms:
            self._reset()
        return alarms

    def _compress(self) -> None:
        """Make one bucket of the two oldest of a level that is full."""
        for place, level in enumerate(self._levels):
            if len(level) <= self._buckets:
                return
            (first, its), (second, others) = level[:2]
            del level[:2]
            size = 2**place
            between = size * (first / size - second / size) ** 2 / 2
            if place + 1 == len(self._levels):
                self._levels.append([])
            self._levels[place + 1].append((first + second, its + others + between))

    def _differs(self) -> bool:
        """True if the window can be cut so that the means of both parts are too far apart."""
        old, total = 0, 0.0
        for place in reversed(range(len(self._levels))):
            for own, _ in self._levels[place][: None if place else -1]:
                old += 2**place
                total += own
                new = self._width - old
                if min(old, new) < self._least:
                    continue
                if abs(total / old - (self._total - total) / new) > self._bound(old, new):
                    return True
        return False

    def _bound(self, old: int, new: int) -> float:
        level = math.log(2 * math.log(self._width) / self._delta)
        share = 1 / (old - self._least + 1) + 1 / (new - self._least + 1)
        return math.sqrt(2 * share * self._variance / self._width * level) + 2 / 3 * level * share

    def _drop_oldest(self) -> None:
        size, level = 2 ** (len(self._levels) - 1), self._levels[-1]
        total, variance = level.pop(0)
        self._width -= size
        self._total -= total
        if self._width:
            away = total / size - self._total / self._width
            self._variance -= variance + size * self._width * away * away / (size + self._width)
        if not level:
            self._levels.pop()
