"""Goals of the cold start: the lines that are printed, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.goal import Goal
from bench.report.tables import Table


def at_most(name: str, limit: float, measured: float) -> Goal:
    """A goal with the most that its figure may be."""
    return Goal(name, measured, limit, at_most=True)


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
    return [line.name, f"{line.limit:g}", f"{line.measured:.3g}", verdict]
