"""A progress line on the terminal: the current step, time passed and time left."""

from __future__ import annotations

import sys
from typing import TextIO

from bench.clock import Clock

_BAR = 24


class Progress:
    """Redraws a line on a terminal; writes few lines elsewhere."""

    def __init__(self, clock: Clock, stream: TextIO | None = None) -> None:
        self._clock = clock
        self._stream = stream or sys.stderr
        self._shown = -10.0

    def step(self, what: str) -> None:
        """Show the next step."""
        now = self._clock.elapsed
        if self._stream.isatty():
            self._stream.write("\r\x1b[K" + self.line(what))
        elif now - self._shown >= 10:
            self._shown = now
            self._stream.write(self.line(what) + "\n")
        self._stream.flush()

    def line(self, what: str) -> str:
        """The bar, the time passed and left, what is being done."""
        now, left = self._clock.elapsed, self._clock.left()
        full = int(_BAR * now / (now + left)) if now + left > 0 else 0
        bar = "#" * full + "." * (_BAR - full)
        return f"[{bar}] {_clock(now)}, {_clock(left)} left  {what[:60]}"

    def end(self) -> None:
        """Leave the line."""
        if self._stream.isatty():
            self._stream.write("\n")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
