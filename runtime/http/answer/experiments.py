"""Routes over HTTP: requests that follow them, and handlers that tell and change them.

An endpoint with a route answers with the version that the route chooses by the headers, the tenant
(the header that the settings name) and the row; the answer tells it in a header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from flour.data.batch import Batch
from runtime.errors import UnknownEndpoint
from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.bodies import (
    Compared,
    PromoteRequest,
    RouteBody,
    RouteChange,
    RouteHistory,
    json,
)
from runtime.http.guard.clients import asked_of, changed, sender
from runtime.http.routes import Handler, HandlerContext
from runtime.http.wire.messages import ANSWER_HEADER, VERSION_HEADER, Answer, Request, Response
from runtime.routing import Route
from runtime.routing.route import addressed
from runtime.routing.written import as_data, from_data
from runtime.runtime import Runtime
from runtime.service.answerers import NOBODY, Answerer, Asked, InferCall
from runtime.service.entry import Outputs
from runtime.service.stacks import Stacks
from runtime.service.version import ModelVersion

#: The data of a request's body, as the champion reads it.
Rows = Callable[[HandlerContext, Request], object]
_NOTHING: Mapping[str, str] = {}


# --- requests that follow a route ----------------------------------------------------------------


def by_route(handler: Handler, rows: Rows) -> Handler:
    """A handler that asks the stack of an endpoint who answers, where it has more than one."""

    def answer(service: HandlerContext, request: Request) -> Answer:
        params = request.params
        name, version = params["model"], params.get("version")
        if (name if version is None else f"{name}@{version}") in service.table:
            return handler(service, request)
        route = service.runtime.routes.routed(name) if version is None else None
        if route is None or not route.reads_rows:
            return _answered(handler, service, request, route)
        if len(request.body) > LARGE:
            return _aside(handler, service, request, route, rows)
        return _answered(handler, service, request, route, rows(service, request))

    return answer


async def _aside(
    handler: Handler, service: HandlerContext, request: Request, route: Route, rows: Rows
) -> Response:
    data = await asyncio.to_thread(rows, service, request)
    answer = _answered(handler, service, request, route, data)
    return answer if isinstance(answer, Response) else await answer


def _answered(
    handler: Handler,
    service: HandlerContext,
    request: Request,
    route: Route | None,
    data: object = None,
) -> Answer:
    """The answer by the stack of the endpoint, above the cache and the batching."""
    params, base, stacks = request.params, service.answering, service.stacks
    address, headers, tenant = params["model"], _NOTHING, ""
    if "version" in params:
        address = f"{address}@{params['version']}"
    if route is not None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1").strip()
            for name, value in request.headers.items()
        }
        tenant = headers.get(service.settings.tenant_header.lower(), "")
    if stacks is None or stacks.base is not base:
        known = service.runtime
        stacks = service.stacks = Stacks(base, known.endpoints, known.routes, redacts=False)
    chosen, stack, owners = stacks.open(address, data, headers, tenant)
    if owners:
        request.params = {**params, "version": chosen.version}
    if stack is base and not owners:
        return handler(service, request)
    ids: list[str] = []
    if stack is not base:
        if route is None:  # no condition reads a header
            tenant = request.header(service.settings.tenant_header.lower()) or ""
            headers = {"x-request-id": request.header("x-request-id") or ""}
        service = service.answered_by(StackOfRequest(stack, Asked(headers, tenant, ids)))
    answer = handler(service, request)
    if not isinstance(answer, Response):
        return _later(answer, owners, ids)
    return _told(answer, owners, ids)


class StackOfRequest:
    """A stack of answerers, for one request."""

    __slots__ = ("_asked", "_stack")

    def __init__(self, stack: Answerer, asked: Asked) -> None:
        self._stack, self._asked = stack, asked

    def quick(self, version: ModelVersion, batch: Batch, _asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        return self._stack.quick(version, batch, self._asked)

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """A future of the answers."""
        return self._stack.answer(call._replace(asked=self._asked))


async def _later(coming: Awaitable[Response], owners: str, ids: list[str]) -> Response:
    return _told(await coming, owners, ids)


def _told(answer: Response, owners: str, ids: list[str]) -> Response:
    """The answer with the version that gave it, and with the ids of answers that are kept."""
    headers = answer.headers
    if owners:
        if not owners.isascii():  # as headers can have it
            owners = owners.encode("latin-1", "backslashreplace").decode("latin-1")
        headers = (*headers, (VERSION_HEADER, owners))
    if ids and answer.status < 400:
        headers = (*headers, (ANSWER_HEADER, ", ".join(ids)))
    return Response(answer.body, answer.status, answer.content_type, headers)


# --- telling and changing ------------------------------------------------------------------------


def route(service: HandlerContext, request: Request) -> Answer:
    """The route of an endpoint; without one, its champion is the version in service."""
    name = request.params["model"]
    champion = service.runtime.endpoints.find(name).owner
    if "@" in name:
        raise UnknownEndpoint("a version has no route, its endpoint has", found=name[:200])
    return json(_body(service.runtime.routes.routed(name) or Route(champion)))


def history(service: HandlerContext, request: Request) -> Answer:
    """The changes of an endpoint's route."""
    changes = [
        RouteChange(
            each.number, each.action, each.who, each.when, _body(each.route), each.undone_to
        )
        for each in service.runtime.routes.history(request.params["model"])
    ]
    return json(RouteHistory(changes))


async def compare(service: HandlerContext, request: Request) -> Response:
    """Differences of a shadow's answers from the champion's, from the first request of this on."""
    found = await service.peers.judge("compare", {"name": request.params["model"]})
    return json(Compared(**found))


def put_route(service: HandlerContext, request: Request) -> Answer:
    """Give an endpoint a route."""
    body = asked_of(request, RouteBody)
    name, data = request.params["model"], msgspec.to_builtins(body)
    given = {part: value for part, value in data.items() if value is not None}
    if name not in service.runtime.routes.muted:  # its file may wait to be deleted
        service.runtime.endpoints.find(name)
    written = from_data({"salt": name, **given}, where=f"the route of {name!r}"[:200])
    made = addressed(name, written)
    return _change(service, request, partial(_put, service.runtime, name, made))


def _put(runtime: Runtime, name: str, made: Route, who: str) -> Route:
    runtime.routes.put_route(name, made, who=who)
    return made


def promote(service: HandlerContext, request: Request) -> Answer:
    """Make a challenger the champion."""
    asked = asked_of(request, PromoteRequest)
    change = partial(service.runtime.promote, request.params["model"], asked.version)
    return _change(service, request, change)


def rollback(service: HandlerContext, request: Request) -> Answer:
    """Return to the route before the last change."""
    asked_of(request, dict[str, Any])
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
