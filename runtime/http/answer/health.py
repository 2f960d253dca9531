"""Health and metadata of the server."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from runtime.http.answer.openapi import document
from runtime.http.codec.bodies import Live, ServerMetadata
from runtime.http.codec.typed_json import json
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.settings import server_version

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
