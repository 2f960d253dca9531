"""Routes over HTTP: requests that follow them, and handlers that tell and change them.

An endpoint with a route answers with the version that the route chooses by the headers, the tenant
(the header that the settings name) and the row; the answer tells it in a header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from copy import copy
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import msgspec

from flour.data.arrow_strings import with_texts
from flour.data.batch import Batch
from runtime.errors import UnknownEndpoint
from runtime.http.answer.rollouts import Noted
from runtime.http.codec.bodies import Compared, PromoteRequest, RouteBody, RouteChange, RouteHistory
from runtime.http.codec.typed_json import json
from runtime.http.guard.clients import asked_of, changed, sender
from runtime.http.routes import Handler, HandlerContext
from runtime.http.wire.interfaces import Answering
from runtime.http.wire.messages import (
    ANSWER_HEADER,
    VERSION_HEADER,
    Answer,
    InferCall,
    Request,
    Response,
)
from runtime.routing import Route
from runtime.routing.blocks import Places, taken
from runtime.routing.route import addressed
from runtime.routing.shadows import is_sampled, kept
from runtime.routing.written import as_data, from_data
from runtime.service.asking import asked_by
from runtime.service.entry import Outputs
from runtime.service.following import Keeper, together
from runtime.service.runtime import Runtime
from runtime.service.version import ModelVersion

#: The data of a request's body, as the champion reads it.
Rows = Callable[[HandlerContext, Request], object]
#: Larger bodies are read on a thread.
LARGE = 512 << 10
#: Characters to which the names of requests are cut.
LONGEST = 500

_route = msgspec.json.Decoder(RouteBody)
_promotion = msgspec.json.Decoder(PromoteRequest)
_nothing = msgspec.json.Decoder(dict[str, Any])


# --- requests that follow a route ----------------------------------------------------------------


def following(handler: Handler, rows: Rows) -> Handler:
    """What answers in a handler's place where the name is not in the runtime's table."""

    def follow(service: HandlerContext, request: Request) -> Answer:
        name = request.params["model"]
        keeper = service.runtime.keeper(name)
        if service.runtime.by_tenant[name] > 0:
            tenant = request.header(service.settings.tenant_header.lower()) or ""
            service = copy(service)
            service.answering = Tenanted(service.answering, tenant)
        if keeper is not None:
            return _kept(handler, rows, service, request, keeper)
        return _routed(handler, rows, service, request)

    return follow


def _routed(handler: Handler, rows: Rows, service: HandlerContext, request: Request) -> Answer:
    name = request.params["model"]
    route = None if "version" in request.params else service.runtime.routed(name)
    if route is None:  # it has none, or is not known
        return handler(service, request)
    if route.reads_rows and len(request.body) > LARGE:
        return _aside(handler, service, request, route, rows)
    data = rows(service, request) if route.reads_rows else None
    return _answered(handler, service, request, route, data)


def _kept(
    handler: Handler, rows: Rows, service: HandlerContext, request: Request, keeper: Keeper
) -> Answer:
    """The answer, which is kept, with its id."""
    service = copy(service)
    request_id = (request.header("x-request-id") or "")[:LONGEST]
    service.answering = answering = Keeping(service.answering, keeper, request_id)
    answer = _routed(handler, rows, service, request)
    return answering.told(answer) if isinstance(answer, Response) else answering.later(answer)


async def _aside(
    handler: Handler, service: HandlerContext, request: Request, route: Route, rows: Rows
) -> Response:
    data = await asyncio.to_thread(rows, service, request)
    answer = _answered(handler, service, request, route, data)
    return answer if isinstance(answer, Response) else await answer


def _answered(
    handler: Handler, service: HandlerContext, request: Request, route: Route, data: object
) -> Answer:
    headers = {
        name.decode("latin-1"): value.decode("latin-1").strip()
        for name, value in request.headers.items()
    }
    tenant = headers.get(service.settings.tenant_header.lower(), "")
    name = request.params["model"]
    parts = service.runtime.by_version(name, data, headers, tenant) if route.reads_rows else None
    if parts is None:
        owner = told = route.choose(data, headers, tenant)
    else:
        owner, told = next(iter(parts)), ", ".join(parts)
    request.params = {**request.params, "version": owner.rpartition("@")[2]}
    noting = service.runtime.tallies.get(name)
    if noting is not None:
        service = copy(service)
        service.answering = Noted(service.answering, noting, headers.get("x-request-id", ""))
    if owner == route.champion and is_sampled(route):
        service = copy(service)
        service.answering = Mirrored(service.answering, service.runtime, route)
    if parts is not None and len(parts) > 1:
        service = copy(service)
        service.answering = Parted(service.answering, service.runtime, parts)
    answer = handler(service, request)
    return _told(answer, told) if isinstance(answer, Response) else _later(answer, told)


async def _later(coming: Awaitable[Response], owner: str) -> Response:
    return _told(await coming, owner)


def _told(answer: Response, owner: str) -> Response:
    """The same answer with the version that gave it."""
    headers = (*answer.headers, (VERSION_HEADER, _header_text(owner)))
    return Response(answer.body, answer.status, answer.content_type, headers)


def _header_text(owner: str) -> str:
    """A version's name as headers can have it."""
    return owner.encode("latin-1", "backslashreplace").decode("latin-1")


class Mirrored:
    """Answers as the next layer does, and lets the shadow of a route be asked the same."""

    def __init__(self, inner: Answering, runtime: Runtime, route: Route) -> None:
        self.inner, self._runtime, self._route = inner, runtime, route

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        outputs = self._runtime.mirrors.together(version.name, self._route, batch)
        if outputs is not None:
            return outputs
        rows, start = kept(batch.data), perf_counter()
        try:
            outputs = self.inner.quick(version, batch)
        except Exception as problem:
            self._runtime.mirrors.ask(self._route, rows, {}, problem, perf_counter() - start)
            raise
        if outputs is not None:
            answers = dict(zip(version.outputs, outputs, strict=True))
            self._runtime.mirrors.ask(self._route, rows, {}, answers, perf_counter() - start)
        return outputs

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """A future of the answers."""
        rows, start = kept(call.batch.data), perf_counter()
        future = self.inner.answer(call)
        mirror = self._runtime.mirrors.ask_done
        future.add_done_callback(partial(mirror, self._route, rows, call.outputs, start))
        return future


class Parted:
    """Answers a block by several versions, each of them its rows."""

    def __init__(self, inner: Answering, runtime: Runtime, parts: Mapping[str, Places]) -> None:
        self.inner, self._runtime, self._parts = inner, runtime, parts

    def quick(self, _version: ModelVersion, _batch: Batch) -> None:
        """Nothing is over at once."""

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """A future of the answers."""
        return together(
            [
                (places, self.inner.answer(self._part(call, owner, places)))
                for owner, places in self._parts.items()
            ]
        )

    def _part(self, call: InferCall, owner: str, places: Places) -> InferCall:
        version = self._runtime.find(owner)
        batch = version.reader.read(taken(call.batch.data, places))
        return replace(call, version=version, batch=batch)


class Tenanted:
    """Answers as the next layer does, which is told who asks."""

    def __init__(self, inner: Answering, tenant: str) -> None:
        self.inner, self._tenant = inner, tenant

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        return asked_by(self._tenant, lambda: self.inner.quick(version, batch))

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """A future of the answers."""
        return asked_by(self._tenant, lambda: self.inner.answer(call))


class Keeping:
    """Answers as the next layer does, and has what it answers to one request kept."""

    def __init__(self, inner: Answering, keeper: Keeper, request: str) -> None:
        self.inner, self._keeper, self._ids = inner, keeper, list[str]()
        self._headers = {"x-request-id": request}

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        rows = owned(batch)
        outputs = self.inner.quick(version, batch)
        if outputs is not None:
            self._note(version, rows, None, dict(zip(version.outputs, outputs, strict=True)))
        return outputs

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """A future of the answers."""
        rows, future = owned(call.batch), self.inner.answer(call)

        def done(coming: Future[dict[str, Any]]) -> None:
            if not coming.cancelled() and coming.exception() is None:
                self._note(call.version, rows, call.outputs, coming.result())

        future.add_done_callback(done)
        return future

    def _note(
        self, version: ModelVersion, rows: Batch, outputs: object, answers: dict[str, Any]
    ) -> None:
        noted = self._keeper.note(version, rows, outputs, answers, self._headers)
        found = getattr(noted, "id", None)
        if found is not None:
            self._ids.append(found)

    def told(self, answer: Response) -> Response:
        """The response with the ids of its answers: several, where documents came in parts."""
        if not self._ids or answer.status >= 400:
            return answer
        headers = (*answer.headers, (ANSWER_HEADER, ", ".join(self._ids)))
        return Response(answer.body, answer.status, answer.content_type, headers)

    async def later(self, coming: Awaitable[Response]) -> Response:
        """The same for a response that is awaited."""
        return self.told(await coming)


def owned(batch: Batch) -> Batch:
    """A batch that stays when its call is over: texts are copied out of the call's memory."""
    return batch._replace(data=kept(with_texts(batch.data)))


# --- telling and changing ------------------------------------------------------------------------


def route(service: HandlerContext, request: Request) -> Answer:
    """The route of an endpoint; without one, its champion is the version in service."""
    name = request.params["model"]
    champion = service.runtime.find(name).owner
    if "@" in name:
        raise UnknownEndpoint("a version has no route, its endpoint has", found=name[:200])
    return json(_body(service.runtime.routed(name) or Route(champion)))


def history(service: HandlerContext, request: Request) -> Answer:
    """The changes of an endpoint's route."""
    changes = [
        RouteChange(
            each.number, each.action, each.who, each.when, _body(each.route), each.undone_to
        )
        for each in service.runtime.history(request.params["model"])
    ]
    return json(RouteHistory(changes))


async def compare(service: HandlerContext, request: Request) -> Response:
    """How a shadow's answers differ from the champion's, from the first request of this on."""
    found = await service.peers.judge("compare", {"name": request.params["model"]})
    return json(Compared(**found))


def put_route(service: HandlerContext, request: Request) -> Answer:
    """Give an endpoint a route."""
    body: RouteBody = asked_of(request, _route)
    name, data = request.params["model"], msgspec.to_builtins(body)
    given = {part: value for part, value in data.items() if value is not None}
    service.runtime.find(name)
    written = from_data({"salt": name, **given}, where=f"the route of {name!r}"[:200])
    made = addressed(name, written)
    return _change(service, request, partial(_put, service.runtime, name, made))


def _put(runtime: Runtime, name: str, made: Route, who: str) -> Route:
    runtime.put_route(name, made, who=who)
    return made


def promote(service: HandlerContext, request: Request) -> Answer:
    """Make a challenger the champion."""
    asked: PromoteRequest = asked_of(request, _promotion)
    change = partial(service.runtime.promote, request.params["model"], asked.version)
    return _change(service, request, change)


def rollback(service: HandlerContext, request: Request) -> Answer:
    """Return to the route before the last change."""
    asked_of(request, _nothing)
    return _change(service, request, partial(service.runtime.rollback, request.params["model"]))


async def _change(
    service: HandlerContext, request: Request, change: Callable[..., Route]
) -> Response:
    """Change a route on a thread, as the change may be written to a file first."""
    made = await asyncio.to_thread(change, who=sender(service, request).name)
    await service.peers.settled()
    return changed(request, _body(made))


def _body(made: Route) -> RouteBody:
    return RouteBody(**as_data(made))
