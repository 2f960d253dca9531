"""Health and metadata of the server."""

from __future__ import annotations

from functools import cache

from runtime.http.codec.bodies import Live, ServerMetadata
from runtime.http.codec.typed_json import json
from runtime.http.openapi import document
from runtime.http.routes import HandlerContext, Route
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.settings import server_version

EXTENSIONS = ["model_repository", "binary_tensor_data", "statistics", "model_configuration"]


@cache
def _document(routes: tuple[Route, ...]) -> bytes:
    return document(routes, server_version())


def metadata(service: HandlerContext, request: Request) -> Answer:
    """Name, version, extensions."""
    return json(ServerMetadata("pretzel", server_version(), EXTENSIONS))


def live(service: HandlerContext, request: Request) -> Answer:
    """The process is alive, as it answers."""
    return json(Live(live=True))


def ready(service: HandlerContext, request: Request) -> Answer:
    """Whether the wanted models are loaded."""
    state = service.ready()
    return json(state, 200 if state.ready else 503)


def openapi(service: HandlerContext, request: Request) -> Answer:
    """The document of all routes."""
    return Response(_document(service.routes))
