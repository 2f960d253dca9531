"""One connection: bytes to requests, responses to bytes, in order, within limits.

httptools cuts the stream into requests. A response that is there at once is written at once;
while one is awaited, later requests of the connection wait in line. Clients that send too much, too
slowly, or do not read, are told so where that is possible, and lose the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from http import HTTPMethod, HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

from runtime.http import problems
from runtime.http.headers import spelling
from runtime.http.interfaces import Observer
from runtime.http.messages import JSON, Answer, Request, Response
from runtime.http.settings import ServerSettings

if TYPE_CHECKING:
    from runtime.http.server import Server

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_METHODS = {method.encode(): method.value for method in HTTPMethod}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

#: What a connection is doing; each has a time limit of its own.
IDLE, HEADERS, BODY, CLOSING = "idle", "headers", "body", "closing"


class App(Protocol):
    """What answers requests: a response, or what will be one. It raises nothing."""

    settings: ServerSettings
    observers: list[Observer]

    def respond(self, request: Request) -> Answer:
        """Answer a request."""
        ...

    def observed(self, request: Request, response: Response, seconds: float) -> None:
        """The response was handed to the system."""
        ...


class _Refused(Exception):
    """Raised from within the parser, to leave it."""


class Connection(asyncio.Protocol):
    """One client. All of it runs on the event loop's thread."""

    __slots__ = (
        *("_app", "_began", "_body", "_busy", "_close", "_ended", "_fed", "_fields", "_headers"),
        *("_held", "_kept", "_line", "_loop", "_mute", "_now", "_out", "_parser", "_paused"),
        *("_asked", "_peer", "_refusal", "_server", "_size", "_spelling", "_started", "_state"),
        *("_target", "_task", "_transport", "on_body", "on_header", "on_url"),
    )

    def __init__(self, server: Server, app: App) -> None:
        self._server, self._app = server, app
        self._loop = server.loop
        self._transport: Any = None
        self._now = perf_counter()  # when the bytes arrived that came last
        self._state, self._started = IDLE, self._now
        self._peer = ""
        # The parser hands its pieces to containers, without a step of Python for each.
        self._target: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}  # headers, or the trailers nobody reads
        self._body: list[bytes] = []
        self.on_url, self.on_body = self._target.append, self._body.append
        self.on_header = self._fields.__setitem__
        self._parser = httptools.HttpRequestParser(self)
        self._headers, self._spelling = self._fields, _NO_HEADERS  # of the request that comes
        self._size = 0  # bytes of a body that have come so far
        self._kept = 0  # bytes that came since there was a piece of anything but headers
        self._fed = 0  # bytes that are being read now
        self._began = False  # whether a request, or the body of one, has begun in them
        self._asked = False  # at least the beginning of a request has come
        self._held = False  # we read no more, for now
        self._line: deque[tuple[Request, bool]] = deque()
        self._busy = False  # a response is awaited
        self._close = False  # after the response that is sent or awaited
        self._ended = False  # the client will send no more
        self._mute = False  # nothing that arrives counts any more
        self._paused = False  # the client does not read
        self._task: asyncio.Future[None] | None = None
        self._out: list[bytes] | None = None
        self._refusal: Response | None = None

    # --- asyncio -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if not self._server.admit(self):
            self._refuse(problems.refusal("too many connections", 503, (("Retry-After", "1"),)))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; nobody wants what is on its way."""
        self._mute = True
        self._line.clear()
        self._server.leave(self)
        if self._task is not None:  # not before it has begun, or what it awaits never would be
            self._loop.call_soon(self._task.cancel)

    def eof_received(self) -> bool:
        """The client says no more, but may still read what it asked for."""
        self._ended = self._mute = True
        return self._busy or bool(self._line)

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self._mute:
            return
        self._now = perf_counter()
        out: list[bytes] = []
        self._out = out
        self._began, self._fed, pieces = False, len(data), len(self._body)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._mute = True  # we speak nothing else
        except httptools.HttpParserError:
            self._refuse(self._refusal or problems.refusal("this is no HTTP request", 400))
        if self._state is not IDLE:
            self._part_came(0 if self._began else pieces)
        self._out = None
        if out:
            self._flush(out)
        if self._close or self._busy or self._ended or self._held or self._line:
            self._settle()

    def _part_came(self, before: int) -> None:
        """A request has begun and not ended: see that it grows neither too large nor too long."""
        settings, body = self._app.settings, self._body
        if len(body) > before:
            if len(body) > before + 16:  # many small chunks take more memory than one
                body[before:] = [b"".join(body[before:])]
            self._size += sum(map(len, body[before:]))
            if self._size > settings.max_body:
                self._refuse(_too_large(settings))
            self._kept = 0
        elif not self._began:
            self._kept += self._fed
            if self._kept > settings.max_header:
                self._refuse(_header_too_large())

    def pause_writing(self) -> None:
        """The client does not read what it is sent: take no more from it."""
        self._paused = self._held = True
        self._started = perf_counter()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self._started = perf_counter()
        self._next()
        self._settle()

    # --- httptools ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._mute:  # what comes after the last request of a connection is no request
            raise _Refused
        self._state, self._started, self._began, self._kept = HEADERS, self._now, True, 0
        self._asked = True
        if self._fields:
            self._fields.clear()

    def on_headers_complete(self) -> None:
        """The end of the headers."""
        fields = self._fields
        self._headers = headers = fields.copy()
        fields.clear()  # trailers would come next
        self._spelling = known = spelling(headers)
        settings = self._app.settings
        if self._fed > settings.max_header or not self._began:
            size = sum(map(len, self._target))
            size += sum(len(name) + len(value) + 4 for name, value in headers.items())
            if size > settings.max_header:
                self._stop(_header_too_large())
        self._state, self._size, self._began = BODY, 0, True
        if known.length is not None and int(headers[known.length]) > settings.max_body:
            self._stop(_too_large(settings))
        if known.expect is not None:
            self._expected(headers[known.expect])

    def on_message_complete(self) -> None:
        """A whole request."""
        body, parser, known = self._body, self._parser, self._spelling
        whole = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        path, query = self._where()
        request = Request(
            _METHODS.get(parser.get_method(), ""),
            path,
            query,
            self._headers,
            whole,
            self._now,
            known.names,
        )
        request.plain, request.peer = known.plain, self._peer
        self._target.clear()
        if len(whole) > self._app.settings.max_body:  # it came in chunks
            self._stop(_too_large(self._app.settings))
        keep = parser.should_keep_alive() and not parser.should_upgrade()
        self._state = IDLE
        if not keep:
            self._mute = True
        if self._busy or self._paused:
            self._line.append((request, keep))
        else:
            self._answer(request, keep=keep)

    def _where(self) -> tuple[str, str]:
        """The path and the query of the request that is being read."""
        target = self._target
        url = target[0] if len(target) == 1 else b"".join(target)
        return self._server.paths.get(url) or self._server.path(url)

    # --- answering ---------------------------------------------------------------------------

    def _answer(self, request: Request, *, keep: bool) -> None:
        if not keep:
            self._close = True
        made = self._app.respond(request)
        if isinstance(made, Response):
            self._send(request, made)
        else:
            self._busy = True
            self._task = self._loop.create_task(self._await(request, made))

    async def _await(self, request: Request, coming: Awaitable[Response]) -> None:
        response = await coming
        self._busy, self._task = False, None
        if not self._transport.is_closing():
            self._send(request, response)
            self._next()
            self._settle()

    def _next(self) -> None:
        """Answer what waits in line, as far as that can be done now."""
        while self._line and not (self._busy or self._paused or self._close):
            request, keep = self._line.popleft()
            self._answer(request, keep=keep)
        if self._refusal is not None:
            self._say_refusal()

    def _send(self, request: Request, response: Response) -> None:
        if self._server.draining and not self._line:
            self._close = True  # the last one
        body = b"" if request.method == "HEAD" else response.body
        out, head = self._out, self._head(response)
        self._started = self._now if out is not None else perf_counter()
        if out is not None and len(body) <= _TOGETHER:
            out.append(head + body)
            if len(out) > _MOST_TOGETHER:
                self._flush(out)
        elif len(body) > _TOGETHER:
            self._flush(out or [])
            self._transport.writelines((head, body))
        else:
            self._write(head + body)
        if self._app.observers:
            self._app.observed(request, response, perf_counter() - request.started)

    def _head(self, response: Response) -> bytes:
        if response.status == 200 and response.content_type is JSON and not response.headers:
            end = b"\r\nconnection: close\r\n\r\n" if self._close else b"\r\n\r\n"
            return b"%b%d%b" % (self._server.usual_head, len(response.body), end)
        lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Other')}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        if response.status != 204:
            lines += [
                f"content-type: {response.content_type}",
                f"content-length: {len(response.body)}",
            ]
        if self._close:
            lines.append("connection: close")
        lines.append(f"date: {self._server.date}")
        return "\r\n".join((*lines, "\r\n")).encode("latin-1")

    def _flush(self, out: list[bytes]) -> None:
        """Write answers that were held back to go together."""
        if out and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    def _write(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _settle(self) -> None:
        """After anything has happened: close what is done, and read only what there is room for."""
        if self._transport.is_closing():
            return
        if not self._busy and (self._close or (self._ended and not self._line)):
            self._linger()
        elif len(self._line) > self._app.settings.max_pipelined:
            self._held = True
            self._transport.pause_reading()
        elif self._held and not (self._paused or self._mute):
            self._held = False
            self._transport.resume_reading()

    # --- refusing ----------------------------------------------------------------------------

    def _expected(self, what: bytes) -> None:
        """The client waits for a word before it sends the body."""
        if what.lower() != b"100-continue":
            self._stop(problems.refusal("nothing but 100-continue can be expected", 417))
        if not self._busy and not self._line:
            out = self._out
            if out:  # answers to earlier requests go first
                self._transport.write(out[0] if len(out) == 1 else b"".join(out))
                out.clear()
            self._write(_CONTINUE)

    def _stop(self, refusal: Response) -> None:
        self._refusal = refusal
        raise _Refused

    def _refuse(self, refusal: Response) -> None:
        """Answer what cannot be read to its end, after what came before it."""
        if self._mute:
            return
        self._mute, self._refusal = True, refusal
        self._say_refusal()

    def _say_refusal(self) -> None:
        if self._busy or self._paused or self._line or self._close or self._refusal is None:
            return
        request = Request("GET", *self._where(), {}, b"", perf_counter())
        self._close = True
        self._send(request, self._refusal)
        if self._out is None:
            self._settle()

    def _linger(self) -> None:
        """End the connection from our side; the client gets time to read our last words.

        Closing at once would throw away what it has not read, where it still sends.
        """
        if self._state is CLOSING:
            return
        self._state, self._started, self._mute = CLOSING, perf_counter(), True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    # --- time --------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Called about once a second with `perf_counter`'s time: end what takes too long."""
        settings, since = self._app.settings, now - self._started
        if self._paused or self._state is CLOSING:
            if since > (settings.write_seconds if self._paused else _LINGER_SECONDS):
                self._transport.abort()
        elif not self._busy and since > self._patience(settings):
            if self._state is IDLE:
                self._end()
            else:
                what = "headers" if self._state is HEADERS else "body"
                self._refuse(problems.refusal(f"the {what} took too long", 408))

    def _patience(self, settings: ServerSettings) -> float:
        """How long the client may take for what it is doing."""
        if self._state is IDLE:
            return settings.idle_seconds
        if self._state is HEADERS:
            return settings.header_seconds
        return settings.body_seconds + self._size / max(1, settings.body_rate)

    def drain(self) -> None:
        """The server ends: close when nothing is on its way.

        A client that asks again and again is told with its next answer; closed at once, its next
        request would be lost. One that has just come has a request to send, or is sending it.
        """
        if self._busy or self._line or self._state not in {IDLE, HEADERS}:
            return
        usual = self._asked and self._state is IDLE
        patience = _LAST_WORDS_SECONDS if usual else _FIRST_WORDS_SECONDS
        if perf_counter() - self._started > patience:
            self._end()

    def _end(self) -> None:
        """Close a connection that nothing is on its way on."""
        self._mute = True
        self._transport.close()

    def abort(self) -> None:
        """Close, whatever is on its way."""
        self._transport.abort()


_LINGER_SECONDS = 2.0
_NO_HEADERS = spelling(())
#: When the server ends, a connection that was quiet for so long is closed.
_LAST_WORDS_SECONDS = 0.2
#: And one that has not said what it wants.
_FIRST_WORDS_SECONDS = 1.0
#: Answers of up to so many bytes, and so many of them, are handed to the system together.
_TOGETHER, _MOST_TOGETHER = 16 << 10, 16


def _too_large(settings: ServerSettings) -> Response:
    return problems.refusal(f"a body may have {settings.max_body} bytes", 413)


def _header_too_large() -> Response:
    return problems.refusal("the headers are too large", 431)
