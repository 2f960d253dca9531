"""Automata find what Python's `re` finds, whatever the pattern and the text."""

from __future__ import annotations

import random
import re
import warnings

import pytest

from flour.patterns import automaton
from tests.oven.test_words import finder, tokens

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
            parts.append(rng.choice([r"\b", r"\B"]))
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
        find = re.compile(pattern).findall
        for _ in range(texts):
            letters = rng.choice([LETTERS, ODD])
            text = "".join(rng.choices(letters, k=rng.randint(0, 20)))
            assert ours(text) == find(text), (pattern, text)
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
    for _ in range(400):
        text = "".join(rng.choice("abxyz#cd é'.-19_日") for _ in range(rng.randint(0, 16)))
        assert tokens(pattern, text) == find(text), text


@pytest.mark.parametrize(
    "pattern",
    [
        "a*",
        r"(?=a)b",
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
