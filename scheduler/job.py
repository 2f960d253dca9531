"""A job: stages over chunks of rows, with its cost, deadline and priority."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.errors import BadJob

# A stage gets its chunk and the chunk's buffer. Both are opaque to the scheduler.
Stage = Callable[[Any, Any], object]


class State(enum.Enum):
    """The state of a job. The last four are final, and every job reaches exactly one of them."""

    QUEUED = "queued"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


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


# Assumed cost of a chunk that was never measured, in seconds: well above zero, so that it counts.
UNMEASURED = 100e-6


@dataclass(slots=True, eq=False)
class Job:
    """Stages and the chunks to run them on; never changed once made. `Job.of` checks its arguments.

    Every chunk goes through all stages on its own, holding one buffer of `room` bytes from its
    first stage to its last. When all chunks are done, `join` turns their answers, in the order of
    the chunks, into the job's.
    """

    stages: Stages
    chunks: Sequence[Any]
    rows: int
    key: Hashable
    priority: int
    deadline: float | None
    cost: float
    room: int
    join: Callable[[list[Any]], object] | None
    typical: bool
    computes: bool
    alone: bool

    @classmethod
    def of(  # noqa: PLR0913 - a job is this much, and all but two have a default
        cls,
        stages: Stages,
        chunks: Sequence[Any],
        *,
        rows: int | None = None,
        key: Hashable = None,
        priority: int = 0,
        deadline: float | None = None,
        cost: float | None = None,
        room: int = 0,
        join: Callable[[list[Any]], object] | None = None,
        typical: bool = True,
        computes: bool = False,
        alone: bool = False,
    ) -> Job:
        """Return a job over `chunks`, which are opaque: slices, arrays, requests.

        `key` names the caller: keys share executors fairly, and can reserve some. A higher
        `priority`
        goes first. `deadline` is a moment on the pool's clock. `cost` is the estimated time in
        seconds for all chunks together. Without `join` the answer is the list of the chunks'
        answers. A job that is not `typical` is not measured. The cost of a job that `computes` and
        never waits is CPU time, not elapsed time. With `alone` there is one chunk, and its answer
        is the job's, without a step that joins.
        """
        count = len(chunks)
        if not count:
            raise BadJob("a job needs at least one chunk", hint="answer an empty request directly")
        rows = count if rows is None else rows
        cost = UNMEASURED * count if cost is None else cost
        # Written so that a NaN, which compares as false with every number, does not pass.
        if not (rows >= 0 and 0 <= cost < float("inf") and room >= 0):
            raise BadJob("rows, cost and room count something", found=f"{rows}, {cost}, {room}")
        if deadline is not None and deadline != deadline:  # noqa: PLR0124 - is it NaN
            raise BadJob("a deadline is a moment on the pool's clock", found="NaN")
        if alone and (count > 1 or join is not None):
            raise BadJob("a chunk that is alone is not joined", found=f"{count} chunks, {join}")
        options = (key, priority, deadline, cost, room, join, typical, computes, alone)
        return cls(stages, chunks, rows, *options)

    def rows_of(self, chunk: int) -> int:
        """Return how many rows are booked for a chunk: an even share, in whole rows."""
        count = len(self.chunks)
        return self.rows * (chunk + 1) // count - self.rows * chunk // count


def split(rows: int, chunk_rows: int) -> list[slice]:
    """Return slices of at most `chunk_rows` rows, as even as they can be, that cover all rows."""
    if chunk_rows < 1:
        raise BadJob("a chunk has at least one row", found=f"chunk_rows={chunk_rows}")
    count = max(1, -(-rows // chunk_rows))
    return [slice(rows * n // count, rows * (n + 1) // count) for n in range(count)]
