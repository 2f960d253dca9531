"""Numbers as JSON, written by native code without the GIL: the shortest text that reads the same.

    written(np.array([0.1, 2.0, nan]))  ->  b"0.1,2.0,null"

Written as Python objects, a number costs its object besides, and the GIL is kept. Which digits are
shortest is R. Giulietti, "The Schubfach way to render doubles", 2020; the form is that of the
general encoder, so that a short array and a long one have the same text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oven.plans.native_reader import NativeReader

#: Fewer numbers are for the general encoder.
LEAST_NUMBERS = 64
#: A number takes no more bytes than this, with a comma; the last one is written with some beyond.
_MOST_BYTES, _BEYOND = 26, 32
#: So many at once, into memory that is used again and again.
_PIECE = 4096
_NAME = "json_texts"
_LEAST_POWER, _MOST_POWER = -292, 324
#: Of a number c * 2**q the borders of what rounds to it are (4c - 2) and (4c + 2) * 2**(q - 2). In
#: between lies one shortest decimal or several, of which the nearest counts: found by products with
#: 128 bits of a power of ten, which keep one bit for all that is cut off. The digits are then
#: brought to 17, and written eight at a time: each step halves what a byte pair holds.
_SOURCE = """\
def json_texts(params, io, n, scratch):
    values, out = ld_int64(io, 0), ld_int64(io, 1)
    low32, half = uint64(4294967295), uint64(32)
    at = out
    for i in range(n):
        bits = ld_uint64(values, i)
        if bits >> uint64(63) != uint64(0):
            st_uint8(at, 0, 45)
            at += 1
            bits = bits & uint64(9223372036854775807)
        exponent = int64(bits >> uint64(52))
        c = bits & uint64(4503599627370495)
        if exponent == 2047:
            if ld_uint64(values, i) != bits:
                at -= 1
            poke_int64(at, 0, 190797608302)
            at += 5
            continue
        if bits == uint64(0):
            poke_int64(at, 0, 741355056)
            at += 4
            continue
        closer = int64(0)
        q = -1074
        if exponent > 0:
            if c == uint64(0) and exponent > 1:
                closer = 1
            c = c | uint64(4503599627370496)
            q = exponent - 1075
        digits, k = uint64(0), 0
        whole = uint64(0)
        if q <= 0 and q > -53:
            whole = c >> uint64(-q)
            if whole << uint64(-q) != c:
                whole = uint64(0)
        if whole != uint64(0):
            digits = whole
        else:
            odd = c & uint64(1)
            k = (q * 1262611 - closer * 524031) >> 22
            h = uint64(q + ((-k * 1741647) >> 19) + 1)
            place = 2 * (-k + 292)
            g1, g0 = ldc_uint64(params, place), ldc_uint64(params, place + 1)
            g1h, g1l, g0h, g0l = g1 >> half, g1 & low32, g0 >> half, g0 & low32
            below, upon, above = uint64(0), uint64(0), uint64(0)
            for border in range(3):
                times = uint64(4) * c
                if border == 0:
                    times = times - uint64(2) + uint64(closer)
                elif border == 2:
                    times = times + uint64(2)
                times = times << h
                th, tl = times >> half, times & low32
                p, r, s = g0h * tl, g0l * th, g0l * tl
                middle = (s >> half) + (p & low32) + (r & low32)
                x1 = g0h * th + (p >> half) + (r >> half) + (middle >> half)
                p, r, s = g1h * tl, g1l * th, g1l * tl
                middle = (s >> half) + (p & low32) + (r & low32)
                y1 = g1h * th + (p >> half) + (r >> half) + (middle >> half)
                y0 = g1 * times
                y0 = y0 + x1
                if y0 < x1:
                    y1 = y1 + uint64(1)
                if y0 > uint64(1):
                    y1 = y1 | uint64(1)
                if border == 0:
                    below = y1 + odd
                elif border == 1:
                    upon = y1
                else:
                    above = y1 - odd
            s4 = upon >> uint64(2)
            found = False
            if s4 >= uint64(10):
                tens = s4 // uint64(10)
                lower = below <= uint64(40) * tens
                upper = uint64(40) * tens + uint64(40) <= above
                if lower != upper:
                    found = True
                    digits = tens
                    if upper:
                        digits = digits + uint64(1)
                    k += 1
            if not found:
                lower = below <= uint64(4) * s4
                upper = uint64(4) * s4 + uint64(4) <= above
                digits = s4
                middle = uint64(4) * s4 + uint64(2)
                if lower != upper:
                    if upper:
                        digits = digits + uint64(1)
                elif upon > middle or (upon == middle and s4 & uint64(1) != uint64(0)):
                    digits = digits + uint64(1)
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
        e = k + 16
        first = digits // uint64(10000000000000000)
        rest = digits - first * uint64(10000000000000000)
        high = rest // uint64(100000000)
        low = rest - high * uint64(100000000)
        four = high // uint64(10000)
        word = four | ((high - four * uint64(10000)) << uint64(32))
        part = ((word * uint64(10486)) >> uint64(20)) & uint64(545460846719)
        word = part | ((word - part * uint64(100)) << uint64(16))
        part = ((word * uint64(103)) >> uint64(10)) & uint64(4222189076152335)
        high = part | ((word - part * uint64(10)) << uint64(8))
        four = low // uint64(10000)
        word = four | ((low - four * uint64(10000)) << uint64(32))
        part = ((word * uint64(10486)) >> uint64(20)) & uint64(545460846719)
        word = part | ((word - part * uint64(100)) << uint64(16))
        part = ((word * uint64(103)) >> uint64(10)) & uint64(4222189076152335)
        low = part | ((word - part * uint64(10)) << uint64(8))
        size = 17
        word = low
        if low == uint64(0):
            size = 9
            word = high
            if high == uint64(0):
                size = 1
        if size > 1:
            while word >> uint64(56) == uint64(0):
                word = word << uint64(8)
                size -= 1
        high = high | uint64(3472328296227680304)
        low = low | uint64(3472328296227680304)
        start = at + 1
        if e < 0 and e > -6:
            poke_int64(at, 0, 3472328296227679792)
            start = at + 1 - e
        st_uint8(start, 0, 48 + int64(first))
        poke_int64(start + 1, 0, int64(high))
        poke_int64(start + 9, 0, int64(low))
        if e < 0 and e > -6:
            at = start + size
        elif e >= 0 and e < 16:
            for place in range(e + 1):
                st_uint8(at, place, ld_uint8(at, place + 1))
            st_uint8(at, e + 1, 46)
            if size > e + 1:
                at += size + 1
            else:
                st_uint8(at, e + 2, 48)
                at += e + 3
        else:
            st_uint8(at, 0, 48 + int64(first))
            st_uint8(at, 1, 46)
            at += 1
            if size > 1:
                at += size
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
            at += 1
        st_uint8(at, 0, 44)
        at += 1
    st_int64(io, 2, at - out)
    return 0
"""


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


TEXTS = NativeReader(_SOURCE, _NAME, _table)
