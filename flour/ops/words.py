"""Words joined to a document, and the length of documents and of lists of words."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.check import expect, is_string, tokens
from flour.core.emission import Emitter, Room, TextValue, TokensValue, Value
from flour.core.op import Columns, Op
from flour.core.types import Scalar, Text, Tokens, Type
from flour.ops.text import SLACK, document
from objectstore import Blob


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
