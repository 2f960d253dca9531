"""A long array of JSON as pieces, which are decoded one by one.

A body of 60 MB with rows as objects takes seconds to decode, holding the GIL, and ten times its
size as Python objects. Native code finds where it can be cut between two elements, without the GIL.
Each piece of rows is decoded, answered and encoded by itself (in answer/piecewise.py), and
what was made of it is dropped; the values of a tensor are put together again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from oven.plans.native_reader import NativeReader

#: The bytes of a piece, which is decoded, and answered, in one or two milliseconds.
PIECE_BYTES = 16 << 10
_SOURCE = """\
def json_cuts(params, io, n, scratch):
    text, at, out, piece = ld_int64(io, 0), ld_int64(io, 1), ld_int64(io, 2), ld_int64(io, 3)
    depth, count, rest = 1, 0, at + piece
    while depth > 0:
        if at >= n:
            return 1
        c = int64(ld_uint8(text, at))
        if c == 34:
            at += 1
            if at >= n:
                return 1
            c = int64(ld_uint8(text, at))
            while c != 34:
                if c == 92:
                    at += 1
                at += 1
                if at >= n:
                    return 1
                c = int64(ld_uint8(text, at))
        elif c == 91 or c == 123:
            depth += 1
        elif c == 93 or c == 125:
            depth -= 1
        elif c == 44 and depth == 1 and at >= rest:
            st_int64(out, count, at)
            count += 1
            rest = at + piece
        at += 1
    st_int64(io, 4, count)
    st_int64(io, 5, at)
    return 0
"""
CUTS = NativeReader(_SOURCE, "json_cuts")
#: What stands before an array of rows, plain or in the first version of the protocol. An array of
#: numbers is one row. Longer spaces are left to the general decoder: a regular expression would try
#: their parts one by one, and hold the GIL.
_SPACE = rb"[ \n\r\t]{0,64}"
_BEFORE = re.compile(
    rb'_(?:\{_"instances"_:_)?(?=\[_[\[{"])'.replace(b"_", _SPACE),
)
_AFTER = re.compile(rb"_(\}?)_".replace(b"_", _SPACE))


class ArrayPieces(NamedTuple):
    """The pieces of an array in a text."""

    text: bytes | memoryview
    bounds: tuple[int, ...]
    """The start of each piece, without the bracket or comma before it, and the array's end."""

    @property
    def end(self) -> int:
        """The position behind the array."""
        return self.bounds[-1]

    @property
    def whole(self) -> bytes:
        """The text of the array."""
        return bytes(self.text[self.bounds[0] - 1 : self.end])

    def __iter__(self) -> Iterator[bytes]:
        """Each piece as an array of JSON."""
        for start, stop in pairwise(self.bounds):
            yield b"".join((b"[", self.text[start : stop - 1], b"]"))


def array_pieces(text: bytes | memoryview, start: int) -> ArrayPieces | None:
    """The pieces of the array that begins at `text[start]`; None if it cannot be cut."""
    if not CUTS.is_there:
        return None
    size, begin = len(text), start + 1
    source = np.frombuffer(text, np.uint8)
    out = np.empty(size // PIECE_BYTES + 1, np.int64)
    io = np.array([source.ctypes.data, begin, out.ctypes.data, PIECE_BYTES, 0, 0], np.int64)
    if not CUTS(io, size):
        return None
    count, end = io[4:].tolist()
    return ArrayPieces(text, (begin, *(out[:count] + 1).tolist(), end))


class RowPieces(NamedTuple):
    """The rows of a body."""

    pieces: ArrayPieces
    instances: bool
    """True if the array stands in an object, as `instances`."""


def rows_in_pieces(body: bytes | memoryview) -> RowPieces | None:
    """The rows of a body; None if it is no array of rows, or cannot be cut."""
    begin = _BEFORE.match(body)
    pieces = None if begin is None else array_pieces(body, begin.end())
    if begin is None or pieces is None:
        return None
    after = _AFTER.fullmatch(body, pieces.end)
    instances = b"{" in bytes(body[: begin.end()])
    if after is None or bool(after[1]) != instances:
        return None
    return RowPieces(pieces, instances)
