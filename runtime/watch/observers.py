"""Observers of a version's calls: they are called with each batch, and must not take long.

Batches are copied into a queue, and one thread of the process folds them off the requests' way.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import InputError
from flour.data.batch import Batch
from runtime.repeated import Repeated
from runtime.routing.blocks import length
from runtime.service.asking import is_seen
from runtime.service.entry import UNTIMED
from runtime.service.version import ModelVersion
from runtime.watch.sampling import Sampling

log = logging.getLogger("pretzel.watch")
_SECONDS = 0.2
#: Whoever ends an observer waits so long for what is left to be folded; the rest is dropped.
_LAST_SECONDS = 0.1
_attaching = threading.Lock()

#: Copies the rows of a batch at these places, or all.
Copy = Callable[[Batch, NDArray[np.int64] | None], Any]
#: Folds copied rows, how many each stands for (0 if they were refused), and the seconds that the
#: call took, 0 where that was not measured.
Fold = Callable[[Any, int, float], None]


class RowQueue:
    """A queue of copied rows, bounded, and the function that folds them in the background."""

    def __init__(self, copy: Copy, fold: Fold, most: int, sampling: Sampling) -> None:
        self._copy, self._fold_one, self._most, self.sampling = copy, fold, most, sampling
        self._queue: deque[tuple[Any, int, int, float]] = deque()
        self._waiting = 0
        #: Rows that came while the queue was full, and were not looked at.
        self.dropped = 0
        #: Blocks that could not be folded.
        self.failed = 0
        self._failures = Repeated()
        #: True if errors are logged with their texts, which may quote values; and of what.
        self.tells, self.owner = True, ""
        self._folding = threading.Lock()
        self._wake, self._ended, self.until = threading.Event(), False, math.inf
        self.version: ModelVersion | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, batch: Batch, weight: int, seconds: float = 0.0) -> None:
        """Keep a copy of a batch that stands for `weight` batches like it."""
        rows = batch.rows or length(batch.data) or 1
        places, weight = self.sampling.chosen(rows, weight, by_entry=seconds > 0)
        if places is None or len(places):
            copied = partial(self._copy, batch, places)
            self.put(copied, rows if places is None else len(places), weight, seconds)

    def refused(self, data: object) -> None:
        """A call was refused; few want to know."""

    def put(
        self, copied: Callable[[], Any], rows: int, weight: int = 0, seconds: float = 0.0
    ) -> None:
        """Put a copy of rows into the queue, unless it is full; without a weight of refused rows.

        What is folded last at the end takes its time, so blocks come in parts.
        """
        if self._waiting + rows > self._most:
            self.dropped += rows
            return
        self._queue.append((copied(), rows, weight, seconds))
        self._waiting += rows
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
                if monotonic() > self.until:
                    self.dropped += rows
                    continue
                try:
                    self._fold_one(copied, weight, seconds)
                except Exception:  # noqa: BLE001 (a thread that has to go on)
                    self.tell("could not fold rows")
        if self.version is not None:  # it may be time to look at more calls, or at fewer
            _refresh(self.version)

    def tell(self, what: str) -> None:
        """Count a failure, and log the first, the second, the fourth and so on."""
        self.failed += 1
        if self._failures.is_due():
            log.error("%s: %s (%d so far)", self.owner, what, self.failed, exc_info=self.tells)

    def end(self) -> None:
        """Fold what is left, as far as that is soon done, and end the thread."""
        self._ended, self.until = True, monotonic() + _LAST_SECONDS
        self._wake.set()
        self.fold()

    def close(self) -> None:
        """The runtime is closed."""
        self.end()


class Observers:
    """All that look at one version."""

    def __init__(self, every: tuple[RowQueue, ...]) -> None:
        self.every = every

    def __call__(self, batch: Batch, weight: int, seconds: float) -> None:
        """Show each a batch; what one cannot read must not fail the call."""
        if is_seen():
            for each in self.every:
                try:
                    each(batch, weight, seconds)
                except InputError:  # whoever answers the call refuses it as well
                    self._tell(each, batch)
                except Exception:  # noqa: BLE001 (others have nothing to do with it)
                    each.tell("could not copy a batch")

    @property
    def rest(self) -> int:
        """Mask of the calls by the entry that any of them wants to see."""
        return min((each.sampling.rest for each in self.every), default=UNTIMED)

    def refused(self, data: object) -> None:
        """Tell each of a call that was refused."""
        for each in self.every if is_seen() else ():
            self._tell(each, data)

    def _tell(self, each: RowQueue, data: object) -> None:
        try:
            each.refused(data)
        except Exception:  # noqa: BLE001 (others have nothing to do with it)
            each.tell("could not copy what was refused")

    def close(self) -> None:
        """The runtime is closed: each folds what is left, and whoever has it is closed."""
        for each in self.every:
            try:
                each.close()
            except Exception:  # noqa: BLE001 (a file that cannot be written; others have theirs)
                each.tell("could not be closed")


def observers_of(version: ModelVersion) -> tuple[RowQueue, ...]:
    """The current observers of a version."""
    watcher = version.watcher
    return watcher.every if isinstance(watcher, Observers) else ()


def attach(version: ModelVersion, observer: RowQueue) -> None:
    """Show an observer the version's calls, from the next one on."""
    observer.tells, observer.owner = not version.private, version.owner
    with _attaching:
        version.watcher = Observers((*observers_of(version), observer))
        observer.version = version
        _refresh(version)


def detach(version: ModelVersion, observer: RowQueue) -> None:
    """Show it no more; a version that nothing looks at is as it was before."""
    with _attaching:
        left = tuple(each for each in observers_of(version) if each is not observer)
        version.watcher = Observers(left) if left else None
        _refresh(version)


def _refresh(version: ModelVersion) -> None:
    """Let as many calls by the entry be looked at as what watches wants."""
    watcher = version.watcher
    version.entry.rest = UNTIMED if watcher is None else watcher.rest
    version.entry.watched = watcher is not None
