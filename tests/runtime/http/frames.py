"""A client of HTTP/2 that says frames as they are told, and hears frames as they were said."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.http.wire.hpack import HeaderDecoder, encoded
from runtime.http.wire.http2 import PREFACE
from runtime.http.wire.http2_carrier import FrameFlag, FrameKind, frame

SERVICE = "/inference.GRPCInferenceService/"
#: Enough for every answer of a test.
OPENED = frame(FrameKind.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))


class Frame(NamedTuple):
    """The words of the server."""

    kind: int
    flags: int
    stream: int
    payload: bytes


@dataclass
class Heard:
    """The response on a stream."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset: int | None = None

    @property
    def status(self) -> str:
        """That of gRPC."""
        return self.trailers.get("grpc-status", "")

    @property
    def messages(self) -> list[bytes]:
        found, rest = [], self.body
        while rest:
            (size,) = struct.unpack_from(">I", rest, 1)
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found


def head(method: str, path: str, more: Mapping[str, str] | None = None) -> bytes:
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "here")]
    return encoded([*fields, *(more or {}).items()])


def message(body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(body)) + body


class Talk:
    """A connection."""

    def __init__(
        self,
        port: int,
        settings: Iterable[tuple[int, int]] = (),
        wrapped: Callable[[socket.socket], socket.socket] = lambda plain: plain,
    ) -> None:
        self.socket = wrapped(socket.create_connection(("127.0.0.1", port), timeout=30))
        told = b"".join(struct.pack(">HI", *each) for each in settings)
        self.socket.sendall(PREFACE + frame(FrameKind.SETTINGS, 0, 0, told))
        self._stream = self.socket.makefile("rb")
        self._decoder, self._next = HeaderDecoder(), 1

    def say(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def frames(self) -> Iterator[Frame]:
        """All that the server says, until it says no more."""
        while len(start := self._stream.read(9)) == 9:
            length, flags, number = struct.unpack(">IBI", start)
            yield Frame(length & 255, flags, number, self._stream.read(length >> 8))

    def until(self, kind: int, stream: int = 0) -> Frame:
        """The next frame of this kind."""
        for each in self.frames():
            if (each.kind, each.stream) == (kind, stream) and not (
                kind in {FrameKind.SETTINGS, FrameKind.PING} and not each.flags & FrameFlag.ACK
            ):
                return each
        raise AssertionError(f"the server ended without a frame {kind}")

    def fault(self) -> int:
        """The error of the next GOAWAY, or of a stream that is reset."""
        for each in self.frames():
            if each.kind == FrameKind.GOAWAY:
                return int.from_bytes(each.payload[4:8], "big")
            if each.kind == FrameKind.RST_STREAM:
                return int.from_bytes(each.payload, "big")
        raise AssertionError("the server ended without an error")

    def begin(self, block: bytes, *, last: bool = False) -> int:
        """Begin a stream."""
        number, self._next = self._next, self._next + 2
        self.say(
            frame(
                FrameKind.HEADERS,
                FrameFlag.END_HEADERS | (FrameFlag.END_STREAM if last else 0),
                number,
                block,
            )
        )
        return number

    def ask(self, block: bytes, body: bytes = b"") -> Heard:
        """Ask a request, and hear its answer."""
        number = self.begin(block, last=not body)
        for at in range(0, len(body), 16384):
            end = FrameFlag.END_STREAM if at + 16384 >= len(body) else 0
            self.say(frame(FrameKind.DATA, end, number, body[at : at + 16384]))
        return self.hear(number)

    def call(self, method: str, body: bytes, flags: int = 0, /, **more: str) -> Heard:
        """Ask one message of the inference service, or of a whole path."""
        path = method if method.startswith("/") else SERVICE + method
        named = {name.replace("_", "-"): text for name, text in more.items()}
        block = head("POST", path, {"content-type": "application/grpc", **named})
        return self.ask(block, message(body, flags))

    def hear(self, number: int, messages: int | None = None) -> Heard:
        """The answer on a stream, or so many messages of it."""
        heard = Heard()
        while messages is None or len(heard.messages) < messages:
            each = next(self.frames())
            if each.kind == FrameKind.HEADERS and each.stream == number:
                fields = self._decoder.decode(each.payload, 1 << 20) or []
                told = {name.decode(): value.decode() for name, value in fields}
                heard.trailers = told
                heard.headers = heard.headers or told
            elif each.kind == FrameKind.DATA and each.stream == number:
                heard.body += each.payload
                if each.payload:
                    more = struct.pack(">I", len(each.payload))
                    self.say(frame(FrameKind.WINDOW_UPDATE, 0, 0, more))
                    if not each.flags & FrameFlag.END_STREAM:
                        self.say(frame(FrameKind.WINDOW_UPDATE, 0, number, more))
            elif each.kind == FrameKind.RST_STREAM and each.stream == number:
                heard.reset = int.from_bytes(each.payload, "big")
                return heard
            if (
                each.stream == number
                and each.flags & FrameFlag.END_STREAM
                and each.kind in {FrameKind.DATA, FrameKind.HEADERS}
            ):
                return heard
        return heard

    def close(self) -> None:
        self._stream.close()
        self.socket.close()


@contextmanager
def talk(port: int, settings: Iterable[tuple[int, int]] = ()) -> Iterator[Talk]:
    made = Talk(port, settings)
    try:
        yield made
    finally:
        made.close()
