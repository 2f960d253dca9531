"""The words of native code for models of pieces that weigh all of a word: merges, and scores.

They go on where oven.compiler.intrinsics.subwords ends, and take words as slices, too. `how` is an
array of numbers and addresses, a dictionary four of them, as a look-up takes them.
"""

from __future__ import annotations

from oven.compiler.intrinsics.subwords import text_entry, text_look, text_pair
from oven.compiler.intrinsics.text import text_code, text_width
from oven.compiler.words import *


def text_row(where: int, place: int, how: int) -> int:
    """The number of the row of a character, or of a byte: (index, blocks, rows, bytewise, ...)."""
    code = int64(ld_uint8(where, place)) if ld_int64(how, 3) else text_code(where, place)
    page = ldc_uint16(ld_int64(how, 0), code >> 8) * 256 + (code & 255)
    return int64(ldc_int32(ld_int64(how, 1), page))


def text_byte_ids(where: int, size: int, table: int, ids: int, count: int) -> int:
    """Append the numbers of bytes, if all have one; how many there are then."""
    for j in range(size):
        number = int64(ldc_int32(table, ld_uint8(where, j)))
        if number < 0:
            return count
        st_int32(ids, count + j, number)
    return count + size


def text_letters(where: int, size: int, ids: int, how: int) -> int:
    """The numbers of a word's characters, or bytes; how many there are.

    `how`: index, blocks, rows, bytewise, bytes, unknown, fuse. A row has the number of a character
    in the middle, at the end, in front and alone, or -1. One without is its bytes where all have a
    number, else `unknown`, one for several if `fuse`.
    """
    rows, unknown, fuse = ld_int64(how, 2), ld_int64(how, 5), ld_int64(how, 6)
    count, place, waiting = int64(0), int64(0), int64(0)
    while place < size:
        width = int64(1) if ld_int64(how, 3) else text_width(ld_uint8(where, place))
        column = 2 * (place == 0) + (place + width == size)
        number = int64(ldc_int32(rows, 4 * text_row(where, place, how) + column))
        grown = count
        if number < 0:
            grown = text_byte_ids(where + place, width, ld_int64(how, 4), ids, count)
        if grown == count:
            if waiting and (number >= 0 or not fuse):
                st_int32(ids, grown, unknown)
                grown += 1
            if number >= 0:
                st_int32(ids, grown, number)
                grown += 1
            waiting = int64(number < 0 and unknown >= 0)
        count, place = grown, place + width
    if waiting:
        st_int32(ids, count, unknown)
    return count + waiting


def text_push(heap: int, count: int, rank: int, item: int) -> int:
    """Add a pair to a heap whose first is in front, unless its rank is -1; how many there are."""
    if rank < 0:
        return count
    place, key = count, rank << 32 | item
    while place > 0 and ld_int64(heap, (place - 1) >> 1) > key:
        st_int64(heap, place, ld_int64(heap, (place - 1) >> 1))
        place = (place - 1) >> 1
    st_int64(heap, place, key)
    return count + 1


def text_pop(heap: int, count: int) -> int:
    """Drop the first pair of a heap; how many there are then."""
    count -= 1
    key, place, child = ld_int64(heap, count), int64(0), int64(1)
    while child < count:
        if child + 1 < count and ld_int64(heap, child + 1) < ld_int64(heap, child):
            child += 1
        if ld_int64(heap, child) >= key:
            break
        st_int64(heap, place, ld_int64(heap, child))
        place, child = child, 2 * child + 1
    st_int64(heap, place, key)
    return count


def text_rank(ids: int, left: int, right: int, count: int, pairs: int) -> int:
    """The rank of the pair of two items of a list, or -1."""
    if left < 0 or right >= count:
        return int64(-1)
    return text_pair(int64(ld_int32(ids, left)), int64(ld_int32(ids, right)), pairs)


def text_merged(ids: int, links: int, heap: int, count: int, news: int, pairs: int) -> None:
    """Merge numbers beside each other, the first pair of a dictionary first; gaps become -1.

    `news` has what pairs become; a link is the next item, and the one before plus 1. A pair that
    was noted is looked at again in its turn: what it becomes decides, as in the package.
    """
    waiting = int64(0)
    for item in range(count):
        st_int64(links, item, (item + 1) << 32 | item)
        rank = text_rank(ids, item, item + 1, count, pairs)
        waiting = text_push(heap, waiting, rank, item)
    while waiting > 0:
        top = ld_int64(heap, 0)
        waiting = text_pop(heap, waiting)
        here, made = top & 0xFFFFFFFF, ldc_int32(news, top >> 32)
        link = ld_int64(links, here)
        after, before = link >> 32, (link & 0xFFFFFFFF) - 1
        rank = text_rank(ids, here, after, count, pairs)
        if rank < 0 or ldc_int32(news, rank) != made:
            continue
        st_int32(ids, here, made)
        st_int32(ids, after, -1)
        after = ld_int64(links, after) >> 32
        st_int64(links, here, after << 32 | before + 1)
        if after < count:
            st_int64(links, after, ld_int64(links, after) >> 32 << 32 | here + 1)
        rank = text_rank(ids, before, here, count, pairs)
        waiting = text_push(heap, waiting, rank, before)
        rank = text_rank(ids, here, after, count, pairs)
        waiting = text_push(heap, waiting, rank, here)


def text_byte_pairs(base: int, words: int, many: int, made: int, count: int, how: int) -> int:
    """The pieces of words by merges, appended to a list of `count`; how many there are then.

    `how`: ids, links, heap, offsets, news, then the dictionary of pairs; from 9 on whole, and the
    dictionary of words that are one piece, whose numbers `whole` has; from 14 on as text_letters.
    """
    ids, offsets = ld_int64(how, 0), ld_int64(how, 3)
    for word in range(many):
        found = ld_int64(words, word)
        where, size = base + (found >> 32), found & 0xFFFFFFFF
        known = text_look(where, size, how + 80)
        if known >= 0:
            known = int64(ldc_int32(ld_int64(how, 9), known))
            st_int64(made, count, text_entry(offsets, known))
            count += 1
            continue
        letters = text_letters(where, size, ids, how + 112)
        text_merged(ids, ld_int64(how, 1), ld_int64(how, 2), letters, ld_int64(how, 4), how + 40)
        for item in range(letters):
            number = int64(ld_int32(ids, item))
            if number >= 0:
                st_int64(made, count, text_entry(offsets, number))
                count += 1
    return count


def text_child(node: int, byte: int, firsts: int, labels: int) -> int:
    """The child of a node of a tree of texts for a byte, or -1."""
    low, end = int64(ldc_int32(firsts, node)), int64(ldc_int32(firsts, node + 1))
    high = end
    while low < high:
        middle = (low + high) >> 1
        if ldc_uint8(labels, middle) < byte:
            low = middle + 1
        else:
            high = middle
    if low < end and ldc_uint8(labels, low) == byte:
        return low
    return int64(-1)


def text_reach(sums: int, steps: int, start: int, end: int, number: int, total: float) -> None:
    """Note a way to a place if it is the first, or better than those before."""
    if ld_int64(steps, end) < 0 or total > ld_float64(sums, end):
        st_float64(sums, end, total)
        st_int64(steps, end, start << 32 | number)


def text_best(where: int, size: int, how: int) -> None:
    """The best way to every place of a word: the place before, and the number of a piece."""
    sums, steps, scores = ld_int64(how, 0), ld_int64(how, 1), ld_int64(how, 5)
    firsts, labels, known = ld_int64(how, 2), ld_int64(how, 3), ld_int64(how, 7)
    for place in range(size + 1):
        st_int64(steps, place, -1)
    st_float64(sums, 0, 0.0)
    place = int64(0)
    while place < size:
        here, width = ld_float64(sums, place), text_width(ld_uint8(where, place))
        end, single = place, int64(0)
        node = text_child(0, int64(ld_uint8(where, end)), firsts, labels)
        while node >= 0:
            end += 1
            number = int64(ldc_int32(ld_int64(how, 4), node))
            if number >= 0:
                text_reach(sums, steps, place, end, number, ldc_float64(scores, number) + here)
                single |= int64(end - place == width)
            if end >= size:
                break
            node = text_child(node, int64(ld_uint8(where, end)), firsts, labels)
        if not single:
            total = ldc_float64(scores, known) + here
            text_reach(sums, steps, place, place + width, ld_int64(how, 6), total)
        place += width


def text_way(steps: int, size: int, unknown: int) -> int:
    """Write the slices of the best way to the end of `steps`; where they begin.

    Unknown ones in a row are one.
    """
    end, ways = size, size + 1
    while end > 0:
        step = ld_int64(steps, end)
        start = step >> 32
        while start > 0 and step & 0xFFFFFFFF == unknown:
            step = ld_int64(steps, start)
            start = step >> 32 if step & 0xFFFFFFFF == unknown else start
        ways -= 1
        st_int64(steps, ways, start << 32 | end - start)
        end = start
    return ways


def text_unigrams(base: int, words: int, many: int, made: int, count: int, how: int) -> int:
    """The pieces of words with the best sum of scores, appended to a list; how many there are.

    `how`: sums, steps, the tree of pieces (firsts, labels, numbers), scores, unknown, known, bytes,
    then the dictionary of pieces, of which those below `known` have a score. One more score is that
    of a character without a piece; such are the piece that several are together, their bytes, or
    the piece `unknown`.
    """
    ids, steps, offsets = ld_int64(how, 0), ld_int64(how, 1), ld_int64(how, 9)
    unknown, known = ld_int64(how, 6), ld_int64(how, 7)
    for word in range(many):
        whole = ld_int64(words, word)
        where, size = base + (whole >> 32), whole & 0xFFFFFFFF
        text_best(where, size, how)
        for place in range(text_way(steps, size, unknown), size + 1):
            step = ld_int64(steps, place)
            here, width = where + (step >> 32), step & 0xFFFFFFFF
            number = text_look(here, width, how + 72)
            if number >= 0 and number < known:
                st_int64(made, count, text_entry(offsets, number))
                count += 1
                continue
            grown = text_byte_ids(here, width, ld_int64(how, 8), ids, 0)
            st_int32(ids, 0, ld_int32(ids, 0) if grown else unknown)
            for item in range(max(grown, 1)):
                st_int64(made, count, text_entry(offsets, int64(ld_int32(ids, item))))
                count += 1
    return count
