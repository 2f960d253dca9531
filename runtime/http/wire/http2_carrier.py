"""The sending half of a connection of HTTP/2, and what its streams have in common.

Data goes out as far as the windows of the client and of the system allow; the rest waits in its
stream. What is written in one turn of the event loop is handed over together.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import Any

from flour.core.request_ids import HEADER
from runtime.http.wire import problems
from runtime.http.wire.hpack import encoded
from runtime.http.wire.http2_heads import RequestHead
from runtime.http.wire.interfaces import App, Listener
from runtime.http.wire.messages import GRPC_METHOD, Request, Response
from runtime.http.wire.tls import names_of

log = logging.getLogger("pretzel.http")


class FrameKind:
    """Kinds of frames."""

    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = range(8)
    WINDOW_UPDATE, CONTINUATION = 8, 9


class FrameFlag:
    """Flags of frames, of which some mean something for some kinds only."""

    END_STREAM = ACK = 0x1
    END_HEADERS, PADDED, PRIORITIZED = 0x4, 0x8, 0x20


class Fault:
    """Why a stream or a connection is ended."""

    NONE, PROTOCOL, INTERNAL, FLOW_CONTROL = range(4)
    STREAM_CLOSED, FRAME_SIZE, REFUSED_STREAM, CANCEL, COMPRESSION = range(5, 10)
    ENHANCE_YOUR_CALM = 0xB


#: Streams of a connection at once, and bytes that each may send before they are read.
STREAMS, STREAM_WINDOW = 128, 256 << 10
#: Bytes that all streams of a connection may send before they are read.
CONNECTION_WINDOW = 16 << 20
#: The largest frame, each way; the protocol lets no peer forbid it.
FRAME_BYTES = 16 << 10
LARGEST_WINDOW = (1 << 31) - 1
#: The window of anybody who has said nothing else.
USUAL_WINDOW = (1 << 16) - 1
#: Frames that lead to no answer: pings, settings, streams that are reset. Each second halves their
#: number, and each answer takes one off it.
MOST_IDLE_FRAMES = 200
#: When the server ends: seconds in which requests still come that were sent before the client knew.
LAST_WORDS_SECONDS = 0.2
#: Output is handed over in pieces of about this many bytes.
_TOGETHER = 256 << 10
#: Methods whose requests are refused where they were unread for too long.
_LATE = frozenset(("POST", GRPC_METHOD))

_FRAME = struct.Struct(">IBI").pack  # length and kind are the first four bytes
NUMBER = struct.Struct(">I")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return _FRAME(len(payload) << 8 | kind, flags, stream) + payload


def headers(number: int, block: bytes, *, last: bool) -> bytes:
    """The frames of a block of headers."""
    flags = FrameFlag.END_STREAM if last else 0
    if len(block) <= FRAME_BYTES:
        return (
            _FRAME(len(block) << 8 | FrameKind.HEADERS, flags | FrameFlag.END_HEADERS, number)
            + block
        )
    pieces = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    frames = [frame(FrameKind.HEADERS, flags, number, pieces[0])]
    frames += [frame(FrameKind.CONTINUATION, 0, number, each) for each in pieces[1:-1]]
    return b"".join(
        (*frames, frame(FrameKind.CONTINUATION, FrameFlag.END_HEADERS, number, pieces[-1]))
    )


class Broken(Exception):
    """Raised where a connection cannot go on; it ends with this error."""

    def __init__(self, error: int, why: str) -> None:
        super().__init__(why)
        self.error = error


class Carrier:
    """A connection, as its streams know it."""

    __slots__ = (
        *("_allowance", "_blocked", "_closing", "_idle_frames", "_last", "_leaving", "_mute"),
        *("_out", "_out_size", "_paused", "_room", "_server", "_since", "_starving", "_streams"),
        *("_transport", "app", "certified", "held", "initial_window", "loop", "now", "peer"),
        *("unsent", "waited", "window"),
    )

    def __init__(self, server: Listener, app: App) -> None:
        self._server, self.app, self.loop = server, app, server.loop
        self._transport: Any = None
        self.peer, self.certified = "", names_of(None)
        self.now = self._since = perf_counter()  # when bytes were read last; since when it is idle
        self.waited = 0.0  # how long these were unread
        self._streams: dict[int, Http2Stream] = {}
        self._blocked: dict[Http2Stream, None] = {}  # those that wait for a window
        self._last = 0  # the latest stream of the client
        self.window = self.initial_window = USUAL_WINDOW  # what all, and new streams, may send
        self._room = CONNECTION_WINDOW  # bytes that the client may send now
        self.unsent = 0  # bytes of answers that wait until the client reads
        self.held = 0  # bytes of bodies that are not answered yet
        self._starving = False  # a stream gets no more room until others are answered
        # Frames that led to no answer, and those that open windows for data that was sent.
        self._idle_frames = self._allowance = 0
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._leaving = self._closing = self._mute = self._paused = False

    # --- writing -----------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        """Write this with what else is written in this turn."""
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size > _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Hand what was written to the system."""
        out, self._out, self._out_size = self._out, [], 0
        if out and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def done(self) -> None:
        """Write what something else than bytes of the client has led to."""
        self.flush()
        self.settle()

    def room_of(self, stream: Http2Stream) -> int:
        """The bytes that a stream may send now in a frame."""
        return 0 if self._paused else max(0, min(self.window, stream.window, FRAME_BYTES))

    def charge(self, stream: Http2Stream, size: int) -> None:
        """Note that a stream has sent data."""
        stream.window -= size
        self.window -= size
        self._allowance += 2  # it opens two windows

    def block(self, stream: Http2Stream) -> None:
        """Remember a stream that waits for a window, or for the system."""
        self._blocked[stream] = None

    def pump(self) -> None:
        """Send what waits for windows."""
        for stream in tuple(self._blocked):
            del self._blocked[stream]  # it comes to the end if it waits again
            stream.pump()

    def block_of(self, response: Response) -> bytes:
        """The block of headers of a plain response."""
        return self._server.heads.block(response)

    # --- streams -----------------------------------------------------------------------------

    def credit(self, stream: Http2Stream) -> None:
        """Let a stream send more, if it wants more, and others do not hold too much already."""
        if stream.ended or stream.room > STREAM_WINDOW >> 1 or not stream.hungry:
            return
        if self.held > self.app.settings.max_body:
            first = next(each for each in self._streams.values() if not each.ended)
            if stream is not first:  # which has to end some time
                self._starving = True
                return
        self.open_window(stream.number, STREAM_WINDOW - stream.room)
        stream.room = STREAM_WINDOW

    def open_window(self, number: int, more: int) -> None:
        """Tell the client that it may send more."""
        self.write(frame(FrameKind.WINDOW_UPDATE, 0, number, NUMBER.pack(more)))

    def feed(self) -> None:
        """Let streams send more that had to wait for others."""
        if self._starving:
            self._starving = False
            for stream in tuple(self._streams.values()):
                self.credit(stream)

    def sent(self, stream: Http2Stream) -> None:
        """A stream has sent all that it will."""
        if not stream.ended:  # what the client still sends is not wanted
            self.write(frame(FrameKind.RST_STREAM, 0, stream.number, NUMBER.pack(Fault.NONE)))
        self._since = self.now
        if self._idle_frames:
            self._idle_frames -= 1
        self.leave(stream)
        if self.app.leaving and not self._leaving:
            self.go_away()

    def leave(self, stream: Http2Stream) -> None:
        """Forget a stream, and cancel what it waits for."""
        if self._streams.pop(stream.number, None) is not None:
            self._blocked.pop(stream, None)
            self.held -= stream.size
            stream.cancel()
            self.feed()

    def reset(self, number: int, error: int, why: str) -> None:
        """End a stream with an error."""
        log.debug("%s: stream %d is reset: %s", self.peer, number, why)
        self.write(frame(FrameKind.RST_STREAM, 0, number, NUMBER.pack(error)))
        if number in self._streams:
            self.leave(self._streams[number])

    # --- ending ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Close the connection if nothing is on its way and nothing will come."""
        over = self._leaving and not self._streams and not self._closing
        if over and not (self.app.leaving and perf_counter() - self._since < LAST_WORDS_SECONDS):
            self.end(Fault.NONE, "")

    def go_away(self) -> None:
        """Tell the client to send new requests elsewhere; those that are on their way may come."""
        self._leaving = True
        self.write(frame(FrameKind.GOAWAY, 0, 0, struct.pack(">II", LARGEST_WINDOW, Fault.NONE)))

    def end(self, error: int, why: str) -> None:
        """End the connection; after an error the client gets a moment to read what it was sent."""
        if self._closing or self._transport.is_closing():
            return
        self._closing = self._mute = True
        self._since = perf_counter()
        self.write(
            frame(FrameKind.GOAWAY, 0, 0, struct.pack(">II", self._last, error) + why.encode())
        )
        self.flush()
        for stream in tuple(self._streams.values()):
            self.leave(stream)
        if error != Fault.NONE and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()


class Http2Stream:
    """One stream of a connection: what has come, and what waits to be sent."""

    __slots__ = (
        *("carrier", "ended", "gone", "head", "hungry", "number", "room", "since", "size"),
        *("started", "task", "waiting", "window"),
    )

    def __init__(self, carrier: Carrier, number: int, head: RequestHead) -> None:
        self.carrier, self.number, self.head = carrier, number, head
        self.window, self.room = carrier.initial_window, STREAM_WINDOW
        self.size = 0  # bytes that it holds of what has come
        self.ended = False  # the client has sent all
        self.hungry = True  # more may come
        self.gone = False  # nobody waits for its answer
        #: When it began, and when the client last read something of its answer.
        self.started = self.since = carrier.now
        self.task: asyncio.Future[None] | None = None
        #: Frames that wait: of headers as they are, of data as what they are cut from, each with
        #: True if it is the last.
        self.waiting: deque[tuple[bytes, memoryview | None, bool]] | None = None

    def begin(self) -> None:
        """The head is there."""
        raise NotImplementedError

    def data(self, payload: bytes) -> None:
        """A part of the body."""
        raise NotImplementedError

    def end(self) -> None:
        """The body is all there."""
        raise NotImplementedError

    def answered(self, request: Request, response: Response) -> None:
        """Send a response."""
        raise NotImplementedError

    def refuse(self, what: str, status: int) -> None:
        """Answer without asking."""
        raise NotImplementedError

    def late(self, now: float) -> None:
        """End it if the client takes too long to send."""
        raise NotImplementedError

    # --- asking ------------------------------------------------------------------------------

    def request(self, body: bytes, more: Mapping[bytes, bytes] | None = None) -> Request:
        """A request with this body, and with some headers more, that has come just now."""
        carrier, head = self.carrier, self.head
        fields = head.headers if more is None else {**head.headers, **more}
        started = carrier.now - carrier.waited
        made = Request(head.method, head.path, head.query, fields, body, started)
        made.plain, made.waited = head.plain and more is None, carrier.waited
        made.named = head.named
        made.peer, made.certified = carrier.peer, carrier.certified
        if made.waited > 0:
            made.late = head.method in _LATE and carrier.app.is_late(made.waited, head.deadline)
        return made

    def refusal(self, what: str, status: int) -> tuple[Request, Response]:
        """A request that is not asked, and its answer."""
        return self.request(b""), problems.refusal(what, status)

    def asked(self, request: Request) -> None:
        """Ask a request, and send what it is answered."""
        response = self.carrier.app.respond(request)
        if isinstance(response, Response):
            self.answered(request, response)
            return
        self.task = task = self.carrier.loop.create_task(self._await(request, response))
        if request.ended is not None:
            task.add_done_callback(request.ended)

    async def _await(self, request: Request, coming: Awaitable[Response]) -> None:
        response = await coming
        self.task = None
        if not self.gone:
            self.answered(request, response)
            self.carrier.done()

    def observed(self, request: Request, response: Response) -> None:
        """Tell the observers of an answer that is on its way."""
        app = self.carrier.app
        for observer in app.observers:
            observer(request, response, perf_counter() - request.started)

    def name_of(self, request: Request, response: Response) -> bytes:
        """The header with the id of a request, where its answer has it."""
        if request.named is None and response.status < 400 and not self.carrier.app.names:
            return b""
        return encoded(((HEADER, request.id),))

    def cancel(self) -> None:
        """Nobody waits for an answer any more."""
        for _, data, _ in self.waiting or ():
            self.carrier.unsent -= len(data or b"")
        self.gone, self.waiting = True, None
        if self.task is not None:
            # Later, as a task cancelled before its start would never await its coroutine.
            self.carrier.loop.call_soon(self.task.cancel)

    def drain(self) -> None:
        """End it, if it could go on for ever, as the server ends."""

    def check(self, now: float) -> None:
        """End it if the client takes too long to send or to read."""
        if not self.waiting:
            self.late(now)
        elif now - self.since > self.carrier.app.settings.write_seconds:
            self.carrier.reset(self.number, Fault.CANCEL, "the answer is not read")

    # --- sending -----------------------------------------------------------------------------

    def send(self, ahead: bytes, body: bytes, behind: bytes, *, last: bool) -> None:
        """Send frames, data and frames; `last` if the stream ends with them."""
        carrier, size = self.carrier, len(body)
        if not self.waiting and size <= carrier.room_of(self):
            if size:
                flags = FrameFlag.END_STREAM if last and not behind else 0
                ahead += _FRAME(size << 8 | FrameKind.DATA, flags, self.number) + body
                carrier.charge(self, size)
            carrier.write(ahead + behind)
            if last:
                carrier.sent(self)
            return
        self.since = perf_counter()
        waiting = self.waiting = self.waiting or deque()
        waiting.append((ahead, None, last and not (body or behind)))
        if body:
            carrier.unsent += size
            waiting.append((b"", memoryview(body), last and not behind))
        if behind:
            waiting.append((behind, None, last))
        self.pump()

    def pump(self) -> None:
        """Send what waits, as far as there is room."""
        carrier = self.carrier
        while self.waiting:
            frames, data, last = self.waiting.popleft()
            if data is None:
                carrier.write(frames)
            else:
                size = min(len(data), carrier.room_of(self))
                if size:
                    flags = FrameFlag.END_STREAM if last and size == len(data) else 0
                    carrier.write(_FRAME(size << 8 | FrameKind.DATA, flags, self.number))
                    carrier.write(data[:size])
                    carrier.charge(self, size)
                    carrier.unsent -= size
                    self.since = perf_counter()
                if size < len(data):
                    self.waiting.appendleft((frames, data[size:], last))
                    if not size:
                        carrier.block(self)
                        return
                    continue
            if last:
                carrier.sent(self)
                return
        self.emptied()

    def emptied(self) -> None:
        """Go on: nothing waits any more."""
