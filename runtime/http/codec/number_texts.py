"""Numbers as JSON, written by native code without the GIL: the shortest text that reads the same.

    written(np.array([0.1, 2.0, nan]))  ->  b"0.1,2.0,null"

Written as Python objects, a number costs its object besides, and the GIL is kept. Which digits are
shortest is R. Giulietti, "The Schubfach way to render doubles", 2020; the form is that of the
general encoder, so that a short array and a long one have the same text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oven.compiler.words import *
from oven.plans.native_reader import NativeReader

#: Fewer numbers are for the general encoder.
LEAST_NUMBERS = 64
#: A number takes no more bytes than this, with a comma; the last one is written with some beyond.
_MOST_BYTES, _BEYOND = 26, 32
#: So many at once, into memory that is used again and again.
_PIECE = 4096
_LEAST_POWER, _MOST_POWER = -292, 324
#: Eight digits of zero, as characters.
_ZEROS = 0x3030303030303030


def json_texts(params: int, io: int, n: int, scratch: int) -> int:
    """Write numbers with a comma behind each."""
    values, out = ld_int64(io, 0), ld_int64(io, 1)
    at = out
    for i in range(n):
        bits = ld_uint64(values, i)
        number = bits & uint64(0x7FFFFFFFFFFFFFFF)
        if number >> uint64(52) == uint64(2047):
            poke_int64(at, 0, 0x2C6C6C756E)  # null,
            at += 5
            continue
        if number != bits:
            st_uint8(at, 0, 45)
            at += 1
        if number == uint64(0):
            poke_int64(at, 0, 0x2C302E30)  # 0.0,
            at += 4
            continue
        digits, k = seventeen_digits(params, number)
        at = write_number(at, digits, k + 16)
        st_uint8(at, 0, 44)
        at += 1
    st_int64(io, 2, at - out)
    return 0


def seventeen_digits(params: int, number: int) -> tuple[int, int]:
    """The shortest decimal that rounds to a float, with 17 digits, and its power of ten."""
    exponent, c = int64(number >> uint64(52)), number & uint64(4503599627370495)
    closer, q = int64(0), int64(-1074)
    if exponent > 0:
        if c == uint64(0) and exponent > 1:
            closer = 1
        c = c | uint64(4503599627370496)
        q = exponent - 1075
    digits, k = uint64(0), int64(0)
    if -53 < q <= 0:
        digits = c >> uint64(-q)
        if digits << uint64(-q) != c:
            digits = uint64(0)
    if digits == uint64(0):
        digits, k = shortest(params, c, q, closer)
    if digits < uint64(10):
        digits = digits * uint64(10000000000000000)
        k -= 16
    if digits < uint64(1000000000):
        digits = digits * uint64(100000000)
        k -= 8
    if digits < uint64(10000000000000):
        digits = digits * uint64(10000)
        k -= 4
    if digits < uint64(1000000000000000):
        digits = digits * uint64(100)
        k -= 2
    if digits < uint64(10000000000000000):
        digits = digits * uint64(10)
        k -= 1
    return digits, k


def shortest(params: int, c: int, q: int, closer: int) -> tuple[int, int]:
    """The nearest of the shortest decimals that round to c * 2**q, and its power of ten.

    The borders of what rounds to it are (4c - 2) and (4c + 2) * 2**(q - 2), the first `closer`
    where c is a power of two. In between lies one decimal or several: found by products with 128
    bits of a power of ten, which keep one bit for all that is cut off.
    """
    odd = c & uint64(1)
    k = (q * 1262611 - closer * 524031) >> 22
    h = uint64(q + ((-k * 1741647) >> 19) + 1)
    place = 2 * (-k - _LEAST_POWER)
    g1, g0 = ldc_uint64(params, place), ldc_uint64(params, place + 1)
    times = uint64(4) * c
    below = rounded_product(g1, g0, times - uint64(2) + uint64(closer) << h) + odd
    upon = rounded_product(g1, g0, times << h)
    above = rounded_product(g1, g0, times + uint64(2) << h) - odd
    ones = upon >> uint64(2)
    if ones >= uint64(10):
        tens = ones // uint64(10)
        lower = below <= uint64(40) * tens
        upper = uint64(40) * tens + uint64(40) <= above
        if lower != upper:
            return tens + uint64(int64(upper)), k + 1
    lower = below <= uint64(4) * ones
    upper = uint64(4) * ones + uint64(4) <= above
    middle = uint64(4) * ones + uint64(2)
    if lower == upper:
        upper = upon > middle or (upon == middle and ones & uint64(1) != uint64(0))
    return ones + uint64(int64(upper)), k


def upper_product(a: int, b: int) -> int:
    """The upper 64 of the 128 bits of a product."""
    half, low = uint64(32), uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    p, r = b0 * a1, b1 * a0
    middle = ((a0 * b0) >> half) + (p & low) + (r & low)
    return b1 * a1 + (p >> half) + (r >> half) + (middle >> half)


def rounded_product(g1: int, g0: int, times: int) -> int:
    """The uppermost 64 of the 192 bits of a product, with a bit for all that is cut off."""
    carried = upper_product(times, g0)
    upper, lower = upper_product(times, g1), g1 * times + carried
    if lower < carried:
        upper = upper + uint64(1)
    if lower > uint64(1):
        upper = upper | uint64(1)
    return upper


def eight_digits(number: int) -> int:
    """The eight digits of a number as bytes: each step halves what one holds."""
    four = number // uint64(10000)
    word = four | ((number - four * uint64(10000)) << uint64(32))
    part = ((word * uint64(10486)) >> uint64(20)) & uint64(0x7F0000007F)
    word = part | ((word - part * uint64(100)) << uint64(16))
    part = ((word * uint64(103)) >> uint64(10)) & uint64(0xF000F000F000F)
    return part | ((word - part * uint64(10)) << uint64(8))


def write_number(at: int, digits: int, e: int) -> int:
    """Write 17 digits, of which the first has the power e of ten, without zeros at their end."""
    first = digits // uint64(10000000000000000)
    rest = digits - first * uint64(10000000000000000)
    upper = rest // uint64(100000000)
    high, low = eight_digits(upper), eight_digits(rest - upper * uint64(100000000))
    size, word = 17, low
    if low == uint64(0):
        size, word = 9, high
        if high == uint64(0):
            size = 1
    if size > 1:
        while word >> uint64(56) == uint64(0):
            word = word << uint64(8)
            size -= 1
    small = -6 < e < 0
    start = at + 1
    if small:
        poke_int64(at, 0, _ZEROS - 0x200)  # 0.000000
        start = at + 1 - e
    st_uint8(start, 0, 48 + int64(first))
    poke_int64(start + 1, 0, int64(high | uint64(_ZEROS)))
    poke_int64(start + 9, 0, int64(low | uint64(_ZEROS)))
    if small:
        return start + size
    if 0 <= e < 16:
        for place in range(e + 1):
            st_uint8(at, place, ld_uint8(at, place + 1))
        st_uint8(at, e + 1, 46)
        if size <= e + 1:
            st_uint8(at, e + 2, 48)
            size = e + 2
        return at + size + 1
    st_uint8(at, 0, 48 + int64(first))
    st_uint8(at, 1, 46)
    return write_power(at + size + 1 if size > 1 else at + 1, e)


def write_power(at: int, e: int) -> int:
    """Write an exponent; the place behind it."""
    st_uint8(at, 0, 101)
    at += 1
    if e < 0:
        st_uint8(at, 0, 45)
        at += 1
        e = -e
    if e >= 100:
        st_uint8(at, 0, 48 + e // 100)
        at += 1
    if e >= 10:
        st_uint8(at, 0, 48 + e // 10 % 10)
        at += 1
    st_uint8(at, 0, 48 + e % 10)
    return at + 1


def written(values: NDArray[np.floating]) -> list[bytes]:
    """The numbers with commas between, in pieces; NaN and infinities are null."""
    room = np.empty(_PIECE * _MOST_BYTES + _BEYOND, np.uint8)
    io, pieces = np.zeros(3, np.int64), []
    for start in range(0, len(values), _PIECE):
        piece = np.ascontiguousarray(values[start : start + _PIECE], np.float64)
        io[:2] = piece.ctypes.data, room.ctypes.data
        TEXTS(io, len(piece))
        pieces.append(room[: io[2] - 1].tobytes())
    return pieces


def _table() -> NDArray[np.int64]:
    """The upper 128 bits of each power of ten, rounded up, in two words each."""
    upper = [_upper_bits(power) for power in range(_LEAST_POWER, _MOST_POWER + 1)]
    words = [(each >> shift) & (1 << 64) - 1 for each in upper for shift in (64, 0)]
    return np.array(words, np.uint64).view(np.int64)


def _upper_bits(power: int) -> int:
    """10**power times the power of two that leaves 128 bits, rounded up."""
    ten: int = 10 ** abs(power)
    if power < 0:
        return -(-(1 << ten.bit_length() + 127) // ten)
    cut = ten.bit_length() - 128
    return -(-ten >> cut) if cut > 0 else ten << -cut


TEXTS = NativeReader(json_texts, _table)
