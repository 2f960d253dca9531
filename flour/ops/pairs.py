"""Names with numbers to features: looked up in a vocabulary or hashed, and added up by column.

Here are the adapters of DictVectorizer and FeatureHasher, whose rows are mappings of any keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from flour.core.check import pairs
from flour.core.emission import Emitter, PairsValue, Push, Room, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Columns, Op, Table
from flour.core.sparse import Sparse
from flour.core.types import FLOATS, Pairs, Tokens, Type, Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.ngrams import stacked
from flour.ops.text import looked_up, numbered
from flour.strings.hashing import murmur3

#: Hashes from here on, as unsigned numbers, are half of all: their values are negated.
_NEGATIVE = 0x80000000


class NamedValues(Op, arity=Arity.ONE_TO_MANY):
    """The numbers of the vocabulary's names, a column for each; those of one name are added up."""

    vocabulary: Table
    dtype: str = "float64"

    def check(self) -> None:
        _check_float(self.dtype)

    def infer(self, x: Type) -> Vector:
        pairs(x, self.name)
        return Vector(len(self.vocabulary), self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        column_of = numbered(self.vocabulary)
        rows = ([(column_of[k], v) for k, v in row if k in column_of] for row in x)
        return _added(rows, len(self.vocabulary), self.dtype)

    def emit(self, e: Emitter, x: PairsValue) -> VectorValue:
        sums = _RowSums(e, x, len(self.vocabulary), self.dtype)
        dictionary = looked_up(e, self.vocabulary)
        with sums.each() as (where, size, value):
            column = e.let(f"text_find({where}, {size}, {dictionary})", "int64").expr
            with e.block(f"if {column} >= 0:"):
                sums.add(column, value)
        return sums.vector()


class HashedValues(Op, arity=Arity.ONE_TO_MANY):
    """Numbers added up in the columns their names hash to; half negated with `signed`."""

    width: int
    signed: bool = True
    dtype: str = "float64"

    def check(self) -> None:
        if self.width < 1:
            raise ParameterError("hashing needs at least one column", found=str(self.width))
        _check_float(self.dtype)

    def infer(self, x: Type) -> Vector:
        pairs(x, self.name)
        return Vector(self.width, self.dtype, sparse=True)

    def reference(self, x: Columns) -> Columns:
        return _added(map(self._row, x), self.width, self.dtype)

    def _row(self, row: Iterable[tuple[str, float]]) -> list[tuple[int, float]]:
        codes = [(murmur3(name.encode()), value) for name, value in row if value != 0]
        return [(abs(c) % self.width, -v if c < 0 and self.signed else v) for c, v in codes]

    def emit(self, e: Emitter, x: PairsValue) -> VectorValue:
        sums = _RowSums(e, x, self.width, self.dtype)
        width, signed = e.size(self.width), e.size(self.signed)
        with sums.each() as (where, size, value), e.block(f"if {value} != 0:"):
            e.refuse(f"text_surrogate({where}, {size})")
            code = e.let(f"text_murmur({where}, {size})", "int64").expr
            magnitude = f"(4294967296 - {code} if {code} >= {_NEGATIVE} else {code})"
            column = e.let(f"{magnitude} % {width}", "int64").expr
            turned = f"(-{value} if {code} >= {_NEGATIVE} and {signed} != 0 else {value})"
            sums.add(column, e.let(turned, self.dtype).expr)
        return sums.vector()


def _check_float(dtype: str) -> None:
    if dtype not in FLOATS:
        raise ParameterError("sums are float32 or float64", found=dtype)


def _added(rows: Iterable[Iterable[tuple[int, float]]], width: int, dtype: str) -> Sparse:
    """The sums of each column, computed in `dtype` and in the order of the pairs."""
    kind, added = np.dtype(dtype).type, []
    with np.errstate(all="ignore"):
        for row in rows:
            sums: dict[int, Any] = {}
            for column, value in row:
                sums[column] = sums[column] + kind(value) if column in sums else kind(value)
            columns = sorted(sums)
            added.append((columns, [sums[column] for column in columns]))
    return stacked(added, width, dtype)


class _RowSums:
    """A row's columns and their sums while the row is being added up.

    `columns` lists the columns in the order of their first values, each as column << 32 | slot;
    `sums` holds the sum of each slot; `slot_of` maps a column to its slot. `slot_of` is never
    cleared, so an entry is valid only if the column listed at that slot is the same one.
    """

    def __init__(self, e: Emitter, x: PairsValue, width: int, dtype: str) -> None:
        """For the pairs of a row."""
        self._e, self._x, self._width, self._dtype = e, x, width, dtype
        self._most = Room(x.most.each, x.most.fixed, min(x.most.most, width))
        self._columns, self._sums = (e.room(self._most.times(8)) for _ in range(2))
        self._slot_of, self._count = e.room(Room(0, 4 * width)), e.var("0", "k")

    @contextmanager
    def each(self) -> Iterator[tuple[str, str, str]]:
        """Emit a loop over the pairs: the address of a name, its length in bytes, its number."""
        e, x = self._e, self._x
        with e.loop(x.number) as k:
            here = e.let(e.load(x.slices, k, "int64", constant=True), "int64").expr
            where = e.let(f"{x.base} + ({here} >> 32)", "int64").expr
            size = e.let(f"{here} & 4294967295", "int64").expr
            number = e.load(x.values, k, "float64", constant=True)
            yield where, size, e.let(e.cast(number, "float64", self._dtype), self._dtype).expr

    def add(self, column: str, value: str) -> None:
        """Emit code that adds a value to a column's sum."""
        e, columns, count = self._e, self._columns, self._count
        slot = e.var(f"int64(ld_int32({self._slot_of}, {column}))", "k")
        inside = f"0 <= {slot} < {count}"
        with e.block(f"if {inside} and ld_int64({columns}, {slot}) >> 32 == {column}:"):
            sum_ = e.load(self._sums, slot, self._dtype)
            e.store(self._sums, slot, f"{sum_} + {value}", self._dtype)
        with e.block("else:"):
            e.line(f"st_int64({columns}, {count}, {column} << 32 | {count})")
            e.line(f"st_int32({self._slot_of}, {column}, {count})")
            e.store(self._sums, count, value, self._dtype)
            e.line(f"{count} = {count} + 1")

    def vector(self) -> VectorValue:
        """The sums."""
        e, columns = self._e, self._columns
        if e.ordered:
            e.line(f"text_sort({columns}, {self._count}, {e.room(self._most.times(8))})")

        def each(push: Push) -> None:
            with e.loop(self._count) as k:
                entry = e.let(f"ld_int64({columns}, {k})", "int64").expr
                value = e.load(self._sums, f"({entry} & 4294967295)", self._dtype)
                push(e.let(f"{entry} >> 32", "int64").expr, e.let(value, self._dtype).expr)

        return e.sparse(self._dtype, self._width, each, most=self._most)


# --- scikit-learn ---------------------------------------------------------------------------------


def _dtype(fit: Fitted, to: Importer) -> str:
    name = str(np.dtype(fit.dtype).name)
    to.need(name in FLOATS, f"dtype={name} cuts numbers off", "use np.float64 or np.float32")
    return name


@adapts("sklearn.feature_extraction.DictVectorizer")
def _dict_vectorizer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    names = sorted(fit.vocabulary_, key=fit.vocabulary_.__getitem__)
    other = next((name for name in names if not isinstance(name, str)), None)
    to.need(
        other is None, f"the feature {other!r} is no string", "fit it on rows whose keys are str"
    )
    _rows_of(x, to, "DictVectorizer", Pairs(fit.separator, lenient=True))
    values = x.named_values(names, _dtype(fit, to))
    return values if fit.sparse else values.to_dense()


@adapts("sklearn.feature_extraction.FeatureHasher")
def _feature_hasher(fit: Fitted, x: Flow, to: Importer) -> Flow:
    if isinstance(x.type, Tokens) and fit.input_type == "string":
        dtype = str(np.dtype(fit.dtype).name)
        return x.hashing(fit.n_features, signed=fit.alternate_sign, dtype=dtype)
    what = f"FeatureHasher(input_type={fit.input_type!r})"
    to.need(fit.input_type != "string", f"{what} takes rows of words, got {x.type}")
    _rows_of(x, to, what, Pairs())
    return x.hashed_values(fit.n_features, signed=fit.alternate_sign, dtype=_dtype(fit, to))


def _rows_of(x: Flow, to: Importer, what: str, kind: Pairs) -> None:
    """Refuse columns, and rows that are read in another way."""
    to.need(isinstance(x.type, Pairs), f"{what} takes rows of any names, got {x.type}")
    to.need(
        x.type == kind,
        f"{what} reads rows with {kind.separator!r}, another step that sees them does not",
        "give both one separator, and keep FeatureHasher and DictVectorizer apart",
    )
