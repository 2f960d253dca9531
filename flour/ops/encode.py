"""Category codes to numbers: one-hot columns, ordinals, encoded targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core import native
from flour.core.check import expect, fitted, vector
from flour.core.emission import Emitter, Room, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Columns, Op
from flour.core.raw_columns import Made
from flour.core.sparse import Sparse
from flour.core.types import DTYPES, INTS, Type, Vector, dtype_name
from flour.core.words import Number, Numbers, Row, stored
from flour.core.words import fitted as fitted_numbers
from flour.language.adapters import Fitted, Importer, adapts, declines
from flour.language.flow import Flow
from flour.ops.categories import Coding, codes_of
from flour.ops.categorise import check_runs, flatten
from flour.ops.elementwise import one as _one


def _codes(kind: Type, width: int, who: str) -> Vector:
    codes = vector(kind, who)
    expect(codes.dtype in INTS, f"{who} needs codes (whole numbers), got {kind}", "categorise()")
    fitted(width, codes, who)
    return codes


class OneHot(Op):
    """A one in the column of each code, zeros elsewhere (sparse); none for a code out of range.

    Code c of input column j is output column starts[j] + c, up to starts[j + 1].
    """

    method = "one_hot_codes"  # one_hot([...]) of categories is a shorthand
    starts: Array
    dtype: str = "float64"
    counting = True
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        cuts = self.starts.array
        check_runs("one_hot", self.starts, int(cuts[-1]) if cuts.size else 0)
        if self.dtype not in DTYPES or self.dtype == "string":
            raise ParameterError("one_hot makes numbers, not strings")

    def infer(self, x: Type) -> Vector:
        _codes(x, len(self.starts) - 1, "one_hot")
        return Vector(int(self.starts.array[-1]), dtype_name(self.dtype), sparse=True)

    def reference(self, x: Columns) -> Columns:
        cuts = self.starts.array
        hot = (x >= 0) & (x < np.diff(cuts))
        indptr = np.concatenate([[0], np.cumsum(hot.sum(axis=1))]).astype(np.int64)
        columns = (x + cuts[:-1])[hot].astype(np.int64)
        return Sparse(np.ones(len(columns), self.dtype), columns, indptr, (len(x), int(cuts[-1])))

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return np.repeat(made[0], np.diff(self.starts.array))

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        width, most = int(self.starts.array[-1]), Room(0, len(self.starts) - 1)
        one = native.Code(_one(self.dtype) if self.dtype != "bool" else "True", self.dtype)
        return native.sparse(e, hot, x, self.starts, one, dtype=self.dtype, width=width, most=most)


def hot(x: Row, starts: Numbers, one: Number) -> Iterator[tuple[int, Number]]:
    """A one in the column of each code that is in range."""
    for j, code in stored(x):
        start = starts[j]
        column = start + code
        if start <= column < starts[j + 1]:
            yield column, one


class LookUp(Op, answers=("table", "other"), by_column=True):
    """The entry of each column's own table for its code; `other` for a code out of range.

    Column j's table is table[starts[j]:starts[j + 1]].
    """

    table: Array
    starts: Array
    other: Array

    def check(self) -> None:
        check_runs("look_up", self.starts, self.table.array.size, self.other)
        if self.table.dtype != self.other.dtype:
            raise ParameterError("look_up needs one dtype for its table and for other codes")

    def infer(self, x: Type) -> Vector:
        return Vector(_codes(x, len(self.other), "look_up").width, self.table.dtype.name)

    def reference(self, x: Columns) -> Columns:
        cuts = self.starts.array
        fine = (x >= 0) & (x < np.diff(cuts))
        padded = np.append(self.table.array, self.table.dtype.type(0))
        return np.where(fine, padded[np.where(fine, x + cuts[:-1], 0)], self.other.array)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return native.columnwise(e, entry, x, self, dtype=self.table.dtype.name)


def entry(code: Number, j: int, op: Any) -> Number:
    """The entry of column j's table for this code."""
    start = op.starts[j]
    table = fitted_numbers(op.table)  # read only where it is needed: never ahead
    # Subtracted, not added: the sum with a huge code would wrap around.
    return table[start + code] if 0 <= code < op.starts[j + 1] - start else op.other[j]


# --- adapters ---------------------------------------------------------------------------------


@adapts("sklearn.preprocessing.OneHotEncoder")
def _one_hot_encoder(fit: Fitted, x: Flow, to: Importer) -> Flow:
    strict = fit.handle_unknown == "error"
    # To 1.7, "warn" ignored what is unknown; since then it counts as infrequent.
    grouped = ("infrequent_if_exist", *["warn"] * (to.fitted >= (1, 8)))
    drops = fit._drop_idx_after_grouping
    codings = [
        _one_hot_coding(fit, j, None if drops is None else drops[j], grouped, strict=strict)
        for j in range(len(fit.categories_))
    ]
    starts = np.cumsum([0, *fit._n_features_outs]).astype(np.int64)
    codes = codes_of(x, fit.categories_, codings, to, strict=strict)
    columns = codes.one_hot_codes(starts, dtype=dtype_name(fit.dtype))
    return columns if fit.sparse_output else columns.to_dense()


def _one_hot_coding(
    fit: Fitted, j: int, drop: int | None, grouped: tuple[str, ...], *, strict: bool
) -> Coding:
    """The output column of each category of column j, -1 for none; `grouped`: see the caller."""
    codes, unknown = np.arange(len(fit.categories_[j])), -1
    rare = fit._infrequent_indices[j] if fit._infrequent_enabled else None
    if rare is not None:
        codes = np.asarray(fit._default_to_infrequent_mappings[j])
        if fit.handle_unknown in grouped:
            unknown = int(codes[rare[0]])
    if drop is not None:
        codes, unknown = _without(codes, drop), int(_without(np.array([unknown]), drop)[0])
    return Coding(codes, unknown=None if strict else unknown)


def _without(codes: NDArray[Any], drop: int) -> Any:
    """The codes once the column `drop` is gone."""
    return np.where(codes == drop, -1, np.where(codes > drop, codes - 1, codes))


@adapts("sklearn.preprocessing.OrdinalEncoder")
def _ordinal_encoder(fit: Fitted, x: Flow, to: Importer) -> Flow:
    strict = fit.handle_unknown == "error"
    other = 0 if strict else fit.unknown_value
    tables = [_ordinals(fit, j) for j in range(len(fit.categories_))]
    if all(np.all(np.floor(table) == table) for table in (*tables, np.array([other]))):
        columns = [Coding(t.astype(np.int64), None if strict else int(other)) for t in tables]
        return codes_of(x, fit.categories_, columns, to, strict=strict).cast(dtype_name(fit.dtype))
    columns = [Coding(np.arange(len(t)), None if strict else -1) for t in tables]
    codes = codes_of(x, fit.categories_, columns, to, strict=strict)
    table, starts = flatten(tables, fit.dtype)
    return codes.look_up(table, starts, np.full(len(tables), other, fit.dtype))


def _ordinals(fit: Fitted, j: int) -> Any:
    """The ordinal of each category of column j, missing ones included."""
    codes = np.arange(len(fit.categories_[j]), dtype=np.float64)
    missing = fit._missing_indices.get(j)
    if fit._infrequent_enabled and fit._infrequent_indices[j] is not None:
        kept = codes if missing is None else np.delete(codes, missing)
        codes[kept.astype(np.int64)] = fit._default_to_infrequent_mappings[j]
    if missing is not None:
        codes[missing] = fit.encoded_missing_value
    return codes


@adapts("sklearn.preprocessing.TargetEncoder")
def _target_encoder(fit: Fitted, x: Flow, to: Importer) -> Flow:
    columns = [Coding(np.arange(len(values)), unknown=-1) for values in fit.categories_]
    codes = codes_of(x, fit.categories_, columns, to, strict=False)
    means = np.atleast_1d(np.asarray(fit.target_mean_, np.float64))
    if len(means) > 1:
        codes = codes.select(np.repeat(np.arange(len(columns)), len(means)))
    table, starts = flatten(fit.encodings_, np.float64)
    return codes.look_up(table, starts, np.tile(means, len(columns)))


@adapts("sklearn.preprocessing.LabelEncoder")
def _label_encoder(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return _labels(fit, x, to, strict=True).element(0)


def _labels(fit: Fitted, x: Flow, to: Importer, *, strict: bool) -> Flow:
    coding = Coding(np.arange(len(fit.classes_)), unknown=None if strict else -1)
    return codes_of(x, [fit.classes_], [coding], to, strict=strict)


@adapts("sklearn.preprocessing.LabelBinarizer")
def _label_binarizer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(
        not fit.y_type_.startswith("multilabel"),
        "this LabelBinarizer was fitted on an indicator matrix, which it only passes on",
        "leave it out",
    )
    codes, count = _labels(fit, x, to, strict=False), len(fit.classes_)
    picked = [1] if count == 2 else list(range(count))
    tables = [np.where(np.arange(count) == j, fit.pos_label, fit.neg_label) for j in picked]
    if count == 1:
        tables = [np.array([fit.neg_label])]
    table, starts = flatten(tables, np.int64)
    repeated = codes.select(np.zeros(len(tables), np.int64))
    columns = repeated.look_up(table, starts, np.full(len(tables), fit.neg_label, np.int64))
    return columns.to_sparse() if fit.sparse_output else columns


declines(
    "refused: its input is a list of sets of labels, which is no column of a program",
    "sklearn.preprocessing.MultiLabelBinarizer",
)
