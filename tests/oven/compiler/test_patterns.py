"""Automata find what Python's `re` finds, whatever the pattern and the text."""

from __future__ import annotations

import random
import re
import time
import warnings
from collections.abc import Callable

import pytest

from flour.strings.patterns import automaton
from tests.oven.compiler.test_intrinsics import finder

pytestmark = pytest.mark.once

# --- any pattern ----------------------------------------------------------------------------------

ATOMS = ["a", "b", "c", "_", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", "[ab]", "[^a]", "[a-c1]"]
ATOMS += [".", "é", "ß", "(?:ab)", "(?:a|ab)", "(?:a|b|ab|abc)", "(?:ba?)", "(?i:a)", "(?i:ſ)"]
ATOMS += [r"[^\W\d_]", r"[\w'-]", r"[\s\S]", r"[À-ÿ]", r"[^\x00-\x7f]", "[一-鿿]", "[\U0001f300-🫿]"]
ATOMS += [
    r"[^\S\n]",
    "σ",
    "ς",
    "K",
    "i",
    "İ",
    r"\.",
    "(?s:.)",
    r"(?-i:a)",
    r"(?a:\w)",
    "(?x: a b )",
]
TIMES = ["", "", "", "?", "*", "+", "{2}", "{1,2}", "{2,3}", "{2,}", "??", "*?", "+?", "{1,3}?"]
TIMES += ["{,2}", "{2,}?", "{0}", "{3}?"]
FLAGS = ["", "", "", "(?i)", "(?a)", "(?s)", "(?ai)", "(?m)", "(?x)"]
LETTERS = "aaabbbccc_1 1é ßΣA\n\u0301日"
ODD = LETTERS + "sſSKkKiİıIσς\x00\x1c\x85\u2028\ud800🥨²٣ªǅ\u200d'-. \t\r\u00a0\u3000"


def drawn_pattern(rng: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.15:
            parts.append(rng.choice([r"\b", r"\B", r"(?!\S)", "(?=[ab])"]))
        elif kind < 0.3 and depth < 2:
            parts.append(f"(?:{drawn_pattern(rng, depth + 1)}){rng.choice(TIMES)}")
        elif kind < 0.33 and depth == 0 and not any(part.startswith("(") for part in parts):
            parts.append(f"({drawn_pattern(rng, depth + 1)})")
        else:
            parts.append(rng.choice(ATOMS) + rng.choice(TIMES))
    also = f"|{drawn_pattern(rng, depth + 1)}" if rng.random() < 0.25 and depth < 2 else ""
    return "".join(parts) + also


def drawn(rng: random.Random) -> str:
    """A pattern with no more than the one group that a token can be."""
    while True:
        pattern = rng.choice(FLAGS) + drawn_pattern(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "[[" and the like mean what they mean today
            if re.compile(pattern).groups < 2:
                return pattern


def found_alike(patterns: int, texts: int, seed: int) -> int:
    """How many documents were cut by an automaton as Python cuts them; all must be."""
    rng, tried = random.Random(seed), 0
    for _ in range(patterns):
        pattern = drawn(rng)
        ours = finder(pattern)
        if ours is None:
            continue
        find, other = re.compile(pattern).findall, finder(pattern, hopeful=True) or ours
        for _ in range(texts):
            letters = rng.choice([LETTERS, ODD])
            text = "".join(rng.choices(letters, k=rng.randint(0, 20)))
            assert ours(text) == other(text) == find(text), (pattern, text)
            tried += 1
    return tried


def test_random_patterns_find_what_python_finds() -> None:
    assert found_alike(100, 250, 3) > 10_000


@pytest.mark.soak
def test_many_random_patterns_find_what_python_finds() -> None:
    """Some ten minutes: most of it goes into the automata, so each cuts many texts."""
    assert found_alike(9_000, 330, 4) > 1_000_000


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?u)\b\w\w+\b",
        r"(\w)\w*",
        r"\b(\w\w+)\b",
        r"a(\w+)b",
        r"(?:x|y)(\w*)z",
        r"#(\w+)",
        r"(a+)(?:bc|cd)",
        r"[^\W\d_]+(?:'[a-z]+)?",
        r"\S+",
        r"(?i)[a-z]{2,}|[0-9]+(?:\.[0-9]+)?",
        r"\w+|[^\w\s]",
        r"(?u)\b[a-zA-Z][\w-]+\b",
    ],
)
def test_patterns_people_write(pattern: str) -> None:
    rng, find = random.Random(5), re.compile(pattern).findall
    ours, other = finder(pattern), finder(pattern, hopeful=True)
    assert ours is not None
    for _ in range(400):
        text = "".join(rng.choice("abxyz#cd é'.-19_日") for _ in range(rng.randint(0, 16)))
        assert ours(text) == find(text), text
        assert other is None or other(text) == find(text), text


@pytest.mark.parametrize(
    "pattern",
    [
        "a*",
        r"(?=ab)a",
        r"(?<!a)b",
        r"(a)\1",
        r"^a",
        r"a$",
        r"(a)|b",
        r"(?>a+)b",
        r"a++",
        r"(a*)b?c|",
    ],
)
def test_what_no_automaton_does(pattern: str) -> None:
    assert automaton(pattern) is None


# --- documents made to be slow --------------------------------------------------------------------


def seconds(find: Callable[[str], list[str]], text: str) -> float:
    start = time.process_time()
    find(text)
    return time.process_time() - start


FAR = {
    "a+b": ["a", "ab", "ba"],
    "a(?:a*b)?": ["a", "aab"],
    "(?:aaa)+b": ["a", "aaab"],
    r"(?u)\b[a-zA-Z][\w-]+\b": ["a-", "-", "a--------"],
    r"<[^>]+>": ["<", "<a"],
    r"#(\w+);": ["#", "#a", "#a;"],
    r"[^\W\d_]+(?:'[a-z]+)?": ["a'", "é'é'"],
    "日+本|é": ["日", "é日"],
    r"\w+@\w+\.com": ["a", "a@", "a@a."],
    "(?:ab|a)+?c": ["a", "ab"],
}


@pytest.mark.parametrize("pattern", FAR)
def test_a_megabyte_that_looks_far_ahead_takes_no_time(pattern: str) -> None:
    """Most of it is slices made strings; looking ahead from every place takes twenty minutes."""
    ours, find = finder(pattern), re.compile(pattern).findall
    assert ours is not None
    for unit in FAR[pattern]:
        short = unit * 300
        for text in (short, short + "b", short + "ab.com;>c" + short, "日本" + short):
            assert ours(text) == find(text), text
        assert seconds(ours, unit * (1_000_000 // len(unit.encode()))) < 20


def test_ends_found_in_vain_are_noted_from_the_middle_on() -> None:
    """Slices that are found already stay as they are where notes begin."""
    ours, find = finder("a+b|c"), re.compile("a+b|c").findall
    assert ours is not None
    for before, after in ((3000, 100), (100, 3000), (2000, 2000)):
        text = "c" * before + "a" * after + "cab" * after
        assert ours(text) == find(text)


def test_what_looks_a_few_characters_ahead_needs_no_table() -> None:
    """A table would have to say which of the next fourteen characters are `b`."""
    found = automaton("[ab]{14}b")
    assert found is not None
    assert found.hopes.array.tolist() == [0]
    ours = finder("[ab]{14}b")
    assert ours is not None
    assert ours("a" * 1000 + "b") == ["a" * 14 + "b"]
    assert seconds(ours, "a" * 1_000_000) < 20
