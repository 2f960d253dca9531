"""A long array of JSON as pieces, which are decoded one by one.

A body of 60 MB with rows as objects takes seconds to decode, holding the GIL, and ten times its
size as Python objects. Native code finds where it can be cut between two elements, without the GIL.
Each piece of rows is decoded, answered and encoded by itself (in answer/inference.py), and
what was made of it is dropped; the values of a tensor are put together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from oven.compiler.words import *
from oven.plans.native_reader import NativeReader
from runtime.http.wire.problems import HttpError

#: The bytes of a piece, which is decoded, and answered, in one or two milliseconds.
PIECE_BYTES = 16 << 10


def json_outline(params: int, io: int, n: int, scratch: int) -> int:
    """Note where long arrays begin, end, and can be cut; 1 if brackets do not pair."""
    text, at, out = ld_int64(io, 0), ld_int64(io, 1), ld_int64(io, 2)
    least, piece, alone = ld_int64(io, 3), ld_int64(io, 4), ld_int64(io, 5)
    depth, deepest, plain, count, odd, end = 0, 0, 0, 0, 0, n
    array, level, before, rest, last = -1, 0, 0, 0, 0
    while at < end:
        c = int64(ld_uint8(text, at))
        plain += 1
        if c == 34:
            c = 0
            while c != 34:
                at += 1
                if c == 92:
                    at += 1
                c = 34
                if at < n:
                    c = int64(ld_uint8(text, at))
        elif c == 91 or c == 123:
            if array < 0 and c == 91 and (depth == 0 or (depth < 3 and last == 58)):
                array, level, before, rest = count, depth, plain, at + 1 + piece
                st_int64(out, count, at)
                count += 2
            depth += 1
            deepest = max(deepest, depth)
        elif c == 93 or c == 125:
            depth -= 1
            if depth < 0:
                odd = 1
            if array >= 0 and depth == level:
                if c == 93 and at - ld_int64(out, array) >= least:
                    st_int64(out, array + 1, count - array - 2)
                    st_int64(out, count, at + 1)
                    count += 1
                    plain = before
                else:
                    count = array
                array = -1
                if alone == 1:
                    end = at
        elif c == 44 and array >= 0 and depth == level + 1 and at >= rest:
            st_int64(out, count, at + 1)
            count += 1
            rest = at + piece
        if c > 32:
            last = c
        at += 1
    if array >= 0:
        count = array
    if depth != 0:
        odd = 1
    st_int64(io, 6, count)
    st_int64(io, 7, plain)
    st_int64(io, 8, deepest)
    return odd


OUTLINE = NativeReader(json_outline)
#: Bytes outside of strings that are decoded at once, in about ten milliseconds.
LARGE = 512 << 10
_MOST_DEPTH = 64


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
    def has_rows(self) -> bool:
        """True if its first value is an array, an object or a string: of numbers is one row."""
        return bytes(self.text[self.bounds[0] :][:64]).lstrip()[:1] in {b"[", b"{", b'"'}

    def __iter__(self) -> Iterator[bytes]:
        """Each piece as an array of JSON."""
        for start, stop in pairwise(self.bounds):
            piece = b"".join((b"[", self.text[start : stop - 1], b"]"))
            if len(piece) > LARGE:
                check_weight(piece)
            yield piece


def array_pieces(text: bytes | memoryview, start: int) -> ArrayPieces | None:
    """The pieces of the array that begins at `text[start]`; None if it cannot be cut."""
    if not OUTLINE.is_there:
        return None
    arrays, _, _, regular = _scanned(text, 0, start, alone=True)
    return arrays[0] if regular and arrays else None


def outline(text: bytes | memoryview) -> tuple[bytes, dict[str, ArrayPieces]] | None:
    """The text with a string in the place of each long array, and the arrays by these strings.

    These are the whole, or one level or two inside an object. None if they cannot be found.
    """
    if not OUTLINE.is_there:
        return None
    arrays, _, _, regular = _scanned(text, PIECE_BYTES >> 4)
    _check_regular(regular)
    parts: list[bytes | memoryview] = []
    done = 0
    for at, array in enumerate(arrays):
        parts += (text[done : array.bounds[0] - 1], b'"\\u0000%d"' % at)
        done = array.end
    rest = b"".join([*parts, text[done:]])
    if rest.count(b"\\u0000") > len(arrays):
        return None  # it has a string that looks like these
    return rest, {f"\0{at}": array for at, array in enumerate(arrays)}


def check_weight(text: bytes | memoryview) -> None:
    """Refuse a text that would take long to decode in one piece: nobody else is answered then."""
    if not OUTLINE.is_there:
        return
    _, plain, deepest, regular = _scanned(text, len(text) + 1)
    if deepest > _MOST_DEPTH:
        raise too_deep()
    if plain > LARGE:
        _check_regular(regular)
        raise HttpError(
            "an object or a row of the body has too many values",
            found=f"{plain} bytes outside of its strings and of the arrays of its rows",
            hint="send rows as an array, or columns as an object of arrays of values",
        )


def _check_regular(regular: bool) -> None:  # noqa: FBT001 (a fact)
    if not regular:
        raise HttpError("the body is no JSON", found="brackets or quotes that do not match")


def too_deep() -> HttpError:
    """The error of a body whose values are nested more deeply than any model's."""
    return HttpError("the body is nested too deeply", hint="tensors have few dimensions")


def _scanned(
    text: bytes | memoryview, least: int, start: int = 0, *, alone: bool = False
) -> tuple[list[ArrayPieces], int, int, bool]:
    """Arrays of `least` bytes, the bytes outside of them and of strings, the depth, and if all is
    well-formed; `alone` is for the array at the start and nothing behind it.
    """
    size = len(text)
    most = 1 if alone else size // max(1, least) + 1
    room = 3 * most + size // max(1, PIECE_BYTES) + 2
    source, out = np.frombuffer(text, np.uint8), np.empty(room, np.int64)
    places = source.ctypes.data, start, out.ctypes.data
    io = np.array([*places, least, PIECE_BYTES, alone, 0, 0, 0], np.int64)
    regular = OUTLINE(io, size)
    count, plain, deepest = io[6:].tolist()
    numbers, arrays, at = out[:count].tolist(), list[ArrayPieces](), 0
    while at < count:
        stop = at + 3 + numbers[at + 1]
        arrays.append(ArrayPieces(text, (numbers[at] + 1, *numbers[at + 2 : stop])))
        at = stop
    return arrays, plain, deepest, regular
