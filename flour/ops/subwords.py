"""Operators on pieces of words (see flour.ops.pieces): the first ones, their numbers, means.

A mean of the rows that a table of vectors has for pieces is a static embedding of the document.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flour.core.check import expect, tokens
from flour.core.emission import Emitter, TextValue, TokensValue, Value, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import held
from flour.core.native_values import Memory
from flour.core.op import Arity, Array, Columns, Op, Table
from flour.core.types import ANYTHING, INTS, Extent, Type, Vector, extent_of
from flour.ops.text import TextMap, ToWords, document, looked_up, numbered

#: Sums of numbers up to this do not become infinite.
_LARGEST = 1e30


class FirstCharacters(TextMap):
    """The document's first characters, `most` of them."""

    most: int

    def check(self) -> None:
        _not_negative(self.most)

    def one(self, document: str) -> str:
        return document[: self.most]

    def traced(self, document: str) -> tuple[str, list[int]]:
        """The new text, and its places, which stay."""
        made = self.one(document)
        return made, [*range(len(made) + 1)]

    def emit(self, e: Emitter, x: Value) -> TextValue:
        source = document(e, x)
        call = f"text_first({source.where}, {source.size}, {e.size(self.most)})"
        return source._replace(size=e.let(call, "int64").expr)


class FirstWords(ToWords, takes=tokens):
    """The first words, `most` of them."""

    most: int

    def check(self) -> None:
        _not_negative(self.most)

    def reference(self, x: Columns) -> Columns:
        return [words[: self.most] for words in x]

    def emit(self, e: Emitter, x: TokensValue) -> TokensValue:
        return x._replace(number=e.let(f"min({x.number}, {e.size(self.most)})", "int64").expr)


def _not_negative(most: int) -> None:
    if most < 0:
        raise ParameterError("a number of characters or words is not negative", found=str(most))


class TokenMean(Op, arity=Arity.AGGREGATE):
    """The mean of the rows that a table has for the words; zeros for a list without any.

    Row `places[i]` is that of word i of the vocabulary, weighted with `weights[i]`; without them it
    is row i, and every weight is one. Rows are added in the order of the words, in the floats of
    the table (float64 for integers); `dtype` is the answer's.
    """

    vocabulary: Table
    rows: Array
    places: Array = ()  # type: ignore[assignment]  # made an array by its annotation
    weights: Array = ()  # type: ignore[assignment]  # made an array by its annotation
    dtype: str = "float32"

    def check(self) -> None:
        count = len(self.vocabulary)
        for each in (self.places, self.weights):
            if each.array.size not in (0, count):
                raise ParameterError(
                    "the table does not fit the vocabulary",
                    where=f"{count} words",
                    found=str(each.array.shape),
                )
        places = self.places.array if self.places.array.size else np.arange(count)
        table = self.rows.array
        inside = places.min(initial=0) >= 0 and places.max(initial=-1) < len(table)
        if table.ndim != 2 or places.dtype.kind not in "iu" or not inside:
            raise ParameterError("every word needs a row of the table", found=str(table.shape))
        if table.dtype.name not in ("float64", "float32", *INTS):
            raise ParameterError("these rows are no numbers", found=str(table.dtype))

    def infer(self, x: Type) -> Vector:
        tokens(x, self.name)
        expect(self.dtype in ("float32", "float64"), f"a mean is no {self.dtype}")
        return Vector(self.rows.array.shape[1], self.dtype)

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        rows, weights = (extent_of(each.array) for each in (self.rows, self.weights))
        largest = rows.largest * (weights.largest if self.weights.array.size else 1.0)
        return ANYTHING if rows.nan or weights.nan or largest > _LARGEST else Extent(False, largest)

    @property
    def _sums(self) -> str:
        """The dtype of the sums."""
        given = [self.rows.array, *([self.weights.array] if self.weights.array.size else [])]
        kind = np.result_type(*given)
        return kind.name if kind.kind == "f" else "float64"

    def reference(self, x: Columns) -> Columns:
        known, rows = numbered(self.vocabulary), self.rows.array
        answer = np.zeros((len(x), rows.shape[1]), self.dtype)
        for row, words in enumerate(x):
            numbers = np.array([known[word] for word in words if word in known], np.int64)
            if not len(numbers):
                continue
            places = self.places.array[numbers] if self.places.array.size else numbers
            picked = rows[places].astype(self._sums)
            if self.weights.array.size:
                picked = picked * self.weights.array[numbers][:, None].astype(self._sums)
            total = np.add.accumulate(picked, axis=0)[-1]
            answer[row] = total / picked.dtype.type(len(numbers))
        return answer

    def emit(self, e: Emitter, x: TokensValue) -> VectorValue:
        sums, width = self._sums, self.rows.array.shape[1]
        total = Memory(e.scratch(sums, width), sums)
        columns, count = e.size(width), e.var("0", "k")
        nothing = e.number(-0.0, sums)  # whatever is added to it stays as it is, zeros included
        with e.loop(columns) as j:
            e.store(total, j, nothing, sums)
        dictionary, rows = looked_up(e, self.vocabulary), e.address(self.rows)
        with e.loop(x.number) as k:
            word = e.let(f"ld_int64({x.slices}, {k})", "int64").expr
            where, size = f"{x.base} + ({word} >> 32)", f"{word} & 0xFFFFFFFF"
            number = e.let(f"text_find({where}, {size}, {dictionary})", "int64").expr
            with e.block(f"if {number} >= 0:"):
                e.line(f"{count} += 1")
                self._add(e, total, rows, number, columns)
        many = e.let(e.cast(f"max({count}, 1)", "int64", sums), sums).expr
        zero = e.let(f"0.0 if {count} == 0 else -0.0", "float64").expr
        made = Memory(e.scratch(self.dtype, width), self.dtype)
        with e.loop(columns) as j:
            mean = f"{e.load(total, j, sums)} / {many} + {e.cast(zero, 'float64', sums)}"
            e.store(made, j, e.cast(mean, sums, self.dtype), self.dtype)
        return held(e, made, width, columns)

    def _add(self, e: Emitter, total: Memory, rows: str, number: str, columns: str) -> None:
        """Add the row of a word to the sums."""
        sums, kind = total.dtype, self.rows.array.dtype.name
        place = e.at(self.places, number, "int64") if self.places.array.size else number
        start = e.let(f"{place} * {columns}", "int64").expr
        weight = ""
        if self.weights.array.size:
            weight = f" * {e.let(e.at(self.weights, number, sums), sums).expr}"
        with e.loop(columns) as j:
            value = e.load(rows, f"{start} + {j}", kind, constant=True)
            value = f"{e.cast(value, kind, sums)}{weight}"
            e.store(total, j, f"{e.load(total, j, sums)} + {value}", sums)


class WordNumbers(Op):
    """The numbers of the first words in a vocabulary, `most` of them; -1 behind the last one."""

    vocabulary: Table
    most: int

    def check(self) -> None:
        _not_negative(self.most)

    def infer(self, x: Type) -> Vector:
        tokens(x, self.name)
        return Vector(self.most, "int64")

    def reference(self, x: Columns) -> Columns:
        known, answer = numbered(self.vocabulary), np.full((len(x), self.most), -1, np.int64)
        for row, words in zip(answer, x, strict=True):
            found = [known.get(word, -1) for word in words[: self.most]]
            row[: len(found)] = found
        return answer

    def emit(self, e: Emitter, x: TokensValue) -> VectorValue:
        made = Memory(e.scratch("int64", self.most), "int64")
        dictionary, most = looked_up(e, self.vocabulary), e.size(self.most)
        with e.loop(most) as j:
            e.store(made, j, "-1", "int64")
        with e.loop(e.let(f"min({x.number}, {most})", "int64").expr) as j:
            word = e.let(f"ld_int64({x.slices}, {j})", "int64").expr
            where, size = f"{x.base} + ({word} >> 32)", f"{word} & 0xFFFFFFFF"
            e.store(made, j, f"text_find({where}, {size}, {dictionary})", "int64")
        return held(e, made, self.most, most)
