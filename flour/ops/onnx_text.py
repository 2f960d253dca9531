"""Text as ONNX's operators treat it: letter by letter, whatever language or context.

Python's `lower` follows Unicode's full rules (a capital sigma ends a word in another shape, the
dotted I becomes two characters); ONNX's string normaliser goes through the C library, which maps
one character to one. Its n-grams of characters leave white space unchanged. A document is cut at
the matches of several patterns, each of which cuts the pieces that those before it left, and sees
nothing beyond its piece.
"""

from __future__ import annotations

import re
from functools import lru_cache

from flour.core.check import text
from flour.core.emission import Emitter, Room, TokensValue, Value, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Columns, Table
from flour.core.types import Type, Vector
from flour.ops.ngrams import Ngrams, count_runs, counted, letter_runs
from flour.ops.text import Lower, ToWords, Upper, compiled, document, searched
from flour.strings import unicode
from flour.strings.patterns import Automaton, automaton, first_is_longest


class LowerLetters(Lower, method=""):
    """The document with every character in lower case by itself."""

    def one(self, document: str) -> str:
        return document.lower() if document.isascii() else "".join(map(_small, document))

    def mapping(self) -> unicode.Mapping:
        return unicode.lower_alone()


class UpperLetters(Upper, method=""):
    """The document with every character in upper case by itself."""

    def one(self, document: str) -> str:
        return document.upper() if document.isascii() else "".join(map(_capital, document))

    def mapping(self) -> unicode.Mapping:
        return unicode.upper(alone=True)


_small = lru_cache(maxsize=4096)(unicode.small_letter)
_capital = lru_cache(maxsize=4096)(unicode.capital_letter)


class LetterNgrams(Ngrams, method=""):
    """The count of each run of `low` to `high` characters, white space unchanged."""

    vocabulary: Table
    low: int = 1
    high: int = 1
    dtype: str = "float32"

    def infer(self, x: Type) -> Vector:
        text(x, self.name)
        return Vector(len(self.vocabulary), self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        runs = (letter_runs(one, self.low, self.high) for one in x)
        return counted(runs, self.vocabulary, self.dtype)

    def emit(self, e: Emitter, x: Value) -> VectorValue:
        letters, lengths = document(e, x), (self.low, self.high)
        return count_runs(e, letters, self.vocabulary, lengths, self.dtype)


_SIZE = (1 << 32) - 1


class CutWords(ToWords, method="", arity=Arity.ONE_TO_MANY, reads_characters=True):
    """The pieces between the matches of patterns, taken in turn, of at least `least` characters."""

    patterns: tuple[str, ...]
    least: int = 1

    def check(self) -> None:
        if not self.patterns or self.least < 1:
            raise ParameterError("a document is cut at a pattern or more, into words of characters")
        for pattern in self.patterns:
            if compiled(pattern).groups:
                raise ParameterError("what is cut out has no groups", where=repr(pattern))

    def reference(self, x: Columns) -> Columns:
        rows = []
        for source in x:
            words = [source]
            for pattern in self.patterns:
                words = [part for word in words for part in re.split(pattern, word) if part]
            rows.append([word for word in words if len(word) >= self.least])
        return rows

    def runs_native(self) -> bool:
        return all(map(cuts_natively, self.patterns))

    def emit(self, e: Emitter, x: Value) -> TokensValue:
        source = document(e, x)
        most = Room(source.growth, 1)
        words, number = e.room(most.times(8)), e.var("int64(1)")
        e.line(f"st_int64({words}, 0, {source.size})")
        hits = e.room(most.times(8))
        for pattern in self.patterns:
            matcher = automaton(pattern)
            assert matcher is not None, "only patterns with an automaton are native"
            pieces, count = e.room(most.times(8)), e.var("int64(0)")
            with e.loop(number) as index:
                _cut(e, matcher, source.where, _parts(e, words, index), hits, pieces, count)
            words, number = pieces, count
        if self.least > 1:
            number = _long_enough(e, source.where, words, number, e.size(self.least))
        return TokensValue(source.where, words, number, most, most.times(2))


def cuts_natively(pattern: str) -> bool:
    """True if an automaton finds the matches of a pattern, none of them empty."""
    matcher = automaton(pattern)
    return (
        matcher is not None
        and not matcher.trims
        and matcher.shortest > 0
        and first_is_longest(pattern)
    )


def _parts(e: Emitter, slices: str, index: str) -> tuple[str, str]:
    """The start of a slice and its length, in bytes."""
    packed = e.let(f"ld_int64({slices}, {index})", "int64").expr
    return e.let(f"{packed} >> 32", "int64").expr, e.let(f"{packed} & {_SIZE}", "int64").expr


def _cut(
    e: Emitter,
    matcher: Automaton,
    base: str,
    piece: tuple[str, str],
    hits: str,
    pieces: str,
    count: str,
) -> None:
    """Append the parts of a piece between its matches to `pieces`."""
    start, size = piece
    call = f"text_tokens({base} + {start}, {size}, {hits}, {searched(e, matcher)})"
    matches, position = e.let(call, "int64").expr, e.var("int64(0)")

    def keep(end: str) -> None:
        with e.block(f"if {end} > {position}:"):
            e.line(
                f"st_int64({pieces}, {count}, ({start} + {position}) << 32 | {end} - {position})"
            )
            e.line(f"{count} = {count} + 1")

    with e.loop(matches) as index:
        first, length = _parts(e, hits, index)
        keep(first)
        e.line(f"{position} = {first} + {length}")
    keep(size)


def _long_enough(e: Emitter, base: str, words: str, number: str, least: str) -> str:
    """Drop the words of fewer characters; UTF-8 continuation bytes are not counted."""
    kept = e.var("int64(0)")
    with e.loop(number) as index:
        start, size = _parts(e, words, index)
        characters = e.var("int64(0)")
        with e.loop(size) as j:
            e.line(f"{characters} += (ld_uint8({base} + {start} + {j}, 0) & 192) != 128")
        e.line(f"st_int64({words}, {kept}, {start} << 32 | {size})")
        e.line(f"{kept} = {kept} + ({characters} >= {least})")
    return kept
