"""Text as ONNX's operators treat it: letter by letter, whatever language or context.

Python's `lower` follows Unicode's full rules (a capital sigma ends a word in another shape, the
dotted I becomes two characters); ONNX's string normaliser goes through the C library, which maps
one character to one.
"""

from __future__ import annotations

from functools import lru_cache

from flour import unicode
from flour.ops.text import Lower, TextMap


class LowerLetters(Lower):
    """The document with every character in lower case by itself."""

    method = ""

    def one(self, document: str) -> str:
        return document.lower() if document.isascii() else "".join(map(_small, document))

    def mapping(self) -> unicode.Mapping:
        return unicode.lower_alone()


class UpperLetters(TextMap):
    """The document with every character in upper case by itself."""

    method = ""

    def one(self, document: str) -> str:
        return document.upper() if document.isascii() else "".join(map(_capital, document))

    def runs_native(self) -> bool:
        return False


_small = lru_cache(maxsize=4096)(unicode.small_letter)
_capital = lru_cache(maxsize=4096)(unicode.capital_letter)
