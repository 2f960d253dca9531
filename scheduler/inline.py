"""The request/response engine: stages run on the caller's thread, with that thread's buffers."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, replace

from scheduler.buffers import NO_BUFFERS, BufferPool, BufferStats, Factory
from scheduler.clock import Clock, RealClock
from scheduler.costs import CostModel
from scheduler.errors import DeadlineExceeded, Overloaded
from scheduler.job import Stages


@dataclass(frozen=True, slots=True)
class InlineStats:
    """Counters of the engine, over all threads."""

    calls: int = 0
    failed: int = 0
    refused: int = 0
    threads: int = 0
    buffers: BufferStats = NO_BUFFERS

    def __add__(self, other: InlineStats) -> InlineStats:
        return InlineStats(
            self.calls + other.calls,
            self.failed + other.failed,
            self.refused + other.refused,
            self.threads + other.threads,
            self.buffers + other.buffers,
        )


class ThreadCounts:
    """Counters of one thread, written without a lock."""

    __slots__ = ("calls", "failed", "pool", "until_sample")

    def __init__(self, pool: BufferPool) -> None:
        self.calls = self.failed = 0
        self.until_sample = 1  # the first call is measured
        self.pool = pool


class _Here(threading.local):
    """State of the calling thread; it ends with the thread."""

    tally: ThreadCounts | None = None
    owner: _ThreadOwner | None = None


class _ThreadOwner:
    """Lives as long as its thread, so a weak reference to it tells when the thread has ended."""

    __slots__ = ("__weakref__",)


class InlineEngine:
    """Runs a call where it is made. One call in `sample` is timed, for the cost model.

    `limit` bounds how many calls compute at once; without it nothing is locked.
    """

    def __init__(
        self,
        *,
        buffers: Factory = bytearray,
        limit: int | None = None,
        costs: CostModel | None = None,
        sample: int = 16,
        clock: Clock | None = None,
    ) -> None:
        self._factory, self._costs, self._sample = buffers, costs, max(1, sample)
        self._clock: Clock = clock or RealClock()
        self._gate = None if limit is None else threading.Semaphore(limit)
        self._here = _Here()
        self._tallies: dict[object, ThreadCounts] = {}
        self._gone: deque[ThreadCounts] = deque()
        self._guard = threading.Lock()
        self._past = InlineStats()
        self._refused = 0
        self.limit = limit

    def run(
        self,
        stages: Stages,
        chunk: object,
        *,
        room: int = 0,
        rows: int = 1,
        key: Hashable = None,
        deadline: float | None = None,
    ) -> object:
        """Run all stages over one chunk and return the last one's value.

        An error of a stage reaches the caller unchanged.
        """
        if deadline is not None and self._clock.now() >= deadline:
            raise DeadlineExceeded(
                "the deadline passed before the call", hint="allow more time for it"
            )
        if self._gate is not None and not self._gate.acquire(blocking=False):
            self._refused += 1
            raise Overloaded(
                "as many calls as allowed are being computed", found=f"limit={self.limit}"
            )
        try:
            return self._run(stages, chunk, room, rows, key)
        finally:
            if self._gate is not None:
                self._gate.release()

    def _run(self, stages: Stages, chunk: object, room: int, rows: int, key: Hashable) -> object:
        tally = self._here.tally or self._enter()
        tally.calls += 1
        tally.until_sample -= 1
        sampled = not tally.until_sample
        began = self._clock.now() if sampled else 0.0
        buffer = tally.pool.acquire(room) if room else None
        value: object = None
        try:
            for call in stages.calls:
                value = call(chunk, buffer)
        except BaseException:
            tally.failed += 1
            raise
        finally:
            if room:
                tally.pool.give_back(buffer, room)
            if sampled:
                tally.until_sample = self._sample
        if sampled and self._costs is not None:
            self._costs.observe(key, rows, self._clock.now() - began)
        return value

    def _enter(self) -> ThreadCounts:
        """Make the calling thread's tally; it joins the totals when the thread has ended."""
        tally = ThreadCounts(BufferPool(self._factory))
        here, owner = self._here, _ThreadOwner()
        here.tally, here.owner = tally, owner
        tallies, gone = self._tallies, self._gone

        def leave(reference: object) -> None:
            # Run by the garbage collector, anywhere: nothing here takes a lock.
            left = tallies.pop(reference, None)
            if left is not None:
                gone.append(left)

        tallies[weakref.ref(owner, leave)] = tally
        self._fold()
        return tally

    def _fold(self) -> None:
        """Add the tallies of ended threads to the totals."""
        while True:
            try:
                tally = self._gone.popleft()
            except IndexError:
                return
            tally.pool.close()
            with self._guard:
                self._past = self._past + _stats_of(tally)

    def stats(self) -> InlineStats:
        """Return the counters of all threads, ended ones included."""
        self._fold()
        tallies = tuple(self._tallies.values())
        with self._guard:
            past = self._past
        now = sum((_stats_of(tally) for tally in tallies), past)
        return replace(now, refused=self._refused, threads=len(tallies))


def _stats_of(tally: ThreadCounts) -> InlineStats:
    return InlineStats(tally.calls, tally.failed, buffers=tally.pool.stats())
