"""Arrays of numbers in JSON, read by native code without the GIL: flat, or rows of one width.

    found = read(b'{"data": [[1, 2.5], [null, 4e3]]}', 9)
    found.values, found.width, found.end

Large bodies are nearly all numbers. Decoded as Python objects they take several times their size
and keep the GIL, so that no other request of the process is answered meanwhile; here a number goes
from its text into its place in an array. The numbers are floats of what Python's `json` reads, to
the last bit. Whatever else there is (other values, uneven rows, numbers of more than 19 digits or
out of range, mistakes) is left to the general decoder: it gives the same answer, or says what is
wrong.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oven.compiler.words import *
from oven.plans.native_reader import NativeReader
from runtime.http.codec.array_pieces import LARGE, ArrayPieces, array_pieces
from runtime.http.codec.number_texts import upper_product

#: Shorter texts are for the general decoder: it has read them before this has begun.
LEAST_BYTES = 1024
_LEAST_POWER, _MOST_POWER = -342, 308
#: In the words of their characters: `null`, and what missing numbers are.
_NULL, _MISSING = 0x6C6C756E, 0x7FF8000000000000
#: Between the brackets stands: a value or a bracket, a value, a comma or a bracket.
_FIRST, _NEXT, _BEHIND = range(3)


def json_numbers(params: int, io: int, n: int, scratch: int) -> int:
    """Read an array, of numbers or of rows of one width; 1 if it is none."""
    text, at, out = ld_int64(io, 0), ld_int64(io, 1), ld_int64(io, 2)
    depth, expected, count, begun, rows, width = 1, _FIRST, 0, 0, 0, 0
    while depth > 0:
        c = byte_at(text, at, n)
        if c == 32 or c == 10 or c == 13 or c == 9:
            at += 1
        elif expected == _BEHIND:
            at += 1
            if c == 44:
                expected = _NEXT
            elif c == 93:
                depth -= 1
                if depth == 1:
                    if rows == 0:
                        width = count - begun
                    elif count - begun != width:
                        return 1
                    rows += 1
            else:
                return 1
        elif c == 91:
            if depth == 2 or (count > 0 and rows == 0):
                return 1
            depth, begun, expected = 2, count, _FIRST
            at += 1
        else:
            if depth == 1 and rows > 0:
                return 1
            if c == 110:
                if at + 4 > n or peek_int32(text + at, 0) != _NULL:
                    return 1
                st_int64(out, count, _MISSING)
                at += 4
            else:
                at, made = read_number(params, io, text, at, n)
                if at < 0:
                    return 1
                st_uint64(out, count, made)
            count += 1
            expected = _BEHIND
    st_int64(io, 3, count)
    st_int64(io, 4, rows)
    st_int64(io, 5, width)
    st_int64(io, 6, at)
    return 0


def byte_at(text: int, at: int, n: int) -> int:
    """A byte of the text; -1 behind its end."""
    if at >= n:
        return int64(-1)
    return int64(ld_uint8(text, at))


def read_digits(text: int, at: int, n: int, begun: int) -> tuple[int, int]:
    """The place behind some digits, and the number that they go on with."""
    w, c = begun, byte_at(text, at, n)
    while 48 <= c <= 57:
        w = w * uint64(10) + uint64(c - 48)
        at += 1
        c = byte_at(text, at, n)
    return at, w


def read_number(params: int, io: int, text: int, at: int, n: int) -> tuple[int, int]:
    """The place behind a number, and its bits; -1 if it is none.

    Digits are collected into a whole number w, so that the value is w * 10**q.
    """
    sign, q, c = uint64(0), int64(0), byte_at(text, at, n)
    if c == 45:
        sign = uint64(1) << uint64(63)
        at += 1
        c = byte_at(text, at, n)
    if c < 48 or c > 57:
        return int64(-1), sign
    zero, start = c == 48, at
    at, w = read_digits(text, at, n, uint64(0))
    digits, c = at - start, byte_at(text, at, n)
    if zero:
        if digits > 1:
            return int64(-1), sign
        digits = 0
        if c != 46 and c != 101 and c != 69:
            sign = uint64(0)
    if c == 46:
        at += 1
        start = at
        while zero and byte_at(text, at, n) == 48:
            at += 1
        leading = at - start
        at, w = read_digits(text, at, n, w)
        q = start - at
        digits += at - start - leading
        c = byte_at(text, at, n)
        if q == 0:
            return int64(-1), sign
    if c == 101 or c == 69:
        at, power = read_power(text, at + 1, n)
        q += power
    if digits > 19 or at < 0 or at >= n:
        return int64(-1), sign
    fits, made = times_power(params, io, w, q)
    return at if fits else int64(-1), made | sign


def read_power(text: int, at: int, n: int) -> tuple[int, int]:
    """The place behind an exponent, and the exponent; -1 if it has no digits."""
    c = byte_at(text, at, n)
    minus = c == 45
    if minus or c == 43:
        at += 1
        c = byte_at(text, at, n)
    start, power = at, 0
    while 48 <= c <= 57:
        power = min(power * 10 + c - 48, 100000)
        at += 1
        c = byte_at(text, at, n)
    if at == start:
        return int64(-1), int64(0)
    return at, -power if minus else power


def times_power(params: int, io: int, w: int, q: int) -> tuple[bool, int]:
    """The bits of w * 10**q; False if they are not known.

    Where both are small one operation is exact. Else w times the upper 128 bits of 10**q decides
    how to round: D. Lemire, "Number Parsing at a Gigabyte per Second", 2021, which also shows that
    128 bits are enough.
    """
    if w == uint64(0):
        return True, uint64(0)
    if w <= uint64(9007199254740992) and -22 <= q <= 22:
        exact = float64(int64(w))
        by = ldc_float64(params, abs(q))
        st_float64(io, 8, exact / by if q < 0 else exact * by)
        return True, ld_uint64(io, 8)
    if q < _LEAST_POWER or q > _MOST_POWER:
        return False, uint64(0)
    shift, step, top = 0, 32, w
    while step > 0:
        if top >> uint64(64 - step) == uint64(0):
            top = top << uint64(step)
            shift += step
        step = step >> 1
    high = ldc_uint64(params, 23 + 2 * (q - _LEAST_POWER))
    upper, lower = upper_product(top, high), top * high
    if upper & uint64(511) == uint64(511):
        more = upper_product(top, ldc_uint64(params, 24 + 2 * (q - _LEAST_POWER)))
        lower = lower + more
        if lower < more:
            upper = upper + uint64(1)
    first = int64(upper >> uint64(63))
    mantissa = upper >> uint64(first + 9)
    exponent = ((217706 * q) >> 16) + 63 + first - shift + 1023
    if exponent <= 0:
        return False, uint64(0)
    halfway = lower <= uint64(1) and -4 <= q <= 23 and mantissa & uint64(3) == uint64(1)
    if halfway and mantissa << uint64(first + 9) == upper:
        mantissa = mantissa - uint64(1)
    mantissa = (mantissa + (mantissa & uint64(1))) >> uint64(1)
    if mantissa >= uint64(9007199254740992):
        mantissa = uint64(4503599627370496)
        exponent += 1
    return exponent < 2047, mantissa & uint64((1 << 52) - 1) | uint64(exponent) << uint64(52)


class ParsedArray(NamedTuple):
    """An array of a text."""

    values: NDArray[np.float64]
    """All numbers, row by row; missing ones (null) are NaN."""
    width: int
    """The numbers of each row; 0 if the array is flat."""
    start: int
    end: int
    """The position behind the array."""

    def fits(self, shape: list[int]) -> bool:
        """True if the array has this shape, or is flat and has as many numbers."""
        if self.width and (len(shape) != 2 or shape[1] != self.width):
            return False
        return min(shape, default=0) >= 0 and int(np.prod(shape, dtype=object)) == len(self.values)


def read(text: bytes | memoryview, start: int) -> ParsedArray | None:
    """The array that begins at `text[start]`; None if it is not of numbers only."""
    if not NUMBERS.is_there:
        return None
    size = len(text)
    source = np.frombuffer(text, np.uint8)
    # A number takes two characters or more. Memory that is not written to is not taken.
    out = np.empty((size - start) // 2 + 1)
    io = np.array([source.ctypes.data, start + 1, out.ctypes.data, 0, 0, 0, 0, 0, 0], np.int64)
    if not NUMBERS(io, size):
        return None
    count, _, width, end = io[3:7].tolist()
    values = out[:count] if count > _FEW else out[:count].copy()  # else they would keep all of it
    return ParsedArray(values, width, start, end)


_FEW = 8192


#: No string of JSON contains this: a quotation mark in it has a backslash before.
_DATA = re.compile(rb'"data"[ \n\r\t]*:[ \n\r\t]*(?=\[)')
#: Arrays of a body that is read at once; the general decoder takes the values behind them.
_MOST, _MOST_OF_LARGE = 4096, 1 << 16


def taken_out(
    text: bytes | memoryview,
) -> tuple[bytes | memoryview, list[ParsedArray | ArrayPieces]]:
    """The text with its arrays under "data", of numbers or long, and what stands in their places.

    These are the strings "#0", "#1" and so on.
    """
    parts: list[bytes | memoryview] = []
    found: list[ParsedArray | ArrayPieces] = []
    at = done = 0
    most = _MOST if len(text) <= LARGE else _MOST_OF_LARGE
    while (key := _DATA.search(text, at)) is not None and len(found) < most:
        at = key.end()
        array: ParsedArray | ArrayPieces | None = read(text, at)
        if array is None and len(text) - at > LARGE:
            array = array_pieces(text, at)
        if array is not None:
            parts += (text[done:at], b'"#%d"' % len(found))
            found.append(array)
            at = done = array.end
    return (b"".join([*parts, text[done:]]), found) if found else (text, found)


def _table() -> NDArray[np.int64]:
    """The powers of ten that the native code needs."""
    exact = np.array([float(10**power) for power in range(23)]).view(np.int64)
    upper = [_upper_bits(power) for power in range(_LEAST_POWER, _MOST_POWER + 1)]
    words = [(each >> shift) & (1 << 64) - 1 for each in upper for shift in (64, 0)]
    return np.concatenate([exact, np.array(words, np.uint64).view(np.int64)])


def _upper_bits(power: int) -> int:
    """The upper 128 bits of 5**power; of negative powers the next larger ones."""
    five = 5 ** abs(power)
    if power >= 0:
        return int(five << 128 >> five.bit_length())
    bits = (five - 1).bit_length()
    made = (1 << (bits + 127 if power >= -27 else 2 * bits + 128)) // five + 1
    return int(made >> max(0, made.bit_length() - 128))


NUMBERS = NativeReader(json_numbers, _table)
