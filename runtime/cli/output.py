"""Output of commands: results on standard output, everything else on standard error.

With `--json`, a result is one JSON value on one line, and an error one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar

from objectstore import Explained

#: Takes the values out of an error, where the command's model has private columns.
concealing: ContextVar[Callable[[Exception], BaseException] | None]
concealing = ContextVar("concealing", default=None)


def concealed(problem: Exception) -> BaseException:
    """The error as it may be shown."""
    conceal = concealing.get()
    return problem if conceal is None else conceal(problem)


class Output:
    """Writes results as text or as JSON."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    def result(self, data: object, text: str) -> None:
        """Write the result of a command, as text or JSON."""
        self.line(json.dumps(data, ensure_ascii=False) if self.as_json else text)

    def line(self, text: str) -> None:
        """Write a line, or several, of a result."""
        sys.stdout.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Write a note that is not part of the result."""
        if not self.as_json:
            sys.stderr.write(f"pretzel: {text}\n")
            sys.stderr.flush()

    def problem(self, problem: Explained) -> None:
        """Write an error with all its parts."""
        sys.stdout.flush()
        if self.as_json:
            parts = {"error": problem.what, "kind": type(problem).__name__}
            extra = {"where": problem.where, "found": problem.found, "hint": problem.hint}
            parts |= {key: value for key, value in extra.items() if value}
            sys.stderr.write(json.dumps(parts, ensure_ascii=False) + "\n")
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
