"""Requests of one endpoint that come close together go to the engines as one block.

    answering = Batched(runtime.direct, settings=BatchSettings(wait=0.002))

A request waits until `rows` have come together, `wait` seconds have passed, or its latency
`objective` would be missed otherwise, whichever is first; the objective counts what the endpoint's
blocks have taken lately. It is off unless `wait`, or the version's note `batch_wait`, is above
zero, and it never holds up what is over sooner than it could be handed over.

Each request gets its own rows of the answer. When a block fails, its requests are tried one by one,
so that an error is its own request's only. Deadlines count from when the request came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from flour.core.rows import cut_rows, stacked
from flour.data.batch import row_count
from runtime.http.snapshots import Family
from runtime.service.answerers import Answerer, InferCall
from runtime.service.asking import unseen
from runtime.service.version import ModelVersion
from scheduler import DeadlineExceeded

Answers = dict[str, Any]

#: What takes less than this many seconds is not worth waiting for company.
INSTANT = 50e-6
#: Of what blocks have taken, the last one counts for so much.
_NEWEST = 0.2


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Limits on waiting for other requests. A version's notes `batch_wait` and so on go first."""

    wait: float = 0.0
    """Seconds a request waits at most; 0 turns it off."""
    objective: float = 0.0
    """Seconds after which an answer should be there; 0 sets none."""
    rows: int = 1024
    """A block goes when it has so many."""

    @classmethod
    def of(cls, version: ModelVersion, usual: BatchSettings) -> BatchSettings:
        """The settings of a version."""
        noted = {
            name: version.notes[f"batch_{name}"]
            for name in cls.__slots__
            if f"batch_{name}" in version.notes
        }
        return replace(usual, **noted) if noted else usual  # type: ignore[arg-type]  # notes are data


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Figures of requests that were put together."""

    requests: int = 0
    rows: int = 0
    blocks: int = 0
    alone: int = 0
    """Requests that were tried again by themselves, after their block failed."""


class _Waiting:
    """A request that waits for others."""

    __slots__ = ("arrived", "call", "future", "rows")

    def __init__(self, call: InferCall, rows: int) -> None:
        self.call, self.rows, self.arrived = call, rows, monotonic()
        self.future: Future[Answers] = Future()

    def late(self, now: float) -> bool:
        timeout = self.call.timeout
        return timeout is not None and now >= self.arrived + timeout

    def rest(self, now: float) -> InferCall:
        """The request with the rest of its time."""
        if self.call.timeout is None:
            return self.call
        return self.call._replace(timeout=max(0.0, self.arrived + self.call.timeout - now))


class _OpenBatch:
    """Requests that will be one block."""

    __slots__ = ("rows", "timer", "waiting")

    def __init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self.rows = 0
        self.timer: asyncio.TimerHandle | None = None


class Batched:
    """Holds requests back for a moment, to answer several at once. For one event loop."""

    def __init__(
        self,
        inner: Answerer,
        settings: BatchSettings | None = None,
        *,
        cost: Callable[[ModelVersion, int], float | None] | None = None,
    ) -> None:
        """Wrap what answers; `cost` says what so many rows of a version should take, in seconds."""
        self.inner, self._usual = inner, settings or BatchSettings()
        self.quick = inner.quick  # what is over at once waits for nothing
        self._cost = cost or (lambda _version, _rows: None)
        self._open: dict[Hashable, _OpenBatch] = {}
        self._took: dict[str, float] = {}  # by owner: what a block takes, in seconds
        self._requests = self._rows = self._blocks = self._alone = 0

    def answer(self, call: InferCall) -> Future[Answers]:
        """The answers, perhaps together with those of others."""
        settings = BatchSettings.of(call.version, self._usual)
        key = _key(call) if settings.wait > 0 and not call.version.mixes_rows else None
        rows = call.batch.rows if key is not None else 0
        if key is None or not 0 < rows < settings.rows or self._instant(call.version, rows):
            return self.inner.answer(call)
        return self._join(key, _Waiting(call, rows), settings)

    def _instant(self, version: ModelVersion, rows: int) -> bool:
        expected = self._cost(version, rows)
        return expected is not None and expected <= INSTANT

    def stats(self) -> BatchStats:
        """Figures of the requests put together so far."""
        return BatchStats(self._requests, self._rows, self._blocks, self._alone)

    def families(self) -> list[Family]:
        """The figures of what was put together."""
        names = {
            "batched_requests": (self._requests, "Requests that were answered in batches."),
            "batched_rows": (self._rows, "Rows of batched requests."),
            "batches": (self._blocks, "Batches."),
            "batch_retries": (self._alone, "Requests that ran again alone as their batch failed."),
        }
        made = []
        for name, (count, text) in names.items():
            made.append(Family(f"pretzel_{name}_total", "counter", text))
            made[-1].add(count)
        return made

    # --- coming together ---------------------------------------------------------------------

    def _join(self, key: Hashable, one: _Waiting, settings: BatchSettings) -> Future[Answers]:
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _OpenBatch()
            loop, wait = asyncio.get_running_loop(), self._patience(one.call.version, settings)
            batch.timer = loop.call_later(wait, self._send, key)
        batch.waiting.append(one)
        batch.rows += one.rows
        if batch.rows >= settings.rows:
            self._send(key)
        return one.future

    def _patience(self, version: ModelVersion, settings: BatchSettings) -> float:
        """Seconds that the first of a block waits: less where the work itself takes long."""
        if settings.objective <= 0:
            return settings.wait
        left = settings.objective - self._took.get(version.owner, 0.0)
        return max(0.0, min(settings.wait, left))

    def _send(self, key: Hashable) -> None:
        batch = self._open.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        now = monotonic()
        ready = [one for one in batch.waiting if self._starts(one, now)]
        if ready:
            self._requests += len(ready)
            self._rows += sum(one.rows for one in ready)
            self._blocks += 1
            self._together(ready, now)

    def _starts(self, one: _Waiting, now: float) -> bool:
        """True if a request still wants its answer, and can have it in time."""
        if not one.future.set_running_or_notify_cancel():
            return False
        if one.late(now):
            one.future.set_exception(
                DeadlineExceeded(
                    "the deadline passed before the call was done",
                    found="it waited for others to go with it",
                    hint="allow more time than requests wait for each other",
                )
            )
            return False
        return True

    # --- being answered ----------------------------------------------------------------------

    def _together(self, ready: list[_Waiting], now: float) -> None:
        if len(ready) == 1:
            self._by_itself(ready[0])
            return
        # A short deadline must not end the others, nor a low priority hold up the first.
        first = ready[0].call
        timeouts = [one.rest(now).timeout for one in ready]
        longest = None if None in timeouts else max(each for each in timeouts if each is not None)
        priorities = [one.call.priority or 0 for one in ready]
        block = stacked([one.call.batch.data for one in ready])
        batch = first.version.reader.read(block)
        whole = InferCall(first.version, batch, first.outputs, longest, max(priorities))
        loop = asyncio.get_running_loop()
        done = partial(self._shared_out, ready, loop, monotonic())
        _after(self.inner, whole, done)

    def _shared_out(
        self,
        ready: list[_Waiting],
        loop: asyncio.AbstractEventLoop,
        began: float,
        done: Future[Answers],
    ) -> None:
        """Give each request its rows; called by whichever thread has made them."""
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            loop.call_soon_threadsafe(self._one_by_one, ready)
            return
        loop.call_soon_threadsafe(self._learn, ready[0].call.version.owner, monotonic() - began)
        answers, start, now = done.result(), 0, monotonic()
        for one in ready:
            stop = start + one.rows
            if one.late(now):
                one.future.set_exception(DeadlineExceeded("the deadline passed meanwhile"))
            else:
                one.future.set_result(cut_rows(answers, start, stop))
            start = stop

    def _one_by_one(self, ready: list[_Waiting]) -> None:
        self._alone += len(ready)
        with unseen():
            for one in ready:
                self._by_itself(one)

    def _by_itself(self, one: _Waiting) -> None:
        _after(self.inner, one.rest(monotonic()), partial(_passed_on, one.future))

    def _learn(self, owner: str, seconds: float) -> None:
        before = self._took.get(owner, seconds)
        if len(self._took) > _OWNERS:
            self._took.clear()
        self._took[owner] = before + _NEWEST * (seconds - before)


_OWNERS = 10_000


def _after(inner: Answerer, call: InferCall, done: Callable[[Future[Answers]], None]) -> None:
    """Ask, and say when it is done; an error of asking is an answer too."""
    try:
        coming = inner.answer(call)
    except Exception as error:  # noqa: BLE001 (it is the caller's)
        coming = Future()
        coming.set_exception(error)
    coming.add_done_callback(done)


def _passed_on(future: Future[Answers], done: Future[Answers]) -> None:
    try:
        future.set_result(done.result())
    except (Exception, CancelledError) as error:  # noqa: BLE001 (it is the caller's)
        future.set_exception(error)


def _key(call: InferCall) -> Hashable | None:
    """Requests with the same key can be one block; None for a row or for data of another form."""
    form = None if call.batch.single else _form(call.batch.data)
    version = call.version
    return None if form is None else (version.owner, version.digest, call.outputs, form)


def _form(data: object) -> Hashable | None:
    if isinstance(data, np.ndarray) and data.ndim and not data.dtype.names:
        objects = data.ndim == 1 and data.dtype.kind == "O"
        return "list" if objects else (data.dtype.str, data.shape[1:])
    if isinstance(data, list) and data:
        return "list"
    if isinstance(data, Mapping) and data:
        parts = [(name, _form(column)) for name, column in data.items()]
        counts = {row_count(column) for column in data.values()}
        alike = len(counts) == 1 and all(form is not None for _, form in parts)
        return tuple(parts) if alike else None
    return None
