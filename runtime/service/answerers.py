"""Answerers: an endpoint is a stack of them, each of which holds the next one.

    kept -> shadowed -> tallied -> redacted -> direct

`Direct` (runtime.service.direct) computes what one version answers and stands at the end; HTTP puts
its result cache and its batching before it. `Routes.stack` says which of the others an endpoint has
above that: most have none, and machine code answers for them (runtime.service.native_predict).
The same stacks answer Python, HTTP, workers and replicas. There is one way through them: a future;
where the caller waits it is done when it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from flour.data.arrow_strings import with_texts
from flour.data.batch import Batch
from runtime.routing.blocks import Places, merged, taken
from runtime.routing.pairs import Answers
from runtime.routing.route import Route
from runtime.routing.shadows import kept
from runtime.service.asking import asked_by
from runtime.service.done_future import DoneFuture
from runtime.service.entry import Outputs
from runtime.service.following import Keeper, Noting
from runtime.service.mirrors import Mirrors
from runtime.service.private_answers import shown
from runtime.service.version import ModelVersion
from scheduler import Awaited

#: Characters to which the names of requests are cut.
LONGEST = 500


class InferCall(NamedTuple):
    """A call of one version, with its options."""

    version: ModelVersion
    batch: Any
    """A batch of rows, or rows as they came."""
    outputs: tuple[str, ...] | None = None
    timeout: float | None = None
    priority: int | None = None
    engine: str | None = None
    waits: bool = False
    """Whether the caller waits, so that its own thread may compute the answers."""


class Answerer(Protocol):
    """From a call to its answers; neither may block a caller that does not wait."""

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers; cancelling it gives the call up."""


class Done(NamedTuple):
    """A call that is over: what it was asked, and its answers or its error."""

    version: ModelVersion
    rows: object
    outputs: object
    found: Answers | BaseException
    seconds: float


class Following:
    """Answers as the next answerer does, and follows up each answer and each error."""

    def __init__(self, inner: Answerer) -> None:
        self.inner = inner

    def copied(self, data: object) -> object:
        """The rows as `follow` gets them, when the call may be over."""
        return None

    def follow(self, done: Done) -> None:
        """Do what follows a call."""
        raise NotImplementedError

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        rows, start = self.copied(batch), perf_counter()
        try:
            outputs = self.inner.quick(version, batch)
        except Exception as problem:
            self.follow(Done(version, rows, None, problem, perf_counter() - start))
            raise
        if outputs is not None:
            answers = dict(zip(version.outputs, outputs, strict=True))
            self.follow(Done(version, rows, None, answers, perf_counter() - start))
        return outputs

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers; a call that is given up is not followed."""
        version, outputs = call.version, call.outputs
        rows, start = self.copied(call.batch), perf_counter()
        try:
            future = self.inner.answer(call)
        except Exception as problem:
            self.follow(Done(version, rows, outputs, problem, perf_counter() - start))
            raise

        if type(future) is DoneFuture:
            self.follow(Done(version, rows, outputs, future.result(), perf_counter() - start))
            return future

        def done(coming: Future[Answers]) -> None:
            if not coming.cancelled():
                problem = coming.exception()
                found = coming.result() if problem is None else problem
                self.follow(Done(version, rows, outputs, found, perf_counter() - start))

        future.add_done_callback(done)
        return future


class Tallied(Following):
    """Counts calls for a rollout."""

    def __init__(self, inner: Answerer, noting: Noting, headers: Mapping[str, str]) -> None:
        self.inner, self._noting, self._headers = inner, noting, headers

    def follow(self, done: Done) -> None:
        """Count the call."""
        problem = done.found if isinstance(done.found, BaseException) else None
        self._noting.note(done.version.owner, done.seconds, problem, self._headers)


class Shadowed(Following):
    """Has the shadow of a route asked the same rows."""

    def __init__(self, inner: Answerer, mirrors: Mirrors, route: Route) -> None:
        self.inner, self._mirrors, self._route = inner, mirrors, route

    def copied(self, data: object) -> object:
        """Plain rows, copied."""
        return kept(data.data if isinstance(data, Batch) else data)

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows; with the shadow's where one program gives both."""
        outputs = self._mirrors.together(version.name, self._route, batch)
        return super().quick(version, batch) if outputs is None else outputs

    def follow(self, done: Done) -> None:
        """Ask the shadow, later."""
        if isinstance(done.found, dict | Exception):
            self._mirrors.ask(self._route, done.rows, done.outputs, done.found, done.seconds)


class Kept(Following):
    """Has answers kept, under ids that they carry."""

    def __init__(
        self, inner: Answerer, keeper: Keeper, headers: Mapping[str, str], ids: list[str]
    ) -> None:
        """`ids` gets the id of each answer: several, where rows are answered in parts."""
        self.inner, self._keeper, self._headers, self._ids = inner, keeper, headers, ids

    def copied(self, data: object) -> object:
        """Rows that stay when their call is over: texts are copied out of the call's memory."""
        if isinstance(data, Batch):
            return data._replace(data=with_texts(kept(data.data)))
        return kept(data)

    def follow(self, done: Done) -> None:
        """Keep an answer."""
        if isinstance(done.found, dict):
            self._note(done.version, done.rows, done.outputs, done.found)

    def _note(
        self, version: ModelVersion, rows: object, outputs: object, answers: Answers
    ) -> Answers:
        headers = {"x-request-id": (self._headers.get("x-request-id") or "")[:LONGEST]}
        noted = self._keeper.note(version, rows, outputs, answers, headers)
        if (found := getattr(noted, "id", None)) is not None:
            self._ids.append(found)
        return noted

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers with their id."""
        note = partial(self._note, call.version, self.copied(call.batch), call.outputs)
        return after(self.inner.answer(call), note)


class Redacted:
    """Answers as the next one does; errors have no values of private columns."""

    def __init__(self, inner: Answerer) -> None:
        self.inner = inner

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        try:
            return self.inner.quick(version, batch)
        except Exception as problem:  # noqa: BLE001 (raised below, where it takes nothing along)
            found = shown(problem, version)
        raise found

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers."""
        try:
            return after(self.inner.answer(call), same, lambda each: shown(each, call.version))
        except Exception as problem:  # noqa: BLE001 (as above)
            found = shown(problem, call.version)
        raise found


class Tenanted:
    """Answers as the next one does, which is told who asks."""

    def __init__(self, inner: Answerer, tenant: str) -> None:
        self.inner, self._tenant = inner, tenant

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        return asked_by(self._tenant, lambda: self.inner.quick(version, batch))

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers."""
        return asked_by(self._tenant, lambda: self.inner.answer(call))


class Parted:
    """Answers a block by several versions, each of them its rows."""

    def __init__(self, parts: Sequence[tuple[ModelVersion, Answerer, Places]]) -> None:
        self._parts = parts

    def quick(self, _version: ModelVersion, _batch: Batch) -> None:
        """Nothing is over at once."""

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of one answer to the block."""
        coming, rows = [], call.batch.data if isinstance(call.batch, Batch) else call.batch
        for version, inner, places in self._parts:
            part = call._replace(version=version, batch=taken(rows, places))
            coming.append((places, inner.answer(part)))
        return together(coming)


# --- futures -------------------------------------------------------------------------------------


def same(answers: Answers) -> Answers:
    """The answers as they are."""
    return answers


def after(
    inner: Future[Answers],
    change: Callable[[Answers], Answers],
    told: Callable[[Exception], Exception] | None = None,
) -> Future[Answers]:
    """A future of what another gives, changed, and of its errors as `told` has them."""
    if type(inner) is DoneFuture:
        return inner if change is same else DoneFuture(change(inner.result()))
    outer = Awaited(*getattr(inner, "needs", ()))

    def done(_: object) -> None:
        if inner.cancelled():
            outer.cancel()
        if not outer.set_running_or_notify_cancel():
            return
        try:
            outer.set_result(change(inner.result()))
        except BaseException as problem:  # noqa: BLE001 (it is the caller's, who waits for it)
            shows = told is not None and isinstance(problem, Exception)
            outer.set_exception(told(problem) if shows else problem)  # type: ignore[misc, arg-type]  # checked above

    outer.add_done_callback(lambda _: outer.cancelled() and inner.cancel())
    inner.add_done_callback(done)
    return outer


def together(parts: Sequence[tuple[Places, Future[Answers]]]) -> Future[Answers]:
    """A future of one answer to a block, of those to its rows; the first error is its error."""
    if all(type(each) is DoneFuture for _, each in parts):
        return DoneFuture(merged([(places, each.result()) for places, each in parts]))
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
