"""Answerers: an endpoint is a stack of them, each of which holds the next one.

    tenanted -> kept -> shadowed -> tallied -> redacted -> direct

`Direct` (runtime.service.direct) computes what one version answers and stands at the end; HTTP puts
its result cache and its batching before it. `Stacks` puts the others above that, once for each
version, when something has changed: most endpoints have none, and machine code answers for them
(runtime.service.native_predict). Answerers hold nothing of a request, which is told along with its
call. The same stacks answer Python, HTTP, workers and replicas. There is one way through them: a
future; where the caller waits it is done when it comes.
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
from runtime.routing.shadows import is_sampled, kept
from runtime.service.asking import asked_by, is_kept
from runtime.service.done_future import DoneFuture
from runtime.service.entry import Outputs
from runtime.service.following import Keeper, Noting
from runtime.service.mirrors import Mirrors
from runtime.service.private_answers import shown
from runtime.service.version import ModelVersion
from scheduler import Awaited


class Asked:
    """The part of a request that answerers beside the direct one want to know."""

    __slots__ = ("headers", "ids", "tenant")

    def __init__(
        self, headers: Mapping[str, str], tenant: str = "", ids: list[str] | None = None
    ) -> None:
        """`headers` have names in lower case; `ids` gets the id of each answer that is kept."""
        self.headers, self.tenant, self.ids = headers, tenant, ids


#: For requests of which nothing is known.
NOBODY = Asked({})


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
    """True if the caller waits, so that its own thread may compute the answers."""
    asked: Asked = NOBODY


class Answerer(Protocol):
    """From a call to its answers; neither may block a caller that does not wait."""

    def quick(
        self, version: ModelVersion, batch: Batch, asked: Asked = NOBODY, /
    ) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""

    def answer(self, call: InferCall, /) -> Future[Answers]:
        """A future of the answers; cancelling it gives the call up."""


class Following:
    """Answers as the next one does, and has each call followed that is not given up."""

    def __init__(self, inner: Answerer) -> None:
        self.inner = inner

    def begin(
        self, version: ModelVersion, data: object, outputs: object, asked: Asked
    ) -> Callable[[Answers | BaseException], object] | None:
        """A call begins: what is told its answers or its error, if it is to be followed."""
        raise NotImplementedError

    def quick(self, version: ModelVersion, batch: Batch, asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        then = self.begin(version, batch, None, asked)
        try:
            outputs = self.inner.quick(version, batch, asked)
        except Exception as problem:
            if then is not None:
                then(problem)
            raise
        if outputs is not None and then is not None:
            then(dict(zip(version.outputs, outputs)))  # noqa: B905 (checking costs as much)
        return outputs

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers."""
        then = self.begin(call.version, call.batch, call.outputs, call.asked)
        try:
            future = self.inner.answer(call)
        except Exception as problem:
            if then is not None:
                then(problem)
            raise
        return future if then is None else follow(future, then)


class Tallied(Following):
    """Counts calls for a rollout."""

    def __init__(self, inner: Answerer, noting: Noting) -> None:
        self.inner, self._noting = inner, noting

    def begin(
        self, version: ModelVersion, data: object, outputs: object, asked: Asked
    ) -> Callable[[Answers | BaseException], object]:
        """Count the call when it is over."""
        return partial(self._note, version.owner, asked.headers, perf_counter())

    def _note(self, owner: str, headers: Mapping[str, str], start: float, found: object) -> None:
        problem = found if isinstance(found, BaseException) else None
        self._noting.note(owner, perf_counter() - start, problem, headers)


class Shadowed(Following):
    """Has the shadow of a route asked the same rows, or a sample of them."""

    def __init__(self, inner: Answerer, mirrors: Mirrors, route: Route) -> None:
        self.inner, self._mirrors, self._route = inner, mirrors, route

    def quick(self, version: ModelVersion, batch: Batch, asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows; with the shadow's where one program gives both."""
        outputs = self._mirrors.together(version.name, self._route, batch)
        return super().quick(version, batch, asked) if outputs is None else outputs

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers; this does what it inherits, with fewer calls for one row."""
        if not call.waits:
            return super().answer(call)
        if not is_sampled(self._route):
            return self.inner.answer(call)
        rows, start = kept(call.batch), perf_counter()
        try:
            future = self.inner.answer(call)
        except Exception as problem:
            self._ask(rows, call.outputs, start, problem)
            raise
        answers, seconds = future.result(), perf_counter() - start
        self._mirrors.ask(self._route, rows, call.outputs, answers, seconds)
        return future

    def begin(
        self, version: ModelVersion, data: object, outputs: object, asked: Asked
    ) -> Callable[[Answers | BaseException], object] | None:
        """Have the shadow asked when the call is over, with a copy of its rows."""
        if not is_sampled(self._route):
            return None
        rows = kept(data.data if isinstance(data, Batch) else data)
        return partial(self._ask, rows, outputs, perf_counter())

    def _ask(
        self, rows: object, outputs: object, start: float, found: Answers | BaseException
    ) -> None:
        if type(found) is dict or isinstance(found, dict | Exception):
            self._mirrors.ask(self._route, rows, outputs, found, perf_counter() - start)


class KeepingAnswers:
    """Has answers kept, under ids that they carry."""

    def __init__(self, inner: Answerer, keepers: Sequence[Keeper]) -> None:
        self.inner, self._keepers = inner, keepers

    def quick(self, version: ModelVersion, batch: Batch, asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        if not is_kept():
            return self.inner.quick(version, batch, asked)
        rows = _lasting(batch)
        outputs = self.inner.quick(version, batch, asked)
        if outputs is not None:
            answers = dict(zip(version.outputs, outputs))  # noqa: B905 (checking costs as much)
            self._note(version, asked, rows, None, answers)
        return outputs

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers with their id."""
        if not is_kept():
            return self.inner.answer(call)
        version, batch, outputs, asked = call.version, call.batch, call.outputs, call.asked
        rows = _lasting(batch) if isinstance(batch, Batch) else kept(batch)
        future = self.inner.answer(call)
        if type(future) is DoneFuture and asked.ids is None:
            return DoneFuture(self._note(version, asked, rows, outputs, future.result()))
        return after(future, partial(self._note, version, asked, rows, outputs))

    def _note(
        self, version: ModelVersion, asked: Asked, rows: object, outputs: object, answers: Answers
    ) -> Answers:
        first, *others = self._keepers
        # All know an answer by the same id; it has it if one of them has noted it.
        answer = first.new_id() if others else None
        noted = first.note(version, rows, outputs, answers, asked.headers, answer)
        for keeper in others:
            more = keeper.note(version, rows, outputs, answers, asked.headers, answer)
            noted = more if getattr(noted, "id", None) is None else noted
        if asked.ids is not None and (found := getattr(noted, "id", None)) is not None:
            asked.ids.append(found)
        return noted


def _lasting(batch: Batch) -> Batch:
    """A batch that stays when its call is over: texts are copied out of the call's memory."""
    return batch._replace(data=with_texts(kept(batch.data)))


class Redacted:
    """Answers as the next one does; errors have no values of private columns."""

    def __init__(self, inner: Answerer) -> None:
        self.inner = inner

    def quick(self, version: ModelVersion, batch: Batch, asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        try:
            return self.inner.quick(version, batch, asked)
        except Exception as problem:  # noqa: BLE001 (raised below, where it takes nothing along)
            found = shown(problem, version)
        raise found

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers."""
        try:
            future = self.inner.answer(call)
        except Exception as problem:  # noqa: BLE001 (as above)
            found = shown(problem, call.version)
        else:
            if type(future) is DoneFuture:
                return future
            return after(future, told=lambda each: shown(each, call.version))
        raise found


class Tenanted:
    """Answers as the next one does, which is told who asks."""

    def __init__(self, inner: Answerer) -> None:
        self.inner = inner

    def quick(self, version: ModelVersion, batch: Batch, asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        return asked_by(asked.tenant, lambda: self.inner.quick(version, batch, asked))

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers."""
        return asked_by(call.asked.tenant, lambda: self.inner.answer(call))


class Parted:
    """Answers a block by several versions, each of them its rows."""

    def __init__(self, parts: Sequence[tuple[ModelVersion, Answerer, Places]]) -> None:
        self._parts = parts

    def quick(self, _version: ModelVersion, _batch: Batch, _asked: Asked = NOBODY) -> None:
        """Nothing is over at once."""

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of one answer to the block."""
        coming, rows = [], call.batch.data if isinstance(call.batch, Batch) else call.batch
        for version, inner, places in self._parts:
            part = (version, taken(rows, places), *call[2:])
            coming.append((places, inner.answer(tuple.__new__(InferCall, part))))
        return together(coming)


# --- futures -------------------------------------------------------------------------------------


def follow(
    future: Future[Answers], then: Callable[[Answers | BaseException], object]
) -> Future[Answers]:
    """The future, of which `then` gets the answers or the error; not where it is given up."""

    def done(coming: Future[Answers]) -> None:
        if not coming.cancelled():
            then(coming.exception() or coming.result())

    if type(future) is DoneFuture:  # what `then` raises is the caller's
        then(future.result())
    else:
        future.add_done_callback(done)
    return future


def after(
    inner: Future[Answers],
    change: Callable[[Answers], Answers] | None = None,
    told: Callable[[Exception], Exception] | None = None,
) -> Future[Answers]:
    """A future of what another gives, changed, and of its errors as `told` has them."""
    outer = Awaited(*getattr(inner, "needs", ()))

    def done(_: object) -> None:
        if inner.cancelled():
            outer.cancel()
        if not outer.set_running_or_notify_cancel():
            return
        try:
            answers = inner.result()
            outer.set_result(answers if change is None else change(answers))
        except BaseException as problem:  # noqa: BLE001 (it is the caller's, who waits for it)
            if told is not None and isinstance(problem, Exception):
                problem = told(problem)
            outer.set_exception(problem)

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
