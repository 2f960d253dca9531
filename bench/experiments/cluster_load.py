"""Models that tell their version, and load that judges each answer, for `cluster_failures`.

A request has a number of its own, which comes back in its answer: so it shows when an answer
belongs to another request, or is by a version that had been withdrawn when the request was made.
"""

from __future__ import annotations

import json
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import flour
import oven
from runtime.cluster.serving import ClusterClient
from runtime.errors import ClusterError

WIDTH = 16
#: An answer is the request's number, the version and the model's number, in one float64.
_REQUEST, _VERSION = 1e8, 1e5
#: Seconds after each answer: replicas are to have some of the two cores for what they are told.
_PAUSE = 1e-3


def save(folder: Path, models: Iterable[int], version: int) -> None:
    """Write these models anew."""
    for number in models:
        told = [_VERSION * version + number]
        flow = flour.vector("x", WIDTH).linear([[1.0] * WIDTH], told).named("y")
        path = folder / f"m{number}.pretzel"
        oven.bake(flow).save(path, durable=False)
        moment = time.time() - 60 + version / 1e3
        os.utime(path, (moment, moment))


def until(true: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for something, with an end."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not happen")
        time.sleep(0.05)


class Load:
    """Threads that ask all models in turn, and what is wrong with the answers."""

    def __init__(self, clients: list[ClusterClient], models: int, *, pause: float = _PAUSE) -> None:
        self._clients, self._models, self._pause = clients, models, pause
        self._numbers, self._ended = count(), threading.Event()
        self._withdrawn: dict[int, list[tuple[float, int]]] = {}
        self._answers: list[tuple[float, float, int, int]] = []
        #: Requests without an answer, or with an error: what was said.
        self.failed: list[str] = []
        #: Answers to another request, or a second time, or of another model.
        self.foreign = 0

    @property
    def answered(self) -> int:
        """Requests with a good answer so far."""
        return len(self._answers)

    def acknowledged(self, models: Iterable[int], version: int) -> None:
        """From now on only this version may answer."""
        now = time.monotonic()
        for number in models:
            self._withdrawn.setdefault(number, []).append((now, version))

    def withdrawn(self) -> int:
        """Answers by a version that had been withdrawn when the request was made."""
        wrong = 0
        for asked, _, number, version in self._answers:
            steps = self._withdrawn.get(number, [])
            place = bisect_right(steps, (asked,))
            wrong += place > 0 and version < steps[place - 1][1]
        return wrong

    def slowest(self) -> float:
        """The longest that an answer has taken, in seconds."""
        return max((told - asked for asked, told, *_ in self._answers), default=0.0)

    def _ask(self, client: ClusterClient) -> None:
        while not self._ended.is_set():
            serial = next(self._numbers)
            number, before = serial * 7 % self._models, time.monotonic()
            row = json.dumps([serial * _REQUEST, *[0.0] * (WIDTH - 1)]).encode()
            try:
                found = client.request("POST", f"/predict/m{number}", row)
            except ClusterError as problem:
                self.failed.append(f"{problem.where}: {problem.found}")
                continue
            if found.status != 200:
                self.failed.append(f"{found.url}: {found.status} {found.body[:200]!r}")
                continue
            told = json.loads(found.body)["y"]
            which, rest = divmod(told[0] if isinstance(told, list) else told, _REQUEST)
            version, model = divmod(rest, _VERSION)
            if (which, model) == (serial, number):
                self._answers.append((before, time.monotonic(), number, int(version)))
            else:
                self.foreign += 1
            time.sleep(self._pause)

    @contextmanager
    def on(self) -> Iterator[Load]:
        """Ask as long as this lasts."""
        threads = [threading.Thread(target=self._ask, args=(each,)) for each in self._clients]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
