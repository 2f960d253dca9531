"""A progress bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Self, TextIO

_EVERY = 0.1
_BLOCKS = " ▏▎▍▌▋▊▉█"


class Progress:
    """The progress of a task, redrawn at most ten times a second."""

    def __init__(
        self, label: str, total: int = 0, *, stream: TextIO | None = None, hidden: bool = False
    ) -> None:
        self._label, self._total = label, total
        self._stream = sys.stderr if stream is None else stream
        self.shown = not hidden and self._stream.isatty()
        self._drawn, self._width = 0.0, 0

    def at(self, done: int, note: str = "") -> None:
        """Show that this much of the total is done."""
        now = time.monotonic()
        if self.shown and now - self._drawn >= _EVERY:
            self._drawn = now
            self._draw(bar(self._label, done, self._total, note, _columns()))

    def share(self, done: int) -> float:
        """Which part of the total this is; 0 where there is none."""
        return done / self._total if self._total else 0.0

    def step(self, note: str) -> None:
        """Show the current step of a task without a total."""
        if self.shown:
            self._draw(f"{self._label}: {note}")

    def _draw(self, text: str) -> None:
        self._stream.write("\r" + text + " " * max(self._width - len(text), 0))
        self._stream.flush()
        self._width = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


class Rate:
    """Rows so far, with how many there are in a second, and how long the rest will take."""

    def __init__(self) -> None:
        self.rows = 0
        #: Those that an earlier run has left.
        self.before = 0
        self._started: tuple[float, float] | None = None

    def note(self, share: float) -> str:
        """A note for a progress bar; `share` is the part of all rows that is done."""
        now = time.monotonic()
        if self._started is None:  # what an earlier run has done took no time of ours
            self._started = now, share
            return f"{self.rows:,} rows"
        began, first = self._started
        seconds = max(now - began, 1e-9)
        text = f"{self.rows:,} rows, {(self.rows - self.before) / seconds:,.0f} rows/s"
        if share <= first:
            return text
        left = round(seconds * (1 - share) / (share - first))
        return f"{text}, {left // 60}:{left % 60:02} left"


def bar(label: str, done: int, total: int, note: str, columns: int) -> str:
    """One line of this many columns, with a bar if the total is known."""
    share = min(done / total, 1.0) if total > 0 else None
    percent = "" if share is None else f" {share:4.0%}"
    room = columns - len(label) - len(percent) - len(note) - 5
    if share is None or room < 5:
        return f"{label}{percent} {note}"[: columns - 1]
    cells = share * room
    full = int(cells)
    part = _BLOCKS[int((cells - full) * 8)] if full < room else ""
    return f"{label} {'█' * full}{part}".ljust(len(label) + 1 + room) + f"{percent} {note}"


def _columns() -> int:
    return shutil.get_terminal_size((80, 24)).columns
