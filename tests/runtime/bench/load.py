"""Load that does not wait: arrivals are fixed beforehand, and sent by several threads.

Whoever sends only what was answered cannot ask for too much, and an arrival that is late counts
from the moment at which it was due. What could not be sent in time is counted too.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import flour
from flour import Flow
from runtime import Runtime
from scheduler import Overloaded

WIDTH = 20
HIDDEN = 96
PLANS = 500
BLOCK = np.random.default_rng(0).normal(size=(100, WIDTH))
ROW = BLOCK[0].copy()
SENDERS = 2


def network(seed: int) -> Flow:
    """A small network: a block of 100 rows takes some 300 us, a row some 2."""
    rng = np.random.default_rng(seed)
    hidden: Any = flour.vector("x", WIDTH)
    for width in (WIDTH, HIDDEN):
        hidden = hidden.linear(rng.normal(size=(HIDDEN, width)), np.zeros(HIDDEN)).tanh()
    return flour.outputs(score=hidden.linear(rng.normal(size=(1, HIDDEN)), [0.0]))


class Arrivals(NamedTuple):
    """Calls to come: when, of which plan, and whether for a row."""

    times: NDArray[np.float64]
    names: list[str]
    rows: NDArray[np.bool_]


def arrivals(rate: float, seconds: float, seed: int = 1) -> Arrivals:
    """Random arrivals; plans by Zipf's law with exponent 2, half of the calls for one row."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1 / rate, int(2 * rate * seconds) + 100))
    times = times[times < seconds]
    names = [f"p{rank % PLANS}" for rank in rng.zipf(2.0, len(times))]
    return Arrivals(times, names, rng.random(len(times)) < 0.5)


class Offered(NamedTuple):
    """What came of a stretch of load, per second."""

    asked: float
    sent: float
    rows: float
    blocks: float
    refused: float
    p99: float
    """Of blocks, in seconds from the moment at which they were due."""


def offer(runtime: Runtime, rate: float, seconds: float) -> Offered:
    """Send calls at this rate: rows are answered where they are sent, blocks by executors."""
    return _Load(runtime, arrivals(rate, seconds), seconds).run()


class _Load:
    def __init__(self, runtime: Runtime, to_come: Arrivals, seconds: float) -> None:
        self._runtime, self._to_come, self._seconds = runtime, to_come, seconds
        self._waits: list[float] = []
        self._counts: list[tuple[int, int, int]] = []

    def run(self) -> Offered:
        self._start = time.perf_counter() + 0.01
        senders = [threading.Thread(target=self._send, args=(n,)) for n in range(SENDERS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        took, answered = time.perf_counter() - self._start, len(self._waits)
        sent, rows, refused = (sum(each) for each in zip(*self._counts, strict=True))
        p99 = float(np.percentile(self._waits, 99)) if answered else 0.0
        asked = len(self._to_come.times) / self._seconds
        return Offered(asked, sent / took, rows / took, answered / took, refused / took, p99)

    def _send(self, number: int) -> None:
        """Send every call that is this thread's, when it is due or as soon after as it can."""
        sent = rows = refused = 0
        for place in range(number, len(self._to_come.times), SENDERS):
            due = self._start + self._to_come.times[place]
            now = time.perf_counter()
            if now < due:
                time.sleep(due - now)
            elif now - self._start > self._seconds:
                break
            sent += 1
            if self._to_come.rows[place]:
                self._runtime.predict(self._to_come.names[place], ROW)
                rows += 1
            else:
                refused += self._block(self._to_come.names[place], due)
        self._counts.append((sent, rows, refused))

    def _block(self, name: str, due: float) -> bool:
        """Send a block; whether it was refused."""
        try:
            ticket = self._runtime.submit(name, BLOCK, engine="batch")
        except Overloaded:
            return True
        ticket.add_done_callback(lambda _: self._waits.append(time.perf_counter() - due))
        return False


def capacity(runtime: Runtime, seconds: float = 0.5) -> float:
    """The highest rate at which hardly anything is refused: found by trying."""
    rate = 1000.0
    while True:
        found = offer(runtime, 1.5 * rate, seconds)
        if found.refused > 0.02 * found.sent or found.sent < 0.95 * found.asked:
            return rate
        rate *= 1.5
