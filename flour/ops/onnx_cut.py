"""Documents cut at the matches of several patterns, as onnxruntime's tokeniser cuts them.

Each pattern cuts what the ones before it left, and sees nothing beyond its own piece.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flour.core.check import text
from flour.core.errors import ParameterError
from flour.core.op import Arity, Columns, Op
from flour.core.types import Tokens, Type
from flour.ops.text import document
from flour.strings.patterns import automaton, first_is_longest

if TYPE_CHECKING:
    from flour.core.emission import Emitter, TokensValue, Value
    from flour.strings.patterns import Automaton

_SIZE = (1 << 32) - 1


class CutWords(Op):
    """What is between the matches of patterns, one after another, if it has `least` characters."""

    method = ""
    patterns: tuple[str, ...]
    least: int = 1
    arity = Arity.ONE_TO_MANY
    reads_characters = True

    def check(self) -> None:
        if not self.patterns or self.least < 1:
            raise ParameterError("a document is cut at a pattern or more, into words of characters")
        for pattern in self.patterns:
            try:
                groups = re.compile(pattern).groups
            except re.error as problem:
                raise ParameterError(
                    "this is not a regular expression", where=repr(pattern), found=str(problem)
                ) from None
            if groups:
                raise ParameterError("what is cut out has no groups", where=repr(pattern))

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        made = []
        for whole in x:
            words = [whole]
            for pattern in self.patterns:
                words = [part for word in words for part in re.split(pattern, word) if part]
            made.append([word for word in words if len(word) >= self.least])
        return made

    def runs_native(self) -> bool:
        return all(map(cuts_natively, self.patterns))

    def structure(self) -> tuple[object, ...]:
        return (len(self.patterns), self.least > 1)

    def emit(self, e: Emitter, x: Value) -> TokensValue:
        from flour.core.emission import Room, TokensValue

        source = document(e, x)
        most = Room(source.growth, 1)
        words, number = e.room(most.times(8)), e.var("int64(1)")
        e.line(f"st_int64({words}, 0, {source.size})")
        hits = e.room(most.times(8))
        for pattern in self.patterns:
            found = automaton(pattern)
            assert found is not None, "only patterns with an automaton are native"
            made, count = e.room(most.times(8)), e.var("int64(0)")
            with e.loop(number) as place:
                _cut(e, found, source.where, _parts(e, words, place), hits, made, count)
            words, number = made, count
        if self.least > 1:
            number = _long_enough(e, source.where, words, number, e.size(self.least))
        return TokensValue(source.where, words, number, most, most.times(2))


def cuts_natively(pattern: str) -> bool:
    """Whether the matches of a pattern are an automaton's, none of them empty."""
    found = automaton(pattern)
    return (
        found is not None and not found.trims and found.shortest > 0 and first_is_longest(pattern)
    )


def _parts(e: Emitter, slices: str, place: str) -> tuple[str, str]:
    """Where a slice starts, and its bytes."""
    word = e.let(f"ld_int64({slices}, {place})", "int64").expr
    return e.let(f"{word} >> 32", "int64").expr, e.let(f"{word} & {_SIZE}", "int64").expr


def _cut(
    e: Emitter,
    found: Automaton,
    base: str,
    word: tuple[str, str],
    hits: str,
    made: str,
    count: str,
) -> None:
    """Put what a word is between its matches behind the others."""
    (start, size), tables = word, ", ".join(map(e.address, found.tables))
    sizes = f"{e.size(found.kinds)}, {e.size(found.run)}"
    call = f"text_tokens({base} + {start}, {size}, {hits}, {tables}, {sizes})"
    matches, place = e.let(call, "int64").expr, e.var("int64(0)")

    def keep(end: str) -> None:
        with e.block(f"if {end} > {place}:"):
            e.line(f"st_int64({made}, {count}, ({start} + {place}) << 32 | {end} - {place})")
            e.line(f"{count} = {count} + 1")

    with e.loop(matches) as number:
        first, length = _parts(e, hits, number)
        keep(first)
        e.line(f"{place} = {first} + {length}")
    keep(size)


def _long_enough(e: Emitter, base: str, words: str, number: str, least: str) -> str:
    """Drop the words of fewer characters: bytes that go on with one are none."""
    kept = e.var("int64(0)")
    with e.loop(number) as place:
        start, size = _parts(e, words, place)
        characters = e.var("int64(0)")
        with e.loop(size) as j:
            e.line(f"{characters} += (ld_uint8({base} + {start} + {j}, 0) & 192) != 128")
        e.line(f"st_int64({words}, {kept}, {start} << 32 | {size})")
        e.line(f"{kept} = {kept} + ({characters} >= {least})")
    return kept
