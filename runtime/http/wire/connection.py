"""One connection: parses requests and writes responses, in order and within limits.

httptools parses the stream. A response that is ready is written at once; while one is awaited,
later requests of the connection are queued. Clients that send too much, too slowly, or do not read,
get an error response if possible, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable
from time import perf_counter
from typing import Any, cast

import httptools

from runtime.http.wire import problems
from runtime.http.wire.body_reading import FEW_BYTES, crumbled, drop, place_for, too_large
from runtime.http.wire.headers import Spelling, crowded, fault, misframed, repeated, spelling
from runtime.http.wire.hpack import MOST_FIELDS
from runtime.http.wire.http2 import PREFACE
from runtime.http.wire.interfaces import App, Listener
from runtime.http.wire.loop_fairness import TURN_SECONDS
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import names_of

#: How a handshake of TLS begins.
_TLS_RECORD = b"\x16\x03"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

#: States of a connection; each has a time limit of its own.
IDLE, HEADERS, BODY, CLOSING = "idle", "headers", "body", "closing"


class _StopParsing(Exception):
    """Raised from within the parser, to leave it."""


class Connection(asyncio.BufferedProtocol):
    """One client. All of it runs on the event loop's thread.

    Large bodies are read into their place in memory, past the parser; those of requests that
    will be refused are not read at all.
    """

    __slots__ = (
        *("_app", "_asked", "_at", "_began", "_body", "_busy", "_certified", "_chunks", "_close"),
        *("_data", "_ended", "_fed", "_fields", "_full", "_headers", "_held", "_kept", "_late"),
        *("_length", "_line", "_loop", "_mute", "_now", "_out", "_parser", "_part", "_paused"),
        *("_peer", "_place", "_refusal", "_server", "_since", "_size", "_socket", "_spelling"),
        *("_started", "_state", "_target", "_task", "_tls", "_transport", "_waited", "_whole"),
        *("_worked", "on_body", "on_header", "on_url"),
    )

    def __init__(self, server: Listener, app: App) -> None:
        self._server, self._app, self._loop = server, app, server.loop
        self._transport: Any = None
        self._socket = -1  # its number, once it is needed
        self._now = perf_counter()  # when bytes were read last
        self._since = server.lag.since(self._now, self._loop)  # when they may have come
        self._waited = 0.0  # how long the current request was unread
        self._late = False  # that was too long
        self._state, self._started = IDLE, self._now
        self._peer, self._tls, self._certified = "", False, names_of(None)
        # The parser appends to these containers directly, without a Python function for each part.
        self._target: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}  # headers, or trailers, which are ignored
        self._body: list[bytes] = []
        self.on_url, self.on_body = self._target.append, self._body.append
        self.on_header = self._fields.__setitem__
        self._parser = httptools.HttpRequestParser(self)
        self._headers, self._spelling = self._fields, _NO_HEADERS  # of the current request
        self._size = 0  # bytes of the body so far
        self._length = 0  # bytes of a body that the parser does not see; 0 for all others
        self._chunks = 0  # small ones of the body so far
        self._worked = 0.0  # seconds of work on full reads since others had their turn
        self._place: memoryview | None = None  # of such a body, which is not joined of pieces
        # The bytes that are being parsed, and where in them the current request begins, or -1; they
        # begin with the part of its headers that came before.
        self._data, self._part, self._at = b"", b"", 0
        self._kept = 0  # bytes of headers since the last bytes of anything else
        self._fed = 0  # bytes that were read last
        self._full = False  # they filled the memory that was there for them
        self._began = False  # whether a request or a body began in them
        self._asked = False  # a request has begun on this connection
        self._held = False  # reading is paused
        self._line: deque[tuple[Request, bool]] = deque()
        self._busy = False  # a response is awaited
        self._close = False  # close after the current response
        self._ended = False  # the client will send no more
        self._mute = False  # all further input is ignored
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
        secured = transport.get_extra_info("ssl_object")
        self._tls, self._certified = secured is not None, names_of(secured)
        if not self._server.admit(self):
            self._refuse(problems.refusal("too many connections", 503, (("Retry-After", "1"),)))
        elif getattr(transport, "plain", False):
            self._refuse(problems.SPEAKS_TLS)
        elif secured is not None and secured.selected_alpn_protocol() == "h2":
            self._mute = True
            self._server.http2(self, self._transport, b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: cancel the current answer and drop queued requests."""
        self._mute = True
        self._line.clear()
        self._server.leave(self)
        if self._task is not None:
            # Later, as a task cancelled before its start would never await its coroutine.
            self._loop.call_soon(self._task.cancel)

    def eof_received(self) -> bool:
        """The client sends no more, but may still read its answers."""
        self._ended = self._mute = True
        return not self._tls and (self._busy or bool(self._line))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: what all connections share, or the place of a large body."""
        if not self._length:
            return self._server.memory
        if self._place is not None:
            return self._place[self._size : self._size + _AT_MOST]
        self._drop(1)  # the last byte says that it is all there
        return self._server.memory[: self._length - self._size]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes of requests."""
        if self._mute:
            return
        if not self._length or self._place is not None:
            before, self._now = self._now, perf_counter()
            if self._server.lag.behind:
                self._note_times(before)
            else:
                self._since = self._now
        out: list[bytes] = []
        self._out, self._fed = out, nbytes
        if self._length:
            self._full = True  # there may be more, of the next request
            self._size += nbytes
            self._end_past_the_parser()
        else:
            memory = self._server.memory
            self._full = nbytes == len(memory)
            self._parse(memory[:nbytes].tobytes())
        self._out = None
        if out:
            self._flush(out)
        if self._close or self._busy or self._ended or self._held or self._line:
            self._settle()
        if self._full:
            self._give_way()

    def _note_times(self, before: float) -> None:
        """Note when bytes may have come, as the loop is behind; the last ones were read before."""
        lag = self._server.lag
        since = lag.since(self._now, self._loop)
        # After a full read in this round, these bytes came with the ones before; on a new
        # connection, before it was accepted, unless the loop waited for them.
        again = self._full and before >= lag.began
        if not again and (self._asked or lag.idle > before):
            self._since = max(since, before)
        if self._length <= _LONG:
            began = max(self._since, before) if self._asked else self._since
            self._waited += self._now - began

    def _give_way(self) -> None:
        """Let others be read, after some time of work on what filled the memory each time."""
        self._worked += perf_counter() - self._now + self._fed * _COPY_SECONDS
        if self._worked > TURN_SECONDS and not (self._mute or self._held):
            self._worked, self._held = 0.0, True
            self._transport.pause_reading()
            self._server.turns.wait(self._loop, self._settle)

    def _parse(self, data: bytes) -> None:
        if self._state is IDLE:
            known = self._server.known.find(data)
            waited = self._now - self._since
            late = waited > 0 and self._app.is_late(waited, None)
            if known is not None and known.size == len(data) and not late:  # it needs no parser
                self._asked, self._started, self._waited = True, self._now, waited
                request = Request(*known[2:], data[len(known.head) :], self._now - waited)
                request.plain, request.peer, request.waited = True, self._peer, waited
                request.certified = self._certified
                self._answer(request, keep=True)
                return
        self._began, pieces = False, len(self._body)
        self._data, self._at = self._part + data if self._part else data, 0
        self._whole = self._state is not BODY  # no bytes of another request come before it
        if not self._whole:
            names = self._spelling  # which say where the next request begins, or do not
            length = names.length if names.encoding is None else None
            self._at = -1 if length is None else int(self._headers[length]) - self._size
        elif len(data) > FEW_BYTES and crowded(self._data):
            self._refuse(problems.HEADER_TOO_LARGE)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._mute = True  # other protocols are not supported
        except httptools.HttpParserError as problem:
            if self._refusal is None and self._state is HEADERS and self._parser.should_upgrade():
                # Read a request that offers another protocol again, as one that offers none.
                head, end, rest = self._data[self._at :].partition(b"\r\n\r\n")
                self._target.clear()
                self._fields.clear()
                self._state, self._part = IDLE, b""
                self._parser = httptools.HttpRequestParser(self)
                self._parse(_UPGRADE.sub(b"", head) + end + rest)
                return
            if self._data.startswith(PREFACE) and not (self._busy or self._line):
                self._state, self._mute = IDLE, True
                self._server.http2(self, self._transport, self._data)
                return
            plain = problems.SPEAKS_PLAIN if self._data.startswith(_TLS_RECORD) else None
            self._refuse(self._refusal or plain or misframed(str(problem)))
        self._part = b""
        if self._state is not IDLE:
            self._part_came(0 if self._began else pieces)
        self._data = b""

    def _part_came(self, before: int) -> None:
        """Check the size of a request that has begun and not ended."""
        settings, body = self._app.settings, self._body
        if self._state is HEADERS and self._at >= 0:
            self._part = self._data[self._at :]
        if len(body) > before:
            if len(body) > before + 16:  # many small chunks take more memory than one
                self._chunks += len(body) - before
                body[before:] = [b"".join(body[before:])]
            if self._place is not None:
                self._put()
            else:
                self._size += sum(map(len, body[before:]))
                if self._late:  # it will be refused, and its body is not looked at
                    body.clear()
            if self._size > settings.max_body or crumbled(self._chunks, self._size):
                self._refuse(too_large(settings, self._size))
            self._kept = 0
        elif not self._began:
            self._kept += self._fed
            if self._kept > settings.max_header or crowded(self._data, end=True):
                self._refuse(problems.HEADER_TOO_LARGE)
        if self._state is BODY:
            self._read_past_the_parser()

    def _read_past_the_parser(self) -> None:
        """Read the rest of a body to its place, or drop it if the request will be refused."""
        length = self._spelling.length
        if (self._place is not None or self._late) and length is not None:
            self._length = int(self._headers[length])
            if self._late and self._length > self._size:
                self._drop()  # most often it is there already
                self._end_past_the_parser()

    def _end_past_the_parser(self) -> None:
        """The end of a request whose body was not parsed, if it is all there."""
        if self._size == self._length:
            self.on_message_complete()
            self._parser = httptools.HttpRequestParser(self)  # the other expects the body

    def _drop(self, but: int = 0) -> None:
        """Drop what has come of a body that is not wanted, but for so many of its last bytes."""
        left = self._length - self._size - but
        if left > 0 and not self._tls:  # what lies in the socket is encrypted
            if self._socket < 0:
                self._socket = self._transport.get_extra_info("socket").fileno()
            self._size += drop(self._socket, left)

    def pause_writing(self) -> None:
        """The client does not read its responses: stop reading from it."""
        self._paused = self._held = True
        self._started = perf_counter()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._paused = False
        self._started = perf_counter()
        self._next()
        self._settle()

    # --- httptools ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._mute:  # input after the last request of a connection is ignored
            raise _StopParsing
        self._state, self._started, self._began, self._kept = HEADERS, self._now, True, 0
        self._waited = self._now - self._since
        self._asked = True
        if self._fields:
            self._fields.clear()

    def on_headers_complete(self) -> None:
        """The end of the headers."""
        fields = self._fields
        parser = self._parser
        if self._at >= 0 and parser.should_upgrade() and parser.get_method() != b"CONNECT":
            raise _StopParsing  # it would take the body for the other protocol
        self._headers = headers = fields.copy()
        fields.clear()  # for trailers
        self._spelling = names = spelling(headers)
        settings = self._app.settings
        if self._fed > settings.max_header or not self._began:
            size = sum(len(name) + len(value) + 4 for name, value in headers.items())
            if sum(map(len, self._target), size) > settings.max_header:
                self._stop(problems.HEADER_TOO_LARGE)
        self._state, self._size, self._chunks, self._began = BODY, 0, 0, True
        length = 0 if names.length is None else int(headers[names.length])
        if length > settings.max_body:
            self._stop(too_large(settings, length))
        self._late = self._waited > 0 and self._will_be_late()
        placed = length > len(self._server.memory) and not self._late and names.encoding is None
        self._place = None
        if placed:
            lower = zip(names.names, headers.values(), strict=True)
            self._place = place_for(length, dict(lower))
        self._check_framing(headers, names)
        if names.expect is not None:
            self._expected(headers[names.expect])

    def _check_framing(self, headers: dict[bytes, bytes], names: Spelling) -> None:
        """Refuse what RFC 9112 tells servers to refuse and the parser does not."""
        if names.repeated or names.host is None or names.encoding is not None:
            refusal = fault(self._parser, headers, names)
            if refusal is not None:
                self._stop(refusal)
        if self._at >= 0:  # the last of two headers with the same name is all that is left of them
            data, start = self._data, self._at
            end = data.find(b"\r\n\r\n", start)
            lines = data.count(b"\n", start, end)
            if lines > MOST_FIELDS:
                self._stop(problems.HEADER_TOO_LARGE)
            if lines > len(headers) and (twice := repeated(data[start:end])):
                self._stop(misframed(f"two headers {twice}"))
            length = 0 if names.length is None else int(headers[names.length])
            self._at = -1 if names.encoding is not None or end < 0 else end + 4 + length

    def on_message_complete(self) -> None:
        """A whole request."""
        body, parser, names = self._body, self._parser, self._spelling
        self._length = 0
        if self._waited > 0 and not self._late:  # the rest of it may have come late
            self._late = self._will_be_late()
        if self._late:
            body.clear()
        whole: bytes | memoryview = body[0] if len(body) == 1 else b""
        if self._place is not None:
            self._put()
            whole, self._place = self._place.toreadonly(), None
        elif len(body) > 1:
            whole = b"".join(body)
            if crumbled(len(body), len(whole)):
                self._stop(too_large(self._app.settings, len(whole)))
        body.clear()
        path, query = self._where()
        request = Request(
            parser.get_method().decode(),
            path,
            query,
            self._headers,
            whole,
            self._now - self._waited,
            names.names,
        )
        request.plain, request.peer, request.waited = names.plain, self._peer, self._waited
        request.late, request.certified = self._late, self._certified
        request.named = None if names.request is None else self._headers[names.request]
        self._target.clear()
        if len(whole) > self._app.settings.max_body:  # it came in chunks
            self._stop(too_large(self._app.settings, len(whole)))
        keep = parser.should_keep_alive() and not parser.should_upgrade()
        self._state, self._mute = IDLE, self._mute or not keep
        alone = self._whole and self._at == len(self._data)
        if keep and names.common and alone and not self._late:
            self._server.known.keep(self._data, request)
        self._answer(request, keep=keep)

    def _will_be_late(self) -> bool:
        """True if the request that has begun to come will be refused."""
        name = self._spelling.deadline
        deadline = None if name is None else self._headers[name]
        return self._app.is_late(self._waited, deadline) and self._parser.get_method() == b"POST"

    def _put(self) -> None:
        """Put what has come of a large body into its place."""
        body, place = self._body, cast("memoryview", self._place)
        for piece in body:
            place[self._size : self._size + len(piece)] = piece
            self._size += len(piece)
        body.clear()

    def _where(self) -> tuple[str, str]:
        """The path and the query of the request that is being read."""
        target = self._target
        url = target[0] if len(target) == 1 else b"".join(target)
        return self._server.paths.get(url) or self._server.path(url)

    # --- answering ---------------------------------------------------------------------------

    def _answer(self, request: Request, *, keep: bool) -> None:
        """Answer a request, after those that came before it."""
        if self._busy or self._paused:
            self._line.append((request, keep))
            return
        if not keep:
            self._close = True
        response = self._app.respond(request)
        if isinstance(response, Response):
            self._send(request, response)
        else:
            self._busy = True
            self._task = self._loop.create_task(self._await(request, response))
            if request.ended is not None:
                self._task.add_done_callback(request.ended)

    async def _await(self, request: Request, coming: Awaitable[Response]) -> None:
        response = await coming
        self._busy, self._task = False, None
        if not self._transport.is_closing():
            self._send(request, response)
            self._next()
            self._settle()

    def _next(self) -> None:
        """Answer queued requests until one has to be awaited."""
        while self._line and not (self._busy or self._paused or self._close):
            request, keep = self._line.popleft()
            self._answer(request, keep=keep)
        if self._refusal is not None:
            self._send_refusal()

    def _send(self, request: Request, response: Response) -> None:
        if self._app.leaving and not self._line:
            self._close = True  # the last one
        body = b"" if request.method == "HEAD" else response.body
        out, head = self._out, self._server.heads.head(response, close=self._close)
        if request.named is not None or response.status >= 400 or self._app.names:
            head = b"%bx-request-id: %b\r\n\r\n" % (head[:-2], request.id.encode())
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
        for observer in self._app.observers:
            observer(request, response, perf_counter() - request.started)

    def _flush(self, out: list[bytes]) -> None:
        """Write answers that were collected to be sent together."""
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))
        out.clear()

    def _write(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _settle(self) -> None:
        """After any event: close a finished connection, pause or resume reading."""
        if self._transport.is_closing():
            return
        if not self._busy and (self._close or (self._ended and not self._line)):
            self._linger()
        elif len(self._line) > _MOST_PIPELINED:
            self._held = True
            self._transport.pause_reading()
        elif self._held and not (self._paused or self._mute):
            self._held = False
            self._transport.resume_reading()

    # --- refusing ----------------------------------------------------------------------------

    def _expected(self, what: bytes) -> None:
        """Handle `Expect`: the client waits for "100 Continue" before it sends the body."""
        if what.lower() != b"100-continue":
            self._stop(problems.refusal("nothing but 100-continue can be expected", 417))
        if not self._busy and not self._line:
            self._flush(self._out or [])  # answers to earlier requests go first
            self._write(_CONTINUE)

    def _stop(self, refusal: Response) -> None:
        self._refusal = refusal
        raise _StopParsing

    def _refuse(self, refusal: Response) -> None:
        """Answer a request that cannot be read to its end, after the requests before it."""
        if self._mute:
            return
        self._mute, self._refusal = True, refusal
        self._send_refusal()

    def _send_refusal(self) -> None:
        if self._busy or self._paused or self._line or self._close or self._refusal is None:
            return
        request = Request("-", *self._where(), {}, b"", perf_counter())
        request.peer = self._peer
        self._close = True
        self._send(request, self._refusal)
        if self._out is None:
            self._settle()

    def _linger(self) -> None:
        """End the connection from our side; the client gets time to read the last response.

        Closing at once would discard what it has not read, if it is still sending.
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
        elif self._busy and self._ended and self._parser.get_http_version() != "1.0":
            # A client that sends no more may have gone: then this write fails, which cancels.
            self._write(_CONTINUE)
        elif not self._busy and since > self._patience(settings):
            if self._state is IDLE:
                self._end()
            else:
                what = "headers" if self._state is HEADERS else "body"
                self._refuse(problems.refusal(f"the {what} took too long", 408))

    def _patience(self, settings: ServerSettings) -> float:
        """The time limit of the connection's state."""
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
        if self._tls and self._state is CLOSING and not self._transport.get_write_buffer_size():
            self._transport.abort()  # it would wait until the client says that it ends, too
        if self._busy or self._line or self._state not in {IDLE, HEADERS}:
            return
        usual = self._asked and self._state is IDLE
        patience = _LAST_WORDS_SECONDS if usual else _FIRST_WORDS_SECONDS
        if perf_counter() - self._started > patience:
            self._end()

    def _end(self) -> None:
        """Close a connection that nothing is on its way on, whether the client has read all."""
        self._state, self._started, self._mute = CLOSING, perf_counter(), True
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


#: Requests that may wait on a connection for the one before them.
_MOST_PIPELINED = 64
#: Longer bodies take a time to be sent, which does not count as one of waiting.
_LONG = 1 << 20
#: Most bytes of a body that are read at once, and what the system takes to copy one, about.
_AT_MOST, _COPY_SECONDS = 128 << 10, 8e-9
_LINGER_SECONDS = 2.0
_NO_HEADERS = spelling(())
_UPGRADE = re.compile(rb"(?i)\r\nupgrade[ \t]*:[^\r\n]*")
#: When the server ends, a connection that was quiet for so long is closed, and a silent new one.
_LAST_WORDS_SECONDS, _FIRST_WORDS_SECONDS = 0.2, 1.0
#: Largest size and number of answers that are written together.
_TOGETHER, _MOST_TOGETHER = 16 << 10, 16
