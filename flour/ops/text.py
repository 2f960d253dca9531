"""Text to words to counts: cleaning, tokenising, n-grams, hashing.

These run as Python for now. Each is one idea on one kind of value (text, words, counts), so that
native kernels can replace them one by one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from flour.check import expect, text, tokens
from flour.errors import ParameterError
from flour.hashing import murmur3
from flour.op import Arity, Columns, Op, Table
from flour.ops.bases import FloatElementwise
from flour.sparse import Sparse
from flour.types import Text, Tokens, Type, Vector, dtype_name
from objectstore import Strings

if TYPE_CHECKING:
    from flour.emission import Emitter, ScalarValue

#: Words of at least two letters, digits or underscores: what scikit-learn takes for a word.
WORD = r"(?u)\b\w\w+\b"
_SPACES = re.compile(r"\s\s+")


class TextMap(Op, abstract=True):
    """One document to another."""

    def infer(self, x: Type) -> Text:
        text(x, self.name)
        return Text()

    def reference(self, x: Columns) -> Columns:
        made = np.empty(len(x), object)
        made[:] = [self.one(document) for document in x]
        return made

    def one(self, document: str) -> str:
        """The document's new text."""
        raise NotImplementedError(f"{self.name}.one")


class Lower(TextMap):
    """The document in lower case, by Unicode's full rules (which may change its length)."""

    def one(self, document: str) -> str:
        return document.lower()


class StripAccents(TextMap):
    """The document decomposed (NFKD), without its combining marks, or without all but ASCII."""

    ascii: bool = False

    def one(self, document: str) -> str:
        if document.isascii():
            return document
        apart = unicodedata.normalize("NFKD", document)
        if self.ascii:
            return apart.encode("ascii", "ignore").decode("ascii")
        return "".join(letter for letter in apart if not unicodedata.combining(letter))


class Tokenize(Op):
    """The document's words: every match of a regular expression, or of its one group."""

    pattern: str = WORD
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as problem:
            raise ParameterError(
                "this is not a regular expression", where=repr(self.pattern), found=str(problem)
            ) from None
        if groups > 1:
            raise ParameterError(
                "a token is one group at most", where=repr(self.pattern), found=f"{groups} groups"
            )

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        find = re.compile(self.pattern).findall
        return [find(document) for document in x]


class Split(Op):
    """The document cut at every separator; what is between may be empty."""

    separator: str = ","
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        if not self.separator:
            raise ParameterError("a separator has at least one character")

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        return [document.split(self.separator) for document in x]


class DropWords(Op):
    """The words that are not in a list (of stop words)."""

    words: Table

    def infer(self, x: Type) -> Tokens:
        tokens(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        dropped = numbered(self.words)
        return [[word for word in words if word not in dropped] for words in x]


# --- n-grams --------------------------------------------------------------------------------------


class WordNgrams(Op):
    """How often each phrase of the vocabulary, `low` to `high` words long, occurs."""

    vocabulary: Table
    low: int = 1
    high: int = 1
    dtype: str = "float64"
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        _check_counts(self.low, self.high, self.dtype)

    def infer(self, x: Type) -> Vector:
        tokens(x, self.name)
        return Vector(len(self.vocabulary), self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        phrases = (word_ngrams(words, self.low, self.high) for words in x)
        return counted(phrases, self.vocabulary, self.dtype)


class CharNgrams(Op):
    """How often each run of `low` to `high` characters that the vocabulary has occurs.

    Runs of white space count as one space. With `within_words` no run reaches over the edge of a
    word, which has a space on either side.
    """

    vocabulary: Table
    low: int = 1
    high: int = 1
    within_words: bool = False
    dtype: str = "float64"
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        _check_counts(self.low, self.high, self.dtype)

    def infer(self, x: Type) -> Vector:
        text(x, self.name)
        return Vector(len(self.vocabulary), self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        cut = runs_in_words if self.within_words else char_ngrams
        runs = (cut(document, self.low, self.high) for document in x)
        return counted(runs, self.vocabulary, self.dtype)


def _check_counts(low: int, high: int, dtype: str) -> None:
    if not 1 <= low <= high:
        raise ParameterError("n-grams need 1 <= low <= high", found=f"low={low}, high={high}")
    if dtype_name(dtype) == "string":
        raise ParameterError("counts are numbers")


def word_ngrams(words: Sequence[str], low: int, high: int) -> Iterator[str]:
    """All phrases of `low` to `high` words, joined by spaces."""
    for n in range(low, min(high, len(words)) + 1):
        for i in range(len(words) - n + 1):
            yield " ".join(words[i : i + n])


def char_ngrams(document: str, low: int, high: int) -> Iterator[str]:
    """All runs of `low` to `high` characters."""
    document = _SPACES.sub(" ", document)
    for n in range(low, min(high, len(document)) + 1):
        for i in range(len(document) - n + 1):
            yield document[i : i + n]


def runs_in_words(document: str, low: int, high: int) -> Iterator[str]:
    """All runs of characters within each word and the spaces around it; a short word is one run."""
    for word in _SPACES.sub(" ", document).split():
        padded = f" {word} "
        for n in range(low, high + 1):
            yield from (padded[i : i + n] for i in range(max(len(padded) - n, 0) + 1))
            if n >= len(padded):
                break  # a word shorter than this length was counted whole, once


_NUMBERED: WeakKeyDictionary[Strings, Mapping[str, int]] = WeakKeyDictionary()


def numbered(table: Strings) -> Mapping[str, int]:
    """Each text's place in the table; worked out once for as long as the table lives."""
    found = _NUMBERED.get(table)
    if found is None:
        found = {word: place for place, word in enumerate(table.to_list())}
        _NUMBERED[table] = found
    return found


def counted(rows: Iterable[Iterable[str]], vocabulary: Strings, dtype: str) -> Sparse:
    """How often each entry of the vocabulary occurs in each row."""
    places = numbered(vocabulary)
    found = []
    for row in rows:
        numbers = [places[item] for item in row if item in places]
        found.append(np.unique(np.asarray(numbers, np.int64), return_counts=True))
    return stacked(found, len(vocabulary), dtype)


def stacked(rows: Sequence[tuple[Any, Any]], width: int, dtype: str) -> Sparse:
    """Rows of (ascending columns, values) as one matrix."""
    sizes = np.cumsum([0, *(len(columns) for columns, _ in rows)], dtype=np.int64)
    columns = np.fromiter(chain.from_iterable(c for c, _ in rows), np.int64, int(sizes[-1]))
    values = np.fromiter(chain.from_iterable(v for _, v in rows), dtype, int(sizes[-1]))
    return Sparse(values, columns, sizes, (len(rows), width))


# --- hashing --------------------------------------------------------------------------------------


class Hashing(Op):
    """Words added up in the column their hash names; half of them negated with `signed`.

    `binary` makes every column that any word fell into a one, even where signs cancelled.
    """

    width: int
    signed: bool = True
    binary: bool = False
    dtype: str = "float64"
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        if self.width < 1:
            raise ParameterError("hashing needs at least one column", found=str(self.width))
        _check_counts(1, 1, self.dtype)

    def infer(self, x: Type) -> Vector:
        tokens(x, self.name)
        return Vector(self.width, self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        rows = [self._row(words) for words in x]
        return stacked(rows, self.width, self.dtype)

    def _row(self, words: Iterable[str]) -> tuple[Any, Any]:
        sums: dict[int, int] = {}
        for word in words:
            code = murmur3(word.encode())
            column = abs(code) % self.width
            sums[column] = sums.get(column, 0) + (1 if code >= 0 or not self.signed else -1)
        columns = sorted(sums)
        return columns, [1 if self.binary else sums[column] for column in columns]


class Phrases(Op):
    """All phrases of `low` to `high` words, as words themselves."""

    low: int = 1
    high: int = 1
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        _check_counts(self.low, self.high, "int64")

    def infer(self, x: Type) -> Tokens:
        tokens(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        return [list(word_ngrams(words, self.low, self.high)) for words in x]


class Runs(Op):
    """All runs of `low` to `high` characters, as words."""

    low: int = 1
    high: int = 1
    within_words: bool = False
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        _check_counts(self.low, self.high, "int64")

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        cut = runs_in_words if self.within_words else char_ngrams
        return [list(cut(document, self.low, self.high)) for document in x]


# --- weighting ------------------------------------------------------------------------------------


class Damp(FloatElementwise):
    """1 + log(x) where x is not zero: many occurrences count less than each would."""

    keeps_zero = True
    takes_sparse = True

    def infer(self, x: Type) -> Type:
        expect(isinstance(x, Vector), f"damp needs a vector of counts, got {x}")
        return super().infer(x)

    def compute(self, x: Any) -> Any:
        return np.where(x == 0, x, np.log(x) + x.dtype.type(1))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        value = e.let(x.expr, x.dtype).expr
        one = "float32(1.0)" if x.dtype == "float32" else "1.0"
        return f"({value} if {value} == 0 else log({value}) + {one})"
