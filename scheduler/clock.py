"""Time, passed in from outside, so that everything about time can be tested without waiting.

The scheduler reads time through a `Clock` and sleeps through it too. `RealClock` is the
machine's monotonic clock. `SimulatedClock` stands still until a test moves it.
"""

from __future__ import annotations

import threading
import time
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
