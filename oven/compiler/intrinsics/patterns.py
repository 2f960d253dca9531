"""The words of native code for token patterns: the matches of an automaton (see
flour.strings.patterns).

They go on where oven.compiler.intrinsics.text ends, and work the same way.

An automaton looks ahead until no match can get any longer, and all that it saw behind the end of a
match is looked at again by the next. That costs little, but for documents made to make it cost
much: `a+b` over nothing but `a` would look at everything from every place. So what was looked at
in vain is counted. Once it is as much as the whole document, the rest of the document is read from
its end, and every place takes a note of the states from which there is a match to come. From there
on nothing is looked at in vain.
"""

from __future__ import annotations

from oven.compiler.intrinsics.text import text_kind_at, text_stretches, text_width
from oven.compiler.words import *


def text_tokens(
    where: int,
    size: int,
    made: int,
    index: int,
    blocks: int,
    moves: int,
    after: int,
    hopes: int,
    kinds: int,
    least: int,
) -> int:
    """A list of all matches of an automaton (see flour.strings.patterns); how many there are.

    `moves` has a number for each state and kind of character: twice the next state (0: none), plus
    1 if what was read before this character is a match. The last kind is the end of the document.
    `after` has the state to start in behind a character of each kind, in the end that at the front.
    `hopes` is what text_hopeful reads, or one zero where there is no such table. Where `least` is
    above zero, matches are the runs of so many characters of kind 1 or more.
    """
    if least > 0:
        return text_stretches(where, size, made, index, blocks, least)
    count, place, wasted = int64(0), int64(0), int64(0)
    start = int64(ldc_int32(after, kinds - 1))
    most = size if ldc_int32(hopes, 0) > 0 else int64(0x7FFFFFFFFFFFFFFF)
    while place < size and wasted <= most:
        kind = text_kind_at(where, place, index, blocks)
        move = ldc_int32(moves, start * kinds + kind)
        ahead = place + text_width(ld_uint8(where, place))
        if move < 2:
            place, start = ahead, int64(ldc_int32(after, kind))
            continue
        stop, last = int64(-1), kind
        behind, begun = kind, ahead
        while move > 1:
            now = kinds - 1
            if ahead < size:
                now = text_kind_at(where, ahead, index, blocks)
            move = ldc_int32(moves, (move >> 1) * kinds + now)
            if move & 1:
                stop, last = ahead, behind
            behind = now
            if ahead < size:
                ahead += text_width(ld_uint8(where, ahead))
        if stop < 0:
            place, start = begun, int64(ldc_int32(after, kind))
        else:
            st_int64(made, count, place << 32 | stop - place)
            count += 1
            place, start = stop, int64(ldc_int32(after, last))
        wasted += ahead - place
    if place >= size:
        return count
    return text_hopeful(
        where, size, made, index, blocks, moves, after, hopes, kinds, place, start, count
    )


def text_hopeful(
    where: int,
    size: int,
    made: int,
    index: int,
    blocks: int,
    moves: int,
    after: int,
    hopes: int,
    kinds: int,
    place: int,
    start: int,
    count: int,
) -> int:
    """The matches from a place and a state on, left by text_tokens; their number in all.

    `hopes` has the number of states, then for each set of hopeful states what it becomes ahead of
    a character of each kind, and whether each state is in it; first the set behind the end. The
    notes, four bytes for each of the document, fill the second half of `made`: a slice takes eight
    bytes and a match at least one, so slices never reach a note that is still to be read.
    """
    states, table = int64(ldc_int32(hopes, 0)), hopes + 4
    width, notes = kinds + states, made + 4 * size + 4
    text_note(where, size, notes, index, blocks, table, kinds, width, place)
    while place < size:
        if ldc_int32(table, ld_int32(notes, place) * width + kinds + start) == 0:
            start = int64(ldc_int32(after, text_kind_at(where, place, index, blocks)))
            place += text_width(ld_uint8(where, place))
            continue
        state, ahead, stop = start, place, place
        behind, last = kinds - 1, kinds - 1
        while ldc_int32(table, ld_int32(notes, ahead) * width + kinds + state) != 0:
            now = kinds - 1
            if ahead < size:
                now = text_kind_at(where, ahead, index, blocks)
            move = int64(ldc_int32(moves, state * kinds + now))
            if move & 1:
                stop, last = ahead, behind
            behind, state = now, move >> 1
            if ahead < size:
                ahead += text_width(ld_uint8(where, ahead))
        st_int64(made, count, place << 32 | stop - place)
        count += 1
        place, start = stop, int64(ldc_int32(after, last))
    return count


def text_note(
    where: int,
    size: int,
    notes: int,
    index: int,
    blocks: int,
    table: int,
    kinds: int,
    width: int,
    least: int,
) -> None:
    """Note for every character from `least` on, from the end backwards, which set it has."""
    found, place = int64(ldc_int32(table, kinds - 1)), size
    st_int32(notes, size, found)
    while place > least:
        place -= 1
        while ld_uint8(where, place) & 192 == 128:
            place -= 1
        kind = text_kind_at(where, place, index, blocks)
        found = int64(ldc_int32(table, found * width + kind))
        st_int32(notes, place, found)
