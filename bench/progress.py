"""A line on the terminal: what runs, how far it is, how much time is left."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_BAR = 24


class Progress:
    """Counts steps of known number; on a terminal it redraws a line, elsewhere it writes few."""

    def __init__(self, steps: int, stream: TextIO | None = None) -> None:
        self.steps, self.done = max(steps, 1), 0
        self._stream = stream or sys.stderr
        self._start = time.monotonic()
        self._shown = -1.0

    def step(self, what: str, count: int = 1) -> None:
        """Some steps are done; `what` comes next."""
        self.done += count
        now = time.monotonic() - self._start
        if self._stream.isatty():
            self._stream.write("\r\x1b[K" + self.line(what, now))
        elif now - self._shown >= 10 or self.done >= self.steps:
            self._shown = now
            self._stream.write(self.line(what, now) + "\n")
        self._stream.flush()

    def line(self, what: str, now: float) -> str:
        """The bar, the time left, what is being done."""
        share = min(self.done / self.steps, 1.0)
        full = int(share * _BAR)
        left = f"{_clock(now * (1 - share) / share)} left" if share > 0.02 else "..."
        return f"[{'#' * full}{'.' * (_BAR - full)}] {_clock(now)}, {left}  {what[:60]}"

    def end(self) -> None:
        """Leave the line."""
        if self._stream.isatty():
            self._stream.write("\n")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
