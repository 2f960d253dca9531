"""Load that does not wait: arrivals are fixed beforehand, and waits count from when each was due.

Whoever sends the next request only when the last was answered slows down with the server and never
sees a queue. Here a request that could not be sent in time still counts from its time, and one that
has no answer at the end counts with what it has waited until then: its wait was at least that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.contestant import Contestant, Model
from bench.histogram import Histogram
from bench.inputs import Inputs

#: Rows of a request to those models that are not latency-sensitive.
BLOCK = 100


@dataclass
class Offered:
    """What came of a stretch of load."""

    seconds: float
    asked: int = 0
    sent: int = 0
    refused: int = 0
    failed: int = 0
    rows: int = 0
    """Answered before the end."""
    requests: int = 0
    single: Histogram = field(default_factory=Histogram)
    blocks: Histogram = field(default_factory=Histogram)

    def count(self, waited: float, *, single: bool) -> None:
        """A wait of so many seconds."""
        (self.single if single else self.blocks).add([int(waited * 1e9)])

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        made = {**vars(self)}
        made.update(single=self.single.as_json(), blocks=self.blocks.as_json())
        return made


class OpenLoop:
    """Requests to many models, popular by Zipf's law; every second model is latency-sensitive."""

    def __init__(self, who: Contestant, models: Sequence[Model], inputs: Inputs) -> None:
        self._who, self._models = who, models
        self._data = [
            model.row(inputs, 0) if self.sensitive(place) else model.block(inputs, 0, BLOCK)
            for place, model in enumerate(models)
        ]
        self._lock = threading.Lock()

    @staticmethod
    def sensitive(place: int) -> bool:
        """Whether this model is asked for one row at a time."""
        return place % 2 == 0

    def offer(self, rate: float, seconds: float, seed: int) -> Offered:
        """Send so many requests a second for so long."""
        due, places = self._arrivals(rate, seconds, seed)
        found = Offered(seconds, asked=len(due))
        start = time.perf_counter() + 0.01
        waiting: list[Future[Any]] = []
        for time_due, place in zip(due, places, strict=True):
            now = time.perf_counter() - start
            if now > seconds:
                break
            if now < time_due:
                time.sleep(time_due - now)
            self._send(found, place, start + time_due, start + seconds, waiting)
        time.sleep(max(0.0, start + seconds - time.perf_counter()))
        for each in waiting:
            each.cancel()
        wait(waiting, 2.0)  # for those that cannot be cancelled: the next stretch begins with none
        for time_due, place in zip(due[found.sent :], places[found.sent :], strict=True):
            found.count(seconds - time_due, single=self.sensitive(place))
        return found

    def _arrivals(self, rate: float, seconds: float, seed: int) -> tuple[list[float], list[int]]:
        """When each request is due, and to which model.

        Which models are popular is the same at every rate, or capacities would be of another load.
        """
        rng = np.random.default_rng(seed)
        due = np.cumsum(rng.exponential(1 / rate, int(rate * seconds * 1.5) + 50))
        due = due[due < seconds]
        popular = np.random.default_rng(0).permutation(len(self._models))
        ranks = (rng.zipf(2.0, len(due)) - 1) % len(popular)
        return due.tolist(), popular[ranks].tolist()

    def _send(
        self, found: Offered, place: int, due: float, end: float, waiting: list[Future[Any]]
    ) -> None:
        found.sent += 1
        single = self.sensitive(place)

        def answered(done: Future[Any]) -> None:
            now = time.perf_counter()
            late = done.cancelled() or now > end
            if not late and done.exception() is not None:
                found.failed += 1
                return
            with self._lock:
                if not late:
                    found.requests += 1
                    found.rows += 1 if single else BLOCK
                found.count(min(now, end) - due, single=single)

        try:
            future = self._who.submit(self._models[place], self._data[place])
        except Exception as problem:
            if type(problem).__name__ != "Overloaded":
                raise
            found.refused += 1
            return
        if not future.done():
            waiting.append(future)
        future.add_done_callback(answered)
