"""A ticket: the caller's future for a job, which can be cancelled also once it has started."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from scheduler.errors import WaitsForItself
from scheduler.job import State
from scheduler.queues import RunningJob


class ExecutorThread(threading.Thread):
    """A thread that belongs to a pool. A daemon, so that a stage cannot keep a process alive."""


def is_executor() -> bool:
    """True if the calling thread is an executor, of any pool: it waits for no other's work."""
    return isinstance(threading.current_thread(), ExecutorThread)


class Timing(NamedTuple):
    """When a job was submitted, first started and ended, on the pool's clock."""

    submitted: float
    started: float | None
    ended: float


class Canceller(Protocol):
    """The interface of a ticket to the pool: cancel a job."""

    def cancel(self, running: RunningJob) -> None:
        """Cancel the job unless it is over."""


class Awaited(Future[Any]):
    """A future that no thread waits for that it may need: executors, and those that `needs` say."""

    def __init__(self, *needs: Callable[[], bool]) -> None:
        super().__init__()
        self.needs = needs

    def result(self, timeout: float | None = None) -> Any:
        """The result; WaitsForItself where the calling thread, without a timeout, may not wait."""
        waits = timeout is None and not self.done()
        if waits and (is_executor() or any(is_needed() for is_needed in self.needs)):
            self.cancel()
            raise WaitsForItself(
                "a thread would wait for work that may be waiting for it",
                hint="await runtime.apredict, or call from another thread",
            )
        return super().result(timeout)


class Ticket(Awaited):
    """A `concurrent.futures.Future`, so it works with `wait`, `as_completed` and asyncio.

    Unlike other futures, it can be cancelled until its job is over: stages that run now go on to
    their end, their results are dropped, and no further stage of the job starts.
    """

    timing: Timing | None = None

    def __init__(self) -> None:
        super().__init__()
        self._ours: tuple[Canceller, RunningJob] | None = None
        self._final: State | None = None

    def bind(self, canceller: Canceller, running: RunningJob) -> None:
        """Connect the ticket with its job."""
        self._ours = (canceller, running)

    @property
    def status(self) -> State:
        """The state of the job."""
        if self._final is not None:
            return self._final
        ours = self._ours
        return State.STARTED if ours is not None and ours[1].started is not None else State.QUEUED

    def running(self) -> bool:
        """Return whether the job has started and is not over."""
        return self.status is State.STARTED

    def cancel(self) -> bool:
        """Cancel the job; return whether it was not over yet."""
        ours = self._ours
        if ours is not None:
            ours[0].cancel(ours[1])
        return self.cancelled()

    def settle(self, state: State, value: object, timing: Timing) -> None:
        """Resolve the ticket; called once, by the pool.

        The ticket drops its job first, so that a kept answer does not keep the input alive.
        """
        self._ours, self._final, self.timing = None, state, timing
        if state is State.DONE:
            self.set_result(value)
        elif state is State.CANCELLED:
            # Not our `cancel`, which would call the pool again.
            super().cancel()
            self.set_running_or_notify_cancel()
        else:
            self.set_exception(value if isinstance(value, BaseException) else None)
