"""Writes the tables of characters as the package tokenizers knows them: flour/strings/tables.

    pip install tokenizers && python scripts/tokenizer_tables.py

Its knowledge of characters is that of several releases of Unicode, none of them Python's, so it is
asked about every character. tests/integrations/test_tokenizers.py fails where the tables are not
what the installed release answers.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from unicode_tables import write

from flour.strings import subword_characters, unicode_tables

#: Every character that is no half of a pair of UTF-16.
CODES = [*range(0xD800), *range(0xE000, 0x110000)]
#: A mark of each class by which marks are put in order, and one that is the last of all.
_MARKS = {unicodedata.combining(chr(code)): chr(code) for code in range(0x1DC0, 0x2FF, -1)}
_LADDER, _LAST = [_MARKS[each] for each in sorted(_MARKS) if 0 < each < 240], "\u0345"
#: Marks of all classes.
_EVERY = {unicodedata.combining(chr(code)): chr(code) for code in CODES}


def tables() -> dict[str, list[NDArray[Any]]]:
    """Each table's arrays, as the installed release answers."""
    from tokenizers.normalizers import NFD, BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    def changed(**options: bool) -> dict[int, str]:
        off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False}
        one = BertNormalizer(**(off | {"lowercase": False} | options)).normalize_str
        return {code: text for code in CODES if (text := one(chr(code))) != chr(code)}

    cut = BertPreTokenizer().pre_tokenize_str
    pieces = {code: len(cut(f"a{chr(code)}a")) for code in CODES}
    hangul = subword_characters.HANGUL
    stripped = changed(strip_accents=True)
    order, classes = NFD().normalize_str, dict[int, int]()
    for code in CODES:
        if order(f"a{_LAST}{chr(code)}") == f"a{chr(code)}{_LAST}":
            above = (order(f"a{chr(code)}{each}")[1] == each for each in _LADDER)
            classes[code] = sum(above)
    kept = {code: classes[code] for code in classes if stripped.get(code) != ""}
    ranks = sorted({*kept.values()})
    return {
        "removed": _runs(code for code, text in changed(clean_text=True).items() if not text),
        "chinese": _runs(changed(handle_chinese_chars=True)),
        "spaces": _runs(code for code, count in pieces.items() if count == 2),
        "alone": _runs(code for code, count in pieces.items() if count == 3),
        "stripped": _texts({code: text for code, text in stripped.items() if code not in hangul}),
        "bounds": _runs(c for c, text in stripped.items() if not text and c not in classes),
        "orders": [
            np.fromiter(kept, np.int32),
            np.fromiter((ranks.index(each) for each in kept.values()), np.int32),
        ],
        "lower": _texts(changed(lowercase=True)),
        **_of_patterns(),
        **_of_normal_forms(classes),
        **_of_clusters(),
    }


def _of_patterns() -> dict[str, list[NDArray[Any]]]:
    """The sets of characters that patterns and other ways to cut words know."""
    from tokenizers import Regex
    from tokenizers.normalizers import Replace
    from tokenizers.pre_tokenizers import Digits, Whitespace

    def matching(pattern: str) -> set[int]:
        drop = Replace(Regex(pattern), "").normalize_str
        parts = (CODES[start : start + 4096] for start in range(0, len(CODES), 4096))
        return {c for part in parts for c in {*part} - {*map(ord, drop("".join(map(chr, part))))}}

    numbers = np.zeros(0x110000, np.int8)
    for number, name in enumerate(subword_characters.CATEGORIES):
        numbers[[*matching(rf"\p{{{name}}}")]] = number + 1
    bounds = np.flatnonzero(np.diff(numbers, prepend=-1))
    whole, digits = Whitespace().pre_tokenize_str, Digits(True).pre_tokenize_str
    return {
        "categories": [bounds.astype(np.int32), numbers[bounds]],
        "words": _runs(matching(r"\w")),
        "whole": _runs(code for code in CODES if len(whole(f"a{chr(code)}a")) == 1),
        "numeric": _runs(code for code in CODES if len(digits(f"a{chr(code)}a")) == 3),
    }


def _of_normal_forms(known: Iterable[int]) -> dict[str, list[NDArray[Any]]]:
    """Tables for the normal forms of Unicode: `known` are the characters with a class."""
    from tokenizers.normalizers import NFC, NFD, NFKD, StripAccents

    forms = [each().normalize_str for each in (NFD, NFKD, NFC)]
    nfd, nfkd, nfc = (
        {c: made for c in CODES if (made := form(chr(c))) != chr(c)} for form in forms
    )
    order, ladder = forms[0], [_EVERY[each] for each in sorted(_EVERY) if 0 < each < 240]
    above = {c: sum(order(f"a{chr(c)}{m}")[1] == m != chr(c) for m in ladder) for c in known}
    bare = StripAccents().normalize_str
    hangul = subword_characters.HANGUL
    return {
        "nfd": _texts({code: text for code, text in nfd.items() if code not in hangul}),
        "nfkd": _texts({code: text for code, text in nfkd.items() if nfd.get(code) != text}),
        "classes": [np.fromiter(above, np.int32), np.fromiter(above.values(), np.int32)],
        "composites": _runs(nfd.keys() - nfc.keys() - {*hangul}),
        "marks": _runs(code for code in CODES if not bare(chr(code))),
    }


def _of_clusters() -> dict[str, list[NDArray[Any]]]:
    """The sets of characters by which clusters of them are told apart.

    A map of characters that makes an x of whatever begins with any byte shows where they end: a
    cluster of fewer than six bytes becomes one x, any other an x for each character.
    """
    from tokenizers.normalizers import Precompiled

    # The units of the trie: the root, one for each byte, and the value that follows each.
    root, leaf, value = 256 << 10, 1 << 8 | 1 << 9 | 1 << 10, 1 << 31
    units = [root, *[0] * 255, *(byte | leaf if byte not in (0, 10) else 0 for byte in range(256))]
    units += [value] * 512
    raw = np.array([4 * len(units), *units], "<u4").tobytes() + b"x\0"
    shown = Precompiled(raw).normalize_str
    mark, joiner, consonant, virama = "\u0301", "\u200d", "\u0915", "\u094d"
    codes = np.array([code for code in CODES if code not in (10, 13)])

    def count(before: str, behind: str) -> NDArray[np.int64]:
        """How many x there are for each character between these."""
        lines = (f"{before}{chr(code)}{behind}" for code in codes)
        return np.array([*map(len, shown("\n".join(lines)).split("\n"))])

    joined, small = count("a", "") == 1, codes < 0x10000
    prepend = count("", "a" + mark) != 2
    alone = ~joined & ~prepend
    parts = "\u1100", "\u1161", "\u11a8"
    leads, vowels, tails = (alone & (count("", part + mark) == 3) for part in parts)
    led, voiced, ended = (small & (count(part, mark) == 3) for part in parts)
    linker = joined & (count(consonant, consonant + mark) == 4)
    found = {
        "joined": joined,
        "prepend": prepend,
        "control": count("", mark * 2) == 2,
        "extend": joined & (count("©", f"{joiner}©{mark}") == 5),
        "pictures": alone & (count("©" + joiner, mark) == 4),
        "consonants": count("", virama + consonant + mark) == 4,
        "linkers": linker,
        "linked": joined & ~linker & (count(consonant + virama, consonant + mark) == 5),
        "leads": leads,
        "vowels": vowels & ~leads & (voiced | ~led),
        "open": vowels & ~leads & led & ~voiced,
        "closed": tails & ~vowels & led,
        "tails": tails & ~vowels & ended,
    }
    return {name: _runs([*codes[flags].tolist()]) for name, flags in found.items()}


def _runs(codes: Iterable[int]) -> list[NDArray[Any]]:
    flags = np.zeros(0x110001, np.int8)
    flags[[*codes]] = 1
    return [np.flatnonzero(np.diff(flags, prepend=0)).astype(np.int32)]


def _texts(changed: dict[int, str]) -> list[NDArray[Any]]:
    texts = changed.values()
    parts = changed, map(len, texts), (ord(letter) for text in texts for letter in text)
    return [np.fromiter(each, np.int32) for each in parts]


def main() -> None:
    """Ask the package and write the tables."""
    place = unicode_tables.path(subword_characters.FILE)
    write(tables(), place)
    print(f"{place}: {place.stat().st_size} bytes")


if __name__ == "__main__":
    main()
