"""The threads of a pool, and the lock under which they and callers talk to the dispatcher.

A thread sleeps on a lock of its own, and whoever has work for it assigns the work first and wakes
it then: it finds its run ready and takes no other lock before the stage begins. The dispatcher's
lock is held for a few microseconds per event and never while foreign code runs: stages, buffer
factories, joins and callbacks run outside it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable

from scheduler.buffers import NO_BUFFERS, BufferPool, BufferStats, Factory
from scheduler.clock import Clock
from scheduler.costs import CostModel
from scheduler.dispatch import Dispatcher
from scheduler.effects import NOTHING, Effects
from scheduler.errors import NoThread
from scheduler.executor import Executor, ExecutorThread
from scheduler.job import Job
from scheduler.lane import Slot
from scheduler.queues import QueueRules
from scheduler.ticket import Ticket, Timing
from scheduler.timekeeper import Timekeeper
from scheduler.work import RunningChunk, RunningJob

_log = logging.getLogger("pretzel.scheduler")
_crews: weakref.WeakSet[ExecutorGroup] = weakref.WeakSet()


class ExecutorGroup:
    """What the threads of a pool share. It does not know the pool, so that can be dropped."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        factory: Factory,
        costs: CostModel | None,
        name: str,
    ) -> None:
        self.core, self.clock, self.name = dispatcher, clock, name
        self.lock = threading.Lock()
        self.executors: dict[Slot, Executor] = {}
        self.orphans: deque[Slot] = deque()  # slots for which there was no thread
        self.callback_errors = 0
        self._factory, self._costs = factory, costs
        self._timekeeper = Timekeeper(clock, name)
        self._pools: list[BufferPool] = []
        self._buried = NO_BUFFERS
        self._guard = threading.Lock()
        self._abandoned = False
        _crews.add(self)
        self.apply(self.core.collect())
        if self.orphans:
            self.close(drain=False)
            raise NoThread("an executor could not be started", hint="the limit of threads")

    # For callers.

    def submit(self, job: Job) -> Ticket:
        """Accept a job, or raise at once."""
        ticket = Ticket()
        self.lock.acquire()
        try:
            work = self.core.submit(job, ticket, self.clock.now())
            ticket.bind(self, work)
        finally:
            effects = self.core.collect()
            self.lock.release()
            self.apply(effects)
        if job.deadline is not None:
            self._timekeeper.note(job.deadline, self.check_deadlines)
        return ticket

    def cancel(self, work: RunningJob) -> None:
        """Take a job back unless it is over."""
        with self.lock:
            self.core.cancel(work, self.clock.now())
            effects = self.core.collect()
        self.apply(effects)

    def reserve(self, key: Hashable, executors: int, rules: QueueRules) -> None:
        """Give a key executors of its own."""
        with self.lock:
            self.core.reserve(key, executors, rules)
            effects = self.core.collect()
        self.apply(effects)
        if self.orphans:
            self.orphans.clear()
            self.release(key)
            raise NoThread("an executor could not be started", hint="the limit of threads")

    def release(self, key: Hashable) -> None:
        """Take a key's executors back."""
        with self.lock:
            self.core.release(key)
            effects = self.core.collect()
        self.apply(effects)

    def check_deadlines(self) -> float | None:
        """End what is late; return the next deadline, or None when none can come any more."""
        with self.lock:
            self.core.tick(self.clock.now())
            effects = self.core.collect()
            deadline = self._timekeeper.until = self.core.next_deadline
            over = self.core.closed and not self.core.unfinished
        self.apply(effects)
        return None if over else deadline

    def close(self, *, drain: bool) -> None:
        """Accept nothing more, and finish or drop what was accepted."""
        with self.lock:
            self.core.close(self.clock.now(), drain=drain)
            effects = self.core.collect()
        self.apply(effects)
        self._timekeeper.stop()

    def join(self, timeout: float | None) -> bool:
        """Wait until all threads have ended; return whether they have."""
        until = None if timeout is None else time.monotonic() + timeout
        # Again and again, as an executor that dies is replaced by one that is not on this list.
        while others := [each for each in tuple(self.executors.values()) if not each.is_me()]:
            for executor in others:
                executor.join(None if until is None else max(0.0, until - time.monotonic()))
            if until is not None and time.monotonic() >= until:
                break
        return not others

    def abandon(self) -> None:
        """Drain and end, as nobody can submit any more.

        The garbage collector may call this anywhere, also where this thread holds the lock; then
        whoever holds the lock does it after letting go of it, in `apply`.
        """
        self._abandoned = True
        if self.lock.acquire(blocking=False):
            self.lock.release()
            self.apply(NOTHING)

    def buffers(self) -> BufferStats:
        """Return what the pools of all executors did, those that are gone included."""
        with self._guard:
            return sum((pool.stats() for pool in self._pools), self._buried)

    # For everybody, without the lock.

    def apply(self, effects: Effects) -> None:
        """Do what an event asked for."""
        for slot in effects.hires:
            self._hire(slot)
        for strand in effects.ended:
            self._clear(strand)
        for slot in effects.starts:
            slot.wake.set()
        for work in effects.settled:
            self._settle(work)
        if self._abandoned:
            self._abandoned = False
            self.close(drain=True)

    def _hire(self, slot: Slot) -> None:
        executor = Executor(self, slot)
        self.executors[slot] = executor
        try:
            executor.start()
        except RuntimeError:  # the system has no more threads for this process
            del self.executors[slot]
            self.orphans.append(slot)

    def _clear(self, strand: RunningChunk) -> None:
        """Take a chunk's buffer back, and learn what the chunk cost if it got to its end."""
        job = strand.work.job
        if strand.pool is not None:
            strand.pool.give_back(strand.buffer, job.room)
            strand.buffer = strand.pool = None
        if self._costs is not None and job.typical and not strand.left:
            self._costs.observe(job.key, job.rows_of(strand.index), strand.spent)

    def _settle(self, work: RunningJob) -> None:
        """Resolve a job's ticket. What its callbacks raise must not end an executor."""
        ticket, state = work.ticket, work.over
        assert isinstance(ticket, Ticket), "the dispatcher returns the ticket it was given"
        assert state is not None, "a job is settled when it is over"
        try:
            ticket.settle(state, work.value, Timing(work.arrival, work.started, work.end))
        except BaseException:
            if not isinstance(threading.current_thread(), ExecutorThread):
                raise
            self.callback_errors += 1
            _log.exception("a callback of a ticket raised")

    # For executors.

    def new_pool(self) -> BufferPool:
        """Return the pool of buffers of a new executor."""
        pool = BufferPool(self._factory)
        with self._guard:
            self._pools.append(pool)
        return pool

    def drop_pool(self, pool: BufferPool) -> None:
        """An executor has gone; count what its pool did until its last buffer is back."""
        pool.close()
        with self._guard:
            gone = [each for each in self._pools if each.closed and not each.stats().in_use]
            self._buried = sum((each.stats() for each in gone), self._buried)
            self._pools = [each for each in self._pools if each not in gone]


def _after_fork() -> None:
    """A child has no executors and may have inherited a locked lock: it gets closed pools."""
    for crew in tuple(_crews):
        crew.lock = threading.Lock()
        crew.core.closed = True
        crew.executors.clear()


os.register_at_fork(after_in_child=_after_fork)
