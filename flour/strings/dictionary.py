"""Dictionaries in the one form in which native code looks words up.

The texts remain a table of strings. Beside them is an array of slots, each with the number of a
text and a tag of its hash; a text is in the first free slot from its home, a group of eight, on.
Hits are compared byte for byte, but texts of up to three bytes are their own tags. The form depends
on the texts alone, so all plans with one vocabulary share one array; it takes some 13 bytes an
entry, and the table of strings 8 bytes beside the texts themselves.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from objectstore import Blob, Strings

# As in oven.compiler.intrinsics.counts, which explains them.
_STIR = np.int64(-0x61C8864680B583EB)
_TURN = np.int64(-0x7A1435883D4D519D)
_SECOND = np.int64(-0x3D4D51C2D82B14B1)
_THIRD = np.int64(0x27D4EB2F165667C5)
_SIZE = np.int64(0x165667B19E3779F9)
_HALF = np.int64(0xFFFFFFFF)
_LONG, _ENDS, _NUMBER = np.int64(0x40000000), np.int64(0x80000000), np.int64(0x7FFFFFFF)
_EMPTY = -1
#: Slots that are compared at once, and the number of slots for a hundred texts.
_GROUP, _SPARE = 8, 150
#: The most bytes per text that the cells of short texts may take.
_TRIPLE_BYTES = 16


class Dictionary(NamedTuple):
    """The slots of a table of texts, and the number of groups that are homes."""

    slots: Blob
    homes: int


_dictionaries: WeakKeyDictionary[Strings, Dictionary] = WeakKeyDictionary()


def dictionary(texts: Strings) -> Dictionary:
    """The slots of these texts, made once for as long as the table lives."""
    entry = _dictionaries.get(texts)
    if entry is None:
        codes, short = hashes(texts)
        last = _last_ones(texts, codes)
        homes = max(len(last) * _SPARE // (_GROUP * 100), 1)
        entry = _dictionaries[texts] = Dictionary(Blob.of(_slots(homes, codes, short, last)), homes)
    return entry


def _slots(
    homes: int, codes: NDArray[np.int64], short: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The content of every slot."""
    count = len(last)
    home = (((codes[last] & _HALF) * homes) >> 32) * _GROUP
    order = np.argsort(home, kind="stable")
    steps = np.arange(count)
    slot = np.maximum.accumulate(home[order] - steps) + steps
    if int((slot - home[order]).sum()) > 64 * count + 4096:
        raise ParameterError("these strings were made to share one place in a dictionary")
    end = int(slot[-1]) + 1 if count else 0
    # One group more, so that every search meets an empty slot.
    slots = np.full((max(end // _GROUP + 1, homes) + 1) * _GROUP, _EMPTY, np.int64)
    tags = np.where(short >= 0, short, codes >> 32 & _NUMBER | _LONG)
    slots[slot] = (tags[last] << 32 | last)[order]
    slots[_GROUP - 1 :: _GROUP] |= _ENDS
    slots[_passed(home[order], slot)] ^= _ENDS
    return slots


def _passed(home: NDArray[np.int64], slot: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last slots of all groups that a search has to continue beyond."""
    first, last = home // _GROUP, slot // _GROUP
    size = int(last.max(initial=0)) + 2
    over = np.bincount(first, minlength=size) - np.bincount(last, minlength=size)
    return np.flatnonzero(np.cumsum(over) > 0) * _GROUP + _GROUP - 1


def _last_ones(texts: Strings, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of every text; of equal ones the last, which is what a Python dict has."""
    if len(np.unique(codes)) == len(codes):  # so no two texts are equal
        return np.arange(len(codes))
    raw, cuts = texts.data.tobytes(), pairwise(texts.offsets.tolist())
    last = {raw[start:end]: number for number, (start, end) in enumerate(cuts)}
    return np.fromiter(last.values(), np.int64, len(last))


class Triples(NamedTuple):
    """All texts of up to three characters of ASCII, each a number of up to three digits.

    `letters` has the digit of each character: from 2 on, 1 where no such text has it. 32 numbers
    share a cell: a bitmap of those that are texts, and the number of texts in the cells before.
    That gives a text's rank, and `numbers` has the number of the text of each rank.
    """

    letters: Blob
    cells: Blob
    numbers: Blob
    radix: int


_NO_TRIPLES = Triples(
    Blob.of(np.zeros(128, np.uint8)),
    Blob.of(np.zeros(1, np.int64)),
    Blob.of(np.zeros(1, np.int32)),
    0,
)
_triples: WeakKeyDictionary[Strings, Triples] = WeakKeyDictionary()


def triples(texts: Strings) -> Triples:
    """The short texts of a table, made once for as long as it lives; none where they are few."""
    entry = _triples.get(texts)
    if entry is None:
        entry = _triples[texts] = _built_triples(texts)
    return entry


def _built_triples(texts: Strings) -> Triples:
    starts, sizes = texts.offsets[:-1], np.diff(texts.offsets)
    short = np.flatnonzero((sizes > 0) & (sizes < 4))
    positions = starts[short, None] + np.arange(-3, 0) + sizes[short, None]
    inside = positions >= starts[short, None]
    codes = np.where(inside, texts.data[np.maximum(positions, 0)] if len(short) else 0, 0)
    plain = (codes < 128).all(axis=1)
    short, codes, inside = short[plain], codes[plain], inside[plain]
    used = np.unique(codes[inside])
    radix = len(used) + 2
    if radix**3 // 4 > _TRIPLE_BYTES * len(short):
        return _NO_TRIPLES
    letters = np.ones(128, np.uint8)
    letters[used] = np.arange(2, radix)
    digits = np.where(inside, letters[codes], 0).astype(np.int64)
    index = (digits[:, 0] * radix + digits[:, 1]) * radix + digits[:, 2]
    # Of equal texts the last counts, as in a Python dict.
    different, last = np.unique(index[::-1], return_index=True)
    cells = np.zeros(radix**3 // 32 + 1, np.int64)
    np.bitwise_or.at(cells, different >> 5, np.int64(1) << (different & 31))
    before = np.cumsum(np.bincount(different >> 5, minlength=len(cells)))
    cells[1:] |= before[:-1] << 32
    numbers = np.append(short[::-1][last], 0).astype(np.int32)
    return Triples(Blob.of(letters), Blob.of(cells), Blob.of(numbers), radix)


def hashes(texts: Strings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The hash of every text, and the tag of those that are their own tags (else -1)."""
    offsets, data = texts.offsets, texts.data
    starts, sizes = offsets[:-1], np.diff(offsets)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    # The eight bytes from every byte on, zeros behind the last.
    words = np.ndarray((len(data) + 1,), np.int64, padded, strides=(1,))
    codes = (sizes * _SIZE ^ _word(words, starts, sizes)) * _STIR
    codes += _word(words, starts + 8, sizes - 8) * _SECOND
    codes += _word(words, starts + 16, sizes - 16) * _THIRD
    for begin in range(24, int(sizes.max(initial=0)), 8):
        rows = np.flatnonzero(sizes > begin)
        part = _word(words, starts[rows] + begin, sizes[rows] - begin)
        code = codes[rows]
        codes[rows] = (code ^ code >> 29 ^ part) * _STIR
    codes = (codes ^ codes >> 29) * _TURN
    codes ^= codes >> 32
    short = words[starts] & (np.int64(1) << 8 * np.minimum(sizes, 3)) - 1 if len(starts) else sizes
    return codes, np.where(sizes < 4, sizes << 24 | short, -1)


def _word(words: NDArray[Any], starts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """Up to eight bytes from each start as a number; where they are fewer, its lowest are zero."""
    shifted = words[np.minimum(starts, len(words) - 1)] << (-8 * np.minimum(sizes, 8) & 63)
    return np.where(sizes > 0, shifted, 0)
