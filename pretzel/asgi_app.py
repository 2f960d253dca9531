"""All routes inside an application of FastAPI or Starlette, or under any server that speaks ASGI.

    app.mount("/models", pretzel.asgi(runtime))

The limits of a body and of its time, guards, logs and metrics are those of the settings; sockets,
TLS and connections belong to the server around it. It answers on that server's event loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, TypeAlias
from urllib.parse import quote

from flour.core.request_ids import HEADER
from runtime.http.answer.noted import NoteFollower
from runtime.http.routes import HttpRoute
from runtime.http.service import Service
from runtime.http.wire.interfaces import Guard, ModelRepository, Observer
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import HttpError, response
from runtime.http.wire.settings import ServerSettings
from runtime.runtime import Runtime

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


#: The beginning of an address in a page; all texts in pages are escaped.
_ADDRESS = re.compile(rb'\b(?:href|action|data-to)="/')


class _Disconnected(Exception):
    """The client has gone before its request was all there."""


class AsgiApp:
    """Serves a runtime as an application of ASGI, until `close`."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ServerSettings | None = None,
        *,
        repository: ModelRepository | None = None,
        guards: Sequence[Guard] = (),
        observers: Sequence[Observer] = (),
        routes: Sequence[HttpRoute] = (),
    ) -> None:
        """Arguments are those of `Server`."""
        self.settings = settings or ServerSettings()
        more: dict[str, Any] = {"guards": guards, "observers": observers, "routes": routes}
        self.service = Service(runtime, self.settings, repository=repository, **more)
        self._notes = NoteFollower(runtime, self.settings.answers, 0)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request, or the beginning and the end of the server."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            with suppress(_Disconnected):
                await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def close(self) -> None:
        """Finish what handlers do on threads, and flush logs; for an application that mounts it."""
        self.service.leaving = True
        await self.service.finish(self.settings.drain_seconds)
        self._notes.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        request = self._request(scope)
        try:
            request.body = await self._body(request, receive)
            answer = self.service.respond(request)
        except HttpError as problem:
            answer = response(problem)
        made = answer if isinstance(answer, Response) else await _ended(request, answer, receive)
        if scope.get("root_path"):
            made = _mounted(request, made, quote(scope["root_path"]))
        names = ("content-type", made.content_type), ("content-length", str(len(made.body)))
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in (*names[(made.status == 204 and 2) or 0 :], *made.headers)
        ]
        if request.named is not None or made.status >= 400 or self.service.names:
            headers.append((HEADER.encode(), request.id.encode()))
        await send({"type": "http.response.start", "status": made.status, "headers": headers})
        body = b"" if request.method == "HEAD" else made.body
        await send({"type": "http.response.body", "body": body})
        for observer in self.service.observers:
            observer(request, made, perf_counter() - request.started)

    def _request(self, scope: Mapping[str, Any]) -> Request:
        """The request without its body; its path begins behind what mounts the application."""
        path = str(scope.get("raw_path") or quote(scope["path"]).encode(), "latin-1")
        path = path.partition("?")[0].removeprefix(quote(scope.get("root_path", ""))) or "/"
        query, headers = scope["query_string"].decode("latin-1"), dict(scope["headers"])
        if scope.get("root_path") and scope["method"] == "GET":  # addresses in pages are changed
            headers.pop(b"accept-encoding", None)
        request = Request(scope["method"], path, query, headers, b"")
        request.named = headers.get(HEADER.encode(), headers.get(b"traceparent"))
        request.peer = str((scope.get("client") or ("",))[0])
        return request

    async def _body(self, request: Request, receive: Receive) -> bytes:
        """The body, within the limits of the settings."""
        settings, parts, size = self.settings, list[bytes](), 0
        headers = request.headers
        if sum(len(name) + len(value) + 4 for name, value in headers.items()) > settings.max_header:
            raise HttpError("the headers are too large", 431)
        told = headers.get(b"content-length", b"0")
        while True:
            if size > settings.max_body or (told.isdigit() and int(told) > settings.max_body):
                raise HttpError(f"a body may have {settings.max_body} bytes", 413)
            end = request.started + settings.body_seconds + size / max(1, settings.body_rate)
            try:
                message = await asyncio.wait_for(receive(), max(0.001, end - perf_counter()))
            except (TimeoutError, asyncio.TimeoutError):  # two in Python 3.10
                raise HttpError("the body took too long", 408) from None
            if message["type"] == "http.disconnect":
                raise _Disconnected
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size <= settings.max_body and not message.get("more_body", False):
                request.started = perf_counter()
                return b"".join(parts)


def _mounted(request: Request, made: Response, root: str) -> Response:
    """The response with its addresses behind what mounts the application."""
    body, start = bytes(made.body), root.encode()
    if made.content_type.startswith("text/html"):
        body = _ADDRESS.sub(rb"\g<0>" + start.removeprefix(b"/") + b"/", body)
    elif request.path == "/openapi.json" and made.status == 200 and body[:1] == b"{":
        body = b'{"servers":[{"url":"%b"}],%b' % (start, body[1:])
    headers = tuple(
        (name, root + text if name == "Location" else text) for name, text in made.headers
    )
    return Response(body, made.status, made.content_type, headers=headers)


async def _ended(request: Request, answer: Awaitable[Response], receive: Receive) -> Response:
    """The answer, unless the client goes before it is there."""
    answering, going = asyncio.ensure_future(answer), asyncio.ensure_future(receive())
    if request.ended is not None:
        answering.add_done_callback(request.ended)
    going.add_done_callback(lambda _: answering.cancel())
    try:
        return await answering
    except asyncio.CancelledError:
        if going.done():
            raise _Disconnected from None
        raise
    finally:
        going.cancel()
