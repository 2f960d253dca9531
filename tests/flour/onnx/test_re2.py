"""Patterns of RE2 as Python's: of any character, the words that onnxruntime cuts."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flour.onnx.errors import NotNative
from flour.onnx.re2 import outside, translated
from flour.strings.patterns import automaton, first_is_longest
from tests.onnx_models import model, node, wanted

_OFTEN = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
_WORDS = [
    "aB, c1  d-e_f\tg\nh",
    "..a..b..",
    "KſsSk ïÏ é, x",
    "abcab ab",
    "",
    "a\u00a0b\u2003c\x0bd",
]


@cache
def _documents() -> list[str]:
    """Some words, and all characters below the surrogates in documents of a thousand."""
    starts = range(1, 0xD800, 1024)
    return [*_WORDS, *("".join(map(chr, range(s, min(s + 1024, 0xD800)))) for s in starts)]


def _cut(documents: list[str], **how: Any) -> list[list[str]]:
    """The words onnxruntime finds: of one character at least, so that the filling is none."""
    given = {"mark": 0, "pad_value": "", "mincharnum": 1} | how
    words = node("Tokenizer", ["X"], ["T"], "com.microsoft", **given)
    proto = model([words], {"X": ("string", [None])}, {"T": "string"})
    found = wanted(proto, {"X": np.array(documents, object)})["T"]
    return [[word for word in row if word] for row in found.tolist()]


_PATTERNS = [
    *(
        "[a-zA-Z0-9_]+",
        r"\w+",
        r"\S+",
        r"\D+",
        r"\W+",
        r"[^\S\n]+",
        r"[\S]",
        r"[\d.,]+",
        "..",
        ".+",
    ),
    *("(?s).+", "(?i)[k-s]+", "(?i)i+", "(?i)[^s]+", r"(?i)\w+", r"(?i)[\W]+", r"(?is)a.b?"),
    *("[[:alpha:]]+", "[[:^alpha:]]+", "[^[:punct:] ]+", "[[:space:]]+", "[[:xdigit:]]", "[]a]+"),
    *("(?P<x>a|b)+", "(a|b)c", r"\x61+", r"\x{e9}", r"\Qa.b\E", r"[a-]+", r"[a\-z]+", "[a-z&&b]+"),
    *(r"\b\w\w+\b", r"\b\w+\b|[?!]", "[a-z]+|[0-9]", "a??b", "a+?b", "é+", "[à-ÿ]+", r"\v", r"\a"),
    *("[^a]+", r"[^\n]+", "a{2}", "a*b|a", r"\w+(?:'\w+)?", r"\Ba|\bb", "(?:ab|a)c?"),
]


@pytest.mark.parametrize("number", range(len(_PATTERNS)))
def test_every_character_is_in_the_same_words(number: int) -> None:
    pattern = _PATTERNS[number]
    made, documents = translated(pattern), _documents()
    assert first_is_longest(made)
    assert automaton(made) is not None
    assert [re.findall(made, text) for text in documents] == _cut(documents, tokenexp=pattern)


@cache
def _known_characters() -> list[str]:
    """Documents of all characters that this interpreter's Unicode has, of the first two planes."""
    every = [c for c in map(chr, range(1, 0x20000)) if unicodedata.category(c) not in ("Cn", "Cs")]
    return ["".join(every[start : start + 1024]) for start in range(0, len(every), 1024)]


_PROPERTIES = [
    *(r"\pL+", r"\p{Lu}", r"\PN+", r"[\p{L}\p{N}_]+", r"\p{^Zs}+", r"[^\p{P}\s]+"),
    *(r"[^\PM]", r"\P{^Sc}", r"\p{Lt}|\pC"),
]


@pytest.mark.parametrize("number", range(len(_PROPERTIES)))
def test_properties_of_characters_are_those_of_unicode(number: int) -> None:
    pattern = _PROPERTIES[number]
    made, documents = translated(pattern), _known_characters()
    assert first_is_longest(made)
    assert [re.findall(made, text) for text in documents] == _cut(documents, tokenexp=pattern)


_SEPARATORS = [
    *(["."], [" +"], [r"\s+"], [r"\W"], ["[^a-z]"], ["a|b"], [" ", ","], ["[[:punct:]]"], ["]"]),
    *(
        [r"\n"],
        ["\n"],
        [" ", "[.]", r"\?", ",", ";", ":", r"\!"],
        [r"[\s,.]+", "é"],
        ["-"],
        ["a+?"],
    ),
]


@pytest.mark.parametrize("number", range(len(_SEPARATORS)))
def test_what_is_between_separators(number: int) -> None:
    separators, documents = _SEPARATORS[number], _documents()
    made = outside(separators)
    assert [re.findall(made, text) for text in documents] == _cut(documents, separators=separators)


_OTHERS = [
    *(
        r"\p{Greek}+",
        r"[\p{Cn}]",
        r"\p{Lx}",
        r"\p",
        r"\pl",
        r"\p{Any}",
        r"(?i)\p{Lu}",
        "^a",
        "a$",
        r"\Aa",
        r"\za",
        "(?U)a+",
        "a(?i)b",
        "(?i)é",
        "a{,2}",
    ),
    *(r"\1", r"\u0061", "[a", "[b-a]", r"[a-\d]", "[[:no:]]", "[[:w:]]", r"\x{110000}", r"[^\W\w]"),
]


@pytest.mark.parametrize("pattern", _OTHERS)
def test_what_is_not_translated(pattern: str) -> None:
    with pytest.raises(NotNative):
        translated(pattern)


@pytest.mark.parametrize("separator", ["ab", "a*", "(a)", "^a", "c$", "", "(?i)k", "a{2}"])
def test_separators_of_more_than_one_character(separator: str) -> None:
    with pytest.raises(NotNative, match="separator"):
        outside([" ", separator])


_ATOMS = st.sampled_from(["a", "b", "ab", "[ab]", ".", r"\b", "c"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["?", "??", "+", "+?", "{1,2}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    )


@_OFTEN
@given(st.recursive(_ATOMS, _grown, max_leaves=5))
def test_where_the_first_match_is_said_to_be_the_longest_it_is(pattern: str) -> None:
    if automaton(translated(pattern)) is None or not first_is_longest(translated(pattern)):
        return
    documents = ["aab", "abab c", "cabbac", "ab", "bba", "abcabc", " a b", "acbbcaab"]
    found = [re.findall(translated(pattern), text) for text in documents]
    assert found == _cut(documents, tokenexp=pattern)


def test_a_match_that_comes_first_but_is_not_the_longest() -> None:
    assert _cut(["abab"], tokenexp="a|ab") == [["ab", "ab"]]
    assert re.findall("a|ab", "abab") == ["a", "a"]
    assert not any(map(first_is_longest, ["a|ab", "a+?", "ab??", r"\w+|\w+@\w+"]))
