"""Output of commands: results on standard output, everything else on standard error.

With `--json`, a result is one JSON value on one line, and an error one JSON object.

A progress bar on a terminal, and nothing anywhere else.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TextIO

from objectstore import Explained

#: Takes the values out of an error, where the command's model has private columns.
concealing: ContextVar[Callable[[Exception], BaseException] | None]
concealing = ContextVar("concealing", default=None)


def concealed(problem: Exception) -> BaseException:
    """The error as it may be shown."""
    conceal = concealing.get()
    return problem if conceal is None else conceal(problem)


class CommandOutput:
    """Writes results as text or as JSON."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        #: True if standard error is for programs.
        self.structured = as_json
        #: The log that takes notes, events and problems; None where they are written directly.
        self.log: logging.Logger | None = None

    def result(self, data: object, text: str) -> None:
        """Write the result of a command, as text or JSON."""
        self.line(json.dumps(data, ensure_ascii=False) if self.as_json else text)

    def line(self, text: str) -> None:
        """Write a line, or several, of a result."""
        sys.stdout.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Write a note that is not part of the result."""
        if self.log is not None:
            self.log.info("%s", text)
        elif not self.as_json:
            sys.stderr.write(f"pretzel: {text}\n")
            sys.stderr.flush()

    def event(self, data: Mapping[str, object], text: str) -> None:
        """Write something that happened: all of it as JSON, or a text, which may be empty."""
        if self.log is not None:
            bad = data["kind"] in {"refused", "ended", "behind"}
            level = logging.WARNING if bad else logging.INFO
            if text or self.structured:
                self.log.log(level, "%s", text or data["kind"], extra={"fields": data})
        elif self.as_json:
            sys.stderr.write(json.dumps(data, ensure_ascii=False) + "\n")
            sys.stderr.flush()
        elif text:
            self.note(text)

    def problem(self, problem: Explained) -> None:
        """Write an error with all its parts."""
        sys.stdout.flush()
        extra = {"where": problem.where, "found": problem.found, "hint": problem.hint}
        kind = {"kind": type(problem).__name__}
        parts = kind | {key: value for key, value in extra.items() if value}
        if self.log is not None:
            said = problem.what if self.structured else str(problem)
            self.log.error("%s", said, extra={"fields": parts})
        elif self.as_json:
            self.event({"error": problem.what, **parts}, "")
        else:
            sys.stderr.write(f"pretzel: {problem}\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under their columns; numbers to the right."""
    texts = [tuple(columns), *(tuple(_cell(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(columns))]
    right = [
        bool(rows) and all(isinstance(row[c], int) for row in rows) for c in range(len(columns))
    ]
    return "\n".join(
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in texts
    )


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def pairs(facts: Mapping[str, object]) -> str:
    """Facts, one a line."""
    width = max(map(len, facts), default=0)
    lines = []
    for name, value in facts.items():
        first, *others = _cell(value).split("\n")
        lines.append(f"{name:<{width}}  {first}".rstrip())
        lines += [f"{'':<{width}}  {other}" for other in others]
    return "\n".join(lines)


_EVERY = 0.1
_BLOCKS = " ▏▎▍▌▋▊▉█"


class TaskProgress:
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
        """Part of the total that this is; 0 where there is none."""
        return done / self._total if self._total else 0.0

    def step(self, note: str) -> None:
        """Show the current step of a task without a total."""
        if self.shown:
            self._draw(f"{self._label}: {note}")

    def _draw(self, text: str) -> None:
        self._stream.write("\r" + text + " " * max(self._width - len(text), 0))
        self._stream.flush()
        self._width = len(text)

    def __enter__(self) -> TaskProgress:
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
