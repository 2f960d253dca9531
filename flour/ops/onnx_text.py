"""Text as ONNX's operators treat it: letter by letter, whatever language or context.

Python's `lower` follows Unicode's full rules (a capital sigma ends a word in another shape, the
dotted I becomes two characters); ONNX's string normaliser goes through the C library, which maps
one character to one. Its n-grams of characters leave white space unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from flour.core.check import text
from flour.core.emission import Emitter, Value, VectorValue
from flour.core.op import Arity, Columns, Op, Table
from flour.core.types import Type, Vector
from flour.ops.ngrams import LONGEST, check_counts, count_runs, counted
from flour.ops.text import Lower, Upper, document
from flour.strings import unicode


class LowerLetters(Lower):
    """The document with every character in lower case by itself."""

    method = ""

    def one(self, document: str) -> str:
        return document.lower() if document.isascii() else "".join(map(_small, document))

    def mapping(self) -> unicode.Mapping:
        return unicode.lower_alone()


class UpperLetters(Upper):
    """The document with every character in upper case by itself."""

    method = ""

    def one(self, document: str) -> str:
        return document.upper() if document.isascii() else "".join(map(_capital, document))

    def mapping(self) -> unicode.Mapping:
        return unicode.upper(alone=True)


_small = lru_cache(maxsize=4096)(unicode.small_letter)
_capital = lru_cache(maxsize=4096)(unicode.capital_letter)


class LetterNgrams(Op):
    """The count of each run of `low` to `high` characters, white space unchanged."""

    method = ""
    vocabulary: Table
    low: int = 1
    high: int = 1
    dtype: str = "float32"
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        check_counts(self.low, self.high, self.dtype)

    def infer(self, x: Type) -> Vector:
        text(x, self.name)
        return Vector(len(self.vocabulary), self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        runs = (letter_runs(one, self.low, self.high) for one in x)
        return counted(runs, self.vocabulary, self.dtype)

    def runs_native(self) -> bool:
        return self.high <= LONGEST

    def structure(self) -> tuple[object, ...]:
        return (self.dtype,)

    def emit(self, e: Emitter, x: Value) -> VectorValue:
        letters, lengths = document(e, x), (self.low, self.high)
        return count_runs(e, letters, self.vocabulary, lengths, self.dtype)


def letter_runs(document: str, low: int, high: int) -> Iterator[str]:
    """All runs of `low` to `high` characters, whatever they are."""
    for size in range(low, min(high, len(document)) + 1):
        for start in range(len(document) - size + 1):
            yield document[start : start + size]
