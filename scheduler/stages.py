"""The stages of a job: callables on a chunk of rows, and which of them wait for which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from scheduler.errors import BadJob

# A stage gets its chunk and the chunk's buffer. Both are opaque to the scheduler.
Stage = Callable[[Any, Any], object]


@dataclass(frozen=True, slots=True)
class Stages:
    """Callables in an order in which they may run, and for each the earlier ones it waits for.

    The value of the last one is the chunk's answer. Stages that do not wait for one another may
    run at the same time, on different executors, with the same buffer. One object serves any number
    of jobs, so the derived fields are computed once.
    """

    calls: tuple[Stage, ...]
    after: tuple[tuple[int, ...], ...]
    then: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    waits: tuple[int, ...] = field(init=False, repr=False, compare=False)
    first: tuple[int, ...] = field(init=False, repr=False, compare=False)
    linear: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        count = len(self.calls)
        then = [tuple(n for n in range(count) if each in self.after[n]) for each in range(count)]
        derived = {
            "then": tuple(then),
            "waits": tuple(len(each) for each in self.after),
            "first": tuple(n for n in range(count) if not self.after[n]),
            "linear": all(each == (n - 1,) for n, each in enumerate(self.after) if n),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        if not self.calls:
            raise BadJob("a job needs at least one stage")
        if len(self.after) != len(self.calls):
            raise BadJob(
                "every stage needs its list of stages to wait for",
                found=f"{len(self.calls)} stages, {len(self.after)} lists",
            )
        for number, waits in enumerate(self.after):
            if len(set(waits)) != len(waits) or not all(0 <= each < number for each in waits):
                raise BadJob(
                    "a stage waits for earlier stages, each named once",
                    where=f"stage {number}",
                    found=f"it waits for {waits}",
                    hint="list the stages in an order in which they can run",
                )

    @classmethod
    def chain(cls, *calls: Stage) -> Stages:
        """Return stages that run one after the other."""
        return cls(calls, tuple((n - 1,) if n else () for n in range(len(calls))))

    @classmethod
    def graph(cls, *steps: tuple[Stage, Iterable[int]]) -> Stages:
        """Return stages given as (callable, numbers of the stages it waits for)."""
        return cls(tuple(call for call, _ in steps), tuple(tuple(waits) for _, waits in steps))
