"""Health and metadata of the server, and the OpenAPI document of its routes and bodies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from runtime.http.codec.bodies import Error, Live, ServerMetadata, json
from runtime.http.routes import HandlerContext, HttpRoute
from runtime.http.wire.messages import JSON, Answer, Request, Response
from runtime.http.wire.settings import server_version

_REFERENCE = "#/components/schemas/{name}"
#: Statuses of any route: invalid requests, missing tokens, and refusals of a busy server.
_ALWAYS = (400, 401, 405, 413, 429, 503)
#: Further statuses of routes with a body.
_BODIED = (415, 504)
EXTENSIONS = ["model_repository", "binary_tensor_data", "statistics", "model_configuration"]
_documents: WeakKeyDictionary[HandlerContext, asyncio.Future[Response]] = WeakKeyDictionary()


def metadata(service: HandlerContext, request: Request) -> Answer:
    """Name, version, extensions."""
    return json(ServerMetadata("pretzel", server_version(), EXTENSIONS))


def live(service: HandlerContext, request: Request) -> Answer:
    """The process is alive, as it answers."""
    return json(Live(live=True))


def ready(service: HandlerContext, request: Request) -> Answer:
    """True if the wanted models are loaded."""
    state = service.ready()
    soon = (("Retry-After", "1"),) if state.loading or state.compiling else ()
    return json(state, 200 if state.ready else 503, soon)


def openapi(service: HandlerContext, request: Request) -> Answer:
    """The document of all routes; it takes a while, so the first who asks has a thread make it."""
    made = _documents.get(service)
    if made is None:
        made = _documents[service] = asyncio.ensure_future(_document(service))
    return made.result() if made.done() else asyncio.shield(made)


async def _document(service: HandlerContext) -> Response:
    return Response(await asyncio.to_thread(document, service.routes, server_version()))


def document(routes: Sequence[HttpRoute], version: str) -> bytes:
    """The document as JSON."""
    listed = [route for route in routes if not route.hidden]
    kinds = [kind for route in listed for kind in (route.body, route.answer) if kind is not None]
    _, components = msgspec.json.schema_components([*kinds, Error], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    content = {
        "openapi": "3.1.0",
        "info": {"title": "Pretzel", "version": version, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": components},
    }
    return msgspec.json.encode(content)


def _operation(route: HttpRoute) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.body is not None:
        content = {JSON: {"schema": _of(route.body)}}
        operation["requestBody"] = {"required": route.body_required, "content": content}
    return operation


def _parameters(route: HttpRoute) -> list[dict[str, Any]]:
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    placed = [("query", one) for one in route.query] + [("header", one) for one in route.headers]
    return named + [
        {"name": one.name, "in": location, "description": one.summary, "schema": _of(one.kind)}
        for location, one in placed
    ]


def _responses(route: HttpRoute) -> dict[str, Any]:
    responses = {"200": _response("what was asked for", route.content_type, _of(route.answer))}
    errors = (*_ALWAYS, *route.statuses, *(_BODIED if route.body is not None else ()))
    for status in sorted(set(errors)):
        responses[str(status)] = _response(HTTPStatus(status).phrase, JSON, _of(Error))
    return responses


def _response(text: str, content_type: str, schema: object) -> dict[str, Any]:
    return {"description": text, "content": {content_type: {"schema": schema}}}


def _of(kind: object) -> Any:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    return schema
