"""What follows an answer of an endpoint: it is kept, counted, or joined with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from time import perf_counter
from typing import Protocol

from runtime.routing.blocks import Places, merged
from runtime.routing.pairs import Answers
from runtime.service.private_answers import shown
from runtime.service.version import ModelVersion


class Noting(Protocol):
    """What counts the requests of an endpoint; see runtime.rollout."""

    @property
    def counts_on(self) -> bool:
        """Whether requests are still to be noted."""
        ...

    def note(
        self, owner: str, seconds: float, error: object, headers: Mapping[str, str] | None
    ) -> None:
        """Count a request that a version answered, or failed with an error."""
        ...

    def end(self) -> None:
        """Count no more: the endpoint is gone, or the runtime is closed."""
        ...


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
        ...

    def new_id(self) -> str:
        """An id that no other answer has."""
        ...

    def why(self, answer: str) -> object | None:
        """What is known of an answer; None if this has not kept it."""
        ...

    def end(self) -> None:
        """Write what has come, as the runtime is closed."""
        ...


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
    outer: Future[Answers] = Future()

    def done(_: object) -> None:
        if inner.cancelled():
            outer.cancel()
        if not outer.set_running_or_notify_cancel():
            return
        problem = inner.exception()
        if isinstance(problem, Exception):
            outer.set_exception(shown(problem, version))
            return
        answers = inner.result()
        outer.set_result(answers if note is None else note(answers, headers))

    outer.add_done_callback(lambda _: outer.cancelled() and inner.cancel())
    inner.add_done_callback(done)
    return outer


def together(parts: Sequence[tuple[Places, Future[Answers]]]) -> Future[Answers]:
    """A future of one answer to a block, of those to its rows; the first error is its error."""
    outer: Future[Answers] = Future()
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
