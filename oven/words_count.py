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
    seek_slots,
    st_int32,
    st_int64,
    stack_words,
    text_is_plain,
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
#: Slices that are looked up together; a list of counts has room for so many more than it needs.
BATCH = 64


def text_hash(where: int, size: int) -> int:
    """The hash of some bytes; flour.dictionary computes the same.

    Sixteen bytes are always stirred in, as how many there are could not be guessed.
    """
    code = wrap_mul(wrap_mul(size, _SIZE) ^ text_word(where, size), _STIR)
    code = wrap_mul(code ^ code >> 29 ^ text_word(where + 8, size - 8), _STIR)
    place = 16
    while place < size:
        code = wrap_mul(code ^ code >> 29 ^ text_word(where + place, size - place), _STIR)
        place += 8
    code = wrap_mul(code ^ code >> 29, _TURN)
    return code ^ code >> 32


def text_word(where: int, size: int) -> int:
    """Up to eight bytes as a number: the first is the lowest of those that are not zero."""
    word = peek_int64(where, 0) << (-8 * min(size, 8) & 63)
    return word if size > 0 else int64(0)


def text_tag(where: int, size: int, code: int) -> int:
    """What stands in a key's slot beside its number: texts of up to three bytes themselves."""
    short = size << 24 | peek_int64(where, 0) & ((1 << 8 * (size & 3)) - 1)
    return short if size < 4 else (code >> 32 & _HALF) | _LONG


def text_group(code: int, homes: int) -> int:
    """The first slot of the home of a hash."""
    return 8 * (((code & _HALF) * homes) >> 32)


def text_find(where: int, size: int, offsets: int, data: int, slots: int, homes: int) -> int:
    """The number of a key in a dictionary, or -1.

    Eight slots are looked at together, as a branch for each would mostly be guessed wrong.
    """
    code = text_hash(where, size)
    tag, slot = text_tag(where, size, code), text_group(code, homes)
    while True:
        number = seek_slots(slots, slot, tag)
        if number >> 32 == 0:
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


def text_add(
    counts: int, found: int, limit: int, places: int, column: int, amount: int, start: int
) -> int:
    """Add to a column's count, which starts from `start`; how many columns have one now.

    `places` says where a column's count is in the list of counts. Nobody ever cleared it: whatever
    stands there is believed only if the count in that place is the column's own. There is no
    branch, as nobody could guess whether a column was met before; and nothing that is loaded waits
    for `found`, but is known to be below `limit`, which is never beyond the list's room.
    """
    place = int64(ld_int32(places, column))
    place = place if (place >= 0) & (place < limit) else int64(0)
    entry = ld_int64(counts, place)
    known = (place < found) & (entry >> 32 == column)
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
    """Count the slices that are in a dictionary; how many columns have a count now.

    A few at a time: first those that may be there are put aside, without a branch, as nobody could
    guess which; then those are compared.
    """
    maybe = stack_words(128)
    for start in range(0, count, BATCH):
        many = int64(0)
        for item in range(start, min(start + BATCH, count)):
            here = ld_int64(slices, item)
            many = text_maybe(base, here, slots, homes, maybe, many)
        found = text_settle(base, maybe, many, offsets, data, slots, homes, counts, places, found)
    return found


def text_count_runs(
    base: int,
    size: int,
    place: int,
    low: int,
    high: int,
    offsets: int,
    data: int,
    slots: int,
    homes: int,
    counts: int,
    places: int,
    found: int,
) -> tuple[int, int]:
    """Count runs of `low` to `high` characters of ASCII, which need no look, from `place` on.

    The first place that was not begun at, and how many columns have a count now.
    """
    maybe = stack_words(128)
    end = place
    while end + 64 <= size and text_is_plain(base + end):
        end += 64
    while place + BATCH + high <= end:
        for length in range(low, high + 1):
            many = int64(0)
            for item in range(place, place + BATCH):
                many = text_maybe(base, item << 32 | length, slots, homes, maybe, many)
            found = text_settle(
                base, maybe, many, offsets, data, slots, homes, counts, places, found
            )
        place += BATCH
    return place, found


def text_maybe(base: int, here: int, slots: int, homes: int, maybe: int, many: int) -> int:
    """Put a slice aside if it may be in a dictionary; how many have been."""
    where, size = base + (here >> 32), here & _HALF
    code = text_hash(where, size)
    slot = text_group(code, homes)
    number = seek_slots(slots, slot, text_tag(where, size, code))
    st_int64(maybe, 2 * many, here)
    st_int64(maybe, 2 * many + 1, number)
    return many + ((number >> 32 == 0) | (ldc_int64(slots, slot + 7) != -1))


def text_settle(
    base: int,
    maybe: int,
    many: int,
    offsets: int,
    data: int,
    slots: int,
    homes: int,
    counts: int,
    places: int,
    found: int,
) -> int:
    """Count those of some slices that are in a dictionary; how many columns have a count now."""
    limit = found + BATCH
    for item in range(many):
        here, number = ld_int64(maybe, 2 * item), ld_int64(maybe, 2 * item + 1)
        where, size = base + (here >> 32), here & _HALF
        if not text_is(where, size, offsets, data, number):
            number = text_find(where, size, offsets, data, slots, homes)
            if number < 0:
                continue
        found = text_add(counts, found, limit, places, number, 1, 0)
    return found


def text_is(where: int, size: int, offsets: int, data: int, number: int) -> bool:
    """Whether some bytes are the text of this number, if it is one."""
    if number >> 32 != 0:
        return False
    if size < 4:
        return True
    start = ldc_int64(offsets, number)
    if ldc_int64(offsets, number + 1) - start != size:
        return False
    return text_alike(where, data + start, size)


def text_alike(left: int, right: int, size: int) -> bool:
    """Whether two runs of four bytes or more are equal."""
    if size > 16:
        return text_same(left, right, size)
    if size < 8:
        begin = peek_int32(left, 0) ^ peek_int32(right, 0)
        return begin | (peek_int32(left + size - 4, 0) ^ peek_int32(right + size - 4, 0)) == 0
    begin = peek_int64(left, 0) ^ peek_int64(right, 0)
    return begin | (peek_int64(left + size - 8, 0) ^ peek_int64(right + size - 8, 0)) == 0


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
    limit = found
    for item in range(count):
        if item % BATCH == 0:
            limit = found + BATCH
        here = ld_int64(slices, item)
        where, size = base + (here >> 32), here & 0xFFFFFFFF
        if text_surrogate(where, size):
            return int64(-1)
        code = text_murmur(where, size)
        negative = code >= _MIDDLE
        column = (0x100000000 - code if negative else code) % width
        amount = -1 if negative and signed else 1
        found = text_add(counts, found, limit, places, column, amount, _MIDDLE)
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
