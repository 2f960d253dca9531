"""Shadows: what a champion has answered is asked of a challenger, later and elsewhere.

A caller appends its rows and answers to a queue and goes on. A thread looks at the queue every few
milliseconds, and hands what is there to the executors, a few requests at a time, at the lowest
priority: at most one such task is on its way, so that a challenger that hangs holds one executor.
Where the executors refuse it, or the queue is full, requests are shed and counted.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import random
from time import perf_counter, sleep
from typing import Any, NamedTuple, Protocol

import numpy as np

from runtime.routing.pairs import Answers, Pair, Pairs
from runtime.routing.route import Route

log = logging.getLogger("pretzel.shadows")
#: Requests that wait for a shadow, and how many of them one task asks.
WAITING, TOGETHER = 4096, 64
#: Seconds between two looks at the queue.
LOOK_SECONDS = 0.005
_VALUES = frozenset({float, int, str, bool, type(None), bytes})


class Mirrored(NamedTuple):
    """A request that the champion has answered."""

    route: Route
    rows: Any
    options: Mapping[str, Any]
    expected: Answers | Exception
    seconds: float


@dataclass(frozen=True, slots=True)
class ShadowStats:
    """What happened to the requests that were to be asked of one challenger."""

    challenger: str
    asked: int = 0
    failed: int = 0
    """Of those that were asked: how many raised an error."""
    shed: int = 0
    """Left out, as the executors had other work."""


class Task(Protocol):
    """A task on its way."""

    def result(self) -> object:
        """Wait for its end; raises what it has raised."""
        ...


class Shadows:
    """The queue of one runtime. `offer` may be called from any thread, and never waits."""

    def __init__(
        self,
        ask: Callable[..., Answers],
        elsewhere: Callable[[Callable[[], object]], Task],
        pairs: Callable[[str], Pairs | None],
    ) -> None:
        """Make a queue; its thread starts with the first route that has a shadow.

        `ask(address, rows, **options)` answers; `elsewhere` hands a task to the executors, or
        raises; `pairs(name)` takes the pairs of an endpoint.
        """
        self._ask, self._elsewhere, self._pairs = ask, elsewhere, pairs
        self._queue: deque[Mirrored] = deque()
        self._stats: dict[str, ShadowStats] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it does not run yet."""
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(
                    target=self._watch, name="pretzel-shadows", daemon=True
                )
                self._thread.start()

    def offer(
        self,
        route: Route,
        rows: object,
        options: Mapping[str, Any],
        expected: Answers | Exception,
        seconds: float,
    ) -> None:
        """Ask the shadow of a route, later; `rows` are a copy that nobody changes."""
        if len(self._queue) >= WAITING:
            self._count(route.shadow, shed=1)
            return
        if type(expected) is dict:
            expected = kept(expected)
        self._queue.append(Mirrored(route, rows, options, expected, seconds))

    def stats(self) -> tuple[ShadowStats, ...]:
        """What was asked and shed, by challenger."""
        with self._lock:
            return tuple(self._stats.values())

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def close(self) -> None:
        """Ask no more; what waits is dropped."""
        self._over.set()
        self._queue.clear()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            while self._queue and not self._over.is_set():
                self._hand_over()

    def _hand_over(self) -> None:
        """Let the executors ask some requests, and wait for that: no more is on its way."""
        some: list[Mirrored] = []
        with suppress(IndexError):
            while len(some) < TOGETHER:
                some.append(self._queue.popleft())
        try:
            self._elsewhere(lambda: self._asked(some)).result()
        except Exception as problem:  # noqa: BLE001 (the executors are busy, or are being closed)
            log.debug("shadows were left out: %s", problem)
            for each in some:
                self._count(each.route.shadow, shed=1)

    def _asked(self, some: list[Mirrored]) -> None:
        done: dict[str, list[bool]] = {}
        for each in some:
            if self._over.is_set():
                break
            done.setdefault(each.route.shadow or "", []).append(self._compare(each))
            sleep(0)  # whoever waits for the interpreter's lock does not wait for the next one
        for challenger, failed in done.items():
            self._count(challenger, asked=len(failed), failed=sum(failed))

    def _compare(self, one: Mirrored) -> bool:
        """Ask the shadow, and hand the pair over; whether it failed."""
        challenger = one.route.shadow
        assert challenger is not None, "only routes with a shadow are mirrored"
        start = perf_counter()
        try:
            found: Answers | Exception = self._ask(challenger, one.rows, **one.options)
        except Exception as problem:  # noqa: BLE001 (that is what is compared)
            found = problem
        seconds = perf_counter() - start
        pairs = self._pairs(challenger.partition("@")[0])
        if pairs is not None:
            champion = one.route.champion
            pair = Pair(champion, challenger, one.rows, one.expected, found, one.seconds, seconds)
            try:
                pairs.add(pair)
            except Exception:
                log.exception("a pair of %s and %s was not compared", champion, challenger)
        return isinstance(found, Exception)

    def _count(
        self, challenger: str | None, asked: int = 0, failed: int = 0, shed: int = 0
    ) -> None:
        name = challenger or ""
        with self._lock:
            was = self._stats.get(name, ShadowStats(name))
            self._stats[name] = ShadowStats(
                name, was.asked + asked, was.failed + failed, was.shed + shed
            )


def is_sampled(route: Route) -> bool:
    """Whether the shadow of a route is to be asked this time."""
    return route.shadow is not None and (route.sample >= 1 or random() < route.sample)  # noqa: S311


def kept(value: object) -> Any:
    """A copy of rows or answers, as their owner may change them."""
    if type(value) in _VALUES:
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        return {name: part if type(part) in _VALUES else kept(part) for name, part in value.items()}
    if type(value) is list:
        return list(value) if not value or type(value[0]) in _VALUES else list(map(kept, value))
    return copy.copy(value)
