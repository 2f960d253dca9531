"""Headers as they came: read by lower-case name only if somebody asks.

Most requests of a client spell the same headers in the same order, and of these hardly any matters
to the way of a request. So what the names of a request's headers say is worked out once for each
spelling, and remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from runtime.http.messages import HEADER_LENGTH, TIMEOUT_HEADER

#: Headers that change how a request's body is read, or how soon it has to be answered.
_TELLING = {b"content-encoding", HEADER_LENGTH.encode(), TIMEOUT_HEADER.encode()}
#: So many spellings are remembered, of so many headers at most; then all are forgotten.
_SPELLINGS, _MOST = 1024, 64


class Spelling(NamedTuple):
    """The names of a request's headers, and what they say."""

    names: tuple[bytes, ...]
    """In lower case."""
    plain: bool
    """Whether none of them changes how the body is read, or how soon it has to be answered."""
    length: bytes | None
    """The length of the body, as it was spelled."""
    expect: bytes | None


_known: dict[tuple[bytes, ...], Spelling] = {}


def spelling(names: Iterable[bytes]) -> Spelling:
    """What is known of headers that are spelled so."""
    key = tuple(names)
    return _known.get(key) or _remember(key)


def _remember(key: tuple[bytes, ...]) -> Spelling:
    lower = tuple(name.lower() for name in key)
    places = dict(zip(lower, key, strict=True))
    made = Spelling(
        lower, _TELLING.isdisjoint(lower), places.get(b"content-length"), places.get(b"expect")
    )
    if len(key) <= _MOST:
        if len(_known) >= _SPELLINGS:
            _known.clear()
        _known[key] = made
    return made
