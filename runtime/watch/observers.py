"""What looks at the calls of a version: it is called with each batch, and must not take long.

Batches are copied into a queue, and one thread of the process folds them off the requests' way.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from flour.data.batch import Batch
from runtime.repeated import Repeated
from runtime.service.version import ModelVersion

log = logging.getLogger("pretzel.watch")
_SECONDS = 0.2
_attaching = threading.Lock()

#: Folds copied rows, how many batches like theirs they stand for, and the seconds that the call
#: took, 0 where that was not measured.
Fold = Callable[[Any, int, float], None]


class Observer:
    """A queue of copied rows, bounded, and the function that folds them in the background."""

    def __init__(self, copy: Callable[[Batch], tuple[Any, int]], fold: Fold, most: int) -> None:
        self._copy, self._fold_one, self._most = copy, fold, most
        self._queue: deque[tuple[Any, int, int, float]] = deque()
        self._waiting = 0
        #: Rows that came while the queue was full, and were not looked at.
        self.dropped = 0
        #: Blocks that could not be folded.
        self.failed = 0
        self._failures = Repeated()
        #: Whether errors are logged with their texts, which may quote values; and of what.
        self.tells, self.owner = True, ""
        self._folding = threading.Lock()
        self._wake, self._ended = threading.Event(), False
        self._thread: threading.Thread | None = None

    def __call__(self, batch: Batch, weight: int, seconds: float = 0.0) -> None:
        """Keep a copy of a batch that stands for `weight` batches like it."""
        if self._waiting + batch.rows > self._most:
            self.dropped += batch.rows
            return
        copied, rows = self._copy(batch)
        if rows:
            self._waiting += rows
            self._queue.append((copied, rows, weight, seconds))
            if self._thread is None:
                self.start()

    def start(self) -> None:
        """Begin to fold in the background, which the first batch does otherwise."""
        with self._folding:
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, name="pretzel-watch", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._wake.wait(_SECONDS):
            self.fold()

    def fold(self) -> None:
        """Fold what has come so far, and not what comes meanwhile."""
        with self._folding:
            for _ in range(len(self._queue)):
                copied, rows, weight, seconds = self._queue.popleft()
                self._waiting -= rows
                try:
                    self._fold_one(copied, weight, seconds)
                except Exception:  # noqa: BLE001 (a thread that has to go on)
                    self.tell("could not fold rows")

    def tell(self, what: str) -> None:
        """Count a failure, and log the first, the second, the fourth and so on."""
        self.failed += 1
        if self._failures.is_due():
            log.error("%s: %s (%d so far)", self.owner, what, self.failed, exc_info=self.tells)

    def end(self) -> None:
        """Fold what is left, and end the thread."""
        self._ended = True
        self._wake.set()
        self.fold()

    def close(self) -> None:
        """The runtime is closed."""
        self.end()


class Observers:
    """All that look at one version."""

    def __init__(self, every: tuple[Observer, ...]) -> None:
        self.every = every

    def __call__(self, batch: Batch, weight: int, seconds: float) -> None:
        """Show each a batch; what one cannot read must not fail the call."""
        for each in self.every:
            try:
                each(batch, weight, seconds)
            except Exception:  # noqa: BLE001 (others have nothing to do with it)
                each.tell("could not copy a batch")

    def close(self) -> None:
        """The runtime is closed: each folds what is left, and whoever has it is closed."""
        for each in self.every:
            each.close()


def observers_of(version: ModelVersion) -> tuple[Observer, ...]:
    """What looks at a version now."""
    watcher = version.watcher
    return watcher.every if isinstance(watcher, Observers) else ()


def attach(version: ModelVersion, observer: Observer) -> None:
    """Show an observer the version's calls, from the next one on."""
    observer.tells, observer.owner = not version.private, version.owner
    with _attaching:
        version.watcher = Observers((*observers_of(version), observer))
        version.entry.coarse_timing = True


def detach(version: ModelVersion, observer: Observer) -> None:
    """Show it no more; a version that nothing looks at is as it was before."""
    with _attaching:
        left = tuple(each for each in observers_of(version) if each is not observer)
        version.watcher = Observers(left) if left else None
