"""Headers of requests as received, and the heads of responses.

Most requests of a client have the same header names in the same order, and few names matter for
handling a request. So the names are analysed once for each spelling, and cached. Many have the very
same head, byte by byte: it is parsed once. Most responses of a second differ in their length only,
so their heads are made once a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple

import httptools

from flour.core.request_ids import HEADER
from runtime.http.wire.hpack import MOST_FIELDS, encoded
from runtime.http.wire.messages import HEADER_LENGTH, JSON, TIMEOUT_HEADER, Request, Response
from runtime.http.wire.problems import LATE, refusal

#: Headers that change how a request's body is read, or how soon it has to be answered.
_TELLING = {b"content-encoding", HEADER_LENGTH.encode(), TIMEOUT_HEADER.encode()}
#: Headers that say where a request ends, whom it is for and whose it is: twice, they could say two
#: things.
_FRAMING = (b"host", b"content-length", b"transfer-encoding", b"authorization")
#: Headers that clients send alike each time, and that may be kept: no secrets, no ids.
_COMMON = frozenset(
    b"accept accept-encoding accept-language connection content-length content-type host"
    b" user-agent".split()
)
#: Most spellings in the cache, which is cleared when full, and most headers of one.
_SPELLINGS, _MOST = 1024, 64
#: Most heads that are kept, and most bytes of one.
_HEADS, _LONGEST = 2048, 512
#: Most blocks of headers that are kept for a second.
_BLOCKS = 256


class Spelling(NamedTuple):
    """The names of a request's headers, and the ones that matter."""

    names: tuple[bytes, ...]
    """The names in lower case."""
    plain: bool
    """True if none of them changes how the body is read, or how soon it has to be answered."""
    length: bytes | None
    """The name of the content-length header, as it was spelled."""
    expect: bytes | None
    host: bytes | None
    encoding: bytes | None
    """That of transfer-encoding."""
    deadline: bytes | None
    """That of the header with the milliseconds that the client will wait."""
    request: bytes | None
    """That of the header with the request's id: x-request-id, or else traceparent."""
    repeated: str
    """A header that came twice, in different spellings, and may come once only."""
    common: bool
    """True if requests with the same head may come again."""


_cache: dict[tuple[bytes, ...], Spelling] = {}


def spelling(names: Iterable[bytes]) -> Spelling:
    """The spelling of these names, from the cache if it is there."""
    key = tuple(names)
    return _cache.get(key) or _analyse(key)


def _analyse(key: tuple[bytes, ...]) -> Spelling:
    lower = tuple(name.lower() for name in key)
    spelled = dict(zip(lower, key, strict=True))
    entry = Spelling(
        lower,
        _TELLING.isdisjoint(lower),
        spelled.get(b"content-length"),
        spelled.get(b"expect"),
        spelled.get(b"host"),
        spelled.get(b"transfer-encoding"),
        spelled.get(TIMEOUT_HEADER.encode()),
        spelled.get(HEADER.encode(), spelled.get(b"traceparent")),
        next((name.decode() for name in _FRAMING if lower.count(name) > 1), ""),
        _COMMON.issuperset(lower),
    )
    if len(key) <= _MOST:
        if len(_cache) >= _SPELLINGS:
            _cache.clear()
        _cache[key] = entry
    return entry


class KnownHead(NamedTuple):
    """The head of a request that was read by the parser: the same bytes mean the same again."""

    head: bytes
    size: int
    """The number of bytes of the whole request."""
    method: str
    path: str
    query: str
    headers: Mapping[bytes, bytes]


class KnownHeads(dict[bytes, KnownHead]):
    """Heads of a server's requests by their bytes."""

    _last: KnownHead | None = None

    def find(self, data: bytes) -> KnownHead | None:
        """The head that a request begins with, if it is known: most often that of the last one."""
        if self._last is None or not data.startswith(self._last.head):
            self._last = self.get(data[: data.find(b"\r\n\r\n") + 4])
        return self._last

    def keep(self, data: bytes, request: Request) -> None:
        """Keep the head of a request whose bytes are exactly these, if it is a short one."""
        end = len(data) - len(request.body)
        usual = data[: data.find(b"\r\n")].endswith(b" HTTP/1.1")
        if usual and end <= _LONGEST and data.find(b"\r\n\r\n") + 4 == end:
            if len(self) >= _HEADS:
                self.clear()
            headers = MappingProxyType(request.headers)
            address = request.method, request.path, request.query
            self[data[:end]] = KnownHead(data[:end], len(data), *address, headers)


def repeated(head: bytes) -> str:
    """A header that this head of a request has twice, and may have once only; empty if none."""
    lines = head.lower().split(b"\n")[1:]
    names = [line.partition(b":")[0].strip() for line in lines]
    return next((name.decode() for name in _FRAMING if names.count(name) > 1), "")


def crowded(data: bytes, *, end: bool = False) -> bool:
    """True if the head that begins there, or what is behind the last chunk, has too many fields."""
    start = data.rfind(b"\n0\r\n") + 1 if end else 0
    stop = data.find(b"\r\n\r\n", start)
    return data.count(b"\n", start, stop if stop >= 0 else len(data)) > MOST_FIELDS


def fault(
    parser: httptools.HttpRequestParser, headers: Mapping[bytes, bytes], names: Spelling
) -> Response | None:
    """The refusal of headers that leave it open where the request ends, or whom it is for."""
    if names.repeated:
        return misframed(f"two headers {names.repeated}")
    # Without Host a request is of HTTP/1.0, and with a transfer coding it is not.
    modern = parser.get_http_version() != "1.0"
    if names.host is None and modern:
        return misframed("no header host")
    coding = b"chunked" if names.encoding is None else headers[names.encoding].lower()
    if coding == b"chunked" and (modern or names.encoding is None):
        return None
    found = f"transfer-encoding: {coding[:40].decode('latin-1')}"
    return misframed(found, 501 if modern else 400)


def misframed(found: str, status: int = 400) -> Response:
    """The answer to bytes that do not say for certain where a request begins and ends."""
    what = "this is no request as HTTP/1.1 (RFC 9112) frames them"
    return refusal(f"{what} (found: {found})", status)


#: The ends of heads of short answers, by the number of their bytes.
_ENDS = [b"%d\r\n\r\n" % size for size in range(2048)]
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class Heads:
    """Makes the heads of a server's responses."""

    __slots__ = ("_blocks", "_date", "_late", "_usual")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Take the time anew; called once a second."""
        self._date, self._late = formatdate(usegmt=True), b""
        self._blocks: dict[tuple[int, str, tuple[tuple[str, str], ...]], bytes] = {}
        usual = f"HTTP/1.1 200 OK\r\ndate: {self._date}\r\ncontent-type: {JSON}\r\ncontent-length: "
        self._usual = usual.encode()

    def head(self, response: Response, *, close: bool) -> bytes:
        """The head of a response; `close` if it is the last one of its connection."""
        if response.status == 200 and response.content_type is JSON and not response.headers:
            size = len(response.body)
            if size < len(_ENDS) and not close:
                return self._usual + _ENDS[size]
            end = b"\r\nconnection: close\r\n\r\n" if close else b"\r\n\r\n"
            return b"%b%d%b" % (self._usual, size, end)
        if response is LATE and not close:
            self._late = self._late or self._any(response, close=False)
            return self._late
        return self._any(response, close=close)

    def block(self, response: Response) -> bytes:
        """The block of headers of a response over HTTP/2."""
        key = response.status, response.content_type, response.headers
        block = self._blocks.get(key)
        if block is None:
            fields = [(":status", str(response.status)), *response.headers, ("date", self._date)]
            if response.status != 204:
                fields.append(("content-type", response.content_type))
            block = encoded(fields)
            if len(self._blocks) >= _BLOCKS:
                self._blocks.clear()
            self._blocks[key] = block
        if response.status == 204:
            return block
        return block + encoded((("content-length", str(len(response.body))),))

    def _any(self, response: Response, *, close: bool) -> bytes:
        lines = [f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Other')}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        if response.status != 204:
            lines += [
                f"content-type: {response.content_type}",
                f"content-length: {len(response.body)}",
            ]
        if close:
            lines.append("connection: close")
        lines.append(f"date: {self._date}")
        return "\r\n".join((*lines, "\r\n")).encode("latin-1")
