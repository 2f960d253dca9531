"""Time, passed in from outside, so that everything about time can be tested without waiting.

The scheduler reads time through a `Clock` and sleeps through it too. `RealClock` is the
machine's monotonic clock. `SimulatedClock` stands still until a test moves it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Protocol


class Signal:
    """One thread sleeps until another one wakes it; two wake-ups before the sleep count as one.

    A bare lock is the cheapest thing to sleep on that Python has: a condition variable allocates
    a lock per wait and takes two.
    """

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()

    def set(self) -> None:
        """Wake the sleeper, or let its next sleep end at once."""
        try:
            self.lock.release()
        except RuntimeError:  # it is set already
            return


class Clock(Protocol):
    """Monotonic time in seconds, and a way to sleep."""

    def now(self) -> float:
        """Return the time in seconds since some fixed moment."""

    def work(self) -> float:
        """Return the CPU time of the calling thread in seconds."""

    def wait(self, signal: Signal, timeout: float | None) -> bool:
        """Sleep until the signal is set or the time is over; return whether it was set."""


class RealClock:
    """The monotonic clock of the machine."""

    __slots__ = ()

    # The C function itself: a Python function around it would cost more than it does.
    now = staticmethod(time.monotonic)
    work = staticmethod(time.thread_time)

    def wait(self, signal: Signal, timeout: float | None) -> bool:
        """Sleep until the signal is set or the time is over; return whether it was set."""
        limit = -1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
        return signal.lock.acquire(timeout=limit)


class SimulatedClock:
    """A clock that stands still until `advance` moves it, for tests without sleeping."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._guard = threading.Lock()
        self._sleepers: list[tuple[float, Signal]] = []

    def now(self) -> float:
        """Return the time that the test has set."""
        return self._now

    def work(self) -> float:
        """Return the time that the test has set: in a simulation no thread waits."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward and wake the threads whose sleep has ended by then."""
        with self._guard:
            self._now += seconds
            due = [signal for until, signal in self._sleepers if until <= self._now]
            self._sleepers = [each for each in self._sleepers if each[0] > self._now]
        for signal in due:
            signal.set()

    @property
    def sleepers(self) -> int:
        """The number of threads that sleep until a later moment."""
        return len(self._sleepers)

    @property
    def next_wake(self) -> float | None:
        """The moment at which the first sleeper wakes if no signal comes; None without sleepers."""
        with self._guard:
            return min((moment for moment, _ in self._sleepers), default=None)

    def wait(self, signal: Signal, timeout: float | None) -> bool:
        """Sleep until the signal is set or the test has moved time far enough."""
        if timeout is None:
            return signal.lock.acquire()
        with self._guard:
            sleeper = (self._now + timeout, signal)
            if timeout <= 0:
                return signal.lock.acquire(blocking=False)
            self._sleepers.append(sleeper)
        signal.lock.acquire()
        with self._guard:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                return True
            return False


# Deadlines are kept to this, and the thread wakes no more often.
GRAIN = 0.001

# Ends jobs past their deadline; returns the next deadline, None when there will be none again.
Check = Callable[[], float | None]


class Timekeeper:
    """Sleeps until the next deadline. The thread starts with the first job that has one."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock, self._name = clock, name
        self._signal = Signal()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        # End of its sleep. Written while the pool's lock is held: a later `submit` sees the value,
        # an earlier one is seen by the check.
        self.until = -inf

    def note(self, deadline: float, check: Check) -> None:
        """A job with this deadline has been accepted."""
        if self._thread is None:
            self._start(check)
        elif deadline < self.until:
            self._signal.set()

    def stop(self) -> None:
        """Wake the thread: there may be no deadline left to wait for."""
        self._signal.set()

    def _start(self, check: Check) -> None:
        with self._guard:
            if self._thread is None:
                name = f"{self._name}-clock"
                self._thread = threading.Thread(
                    target=self._serve, args=(check,), name=name, daemon=True
                )
                self._thread.start()

    def _serve(self, check: Check) -> None:
        while (deadline := check()) is not None:
            sleep = None if deadline == inf else max(deadline - self._clock.now(), GRAIN)
            self._clock.wait(self._signal, sleep)
