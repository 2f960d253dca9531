"""Words and characters to counts: n-grams of a vocabulary, hashed words, damping.

In native code a row's counts are a list of columns, each with its number, as long as there are
different n-grams in the document; no row of all columns is ever made. N-grams are cut, looked up
and counted a few thousand at a time, so that a long document needs no more room for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, text, tokens
from flour.core.emission import (
    Emitter,
    Push,
    Room,
    ScalarValue,
    TextValue,
    TokensValue,
    Value,
    VectorValue,
)
from flour.core.errors import ParameterError
from flour.core.native import Code, expression
from flour.core.op import Arity, Columns, Op, Table
from flour.core.sparse import Sparse
from flour.core.types import ANYTHING, Extent, Type, Vector, dtype_name
from flour.core.words import Number, Numbers, cast, one
from flour.ops.bases import FloatElementwise
from flour.ops.text import SLACK, Placed, ToWords, document, looked_up, numbered
from flour.strings import unicode
from flour.strings.dictionary import triples
from flour.strings.hashing import murmur3
from objectstore import Blob, Strings

_SPACES = re.compile(r"\s\s+")
#: The number of n-grams that are looked up at a time.
CHUNK = 4096
#: And where characters may be ASCII again soon.
FEW = 256
#: Longer n-grams are left to Python.
LONGEST = 1000
#: Counts below this are damped by a table.
_DAMPED = 4096


class Ngrams(Op, abstract=True, arity=Arity.ONE_TO_MANY):
    """N-grams of `low` to `high` words or characters."""

    def _lengths(self) -> tuple[int, int]:
        fields = self.fields()
        return fields["low"], fields["high"]

    def check(self) -> None:
        check_counts(*self._lengths(), getattr(self, "dtype", "int64"))

    def runs_native(self) -> bool:
        return self._lengths()[1] <= LONGEST

    def placed(self, document: str, words: Sequence[Placed]) -> list[Placed]:
        """All n-grams, with their places in the document."""
        if not self.reads_characters:
            return placed_phrases(words, *self._lengths())
        within_words = self.fields()["within_words"]
        return placed_runs(document, *self._lengths(), within_words=within_words)


class WordNgrams(Ngrams, counting=True):
    """The count of each phrase of the vocabulary, `low` to `high` words long."""

    vocabulary: Table
    low: int = 1
    high: int = 1
    dtype: str = "float64"

    def infer(self, x: Type) -> Vector:
        tokens(x, self.name)
        return Vector(len(self.vocabulary), self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        phrases = (word_ngrams(words, self.low, self.high) for words in x)
        return counted(phrases, self.vocabulary, self.dtype)

    def terms(self, column: int, _words: Iterable[str]) -> list[str]:
        """The terms that a column counts."""
        return [self.vocabulary[column]]

    def emit(self, e: Emitter, x: TokensValue) -> VectorValue:
        width, cuts = len(self.vocabulary), self.high - self.low + 1
        counts = _Counts(e, x.most.times(cuts), width)
        dictionary = looked_up(e, self.vocabulary)
        if self.high == 1:
            counts.line(f"text_count({x.base}, {x.slices}, {x.number}, {dictionary}, ", "0")
        else:
            base, slices = _joined(e, x)
            for phrases, length in _phrases(e, slices, x.number, self.low, self.high):
                counts.line(f"text_count({base}, {phrases}, {length}, {dictionary}, ", "0")
        return counts.vector(self.dtype)


class CharNgrams(Ngrams, counting=True, reads_characters=True):
    """The count of each run of `low` to `high` characters that is in the vocabulary.

    Runs of white space count as one space. With `within_words` no run crosses the edge of a word,
    which has a space on either side.
    """

    vocabulary: Table
    low: int = 1
    high: int = 1
    within_words: bool = False
    dtype: str = "float64"

    def infer(self, x: Type) -> Vector:
        text(x, self.name)
        return Vector(len(self.vocabulary), self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        cut = runs_in_words if self.within_words else char_ngrams
        runs = (cut(document, self.low, self.high) for document in x)
        return counted(runs, self.vocabulary, self.dtype)

    def terms(self, column: int, _words: Iterable[str]) -> list[str]:
        """The terms that a column counts."""
        return [self.vocabulary[column]]

    def emit(self, e: Emitter, x: Value) -> VectorValue:
        letters = _letters(e, document(e, x), within_words=self.within_words)
        lengths = (self.low, self.high)
        return count_runs(e, letters, self.vocabulary, lengths, self.dtype, words=self.within_words)


def check_counts(low: int, high: int, dtype: str) -> None:
    """Refuse lengths that no n-gram has, and counts that are no numbers."""
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
    """All runs of `low` to `high` characters; runs of white space count as one space."""
    return letter_runs(_SPACES.sub(" ", document), low, high)


def letter_runs(document: str, low: int, high: int) -> Iterator[str]:
    """All runs of `low` to `high` characters, whatever they are."""
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


def placed_phrases(words: Sequence[Placed], low: int, high: int) -> list[Placed]:
    """All phrases of `low` to `high` words, with their places."""
    runs = (
        words[i : i + n]
        for n in range(low, min(high, len(words)) + 1)
        for i in range(len(words) - n + 1)
    )
    return [(" ".join(word for word, _, _ in run), run[0][1], run[-1][2]) for run in runs]


def placed_runs(document: str, low: int, high: int, *, within_words: bool) -> list[Placed]:
    """All runs of characters, with their places; the spaces around a word take no place."""
    if not within_words:
        gaps = {found.start(): found.end() for found in _SPACES.finditer(document)}
        letters, at = list[Placed](), 0
        while at < len(document):
            end = gaps.get(at, at + 1)
            letters.append((" " if at in gaps else document[at], at, end))
            at = end
        lengths = range(low, min(high, len(letters)) + 1)
        return [_run(letters[i : i + n]) for n in lengths for i in range(len(letters) - n + 1)]
    made: list[Placed] = []
    for found in re.finditer(r"\S+", document):
        start, end = found.span()
        inside = [(letter, start + i, start + i + 1) for i, letter in enumerate(found[0])]
        padded = [(" ", start, start), *inside, (" ", end, end)]
        for n in range(low, high + 1):
            made += [_run(padded[i : i + n]) for i in range(max(len(padded) - n, 0) + 1)]
            if n >= len(padded):
                break
    return made


def _run(letters: Sequence[Placed]) -> Placed:
    return "".join(letter for letter, _, _ in letters), letters[0][1], letters[-1][2]


def counted(rows: Iterable[Iterable[str]], vocabulary: Strings, dtype: str) -> Sparse:
    """The count of each entry of the vocabulary in each row."""
    column_of = numbered(vocabulary)
    counts = []
    for row in rows:
        columns = [column_of[item] for item in row if item in column_of]
        counts.append(np.unique(np.asarray(columns, np.int64), return_counts=True))
    return stacked(counts, len(vocabulary), dtype)


def stacked(rows: Sequence[tuple[Any, Any]], width: int, dtype: str) -> Sparse:
    """Rows of (ascending columns, values) as one matrix."""
    sizes = np.cumsum([0, *(len(columns) for columns, _ in rows)], dtype=np.int64)
    columns = np.fromiter(chain.from_iterable(c for c, _ in rows), np.int64, int(sizes[-1]))
    values = np.fromiter(chain.from_iterable(v for _, v in rows), dtype, int(sizes[-1]))
    return Sparse(values, columns, sizes, (len(rows), width))


# --- hashing --------------------------------------------------------------------------------------


class Hashing(Op, arity=Arity.ONE_TO_MANY):
    """Words added up in the column their hash names; half of them negated with `signed`.

    `binary` makes every column that any word fell into a one, even where signs cancelled.
    """

    width: int
    signed: bool = True
    binary: bool = False
    dtype: str = "float64"

    def check(self) -> None:
        if self.width < 1:
            raise ParameterError("hashing needs at least one column", found=str(self.width))
        check_counts(1, 1, self.dtype)

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        return Extent(nan=False, largest=1e20, counts=not self.signed)

    def infer(self, x: Type) -> Vector:
        tokens(x, self.name)
        return Vector(self.width, self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        return stacked([self._row(words) for words in x], self.width, self.dtype)

    def _row(self, words: Iterable[str]) -> tuple[Any, Any]:
        sums: dict[int, int] = {}
        for word in words:
            code, column = self._hashed(word)
            sums[column] = sums.get(column, 0) + (1 if code >= 0 or not self.signed else -1)
        columns = sorted(sums)
        return columns, [1 if self.binary else sums[column] for column in columns]

    def _hashed(self, word: str) -> tuple[int, int]:
        code = murmur3(word.encode())
        return code, abs(code) % self.width

    def placed(self, _document: str, words: Sequence[Placed]) -> list[Placed]:
        """The words as they are."""
        return [*words]

    def terms(self, column: int, words: Iterable[str]) -> list[str]:
        """Those of a document's words that fall into a column."""
        return [word for word in words if self._hashed(word)[1] == column]

    def emit(self, e: Emitter, x: TokensValue) -> VectorValue:
        counts = _Counts(e, x.most, self.width)
        width, signed = e.size(self.width), e.size(self.signed)
        counts.line(f"text_hashed({x.base}, {x.slices}, {x.number}, {width}, {signed}, ")
        e.refuse(f"{counts.length} < 0")
        return counts.vector(self.dtype, less=_MIDDLE, binary=self.binary)


class Phrases(Ngrams, ToWords, takes=tokens):
    """All phrases of `low` to `high` words, as words themselves."""

    low: int = 1
    high: int = 1

    def reference(self, x: Columns) -> Columns:
        return [list(word_ngrams(words, self.low, self.high)) for words in x]

    def emit(self, e: Emitter, x: TokensValue) -> TokensValue:
        if self.high == 1:
            return x
        base, slices = _joined(e, x)
        sizes = range(self.low, self.high + 1)
        most = x.most.times(len(sizes))
        phrases, (low, high) = e.room(most.times(8)), map(e.size, (self.low, self.high))
        count = e.fresh("k")
        call = f"text_phrases({slices}, {x.number}, 0, {low}, {high}, {phrases}, {e.size(2**62)})"
        e.line(f"{e.fresh('k')}, {count} = {call}")
        return x._replace(
            base=base, slices=phrases, number=count, most=most, joined=x.joined.times(sum(sizes))
        )


class Runs(Ngrams, ToWords, reads_characters=True):
    """All runs of `low` to `high` characters, as words."""

    low: int = 1
    high: int = 1
    within_words: bool = False

    def reference(self, x: Columns) -> Columns:
        cut = runs_in_words if self.within_words else char_ngrams
        return [list(cut(document, self.low, self.high)) for document in x]

    def emit(self, e: Emitter, x: Value) -> TokensValue:
        letters = _letters(e, document(e, x), within_words=self.within_words)
        sizes = range(self.low, self.high + 1)
        most = _characters(letters).times(len(sizes))
        slices, count = e.room(most.times(8)), e.fresh("k")
        low, high = map(e.size, (self.low, self.high))
        intrinsic = "text_word_runs" if self.within_words else "text_runs"
        call = f"{intrinsic}({letters.where}, {letters.size}, 0, {low}, {high}"
        e.line(f"{e.fresh('k')}, {count} = {call}, {slices}, {e.size(2**62)})")
        return TokensValue(letters.where, slices, count, most, most.times(4 * self.high + 1))


# --- native code ----------------------------------------------------------------------------------

#: The count a hashed column starts from (see oven.compiler.intrinsics.counts).
_MIDDLE = 0x80000000
#: Spare room at the end of a list of counts (see oven.compiler.intrinsics.counts).
_BATCH = 64
#: Emits code that counts runs of ASCII characters: from which offset on, of which sizes.
Plain = Callable[[str, str], None]


def _letters(e: Emitter, x: TextValue, *, within_words: bool) -> TextValue:
    """The document with its white space as n-grams of characters need it."""
    growth = x.growth * (2 if within_words else 1)
    text = e.room(Room(growth, SLACK))
    index, blocks = map(e.address, unicode.spaces())
    intrinsic = "text_pad" if within_words else "text_squeeze"
    size = e.let(f"{intrinsic}({x.where}, {x.size}, {text}, {index}, {blocks})", "int64").expr
    return x._replace(where=text, size=size, growth=growth)


def _characters(letters: TextValue) -> Room:
    """The largest number of characters there can be."""
    return Room(letters.growth, 2)


def _joined(e: Emitter, x: TokensValue) -> tuple[str, str]:
    """The words joined by spaces, and the slice of each word in that text."""
    text = e.room(x.joined._replace(fixed=x.joined.fixed + SLACK))
    slices = e.room(x.most.times(8))
    e.line(f"text_join({x.base}, {x.slices}, {x.number}, {text}, {slices})")
    return text, slices


def _short(e: Emitter, texts: Table) -> str:
    """The address of a dictionary's texts of up to three characters."""
    letters, cells, numbers, radix = triples(texts)
    return f"{', '.join(map(e.address, (letters, cells, numbers)))}, {e.size(radix)}"


def _phrases(e: Emitter, slices: str, count: str, low: int, high: int) -> Iterator[tuple[str, str]]:
    """Emit a loop over lists of phrases: each list and its length."""
    phrases, most = _chunk(e, high - low + 1)
    least, longest = e.size(low), e.size(high)
    position, length = e.var("0", "k"), e.fresh("k")
    with e.block(f"while {position} < {count}:"):
        call = f"text_phrases({slices}, {count}, {position}, {least}, {longest}, {phrases}, {most})"
        e.line(f"{position}, {length} = {call}")
        yield phrases, length


def _runs(
    e: Emitter, letters: TextValue, low: int, high: int, plain: Plain | None
) -> Iterator[tuple[str, str]]:
    """Emit a loop over lists of runs of characters: each list and its length.

    Runs of ASCII are left to `plain`, which counts them as far as it can; without it no run crosses
    the edge of a word.
    """
    runs, most = _chunk(e, high - low + 1, FEW if plain else CHUNK)
    position, length = e.var("0", "k"), e.fresh("k")
    sizes = ", ".join(map(e.size, (low, high)))
    intrinsic = "text_runs" if plain else "text_word_runs"
    call = f"{intrinsic}({letters.where}, {letters.size}, {position}, {sizes}, {runs}, {most})"
    with e.block(f"while {position} < {letters.size}:"):
        if plain:
            plain(position, sizes)
        e.line(f"{position}, {length} = {call}")
        yield runs, length


def count_runs(
    e: Emitter,
    letters: TextValue,
    vocabulary: Table,
    lengths: tuple[int, int],
    dtype: str,
    *,
    words: bool = False,
) -> VectorValue:
    """Emit the counts of runs of characters; with `words` none crosses the edge of a word."""
    low, high = lengths
    most = _characters(letters).times(high - low + 1)
    counts = _Counts(e, most, len(vocabulary))
    cleared = counts.clear(letters.size)
    dictionary = looked_up(e, vocabulary)
    plain = None
    if not words:
        plain = partial(counts.plain, letters, f"{_short(e, vocabulary)}, {dictionary}", cleared)
    for runs, length in _runs(e, letters, low, high, plain):
        counts.line(f"text_count({letters.where}, {runs}, {length}, {dictionary}, ", cleared)
    counts.settle(cleared)
    return counts.vector(dtype)


def _chunk(e: Emitter, least: int, most: int = CHUNK) -> tuple[str, str]:
    """A list for some n-grams, and its capacity."""
    most = max(most, least)
    return e.scratch("int64", most), e.size(most)


class _Counts:
    """A row's columns and their counts while the row is being counted."""

    def __init__(self, e: Emitter, most: Room, width: int) -> None:
        """Room for the counts of at most `most` n-grams over `width` columns."""
        self._e, self._width = e, width
        self._most = Room(most.each, most.fixed, min(most.most, width))
        # A batch of entries is appended without a check of the room left, hence the spare room.
        room, more = self._most.times(8), 8 * (_BATCH + 1)
        self._counts = e.room(room._replace(fixed=room.fixed + more, most=room.most + more))
        self._places = e.room(Room(0, 4 * width))
        self.length = e.var("0", "k")

    def clear(self, count: str) -> str:
        """True if counting in a table of all columns pays for `count` n-grams."""
        call = f"text_clear({self._places}, {self._e.size(self._width)}, {count})"
        return self._e.let(call, "int64").expr

    def settle(self, cleared: str) -> None:
        """Move the counts to the list, if they were made in the table of all columns."""
        with self._e.block(f"if {cleared}:"):
            self._e.line(f"text_settle({self._counts}, {self._places}, {self.length})")

    def line(self, call: str, *more: str) -> None:
        """Emit this call, to which the arguments of the counts are appended, then `more`."""
        rest = ", ".join((self._counts, self._places, self.length, *more))
        self._e.line(f"{self.length} = {call}{rest})")

    def plain(
        self, letters: TextValue, dictionary: str, cleared: str, position: str, sizes: str
    ) -> None:
        """Count the runs of ASCII characters from an offset on, as far as they are simple."""
        call = (
            f"text_count_runs({letters.where}, {letters.size}, {position}, {sizes}, {dictionary}, "
        )
        rest = f"{self._counts}, {self._places}, {self.length}, {cleared})"
        self._e.line(f"{position}, {self.length} = {call}{rest}")

    def vector(self, dtype: str, *, less: int = 0, binary: bool = False) -> VectorValue:
        """The counts, each reduced by `less`, or (`binary`) ones."""
        e = self._e
        if e.ordered:
            spare = e.room(self._most.times(8))
            e.line(f"text_sort({self._counts}, {self.length}, {spare})")

        def each(push: Push) -> None:
            with e.loop(self.length) as k:
                entry = e.let(f"ld_int64({self._counts}, {k})", "int64").expr
                number = "1" if binary else f"(({entry} & 4294967295) - {less})"
                column = e.let(f"{entry} >> 32", "int64").expr
                push(column, e.let(e.cast(number, "int64", dtype), dtype).expr)

        return e.sparse(dtype, self._width, each, most=self._most)


# --- weighting ------------------------------------------------------------------------------------


class Damp(FloatElementwise, keeps_zero=True, takes_sparse=True):
    """1 + log(x) where x is not zero: many occurrences count less than each would."""

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        return Extent(nan=False, largest=1e5) if inputs[0].counts else ANYTHING

    def infer(self, x: Type) -> Type:
        expect(isinstance(x, Vector), f"damp needs a vector of counts, got {x}")
        return super().infer(x)

    def compute(self, x: NDArray[Any]) -> Any:
        return np.where(x == 0, x, np.log(x) + x.dtype.type(1))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, damped, x, _damped(x.dtype), Code("log_alone"))


def damped(x: Number, table: Numbers, log: Callable[[Number], Number]) -> Number:
    """1 + log(x), which a table has of small counts."""
    result = x
    if 0 <= x < _DAMPED and cast(x, "int64") == x:
        result = table[cast(x, "int64")]
    else:
        result = log(x) + one(x)
    return result


@cache
def _damped(dtype: str) -> Blob:
    """1 + log(count) for small counts, from numpy: the last bits of log differ by processor."""
    counts = np.arange(_DAMPED, dtype=dtype)
    counts[1:] = np.log(counts[1:]) + counts.dtype.type(1)
    return Blob.of(counts)
