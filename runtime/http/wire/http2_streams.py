"""Streams of HTTP/2: a request and its response, or a call of gRPC with its messages.

A message of gRPC is asked as a request of its own, so limits, rights, deadlines, metrics and the
log see it as they see any other. A refusal of any kind becomes the status of the call.
"""

from __future__ import annotations

import struct
from collections import deque

import msgspec

from runtime.http.wire.hpack import encoded, varint
from runtime.http.wire.http2_carrier import Carrier, Http2Stream, headers
from runtime.http.wire.http2_heads import RequestHead
from runtime.http.wire.messages import GRPC, MessageSeries, Request, Response

_message_at = struct.Struct(">BI").unpack_from
MESSAGE = struct.Struct(">BI").pack
_PREFIX = 5

#: Calls in which the client may send more than one message.
STREAMING = frozenset(
    (
        "/inference.GRPCInferenceService/ModelStreamInfer",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    )
)
#: The one of them whose errors are messages, after which it goes on; their field is the first.
_ERRORS_INSIDE = "/inference.GRPCInferenceService/ModelStreamInfer"
#: Refusals that end that call, too.
_FINAL = frozenset((401, 403))
#: Messages of a call that are answered before others get their turn.
_AT_ONCE = 16

#: gRPC's codes for statuses of HTTP.
CODES = {
    **dict.fromkeys((400, 417, 422), 3),
    **dict.fromkeys((405, 415, 501), 12),
    **dict.fromkeys((408, 504), 4),
    **dict.fromkeys((413, 429, 431), 8),
    **dict.fromkeys((502, 503), 14),
    401: 16,
    403: 7,
    404: 5,
    409: 9,
    500: 13,
}
_UNKNOWN = 2
#: Headers of a response that say of its body what each message says of itself.
_NOT_METADATA = frozenset(("content-encoding", "vary", "accept-encoding"))
#: Deadlines of streams beyond this are none.
_LONGEST_SECONDS = 1e6
_OK_HEADERS = (
    (":status", "200"),
    ("content-type", GRPC),
    ("grpc-accept-encoding", "identity,deflate,gzip"),
)
_HEADERS = encoded(_OK_HEADERS)
_PACKED_HEADERS = encoded((*_OK_HEADERS, ("grpc-encoding", "gzip")))
_TRAILERS = encoded([("grpc-status", "0")])
_CONTINUE = encoded([(":status", "100")])


class PlainStream(Http2Stream):
    """A request of HTTP."""

    __slots__ = ("_body",)

    def __init__(self, carrier: Carrier, number: int, head: RequestHead) -> None:
        super().__init__(carrier, number, head)
        self._body: list[bytes] = []

    def begin(self) -> None:
        """Refuse what can be refused without the body."""
        head, settings = self.head, self.carrier.app.settings
        if head.problem is not None:
            self.refuse(head.problem[1], head.problem[0])
        elif (head.length or 0) > settings.max_body:
            self.refuse(f"a body may have {settings.max_body} bytes", 413)
        elif head.expects and not self.ended:
            self.carrier.write(headers(self.number, _CONTINUE, last=False))

    def refuse(self, what: str, status: int) -> None:
        """Answer without asking."""
        if self.hungry:
            self.hungry = False
            self.answered(*self.refusal(what, status))

    def data(self, payload: bytes) -> None:
        """A part of the body, which is dropped if the request is answered already."""
        self.size += len(payload)
        if self.size > self.carrier.app.settings.max_body:
            self.refuse(f"a body may have {self.carrier.app.settings.max_body} bytes", 413)
        elif self.hungry:
            self._body.append(payload)

    def end(self) -> None:
        """Ask the request."""
        if not self.hungry:
            return
        self.hungry = False
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        if self.head.length is not None and self.head.length != len(body):
            self.answered(*self.refusal("the body has another length than its header says", 400))
            return
        self.asked(self.request(body))

    def late(self, now: float) -> None:
        """Refuse a body that takes too long."""
        settings = self.carrier.app.settings
        patience = settings.body_seconds + self.size / max(1, settings.body_rate)
        if self.hungry and now - self.started > patience:
            self.refuse("the body took too long", 408)

    def answered(self, request: Request, response: Response) -> None:
        """Send the response."""
        body = b"" if request.method == "HEAD" else response.body
        head = self.carrier.block_of(response) + self.name_of(request, response)
        self.send(headers(self.number, head, last=not body), body, b"", last=True)
        self.observed(request, response)


class GrpcStream(Http2Stream):
    """A call of gRPC."""

    __slots__ = ("_asking", "_begun", "_follows", "_heard", "_line", "_over", "_rest", "_streaming")

    def __init__(self, carrier: Carrier, number: int, head: RequestHead) -> None:
        super().__init__(carrier, number, head)
        self._rest = bytearray()  # the beginning of a message
        self._line: deque[tuple[int, bytes]] = deque()  # messages, each with its flags
        self._begun = self._over = False  # the answer's headers were sent; or its end
        self._asking = self._follows = False  # messages are being asked; or told as they come
        self._streaming = head.path in STREAMING
        self._heard = carrier.now  # when the last message had come

    def begin(self) -> None:
        """Refuse what can be refused without a message."""
        if self.head.problem is not None:
            self.refuse(self.head.problem[1], self.head.problem[0])
        elif self._streaming and self.head.deadline is not None:
            seconds = min(float(self.head.deadline) / 1e3, _LONGEST_SECONDS)
            self.carrier.loop.call_later(seconds, self._missed)

    def _missed(self) -> None:
        if not self.gone:
            self.refuse("the deadline passed", 504)
            self.carrier.done()

    def data(self, payload: bytes) -> None:
        """A part of a message, or several messages."""
        if self._over:
            self.carrier.held -= len(payload)
            return
        self.size += len(payload)
        rest = self._rest
        if not rest and len(payload) >= _PREFIX:
            flags, length = _message_at(payload)
            if length + _PREFIX == len(payload):
                self._line.append((flags, payload[_PREFIX:]))
                payload = b""
        if payload:
            rest += payload
            self._cut()
        if len(self._line) > 1 and not self._streaming:
            self.refuse("this call takes one message", 400)
        elif self._line and self._streaming:
            self._heard = self.carrier.now
            self.hungry = len(self._line) < _AT_ONCE
            self._next()

    def _cut(self) -> None:
        """Take whole messages from what has come."""
        rest, at, most = self._rest, 0, self.carrier.app.settings.max_body
        while len(rest) - at >= _PREFIX:
            flags, length = _message_at(rest, at)
            if length > most:
                self.refuse(f"a message may have {most} bytes", 413)
                return
            if len(rest) - at < _PREFIX + length:
                break
            self._line.append((flags, bytes(rest[at + _PREFIX : at + _PREFIX + length])))
            at += _PREFIX + length
        del rest[:at]

    def end(self) -> None:
        """Answer the message, or end after the last of several."""
        if self._over:
            return
        if self._rest:
            self.refuse("the last message is cut off", 400)
        elif not self._line and not self._streaming:
            self.refuse("this call takes one message", 400)
        else:
            self._next()

    def _next(self) -> None:
        """Ask the next messages, until one has to be awaited."""
        if self._asking:  # by the loop below, which goes on
            return
        count, self._asking = 0, True
        while self._line and self.task is None and not (self._over or self.waiting):
            if count == _AT_ONCE:
                self.carrier.loop.call_soon(self._again)
                break
            count += 1
            flags, message = self._line.popleft()
            if self._streaming:
                self._release(len(message) + _PREFIX)
            self._ask(flags, message)
        self._asking = False
        if self.ended and self._streaming and not self._line and self.task is None:
            self._finish()

    def cancel(self) -> None:
        """Nobody waits for an answer any more."""
        self._over = True
        self._line.clear()
        super().cancel()

    def drain(self) -> None:
        """End a call on which nothing is on its way."""
        busy = self._line or self._rest or self.waiting or self.task is not None
        if self._follows or (self._streaming and not busy):
            self.refuse("the server is shutting down", 503)

    def _again(self) -> None:
        if not self.gone:
            self._next()
            self.carrier.done()

    def _release(self, size: int) -> None:
        """Make room for more messages."""
        self.size -= size
        self.carrier.held -= size
        if not self.hungry and not self._line:
            self.hungry = True
            self.carrier.credit(self)

    def _ask(self, flags: int, message: bytes) -> None:
        more, packed = None, self.head.packed
        if flags:
            if packed in {"", "identity"} or flags != 1:
                self.refuse("a message is packed, and grpc-encoding does not say how", 500)
                return
            more = {b"content-encoding": packed.encode("latin-1")}
        self.asked(self.request(message, more))

    def emptied(self) -> None:
        """Go on with messages that have waited until the client had read its answers."""
        self._next()

    def late(self, now: float) -> None:
        """End a call whose client is silent for too long."""
        settings = self.carrier.app.settings
        if self.ended or self.task is not None or self._over:
            return
        idle = self._streaming and not self._rest
        patience = settings.body_seconds + self.size / max(1, settings.body_rate)
        if now - self._heard > (settings.idle_seconds if idle else patience):
            self.refuse("no message has come for too long", 408)

    # --- answering ---------------------------------------------------------------------------

    def answered(self, request: Request, response: Response) -> None:
        """Send a message, and after the last one the status."""
        if self._over:
            return
        if response.content_type == GRPC:
            self._tell(response, self.name_of(request, response))
        elif self.head.path == _ERRORS_INSIDE and response.status not in _FINAL:
            self._tell(Response(_error_inside(response), content_type=GRPC))
        else:
            self._end(response, self.name_of(request, response))
        self.observed(request, response)

    def _tell(self, response: Response, name: bytes = b"") -> None:
        """Send a message, and go on."""
        last = not (self._streaming or isinstance(response, MessageSeries))
        body, more = response.body, response.headers
        packed = bool(more) and any(name.lower() == "content-encoding" for name, _ in more)
        ahead = behind = b""
        if not self._begun:
            self._begun = True
            block = _HEADERS if self.head.packed != "gzip" else _PACKED_HEADERS
            if more:
                block += encoded(_metadata(response))
            ahead = headers(self.number, block + name, last=False)
        if last:
            self._over = True
            behind = headers(self.number, _TRAILERS, last=True)
        self.send(ahead, MESSAGE(packed, len(body)) + body, behind, last=last)
        if isinstance(response, MessageSeries):
            self._follows = True
            self.task = self.carrier.loop.create_task(self._follow(response))
        elif not last:
            self._next()

    async def _follow(self, response: MessageSeries) -> None:
        """Send the further messages of an answer."""
        async for message in response.messages():
            self.send(b"", MESSAGE(0, len(message)) + message, b"", last=False)
            self.carrier.done()
        self.task = None
        self._finish()
        self.carrier.done()

    def _finish(self) -> None:
        """The call has gone well."""
        if not self._over:
            self._over = True
            block = _TRAILERS if self._begun else _HEADERS + _TRAILERS
            self.send(b"", b"", headers(self.number, block, last=True), last=True)

    def refuse(self, what: str, status: int) -> None:
        """End the call without asking."""
        if not self._over:
            request, response = self.refusal(what, status)
            self._end(response, self.name_of(request, response))
            self.observed(request, response)

    def _end(self, response: Response, name: bytes) -> None:
        """End the call with an error."""
        self._over, self.hungry = True, False
        self._line.clear()
        fields = [("grpc-status", str(CODES.get(response.status, _UNKNOWN)))]
        fields += [("grpc-message", _message(response)), *_metadata(response)]
        block = (b"" if self._begun else _HEADERS) + encoded(fields) + name
        self.send(b"", b"", headers(self.number, block, last=True), last=True)


def _metadata(response: Response) -> list[tuple[str, str]]:
    """The headers of a response as metadata of a call."""
    return [each for each in response.headers if each[0].lower() not in _NOT_METADATA]


def _error_inside(response: Response) -> bytes:
    """A message with the sentence of an error in its first field."""
    text = _sentence(response).encode()
    return b"\x0a" + varint(len(text)) + text


def _sentence(response: Response) -> str:
    try:
        return str(msgspec.json.decode(response.body)["error"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return f"status {response.status}"


def _message(response: Response) -> str:
    """The sentence of an error, in the characters that gRPC allows."""
    return "".join(
        chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}"
        for byte in _sentence(response).encode()[:2048]
    )
