"""Routes over HTTP: requests that follow them, and handlers that tell and change them.

An endpoint with a route answers with the version that the route chooses by the headers, the tenant
(the header that the settings name) and the row; the answer tells it in a header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

import msgspec

from runtime.errors import UnknownEndpoint
from runtime.http.codec.bodies import Compared, PromoteRequest, RouteBody, RouteChange, RouteHistory
from runtime.http.codec.typed_json import json
from runtime.http.guard.clients import asked_of, changed, sender
from runtime.http.routes import Handler, HandlerContext
from runtime.http.wire.messages import ANSWER_HEADER, VERSION_HEADER, Answer, Request, Response
from runtime.routing import Route
from runtime.routing.route import addressed
from runtime.routing.written import as_data, from_data
from runtime.runtime import Runtime

#: The data of a request's body, as the champion reads it.
Rows = Callable[[HandlerContext, Request], object]
#: Larger bodies are read on a thread.
LARGE = 512 << 10

_route = msgspec.json.Decoder(RouteBody)
_promotion = msgspec.json.Decoder(PromoteRequest)
_nothing = msgspec.json.Decoder(dict[str, Any])


# --- requests that follow a route ----------------------------------------------------------------


def following(handler: Handler, rows: Rows) -> Handler:
    """What answers in a handler's place where the name is not in the runtime's table."""

    def follow(service: HandlerContext, request: Request) -> Answer:
        name = request.params["model"]
        route = None if "version" in request.params else service.runtime.routes.routed(name)
        if route is None or not route.reads_rows:
            return _answered(handler, service, request, None)
        if len(request.body) > LARGE:
            return _aside(handler, service, request, rows)
        return _answered(handler, service, request, rows(service, request))

    return follow


async def _aside(
    handler: Handler, service: HandlerContext, request: Request, rows: Rows
) -> Response:
    data = await asyncio.to_thread(rows, service, request)
    answer = _answered(handler, service, request, data)
    return answer if isinstance(answer, Response) else await answer


def _answered(handler: Handler, service: HandlerContext, request: Request, data: object) -> Answer:
    """The answer by the stack of the endpoint, above the cache and the batching."""
    headers = {
        name.decode("latin-1"): value.decode("latin-1").strip()
        for name, value in request.headers.items()
    }
    address, version = request.params["model"], request.params.get("version")
    if version is not None:
        address = f"{address}@{version}"
    tenant = headers.get(service.settings.tenant_header.lower(), "")
    routes, service = service.runtime.routes, copy(service)
    opened = routes.open(service.answering, address, data, headers, tenant)
    chosen, service.answering, owners, ids = opened
    if owners:
        request.params = {**request.params, "version": chosen.version}
    answer = handler(service, request)
    return (
        _told(answer, owners, ids) if isinstance(answer, Response) else _later(answer, owners, ids)
    )


async def _later(coming: Awaitable[Response], owners: Sequence[str], ids: list[str]) -> Response:
    return _told(await coming, owners, ids)


def _told(answer: Response, owners: Sequence[str], ids: list[str]) -> Response:
    """The same answer with the version that gave it, and with the ids of answers that are kept."""
    headers = list(answer.headers)
    if owners:
        text = ", ".join(owners)  # as headers can have it
        headers.append(
            (VERSION_HEADER, text.encode("latin-1", "backslashreplace").decode("latin-1"))
        )
    if ids and answer.status < 400:
        headers.append((ANSWER_HEADER, ", ".join(ids)))
    return Response(answer.body, answer.status, answer.content_type, tuple(headers))


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
    """How a shadow's answers differ from the champion's, from the first request of this on."""
    found = await service.peers.judge("compare", {"name": request.params["model"]})
    return json(Compared(**found))


def put_route(service: HandlerContext, request: Request) -> Answer:
    """Give an endpoint a route."""
    body: RouteBody = asked_of(request, _route)
    name, data = request.params["model"], msgspec.to_builtins(body)
    given = {part: value for part, value in data.items() if value is not None}
    service.runtime.endpoints.find(name)
    written = from_data({"salt": name, **given}, where=f"the route of {name!r}"[:200])
    made = addressed(name, written)
    return _change(service, request, partial(_put, service.runtime, name, made))


def _put(runtime: Runtime, name: str, made: Route, who: str) -> Route:
    runtime.routes.put_route(name, made, who=who)
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
