"""The cost curve: seconds by number of rows, measured per key; newer measurements weigh more."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import exp, inf
from time import monotonic
from typing import NamedTuple

# A new measurement has this weight at least, so an estimate follows in about ten calls...
_NEWEST = 0.1
# ... a faster one more: what disturbs a measurement makes it slower ...
_FASTER = 0.5
# ... and one that is faster than the first one replaces it: a first call loads code ...
# ... and more weight after a pause: after this many seconds the old ones count for a third.
_MEMORY = 60.0
# A call that took more than this many times the estimate was most likely interrupted. It is
# recorded as this many times the estimate: one interruption fades quickly, a real change is learned
# in a few calls.
_OUTLIER = 4.0
# So many measurements are not all disturbed.
_ENOUGH = 3
_MOST_KEYS = 1 << 16


class Cell(NamedTuple):
    """The mean for one key and one power of two of the number of rows."""

    seconds: float  # per call
    rows: float
    calls: int
    when: float


class Curve:
    """The time of a call by its number of rows: straight between the sizes that were measured.

    A call has a fixed part, and a part per row that grows where parameters or rows leave a cache;
    points at the powers of two show both. Beyond the largest size the last slope goes on. Below the
    smallest one it is followed back, but no row gets cheaper in smaller calls.
    """

    __slots__ = ("_cells", "_points")

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._points = sorted(cells, key=lambda cell: cell.rows)
        self._cells = {int(cell.rows).bit_length(): cell for cell in self._points}

    @classmethod
    def line(cls, fixed: float, per_row: float) -> Curve:
        """The curve of a fixed part and a time per row, which nothing was measured for."""
        ends = (1.0, 2.0**40)
        return cls(Cell(fixed + rows * per_row, rows, 0, -inf) for rows in ends)

    @property
    def most(self) -> float:
        """The largest number of rows that was measured."""
        return self._points[-1].rows

    def seconds(self, rows: float) -> float:
        """The expected time of a call with so many rows."""
        points, rows = self._points, max(rows, 1)
        first = points[0]
        if len(points) == 1:
            return first.seconds * rows / first.rows
        if rows <= first.rows:
            least = first.seconds * rows / first.rows
            return min(max(least, _between(first, points[1], rows)), first.seconds)
        at = 1
        while at < len(points) - 1 and points[at].rows < rows:
            at += 1
        low, high = points[at - 1], points[at]
        return max(_between(low, high, rows), high.seconds if rows > high.rows else 0.0)

    def measured(self, rows: int) -> float:
        """When calls of about this size, or half of it, were measured; minus infinity if seldom."""
        size = rows.bit_length()
        found = (self._cells.get(each) for each in (size, size - 1))
        return max((each.when for each in found if each and each.calls >= _ENOUGH), default=-inf)

    def is_doubtful(self, rows: int) -> bool:
        """True if calls of about this size were measured once, which loads code, or never."""
        cell = self._cells.get(rows.bit_length())
        return cell is None or cell.calls == 1


class CostModel:
    """Exponentially weighted means of call times, by key and power of two of the row count.

    Several threads may use it without a lock: a measurement lost between two of them does no harm.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._cells: dict[Hashable, dict[int, Cell]] = {}
        self._curves: dict[Hashable, Curve] = {}
        #: What the calls of a key took together.
        self.spent: dict[Hashable, float] = {}

    def observe(self, key: Hashable, rows: int, seconds: float) -> None:
        """Record the time of a call with this many rows."""
        self.spend(key, seconds)
        rows = max(rows, 1)
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = {}
            if len(self._cells) > _MOST_KEYS:
                self.forget(next(iter(self._cells)))
        size, now = rows.bit_length(), self._now()
        old = cells.get(size)
        cells[size] = Cell(seconds, rows, 1, now) if old is None else _mean(old, rows, seconds, now)
        self._curves.pop(key, None)

    def spend(self, key: Hashable, seconds: float) -> None:
        """Add what calls took that are like a measured one."""
        self.spent[key] = self.spent.get(key, 0.0) + seconds

    def curve(self, key: Hashable) -> Curve | None:
        """The curve of a key; None if none of its calls was measured."""
        found, cells = self._curves.get(key), self._cells.get(key)
        if found is None and cells:
            found = self._curves[key] = Curve(tuple(cells.values()))
        return found

    @property
    def long_ago(self) -> float:
        """The moment before which a measurement is too old to be trusted."""
        return self._now() - _MEMORY

    def forget(self, key: Hashable) -> None:
        """Drop the measurements of a key."""
        self._cells.pop(key, None)
        self._curves.pop(key, None)
        self.spent.pop(key, None)

    def snapshot(self) -> dict[Hashable, dict[int, Cell]]:
        """Return all means: by key, then by the bit length of the row count."""
        return {key: dict(cells) for key, cells in tuple(self._cells.items())}


def _mean(old: Cell, rows: int, seconds: float, now: float) -> Cell:
    """A cell after one more measurement."""
    expected = old.seconds * rows / old.rows
    # The first few calls are averaged plainly, so that the very first does not weigh more.
    weight = max(_NEWEST, 1 / (old.calls + 1), 1 - exp((old.when - now) / _MEMORY))
    if seconds < expected:
        weight = max(weight, _FASTER if old.calls > 1 else 1.0)
    elif old.calls > 1 and expected:
        seconds = min(seconds, _OUTLIER * expected)
    return Cell(
        old.seconds + weight * (seconds - old.seconds),
        old.rows + weight * (rows - old.rows),
        old.calls + 1,
        now,
    )


def _between(low: Cell, high: Cell, rows: float) -> float:
    share = (rows - low.rows) / (high.rows - low.rows) if high.rows > low.rows else 0.0
    return low.seconds + share * (high.seconds - low.seconds)
