"""Documents and words: cleaning, tokenising, dropping.

In native code they are UTF-8 bytes. The properties of characters and the automata of patterns are
tables (flour.strings.unicode, flour.strings.patterns), so all languages and all patterns share one
piece of code. A pattern without an automaton runs as Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from flour.core.check import text, tokens
from flour.core.emission import Emitter, Room, ScalarValue, TextValue, TokensValue, Value
from flour.core.errors import ParameterError
from flour.core.op import Arity, Columns, Op, Table
from flour.core.types import Text, Tokens, Type
from flour.strings import unicode
from flour.strings.dictionary import dictionary
from flour.strings.patterns import Automaton, automaton
from objectstore import Blob, Strings

#: A word, and its place in a document: its first character, and the one behind its last.
Placed: TypeAlias = tuple[str, int, int]
#: Words of at least two letters, digits or underscores: what scikit-learn takes for a word.
WORD = r"(?u)\b\w\w+\b"
#: Room behind a document's bytes, so that it can be read and written eight bytes at a time.
SLACK = 32


class TextMap(Op, abstract=True):
    """One document to another."""

    reads_characters = True

    def infer(self, x: Type) -> Text:
        text(x, self.name)
        return Text()

    def reference(self, x: Columns) -> Columns:
        texts = np.empty(len(x), object)
        texts[:] = [self.one(document) for document in x]
        return texts

    def one(self, document: str) -> str:
        """The document's new text."""
        raise NotImplementedError(f"{self.name}.one")

    def traced(self, document: str) -> tuple[str, list[int]]:
        """The new text, and for each of its places (and its end) the place in the document."""
        pieces = [self.one(letter) for letter in document]
        text = self.one(document)
        if "".join(pieces) != text:  # a letter depends on those beside it, but for its length
            pieces = list(text) if len(text) == len(document) else [text]
        ends = [at for at, piece in enumerate(pieces) for _ in piece]
        return text, [*ends, len(document)]

    def mapping(self) -> unicode.Mapping:
        """The text that replaces each character."""
        raise NotImplementedError(f"{self.name}.mapping")

    def emit(self, e: Emitter, x: Value) -> TextValue:
        source, table = document(e, x), self.mapping()
        growth = source.growth * table.growth
        text = e.room(Room(growth, SLACK))
        fold = e.size(_SMALL if isinstance(self, Lower) else 0)
        tables = (*unicode.contexts(), table.places, table.blocks, table.pieces)
        context, contexts, index, blocks, pieces = map(e.address, tables)
        call = f"text_map({source.where}, {source.size}, {text}, {fold}, {index}, {blocks}, "
        size = e.let(f"{call}{pieces}, {context}, {contexts})", "int64").expr
        return TextValue(text, size, growth)


# The bit in which small letters differ from capitals, in each of eight bytes.
_SMALL = 0x2020202020202020


def document(e: Emitter, x: Value) -> TextValue:
    """A document as a slice of UTF-8 bytes; rows without one are refused."""
    if isinstance(x, TextValue):
        return x
    assert isinstance(x, ScalarValue), "a document, or a cell with one"
    where, size = (e.let(f"ld_int64({x.expr}, {half})", "int64").expr for half in "01")
    with e.block(f"if {size} < 0:"):
        e.line("return 1")
    return TextValue(where, size, 1)


class Lower(TextMap):
    """The document in lower case, by Unicode's full rules (which may change its length)."""

    def one(self, document: str) -> str:
        return document.lower()

    def mapping(self) -> unicode.Mapping:
        return unicode.lower()


class Upper(TextMap):
    """The document in upper case, by Unicode's full rules (which may change its length)."""

    def one(self, document: str) -> str:
        return document.upper()

    def mapping(self) -> unicode.Mapping:
        return unicode.upper()

    def emit(self, e: Emitter, x: Value) -> TextValue:
        made = super().emit(e, x)
        with e.loop(made.size) as j:
            byte = e.let(f"ld_uint8({made.where}, {j})", "int64").expr
            small = f"{byte} >= {ord('a')} and {byte} <= {ord('z')}"
            e.store(made.where, j, f"{byte} - 32 if {small} else {byte}", "uint8")
        return made


class StripAccents(TextMap):
    """The document decomposed (NFKD), without its combining marks, or without all but ASCII."""

    ascii: bool = False

    def one(self, document: str) -> str:
        if document.isascii():
            return document
        decomposed = unicodedata.normalize("NFKD", document)
        if self.ascii:
            return decomposed.encode("ascii", "ignore").decode("ascii")
        return "".join(letter for letter in decomposed if not unicodedata.combining(letter))

    def mapping(self) -> unicode.Mapping:
        return unicode.without_accents(only_ascii=self.ascii)


class Tokenize(Op):
    """The document's words: every match of a regular expression, or of its one group."""

    pattern: str = WORD
    arity = Arity.ONE_TO_MANY
    reads_characters = True

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

    def placed(self, document: str, words: Sequence[Placed]) -> list[Placed]:
        """The words, with their places in the document."""
        pattern = re.compile(self.pattern)
        group = pattern.groups
        return [(found[group], *found.span(group)) for found in pattern.finditer(document)]

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        find = re.compile(self.pattern).findall
        return [find(document) for document in x]

    def runs_native(self) -> bool:
        return automaton(self.pattern) is not None

    def structure(self) -> tuple[object, ...]:
        matcher = automaton(self.pattern)
        return (matcher is not None and matcher.trims,)

    def emit(self, e: Emitter, x: Value) -> TokensValue:
        source, matcher = document(e, x), automaton(self.pattern)
        assert matcher is not None, "only patterns with an automaton are native"
        most = Room(source.growth, 1)
        slices = e.room(most.times(8))
        tables = ", ".join(map(e.address, matcher.tables))
        sizes = f"{e.size(matcher.kinds)}, {e.size(matcher.run)}"
        call = f"text_tokens({source.where}, {source.size}, {slices}, {tables}, {sizes})"
        count = e.let(call, "int64").expr
        if matcher.trims:
            _trim(e, matcher, source.where, slices, count)
        return TokensValue(source.where, slices, count, most, most.times(2))


def _trim(e: Emitter, matcher: Automaton, where: str, slices: str, count: str) -> None:
    """Cut matches down to their group."""
    before, inside, behind = (e.size(n) for n in (matcher.before, matcher.inside, matcher.behind))
    e.line(f"text_trim({where}, {slices}, {count}, {before}, {inside}, {behind})")


class Split(Op):
    """The document cut at every separator; the pieces may be empty."""

    separator: str = ","
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        if not self.separator:
            raise ParameterError("a separator has at least one character")

    def placed(self, document: str, words: Sequence[Placed]) -> list[Placed]:
        """The pieces, with their places in the document."""
        pieces = document.split(self.separator)
        starts = accumulate((len(piece) + len(self.separator) for piece in pieces), initial=0)
        return [(piece, at, at + len(piece)) for piece, at in zip(pieces, starts, strict=False)]

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        return [document.split(self.separator) for document in x]

    def emit(self, e: Emitter, x: Value) -> TokensValue:
        source = document(e, x)
        raw = self.separator.encode("utf-8", "surrogatepass")
        # Documents may be read beyond their end, and so may the separator they are compared with.
        separator = e.address(Blob.of(np.frombuffer(raw + bytes(8), np.uint8)))
        most = Room(source.growth, 1)
        slices = e.room(most.times(8))
        call = (
            f"text_split({source.where}, {source.size}, {slices}, {separator}, {e.size(len(raw))})"
        )
        count = e.let(call, "int64").expr
        return TokensValue(source.where, slices, count, most, most.times(2))


class DropWords(Op):
    """The words that are not in a list (of stop words)."""

    words: Table

    def placed(self, document: str, words: Sequence[Placed]) -> list[Placed]:
        """The words that are left, with their places."""
        dropped = numbered(self.words)
        return [word for word in words if word[0] not in dropped]

    def infer(self, x: Type) -> Tokens:
        tokens(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        dropped = numbered(self.words)
        return [[word for word in words if word not in dropped] for words in x]

    def emit(self, e: Emitter, x: TokensValue) -> TokensValue:
        slices = e.room(x.most.times(8))
        dictionary = looked_up(e, self.words)
        call = f"text_drop({x.base}, {x.slices}, {x.number}, {dictionary}, {slices})"
        return x._replace(slices=slices, number=e.let(call, "int64").expr)


class JoinTexts(Op):
    """The document x followed by the document y."""

    method = ""

    def infer(self, x: Type, y: Type) -> Text:
        text(x, self.name)
        text(y, self.name)
        return Text()

    def reference(self, x: Columns, y: Columns) -> Columns:
        joined = np.empty(len(x), object)
        joined[:] = [one + other for one, other in zip(x, y, strict=True)]
        return joined

    def emit(self, e: Emitter, x: Value, y: Value) -> TextValue:
        first, second = document(e, x), document(e, y)
        growth = first.growth + second.growth
        text = e.room(Room(growth, SLACK))
        e.line(f"text_copy({first.where}, {first.size}, {text})")
        e.line(f"text_copy({second.where}, {second.size}, {text} + {first.size})")
        size = e.let(f"{first.size} + {second.size}", "int64").expr
        return TextValue(text, size, growth)


def looked_up(e: Emitter, texts: Table) -> str:
    """The addresses of a dictionary's texts and slots, as the arguments of a look-up."""
    offsets, data = map(e.address, texts.blobs())
    slots, homes = dictionary(texts)
    return f"{offsets}, {data}, {e.address(slots)}, {e.size(homes)}"


_NUMBERED: WeakKeyDictionary[Strings, Mapping[str, int]] = WeakKeyDictionary()


def numbered(table: Strings) -> Mapping[str, int]:
    """The number of each text of the table; computed once for as long as the table lives."""
    numbers = _NUMBERED.get(table)
    if numbers is None:
        numbers = {text: number for number, text in enumerate(table.to_list())}
        _NUMBERED[table] = numbers
    return numbers
