"""Open-loop load: arrival times are fixed beforehand, and waits count from these times.

A client that sends its next request after the last answer slows down with the server and never sees
a queue. Here a request that was sent late still counts from its arrival time, and one without an
answer counts with its wait until the end, which is a lower bound.
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

#: The end of a request: its number, the time, and whether it was answered (None: cancelled).
_End = tuple[int, float, bool | None]

#: Rows of a request to a model that is not latency-sensitive.
BLOCK = 100


@dataclass
class Offered:
    """The outcome of one run of load."""

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
    """How late requests were sent, as the sending thread did not get to run."""

    def count(self, waited: float, *, single: bool) -> None:
        """Count a wait in seconds."""
        (self.single if single else self.blocks).add([int(waited * 1e9)])

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        plain = {**vars(self)}
        for name in ("single", "blocks", "late"):
            plain[name] = getattr(self, name).as_json()
        return plain


class OpenLoop:
    """Requests to many models, popular by Zipf's law; every second model is latency-sensitive."""

    def __init__(self, who: Contestant, models: Sequence[Model], inputs: Inputs) -> None:
        self._who, self._models = who, models
        self._data = [
            model.row(inputs, 0) if self.sensitive(index) else model.block(inputs, 0, BLOCK)
            for index, model in enumerate(models)
        ]

    @staticmethod
    def sensitive(index: int) -> bool:
        """Whether this model gets requests of one row."""
        return index % 2 == 0

    def offer(self, rate: float, seconds: float, seed: int) -> Offered:
        """Send `rate` requests per second for `seconds`.

        The sender shares the interpreter with the code that answers, so as little as possible is
        done per request and answer; outcomes are counted afterwards.
        """
        due, models = self._arrivals(rate, seconds, seed)
        outcome = Offered(seconds, asked=len(due))
        ends: list[_End] = []
        start = time.perf_counter() + 0.01
        waiting = self._send_all(outcome, due, models, start, ends)
        time.sleep(max(0.0, start + seconds - time.perf_counter()))
        for each in waiting:
            each.cancel()
        wait(waiting, 2.0)  # those that cannot be cancelled must not run into the next measurement
        self._count(
            outcome, due, models, [(place, when - start, well) for place, when, well in ends]
        )
        return outcome

    def _send_all(
        self,
        outcome: Offered,
        due: Sequence[float],
        targets: Sequence[int],
        start: float,
        ends: list[_End],
    ) -> list[Future[Any]]:
        """Send each request at its time, or as soon as possible after; returns the pending ones."""
        submit, models, data, clock = self._who.submit, self._models, self._data, time.perf_counter
        waiting, lags = list[Future[Any]](), list[float]()
        for number, (time_due, target) in enumerate(zip(due, targets, strict=True)):
            now = clock() - start
            if now > outcome.seconds:
                break
            if now < time_due:
                time.sleep(time_due - now)
                now = clock() - start  # the thread may have been woken late
            lags.append(now - time_due)
            outcome.sent += 1
            try:
                future = submit(models[target], data[target])
            except Exception as problem:
                if type(problem).__name__ != "Overloaded":
                    raise
                outcome.refused += 1
                continue
            if not future.done():
                waiting.append(future)
            future.add_done_callback(partial(_record_end, ends, number))
        outcome.late.add(int(1e9 * max(0.0, lag)) for lag in lags)
        return waiting

    def _count(
        self, outcome: Offered, due: Sequence[float], targets: Sequence[int], ends: Sequence[_End]
    ) -> None:
        """Count the outcome of every request, also of those that were not sent."""
        for number, when, well in ends:
            single, late = self.sensitive(targets[number]), when > outcome.seconds
            if well is False and not late:
                outcome.failed += 1
                continue
            if well and not late:
                outcome.requests += 1
                outcome.rows += 1 if single else BLOCK
            outcome.count(min(when, outcome.seconds) - due[number], single=single)
        for time_due, target in zip(due[outcome.sent :], targets[outcome.sent :], strict=True):
            outcome.count(outcome.seconds - time_due, single=self.sensitive(target))

    def _arrivals(self, rate: float, seconds: float, seed: int) -> tuple[list[float], list[int]]:
        """The time and the model of each request.

        The same models are popular at every rate; otherwise capacities would not be comparable.
        """
        rng = np.random.default_rng(seed)
        due = np.cumsum(rng.exponential(1 / rate, int(rate * seconds * 1.5) + 50))
        due = due[due < seconds]
        popular = np.random.default_rng(0).permutation(len(self._models))
        ranks = (rng.zipf(2.0, len(due)) - 1) % len(popular)
        return due.tolist(), popular[ranks].tolist()


def _record_end(ends: list[_End], number: int, done: Future[Any]) -> None:
    """Record the end of a request: with an answer, with an error (False), or cancelled (None)."""
    well = None if done.cancelled() else done.exception() is None
    ends.append((number, time.perf_counter(), well))
