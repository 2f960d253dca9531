"""An executor: a thread that sleeps until it is given a stage, and runs one after another."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from scheduler.executor_thread import ExecutorThread
from scheduler.queues import NOTHING, Slot
from scheduler.running import Run, RunningChunk

if TYPE_CHECKING:
    from scheduler.executor_group import ExecutorGroup


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
