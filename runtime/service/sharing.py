"""One block of rows, computed by its caller and by executors that help.

The caller and its helpers take ranges of rows until none is left: the next one when a thread has
done one. So nothing depends on how long a helper takes to begin, or on what was expected of it: if
none comes, the caller has done all there is. Ranges are large at first, and small in the end, when
threads wait for one another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from oven.plans.execution import Execution
from scheduler import DeadlineExceeded

#: Called with the rows of a range, and the seconds that it took.
Learn = Callable[[int, float], None]


def range_rows(left: int, threads: int, least: int, most: int) -> int:
    """The number of rows of the next range, out of those left."""
    return min(max(left // threads, least), most, left)


def late(done: str) -> DeadlineExceeded:
    """The error of a call that took too long, with the part that was done."""
    return DeadlineExceeded(
        "the deadline passed before the call was done",
        found=done,
        hint="allow more time, or send fewer rows at once",
    )


class SharedRun:
    """A run of a plan, by any number of threads."""

    def __init__(
        self,
        begin: Callable[[], Execution | Tasks],
        threads: int,
        least: int,
        most: int,
        *,
        deadline: float | None = None,
        clock: Callable[[], float] = time.thread_time,
        learn: Learn | None = None,
    ) -> None:
        """A run of what `begin` gives, by so many threads, in ranges of `least` to `most` rows.

        The caller begins it while its helpers wake up.
        """
        self._begin, self._threads, self._least, self._most = begin, threads, least, most
        self._deadline = inf if deadline is None else deadline
        self._clock, self._learn = clock, learn
        self._lock, self._done = threading.Lock(), threading.Event()
        self._begun = threading.Event()
        #: Rows, the first one that no thread has taken, and ranges in progress.
        self._rows = self._next = self._open = 0
        self._error: BaseException | None = None
        self.work_seconds = 0.0  # processor time, of all threads

    def run(self) -> dict[str, Any]:
        """Every output, once all rows are done; called once, by the caller."""
        try:
            self._work = work = self._begin()
            self._rows = work.rows
            self._begun.set()
            if work.uncut or not self._rows:
                self._next = self._rows
                self._compute(0, self._rows)
            else:
                self._take_all()
        finally:
            self._end()
        if self._error is not None:
            raise self._error
        del self._work  # a helper that comes too late may keep this run for a while
        return work.finish()

    def help(self) -> None:
        """Compute ranges until there is none left, unless the caller is slow to read its data."""
        if self._begun.wait(1.0):
            self._take_all()

    def _take_all(self) -> None:
        while (taken := self._take()) is not None:
            try:
                self._compute(*taken)
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                self._error, self._next = error, self._rows
            finally:
                with self._lock:
                    self._open -= 1
                    over = not self._open and self._next >= self._rows
                if over:
                    self._done.set()

    def _take(self) -> tuple[int, int] | None:
        with self._lock:
            start, left = self._next, self._rows - self._next
            if left <= 0:
                return None
            size = range_rows(left, self._threads, self._least, self._most)
            self._next += size
            self._open += 1
        return start, start + size

    def close(self) -> None:
        """Let helpers go that wait for the beginning, where there will be none."""
        self._begun.set()

    def _end(self) -> None:
        """Wait for the ranges that helpers have begun."""
        with self._lock:
            self._next = self._rows
            waits = self._open > 0
        self.close()
        if waits:
            self._done.wait()

    def _compute(self, start: int, stop: int) -> None:
        work, began, worked = self._work, self._clock(), time.thread_time()
        chunk = work.chunk(start, stop)
        for number in range(work.steps):
            if time.monotonic() >= self._deadline:
                raise late(f"{start} of {self._rows} rows were done")
            work.step(number, chunk)
        with self._lock:
            self.work_seconds += time.thread_time() - worked
        if self._learn is not None:
            self._learn(stop - start, self._clock() - began)


class Tasks:
    """Calls that need nothing of one another, as a run whose rows they are."""

    steps, uncut = 1, False

    def __init__(self, tasks: Sequence[Callable[[], object]]) -> None:
        self._tasks, self.rows = tasks, len(tasks)

    def chunk(self, start: int, stop: int) -> Any:
        """Some of them."""
        return self._tasks[start:stop]

    def step(self, _number: int, chunk: Any) -> None:
        """Make these calls."""
        for task in chunk:
            task()

    def finish(self) -> dict[str, Any]:
        """Nothing: the calls have put their answers where they belong."""
        return {}
