"""The batch engine: long-lived executors, one per core, that serve the two queues."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from types import TracebackType
from typing import NamedTuple

from objectstore import system
from scheduler.buffers import BufferStats, Factory
from scheduler.clock import Clock, RealClock
from scheduler.costs import CostModel
from scheduler.dispatch import Dispatcher
from scheduler.executor_group import ExecutorGroup
from scheduler.job import Job, State
from scheduler.policy import Load
from scheduler.queues import QueuePair, QueueRules
from scheduler.stats import Latency
from scheduler.ticket import Ticket


class QueueStats(NamedTuple):
    """One pair of queues now: the shared one, or that of a reservation."""

    key: Hashable
    executors: int
    idle: int
    jobs: int
    queued_jobs: int
    queued_rows: int
    queued_seconds: float


class PoolStats(NamedTuple):
    """Counters of a pool since it was made, and its queues now."""

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
    queues: tuple[QueueStats, ...]


def cores() -> int:
    """Return how many cores this process may use."""
    return system.cores()


class Pool:
    """Runs jobs on executor threads, and gives a ticket for each.

    Use it as a context manager, or call `shutdown`. A pool that is dropped without either runs the
    jobs it has accepted and then ends its threads. A process that forks has to make its pools
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
        self._group = ExecutorGroup(
            self._core, clock=clock or RealClock(), factory=buffers, costs=costs, name=name
        )
        weakref.finalize(self, self._group.abandon)

    def submit(self, job: Job) -> Ticket:
        """Accept a job, or raise `Overloaded` or `SchedulerClosed` at once; never wait."""
        return self._group.submit(job)

    def reserve(
        self, key: Hashable, executors: int = 1, *, rules: QueueRules | None = None
    ) -> None:
        """Give a key executors, buffers and queues of its own, in addition to the shared ones.

        They serve this key only, and it uses no others. Jobs that it has queued already stay where
        they are.
        """
        self._group.reserve(key, executors, rules or self._rules)

    def release(self, key: Hashable) -> None:
        """End a reservation; jobs that were accepted under it still run there."""
        self._group.release(key)

    def load(self, key: Hashable = None) -> Load:
        """Return how busy the executors are that would serve a key; cheap and without a lock."""
        pair = self._core.pair_of(key)
        fresh = pair.fresh
        return Load(len(pair.slots), len(pair.idle), len(fresh), fresh.rows, fresh.cost)

    def now(self) -> float:
        """Return the time on the clock that deadlines are on."""
        return self._group.clock.now()

    def is_full(self, key: Hashable = None, priority: int = 0, rows: int = 1) -> bool:
        """True if a job would be refused now; cheap and without a lock."""
        return self._core.pair_of(key).is_full(key, priority, rows)

    def stats(self) -> PoolStats:
        """Return all counters as plain data."""
        group, counts = self._group, self._core.counts
        with group.lock:
            queues = tuple(_queue_stats(pair) for pair in self._core.pairs)
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
            callback_errors=group.callback_errors,
            busy_seconds=busy,
            wait=wait,
            total=total,
            buffers=group.buffers(),
            queues=queues,
        )

    def shutdown(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Accept nothing more and end; return whether all executors have ended in time.

        With `drain`, accepted jobs are run first, for up to `timeout` seconds; without, or after
        that, they are cancelled. Either way every ticket is resolved when this returns. A
        stage that runs cannot be interrupted: without a timeout it is waited for.
        """
        self._group.close(drain=drain)
        ended = self._group.join(timeout)
        if not ended:
            self._group.close(drain=False)
        return ended

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Run the accepted jobs, or drop them if the block has raised."""
        self.shutdown(drain=error is None)


def _queue_stats(pair: QueuePair) -> QueueStats:
    fresh = pair.fresh
    return QueueStats(
        key=pair.key,
        executors=len(pair.slots),
        idle=len(pair.idle),
        jobs=pair.unfinished,
        queued_jobs=len(fresh),
        queued_rows=fresh.rows,
        queued_seconds=fresh.cost,
    )
