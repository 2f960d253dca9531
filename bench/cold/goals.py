"""Goals of the cold start: the lines that are printed, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.report.tables import Table


class Goal(NamedTuple):
    """A figure, and what it may be at most."""

    name: str
    most: float
    measured: float

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.measured <= self.most

    def __str__(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return f"{self.name:58} at most {self.most:7.1f}  measured {self.measured:7.1f}  {verdict}"


class Told(NamedTuple):
    """A figure beside the goals."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


Line = Goal | Told


def table(lines: Sequence[Line]) -> Table:
    """All lines as a table."""
    goals = [line for line in lines if isinstance(line, Goal)]
    met = sum(goal.met for goal in goals)
    rows = [_row(line) for line in lines]
    said = f"Of {len(goals)} goals, {met} are met and {len(goals) - met} are missed."
    return Table("", said, ["", "at most", "measured", ""], rows)


def _row(line: Line) -> list[str]:
    if isinstance(line, Told):
        return [line.name, "", line.text, ""]
    verdict = "met" if line.met else "**missed**"
    return [line.name, f"{line.most:g}", f"{line.measured:.3g}", verdict]
