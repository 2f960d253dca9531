"""Shadows: what a champion has answered is asked of a challenger, later and elsewhere.

A caller appends its rows and answers to a queue and goes on, or machine code does so for it
(runtime.routing.mirror). A thread looks at the queues every few milliseconds, and hands what is
there to the executors, a few requests at a time, at the lowest priority: at most one such task is
on its way, so that a challenger that hangs holds one executor. Executors do not wait: graphs that
do are asked by another thread. Where neither has room, or a queue is full, requests are shed and
counted. Of requests that nobody has timed, one in each task is asked of both versions again, so
that their times are of one moment.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import random
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np

from flour.core.errors import InputError
from runtime.repeated import Repeated
from runtime.routing.mirror import WAITING, Mirror, Mirrored
from runtime.routing.pairs import Answers, Pair, PairSink, bits
from runtime.routing.route import Route

log = logging.getLogger("pretzel.shadows")
#: How many requests one task asks.
TOGETHER = 64
#: Seconds between two looks at the queue.
LOOK_SECONDS = 0.005
#: After so long a caller that waits for the interpreter's lock is let before.
LOCKED_SECONDS = 100e-6
#: Levels of lists and objects in rows that are copied.
DEEPEST = 64
_VALUES = frozenset({float, int, str, bool, type(None), bytes})


@dataclass(frozen=True, slots=True)
class ShadowStats:
    """Counts of the requests meant for one challenger."""

    challenger: str
    asked: int = 0
    failed: int = 0
    """Of those that were asked: how many raised an error."""
    shed: int = 0
    """Left out, as the executors had other work."""
    way: str = "later"
    """The way it is asked now: "inline" with its champion, or "later", with a known reason."""


class Task(Protocol):
    """A task on its way."""

    def result(self) -> object:
        """Wait for its end; raises what it has raised."""


class Shadows:
    """The queue of one runtime. `offer` may be called from any thread, and never waits."""

    def __init__(
        self,
        ask: Callable[..., Answers],
        elsewhere: Callable[[Callable[[], object]], Task],
        pairs: Callable[[str], Sequence[PairSink]],
        waits: Callable[[Route], bool] = lambda _: False,
    ) -> None:
        """Make a queue; its thread starts with the first route that has a shadow.

        `ask(address, rows, **options)` answers; `elsewhere` hands a task to the executors, or
        raises; `pairs(name)` take the pairs of an endpoint; `waits` says where a graph does.
        """
        self._ask, self._elsewhere, self._pairs, self._waits = ask, elsewhere, pairs, waits
        self._waiter = threading.Thread()
        self._queue: deque[Mirrored] = deque()
        #: By endpoint; machine code looks names up here.
        self.mirrors: dict[str, Mirror] = {}
        #: Told where a champion asked together with its shadow answers otherwise than alone.
        self.on_apart: Callable[[Mirrored, Answers | Exception], object] = lambda *_: None
        self._stats: dict[str, ShadowStats] = {}
        self._failures = Repeated()
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
        seconds: float | None,
    ) -> None:
        """Ask the shadow of a route, later; `rows` are a copy that nobody changes."""
        if len(self._queue) >= WAITING:
            self._count(route.shadow, shed=1)
            return
        if type(expected) is dict:
            expected = kept(expected)
        self._queue.append(Mirrored(route, rows, options, expected, seconds))

    def stats(self) -> tuple[ShadowStats, ...]:
        """Requests asked and shed, by challenger."""
        with self._lock:
            return tuple(self._stats.values())

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._queue) + sum(each.left for each in tuple(self.mirrors.values()))

    def close(self) -> None:
        """Ask no more; what waits is dropped."""
        self._over.set()
        self._queue.clear()
        self.mirrors.clear()

    def put(self, name: str, mirror: Mirror | None) -> None:
        """Let machine code answer an endpoint by this mirror from now on, or by none."""
        before = self.mirrors.get(name)
        if mirror is not None:
            self.mirrors[name] = mirror
        else:
            self.mirrors.pop(name, None)
        if before is not None:
            self._queue.extend(before.take(max(0, WAITING - len(self._queue))))
            news = before.news()
            self._count(before.route.shadow, asked=news["asked"], shed=news["shed"] + before.left)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            while (some := self._some()) and not self._over.is_set():
                self._hand_over(some)

    def _some(self) -> list[Mirrored]:
        """Some of the requests that wait."""
        some: list[Mirrored] = []
        with suppress(IndexError):
            while len(some) < TOGETHER:
                some.append(self._queue.popleft())
        for mirror in () if some else tuple(self.mirrors.values()):
            if any((news := mirror.news()).values()):
                self._count(mirror.route.shadow, **news)
            if some := mirror.take(TOGETHER):
                break
        return some

    def _hand_over(self, some: list[Mirrored]) -> None:
        """Let the executors ask some requests, and wait for that: no more is on its way."""
        shed = [each for each in some if self._waits(each.route)]
        soon = [each for each in some if not self._waits(each.route)] if shed else some
        if shed and not self._waiter.is_alive():
            self._waiter = threading.Thread(target=self._asked, args=(shed,), daemon=True)
            self._waiter.start()
            shed = []
        try:
            if soon:
                self._elsewhere(lambda: self._asked(soon)).result()
        except Exception as problem:  # noqa: BLE001 (the executors are busy, or are being closed)
            log.debug("shadows were left out: %s", problem)
            shed += soon
        for each in shed:
            self._count(each.route.shadow, shed=1)

    def _asked(self, some: list[Mirrored]) -> None:
        done: dict[str, list[Pair]] = {}
        timed, since = False, perf_counter()
        for each in some:
            if self._over.is_set():
                break
            challenger = each.route.shadow or ""
            if each.found is None or not timed:
                # Ask the shadow; the champion, too, where the first of some was not timed.
                champion, seconds = each.route.champion, each.seconds
                if seconds is None and not timed:
                    again, seconds = self._answered(champion, each)
                    if each.found is not None and not _alike(each.expected, again):
                        self.on_apart(each, again)
                found, took = self._answered(challenger, each)
                done.setdefault(challenger, []).append(
                    Pair(champion, challenger, each.rows, each.expected, found, seconds, took)
                )
                timed = timed or each.seconds is None
                if perf_counter() - since >= LOCKED_SECONDS:
                    sleep(0)
                    since = perf_counter()
            else:
                known = (each.route.champion, challenger, each.rows, each.expected, each.found)
                done.setdefault(challenger, []).append(Pair(*known, None, None))
        for challenger, pairs in done.items():
            failed = sum(isinstance(each.found, Exception) for each in pairs)
            asked = sum(each.found is None for each in some if each.route.shadow == challenger)
            self._count(challenger, asked=asked, failed=failed)
            self._compare(challenger, pairs)

    def _answered(self, owner: str, one: Mirrored) -> tuple[Answers | Exception, float]:
        """A version's answers, and the seconds they take."""
        start = perf_counter()
        try:
            found: Answers | Exception = self._ask(owner, one.rows, **one.options)
        except Exception as problem:  # noqa: BLE001 (that is what is compared)
            found = problem
        return found, perf_counter() - start

    def _compare(self, challenger: str, some: Sequence[Pair]) -> None:
        """Hand pairs to all that observe them; each gets them, whatever the others raise."""
        for pairs in self._pairs(challenger.partition("@")[0]):
            together = getattr(pairs, "add_all", None)
            calls = [partial(together, some)] if together else [partial(pairs.add, e) for e in some]
            for call in calls:
                try:
                    call()
                except Exception as problem:
                    if self._failures.is_due((challenger, type(pairs), type(problem))):
                        log.exception("what %s answers was not compared", challenger)

    def _count(
        self, challenger: str | None, asked: int = 0, failed: int = 0, shed: int = 0
    ) -> None:
        name = challenger or ""
        with self._lock:
            was = self._stats.get(name, ShadowStats(name))
            self._stats[name] = ShadowStats(
                name, was.asked + asked, was.failed + failed, was.shed + shed
            )


def _alike(one: Answers | Exception, other: Answers | Exception) -> bool:
    """True if two answers show the same in every bit."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        return False
    same = (bits(one[name]) == bits(other.get(name)) for name in one)
    return len(one) == len(other) and all(same)


def is_sampled(route: Route) -> bool:
    """True if the shadow of a route is to be asked this time."""
    return route.shadow is not None and (route.sample >= 1 or random() < route.sample)  # noqa: S311


def kept(value: object, levels: int = DEEPEST) -> Any:
    """A copy of rows or answers, as their owner may change them."""
    if type(value) in _VALUES:
        return value
    if isinstance(value, np.ndarray):
        return value.copy()
    if not levels:
        raise InputError(
            "the rows are nested too deeply",
            where="$",
            found=f"more than {DEEPEST} levels",
            hint="rows of tables and tensors have few dimensions",
        )
    if type(value) is dict:
        return {
            n: part if type(part) in _VALUES else kept(part, levels - 1)
            for n, part in value.items()
        }
    if type(value) is list:
        flat = not value or type(value[0]) in _VALUES
        return list(value) if flat else [kept(part, levels - 1) for part in value]
    return copy.copy(value)
