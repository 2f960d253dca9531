"""The ways of the package tokenizers to cut and change text, and its patterns, for Python's `re`.

Patterns are Oniguruma's. Classes of characters are spelt out as the package knows them, so answers
depend on no version of Python. What means something else to either engine is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import UnsupportedSetting
from flour.strings.charsmap import CLUSTERS, mapped
from flour.strings.subword_characters import flags, members
from flour.strings.unicode import CHARACTERS

#: Options of added texts, which add up.
SINGLE_WORD, LSTRIP, RSTRIP, NORMALISED = 1, 2, 4, 8
#: How a text is cut by a pattern: the sums are those of oven.compiler.intrinsics.subwords.text_cut.
CUTS = {"Removed": 1, "Matches": 2, "Isolated": 3, "MergedWithPrevious": 7, "MergedWithNext": 11}
#: Groups, sets, escapes and repeats, in this order; all else stands for itself.
_TOKEN = re.compile(
    r"(?P<group>\(\?(?::|i:|=|!)|\()|(?P<end>\))|(?P<set>\[\^?\]?)|(?P<closed>\])"
    r"|\\(?P<class>[pP]\{(?P<name>[~\w]+)\}|[swdSWD])|(?P<plain>\\[rntfv\W])|\\(?P<escape>.)"
    r"|(?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??)|(?P<other>[\s\S])"
)
#: Letters that fold to others than their capital.
_FOLDED = {"s": "ſ", "k": "\u212a"}
#: Characters of words to Oniguruma, but not within a set: superscripts and fractions.
_BARE = np.isin(np.arange(CHARACTERS), [0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE])
#: Letters that fold to one character together: none of these may be in a pattern without case.
_TOGETHER = re.compile("ss|st|f[fil]|[^\x00-\x7f]", re.IGNORECASE)


@cache
def translated(pattern: str) -> str:
    """A pattern of Oniguruma for Python."""
    made, stack, inside, before = list[str](), list[bool](), False, ""
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup or "", token[0]
        again = kind == "repeat" == before and not inside
        nested = inside and (kind == "set" or (text in "&-|~" and text == before))
        if kind == "escape" or again or nested:
            raise _refused(pattern, text)
        before = text if inside else kind
        inside = kind == "set" or (inside and kind != "closed")
        if kind in ("class", "name"):
            # A class as the ranges of a set.
            name = token["name"] or token["class"].lower()
            known = members(name)
            if known is None:
                raise _refused(pattern, token[0])
            known = known & ~_BARE if name == "w" and inside else known
            ranges = _ranges(known ^ token["class"][0].isupper())
            text = ranges if inside else f"[{ranges}]"
        elif not inside and kind in ("group", "end"):
            stack = stack[:-1] if kind == "end" else [*stack, text == "(?i:"]
            text = text if text in ("(?=", "(?!", ")") else "(?:"
        elif any(stack) and text.isalpha():
            text = _folded(text) if inside else f"[{_folded(text)}]"
        made.append(text)
    unclear = any(_TOGETHER.search(part) for part in re.findall(r"\(\?i:([^)]*)", pattern))
    try:
        re.compile("" if unclear else "".join(made))
    except re.error:
        unclear = True
    if unclear:
        raise _refused(pattern, pattern)
    return "".join(made)


def _folded(letter: str) -> str:
    return letter.lower() + letter.upper() + _FOLDED.get(letter.lower(), "")


def _ranges(known: NDArray[np.bool_]) -> str:
    bounds = np.flatnonzero(np.diff(known.astype(np.int8), prepend=0, append=0))
    assert known.shape == (CHARACTERS,)
    pairs = bounds.reshape(-1, 2).tolist()
    return "".join(f"\\U{start:08x}-\\U{end - 1:08x}" for start, end in pairs)


def _refused(pattern: str, found: str) -> UnsupportedSetting:
    return UnsupportedSetting(
        "this part of a pattern is not supported",
        where=repr(pattern)[:120],
        found=found[:40],
        hint=r"supported are sets, \p{L} and other categories, \s \w \d, groups, repeats, (?i:...) "
        "and a look at one character ahead",
    )


def between(
    text: str, added: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[int, str, int | None]]:
    """The parts of a text between added texts, and these: place, text, number of an added one."""
    last = 0
    longest = sorted(added, key=len, reverse=True)
    for found in re.finditer("|".join(map(re.escape, longest)), text) if added else ():
        (start, end), (number, options) = found.span(), added[found[0]]
        beside = text[start - 1 : start] + text[end : end + 1]
        if options & SINGLE_WORD and any(flags("whole")[ord(each)] for each in beside):
            continue
        if options & LSTRIP:
            start = max(len(_stripped(text[:start], 2)), last)
        if options & RSTRIP:
            end = len(text) - len(_stripped(text[end:], 1))
        if start >= end:
            continue
        if start > last:
            yield last, text[last:start], None
        yield start, "", number
        last = end
    if last < len(text):
        yield last, text[last:], None


def _stripped(text: str, sides: str | int) -> str:
    spaces = "".join(map(chr, np.flatnonzero(flags("spaces"))))
    text = text.lstrip(spaces) if int(sides) & 1 else text
    return text.rstrip(spaces) if int(sides) & 2 else text


def _replaced(text: str, pattern: str, new: str) -> str:
    return re.sub(translated(pattern), lambda _: new, text)


#: The steps on a part of a document that are not on its characters one by one.
CHANGES: dict[str, Callable[..., str]] = {
    "strip": _stripped,
    "prepend": lambda text, ahead: ahead + text if text else text,
    "replace": _replaced,
    "charsmap": lambda text, written: mapped(re.findall(translated(CLUSTERS), text), written),
}


def split(words: list[str], step: Sequence[Any], *, first: bool) -> Iterator[str]:
    """Words cut by a pattern, or with a text ahead; the `first` ones of a document or not."""
    how, *rest = step
    return _cut(words, *rest) if how == "cut" else _headed(words, *rest, first=first)


def _cut(words: list[str], how: int, pattern: str) -> Iterator[str]:
    """Words cut by the matches of a pattern."""
    for word in words:
        spans = [found.span() for found in re.finditer(translated(pattern), word)]
        behind = [*(start for start, _ in spans[1:]), len(word)]
        last = 0
        for (start, stop), after in zip(spans, behind, strict=False):
            here, end = (last if how & 4 else start), (after if how & 8 else stop)
            yield from [word[last:here]] * bool(how & 1 and here > last)
            yield from [word[here:end]] * bool(how & 2)
            last = end
        yield from [word[last:]] * bool(how & 1 and len(word) > last)


def _headed(words: list[str], text: str, swaps: int, scheme: str, *, first: bool) -> Iterator[str]:
    """Words with a text ahead, all or the first of a document, and in place of spaces."""
    for place, word in enumerate(words):
        made = word.replace(" ", text) if swaps else word
        ahead = scheme == "always" or (scheme == "first" and first and not place)
        yield text + made if ahead and not made.startswith(text) else made
