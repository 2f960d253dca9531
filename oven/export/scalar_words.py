"""Words of native code that are written with LLVM's builder, as loops over single numbers.

C has no vectors, so its vocabulary has these in their place: oven.compiler.intrinsics has the words
themselves.
"""

from __future__ import annotations

from collections.abc import Callable


def _word(*numbers: float) -> int:
    """Stands in Python for a word that only native code has."""
    raise NotImplementedError(numbers)


int64 = uint64 = ld_uint8 = ldc_int64 = st_uint8 = _word


def seek_slots(slots: int, start: int, tag: int) -> int:
    """Eight slots, each xor the tag: the least of them, taken as numbers without a sign."""
    least = uint64(ldc_int64(slots, start) ^ (tag << 32))
    for k in range(1, 8):
        held = uint64(ldc_int64(slots, start + k) ^ (tag << 32))
        least = min(least, held)
    return int64(least)


def choose(first: int, yes: int, no: int) -> int:
    """One of two numbers."""
    return yes if first else no


def copy_small(source: int, made: int, fold: int) -> int:
    """Copy 64 bytes, capital letters or-ed; which are not ASCII: a bit for each."""
    odd = uint64(0)
    for k in range(64):
        byte = int64(ld_uint8(source, k))
        st_uint8(made, k, byte | fold if byte >= 65 and byte <= 90 else byte)
        odd = odd | (uint64(byte >> 7) << k)
    return int64(odd)


def bytes_within(where: int, low: int, span: int) -> int:
    """Which of 64 bytes are `low` or up to `span` above it: a bit for each."""
    made = uint64(0)
    for k in range(64):
        above = (int64(ld_uint8(where, k)) - low) & 255
        made = made | (uint64(above <= (span & 255)) << k)
    return int64(made)


def odd_bytes(where: int) -> int:
    """Which of 64 bytes are odd: a bit for each."""
    made = uint64(0)
    for k in range(64):
        made = made | (uint64(int64(ld_uint8(where, k)) & 1) << k)
    return int64(made)


def count_bits(number: int) -> int:
    """The bits that are set."""
    left, made = uint64(number), 0
    while left != 0:
        left, made = left & (left - 1), made + 1
    return made


def first_bit_uint64(number: int) -> int:
    """The number of the lowest bit that is set; 64 if there is none."""
    left, made = uint64(number), 0
    while made < 64 and (left >> made) & 1 == 0:
        made += 1
    return made


def fetch(place: int) -> int:
    """Nothing: memory comes when it is read."""
    return place


WORDS: tuple[Callable[..., int], ...] = (
    *(seek_slots, choose, copy_small, bytes_within, odd_bytes, count_bits, first_bit_uint64),
    fetch,
)
