"""The batch engine: long-lived executors, one per core, that serve the two queues."""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from scheduler.buffers import BufferStats, Factory
from scheduler.clock import Clock, RealClock
from scheduler.costs import CostModel
from scheduler.crew import ExecutorGroup
from scheduler.dispatch import Dispatcher
from scheduler.job import Job
from scheduler.lane import QueuePair
from scheduler.policy import Load
from scheduler.queues import QueueRules
from scheduler.stats import Latency
from scheduler.ticket import State, Ticket


@dataclass(frozen=True, slots=True)
class LaneStats:
    """One lane now: the shared one, or that of a reservation."""

    key: Hashable
    executors: int
    idle: int
    jobs: int
    queued_jobs: int
    queued_rows: int
    queued_seconds: float


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What a pool did since it was made, and what it has to do."""

    submitted: int
    refused: int
    started: int
    done: int
    failed: int
    expired: int
    cancelled: int
    stages: int
    deaths: int
    callback_errors: int
    busy_seconds: float
    wait: Latency
    total: Latency
    buffers: BufferStats
    lanes: tuple[LaneStats, ...]


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """Runs jobs on executor threads, and gives a ticket for each.

    Use it as a context manager, or call `shutdown`. A pool that is dropped without either runs
    what it has accepted and then ends its threads. A process that forks has to make its pools
    after the fork: in the child, those of the parent are closed.
    """

    def __init__(
        self,
        executors: int | None = None,
        *,
        rules: QueueRules | None = None,
        buffers: Factory = bytearray,
        costs: CostModel | None = None,
        clock: Clock | None = None,
        name: str = "pretzel",
    ) -> None:
        self._rules = rules or QueueRules()
        self._core = Dispatcher(cores() if executors is None else executors, self._rules)
        self._crew = ExecutorGroup(
            self._core, clock=clock or RealClock(), factory=buffers, costs=costs, name=name
        )
        weakref.finalize(self, self._crew.abandon)

    def submit(self, job: Job) -> Ticket:
        """Accept a job, or raise `Overloaded` or `SchedulerClosed` at once; never wait."""
        return self._crew.submit(job)

    def reserve(
        self, key: Hashable, executors: int = 1, *, rules: QueueRules | None = None
    ) -> None:
        """Give a key executors, buffers and queues of its own, in addition to the shared ones.

        They serve nobody else, and the key uses no others. What it has queued already stays where
        it is.
        """
        self._crew.reserve(key, executors, rules or self._rules)

    def release(self, key: Hashable) -> None:
        """End a reservation; what was accepted under it still runs there."""
        self._crew.release(key)

    def load(self, key: Hashable = None) -> Load:
        """Return how busy the executors are that would serve a key; cheap and without a lock."""
        lane = self._core.lane_of(key)
        fresh = lane.fresh
        return Load(len(lane.slots), len(lane.idle), len(fresh), fresh.rows, fresh.cost)

    def now(self) -> float:
        """Return the time on the clock that deadlines are on."""
        return self._crew.clock.now()

    def is_full(self, key: Hashable = None, priority: int = 0, rows: int = 1) -> bool:
        """Whether a job would be refused now; cheap and without a lock."""
        return self._core.lane_of(key).is_full(key, priority, rows)

    def stats(self) -> PoolStats:
        """Return all counters as plain data."""
        crew, counts = self._crew, self._core.counts
        with crew.lock:
            lanes = tuple(_lane_stats(lane) for lane in self._core.lanes)
            ends = dict(counts.reached)
            wait, total = counts.wait.summary(), counts.total.summary()
            submitted, refused, stages = counts.submitted, counts.refused, counts.stages
            deaths, busy = counts.deaths, counts.busy
        return PoolStats(
            submitted=submitted,
            refused=refused,
            started=ends[State.STARTED],
            done=ends[State.DONE],
            failed=ends[State.FAILED],
            expired=ends[State.EXPIRED],
            cancelled=ends[State.CANCELLED],
            stages=stages,
            deaths=deaths,
            callback_errors=crew.callback_errors,
            busy_seconds=busy,
            wait=wait,
            total=total,
            buffers=crew.buffers(),
            lanes=lanes,
        )

    def shutdown(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Accept nothing more and end; return whether all executors have ended in time.

        With `drain`, what was accepted is run first, for up to `timeout` seconds; without, or
        after that, it is cancelled. Either way every ticket is resolved when this returns. A
        stage that runs cannot be interrupted: without a timeout it is waited for.
        """
        self._crew.close(drain=drain)
        ended = self._crew.join(timeout)
        if not ended:
            self._crew.close(drain=False)
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Run what was accepted, or drop it if the block has raised."""
        self.shutdown(drain=error is None)


def _lane_stats(lane: QueuePair) -> LaneStats:
    fresh = lane.fresh
    return LaneStats(
        key=lane.key,
        executors=len(lane.slots),
        idle=len(lane.idle),
        jobs=lane.works,
        queued_jobs=len(fresh),
        queued_rows=fresh.rows,
        queued_seconds=fresh.cost,
    )
