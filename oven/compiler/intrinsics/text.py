"""The words of native code for text: UTF-8 in, slices of it, columns and counts out.

They are plain Python over addresses and whole numbers, and the native back end compiles this very
text over the vocabulary's loads and stores, as it does with oven.compiler.functions. A document is
an address and a size, and sixteen bytes beyond its end may be read. A slice is one number: where it
starts, times 2**32, plus its size. A list is an address of such numbers.

Nothing here allocates. Whoever calls has made room for the most that can come out, which the
operators in flour.ops.text know.
"""

from __future__ import annotations

from oven.compiler.words import *

# --- characters ---------------------------------------------------------------------------------

# The highest bit of each byte of a word, and the seven others.
_HIGH = -0x7F7F7F7F7F7F7F80
_LOW = 0x7F7F7F7F7F7F7F7F
# Added to seven bits, these set the eighth from A on, and from beyond Z on.
_FROM_A = 0x3F3F3F3F3F3F3F3F
_BEYOND_Z = 0x2525252525252525
# And from the first character on that is neither a space nor a control character.
_FROM_BLANK = 0x5F5F5F5F5F5F5F5F


def text_width(lead: int) -> int:
    """The number of bytes of the character that begins with this byte."""
    return 1 + (lead >= 192) + (lead >= 224) + (lead >= 240)


def text_code(where: int, place: int) -> int:
    """The character that begins here."""
    lead = int64(ld_uint8(where, place))
    if lead < 128:
        return lead
    code = ld_uint8(where, place + 1) & 63
    if lead < 224:
        return (lead & 31) << 6 | code
    code = code << 6 | ld_uint8(where, place + 2) & 63
    if lead < 240:
        return (lead & 15) << 12 | code
    return (lead & 7) << 18 | code << 6 | ld_uint8(where, place + 3) & 63


def text_kind(code: int, index: int, blocks: int) -> int:
    """The kind of a character, out of a table of bytes (see flour.strings.unicode)."""
    return int64(ldc_uint8(blocks, ldc_uint16(index, code >> 8) * 256 + (code & 255)))


def text_kind_at(where: int, place: int, index: int, blocks: int) -> int:
    """The kind of the character that begins here; the first block of the table holds ASCII."""
    lead = int64(ld_uint8(where, place))
    if lead < 128:
        return int64(ldc_uint8(blocks, lead))
    return text_kind(text_code(where, place), index, blocks)


def text_copy(source: int, size: int, made: int) -> None:
    """Copy some bytes, and up to sixteen more, to where nothing is yet."""
    poke_int64(made, 0, peek_int64(source, 0))
    poke_int64(made, 1, peek_int64(source, 1))
    place = 16
    while place < size:
        poke_int64(made + place, 0, peek_int64(source + place, 0))
        place += 8


# --- whole documents ------------------------------------------------------------------------------


def text_map(
    where: int,
    size: int,
    made: int,
    fold: int,
    index: int,
    blocks: int,
    pieces: int,
    context: int,
    contexts: int,
) -> int:
    """Replace characters one by one; the new size.

    ASCII letters become small where `fold` has the bit of small letters. Other characters have a
    number in the table: 0 for themselves, -1 for a capital sigma, or what to write instead: where
    it starts in `pieces`, times 64, plus its size, plus 1.
    """
    place, grown = int64(0), int64(0)
    while place < size:
        word = peek_int64(where + place, 0)
        if word & _HIGH == 0:
            plain = text_map_plain(where + place, size - place, made + grown, fold)
        else:
            poke_int64(made + grown, 0, text_small(word, fold))
            plain = min(int64(first_bit_uint64(uint64(word & _HIGH))) >> 3, size - place)
        place, grown = place + plain, grown + plain
        if place >= size:
            break
        code = text_code(where, place)
        entry = ldc_int32(blocks, ldc_uint16(index, code >> 8) * 256 + (code & 255))
        width = text_width(ld_uint8(where, place))
        if entry > 0:
            many = (entry - 1) & 63
            start = pieces + ((entry - 1) >> 6)
            for j in range(many):
                st_uint8(made, grown + j, ldc_uint8(start, j))
            grown += many
        else:
            poke_int64(made + grown, 0, peek_int64(where + place, 0))
            if entry < 0:
                final = text_is_final(where, size, place, context, contexts)
                st_uint8(made, grown, 207)
                st_uint8(made, grown + 1, 130 if final else 131)
            grown += width
        place += width
    return grown


def text_map_plain(where: int, size: int, made: int, fold: int) -> int:
    """Copy the ASCII that a text begins with, as text_map does; how many bytes it is."""
    place = int64(0)
    while place + 64 <= size:
        high = copy_small(where + place, made + place, fold)
        if high != 0:
            return place + int64(first_bit_uint64(uint64(high)))
        place += 64
    while place < size:
        word = peek_int64(where + place, 0)
        poke_int64(made + place, 0, text_small(word, fold))
        high = word & _HIGH
        if high != 0:
            return min(place + (int64(first_bit_uint64(uint64(high))) >> 3), size)
        place += 8
    return size


def text_small(word: int, fold: int) -> int:
    """Eight bytes, `fold` or-ed to capital letters of ASCII."""
    low = word & _LOW
    capital = (wrap_add(low, _FROM_A) ^ wrap_add(low, _BEYOND_Z)) & _HIGH & ~word
    return word | (capital >> 2) & fold


def text_is_final(where: int, size: int, place: int, index: int, blocks: int) -> bool:
    """True if a sigma ends a word: a cased letter before it and none behind it.

    Kinds: 1 has case, 2 is looked through.
    """
    back, kind = place, 2
    while kind == 2:
        if back == 0:
            return False
        back -= 1
        while ld_uint8(where, back) & 192 == 128:
            back -= 1
        kind = text_kind_at(where, back, index, blocks)
    if kind != 1:
        return False
    ahead = place + 2
    while ahead < size:
        kind = text_kind_at(where, ahead, index, blocks)
        if kind != 2:
            return kind != 1
        ahead += text_width(ld_uint8(where, ahead))
    return True


def text_squeeze(where: int, size: int, made: int, index: int, blocks: int) -> int:
    """Write one space for two or more of any white space in a row; the new size."""
    place, grown = int64(0), int64(0)
    while place < size:
        plain = text_squeezed(where + place, size - place, made + grown)
        place, grown = place + plain, grown + plain
        if place >= size:
            break
        if (plain > 0) & (ld_uint8(where, place - (plain > 0)) <= 32):
            # What was copied last may be the first of several.
            place, grown = place - 1, grown - 1
        plain = int64(0)
        while plain == 0:
            width = text_width(ld_uint8(where, place))
            poke_int64(made + grown, 0, peek_int64(where + place, 0))
            ahead = place + width
            if text_kind_at(where, place, index, blocks) != 0:
                while ahead < size and text_kind_at(where, ahead, index, blocks) != 0:
                    ahead += text_width(ld_uint8(where, ahead))
                if ahead > place + width:
                    st_uint8(made, grown, 32)
                    width = 1
            place, grown = ahead, grown + width
            plain = int64(place >= size or peek_int64(where + place, 0) & _HIGH == 0)
    return grown


def text_squeezed(where: int, size: int, made: int) -> int:
    """Copy the ASCII that a text begins with, up to the second of two blanks; how many bytes it is.

    Blanks are white space and control characters.
    """
    place, last = int64(0), int64(0)
    while place + 64 <= size:
        blank = bytes_within(where + place, 0, 32)
        stop = copy_small(where + place, made + place, 0) | blank & (blank << 1 | last)
        if stop != 0:
            return place + int64(first_bit_uint64(uint64(stop)))
        place, last = place + 64, blank >> 63 & 1
    while place < size:
        word = peek_int64(where + place, 0)
        blank = ~(wrap_add(word & _LOW, _FROM_BLANK) | word) & _HIGH
        stop = word & _HIGH | blank & (blank << 8 | last << 7)
        poke_int64(made + place, 0, word)
        if stop != 0:
            return min(place + (int64(first_bit_uint64(uint64(stop))) >> 3), size)
        place, last = place + 8, blank >> 63 & 1
    return size


def text_pad(where: int, size: int, made: int, index: int, blocks: int) -> int:
    """Write each word (what white space surrounds) with a space on either side; the new size."""
    place, grown = 0, 0
    while place < size:
        if text_kind_at(where, place, index, blocks) != 0:
            place += text_width(ld_uint8(where, place))
            continue
        st_uint8(made, grown, 32)
        grown += 1
        while place < size and text_kind_at(where, place, index, blocks) == 0:
            width = text_width(ld_uint8(where, place))
            poke_int64(made + grown, 0, peek_int64(where + place, 0))
            place, grown = place + width, grown + width
        st_uint8(made, grown, 32)
        grown += 1
    return grown


# --- slices ---------------------------------------------------------------------------------------


def text_stretches(where: int, size: int, made: int, index: int, blocks: int, least: int) -> int:
    """A list of all runs of at least so many characters of kind 1; how many there are.

    Where characters change kind is found for 64 bytes of ASCII at a time: a branch for each byte
    would be guessed wrong at the ends of every word.
    """
    ranges, spare = stack_words(128), stack_words(8)
    most = int64(0) if permutes128 else text_ranges(blocks, ranges)
    count, place, start, inside = int64(0), int64(0), int64(0), int64(0)
    while place < size:
        source, valid = where + place, int64(-1)
        if place + 64 > size:
            for item in range(8):
                st_int64(spare, item, 0)
            text_copy(source, size - place, spare)
            source, valid = spare, (1 << size - place) - 1
        if bytes_within(source, 0, 127) | ~valid != -1:
            place = start if inside else place
            place, count = text_rest(where, size, made, index, blocks, least, place, count)
            start = inside = int64(0)
            continue
        if permutes128:
            kinds = kinds_of_bytes(source, blocks) & valid
        else:
            kinds = text_kinds(source, ranges, most) & valid
        before = kinds << 1 | inside
        starts, ends = uint64(kinds & ~before), uint64(before & ~kinds)
        # A run that began earlier goes on here: its start is known.
        start = choose(inside != 0, start, place + int64(first_bit_uint64(starts)))
        starts &= starts - uint64(1 - inside)
        while ends != 0:
            end = place + int64(first_bit_uint64(ends))
            ends &= ends - uint64(1)
            st_int64(made, count, start << 32 | end - start)
            count += end - start >= least
            start = place + int64(first_bit_uint64(starts))
            starts &= starts - uint64(1)
        inside = kinds >> 63 & 1
        place += 64
    st_int64(made, count, start << 32 | size - start)
    return count + (inside & (size - start >= least))


def text_kinds(source: int, ranges: int, most: int) -> int:
    """A bit for each of 64 bytes: set for those in one of the ranges."""
    kinds = int64(0)
    for item in range(0, most, 2):
        kinds |= bytes_within(source, ld_int64(ranges, item), ld_int64(ranges, item + 1))
    return kinds


def text_ranges(blocks: int, made: int) -> int:
    """The ranges of ASCII of kind 1: the first of each, and how many follow it; their size."""
    count, place, inside = int64(0), int64(0), int64(0)
    while place < 128:
        kinds = odd_bytes(blocks + place)
        changes = uint64(kinds ^ (kinds << 1 | inside))
        while changes != 0:
            end = place + int64(first_bit_uint64(changes))
            changes &= changes - uint64(1)
            st_int64(made, count, end - 1 - ld_int64(made, count - 1) if inside else end)
            count, inside = count + 1, inside ^ 1
        place += 64
    if inside:
        st_int64(made, count, 127 - ld_int64(made, count - 1))
    return count + inside


def text_plain_end(base: int, size: int, place: int) -> int:
    """The end of the run of ASCII that begins at a place."""
    while place + 64 <= size:
        high = ~bytes_within(base + place, 0, 127)
        if high != 0:
            return place + int64(first_bit_uint64(uint64(high)))
        place += 64
    while place < size:
        high = peek_int64(base + place, 0) & _HIGH
        if high != 0:
            return min(place + (int64(first_bit_uint64(uint64(high))) >> 3), size)
        place += 8
    return size


def text_rest(
    where: int, size: int, made: int, index: int, blocks: int, least: int, place: int, count: int
) -> tuple[int, int]:
    """The runs from a place on, character by character, left by text_stretches.

    It goes on for 64 bytes and to the end of a run; where that is, and how many runs there are.
    """
    last = min(place + 64, size)
    while place < last:
        while place < size and text_kind_at(where, place, index, blocks) == 0:
            place += text_width(ld_uint8(where, place))
        start, many = place, 0
        while place < size and text_kind_at(where, place, index, blocks) != 0:
            place += text_width(ld_uint8(where, place))
            many += 1
        st_int64(made, count, start << 32 | place - start)
        count += 1 if many >= least else 0
    return place, count


def text_split(where: int, size: int, made: int, separator: int, width: int) -> int:
    """A list of what is between separators; how many there are."""
    count, place, start = 0, 0, 0
    while place + width <= size:
        if text_same(where + place, separator, width):
            st_int64(made, count, start << 32 | place - start)
            count, place = count + 1, place + width
            start = place
        else:
            place += 1
    st_int64(made, count, start << 32 | size - start)
    return count + 1


def text_trim(where: int, slices: int, count: int, before: int, inside: int, behind: int) -> None:
    """Cut slices down: leave out `before` characters, then take `inside`, or all but `behind`."""
    for item in range(count):
        found = ld_int64(slices, item)
        start, stop = found >> 32, (found >> 32) + (found & 0xFFFFFFFF)
        for _ in range(before):
            start += text_width(ld_uint8(where, start))
        if inside >= 0:
            stop = start
            for _ in range(inside):
                stop += text_width(ld_uint8(where, stop))
        for _ in range(behind):
            stop -= 1
            while ld_uint8(where, stop) & 192 == 128:
                stop -= 1
        st_int64(slices, item, start << 32 | stop - start)


def text_join(base: int, slices: int, count: int, made: int, places: int) -> None:
    """Copy slices with a space between them; where they are then is a list too."""
    grown = int64(0)
    for item in range(count):
        found = ld_int64(slices, item)
        size = found & 0xFFFFFFFF
        text_copy(base + (found >> 32), size, made + grown)
        st_int64(places, item, grown << 32 | size)
        grown += size
        st_uint8(made, grown, 32)
        grown += 1


def text_phrases(
    slices: int, count: int, place: int, low: int, high: int, made: int, most: int
) -> tuple[int, int]:
    """Runs of `low` to `high` joined slices from slice `place` on, as many as there is room for.

    The first slice that was not begun with, and how many runs there are.
    """
    many = int64(0)
    most = most - (high - low + 1)
    while place < count and many <= most:
        start = ld_int64(slices, place) >> 32
        for item in range(place + low - 1, min(place + high, count)):
            found = ld_int64(slices, item)
            stop = (found >> 32) + (found & 0xFFFFFFFF)
            st_int64(made, many, start << 32 | stop - start)
            many += 1
        place += 1
    return place, many


def text_runs(
    base: int, size: int, place: int, low: int, high: int, made: int, most: int
) -> tuple[int, int]:
    """Runs of `low` to `high` characters from `place` on, as many as there is room for.

    The first place that was not begun at, and how many runs there are.
    """
    many, shortest = int64(0), place
    most = most - (high - low + 1)
    for _ in range(low):
        if shortest < size:
            shortest += text_width(ld_uint8(base, shortest))
        else:
            return size, many
    while many <= most:
        end = shortest
        for item in range(high - low + 1):
            st_int64(made, many, place << 32 | end - place)
            many += 1
            if end >= size or item == high - low:
                break
            end += text_width(ld_uint8(base, end))
        if shortest >= size:
            return size, many
        place += text_width(ld_uint8(base, place))
        shortest += text_width(ld_uint8(base, shortest))
    return place, many


def text_word_runs(
    base: int, size: int, place: int, low: int, high: int, made: int, most: int
) -> tuple[int, int]:
    """As text_runs, but no run goes on behind the space that ends a padded word.

    A word that is too short is one run.
    """
    many = int64(0)
    most = most - (high - low + 1)
    while place < size and many <= most:
        lead = ld_uint8(base, place)
        first = place + text_width(lead)
        whole = lead == 32 and first < size and ld_uint8(base, first) != 32
        end, n = place, 0
        while n < high and end < size:
            closing = ld_uint8(base, end) == 32 and (n > 0 or not whole)
            end += text_width(ld_uint8(base, end))
            n += 1
            if n >= low or (closing and whole):
                st_int64(made, many, place << 32 | end - place)
                many += 1
            if closing:
                break
        place = first
    return place, many


def text_same(left: int, right: int, size: int) -> bool:
    """True if two runs of bytes are equal."""
    place = 0
    while place + 8 <= size:
        if peek_int64(left + place, 0) != peek_int64(right + place, 0):
            return False
        place += 8
    if size >= 8:
        place = size - 8
        return peek_int64(left + place, 0) == peek_int64(right + place, 0)
    if size >= 4:
        if peek_int32(left, 0) != peek_int32(right, 0):
            return False
        place = size - 4
        return peek_int32(left + place, 0) == peek_int32(right + place, 0)
    while place < size:
        if ld_uint8(left, place) != ld_uint8(right, place):
            return False
        place += 1
    return True
