"""Heads of requests over HTTP/2, each block of which is looked at once.

Clients repeat themselves: a block that left the table of its connection as it is means the same
the next time, until a block changes the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from runtime.http.wire.headers import spelling
from runtime.http.wire.hpack import Field, HeaderDecoder
from runtime.http.wire.messages import GRPC_METHOD, TIMEOUT_HEADER

#: Blocks of a connection that are remembered, and the largest of them.
REMEMBERED, LONGEST = 32, 2048
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
#: Headers that are about a connection of HTTP/1.1.
_OF_CONNECTIONS = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+").fullmatch
_VALUE = re.compile(rb"[^\0\r\n]*").fullmatch
_GRPC_TYPE = re.compile(rb"application/grpc(\+proto)?\s*(;.*)?").fullmatch
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])").fullmatch
_UNITS = {b"H": 3.6e6, b"M": 6e4, b"S": 1e3, b"m": 1.0, b"u": 1e-3, b"n": 1e-6}


class Malformed(Exception):
    """A head that is no request of HTTP/2 (RFC 9113, 8.1.1); its stream ends with an error."""


class RequestHead:
    """Everything that is known of a request before its body."""

    __slots__ = (
        *("deadline", "expects", "grpc", "headers", "length", "method", "packed", "named", "path"),
        *("plain", "problem", "query"),
    )

    def __init__(
        self, pseudo: dict[bytes, bytes], headers: dict[bytes, bytes], path: tuple[str, str]
    ) -> None:
        self.method, (self.path, self.query) = pseudo[b":method"].decode("latin-1"), path
        self.headers = headers
        kind = headers.get(b"content-type", b"").lower()
        #: True for a call of gRPC.
        self.grpc = self.method == "POST" and _GRPC_TYPE(kind) is not None
        #: How messages of the call are packed, where they say that they are.
        self.packed = ""
        #: Its fault, if any: the status and a sentence.
        self.problem: tuple[int, str] | None = None
        if self.grpc:
            self._read_as_call()
        length = headers.get(b"content-length")
        if length is not None and not (length.isdigit() and len(length) < 19):
            raise Malformed("content-length is no number")
        #: The bytes of the body, where that is known before.
        self.length = None if length is None else int(length)
        self.expects = headers.get(b"expect", b"").lower() == b"100-continue"
        names = spelling(headers)
        self.plain = names.plain
        #: The header with the id of the request.
        self.named = None if names.request is None else headers[names.request]
        self.deadline = None if names.deadline is None else headers[names.deadline]

    def _read_as_call(self) -> None:
        """Turn what gRPC says in its own words into what other requests say."""
        headers = self.headers
        self.method = GRPC_METHOD
        self.packed = headers.pop(b"grpc-encoding", b"identity").decode("latin-1").strip().lower()
        headers.pop(b"accept-encoding", None)
        headers.pop(b"content-encoding", None)
        if self.packed == "gzip":  # the answer is packed as the question is
            headers[b"accept-encoding"] = b"gzip"
        timeout = headers.pop(b"grpc-timeout", None)
        if timeout is not None:
            parts = _TIMEOUT(timeout)
            if parts is None:
                found = timeout[:20].decode("latin-1")
                self.problem = 400, f"grpc-timeout is digits and a unit (found: {found!r})"
            else:
                # 0 would mean that there is none.
                milliseconds = max(int(parts[1]) * _UNITS[parts[2]], 1e-6)
                headers[TIMEOUT_HEADER.encode()] = b"%.6f" % milliseconds


class HeaderBlocks:
    """The blocks of one connection's requests, in order."""

    __slots__ = ("_changes", "_decoder", "_known", "_most", "_path")

    def __init__(self, most: int, path: Callable[[bytes], tuple[str, str]]) -> None:
        """`most` bytes may be in the headers of a request; `path` splits a target."""
        self._most, self._path = most, path
        self._decoder, self._changes = HeaderDecoder(), 0
        self._known: dict[bytes, RequestHead] = {}

    def read(self, block: bytes, *, trailers: bool = False) -> RequestHead | None:
        """The head in a block; None for trailers, which mean nothing here."""
        head = None if trailers else self._known.get(block)
        if head is not None:
            return head
        fields = self._decoder.decode(block, self._most)
        changed = self._decoder.changes != self._changes
        if changed:
            self._changes = self._decoder.changes
            self._known.clear()
        if trailers:
            return None
        head = _head(fields, self._path)
        if not changed and len(block) <= LONGEST:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[block] = head
        return head


def _head(fields: list[Field] | None, path_of: Callable[[bytes], tuple[str, str]]) -> RequestHead:
    if fields is None:
        made = RequestHead({b":method": b"GET"}, {}, ("", ""))
        made.problem = 431, "the headers are too large, or too many"
        return made
    pseudo: dict[bytes, bytes] = {}
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] != b":":
            _add(headers, name, value)
        elif headers or name in pseudo or name not in _PSEUDO:
            raise Malformed("a pseudo-header is unknown, twice, or not at the beginning")
        else:
            pseudo[name] = value
    target = pseudo.get(b":path", b"")
    if b":method" not in pseudo or b":scheme" not in pseudo or not target:
        raise Malformed("a request has a method, a scheme and a path")
    if _NAME(pseudo[b":method"].lower()) is None or _VALUE(target) is None:
        raise Malformed("the method or the path has characters that it may not have")
    if b":authority" in pseudo:
        headers[b"host"] = pseudo[b":authority"]
    return RequestHead(pseudo, headers, path_of(target))


def _add(headers: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    if _NAME(name) is None or name in _OF_CONNECTIONS or _VALUE(value) is None:
        raise Malformed("a header has no place in HTTP/2")
    if name == b"te" and value.lower() != b"trailers":
        raise Malformed("te is trailers or nothing")
    before = headers.get(name)
    if before is None:
        headers[name] = value
    elif name not in {b"content-length", b"host", b"authorization"}:
        headers[name] = before + (b"; " if name == b"cookie" else b", ") + value
    elif value != before:
        raise Malformed("a header came twice that may come once")
