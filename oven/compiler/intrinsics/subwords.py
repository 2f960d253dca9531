"""The words of native code for models that cut words into pieces of a vocabulary.

They go on where oven.compiler.intrinsics.text ends, and work the same way. Pieces are slices of the
vocabulary's own texts, so what comes out needs no memory but the list.
"""

from __future__ import annotations

from oven.compiler.intrinsics.counts import text_find
from oven.compiler.intrinsics.patterns import text_tokens
from oven.compiler.intrinsics.text import text_code, text_copy, text_kind_at, text_same, text_width
from oven.compiler.words import *

#: There are fewer classes of marks.
_CLASSES = 64
#: The first character that is composed with one before it.
_COMPOSED = 0x300


def text_replace(
    where: int,
    size: int,
    made: int,
    spare: int,
    index: int,
    blocks: int,
    pieces: int,
    marks: int,
    classes: int,
) -> int:
    """Replace characters one by one, as text_map does but for those of ASCII too; the new size.

    Negative entries are of marks, after which text_order puts all of them in order.
    """
    place, grown, marked = int64(0), int64(0), int64(0)
    while place < size:
        lead = int64(ld_uint8(where, place))
        code = lead if lead < 128 else text_code(where, place)
        entry = int64(ldc_int32(blocks, ldc_uint16(index, code >> 8) * 256 + (code & 255)))
        width = text_width(lead)
        marked |= entry
        if entry != 0:
            entry = abs(entry) - 1
            for j in range(entry & 63):
                st_uint8(made, grown + j, ldc_uint8(pieces + (entry >> 6), j))
            grown += entry & 63
        else:
            poke_int64(made + grown, 0, peek_int64(where + place, 0))
            grown += width
        place += width
    return text_order(made, grown, spare, marks, classes) if marked < 0 else grown


def text_order(made: int, size: int, spare: int, marks: int, classes: int) -> int:
    """Put runs of marks in the order of their classes, and drop those of class 1; the new size."""
    text_copy(made, size, spare)
    place, grown = int64(0), int64(0)
    while place < size:
        kind, start = text_kind_at(spare, place, marks, classes), place
        place += text_width(ld_uint8(spare, place))
        if kind == 0:
            poke_int64(made + grown, 0, peek_int64(spare + start, 0))
            grown += place - start
        if kind < 2:
            continue
        while place < size and text_kind_at(spare, place, marks, classes) > 1:
            place += text_width(ld_uint8(spare, place))
        wanted = int64(2)
        while wanted < _CLASSES:
            here, later = start, int64(_CLASSES)
            while here < place:
                width = text_width(ld_uint8(spare, here))
                kind = text_kind_at(spare, here, marks, classes)
                if kind == wanted:
                    poke_int64(made + grown, 0, peek_int64(spare + here, 0))
                    grown += width
                elif kind > wanted:
                    later = min(later, kind)
                here += width
            wanted = later
    return grown


def text_compose(where: int, size: int, made: int, how: int) -> int:
    """Write one character for each pair that has such; the new size.

    The text is decomposed, its marks in order. `how`: marks, classes, offsets and data of what
    pairs become, and their dictionary.
    """
    marks, classes, wholes = ld_int64(how, 0), ld_int64(how, 1), ld_int64(how, 2)
    place, grown, start, before = int64(0), int64(0), int64(-1), int64(-1)
    first = int64(0)
    while place < size:
        code, width = text_code(where, place), text_width(ld_uint8(where, place))
        kind = text_kind_at(where, place, marks, classes)
        number = int64(-1)
        if code >= _COMPOSED and start >= 0 and before < kind:
            number = text_pair(first, code, how + 32)
        if number >= 0:
            whole = ld_int64(how, 3) + ldc_int64(wholes, number)
            size_now = ldc_int64(wholes, number + 1) - ldc_int64(wholes, number)
            end = start + text_width(ld_uint8(made, start))
            moved = start + size_now - end
            for j in range(grown - end):  # the marks between, from the end that is moved to
                at = grown - 1 - j if moved > 0 else end + j
                st_uint8(made, at + moved, ld_uint8(made, at))
            for j in range(size_now):
                st_uint8(made, start + j, ldc_uint8(whole, j))
            grown, first = grown + moved, text_code(made, start)
        else:
            if kind == 0:
                start, first = grown, code
            before = kind if kind > 0 else int64(-1)
            poke_int64(made + grown, 0, peek_int64(where + place, 0))
            grown += width
        place += width
    return grown


def text_look(where: int, size: int, how: int) -> int:
    """The number of a key in a dictionary, or -1."""
    offsets, data, slots = ld_int64(how, 0), ld_int64(how, 1), ld_int64(how, 2)
    return text_find(where, size, offsets, data, slots, ld_int64(how, 3))


def text_pair(left: int, right: int, how: int) -> int:
    """The number of a pair of numbers in a dictionary of such, or -1."""
    key = stack_words(2)
    st_int64(key, 0, left | right << 32)
    return text_look(key, 8, how)


def text_swap(
    where: int, size: int, slices: int, count: int, text: int, width: int, made: int
) -> int:
    """Write a text in place of each slice; the new size."""
    place, grown = int64(0), int64(0)
    st_int64(slices, count, size << 32)
    for item in range(count + 1):
        found = ld_int64(slices, item)
        gap = (found >> 32) - place
        text_copy(where + place, gap, made + grown)
        grown, place = grown + gap, (found >> 32) + (found & 0xFFFFFFFF)
        for j in range(width if item < count else 0):
            st_uint8(made, grown + j, ldc_uint8(text, j))
        grown += width if item < count else 0
    return grown


def text_trimmed(where: int, size: int, sides: int, index: int, blocks: int) -> tuple[int, int]:
    """Where a text without white space at its ends begins, and its size: 1 is left, 2 right."""
    place = int64(0)
    while sides & 1 and place < size and text_kind_at(where, place, index, blocks) == 1:
        place += text_width(ld_uint8(where, place))
    while sides & 2 and size > place:
        back = text_before(where, size)
        if text_kind_at(where, back, index, blocks) != 1:
            break
        size = back
    return place, size - place


def text_before(where: int, place: int) -> int:
    """Where the character ahead of a place begins."""
    place -= 1
    while ld_uint8(where, place) & 192 == 128:
        place -= 1
    return place


def text_cut(base: int, slices: int, count: int, made: int, spare: int, how: int) -> int:
    """Cut slices by the matches of an automaton (see text_tokens); how many there are then.

    `how` is the automaton, then a sum: 1 keeps what is between matches, 2 matches; with 4 and 8 a
    match is one with what is ahead of it, or behind it.
    """
    index, blocks, moves = ld_int64(how, 0), ld_int64(how, 1), ld_int64(how, 2)
    after, hopes, kinds = ld_int64(how, 3), ld_int64(how, 4), ld_int64(how, 5)
    least, kept = ld_int64(how, 6), ld_int64(how, 7)
    grown = int64(0)
    for item in range(count):
        whole = ld_int64(slices, item)
        start, size = whole >> 32, whole & 0xFFFFFFFF
        where = base + start
        many = text_tokens(where, size, spare, index, blocks, moves, after, hopes, kinds, least)
        st_int64(spare, many, size << 32)
        last = int64(0)
        for found in range(many + 1):
            hit = ld_int64(spare, found)
            here, end = hit >> 32, (hit >> 32) + (hit & 0xFFFFFFFF)
            if kept & 4:
                here = last if found < many else here
            elif kept & 8:
                end = ld_int64(spare, found + 1) >> 32 if found < many else end
            if kept & 1 and here > last:
                st_int64(made, grown, start + last << 32 | here - last)
                grown += 1
            if kept & 2 and end > here:
                st_int64(made, grown, start + here << 32 | end - here)
                grown += 1
            last = end
    return grown


def text_headed(
    base: int, slices: int, count: int, made: int, text: int, width: int, how: int, most: int
) -> None:
    """Copy slices, the first `most` of them with a text ahead where it is not there; they move.

    With `how`, the text replaces spaces as well, and a space is as good as the text.
    """
    grown = int64(0)
    for item in range(count):
        whole = ld_int64(slices, item)
        where, size, start = base + (whole >> 32), whole & 0xFFFFFFFF, grown
        there = how != 0 and ld_uint8(where, 0) == 32
        there = there or (size >= width and text_same(where, text, width))
        if item < most and not there:
            text_copy(text, width, made + grown)
            grown += width
        for j in range(size):
            byte = ld_uint8(where, j)
            if how != 0 and byte == 32:
                text_copy(text, width, made + grown)
                grown += width
            else:
                st_uint8(made, grown, byte)
                grown += 1
        st_int64(slices, item, start << 32 | grown - start)


def text_until(where: int, size: int, place: int, how: int) -> tuple[int, int]:
    """Where the first text of a dictionary begins from `place` on, the longest one, and its size.

    `how`: ones for bytes that such texts begin with, their sizes, falling, how many these are, and
    the dictionary.
    """
    firsts, widths, many = ld_int64(how, 0), ld_int64(how, 1), ld_int64(how, 2)
    while place < size:
        if ldc_uint8(firsts, ld_uint8(where, place)) != 0:
            for item in range(many):
                width = ldc_int64(widths, item)
                if place + width <= size and text_look(where + place, width, how + 24) >= 0:
                    return place, width
        place += 1
    return size, int64(0)


def text_added(where: int, size: int, place: int, last: int, how: int) -> tuple[int, int, int, int]:
    """The next added text from `place` on: its number (or -1), start, end, and where to go on.

    `how`: index, blocks, options, then what text_until takes. Options add up, for each text: 1
    stands between other characters than those of words (kind 2), 2 takes white space (kind 1) ahead
    of it back to `last`, 4 that behind it.
    """
    index, blocks = ld_int64(how, 0), ld_int64(how, 1)
    while True:
        start, width = text_until(where, size, place, how + 24)
        if width == 0:
            return int64(-1), size, size, size
        place = start + width
        number = text_look(where + start, width, how + 48)
        options, end = int64(ldc_uint8(ld_int64(how, 2), number)), place
        if options & 1:
            if start > 0 and text_kind_at(where, text_before(where, start), index, blocks) == 2:
                continue
            if end < size and text_kind_at(where, end, index, blocks) == 2:
                continue
        if options & 2:
            _, kept = text_trimmed(where, start, 2, index, blocks)
            start = max(kept, last)
        if options & 4:
            gap, _ = text_trimmed(where + end, size - end, 1, index, blocks)
            end += gap
        if start < end:
            return number, start, end, place


def text_entry(offsets: int, number: int) -> int:
    """The slice of a vocabulary's texts that is the text of this number."""
    start = ldc_int64(offsets, number)
    return start << 32 | ldc_int64(offsets, number + 1) - start


def text_word_pieces(
    base: int,
    words: int,
    many: int,
    made: int,
    count: int,
    prefix: int,
    ahead: int,
    longest: int,
    widest: int,
    unknown: int,
    offsets: int,
    data: int,
    slots: int,
    homes: int,
) -> int:
    """Cut words into pieces, which are appended to a list of `count`; how many there are then.

    Words of more than `longest` characters are unknown, and no piece has more than `widest` bytes.
    All pieces but a word's first have the prefix of `ahead` bytes, which is written over what was
    cut before.
    """
    for word in range(many):
        whole = ld_int64(words, word)
        start, before, back = whole >> 32, count, int64(0)
        place = start + (whole & 0xFFFFFFFF)
        number = int64(0)
        if place - start > longest:
            letters = int64(0)
            for j in range(start, place):
                letters += ld_uint8(base, j) & 192 != 128
            number = int64(0 if letters <= longest else -1)
        while start < place and number >= 0:
            end, number = min(place, start + widest), int64(-1)
            while end > start:
                if end == place or ld_uint8(base, end) & 192 != 128:
                    where = base + start - back
                    number = text_find(where, end - start + back, offsets, data, slots, homes)
                    if number >= 0:
                        break
                end -= 1
            start, back = end, ahead
            st_int64(made, count, text_entry(offsets, max(number, 0)))
            count += 1
            for j in range(ahead if number >= 0 and start < place else 0):
                st_uint8(base, start - ahead + j, ldc_uint8(prefix, j))
        if number < 0:
            st_int64(made, before, text_entry(offsets, unknown))
            count = before + 1
    return count


def text_first(where: int, size: int, most: int) -> int:
    """The size of the first characters of a text, `most` of them."""
    if size <= most:
        return size
    place = int64(0)
    while place < size and most > 0:
        place, most = place + text_width(ld_uint8(where, place)), most - 1
    return place
