"""The properties of every character, as this Python has them, in tables for native code.

A table is two arrays: `places` has a number for every 256 characters, and `blocks` that block's 256
entries. Most blocks are equal to others, so a table of all 1,114,112 characters takes some ten
kilobytes. Block 0 is that of the first 256 characters, so ASCII needs no index.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from objectstore import Blob

CHARACTERS = 0x110000
_BLOCK = 256
#: A replacement of up to this many bytes fits into an entry.
_MOST_PIECE = 63
_SIGMA, _DOTTED_I = 0x3A3, 0x130


class Kinds(NamedTuple):
    """A small number for every character."""

    places: Blob
    blocks: Blob


class Mapping(NamedTuple):
    """The replacement of every character.

    An entry is 0 for the character itself and -1 for a capital sigma, else 1 + 64 · start + size of
    the bytes in `pieces`. No document grows to more than `growth` times its bytes.
    """

    places: Blob
    blocks: Blob
    pieces: Blob
    growth: int


def kinds(numbers: NDArray[Any]) -> Kinds:
    """The table of one number (0 to 255) for each character."""
    return Kinds(*_table(numbers.astype(np.uint8)))


def _table(entries: NDArray[Any]) -> tuple[Blob, Blob]:
    rows = entries.reshape(-1, _BLOCK)
    raw = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.strides[0]))).reshape(-1)
    _, first, inverse = np.unique(raw, return_index=True, return_inverse=True)
    # In the order of their first characters, so that block 0 is that of ASCII.
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    index = rank[inverse.reshape(-1)].astype(np.uint16)
    return Blob.of(index), Blob.of(np.ascontiguousarray(rows[first[order]]).reshape(-1))


@cache
def everything() -> str:
    """All characters, lone surrogates among them, in order."""
    return _text(np.arange(CHARACTERS, dtype=np.uint32))


def _text(codes: NDArray[np.uint32]) -> str:
    return str(codes.tobytes(), "utf-32-le", "surrogatepass")


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def matched(pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """The characters in the runs that a pattern of one repeated character matches, as a mask."""
    mask = np.zeros(CHARACTERS, bool)
    for match in pattern.finditer(everything()):
        mask[match.start() : match.end()] = True
    return mask


@cache
def spaces() -> Kinds:
    """1 for white space."""
    return kinds(matched(re.compile(r"\s+")))


@cache
def contexts() -> Kinds:
    """The context that decides the small form of a capital sigma: 1 for letters with case, 2 for
    characters that are skipped.

    Python has no list of these characters, but the sigma it writes behind each tells.
    """
    codes = np.arange(CHARACTERS, dtype=np.uint32)
    codes[_DOTTED_I] = ord("a")  # it grows, and has case as an a has
    ends = _sigmas([32, codes, _SIGMA])
    skipped = _sigmas([32, ord("A"), codes, _SIGMA]) & ~ends
    return kinds(ends + 2 * skipped)


def _sigmas(pattern: Iterable[Any]) -> NDArray[np.bool_]:
    """For each character, whether the sigma at the end of the pattern is a final one."""
    parts = [np.broadcast_to(np.uint32(part), CHARACTERS) for part in pattern]
    written = _codes(_text(np.stack(parts, axis=1)).lower()).reshape(CHARACTERS, len(parts))
    return np.asarray(written[:, -1] == 0x3C2)


@cache
def lower() -> Mapping:
    """Every character in lower case."""
    codes = np.arange(CHARACTERS, dtype=np.uint32)
    codes[[_SIGMA, _DOTTED_I]] = ord("a")
    small = _codes(_text(codes).lower())
    assert len(small) == CHARACTERS, "only the dotted I grows"
    changed = {int(code): chr(small[code]) for code in np.flatnonzero(small != codes)}
    return _mapping({**changed, _DOTTED_I: chr(_DOTTED_I).lower()}, sigma=True)


@cache
def lower_alone() -> Mapping:
    """Every character in lower case by itself: one for one, in any context."""
    changed = {}
    for start in range(0, CHARACTERS, _BLOCK):
        letters = everything()[start : start + _BLOCK]
        if letters.lower() != letters:
            changed.update({ord(c): small_letter(c) for c in letters if small_letter(c) != c})
    return _mapping(changed)


@cache
def upper(*, alone: bool = False) -> Mapping:
    """Every character that is not ASCII in upper case, `alone` as one character.

    Native code makes ASCII letters capital by itself.
    """
    capital = capital_letter if alone else str.upper
    changed = {}
    for start in range(_BLOCK // 2, CHARACTERS, _BLOCK // 2):
        letters = everything()[start : start + _BLOCK // 2]
        if letters.upper() != letters:
            changed.update({ord(c): capital(c) for c in letters if capital(c) != c})
    return _mapping(changed)


def small_letter(letter: str) -> str:
    """A character's one small letter."""
    return "i" if letter == chr(_DOTTED_I) else letter.lower()


def capital_letter(letter: str) -> str:
    """A character's one capital letter; itself if it would take several."""
    upper, title = letter.upper(), letter.title()
    if len(upper) == 1:
        return upper
    return title if len(title) == 1 else letter


@cache
def without_accents(*, only_ascii: bool) -> Mapping:
    """Every character decomposed (NFKD), without combining marks, or without all but ASCII.

    Decomposing a document also puts combining marks in order; as none is left, that is the same as
    decomposing character by character.
    """
    keep = str.isascii if only_ascii else _stands_alone
    changed = {}
    for start in range(0, CHARACTERS, _BLOCK):
        for letter in _touched(start):
            kept = "".join(filter(keep, unicodedata.normalize("NFKD", letter)))
            if kept != letter:
                changed[ord(letter)] = kept
    return _mapping(changed, others_vanish=only_ascii)


def _stands_alone(letter: str) -> bool:
    return not unicodedata.combining(letter)


def _touched(start: int) -> str:
    """The characters from here to the next block, if decomposing may change any."""
    letters = everything()[start : start + _BLOCK]
    same = unicodedata.is_normalized("NFKD", letters) and all(map(_stands_alone, letters))
    return "" if same else letters


def _mapping(
    changed: dict[int, str], *, sigma: bool = False, others_vanish: bool = False
) -> Mapping:
    """The table of these replacements; other characters stay, or vanish if they are not ASCII."""
    entries = np.zeros(CHARACTERS, np.int32)
    entries[128:] = others_vanish
    pieces, size = [], 0
    growth = 1.0
    for code, text in changed.items():
        raw = text.encode("utf-8", "surrogatepass")
        assert len(raw) <= _MOST_PIECE, "no character has a longer replacement"
        entries[code] = size * 64 + len(raw) + 1
        pieces.append(raw)
        size += len(raw)
        growth = max(growth, len(raw) / len(chr(code).encode("utf-8", "surrogatepass")))
    if sigma:
        entries[_SIGMA] = -1
    written = Blob.of(np.frombuffer(b"".join(pieces) or b"\0", np.uint8))
    return Mapping(*_table(entries), written, int(np.ceil(growth)))
