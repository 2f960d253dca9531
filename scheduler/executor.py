"""An executor: a thread that sleeps until it is given a stage, and runs what there is to run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from scheduler.effects import NOTHING
from scheduler.lane import Slot
from scheduler.work import Run, RunningChunk

if TYPE_CHECKING:
    from scheduler.crew import ExecutorGroup


class ExecutorThread(threading.Thread):
    """A thread that belongs to a pool. A daemon, so that a stage cannot keep a process alive."""


class Executor:
    """The thread of a slot, with its own buffers.

    What a stage raises fails its job. What is not an `Exception`, such as the SystemExit of code
    that wants to end its thread, ends the thread too, and another one takes over.
    """

    __slots__ = ("_crew", "_pool", "_slot", "_thread")

    def __init__(self, crew: ExecutorGroup, slot: Slot) -> None:
        self._crew, self._slot = crew, slot
        self._pool = crew.new_pool()
        name = f"{crew.name}-{slot.number}"
        self._thread = ExecutorThread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        try:
            self._thread.start()
        except RuntimeError:
            self._crew.drop_pool(self._pool)
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
                # A run may be here before its wake-up call is; that one then comes for nothing.
                while slot.run is not None:
                    self._step(slot, slot.run)
        except BaseException as error:  # noqa: BLE001 - whatever ends a thread ends here
            self._die(error)

    def _step(self, slot: Slot, run: Run) -> None:
        """Run one stage and report. In a function of its own: a sleeping thread keeps nothing."""
        crew = self._crew
        error: Exception | None = None
        value: object = None
        clock = crew.clock
        slot.since = clock.now()
        # Waiting for the interpreter's lock is no cost of the work; taken for one, it would have
        # busy pools cut work into ever smaller chunks.
        began = clock.work() if run.strand.work.job.computes else None
        try:
            value = self._run(run)
        except Exception as raised:  # noqa: BLE001 - it is the caller's, who gets it
            error = _own_frames_cut(raised)
        spent = None if began is None else clock.work() - began
        with crew.lock:
            if error is None:
                crew.core.finished(slot, value, clock.now(), spent)
            else:
                crew.core.failed(slot, error, crew.clock.now())
            effects = crew.core.collect()
        if effects is not NOTHING:
            crew.apply(effects)

    def _run(self, run: Run) -> object:
        strand, stage = run
        work = strand.work
        if work.over is not None:  # it was cancelled on the way here
            return None
        room = work.job.room
        if room and strand.pool is None and strand.index >= 0:
            self._supply(strand, room)
        return strand.stages.calls[stage](strand.chunk, strand.buffer)

    def _supply(self, strand: RunningChunk, room: int) -> None:
        """Give a chunk that starts its buffer; several first stages may start at once."""
        if len(strand.stages.first) == 1:
            strand.buffer, strand.pool = self._pool.acquire(room), self._pool
            return
        with strand.entry:
            if strand.pool is None:
                strand.buffer, strand.pool = self._pool.acquire(room), self._pool

    def _die(self, error: BaseException) -> None:
        crew = self._crew
        with crew.lock:
            crew.core.died(self._slot, error, crew.clock.now())
            effects = crew.core.collect()
        crew.apply(effects)

    def leave(self) -> Executor | None:
        """Sign off; return a successor to be in this thread if there was no thread for one."""
        crew = self._crew
        crew.drop_pool(self._pool)
        successor: Executor | None = None
        if crew.orphans:
            slot = crew.orphans.popleft()
            successor = crew.executors[slot] = Executor(crew, slot)
            successor._thread = self._thread
        crew.executors.pop(self._slot, None)
        return successor


def _own_frames_cut(error: Exception) -> Exception:
    """Return the error without our frames, which would keep the chunk and the buffer alive."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)
