r"""Patterns of RE2, which onnxruntime's tokeniser has, in Python's syntax.

Both have the same repeats and groups, but of all matches that begin somewhere the tokeniser takes
the longest: `first_is_longest` says whether that is the one Python takes. In RE2 words, digits and
boundaries are those of ASCII; white space is without the vertical tab; case is folded by Unicode's
simple folding, so that `(?i)k` also matches the sign of Kelvin. Properties such as `\pL` are those
of the running interpreter's Unicode, which may know fewer of the newest characters. Other
constructs (scripts, the ends of the text) are not translated.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase

from flour.onnx.errors import NotNative

#: The characters of escaped letters.
_ESCAPED = {"t": "\t", "n": "\n", "f": "\f", "r": "\r", "v": "\v", "a": "\a"}
Range = tuple[int, int]
_LAST = 0x10FFFF
_UPPER, _LOWER, _DIGITS = (0x41, 0x5A), (0x61, 0x7A), (0x30, 0x39)
_GRAPHIC = (0x21, 0x7E)
#: Classes by name, as ranges of characters; those of one letter are Perl's, in small letters.
_CLASSES: dict[str, tuple[Range, ...]] = {
    "d": (_DIGITS,),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": (_DIGITS, _UPPER, (0x5F, 0x5F), _LOWER),
    "alnum": (_DIGITS, _UPPER, _LOWER),
    "alpha": (_UPPER, _LOWER),
    "ascii": ((0, 0x7F),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (0x7F, 0x7F)),
    "digit": (_DIGITS,),
    "graph": (_GRAPHIC,),
    "lower": (_LOWER,),
    "print": ((32, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((9, 13), (32, 32)),
    "upper": (_UPPER,),
    "word": (_DIGITS, _UPPER, (0x5F, 0x5F), _LOWER),
    "xdigit": (_DIGITS, (0x41, 0x46), (0x61, 0x66)),
}
#: The characters that folding adds to letters of ASCII besides the other case.
_FAR = {"k": "\u212a", "s": "\u017f"}


def translated(expression: str) -> str:
    """The pattern in Python's syntax, with groups that capture nothing; NotNative without one."""
    flags = re.match(r"\(\?([is]+)\)", expression)
    flags_ = flags[1] if flags else ""
    start = len(flags[0]) if flags else 0
    pattern = _PatternReader(expression, start, fold="i" in flags_).pattern()
    return f"(?a{'s' if 's' in flags_ else ''}){pattern}"


class _PatternReader:
    """Goes through a pattern from left to right."""

    def __init__(self, text: str, position: int, *, fold: bool) -> None:
        self.text, self.position, self.fold = text, position, fold

    def _fail(self) -> NotNative:
        return NotNative(f"the pattern {self.text!r} means something else in RE2")

    def _take(self, pattern: str) -> re.Match[str] | None:
        """Consume the pattern if it matches at the position; else None."""
        match = re.compile(pattern, re.DOTALL).match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def pattern(self) -> str:
        """Translate the rest of the pattern."""
        pieces = []
        while self.position < len(self.text):
            pieces.append(self._piece())
        return "".join(pieces)

    def _piece(self) -> str:
        if match := self._take(r"\\[bB]|[.|*+?)}]|\{(?!,)"):
            return match[0]
        if match := self._take(r"\\Q(.*?)(?:\\E|\Z)"):
            return "".join(map(self._literal, match[1]))
        if self._take(r"\((?!\?)|\(\?:|\(\?P?<\w+>"):
            return "(?:"
        if self._take(r"\(\?|[\^${]"):
            raise self._fail()
        if match := self._take(r"\[|\\(?=[dDpPsSwW])"):
            return _spelt(self._set() if match[0] == "[" else self._class())
        return self._literal(self._character())

    def _class(self) -> list[Range]:
        """One of Perl's classes, or a property of Unicode's."""
        letter = self.text[self.position]
        self.position += 1
        if letter in "pP":
            return self._property(negated=letter == "P")
        ranges = self._folded(_CLASSES[letter.lower()])
        return _others(ranges) if letter.isupper() else ranges

    def _property(self, *, negated: bool) -> list[Range]:
        """The characters of a general category, or all others."""
        match = self._take(r"\{(\^?)(\w+)\}|([A-Z])")
        if match is None:
            raise self._fail()
        ranges = list(_of_category(match[2] or match[3]))
        if not ranges:
            raise self._fail()
        ranges = self._folded(ranges)
        return _others(ranges) if negated != bool(match[1]) else ranges

    def _character(self) -> str:
        """One character, which may be escaped."""
        if match := self._take(r"\\x([0-9A-Fa-f]{2})|\\x\{([0-9A-Fa-f]{1,6})\}"):
            number = int(match[1] or match[2], 16)
            if number > _LAST or 0xD800 <= number < 0xE000:
                raise self._fail()
            return chr(number)
        if match := self._take(r"\\([tnfrva])"):
            return _ESCAPED[match[1]]
        if match := self._take(r"\\(\W)|([^\\])"):
            return match[1] or match[2]
        raise self._fail()

    def single(self) -> list[Range]:
        """The characters matched, if the pattern matches one character, or a run of one kind."""
        ranges: list[Range] = []
        while True:
            ranges += self._one()
            self._take(r"\+\??")
            if self.position == len(self.text):
                return ranges
            if not self._take(r"\|"):
                raise self._fail()

    def _one(self) -> list[Range]:
        if self._take(r"[\^$*+?(){}|]"):
            raise self._fail()
        if self._take(r"\."):
            return _others([(10, 10)])
        return self._set() if self._take(r"\[") else self._member()

    def _literal(self, letter: str) -> str:
        if self.fold and (letter.isalpha() or not letter.isascii()):
            return _spelt(self._folded([(ord(letter), ord(letter))]))
        return letter if letter.isalnum() else re.escape(letter)

    # --- sets -------------------------------------------------------------------------------------

    def _set(self) -> list[Range]:
        """A set in brackets, from behind the opening one."""
        negated, ranges = self._take(r"\^") is not None, self._member()
        while not self._take(r"\]"):
            ranges += self._member()
        return _others(ranges) if negated else ranges

    def _member(self) -> list[Range]:
        """The next characters of a set."""
        if match := self._take(r"\[:(\^?)(\w+):\]"):
            if match[2] not in _CLASSES or len(match[2]) == 1:
                raise self._fail()
            ranges = self._folded(_CLASSES[match[2]])
            return _others(ranges) if match[1] else ranges
        if self._take(r"\\(?=[dDpPsSwW])"):
            return self._class()
        if self._take(r"\[:"):
            raise self._fail()
        low = ord(self._character())
        high = ord(self._character()) if self._take(r"-(?!\])") else low
        if high < low:
            raise self._fail()
        return self._folded([(low, high)])

    def _folded(self, ranges: Iterable[Range]) -> list[Range]:
        """The ranges with letters of the other case, if case is folded."""
        result = list(ranges)
        if not self.fold:
            return result
        if any(high > 0x7F for _, high in result):
            raise NotNative(f"letters beyond ASCII of either case in {self.text!r}")
        for small, large in zip(ascii_lowercase, ascii_uppercase, strict=True):
            if any(low <= ord(c) <= high for low, high in result for c in (small, large)):
                alike = (small, large, *_FAR.get(small, ""))
                result += [(ord(letter), ord(letter)) for letter in alike]
        return result


@lru_cache(maxsize=32)
def _of_category(name: str) -> tuple[Range, ...]:
    """The characters of a category of Unicode; none for one that RE2 does not have."""
    if name[:1] not in tuple("CLMNPSZ") or name in ("Cn", "Cs"):
        return ()
    kinds = map(unicodedata.category, map(chr, range(_LAST + 1)))
    codes = [code for code, kind in enumerate(kinds) if kind.startswith(name) and kind != "Cn"]
    return tuple(_merged((code, code) for code in codes))


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """These characters in ranges that ascend and do not touch."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _others(ranges: Iterable[Range]) -> list[Range]:
    """All other characters."""
    gaps, start = [], 0
    for low, high in _merged(ranges):
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return [*gaps, (start, _LAST)] if start <= _LAST else gaps


def _spelt(ranges: Iterable[Range]) -> str:
    """A set in Python's syntax, positive or negated."""
    merged, others = _merged(ranges), _others(ranges)
    if not merged or not others:
        raise NotNative("a set of no characters, or of all")
    sign, shorter = ("^", others) if merged[-1][1] == _LAST else ("", merged)
    return f"[{sign}{''.join(map(_shown, shorter))}]"


def _shown(ends: Range) -> str:
    low, high = ("_" if end == 0x5F else re.escape(chr(end)) for end in ends)
    return low if low == high else f"{low}-{high}"


def outside(separators: Iterable[str]) -> str:
    """Runs of characters that match none of these patterns, each of one character."""
    ranges: list[Range] = []
    for separator in separators:
        try:
            ranges += _PatternReader(separator, 0, fold=False).single()
        except NotNative:
            raise NotNative(f"the separator {separator!r}") from None
    return f"(?a){_spelt(_others(ranges))}+"
