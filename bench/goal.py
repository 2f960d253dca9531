"""A goal: a figure, its limit, and whether it was met; the commands of goals end with 1 if not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.machine import running_on


@dataclass(frozen=True)
class Goal:
    """One line of a table of goals."""

    name: str
    measured: float
    limit: float
    at_most: bool = False
    """Whether the limit is the most that it may be, rather than the least."""

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def __str__(self) -> str:
        wanted = f"{'<=' if self.at_most else '>='} {self.limit:.3g}"
        verdict = "met" if self.met else "MISSED"
        return f"{self.name:66} {wanted:>9}  measured {self.measured:8.2f}  {verdict}"


def printed(goals: Iterable[Goal]) -> int:
    """Print goals as they come; the exit status, 1 where one was missed."""
    print(f"# {running_on()}", flush=True)
    every = []
    for goal in goals:
        print(goal, flush=True)
        every.append(goal)
    missed = sum(not goal.met for goal in every)
    print(f"{len(every)} goals, {missed} missed")
    return int(missed > 0)
