"""What follows an answer of an endpoint: it is kept, counted, or joined with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from time import perf_counter
from typing import Any, Protocol

from runtime.routing.blocks import Places, merged
from runtime.routing.pairs import Answers
from runtime.service.private_answers import shown
from runtime.service.version import ModelVersion
from scheduler import Awaited

#: All that one process has counted: its name, a number that rises, and the counts as JSON.
Report = tuple[str, int, dict[str, dict[str, list[float]]]]
#: The version that answered a request, and the names of values that were not told of it before.
Claim = tuple[str, list[str]]


class Noting(Protocol):
    """What counts the requests of an endpoint in this process; see runtime.rollout."""

    id: str
    """Of the rollout that it counts for."""
    counts_on: bool
    """Whether requests are still to be noted."""

    def note(
        self, owner: str, seconds: float, error: object, headers: Mapping[str, str] | None
    ) -> None:
        """Count a request that a version answered, or failed with an error."""

    def report(self) -> Report:
        """All that was counted so far."""

    def claim(self, request: str, names: Iterable[str]) -> Claim | None:
        """Who answered a request, for values of it that are reported; None if not known here."""

    def end(self) -> None:
        """Count no more: the rollout is over, or the endpoint is gone."""


class Judged(Protocol):
    """A rollout, as those know it who have its counts taken; see runtime.rollout."""

    @property
    def counted(self) -> dict[str, Any]:
        """What each process counts, as JSON; empty when it is over."""

    def take(self, reporter: str, number: int, counts: Mapping[str, Any]) -> None:
        """Take over what a process has counted."""

    def end(self) -> None:
        """Judge no more: the endpoint is gone, or the runtime is closed."""


def is_late(rollout: Judged, known: Judged | None, *, is_there: bool) -> bool:
    """Whether a rollout ends after its endpoint has gone, or after another has taken its place."""
    return not rollout.counted and (not is_there or known not in {None, rollout})


class Keeper(Protocol):
    """What keeps the answers of endpoints; see runtime.provenance."""

    def note(
        self,
        version: ModelVersion,
        rows: object,
        outputs: object,
        answers: Answers,
        headers: Mapping[str, str],
        answer: str | None = None,
    ) -> Answers:
        """Keep an answer, under a new id if none is given; the answer with its id."""

    def new_id(self) -> str:
        """An id that no other answer has."""

    def why(self, answer: str) -> object | None:
        """What is known of an answer; None if this has not kept it."""

    def end(self) -> None:
        """Write what has come, as the runtime is closed."""


def note_done(
    noting: Noting,
    owner: str,
    headers: Mapping[str, str] | None,
    start: float,
    coming: Future[Answers] | Exception,
) -> None:
    """Have a request counted when it is answered; one that was given up is not."""
    if isinstance(coming, Exception):
        noting.note(owner, perf_counter() - start, coming, headers)
        return

    def done(future: Future[Answers]) -> None:
        if not future.cancelled():
            noting.note(owner, perf_counter() - start, future.exception(), headers)

    coming.add_done_callback(done)


def chained(
    inner: Future[Answers],
    version: ModelVersion,
    note: Callable[[Answers, Mapping[str, str]], Answers] | None,
    headers: Mapping[str, str],
) -> Future[Answers]:
    """A future of what another gives, once it is kept; its errors have no private values."""
    outer = Awaited(*getattr(inner, "needs", ()))

    def done(_: object) -> None:
        if inner.cancelled():
            outer.cancel()
        if not outer.set_running_or_notify_cancel():
            return
        try:
            answers = inner.result()
            outer.set_result(answers if note is None else note(answers, headers))
        except BaseException as problem:  # noqa: BLE001 (it is the caller's, who waits for it)
            told = shown(problem, version) if isinstance(problem, Exception) else problem
            outer.set_exception(told)

    outer.add_done_callback(lambda _: outer.cancelled() and inner.cancel())
    inner.add_done_callback(done)
    return outer


def together(parts: Sequence[tuple[Places, Future[Answers]]]) -> Future[Answers]:
    """A future of one answer to a block, of those to its rows; the first error is its error."""
    outer = Awaited(*(need for _, each in parts for need in getattr(each, "needs", ())))
    left, lock = [len(parts)], Lock()

    def done(inner: Future[Answers]) -> None:
        with lock:
            left[0] -= 1
            failed = inner.cancelled() or inner.exception() is not None
            over = not outer.done() and (failed or not left[0])
            if not over or not outer.set_running_or_notify_cancel():
                return
        try:
            outer.set_result(merged([(places, each.result()) for places, each in parts]))
        except BaseException as problem:  # noqa: BLE001 (it is the caller's)
            outer.set_exception(problem)

    outer.add_done_callback(
        lambda _: [each.cancel() for _, each in parts] if outer.cancelled() else None
    )
    for _, each in parts:
        each.add_done_callback(done)
    return outer
