"""The words of native code for counting: dictionaries, hashes, columns and their counts.

They go on where oven.compiler.intrinsics.text ends, and work the same way. A row's counts are a
list: a column, times 2**32, plus its count, in the order in which the columns were first met.
"""

from __future__ import annotations

from oven.compiler.intrinsics.text import text_plain_end, text_same
from oven.compiler.words import *

# --- dictionaries ---------------------------------------------------------------------------------

# The numbers that stir a hash: odd, with no pattern in their bits.
_STIR = -0x61C8864680B583EB
_TURN = -0x7A1435883D4D519D
_SECOND = -0x3D4D51C2D82B14B1
_THIRD = 0x27D4EB2F165667C5
_SIZE = 0x165667B19E3779F9
_HALF = 0xFFFFFFFF
# What a slot has of a text's number; and, in a group's last slot, what says that no search goes on.
_NUMBER, _ENDS = 0x7FFFFFFF, 0x80000000
# What the tag of a key of four bytes or more has, and no shorter one.
_LONG = 0x40000000
#: Slices that are looked up together; a list of counts has room for so many more than it needs.
BATCH = 64


def text_hash(where: int, size: int) -> int:
    """The hash of some bytes; flour.strings.dictionary computes the same.

    Twenty-four bytes are always stirred in, as how many there are could not be guessed, and none of
    them waits for another.
    """
    code = wrap_mul(wrap_mul(size, _SIZE) ^ text_word(where, size), _STIR)
    code = wrap_add(code, wrap_mul(text_word(where + 8, size - 8), _SECOND))
    third = where + 16 if size > 16 else where
    code = wrap_add(code, wrap_mul(text_word(third, size - 16), _THIRD))
    place = 24
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
    """The tag in a key's slot beside its number: texts of up to three bytes themselves.

    Its highest bit is zero, as an empty slot's is one.
    """
    short = size << 24 | peek_int64(where, 0) & ((1 << 8 * (size & 3)) - 1)
    return short if size < 4 else (code >> 32 & _NUMBER) | _LONG


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
            number = text_match(where, size, offsets, data, slots + 8 * slot, tag)
            if number >= 0:
                return number
        if not text_goes_on(slots, slot):
            return int64(-1)
        slot += 8


def text_goes_on(slots: int, slot: int) -> bool:
    """True if keys of this group, or of one before it, stand behind it."""
    return ldc_int64(slots, slot + 7) & _ENDS == 0


def text_match(where: int, size: int, offsets: int, data: int, slots: int, tag: int) -> int:
    """The number of a key among eight slots, or -1."""
    for place in range(8):
        entry = ldc_int64(slots, place)
        if entry >> 32 == tag and text_is(where, size, offsets, data, entry & _NUMBER):
            return entry & _NUMBER
    return int64(-1)


def text_drop(
    base: int, slices: int, count: int, offsets: int, data: int, slots: int, homes: int, made: int
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


def text_place(
    counts: int, found: int, limit: int, places: int, column: int, start: int, made: int
) -> int:
    """Note where in the list a column's count is, new ones from `start`; how many there are now.

    `places` says where a column's count is in the list of counts. Nobody ever cleared it: whatever
    stands there is believed only if the count in that place is the column's own. There is no
    branch, as nobody could guess whether a column was met before; and nothing that is loaded waits
    for `found`, but is known to be below `limit`, which is never beyond the list's room. What is
    written goes where nobody has to wait to know: to the end of the list, whether new or not.
    """
    place = int64(ld_int32(places, column))
    place = choose((place >= 0) & (place < limit), place, int64(0))
    known = (place < found) & (ld_int64(counts, place) >> 32 == column)
    place = choose(known, place, found)
    st_int64(counts, found, column << 32 | start)
    st_int32(places, column, place)
    st_int64(made, 0, place)
    return found + 1 - int64(known)


def text_clear(places: int, width: int, count: int) -> int:
    """True if columns are few beside the tokens to count: then each has a zero of its own.

    Counting is a third of the work then, and clearing 16 columns takes less than counting one.
    """
    if width > 16 * count:
        return 0
    for column in range(width):
        st_int32(places, column, 0)
    return 1


def text_meet(
    counts: int, found: int, limit: int, places: int, column: int, made: int, cleared: int
) -> int:
    """Count a column where it is, if places are cleared; else note where its count is."""
    if cleared:
        seen = int64(ld_int32(places, column))
        st_int32(places, column, seen + 1)
        st_int64(counts, found, column)
        return found + int64(seen == 0)
    return text_place(counts, found, limit, places, column, 0, made)


def text_settle(counts: int, places: int, found: int) -> None:
    """Write the counts of columns, which are where the columns are, beside these."""
    for item in range(found):
        column = ld_int64(counts, item)
        st_int64(counts, item, column << 32 | ld_int32(places, column))


def text_add(counts: int, places: int, count: int) -> None:
    """Add one to each of the counts in these places."""
    for item in range(count):
        place = ld_int64(places, item)
        st_int64(counts, place, ld_int64(counts, place) + 1)


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
    cleared: int,
) -> int:
    """Count the slices that are in a dictionary; how many columns have a count now."""
    for start in range(0, count, BATCH):
        here, many = slices + 8 * start, min(count - start, BATCH)
        found = text_batch(
            base, here, many, offsets, data, slots, homes, counts, places, found, cleared
        )
    return found


def text_batch(
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
    cleared: int,
) -> int:
    """Count a few slices, as text_count; those that are found late come last.

    Tables are larger than the nearest caches. So nothing is looked up before all that is about to
    be looked up was asked for: slots, then what says where texts are, then texts. And nothing that
    could not be guessed is a branch: what may be there is put aside, and then compared.
    """
    codes, sure, late = stack_words(64), stack_words(128), stack_words(64)
    for item in range(count):
        text_aim(base, ld_int64(slices, item), slots, homes, codes + 8 * item)
    many, more = int64(0), int64(0)
    for item in range(count):
        here, code = ld_int64(slices, item), ld_int64(codes, item)
        where, size, slot = base + (here >> 32), here & _HALF, text_group(code, homes)
        number = seek_slots(slots, slot, text_tag(where, size, code))
        known = number >> 32 == 0
        number = number & _NUMBER if known else int64(0)
        fetch(offsets + 8 * number)
        st_int64(sure, 2 * many, here)
        st_int64(sure, 2 * many + 1, number)
        st_int64(late, more, here)
        many += 1 if known else 0
        more += 1 if (not known) & text_goes_on(slots, slot) else 0
    for item in range(many):
        number = ld_int64(sure, 2 * item + 1)
        fetch(data + ldc_int64(offsets, number))
        fetch(places + 4 * number)
    limit, right = found + BATCH, int64(0)
    for item in range(many):
        here, number = ld_int64(sure, 2 * item), ld_int64(sure, 2 * item + 1)
        if text_is(base + (here >> 32), here & _HALF, offsets, data, number):
            found = text_meet(counts, found, limit, places, number, codes + 8 * right, cleared)
            right += 1
        else:
            st_int64(late, more, here)
            more += 1
    for item in range(more):
        here = ld_int64(late, item)
        number = text_find(base + (here >> 32), here & _HALF, offsets, data, slots, homes)
        if number >= 0:
            found = text_meet(counts, found, limit, places, number, codes + 8 * right, cleared)
            right += 1
    if not cleared:
        text_add(counts, codes, right)
    return found


def text_aim(base: int, here: int, slots: int, homes: int, code: int) -> None:
    """Write down the hash of a slice, and ask for the slots where it may be."""
    made = text_hash(base + (here >> 32), here & _HALF)
    fetch(slots + 8 * text_group(made, homes))
    st_int64(code, 0, made)


def text_count_runs(
    base: int,
    size: int,
    place: int,
    low: int,
    high: int,
    letters: int,
    cells: int,
    numbers: int,
    radix: int,
    offsets: int,
    data: int,
    slots: int,
    homes: int,
    counts: int,
    places: int,
    found: int,
    cleared: int,
) -> tuple[int, int]:
    """Count runs of `low` to `high` characters of ASCII, which need no look, from `place` on.

    The first place that was not begun at, and how many columns have a count now.
    """
    slices = stack_words(64)
    last = text_plain_end(base, size, place) - high
    while place <= last:
        count = min(last + 1 - place, BATCH)
        for length in range(low, high + 1):
            if length < 4 and radix > 0:
                found = text_triples(
                    base,
                    place,
                    count,
                    length,
                    letters,
                    cells,
                    numbers,
                    radix,
                    counts,
                    places,
                    found,
                    cleared,
                )
                continue
            for item in range(count):
                st_int64(slices, item, (place + item) << 32 | length)
            found = text_batch(
                base, slices, count, offsets, data, slots, homes, counts, places, found, cleared
            )
        place += count
    return place, found


def text_triples(
    base: int,
    place: int,
    count: int,
    length: int,
    letters: int,
    cells: int,
    numbers: int,
    radix: int,
    counts: int,
    places: int,
    found: int,
    cleared: int,
) -> int:
    """Count some runs of up to three characters of ASCII; see flour.strings.dictionary.triples.

    They are no bytes to hash but a number of up to three digits, one for each character.
    """
    sure = stack_words(64)
    many, end = int64(0), base + place + length - 1
    first = radix * radix if length > 2 else int64(0)
    second = radix if length > 1 else int64(0)
    oldest = int64(ldc_uint8(letters, ld_uint8(end, -2))) if length > 2 else int64(0)
    older = int64(ldc_uint8(letters, ld_uint8(end, -1))) if length > 1 else int64(0)
    for item in range(count):
        letter = int64(ldc_uint8(letters, ld_uint8(end, item)))
        index = oldest * first + older * second + letter
        cell, bit = ldc_int64(cells, index >> 5), index & 31
        rank = (cell >> 32) + count_bits(cell & ((1 << bit) - 1))
        st_int64(sure, many, int64(ldc_int32(numbers, rank)))
        many += cell >> bit & 1
        oldest, older = older, letter
    limit = found + BATCH
    for item in range(many):
        number, made = ld_int64(sure, item), sure + 8 * item
        found = text_meet(counts, found, limit, places, number, made, cleared)
    if not cleared:
        text_add(counts, sure, many)
    return found


def text_is(where: int, size: int, offsets: int, data: int, number: int) -> bool:
    """True if some bytes are the text of this number."""
    start = ldc_int64(offsets, number)
    if ldc_int64(offsets, number + 1) - start != size:
        return False
    if (start < 8) | (size < 1) | (size > 24):
        return text_same(where, data + start, size)
    return text_alike(where, data + start, size)


def text_alike(left: int, right: int, size: int) -> bool:
    """True if up to 24 bytes are equal; eight before the right ones may be read, none behind.

    How many there are could not be guessed, so three words are always compared: the last, which
    begins before the bytes where they are fewer, and the first and the second or again the last.
    """
    back = size - 8
    few = 8 * max(-back, 0)
    other = peek_int64(left + max(back, 0), 0) << few
    other ^= peek_int64(right + back, 0) & (int64(-1) << few)
    second = min(back, 8)
    more = peek_int64(left, 0) ^ peek_int64(right + min(back, 0), 0)
    more |= peek_int64(left + max(second, 0), 0) ^ peek_int64(right + second, 0)
    return other | (more if back >= 0 else int64(0)) == 0


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
    """True if half of a pair of UTF-16 is among the characters, which no hash takes."""
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
    limit, place = found, stack_words(1)
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
        found = text_place(counts, found, limit, places, column, _MIDDLE, place)
        entry = ld_int64(place, 0)
        st_int64(counts, entry, ld_int64(counts, entry) + amount)
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
