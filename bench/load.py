"""Load that does not wait: arrivals are fixed beforehand, and waits count from when each was due.

Whoever sends the next request only when the last was answered slows down with the server and never
sees a queue. Here a request that could not be sent in time still counts from its time, and one that
has no answer at the end counts with what it has waited until then: its wait was at least that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench.contestant import Contestant, Model
from bench.histogram import Histogram
from bench.inputs import Inputs

#: Which request was over when, and how.
_End = tuple[int, float, bool | None]

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
    late: Histogram = field(default_factory=Histogram)
    """How long after they were due requests were sent: who sends them has had no time."""

    def count(self, waited: float, *, single: bool) -> None:
        """A wait of so many seconds."""
        (self.single if single else self.blocks).add([int(waited * 1e9)])

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        made = {**vars(self)}
        for name in ("single", "blocks", "late"):
            made[name] = getattr(self, name).as_json()
        return made


class OpenLoop:
    """Requests to many models, popular by Zipf's law; every second model is latency-sensitive."""

    def __init__(self, who: Contestant, models: Sequence[Model], inputs: Inputs) -> None:
        self._who, self._models = who, models
        self._data = [
            model.row(inputs, 0) if self.sensitive(place) else model.block(inputs, 0, BLOCK)
            for place, model in enumerate(models)
        ]

    @staticmethod
    def sensitive(place: int) -> bool:
        """Whether this model is asked for one row at a time."""
        return place % 2 == 0

    def offer(self, rate: float, seconds: float, seed: int) -> Offered:
        """Send so many requests a second for so long.

        Who sends shares the interpreter with who answers, so as little as possible is done for a
        request and for an answer meanwhile: what came of them is counted afterwards.
        """
        due, places = self._arrivals(rate, seconds, seed)
        found = Offered(seconds, asked=len(due))
        ends: list[_End] = []
        start = time.perf_counter() + 0.01
        waiting = self._send_all(found, due, places, start, ends)
        time.sleep(max(0.0, start + seconds - time.perf_counter()))
        for each in waiting:
            each.cancel()
        wait(waiting, 2.0)  # for those that cannot be cancelled: the next stretch begins with none
        self._count(found, due, places, [(place, when - start, well) for place, when, well in ends])
        return found

    def _send_all(
        self,
        found: Offered,
        due: Sequence[float],
        places: Sequence[int],
        start: float,
        ends: list[_End],
    ) -> list[Future[Any]]:
        """Send each request when it is due, or as soon after that as can be; those on their way."""
        submit, models, data, clock = self._who.submit, self._models, self._data, time.perf_counter
        waiting, lags = list[Future[Any]](), list[float]()
        for number, (time_due, place) in enumerate(zip(due, places, strict=True)):
            now = clock() - start
            if now > found.seconds:
                break
            if now < time_due:
                time.sleep(time_due - now)
                now = clock() - start  # who slept may have been woken late
            lags.append(now - time_due)
            found.sent += 1
            try:
                future = submit(models[place], data[place])
            except Exception as problem:
                if type(problem).__name__ != "Overloaded":
                    raise
                found.refused += 1
                continue
            if not future.done():
                waiting.append(future)
            future.add_done_callback(partial(_note, ends, number))
        found.late.add(int(1e9 * max(0.0, lag)) for lag in lags)
        return waiting

    def _count(
        self, found: Offered, due: Sequence[float], places: Sequence[int], ends: Sequence[_End]
    ) -> None:
        """What came of every request: of those that were not sent, too."""
        for number, when, well in ends:
            single, late = self.sensitive(places[number]), when > found.seconds
            if well is False and not late:
                found.failed += 1
                continue
            if well and not late:
                found.requests += 1
                found.rows += 1 if single else BLOCK
            found.count(min(when, found.seconds) - due[number], single=single)
        for time_due, place in zip(due[found.sent :], places[found.sent :], strict=True):
            found.count(found.seconds - time_due, single=self.sensitive(place))

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


def _note(ends: list[_End], number: int, done: Future[Any]) -> None:
    """A request is over: with an answer, an error (False), or given up (None)."""
    well = None if done.cancelled() else done.exception() is None
    ends.append((number, time.perf_counter(), well))
