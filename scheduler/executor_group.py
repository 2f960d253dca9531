"""The threads of a pool, and the lock under which they and callers talk to the dispatcher.

Each thread sleeps on a lock of its own. It is assigned a run first and woken then, so it takes no
other lock before the stage begins. The dispatcher's
lock is held for a few microseconds per event and never while foreign code runs: stages, buffer
factories, joins and callbacks run outside it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable

from objectstore.system import at_fork
from scheduler.buffers import NO_BUFFERS, BufferPool, BufferStats, Factory
from scheduler.clock import Clock, Timekeeper
from scheduler.costs import CostModel
from scheduler.dispatch import Dispatcher
from scheduler.errors import NoThread
from scheduler.job import Job
from scheduler.queues import NOTHING, Effects, QueueRules, Run, RunningChunk, RunningJob, Slot
from scheduler.ticket import ExecutorThread, Ticket, Timing, is_executor


class Executor:
    """The thread of a slot, with its own buffers.

    An `Exception` from a stage fails its job. Another error, such as the SystemExit of code that
    wants to end its thread, ends the thread too, and another one takes over.
    """

    __slots__ = ("_group", "_pool", "_slot", "_thread")

    def __init__(self, group: ExecutorGroup, slot: Slot) -> None:
        self._group, self._slot = group, slot
        self._pool = group.new_pool()
        name = f"{group.name}-{slot.number}"
        self._thread = ExecutorThread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        try:
            self._thread.start()
        except RuntimeError:
            self._group.drop_pool(self._pool)
            raise

    def is_me(self) -> bool:
        """Return whether the caller runs on this executor."""
        return self._thread is threading.current_thread()

    def join(self, timeout: float | None) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout)

    def _main(self) -> None:
        executor: Executor | None = self
        while executor is not None:
            executor.serve()
            executor = executor.leave()

    def serve(self) -> None:
        """Run stages until retired, or until something ends the thread."""
        slot = self._slot
        try:
            while not slot.retired:
                slot.wake.lock.acquire()
                # A run may arrive before its wake-up call, which then wakes the thread for nothing.
                while slot.run is not None:
                    self._step(slot, slot.run)
        except BaseException as error:  # noqa: BLE001 - the last handler of the thread
            group = self._group
            with group.lock:
                group.core.died(self._slot, error, group.clock.now())
                effects = group.core.collect()
            group.apply(effects)

    def _step(self, slot: Slot, run: Run) -> None:
        """Run one stage and report. A function, so that a sleeping thread keeps no chunk alive."""
        group = self._group
        error: Exception | None = None
        value: object = None
        clock = group.clock
        slot.since = clock.now()
        # Waiting for the GIL is not a cost of the chunk. If it counted, busy pools would cut jobs
        # into ever smaller chunks.
        began = clock.work() if run.chunk.running_job.job.computes else None
        try:
            value = self._run(run)
        except Exception as raised:  # noqa: BLE001 - it goes to the caller
            # Frames of our own in the traceback would keep the chunk and the buffer alive.
            trace = raised.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            error = raised.with_traceback(trace)
        spent = None if began is None else clock.work() - began
        with group.lock:
            if error is None:
                group.core.finished(slot, value, clock.now(), spent)
            else:
                group.core.failed(slot, error, group.clock.now())
            effects = group.core.collect()
        if effects is not NOTHING:
            group.apply(effects)

    def _run(self, run: Run) -> object:
        chunk, stage = run
        running = chunk.running_job
        if running.over is not None:  # it was cancelled on the way here
            return None
        room = running.job.room
        if room and chunk.pool is None and chunk.index >= 0:
            self._supply(chunk, room)
        return chunk.stages.calls[stage](chunk.data, chunk.buffer)

    def _supply(self, chunk: RunningChunk, room: int) -> None:
        """Acquire the buffer of a chunk that starts; several first stages may start at once."""
        if len(chunk.stages.first) == 1:
            chunk.buffer, chunk.pool = self._pool.acquire(room), self._pool
            return
        with chunk.entry:
            if chunk.pool is None:
                chunk.buffer, chunk.pool = self._pool.acquire(room), self._pool

    def leave(self) -> Executor | None:
        """Sign off; return a successor to run on this thread if none could be started for it."""
        group = self._group
        group.drop_pool(self._pool)
        successor: Executor | None = None
        if group.orphans:
            slot = group.orphans.popleft()
            successor = group.executors[slot] = Executor(group, slot)
            successor._thread = self._thread
        group.executors.pop(self._slot, None)
        return successor


_log = logging.getLogger("pretzel.scheduler")
_groups: weakref.WeakSet[ExecutorGroup] = weakref.WeakSet()


class ExecutorGroup:
    """State that the threads of a pool share; no reference to the pool, which can be collected."""

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
        _groups.add(self)
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
            running = self.core.submit(job, ticket, self.clock.now())
            ticket.bind(self, running)
        finally:
            effects = self.core.collect()
            self.lock.release()
            self.apply(effects)
        if job.deadline is not None:
            self._timekeeper.note(job.deadline, self.check_deadlines)
        return ticket

    def cancel(self, running: RunningJob) -> None:
        """Take a job back unless it is over."""
        with self.lock:
            self.core.cancel(running, self.clock.now())
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
        """End jobs past their deadline; return the next deadline, None if there can be none."""
        with self.lock:
            self.core.tick(self.clock.now())
            effects = self.core.collect()
            deadline = self._timekeeper.until = self.core.next_deadline
            over = self.core.closed and not self.core.unfinished
        self.apply(effects)
        return None if over else deadline

    def close(self, *, drain: bool) -> None:
        """Accept no more jobs, and finish or drop those that were accepted."""
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
        """Drain and end: called when the pool was collected, so that no job can be submitted.

        The garbage collector may call this anywhere, also where this thread holds the lock. Then
        the holder of the lock does it in `apply`, after releasing the lock.
        """
        self._abandoned = True
        if self.lock.acquire(blocking=False):
            self.lock.release()
            self.apply(NOTHING)

    def buffers(self) -> BufferStats:
        """Return the counters of all executors' buffer pools, ended executors included."""
        with self._guard:
            return sum((pool.stats() for pool in self._pools), self._buried)

    # For callers and executors, without the lock.

    def apply(self, effects: Effects) -> None:
        """Carry out the effects of an event."""
        for slot in effects.hires:
            self._hire(slot)
        for chunk in effects.ended:
            job = chunk.running_job.job
            if chunk.pool is not None:
                chunk.pool.give_back(chunk.buffer, job.room)
                chunk.buffer = chunk.pool = None
            if self._costs is not None and job.typical and not chunk.left:
                self._costs.observe(job.key, job.rows_of(chunk.index), chunk.spent)
        for slot in effects.starts:
            slot.wake.set()
        for running in effects.settled:
            self._settle(running)
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

    def _settle(self, running: RunningJob) -> None:
        """Resolve a job's ticket. An error in one of its callbacks must not end an executor."""
        ticket, state = running.ticket, running.over
        assert isinstance(ticket, Ticket), "the dispatcher returns the ticket it was given"
        assert state is not None, "a job is settled when it is over"
        try:
            ticket.settle(
                state, running.value, Timing(running.arrival, running.started, running.end)
            )
        except BaseException:
            if not is_executor():
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
        """Close the pool of an ended executor; it is counted until its last buffer is back."""
        pool.close()
        with self._guard:
            gone = [each for each in self._pools if each.closed and not each.stats().in_use]
            self._buried = sum((each.stats() for each in gone), self._buried)
            self._pools = [each for each in self._pools if each not in gone]


def _after_fork() -> None:
    """A child has no executors and may have inherited a locked lock: it gets closed pools."""
    for group in tuple(_groups):
        group.lock = threading.Lock()
        group.core.closed = True
        group.executors.clear()


at_fork(after_in_child=_after_fork)
