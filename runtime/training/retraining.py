"""Training again: by time, by an alarm of a watch, or by hand.

detect -> train -> roll out -> watch the version that answers now
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from objectstore import Closing
from runtime.repeated import Repeated
from runtime.training.publisher import Publisher
from runtime.training.training import TrainingOutcome
from runtime.watch import Watch

log = logging.getLogger("pretzel.training")
_LOOK_SECONDS, _END_SECONDS = 1.0, 5.0


class Retraining(Closing):
    """Trains an endpoint's next version whenever there is a reason to, on a thread of its own.

    `train` is called with the reason: an alarm of a detector, or a column that has drifted, of the
    watch that `watch` begins; `every` seconds since the last training; or a call of `request`. When
    the publisher's rollout is over, the former watch is closed and another one begun. Alarms
    within `pause` seconds of a training do not count.
    """

    def __init__(
        self,
        train: Callable[[str], TrainingOutcome],
        publisher: Publisher,
        *,
        watch: Callable[[], Watch] | None = None,
        every: float | None = None,
        pause: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        start: bool = True,
    ) -> None:
        """Begin to look; without `start`, only calls of `look` do."""
        self._train, self._publisher, self._begin = train, publisher, watch
        self._every, self._pause, self._clock = every, pause, clock
        self.watch = None if watch is None else watch()
        self._last, self._paused = clock(), float("-inf")
        self._requested, self._is_stale = "", False
        #: The trainings so far: why, and how they ended.
        self.outcomes: list[tuple[str, TrainingOutcome]] = []
        self._failures, self._over = Repeated(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pretzel-training", daemon=True)
        if start:
            self._thread.start()

    def request(self, why: str = "by hand") -> None:
        """Train with the next look."""
        self._requested = why

    def reason(self) -> str:
        """The reason to train now; empty where there is none."""
        now = self._clock()
        if self._requested:
            return self._requested
        if self._every is not None and now - self._last >= self._every:
            return f"{now - self._last:.0f} s since the last training"
        if self.watch is None or now < self._paused:
            return ""
        if self.watch.alarms:
            last = self.watch.alarms[-1]
            causes = ", ".join(each.column for each in last.causes[:3])
            return f"{last.detector} has alarmed; causes: {causes or 'not known'}"
        moved = next((each for each in self.watch.drift() if each.alarms), None)
        return "" if moved is None else f"drift of {moved.column}: PSI {moved.psi:.2f}"

    def look(self) -> str:
        """Train if there is a reason, which is returned; not while a rollout runs."""
        if self._publisher.is_rolling_out():
            return ""
        if self._is_stale and self.watch is not None and self._begin is not None:
            self.watch.close()
            self.watch = self._begin()
        self._is_stale = False
        if why := self.reason():
            log.info("training: %s", why)
            self._requested, self._is_stale = "", True
            try:
                self.outcomes.append((why, self._train(why)))
            finally:
                self._last = self._clock()
                self._paused = self._last + self._pause
        return why

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            try:
                self.look()
            except Exception as problem:
                if self._failures.is_due(type(problem)):
                    log.exception("a training has failed")

    def close(self) -> None:
        """Look no more; a training that is under way ends by itself."""
        self._over.set()
        if self.watch is not None:
            self.watch.close()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)
