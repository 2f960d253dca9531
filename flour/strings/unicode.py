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

from flour.strings.unicode_tables import stored
from objectstore import Blob

CHARACTERS = 0x110000
_BLOCK = 256
#: A replacement of up to this many bytes fits into an entry.
_MOST_PIECE = 63
_SIGMA, _DOTTED_I = 0x3A3, 0x130


#: Where runs of characters begin and end, in turns.
Runs = NDArray[np.int64]


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
    return Kinds(*paged(numbers.astype(np.uint8)))


def paged(entries: NDArray[Any]) -> tuple[Blob, Blob]:
    """The table of one entry for each character: its places, and its blocks."""
    # In the order of their first characters, so that block 0 is that of ASCII.
    blocks: dict[bytes, int] = {}
    raw, size = entries.tobytes(), _BLOCK * entries.itemsize
    index = [
        blocks.setdefault(raw[start : start + size], len(blocks))
        for start in range(0, len(raw), size)
    ]
    every = np.frombuffer(b"".join(blocks), entries.dtype)
    return Blob.of(np.array(index, np.uint16)), Blob.of(every)


@cache
def everything() -> str:
    """All characters, lone surrogates among them, in order."""
    return _text(np.arange(CHARACTERS, dtype=np.uint32))


def _text(codes: NDArray[np.uint32]) -> str:
    return str(codes.tobytes(), "utf-32-le", "surrogatepass")


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def matched(pattern: re.Pattern[str]) -> Runs:
    """The runs of characters that a pattern of one repeated character matches."""
    spans = [match.span() for match in pattern.finditer(everything())]
    return np.array(spans, np.int64).reshape(-1)


def inside(runs: Runs, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True if each of these characters is in one of the runs."""
    return (np.searchsorted(runs, codes, side="right") & 1).astype(bool)


def kinds_between(bounds: NDArray[np.int64], numbers: NDArray[Any]) -> Kinds:
    """The table of numbers that change at these characters, of which the first is 0."""
    return kinds(np.repeat(numbers.astype(np.uint8), np.diff(bounds, append=CHARACTERS)))


@cache
def words() -> Runs:
    """The characters of words: those that a pattern's class for them matches."""
    found = stored("words")
    return matched(re.compile(r"\w+")) if found is None else found[0].astype(np.int64)


@cache
def spaces() -> Kinds:
    """1 for white space."""
    found = stored("spaces")
    return _spaces() if found is None else Kinds(*map(Blob.of, found))


def _spaces() -> Kinds:
    return kinds(inside(matched(re.compile(r"\s+")), np.arange(CHARACTERS)))


@cache
def contexts() -> Kinds:
    """The context that decides the small form of a capital sigma: 1 for letters with case, 2 for
    characters that are skipped.

    Python has no list of these characters, but the sigma it writes behind each tells.
    """
    found = stored("contexts")
    return _contexts() if found is None else Kinds(*map(Blob.of, found))


def _contexts() -> Kinds:
    codes = np.arange(CHARACTERS, dtype=np.uint32)
    codes[_DOTTED_I] = ord("a")  # it grows, and has case as an a has
    ends = _sigmas([32, codes, _SIGMA])
    return kinds(ends + 2 * (_sigmas([32, ord("A"), codes, _SIGMA]) & ~ends))


def _sigmas(pattern: Iterable[Any]) -> NDArray[np.bool_]:
    """For each character, whether the sigma at the end of the pattern is a final one."""
    parts = [np.broadcast_to(np.uint32(part), CHARACTERS) for part in pattern]
    written = _codes(_text(np.stack(parts, axis=1)).lower()).reshape(CHARACTERS, len(parts))
    return np.asarray(written[:, -1] == 0x3C2)


@cache
def lower() -> Mapping:
    """Every character in lower case."""
    return _mapping_of("lower") or _lower()


def _lower() -> Mapping:
    codes = np.arange(CHARACTERS, dtype=np.uint32)
    codes[[_SIGMA, _DOTTED_I]] = ord("a")
    small = _codes(_text(codes).lower())
    assert len(small) == CHARACTERS, "only the dotted I grows"
    changed = {int(code): chr(small[code]) for code in np.flatnonzero(small != codes)}
    return mapping({**changed, _DOTTED_I: chr(_DOTTED_I).lower()}, sigma=True)


@cache
def lower_alone() -> Mapping:
    """Every character in lower case by itself: one for one, in any context."""
    return _mapping_of("lower_alone") or _lower_alone()


def _lower_alone() -> Mapping:
    changed = {}
    for start in range(0, CHARACTERS, _BLOCK):
        letters = everything()[start : start + _BLOCK]
        if letters.lower() != letters:
            changed.update({ord(c): small_letter(c) for c in letters if small_letter(c) != c})
    return mapping(changed)


@cache
def upper(*, alone: bool = False) -> Mapping:
    """Every character that is not ASCII in upper case, `alone` as one character.

    Native code makes ASCII letters capital by itself.
    """
    return _mapping_of("upper_alone" if alone else "upper") or _upper(alone=alone)


def _upper(*, alone: bool) -> Mapping:
    capital = capital_letter if alone else str.upper
    changed = {}
    for start in range(_BLOCK // 2, CHARACTERS, _BLOCK // 2):
        letters = everything()[start : start + _BLOCK // 2]
        if letters.upper() != letters:
            changed.update({ord(c): capital(c) for c in letters if capital(c) != c})
    return mapping(changed)


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
    stored_mapping = _mapping_of("ascii") if only_ascii else None
    return stored_mapping or _without_accents(only_ascii=only_ascii)


def _without_accents(*, only_ascii: bool) -> Mapping:
    keep = str.isascii if only_ascii else _stands_alone
    changed = {}
    for start in range(0, CHARACTERS, _BLOCK):
        letters = everything()[start : start + _BLOCK]
        same = unicodedata.is_normalized("NFKD", letters) and all(map(_stands_alone, letters))
        for letter in "" if same else letters:  # decomposing may change some
            kept = "".join(filter(keep, unicodedata.normalize("NFKD", letter)))
            if kept != letter:
                changed[ord(letter)] = kept
    return mapping(changed, np.arange(CHARACTERS) > 127 if only_ascii else None)


def _stands_alone(letter: str) -> bool:
    return not unicodedata.combining(letter)


def _mapping_of(name: str) -> Mapping | None:
    """A stored mapping, if there is one for this Python."""
    found = stored(name)
    if found is None:
        return None
    places, blocks, pieces, growth = found
    return Mapping(Blob.of(places), Blob.of(blocks), Blob.of(pieces), int(growth[0]))


def built() -> dict[str, list[NDArray[Any]]]:
    """The tables that scripts/unicode_tables.py stores, built from this Python's characters."""
    tables: dict[str, tuple[Any, ...]] = {
        "words": (matched(re.compile(r"\w+")).astype(np.int32),),
        "spaces": _spaces(),
        "contexts": _contexts(),
        "lower": _lower(),
        "lower_alone": _lower_alone(),
        "upper": _upper(alone=False),
        "upper_alone": _upper(alone=True),
        "ascii": _without_accents(only_ascii=True),
    }
    return {name: [_array(part) for part in table] for name, table in tables.items()}


def _array(part: object) -> NDArray[Any]:
    if isinstance(part, int):
        return np.array([part])
    return part.array if isinstance(part, Blob) else np.asarray(part)


def mapping(
    changed: dict[int, str],
    vanishing: NDArray[np.bool_] | None = None,
    *,
    sigma: bool = False,
    marked: Iterable[int] = (),
) -> Mapping:
    """The table of these replacements, negative if `marked`; other characters stay, or vanish."""
    entries = np.zeros(CHARACTERS, np.int32)
    if vanishing is not None:
        entries[:] = vanishing
    pieces, size = [], 0
    growth = 1.0
    for code, text in changed.items():
        raw = text.encode("utf-8", "surrogatepass")
        assert len(raw) <= _MOST_PIECE, "no character has a longer replacement"
        entries[code] = size * 64 + len(raw) + 1
        pieces.append(raw)
        size += len(raw)
        growth = max(growth, len(raw) / len(chr(code).encode("utf-8", "surrogatepass")))
    entries[[*marked]] *= -1
    if sigma:
        entries[_SIGMA] = -1
    written = Blob.of(np.frombuffer(b"".join(pieces) or b"\0", np.uint8))
    return Mapping(*paged(entries), written, int(np.ceil(growth)))
