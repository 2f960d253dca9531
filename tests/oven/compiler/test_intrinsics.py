"""The words of native code for text do what Python does, for every character."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from flour.strings import unicode
from flour.strings.dictionary import dictionary, hashes
from flour.strings.hashing import murmur3
from flour.strings.patterns import automaton
from flour.strings.unicode import everything
from objectstore import Blob, Strings
from tests import checked
from tests.native_words import Words

pytestmark = pytest.mark.once

_FOLD = 0x2020202020202020
WORDS = Words()


def encoded(text: str) -> NDArray[np.uint8]:
    """The bytes of a text, and eight more."""
    return np.frombuffer(text.encode("utf-8", "surrogatepass") + bytes(8), np.uint8)


def decoded(raw: NDArray[np.uint8]) -> str:
    return raw.tobytes().decode("utf-8", "surrogatepass")


def at(*items: Blob | NDArray[Any]) -> list[int]:
    """Addresses."""
    return [(i.array if isinstance(i, Blob) else i).ctypes.data for i in items]


def mapped(text: str, table: unicode.Mapping, fold: int = 0) -> str:
    source = encoded(text)
    size = len(source) - 8
    made = np.zeros(size * table.growth + 16, np.uint8)
    tables = (table.places, table.blocks, table.pieces, *unicode.contexts())
    grown = WORDS["text_map"](*at(source), size, *at(made), fold, *at(*tables))
    assert grown <= size * table.growth
    return decoded(made[:grown])


def lower(text: str) -> str:
    return mapped(text, unicode.lower(), _FOLD)


def finder(pattern: str, *, hopeful: bool = False) -> Callable[[str], list[str]] | None:
    """What native code finds of a pattern, if it has an automaton (and a table for this way)."""
    found = automaton(pattern)
    if found is None or (hopeful and found.hopes.array[0] == 0):
        return None
    tables, first = at(*found.tables), int(found.after.array[-1])
    cut = (found.before, found.inside, found.behind)

    def tokens(text: str) -> list[str]:
        source = encoded(text)
        size = len(source) - 8
        made = np.zeros(size + 1, np.int64)
        where = (*at(source), size, *at(made), *tables, found.kinds)
        if hopeful:
            count = WORDS["text_hopeful"](*where, 0, first, 0)
        else:
            count = WORDS["text_tokens"](*where, found.run)
        if found.trims:
            WORDS["text_trim"](*at(source, made), count, *cut)
        return [
            decoded(source[start : start + length])
            for start, length in ((n >> 32, n & 0xFFFFFFFF) for n in made[:count].tolist())
        ]

    return tokens


def tokens(pattern: str, text: str) -> list[str] | None:
    found = finder(pattern)
    return None if found is None else found(text)


# --- characters -----------------------------------------------------------------------------------


def test_every_character_in_lower_case() -> None:
    assert lower(everything()) == everything().lower()


@pytest.mark.parametrize("around", ["{0}Σ ", "A{0}Σ{0}B ", "AΣ{0}B ", "AΣ{0} ", "1{0}Σ{0}1 "])
def test_a_capital_sigma_beside_every_character(around: str) -> None:
    text = "".join(map(around.format, everything()))
    assert lower(text) == text.lower()


def test_every_character_without_accents() -> None:
    apart = unicodedata.normalize("NFKD", everything())
    plain = "".join(letter for letter in apart if not unicodedata.combining(letter))
    assert mapped(everything(), unicode.without_accents(only_ascii=False)) == plain
    ascii_only = apart.encode("ascii", "ignore").decode()
    assert mapped(everything(), unicode.without_accents(only_ascii=True)) == ascii_only


def odd_cases() -> list[str]:
    """Characters that grow, shrink or change shape between cases, and some of every context."""
    odd = [c for c in everything() if len(c.lower()) != 1 or len(c.upper()) != 1]
    odd += [c for c in everything() if c.lower() != c and c.lower().upper() != c]
    return [*dict.fromkeys(odd), *"aA1 .'-_:\u0301\u0345\u00ad\u200d\u2019\x00ΣσςſK日🥨\ud800"]


def test_every_pair_of_odd_cases_beside_a_sigma() -> None:
    """In one text for each first character: what a sigma becomes depends on both of its sides."""
    odd = odd_cases()
    assert len(odd) > 100
    for first in odd:
        text = "".join(f"{first}{second} a{first}Σ{second} Σ{second}{first}Σ " for second in odd)
        assert lower(text) == text.lower()


@given(st.text(alphabet="aAzZ@[`{ ßΣİéǅ\u0301\x00日🥨", max_size=40))
@settings(max_examples=300)
def test_mixed_text_in_lower_case(text: str) -> None:
    assert lower(text) == text.lower()


def squeezed(text: str, word: str) -> str:
    source = encoded(text)
    made = np.zeros(2 * len(source) + 16, np.uint8)
    tables = at(*unicode.spaces())
    return decoded(made[: WORDS[word](*at(source), len(source) - 8, *at(made), *tables)])


@given(st.text(alphabet="ab \t\n\x1c\u2003\u0085é日", max_size=30))
@settings(max_examples=300)
def test_white_space(text: str) -> None:
    assert squeezed(text, "text_squeeze") == re.sub(r"\s\s+", " ", text)
    assert squeezed(text, "text_pad") == "".join(f" {word} " for word in text.split())


# Plain text is taken 64 bytes at a time, so what is not plain stands on every border of those.
LONG = st.lists(
    st.sampled_from(
        ["a", " ", "  ", "\t ", "\x01", "\x7f", "Az[", "日", "İ", "\u2003", "W" * 29, "x" * 64]
    ),
    max_size=16,
).map("".join)


@given(LONG)
@settings(max_examples=400)
def test_long_text(text: str) -> None:
    assert squeezed(text, "text_squeeze") == re.sub(r"\s\s+", " ", text)
    assert lower(text) == text.lower()


@pytest.mark.parametrize("odd", ["  ", "日", "Z", " \u2003", "\x01 ", "\x85\x85"])
def test_what_is_odd_on_every_border(odd: str) -> None:
    for before in range(140):
        for behind in (0, 1, 7, 8, 63, 64, 65):
            text = "q" * before + odd + "Q" * behind
            assert squeezed(text, "text_squeeze") == re.sub(r"\s\s+", " ", text)
            assert lower(text) == text.lower()


# --- dictionaries ---------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=20), max_size=30), st.lists(st.text(max_size=20), max_size=10))
@settings(max_examples=200)
def test_dictionaries_find_what_they_hold(texts: list[str], others: list[str]) -> None:
    known = {text: place for place, text in enumerate(texts)}
    asked = [*texts, *others, *(text[:-1] for text in texts), *(text + "\x00" for text in texts)]
    table = Strings.of(texts)
    slots, homes = dictionary(table)
    tables = [*at(*table.blobs(), slots), homes]
    assert [WORDS["text_find"](*at(raw := encoded(t)), len(raw) - 8, *tables) for t in asked] == [
        known.get(text, -1) for text in asked
    ]


def test_the_hash_is_the_same_in_both_places() -> None:
    texts = ["", "a", "abc", "abcd", "12345678", "123456789", "x" * 100, "日本語", "\x00"]
    codes, _ = hashes(Strings.of(texts))
    want = [WORDS["text_hash"](*at(raw := encoded(t)), len(raw) - 8) for t in texts]
    assert codes.tolist() == want


def test_a_million_entries_take_little_room() -> None:
    table = Strings.of([f"{i:07}" for i in range(200_000)])
    extra = dictionary(table).slots.nbytes + table.offsets.nbytes
    keys = table.data.nbytes
    assert keys + extra <= 2 * keys + 16 * len(table)


def test_texts_made_to_collide_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from flour.strings import dictionary as module

    alike = Strings.of([f"text {i}" for i in range(500)])
    same = np.zeros(500, np.int64)
    monkeypatch.setattr(module, "hashes", lambda _: (same, same - 1))
    with pytest.raises(ParameterError, match="one place"):
        dictionary(alike)


@given(st.binary(max_size=40))
@settings(max_examples=300)
def test_murmur(data: bytes) -> None:
    raw = np.frombuffer(data + bytes(8), np.uint8)
    found = WORDS["text_murmur"](raw.ctypes.data, len(data))
    assert found == murmur3(data) % 2**32


@given(st.lists(st.integers(0, 2**62), max_size=300))
@settings(max_examples=100)
def test_sorting(values: list[int]) -> None:
    made, spare = np.array(values, np.int64), np.zeros(len(values), np.int64)
    WORDS["text_sort"](*at(made), len(values), *at(spare))
    assert made.tolist() == sorted(values)


# --- within memory --------------------------------------------------------------------------------


@given(st.text(alphabet="aA ßΣİ\u0301日🥨\ud800", max_size=12))
@settings(max_examples=60)
def test_words_stay_in_their_memory(text: str) -> None:
    memory = checked.Memory()
    words = checked.vocabulary(memory)
    source = encoded(text)
    size = len(source) - 8
    table = unicode.without_accents(only_ascii=False)
    tables = (table.places, table.blocks, table.pieces, *unicode.contexts())
    made = memory.add("scratch", np.zeros(table.growth * size + 16, np.uint8), writable=True)
    known = [memory.add("table", item.array) for item in tables]
    words["text_map"](memory.add("text", source), size, made, 0, *known)


# --- hostile documents ----------------------------------------------------------------------------


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@pytest.mark.parametrize(
    "unit", ["a", "\u0301", "Σ", "Σ\u0301", "a ", "\x00", "🥨", "aΣ'"], ids=ascii
)
def test_time_grows_with_the_document(unit: str) -> None:
    """Four times the document may take eight times as long, not sixteen."""
    short, long = unit * 20_000, unit * 80_000
    assert lower(short) == short.lower()
    for call in (lower, lambda text: tokens(r"(?u)\b\w\w+\b", text)):
        rounds = [(seconds(partial(call, short)), seconds(partial(call, long))) for _ in range(5)]
        once, many = map(min, zip(*rounds, strict=True))
        assert many < 8 * once + 0.01
