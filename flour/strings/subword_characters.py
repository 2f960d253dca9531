"""The properties of characters as the package tokenizers knows them.

Models that cut words into pieces were trained with that package, whose characters are those of
several releases of Unicode. So its tables come with ours (scripts/tokenizer_tables.py writes them),
and answers depend on no version of Python.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from flour.strings.unicode import CHARACTERS, Kinds, Mapping, kinds, mapping
from flour.strings.unicode_tables import stored_for_all

FILE = "tokenizers"
#: Syllables, whose parts every release of Unicode agrees on; they are not in the file.
HANGUL = range(0xAC00, 0xD7A4)
#: A stand-in for a dropped mark that others are not moved across: half a pair of UTF-16.
BOUND = 0xD800
#: There are fewer classes of marks.
CLASSES = 64
#: The general categories, in the order of their numbers from 1 on.
CATEGORIES = (
    *("Cc", "Cf", "Cn", "Co", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No"),
    *("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"),
)
#: The steps that replace characters one by one, and those that put marks in order besides.
FORMS = ("nfd", "nfkd", "nfc", "nfkc")
SIMPLE = ("bert", "lower", "marks", *FORMS)
#: A character of a word, one between words, and one that is a word of its own.
LETTER, SPACE, ALONE = range(3)


@cache
def flags(name: str) -> NDArray[np.bool_]:
    """True for each character of a kind, such as "removed", "chinese", "spaces" or "alone"."""
    (bounds,) = stored_for_all(name, FILE)
    changes = np.zeros(CHARACTERS + 1, np.int8)
    changes[bounds[::2]], changes[bounds[1::2]] = 1, -1
    return np.cumsum(changes[:-1]).astype(bool)


@cache
def members(name: str) -> NDArray[np.bool_] | None:
    """True for each character of a class of patterns: `s`, `w`, `d`, a category, or `~` a kind."""
    if name[:1] == "~":
        return flags(name[1:])
    if name in ("s", "w"):
        return flags("spaces" if name == "s" else "words")
    wanted = [place + 1 for place, each in enumerate(CATEGORIES) if each.startswith(name)]
    bounds, numbers = stored_for_all("categories", FILE)
    if name == "d" or not wanted:
        return members("Nd") if name == "d" else None
    return np.repeat(np.isin(numbers, wanted), np.diff(bounds, append=CHARACTERS))


@cache
def replaced(name: str) -> dict[int, str]:
    """The characters that "lower", "stripped" (of accents), "nfd" or "nfkd" changes, and how."""
    codes, sizes, pieces = stored_for_all(name, FILE)
    text = pieces.astype("<u4").tobytes().decode("utf-32-le")
    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends]
    found = {code: text[a:b] for code, a, b in zip(codes.tolist(), starts, ends, strict=False)}
    if name == "nfkd":
        return replaced("nfd") | found
    if name == "stripped":
        found |= dict.fromkeys(np.flatnonzero(flags("bounds")).tolist(), chr(BOUND))
    if name != "lower":
        found |= {code: unicodedata.normalize("NFD", chr(code)) for code in HANGUL}
    return found


@cache
def changes(how: frozenset[str]) -> dict[int, str]:
    """The characters that a normaliser of BERT's changes, and what they become.

    It may "clean" (drop control characters, and make white space plain), put "chinese" ones between
    spaces, "strip" (accents) and "lower", in this order.
    """
    made = dict[int, str]()
    if "clean" in how:
        made |= dict.fromkeys(np.flatnonzero(flags("spaces")).tolist(), " ")
        made |= dict.fromkeys(np.flatnonzero(flags("removed")).tolist(), "")
    names = {"strip": "stripped", "lower": "lower"}
    steps = [replaced(name) for step, name in names.items() if step in how]
    if "chinese" in how:
        apart = np.flatnonzero(flags("chinese")).tolist()
        steps.insert(0, {code: f" {chr(code)} " for code in apart})
    for code in {code for step in steps for code in step} - made.keys():
        text = chr(code)
        for step in steps:
            text = "".join(step.get(ord(letter), letter) for letter in text)
        made[code] = text
    return made


@cache
def orders(kind: str = "orders") -> dict[int, int]:
    """The marks that normalising puts in order and keeps, each with its class from 2 on.

    A mark of class 0 that is dropped ends a run of them: BOUND, of class 1, stands in its place.
    """
    codes, classes = stored_for_all(kind, FILE)
    return {BOUND: 1, **dict(zip(codes.tolist(), (classes + 2).tolist(), strict=True))}


def ordered(text: str, kind: str = "orders") -> str:
    """A text whose marks are put in order, without bounds."""
    found = orders(kind)
    runs = groupby(text, lambda letter: min(found.get(ord(letter), 0), 2))
    return "".join(
        "".join(sorted(run, key=lambda letter: found[ord(letter)]) if kind else run)
        for kind, run in runs
        if kind != 1
    )


@cache
def classes(kind: str = "orders") -> Kinds:
    """The class of each mark; 0 for all other characters."""
    found = np.zeros(CHARACTERS, np.uint8)
    found[[*orders(kind)]] = [*orders(kind).values()]
    assert found.max() < CLASSES
    return kinds(found)


@cache
def composites() -> dict[tuple[str, str], str]:
    """The pairs of characters that are one in NFC."""
    whole, made = replaced("nfd"), dict[tuple[str, str], str]()
    codes = [*np.flatnonzero(flags("composites")).tolist(), *HANGUL]
    for code in sorted(codes, key=lambda code: len(whole[code])):
        first, *middle, last = list(whole[code])
        for each in middle:
            first = made[first, each]
        made[first, last] = chr(code)
    return made


def composed(text: str) -> str:
    """A decomposed text with the characters that NFC composes."""
    pairs, found = composites(), orders("classes")
    made, start, before = list[str](), -1, -1
    for letter in text:
        kind = found.get(ord(letter), 0)
        if start >= 0 and before < kind and (made[start], letter) in pairs:
            made[start] = pairs[made[start], letter]
            continue
        start, before = (start, kind) if kind else (len(made), -1)
        made.append(letter)
    return "".join(made)


@cache
def classes_of_words() -> Kinds:
    """1 for white space, 2 for characters of words."""
    return kinds(flags("spaces") + 2 * flags("whole"))


@cache
def step_changes(step: tuple[str, ...]) -> tuple[dict[int, str], str]:
    """The replacements of a step of SIMPLE, and the marks that it puts in order."""
    name, *how = step
    if name == "bert":
        return changes(frozenset(how)), "orders" if "strip" in how else ""
    if name == "marks":
        return dict.fromkeys(np.flatnonzero(flags(name)).tolist(), ""), ""
    if name == "lower":
        return replaced(name), ""
    return replaced("nfkd" if "k" in name else "nfd"), "classes"


def stepped(step: tuple[str, ...], text: str) -> str:
    """A text after a step of SIMPLE."""
    made, marks = step_changes(step)
    text = text.translate(made)
    text = ordered(text, marks) if marks else text
    return composed(text) if step[0] in ("nfc", "nfkc") else text


@cache
def step_table(step: tuple[str, ...]) -> tuple[Mapping, Kinds]:
    """The replacements of a step of SIMPLE as tables for native code, and classes of marks."""
    made, marks = step_changes(step)
    kept = {code: text for code, text in made.items() if text}
    gone = np.zeros(CHARACTERS, bool)
    gone[[code for code, text in made.items() if not text]] = True
    marked = list[int]()
    if marks:
        known = orders(marks)
        kept = {code: chr(code) for code in known if code != BOUND and not gone[code]} | kept
        marked = [code for code, text in kept.items() if any(ord(each) in known for each in text)]
    return mapping(kept, gone, marked=marked), classes(marks or "orders")
