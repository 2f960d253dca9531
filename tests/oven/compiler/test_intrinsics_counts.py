"""Look-ups, many at a time and of short texts, and runs of characters, against plain Python."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flour.strings.dictionary import dictionary, triples
from flour.strings.patterns import automaton
from objectstore import Strings
from tests.oven.compiler.test_intrinsics import WORDS, at, encoded

pytestmark = pytest.mark.once

WORD = r"(?u)\b\w\w+\b"
#: Of every length around those that are looked up in another way.
TEXTS = st.text(alphabet="ab ", min_size=0, max_size=40) | st.text(alphabet="aé日", max_size=9)


def in_both_ways(count: Callable[[int], dict[int, int]]) -> dict[int, int]:
    """What is counted, wherever counts are on the way."""
    aside, in_place = count(0), count(1)
    assert list(aside.items()) == list(in_place.items())
    return aside


def settled(
    counts: NDArray[np.int64], places: NDArray[np.int32], found: int, cleared: int
) -> dict[int, int]:
    """Columns and their counts, once all is counted."""
    if cleared:
        WORDS["text_settle"](*at(counts, places), found)
    return {int(entry >> 32): int(entry & 0xFFFFFFFF) for entry in counts[:found]}


def looked_up(texts: list[str], asked: list[str]) -> dict[int, int]:
    """What text_count makes of some words that lie behind one another."""
    return in_both_ways(lambda cleared: _looked_up(texts, asked, cleared))


def _looked_up(texts: list[str], asked: list[str], cleared: int) -> dict[int, int]:
    table = Strings.of(texts)
    slots, homes = dictionary(table)
    raw = [text.encode() for text in asked]
    base = np.frombuffer(b"".join(raw) + bytes(24), np.uint8)
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int64)
    slices = (ends[:-1] << 32) + np.diff(ends)
    counts = np.zeros(len(asked) + 70, np.int64)
    places = np.full(max(len(texts), 1), 0 if cleared else 12345, np.int32)
    tables = (*at(*table.blobs(), slots), homes, *at(counts, places))
    found = WORDS["text_count"](*at(base, slices), len(asked), *tables, 0, cleared)
    return settled(counts, places, found, cleared)


def expected(texts: list[str], asked: list[str]) -> dict[int, int]:
    known = {text: place for place, text in enumerate(texts)}
    return dict(Counter(known[text] for text in asked if text in known))


@given(st.lists(TEXTS, max_size=200), st.lists(TEXTS, max_size=80))
@settings(max_examples=150)
def test_many_look_ups_at_a_time(texts: list[str], others: list[str]) -> None:
    asked = [*others, *texts[::2], *(text[:-1] for text in texts), *(f"{text}a" for text in texts)]
    assert looked_up(texts, asked) == expected(texts, asked)


def test_full_groups_send_searches_on() -> None:
    texts = [f"entry number {i}" for i in range(20_000)]
    slots, _ = dictionary(Strings.of(texts))
    groups: NDArray[np.int64] = slots.array.astype(np.int64).reshape(-1, 8)
    full = (groups != -1).all(axis=1)
    goes_on = groups[:, 7] & 0x80000000 == 0
    assert 0 < goes_on.sum() < full.sum(), "a full group that nobody was sent on from ends searches"
    asked = [f"entry number {i}" for i in range(0, 40_000, 3)]
    assert looked_up(texts, asked) == expected(texts, asked)


def runs(vocabulary: list[str], document: str, low: int, high: int) -> dict[int, int]:
    """What text_count_runs makes of a document, and text_runs of the rest."""
    return in_both_ways(lambda cleared: _runs(vocabulary, document, low, high, cleared))


def _runs(
    vocabulary: list[str], document: str, low: int, high: int, cleared: int
) -> dict[int, int]:
    table = Strings.of(vocabulary)
    slots, homes = dictionary(table)
    short = triples(table)
    raw = encoded(document + "\x00" * 16)
    size = len(document.encode())
    tables = (*at(*table.blobs(), slots), homes)
    counts = np.zeros(size * (high - low + 1) + 70, np.int64)
    places = np.full(max(len(vocabulary), 1), -1, np.int32)
    assert WORDS["text_clear"](*at(places), cleared * len(places), len(places)) == 1
    where = (*at(raw), size)
    parts = (*at(short.letters, short.cells, short.numbers), short.radix)
    rest = (*at(counts, places), 0, cleared)
    place, found = WORDS["text_count_runs"](*where, 0, low, high, *parts, *tables, *rest)
    made = np.zeros(size * (high - low + 1) + 70, np.int64)
    end, many = WORDS["text_runs"](*where, place, low, high, *at(made), 1 << 40)
    assert size in (end, 0)
    into = (*at(counts, places), found, cleared)
    found = WORDS["text_count"](*at(raw, made), many, *tables, *into)
    return settled(counts, places, found, cleared)


@given(
    st.lists(st.text(alphabet="abc?é\x00\x7f", min_size=1, max_size=4), max_size=60),
    st.text(alphabet="abc?d\x00\x7f", max_size=200),
    st.text(alphabet="abé", max_size=3),
    st.integers(1, 4),
    st.integers(0, 2),
)
@settings(max_examples=150)
def test_runs_of_characters(
    vocabulary: list[str], start: str, end: str, low: int, more: int
) -> None:
    document, high = start + end, low + more
    cuts = (document[i : i + n] for n in range(low, high + 1) for i in range(len(document) - n + 1))
    assert runs(vocabulary, document, low, high) == expected(vocabulary, list(cuts))


def test_short_texts_are_counted_out() -> None:
    letters = "abcdefgh"
    texts = [a + b + c for c in letters for a in letters for b in letters][::2]
    short = triples(Strings.of(texts))
    assert short.radix == len(letters) + 2
    document = "".join(texts) + "zz"
    cuts = [document[i : i + 3] for i in range(len(document) - 2)]
    assert runs(texts, document, 3, 3) == expected(texts, cuts)


def test_only_few_columns_are_cleared() -> None:
    places = np.full(161, 7, np.int32)
    assert WORDS["text_clear"](*at(places), 161, 10) == 0
    assert places.tolist() == [7] * 161
    assert WORDS["text_clear"](*at(places), 160, 10) == 1
    assert places.tolist() == [0] * 160 + [7]


@given(st.lists(st.integers(0, 127), min_size=64, max_size=64), st.sets(st.integers(0, 127)))
def test_kinds_of_bytes_by_ranges(letters: list[int], members: set[int]) -> None:
    """What processors do that cannot look 64 bytes up in a table of 128."""
    table = np.array([k in members for k in range(128)], np.uint8)
    ranges, source = np.zeros(130, np.int64), np.array(letters, np.uint8)
    most = WORDS["text_ranges"](*at(table, ranges))
    found = WORDS["text_kinds"](*at(source, ranges), most) & 2**64 - 1
    assert [found >> k & 1 for k in range(64)] == [int(letter in members) for letter in letters]


def test_few_short_texts_have_no_table_of_their_own() -> None:
    assert triples(Strings.of(["abc", "xyz", "a longer one"])).radix == 0
    assert triples(Strings.of([])).radix == 0
    assert triples(Strings.of(["日本語"] * 50)).radix == 0


def found_words(pattern: str, document: str) -> list[str]:
    made = automaton(pattern)
    assert made is not None
    assert made.run > 0
    raw = encoded(document)
    size = len(raw) - 8
    slices = np.zeros(size + 2, np.int64)
    tables = at(*made.tables)
    many = WORDS["text_tokens"](*at(raw), size, *at(slices), *tables, made.kinds, made.run)
    text = raw.tobytes()
    return [text[s >> 32 : (s >> 32) + (s & 0xFFFFFFFF)].decode() for s in slices[:many].tolist()]


@given(st.text(alphabet="aZ_ 9-\x00\x7f", max_size=260), st.text(alphabet="aé日 ’b", max_size=90))
@settings(max_examples=150)
def test_words_in_blocks_of_any_characters(plain: str, other: str) -> None:
    document = plain + other + plain[::-1]
    assert found_words(WORD, document) == re.findall(WORD, document)


def test_ranges_of_characters() -> None:
    """Classes with the first and the last character, with every second one, with all or none."""
    every = "".join(map(chr, range(128))) * 2
    second = "".join(f"\\x{code:02x}" for code in range(1, 128, 2))
    for inside in ("\\x00-\\x7f", "\\x00", "\\x7e\\x7f", "?-B\\x00-\\x05", second, "é"):
        pattern = f"[{inside}]+"
        assert found_words(pattern, every) == re.findall(pattern, every), inside
