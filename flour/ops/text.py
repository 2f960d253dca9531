"""Documents and words: cleaning, tokenising, dropping.

In native code they are UTF-8 bytes. The properties of characters and the automata of patterns are
tables (flour.strings.unicode, flour.strings.patterns), so all languages and all patterns share one
piece of code. A pattern without an automaton runs as Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from flour.core.check import expect, is_string, text, tokens
from flour.core.emission import Emitter, Room, RowValue, ScalarValue, TextValue, TokensValue, Value
from flour.core.errors import ParameterError
from flour.core.op import Arity, Columns, Op, Table
from flour.core.types import Scalar, Text, Tokens, Type, Vector
from flour.strings import unicode
from flour.strings.dictionary import dictionary
from flour.strings.patterns import Automaton, automaton, first_is_longest
from objectstore import Blob, Strings

#: A word, and its place in a document: its first character, and the one behind its last.
Placed: TypeAlias = tuple[str, int, int]
#: Words of at least two letters, digits or underscores: what scikit-learn takes for a word.
WORD = r"(?u)\b\w\w+\b"
#: Room behind a document's bytes, so that it can be read and written eight bytes at a time.
SLACK = 32


class TextMap(Op, abstract=True, reads_characters=True):
    """One document to another."""

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
    e.refuse(f"{size} < 0")
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


class ToWords(Op, abstract=True):
    """Words, of a document or of other words."""

    #: The check of the input's type.
    takes: ClassVar[Callable[[Type, str], None]] = text

    def infer(self, x: Type) -> Tokens:
        type(self).takes(x, self.name)
        return Tokens()


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern of a parameter."""
    try:
        return re.compile(pattern)
    except re.error as problem:
        raise ParameterError(
            "this is not a regular expression", where=repr(pattern), found=str(problem)
        ) from None


class Tokenize(ToWords, arity=Arity.ONE_TO_MANY, reads_characters=True):
    """The document's words: every match of a regular expression, or of its one group."""

    pattern: str = WORD

    def check(self) -> None:
        groups = compiled(self.pattern).groups
        if groups > 1:
            raise ParameterError(
                "a token is one group at most", where=repr(self.pattern), found=f"{groups} groups"
            )

    def placed(self, document: str, words: Sequence[Placed]) -> list[Placed]:
        """The words, with their places in the document."""
        pattern = re.compile(self.pattern)
        group = pattern.groups
        return [(found[group], *found.span(group)) for found in pattern.finditer(document)]

    def reference(self, x: Columns) -> Columns:
        find = re.compile(self.pattern).findall
        return [find(document) for document in x]

    def runs_native(self) -> bool:
        return automaton(self.pattern) is not None

    def emit(self, e: Emitter, x: Value) -> TokensValue:
        source, matcher = document(e, x), automaton(self.pattern)
        assert matcher is not None, "only patterns with an automaton are native"
        most = Room(source.growth, 1)
        slices = e.room(most.times(8))
        call = f"text_tokens({source.where}, {source.size}, {slices}, {searched(e, matcher)})"
        count = e.let(call, "int64").expr
        if matcher.trims:  # matches are cut down to their group
            sizes = ", ".join(map(e.size, (matcher.before, matcher.inside, matcher.behind)))
            e.line(f"text_trim({source.where}, {slices}, {count}, {sizes})")
        return TokensValue(source.where, slices, count, most, most.times(2))


def searched(e: Emitter, matcher: Automaton) -> str:
    """The arguments that are a pattern's automaton."""
    return ", ".join([*map(e.address, matcher.tables), e.size(matcher.kinds), e.size(matcher.run)])


class Split(ToWords, arity=Arity.ONE_TO_MANY):
    """The document cut at every separator; the pieces may be empty."""

    separator: str = ","

    def check(self) -> None:
        if not self.separator:
            raise ParameterError("a separator has at least one character")

    def placed(self, document: str, words: Sequence[Placed]) -> list[Placed]:
        """The pieces, with their places in the document."""
        pieces = document.split(self.separator)
        starts = accumulate((len(piece) + len(self.separator) for piece in pieces), initial=0)
        return [(piece, at, at + len(piece)) for piece, at in zip(pieces, starts, strict=False)]

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
        return TokensValue(source.where, slices, e.let(call, "int64").expr, most, most.times(2))


class DropWords(ToWords, takes=tokens):
    """The words that are not in a list (of stop words)."""

    words: Table

    def placed(self, document: str, words: Sequence[Placed]) -> list[Placed]:
        """The words that are left, with their places."""
        dropped = numbered(self.words)
        return [word for word in words if word[0] not in dropped]

    def reference(self, x: Columns) -> Columns:
        dropped = numbered(self.words)
        return [[word for word in words if word not in dropped] for words in x]

    def emit(self, e: Emitter, x: TokensValue) -> TokensValue:
        slices = e.room(x.most.times(8))
        dictionary = looked_up(e, self.words)
        call = f"text_drop({x.base}, {x.slices}, {x.number}, {dictionary}, {slices})"
        return x._replace(slices=slices, number=e.let(call, "int64").expr)


class JoinTexts(Op, method=""):
    """The document x followed by the document y."""

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
        return TextValue(text, e.let(f"{first.size} + {second.size}", "int64").expr, growth)


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


class MatchesWhole(Op, reads_characters=True):
    """True if a string matches a regular expression from its first character to its last.

    A missing string does not.
    """

    pattern: str

    def check(self) -> None:
        compiled(self.pattern)

    def infer(self, x: Type) -> Vector | Scalar:
        fine = isinstance(x, Text) or (isinstance(x, Vector | Scalar) and x.dtype == "string")
        expect(fine, f"only strings match a pattern, got {x}")
        return Vector(x.width, "bool") if isinstance(x, Vector) else Scalar("bool")

    def reference(self, x: Columns) -> Columns:
        match = re.compile(self.pattern).fullmatch
        flat = [isinstance(v, str) and match(v) is not None for v in x.reshape(-1).tolist()]
        return np.array(flat, bool).reshape(x.shape)

    def runs_native(self) -> bool:
        matcher = automaton(self.pattern)
        return matcher is not None and not matcher.trims and first_is_longest(self.pattern)

    def emit(self, e: Emitter, x: RowValue | TextValue) -> RowValue:
        matcher = automaton(self.pattern)
        assert matcher is not None, "only patterns with an automaton are native"
        growth = x.growth if isinstance(x, TextValue) else 1
        slices = e.room(Room(growth, 1).times(8))
        tables = searched(e, matcher)

        def whole(where: str, size: str) -> ScalarValue:
            most = e.let(f"max({size}, 0)", "int64").expr
            count = e.let(f"text_tokens({where}, {most}, {slices}, {tables})", "int64").expr
            # The first match is the longest from the first character on: it is the whole string, or
            # no match is.
            return e.let(f"{count} > 0 and ld_int64({slices}, 0) == {size}", "bool")

        def cell(value: str) -> ScalarValue:
            address = e.let(value, "int64").expr
            return whole(*(e.let(f"ld_int64({address}, {k})", "int64").expr for k in (0, 1)))

        if isinstance(x, TextValue):
            return whole(x.where, x.size)
        return e.map(lambda _, value: cell(value).expr, x, dtype="bool")


class Join(Op):
    """The words as one document, with a separator between them."""

    separator: str = " "

    def infer(self, x: Type) -> Text:
        tokens(x, "join")
        return Text()

    def reference(self, x: Columns) -> Columns:
        texts = np.empty(len(x), object)
        texts[:] = [self.separator.join(words) for words in x]
        return texts

    def emit(self, e: Emitter, x: TokensValue) -> TextValue:
        raw = self.separator.encode("utf-8", "surrogatepass")
        # Sixteen bytes behind what is copied are read as well.
        separator = e.address(Blob.of(np.frombuffer(raw + bytes(SLACK), np.uint8)))
        # `joined` has a byte for each word: a longer separator takes as many times as much.
        most = x.joined.times(max(len(raw), 1))
        text, size = e.room(Room(most.each, most.fixed + SLACK)), e.var("0")
        with e.loop(x.number) as j:
            with e.block(f"if {j} > 0:"):
                e.line(f"text_copy({separator}, {e.size(len(raw))}, {text} + {size})")
                e.line(f"{size} += {e.size(len(raw))}")
            word = e.let(f"ld_int64({x.slices}, {j})", "int64").expr
            length = e.let(f"{word} & 0xFFFFFFFF", "int64").expr
            e.line(f"text_copy({x.base} + ({word} >> 32), {length}, {text} + {size})")
            e.line(f"{size} += {length}")
        return TextValue(text, size, most.each + most.fixed)


class Length(Op):
    """The number of characters of a document, or of words in a list (int64)."""

    def infer(self, x: Type) -> Scalar:
        fine = isinstance(x, Text | Tokens) or is_string(x)
        expect(fine, f"length needs text or tokens, got {x}", "a vector's width is in .type.width")
        return Scalar("int64")

    def reference(self, x: Columns) -> Columns:
        return np.array([len(row) for row in x], np.int64)

    def emit(self, e: Emitter, x: Value) -> Any:
        if isinstance(x, TokensValue):
            return e.let(x.number, "int64")
        text, count = document(e, x), e.var("0")
        with e.loop(text.size) as j:
            # In UTF-8 every byte that is not 10xxxxxx begins a character.
            e.line(f"{count} += int64(ld_uint8({text.where}, {j}) & 192 != 128)")
        return e.let(count, "int64")
