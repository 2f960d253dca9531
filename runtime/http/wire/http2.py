"""One connection of HTTP/2: what the client sends, and limits of it.

    preface, SETTINGS, then of each request: HEADERS (CONTINUATION...) DATA... in any mixture

A client may ask for anything in a frame of nine bytes. So streams are limited in number, bodies by
windows, waits by time, and frames that lead to no answer by a number a second. Who goes beyond
these gets a GOAWAY that says why.
"""

from __future__ import annotations

import asyncio
import struct
from time import perf_counter
from typing import cast

from runtime.http.wire.hpack import HpackError
from runtime.http.wire.http2_carrier import (
    CONNECTION_WINDOW,
    FRAME_BYTES,
    LARGEST_WINDOW,
    LAST_WORDS_SECONDS,
    MOST_IDLE_FRAMES,
    NUMBER,
    STREAM_WINDOW,
    STREAMS,
    USUAL_WINDOW,
    Broken,
    Carrier,
    Fault,
    FrameFlag,
    FrameKind,
    Http2Stream,
    frame,
)
from runtime.http.wire.http2_heads import HeaderBlocks, Malformed, RequestHead
from runtime.http.wire.http2_streams import GrpcStream, PlainStream
from runtime.http.wire.interfaces import App, Listener
from runtime.http.wire.loop_fairness import AT_ONCE, WARY_SECONDS
from runtime.http.wire.tls import names_of

#: The first bytes of a client of HTTP/2.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_LINGER_SECONDS = 2.0

frame_at = struct.Struct(">IBI").unpack_from  # length and kind are the first four bytes
SETTING = struct.Struct(">HI")
_ENABLE_PUSH, _MAX_STREAMS, INITIAL_WINDOW, _MAX_FRAME, _MAX_HEADERS = range(2, 7)
_SIZES = {
    FrameKind.PRIORITY: 5,
    FrameKind.RST_STREAM: 4,
    FrameKind.PING: 8,
    FrameKind.WINDOW_UPDATE: 4,
}
_OF_STREAMS = {
    FrameKind.PRIORITY,
    FrameKind.RST_STREAM,
    FrameKind.PUSH_PROMISE,
    FrameKind.CONTINUATION,
}
#: The weight of a frame of settings, and the frames that sent data leads to.
_SETTINGS_WEIGHT, _ALLOWED = 10, {FrameKind.WINDOW_UPDATE, FrameKind.PING}
_OF_CONNECTION = {FrameKind.SETTINGS, FrameKind.PING, FrameKind.GOAWAY}


class Http2Connection(Carrier, asyncio.BufferedProtocol):
    """One client. All of it runs on the event loop's thread.

    It takes the place of a `Connection` whose client has begun with the preface, or has agreed on
    "h2" while TLS was set up.
    """

    __slots__ = (
        *("_block", "_blocks", "_greeted", "_heads_since", "_more", "_pinged", "_rest"),
        *("_rest_since", "_settled", "_unread", "_widened"),
    )

    def __init__(self, server: Listener, app: App) -> None:
        super().__init__(server, app)
        self._unread = app.settings.max_body  # bytes of answers that the client may leave unread
        self._more = False  # whole frames wait for their turn
        self._rest, self._rest_since = b"", self.now  # the beginning of a frame, or of the preface
        self._greeted = self._settled = False  # the preface has come; and the SETTINGS
        self._widened = False  # windows have changed for which streams may wait
        self._blocks = HeaderBlocks(app.settings.max_header, server.path)
        #: A block of headers that goes on: its stream, its flags and its bytes so far.
        self._block: tuple[int, int, bytearray] | None = None
        self._heads_since = 0.0  # when it began
        self._pinged = 0.0  # when it was asked whether it is there

    # --- asyncio -----------------------------------------------------------------------------

    def begin(self, transport: asyncio.BaseTransport, data: bytes) -> None:
        """Go on with a connection of which `data` has been read."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.certified = names_of(transport.get_extra_info("ssl_object"))
        limits = (
            (_MAX_STREAMS, STREAMS),
            (INITIAL_WINDOW, STREAM_WINDOW),
            (_MAX_HEADERS, self.app.settings.max_header),
        )
        self.write(
            frame(FrameKind.SETTINGS, 0, 0, b"".join(SETTING.pack(*each) for each in limits))
        )
        self.open_window(0, CONNECTION_WINDOW - USUAL_WINDOW)
        self._rest = data
        if self.peer and self.peer in self._server.turns.wary:
            self._transport.pause_reading()
            self.loop.call_later(WARY_SECONDS, self._let_others)
        elif self._server.turns.is_over(self.loop, self.now):
            self._let_others()
        else:
            self._came(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: cancel what it waits for."""
        self._mute = True
        for stream in tuple(self._streams.values()):
            self.leave(stream)
        self._server.leave(self)

    def eof_received(self) -> bool:
        """The client sends no more; it may still read its answers."""
        self._leaving = True
        for stream in tuple(self._streams.values()):
            if not stream.ended or (stream.waiting and not self._paused):  # for what never comes
                self.leave(stream)
            else:
                stream.drain()
        self.flush()
        return bool(self._streams)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._server.memory

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes of frames."""
        if self._mute:
            return
        before, self.now = self.now, perf_counter()
        lag, self.waited = self._server.lag, 0.0
        if lag.behind:
            self.waited = self.now - max(lag.since(self.now, self.loop), before)
        data = self._server.memory[:nbytes].tobytes()
        if self._server.turns.is_over(self.loop, self.now):
            self._rest += data
            self._let_others()
        else:
            self._came(data)

    def _came(self, data: bytes) -> None:
        self._pinged, self._more = 0.0, False
        if self._rest:
            data = self._rest + data
        else:
            self._rest_since = self.now
        try:
            self._rest = data[self._frames(data) :]
        except Broken as problem:
            self.end(problem.error, str(problem))
        except HpackError as problem:
            self.end(Fault.COMPRESSION, str(problem))
        if self._widened:
            self._widened = False
            self.pump()
        self.done()
        if self._more and not self._transport.is_closing():
            self._let_others()

    def _let_others(self) -> None:
        """Read no more until others have had their turn."""
        self._transport.pause_reading()
        self._server.turns.wait(self.loop, self._go_on)

    def _go_on(self) -> None:
        """Handle more of what has come, now that others have had their turn."""
        if not self._mute:
            self._came(b"")
        if not (self._more or self._paused or self._transport.is_closing()):
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The client does not read its responses: stop reading from it."""
        self._paused, self._since = True, perf_counter()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._paused, self._since = False, perf_counter()
        if not self._closing:
            self._transport.resume_reading()
            self.pump()
            self.flush()

    # --- frames ------------------------------------------------------------------------------

    def _frames(self, data: bytes) -> int:
        """Handle the whole frames in `data`; return where the rest begins."""
        at, end, left = 0, len(data), AT_ONCE
        if not self._greeted:
            if data[: len(PREFACE)] != PREFACE[:end]:
                raise Broken(Fault.PROTOCOL, "this is not how HTTP/2 begins")
            if end < len(PREFACE):
                return 0
            self._greeted, at = True, len(PREFACE)
        while end - at >= 9 and not self._mute:
            if not left:
                self._more = True
                return at
            left -= 1
            length, flags, number = frame_at(data, at)
            kind, length = length & 0xFF, length >> 8
            if length > FRAME_BYTES:
                raise Broken(Fault.FRAME_SIZE, "a frame is too large")
            start, at = at + 9, at + 9 + length
            if at > end:
                return start - 9
            number &= LARGEST_WINDOW
            self._rest_since = self.now
            if kind == FrameKind.DATA and self._block is None and self._settled:
                self._data(flags, number, data[start:at])
            elif kind == FrameKind.HEADERS and self._block is None and self._settled:
                self._headers(flags, number, data[start:at])
            else:
                self._other(kind, flags, number, data[start:at])
        return end if self._mute else at

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        if flags & (FrameFlag.PADDED | FrameFlag.PRIORITIZED):
            payload = unpadded(flags, payload)
            if flags & FrameFlag.PRIORITIZED:
                if len(payload) < 5:
                    raise Broken(Fault.FRAME_SIZE, "a frame is cut off")
                payload = payload[5:]
        if flags & FrameFlag.END_HEADERS:
            self._head(flags, number, payload)
        else:
            self._heads_since = self.now
            self._block = number, flags, bytearray(payload)

    def _continued(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise Broken(Fault.PROTOCOL, "a block of headers goes on that has not begun")
        _, first, block = self._block
        block += payload
        self._count_idle_frame()
        if len(block) > self.app.settings.max_header:
            raise Broken(Fault.ENHANCE_YOUR_CALM, "the headers are too large")
        if flags & FrameFlag.END_HEADERS:
            self._block = None
            self._head(first, number, bytes(block))

    def _head(self, flags: int, number: int, block: bytes) -> None:
        """The whole head of a request, or trailers, which mean nothing here."""
        if not number & 1:
            raise Broken(Fault.PROTOCOL, "clients begin streams with odd numbers")
        new, stream = number > self._last, self._streams.get(number)
        self._last = max(self._last, number)
        try:
            head = self._blocks.read(block, trailers=not new)
        except Malformed as problem:
            self._count_idle_frame()
            self.reset(number, Fault.PROTOCOL, str(problem))
            return
        if stream is not None:
            if stream.ended or not flags & FrameFlag.END_STREAM:
                raise Broken(
                    Fault.STREAM_CLOSED if stream.ended else Fault.PROTOCOL, "headers twice"
                )
            self._body_ended(stream)
        elif head is not None and len(self._streams) < STREAMS and self.unsent <= self._unread:
            self._open(number, head, ended=bool(flags & FrameFlag.END_STREAM))
        else:
            self._count_idle_frame()
            if head is not None:
                self.reset(number, Fault.REFUSED_STREAM, "too many at once")

    def _open(self, number: int, head: RequestHead, *, ended: bool) -> None:
        stream = (GrpcStream if head.grpc else PlainStream)(self, number, head)
        self._streams[number] = stream
        stream.ended = ended
        stream.begin()
        if ended:
            stream.end()

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._room -= size
        if self._room < 0:
            raise Broken(Fault.FLOW_CONTROL, "more than the window has room for")
        if self._room < CONNECTION_WINDOW >> 1:
            self.open_window(0, CONNECTION_WINDOW - self._room)
            self._room = CONNECTION_WINDOW
        if flags & FrameFlag.PADDED:
            payload = unpadded(flags, payload)
        stream = self._streams.get(number)
        if stream is None or stream.ended:
            self._data_of_none(number, stream)
            return
        stream.room -= size
        if stream.room < 0:
            self.reset(number, Fault.FLOW_CONTROL, "more than the window has room for")
            return
        if payload:
            self.held += len(payload)
            stream.data(payload)
        elif not flags & FrameFlag.END_STREAM:
            self._count_idle_frame()
        if flags & FrameFlag.END_STREAM:
            self._body_ended(stream)
        elif stream.room < STREAM_WINDOW >> 1:
            self.credit(stream)

    def _data_of_none(self, number: int, stream: Http2Stream | None) -> None:
        """Data of a stream that is answered already, has ended, or has never begun."""
        if not 0 < number <= self._last:
            raise Broken(Fault.PROTOCOL, "data of a stream that has not begun")
        self._count_idle_frame()
        if stream is not None:
            self.reset(number, Fault.STREAM_CLOSED, "data after the end")

    def _body_ended(self, stream: Http2Stream) -> None:
        stream.ended = True
        if not stream.gone:
            stream.end()
        self.feed()

    def _check(self, kind: int, number: int, payload: bytes) -> None:
        """Refuse a frame that has no place here."""
        if self._block is not None and kind != FrameKind.CONTINUATION:
            raise Broken(Fault.PROTOCOL, "a block of headers is not ended")
        if not self._settled and kind != FrameKind.SETTINGS:
            raise Broken(Fault.PROTOCOL, "the first frame is not SETTINGS")
        if _SIZES.get(kind, len(payload)) != len(payload):
            raise Broken(Fault.FRAME_SIZE, "a frame of this kind has another size")
        if kind in (_OF_CONNECTION if number else _OF_STREAMS):
            raise Broken(Fault.PROTOCOL, "a frame of this kind is not for this stream")
        if number > self._last and kind in {FrameKind.RST_STREAM, FrameKind.WINDOW_UPDATE}:
            raise Broken(Fault.PROTOCOL, "a frame of a stream that has not begun")
        if kind == FrameKind.PUSH_PROMISE:
            raise Broken(Fault.PROTOCOL, "clients push nothing")

    def _other(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """All frames that are no requests."""
        self._check(kind, number, payload)
        if kind == FrameKind.CONTINUATION:
            self._continued(flags, number, payload)
            return
        if kind in _ALLOWED and self._allowance:
            self._allowance -= 1
        else:
            self._count_idle_frame(_SETTINGS_WEIGHT if kind == FrameKind.SETTINGS else 1)
        if kind == FrameKind.WINDOW_UPDATE:
            self._widen(number, NUMBER.unpack(payload)[0] & LARGEST_WINDOW)
        elif kind == FrameKind.RST_STREAM and number in self._streams:
            self.leave(self._streams[number])
        elif kind == FrameKind.PING and not flags & FrameFlag.ACK:
            self.write(frame(FrameKind.PING, FrameFlag.ACK, 0, payload))
        elif kind == FrameKind.SETTINGS:
            self._configure(flags, payload)
        elif kind == FrameKind.GOAWAY:
            self._leaving = True

    def _count_idle_frame(self, weight: int = 1) -> None:
        self._idle_frames += weight
        if self._idle_frames > MOST_IDLE_FRAMES:
            self._server.turns.wary.add(self.peer)
            raise Broken(Fault.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def _configure(self, flags: int, payload: bytes) -> None:
        if len(payload) % SETTING.size or (flags & FrameFlag.ACK and payload):
            raise Broken(Fault.FRAME_SIZE, "settings are cut off")
        if flags & FrameFlag.ACK:
            return
        former = self.initial_window
        for name, value in SETTING.iter_unpack(payload):
            if name == INITIAL_WINDOW:
                if value > LARGEST_WINDOW:
                    raise Broken(Fault.FLOW_CONTROL, "a window is too large")
                self.initial_window = value
            elif (name == _MAX_FRAME and not FRAME_BYTES <= value < 1 << 24) or (
                name == _ENABLE_PUSH and value > 1
            ):
                raise Broken(Fault.PROTOCOL, "a setting has a value that it may not have")
        for stream in self._streams.values():
            stream.window += self.initial_window - former
        self._settled = self._widened = True
        self.write(frame(FrameKind.SETTINGS, FrameFlag.ACK, 0))

    def _widen(self, number: int, more: int) -> None:
        """A window of the client has more room."""
        stream, error = self._streams.get(number), Fault.FLOW_CONTROL if more else Fault.PROTOCOL
        why = "a window grows by 0, or beyond its limit"
        if stream is not None:
            stream.window += more
            if not more or stream.window > LARGEST_WINDOW:
                self.reset(number, error, why)
        elif not number:
            self.window += more
            if not more or self.window > LARGEST_WINDOW:
                raise Broken(error, why)
        self._widened = True

    # --- time --------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Called about once a second with `perf_counter`'s time: end what takes too long."""
        settings, idle = self.app.settings, now - self._since
        self._idle_frames >>= 1
        if self._closing or self._paused:
            if idle > (settings.write_seconds if self._paused else _LINGER_SECONDS):
                self._transport.abort()
            return
        if self._block is not None and now - self._heads_since > settings.header_seconds:
            self.end(Fault.ENHANCE_YOUR_CALM, "the headers took too long")
        elif self._rest and now - self._rest_since > settings.body_seconds:
            self.end(Fault.ENHANCE_YOUR_CALM, "a frame took too long")
        elif not self._streams and idle > settings.idle_seconds:
            self.end(Fault.NONE, "")
        elif self._streams and now - self.now > settings.idle_seconds:
            # One that waits and says nothing may have gone.
            if not self._pinged:
                self._pinged = now
                self.write(frame(FrameKind.PING, 0, 0, bytes(8)))
            elif now - self._pinged > settings.write_seconds:
                self._transport.abort()
        for stream in tuple(self._streams.values()):
            stream.check(now)
        self.done()

    def drain(self) -> None:
        """The server ends: close when nothing is on its way."""
        if not self._leaving:
            self._since = perf_counter()
            self.go_away()
        elif perf_counter() - self._since > LAST_WORDS_SECONDS:
            for stream in tuple(self._streams.values()):
                stream.drain()
        self.done()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


def unpadded(flags: int, payload: bytes) -> bytes:
    """The content of a frame without its padding."""
    if not flags & FrameFlag.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Broken(Fault.PROTOCOL, "the padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
