"""Connections of a client: a request and its answer in HTTP/1.1, or in gRPC over HTTP/2."""

from __future__ import annotations

import struct
from asyncio import LimitOverrunError, StreamReader, StreamWriter
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from flour.core.http1 import Reply, asked
from runtime.http.wire.hpack import HeaderDecoder, HpackError, encoded
from runtime.http.wire.http2 import INITIAL_WINDOW, PREFACE, SETTING, frame_at, unpadded
from runtime.http.wire.http2_carrier import (
    FRAME_BYTES,
    LARGEST_WINDOW,
    NUMBER,
    USUAL_WINDOW,
    Broken,
    Fault,
    FrameFlag,
    FrameKind,
    frame,
    headers,
)
from runtime.http.wire.http2_streams import MESSAGE
from runtime.http.wire.messages import GRPC

#: Errors of a connection that breaks, or of a server that speaks something else.
BREAKS = (OSError, EOFError, LimitOverrunError, ValueError, struct.error, LookupError, HpackError)
#: Bytes of the head of an answer.
_HEAD_BYTES = 64 << 10
#: Statuses of HTTP for codes of gRPC.
_STATUSES = {1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 409, 10: 409, 11: 400}
_STATUSES |= {12: 501, 14: 503, 16: 401}


class CallRequest(NamedTuple):
    """A request; `repeatable` if the server may answer it twice without harm."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = {}
    repeatable: bool = False


class Unasked(ConnectionError):
    """A connection broke before the server has begun with a request."""


class CallLink:
    """A connection in HTTP/1.1."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, host: str, scheme: str) -> None:
        self.reader, self.writer, self.host, self.scheme = reader, writer, host, scheme
        #: True if another request may be sent.
        self.reusable = True

    def close(self) -> None:
        """Close it at once."""
        self.writer.transport.abort()

    async def ask(self, ask: CallRequest) -> Reply:
        """The answer to a request; one of `BREAKS` where there is none."""
        self.reusable, headers = False, {"host": self.host, **ask.headers}
        asking = asked(self.reader, self.writer, ask.method, ask.path, headers, ask.body)
        reply, self.reusable = await asking
        return reply


class GrpcLink(CallLink):
    """A connection of gRPC, on which one call of one message follows another."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, host: str, scheme: str) -> None:
        super().__init__(reader, writer, host, scheme)
        self._number, self._decoder = -1, HeaderDecoder()
        #: Bytes that the connection, a new call, and this one may send before they are read.
        self._window = self._initial = self._room = USUAL_WINDOW
        self._block, self._ends, self._over, self._leaving = b"", False, False, False
        self._fields: dict[str, str] = {}
        self._body = bytearray()

    async def ask(self, ask: CallRequest) -> Reply:
        """The answer to a call, with the status and the body that HTTP would have."""
        self.reusable = self._over = False
        if self._number < 0:
            wide = SETTING.pack(INITIAL_WINDOW, LARGEST_WINDOW)
            self.writer.write(PREFACE + frame(FrameKind.SETTINGS, 0, 0, wide))
            self._grant(LARGEST_WINDOW - USUAL_WINDOW)
        self._number += 2
        self._room, self._fields, self._body = self._initial, {}, bytearray()
        fields = [(":method", "POST"), (":scheme", self.scheme), (":path", ask.path)]
        fields += [(":authority", self.host), ("te", "trailers"), ("content-type", GRPC)]
        block = encoded((*fields, *ask.headers.items()))
        self.writer.write(headers(self._number, block, last=False))
        left = memoryview(MESSAGE(0, len(ask.body)) + ask.body)
        while not self._over:
            while left and (size := min(len(left), self._room, self._window, FRAME_BYTES)) > 0:
                flags = FrameFlag.END_STREAM if size == len(left) else 0
                self.writer.write(frame(FrameKind.DATA, flags, self._number, bytes(left[:size])))
                left = left[size:]
                self._room -= size
                self._window -= size
            await self.writer.drain()
            head, flags, stream = frame_at(await self.reader.readexactly(9))
            if head >> 8 > FRAME_BYTES:
                raise ValueError("a frame of HTTP/2 is too large")
            payload = await self.reader.readexactly(head >> 8)
            try:
                self._take(head & 0xFF, flags, stream, payload)
            except Broken as problem:
                raise ValueError(str(problem)) from None
        self.reusable = not (left or self._leaving)
        return self._reply()

    def _grant(self, size: int) -> None:
        self.writer.write(frame(FrameKind.WINDOW_UPDATE, 0, 0, NUMBER.pack(size)))

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Take in a frame: of the connection, or of this call."""
        if kind == FrameKind.GOAWAY:
            self._leaving = True
            if struct.unpack_from(">I", payload)[0] < self._number:
                raise Unasked("the server takes no more calls on this connection")
        elif kind == FrameKind.WINDOW_UPDATE and stream == 0:
            self._window += NUMBER.unpack(payload)[0]
        elif kind == FrameKind.PING and not flags & FrameFlag.ACK:
            self.writer.write(frame(FrameKind.PING, FrameFlag.ACK, 0, payload))
        elif kind == FrameKind.SETTINGS and not flags & FrameFlag.ACK:
            for name, value in SETTING.iter_unpack(payload):
                if name == INITIAL_WINDOW:
                    self._room += value - self._initial
                    self._initial = value
            self.writer.write(frame(FrameKind.SETTINGS, FrameFlag.ACK, 0))
        elif stream == self._number:
            self._of_call(kind, flags, payload)

    def _of_call(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == FrameKind.WINDOW_UPDATE:
            self._room += NUMBER.unpack(payload)[0]
        elif kind == FrameKind.RST_STREAM:
            code = NUMBER.unpack(payload)[0]
            kind_of = Unasked if code == Fault.REFUSED_STREAM else ConnectionError
            raise kind_of(f"the server has ended the call ({code})")
        elif kind == FrameKind.DATA:
            self._body += unpadded(flags, payload)
            self._over = bool(flags & FrameFlag.END_STREAM)
            if payload:
                self._grant(len(payload))
        elif kind in {FrameKind.HEADERS, FrameKind.CONTINUATION}:
            if kind == FrameKind.HEADERS:
                self._block, self._ends = b"", bool(flags & FrameFlag.END_STREAM)
                payload = unpadded(flags, payload)[5 * bool(flags & FrameFlag.PRIORITIZED) :]
            self._block += payload
            if flags & FrameFlag.END_HEADERS or len(self._block) > _HEAD_BYTES:
                found = self._decoder.decode(self._block, _HEAD_BYTES) or ()
                self._fields |= {n.decode("latin-1"): v.decode("latin-1") for n, v in found}
                self._over = self._ends

    def _reply(self) -> Reply:
        fields, body = self._fields, bytes(self._body)
        if "grpc-status" not in fields:  # a proxy
            return Reply(max(400, int(fields[":status"])), fields, body)
        code = int(fields["grpc-status"])
        if code:
            error = {"error": unquote(fields.get("grpc-message", "")) or f"code {code}"}
            return Reply(_STATUSES.get(code, 500), fields, msgspec.json.encode(error))
        if body[:1] != b"\0" or body[1:5] != NUMBER.pack(len(body) - 5):
            raise ValueError("the answer is not one message of gRPC")
        return Reply(200, fields, body[5:])
