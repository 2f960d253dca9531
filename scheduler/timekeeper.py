"""A thread that ends jobs whose deadline passes while every executor is busy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf

from scheduler.clock import Clock, Signal

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
