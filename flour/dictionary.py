"""Dictionaries in the one form in which native code looks words up.

The texts stay what they are, a table of strings. Beside them lies an array of slots, each with the
number of a text and a tag of its hash; a text lives in the first free slot from its home, a group
of eight, on. Hits are compared byte for byte, but texts of up to three bytes are their own tags.
The form depends on the texts alone, so all plans with one vocabulary share one array; it takes some
13 bytes an entry, and the table of strings 8 bytes beside the texts themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flour.errors import ParameterError
from objectstore import Blob, Strings

# As in oven.words_count, which explains them.
_STIR = np.int64(-0x61C8864680B583EB)
_TURN = np.int64(-0x7A1435883D4D519D)
_SIZE = np.int64(0x165667B19E3779F9)
_HALF = np.int64(0xFFFFFFFF)
_LONG = np.int64(0x40000000)
_EMPTY = -1
#: Slots that are looked at together, and how many there are for a hundred texts.
_GROUP, _SPARE = 8, 150


class Dictionary(NamedTuple):
    """The slots of a table of texts, and how many groups of them are homes."""

    slots: Blob
    homes: int


_known: WeakKeyDictionary[Strings, Dictionary] = WeakKeyDictionary()


def dictionary(texts: Strings) -> Dictionary:
    """The slots of these texts, made once for as long as the table lives."""
    made = _known.get(texts)
    if made is None:
        made = _known[texts] = _made(texts)
    return made


def _made(texts: Strings) -> Dictionary:
    codes, short = hashes(texts)
    last = _last_ones(texts, codes)
    count = len(last)
    homes = max(count * _SPARE // (_GROUP * 100), 1)
    home = (((codes[last] & _HALF) * homes) >> 32) * _GROUP
    order = np.argsort(home, kind="stable")
    steps = np.arange(count)
    place = np.maximum.accumulate(home[order] - steps) + steps
    if int((place - home[order]).sum()) > 64 * count + 4096:
        raise ParameterError("these strings were made to share one place in a dictionary")
    end = int(place[-1]) + 1 if count else 0
    # One group more, so that every search meets an empty slot.
    slots = np.full((max(end // _GROUP + 1, homes) + 1) * _GROUP, _EMPTY, np.int64)
    tags = np.where(short >= 0, short, codes >> 32 | _LONG)
    slots[place] = (tags[last] << 32 | last)[order]
    return Dictionary(Blob.of(slots), homes)


def _last_ones(texts: Strings, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of every text; of equal ones the last, which is what a Python dict has."""
    if len(np.unique(codes)) == len(codes):
        return np.arange(len(codes))
    known = {text: number for number, text in enumerate(texts.to_list())}
    return np.fromiter(known.values(), np.int64, len(known))


def hashes(texts: Strings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The hash of every text, and the tag of those that are their own tags (else -1)."""
    starts, sizes = texts.offsets[:-1], np.diff(texts.offsets)
    words = _every_word(texts.data)
    codes = sizes * _SIZE
    for begin in range(0, max(int(sizes.max(initial=0)), 16), 8):
        # Sixteen bytes are always stirred in, zeros where there are none.
        rows = np.flatnonzero(sizes > begin) if begin >= 16 else np.arange(len(sizes))
        part = _word(words, starts[rows] + begin, sizes[rows] - begin)
        code = codes[rows]
        code = code ^ code >> 29 if begin else code
        codes[rows] = (code ^ part) * _STIR
    codes = (codes ^ codes >> 29) * _TURN
    codes ^= codes >> 32
    short = words[starts] & (np.int64(1) << 8 * np.minimum(sizes, 3)) - 1 if len(starts) else sizes
    return codes, np.where(sizes < 4, sizes << 24 | short, -1)


def _every_word(data: NDArray[np.uint8]) -> NDArray[Any]:
    """The eight bytes from every byte on, zeros behind the last."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    return np.ndarray((len(data) + 1,), np.int64, padded, strides=(1,))


def _word(words: NDArray[Any], starts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """Up to eight bytes from each start as a number; where they are fewer, its lowest are zero."""
    found = words[np.minimum(starts, len(words) - 1)] << (-8 * np.minimum(sizes, 8) & 63)
    return np.where(sizes > 0, found, 0)
