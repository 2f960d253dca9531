"""The cost model: seconds per call, measured per key and size, newer measurements weigh more."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import exp, inf
from time import monotonic
from typing import NamedTuple

# A new measurement has this weight at least, so an estimate follows in about ten calls...
_NEWEST = 0.1
# ... and more weight after a pause: after this many seconds the old ones count for a third.
_MEMORY = 60.0
# A call that took more than this many times the estimate was most likely interrupted. It is
# recorded as this many times the estimate: one interruption fades quickly, a real change is learned
# in a few calls.
_OUTLIER = 4.0
_MOST_KEYS = 1 << 16


class Cell(NamedTuple):
    """The estimate for one key and one range of row counts."""

    seconds: float  # per call
    rows: float
    calls: int
    when: float


class Estimate(NamedTuple):
    """The expected time of a call in seconds, and the number of measurements behind it."""

    seconds: float
    per_row: float
    calls: int


class CostModel:
    """Exponentially weighted means of call times, by key and power of two of the row count.

    A call of one row and a call of a thousand differ in more than a factor of a thousand, so row
    counts have estimates of their own, one per power of two. Between two measured sizes the
    estimate is on the line through them;
    beyond them the time per row is that of the nearest. Several threads may use it without a lock:
    a measurement lost between two of them does no harm.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._cells: dict[Hashable, dict[int, Cell]] = {}

    def observe(self, key: Hashable, rows: int, seconds: float) -> None:
        """Record the time of a call with this many rows."""
        rows = max(rows, 1)
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = {}
            if len(self._cells) > _MOST_KEYS:
                self.forget(next(iter(self._cells)))
        size, now = rows.bit_length(), self._now()
        old = cells.get(size)
        if old is None:
            cells[size] = Cell(seconds, rows, 1, now)
            return
        # The first few calls are averaged plainly, so that the very first does not weigh more.
        weight = max(_NEWEST, 1 / (old.calls + 1), 1 - exp((old.when - now) / _MEMORY))
        expected = old.seconds * rows / old.rows
        seconds = min(seconds, _OUTLIER * expected) if old.calls > 1 and expected else seconds
        cells[size] = Cell(
            old.seconds + weight * (seconds - old.seconds),
            old.rows + weight * (rows - old.rows),
            old.calls + 1,
            now,
        )

    def estimate(self, key: Hashable, rows: int, *, farther: float = inf) -> Estimate | None:
        """Return the expected time of a call, None when no call like it was measured.

        A measured call is unlike one with `farther` times as many rows, or more.
        """
        cells = self._cells.get(key)
        if not cells:
            return None
        rows = max(rows, 1)
        measured = tuple(cells.values())
        if rows >= farther * max(cell.rows for cell in measured):
            return None
        if len(measured) == 1:
            return _along(measured[0], rows)
        ordered = sorted(measured, key=_rows)
        below = [cell for cell in ordered if cell.rows <= rows]
        above = [cell for cell in ordered if cell.rows > rows]
        if below and above:
            seconds = _between(below[-1], above[0], rows)
            return Estimate(seconds, seconds / rows, min(below[-1].calls, above[0].calls))
        return _along(below[-1] if below else above[0], rows)

    def forget(self, key: Hashable) -> None:
        """Drop the estimates of a key."""
        self._cells.pop(key, None)

    def snapshot(self) -> dict[Hashable, dict[int, Cell]]:
        """Return all estimates: by key, then by the bit length of the row count."""
        return {key: dict(cells) for key, cells in tuple(self._cells.items())}


def _rows(cell: Cell) -> float:
    return cell.rows


def _along(cell: Cell, rows: int) -> Estimate:
    """Scale the estimate to this many rows, at the same time per row."""
    per_row = cell.seconds / cell.rows
    return Estimate(per_row * rows, per_row, cell.calls)


def _between(low: Cell, high: Cell, rows: int) -> float:
    share = (rows - low.rows) / (high.rows - low.rows) if high.rows > low.rows else 0.0
    return low.seconds + share * (high.seconds - low.seconds)
