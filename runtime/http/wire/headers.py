"""Headers as received, looked up by lower-case name only when needed.

Most requests of a client have the same header names in the same order, and few names matter for
handling a request. So the names are analysed once for each spelling, and cached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from runtime.http.wire.messages import HEADER_LENGTH, TIMEOUT_HEADER

#: Headers that change how a request's body is read, or how soon it has to be answered.
_TELLING = {b"content-encoding", HEADER_LENGTH.encode(), TIMEOUT_HEADER.encode()}
#: Headers that say where a request ends and whom it is for: twice, they could say two things.
_FRAMING = (b"host", b"content-length", b"transfer-encoding")
#: Most spellings in the cache, which is cleared when full, and most headers of one.
_SPELLINGS, _MOST = 1024, 64


class Spelling(NamedTuple):
    """The names of a request's headers, and the ones that matter."""

    names: tuple[bytes, ...]
    """The names in lower case."""
    plain: bool
    """Whether none of them changes how the body is read, or how soon it has to be answered."""
    length: bytes | None
    """The name of the content-length header, as it was spelled."""
    expect: bytes | None
    host: bytes | None
    encoding: bytes | None
    """That of transfer-encoding."""
    deadline: bytes | None
    """That of the header with the milliseconds that the client will wait."""
    repeated: str
    """A header that came twice, in different spellings, and may come once only."""


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
        next((name.decode() for name in _FRAMING if lower.count(name) > 1), ""),
    )
    if len(key) <= _MOST:
        if len(_cache) >= _SPELLINGS:
            _cache.clear()
        _cache[key] = entry
    return entry


def repeated(head: bytes) -> str:
    """A header that this head of a request has twice, and may have once only; empty if none."""
    lines = head.lower().split(b"\n")[1:]
    names = [line.partition(b":")[0].strip() for line in lines]
    return next((name.decode() for name in _FRAMING if names.count(name) > 1), "")
