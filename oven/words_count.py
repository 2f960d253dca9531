"""The words of native code for counting: dictionaries, hashes, columns and their counts.

They go on where oven.words_text ends, and work the same way. A row's counts are a list: a column,
times 2**32, plus its count, in the order in which the columns were first met.
"""

from __future__ import annotations

from oven.words_text import (
    int64,
    ld_int32,
    ld_int64,
    ld_uint8,
    ldc_int64,
    peek_int32,
    peek_int64,
    st_int32,
    st_int64,
    text_same,
    wrap_mul,
)

# --- dictionaries ---------------------------------------------------------------------------------

# The numbers that stir a hash: odd, with no pattern in their bits.
_STIR = -0x61C8864680B583EB
_TURN = -0x7A1435883D4D519D
_SIZE = 0x165667B19E3779F9
_HALF = 0xFFFFFFFF
# What the tag of a key of four bytes or more has, and no shorter one.
_LONG = 0x40000000


def text_hash(where: int, size: int) -> int:
    """The hash of some bytes; flour.dictionary computes the same."""
    code = wrap_mul(size, _SIZE)
    place = 0
    while place + 8 <= size:
        code = wrap_mul(code ^ peek_int64(where + place, 0), _STIR)
        code ^= code >> 29
        place += 8
    if place < size:
        word = peek_int64(where + place, 0) & ((1 << 8 * (size - place)) - 1)
        code = wrap_mul(code ^ word, _STIR)
        code ^= code >> 29
    code = wrap_mul(code, _TURN)
    return code ^ code >> 32


def text_find(where: int, size: int, offsets: int, data: int, slots: int, homes: int) -> int:
    """The number of a key in a dictionary, or -1.

    Eight slots are looked at together, as a branch for each would mostly be guessed wrong.
    """
    code = text_hash(where, size)
    tag = code >> 32 | _LONG
    if size < 4:
        tag = size << 24 | peek_int64(where, 0) & ((1 << 8 * size) - 1)
    slot = 8 * (((code & _HALF) * homes) >> 32)
    while True:
        number = int64(-1)
        for place in range(slot, slot + 8):
            entry = ldc_int64(slots, place)
            number = entry & _HALF if entry >> 32 == tag else number
        if number >= 0:
            if size < 4:
                return number
            number = text_match(where, size, offsets, data, slots + 8 * slot, tag)
            if number >= 0:
                return number
        if ldc_int64(slots, slot + 7) == -1:
            return int64(-1)
        slot += 8


def text_match(where: int, size: int, offsets: int, data: int, slots: int, tag: int) -> int:
    """The number of a key of four bytes or more among eight slots, or -1."""
    for place in range(8):
        entry = ldc_int64(slots, place)
        if entry >> 32 == tag:
            number = entry & _HALF
            start = ldc_int64(offsets, number)
            same = ldc_int64(offsets, number + 1) - start == size
            if same and text_same(where, data + start, size):
                return number
    return int64(-1)


def text_drop(
    base: int,
    slices: int,
    count: int,
    offsets: int,
    data: int,
    slots: int,
    homes: int,
    made: int,
) -> int:
    """The slices that are not in a dictionary; how many there are."""
    kept = 0
    for item in range(count):
        found = ld_int64(slices, item)
        where = base + (found >> 32)
        if text_find(where, found & 0xFFFFFFFF, offsets, data, slots, homes) < 0:
            st_int64(made, kept, found)
            kept += 1
    return kept


# --- counting -------------------------------------------------------------------------------------


def text_add(counts: int, found: int, places: int, column: int, amount: int, start: int) -> int:
    """Add to a column's count, which starts from `start`; how many columns have one now.

    `places` says where a column's count is in the list of counts. Nobody ever cleared it: whatever
    stands there is believed only if the count in that place is the column's own. There is no
    branch, as nobody could guess whether a column was met before.
    """
    place = int64(ld_int32(places, column))
    inside = (place >= 0) & (place < found)
    place = place if inside else int64(0)
    entry = ld_int64(counts, place)
    known = inside & (entry >> 32 == column)
    place = place if known else found
    entry = entry if known else column << 32 | start
    st_int64(counts, place, entry + amount)
    st_int32(places, column, place)
    return found + (0 if known else 1)


def text_count(
    base: int,
    slices: int,
    count: int,
    offsets: int,
    data: int,
    slots: int,
    homes: int,
    counts: int,
    places: int,
    found: int,
) -> int:
    """Count the slices that are in a dictionary; how many columns have a count now."""
    for item in range(count):
        here = ld_int64(slices, item)
        number = text_find(base + (here >> 32), here & 0xFFFFFFFF, offsets, data, slots, homes)
        if number >= 0:
            found = text_add(counts, found, places, number, 1, 0)
    return found


#: What a hashed column's sum is counted from, so that it is never below zero.
_MIDDLE = 0x80000000


def text_turn(value: int, by: int) -> int:
    """32 bits turned to the left."""
    return ((value << by) | (value >> (32 - by))) & _HALF


def text_scramble(block: int) -> int:
    """A step of MurmurHash3."""
    return wrap_mul(text_turn(wrap_mul(block, 0xCC9E2D51) & _HALF, 15), 0x1B873593) & _HALF


def text_murmur(where: int, size: int) -> int:
    """The MurmurHash3 of some bytes, without its sign."""
    code, place = int64(0), 0
    while place + 4 <= size:
        code ^= text_scramble(peek_int32(where + place, 0) & _HALF)
        code = (text_turn(code, 13) * 5 + 0xE6546B64) & _HALF
        place += 4
    if place < size:
        rest = peek_int32(where + place, 0) & ((1 << 8 * (size - place)) - 1)
        code ^= text_scramble(rest)
    code ^= size
    code = wrap_mul(code ^ code >> 16, 0x85EBCA6B) & _HALF
    code = wrap_mul(code ^ code >> 13, 0xC2B2AE35) & _HALF
    return code ^ code >> 16


def text_surrogate(where: int, size: int) -> bool:
    """Whether half of a pair of UTF-16 is among the characters, which no hash takes."""
    for place in range(size - 2):
        if ld_uint8(where, place) == 237 and ld_uint8(where, place + 1) >= 160:
            return True
    return False


def text_hashed(
    base: int,
    slices: int,
    count: int,
    width: int,
    signed: int,
    counts: int,
    places: int,
    found: int,
) -> int:
    """Add up slices in the columns their hashes name; how many there are, -1 if one has none."""
    for item in range(count):
        here = ld_int64(slices, item)
        where, size = base + (here >> 32), here & 0xFFFFFFFF
        if text_surrogate(where, size):
            return int64(-1)
        code = text_murmur(where, size)
        negative = code >= _MIDDLE
        column = (0x100000000 - code if negative else code) % width
        amount = -1 if negative and signed else 1
        found = text_add(counts, found, places, column, amount, _MIDDLE)
    return found


def text_sort(slices: int, count: int, spare: int) -> None:
    """Bring a list in ascending order; `spare` is room for as many."""
    for start in range(0, count, 12):
        for item in range(start + 1, min(start + 12, count)):
            value, place = ld_int64(slices, item), item
            while place > start and ld_int64(slices, place - 1) > value:
                st_int64(slices, place, ld_int64(slices, place - 1))
                place -= 1
            st_int64(slices, place, value)
    run = 12
    while run < count:
        for start in range(0, count, 2 * run):
            text_merge(slices, start, min(start + run, count), min(start + 2 * run, count), spare)
        run *= 2


def text_merge(slices: int, start: int, middle: int, end: int, spare: int) -> None:
    """Merge two neighbouring runs that ascend."""
    if middle >= end:
        return
    for item in range(start, middle):
        st_int64(spare, item - start, ld_int64(slices, item))
    left, right, place = 0, middle, start
    while left < middle - start:
        if right < end and ld_int64(slices, right) < ld_int64(spare, left):
            st_int64(slices, place, ld_int64(slices, right))
            right += 1
        else:
            st_int64(slices, place, ld_int64(spare, left))
            left += 1
        place += 1
