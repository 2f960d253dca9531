"""Missing values: found, and replaced by fitted ones.

A marker says which values are missing: NaN or any number for columns of numbers; for strings
"nan", "none", "either" of them, or a text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import isnan, where
from numpy.typing import NDArray

from flour.core import native
from flour.core.check import expect, fitted
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Array, Columns, Op, Table
from flour.core.types import FLOATS, Scalar, Type, Vector
from flour.core.words import Number, number, string
from flour.ops.bases import Elementwise
from flour.ops.categorise import HashTables, hash_tables, text_number


class Marked(Elementwise, abstract=True, takes_sparse=True, keeps_zero=True):
    """An operator that looks for a marker among numbers; the marker NaN matches NaN."""

    marker: float

    def output(self, kind: Vector | Scalar) -> Type:
        sparse = isinstance(kind, Vector) and kind.sparse
        expect(
            not sparse or self.marker != 0,
            "a sparse vector's zeros are not stored, so they cannot be missing values",
            "call to_dense() first",
        )
        return super().output(kind)


def is_marker(x: Number, marker: float) -> Any:
    """True if a number is the marker; NaN is NaN."""
    if marker != marker:  # noqa: PLR0124 (the definition of NaN)
        return isnan(x)
    return x == number(marker, x.dtype if x.dtype in FLOATS else "float64")


class IsMissing(Marked, result="bool", function=is_marker):
    """True if x is missing: is the marker."""

    def compute(self, x: NDArray[Any]) -> Any:
        return is_marker(x, self.marker)


class Impute(Marked):
    """x, or its column's value where x is missing."""

    values: Array

    widest_at_ends = True  # of fitted values, none is near the end of a range

    def compute(self, x: NDArray[Any]) -> Any:
        values = self.values.array.reshape(-1).astype(x.dtype)
        return type(self).function(x, self.marker, values)

    @staticmethod
    def function(x: Number, marker: float, value: Number) -> Number:
        return where(is_marker(x, marker), value, x)


# --- strings --------------------------------------------------------------------------------------

NAN, NONE, EITHER, TEXT = "nan", "none", "either", "text"


class MarkedText(Op, abstract=True, by_column=True):
    """An operator that looks for a marker among strings."""

    marker: str
    text: Table

    def check(self) -> None:
        if self.marker not in (NAN, NONE, EITHER, TEXT) or len(self.text) != (self.marker == TEXT):
            raise ParameterError(
                f"strings are missing as {NAN!r}, {NONE!r}, {EITHER!r}, or as one text",
                found=f"{self.marker!r} and {len(self.text)} texts",
            )

    def known_missing(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether NaN is missing in all columns, and whether only None is."""
        return np.array([self.marker in (NAN, EITHER)]), np.array([self.marker == NONE])

    def missing(self, x: NDArray[Any]) -> NDArray[np.bool_]:
        """A mask of the missing strings."""
        if self.marker == TEXT:
            return np.array(x == self.text[0], bool)
        lost: Any = np.frompyfunc(lambda value: not isinstance(value, str), 1, 1)(x).astype(bool)
        none: Any = np.frompyfunc(lambda value: value is None, 1, 1)(x).astype(bool)
        if self.marker == EITHER:
            return np.asarray(lost)
        return np.asarray(none if self.marker == NONE else lost & ~none)


class IsMissingText(MarkedText):
    """True if a string is missing: is the marker."""

    def infer(self, x: Type) -> Vector:
        return strings(x, "is_missing_text").having(dtype="bool")

    def reference(self, x: Columns) -> Columns:
        return self.missing(x)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        if self.marker != TEXT:
            return native.columnwise(e, is_lost, x, self.marker, dtype="bool")
        table = hash_tables(self.text, Array.of(np.array([0, 1])))
        return native.columnwise(e, is_text, x, table, dtype="bool")


def is_lost(cell: Number, _: int, marker: str) -> Any:
    """True if there is no string: NaN, or None, or either."""
    _text, length = string(cell)
    if marker == EITHER:
        return length < 0
    return length == (-1 if marker == NONE else -2)


def is_text(cell: Number, _: int, table: HashTables) -> Any:
    """True if a string is the one text of a table."""
    text, length = string(cell)
    return text_number(text, length, table, 0) >= 0


class ImputeText(MarkedText):
    """The string, or its column's value where it is missing."""

    values: Table

    def infer(self, x: Type) -> Vector:
        kind = strings(x, "impute_text")
        fitted(len(self.values), kind, "impute_text")
        return kind

    def reference(self, x: Columns) -> Columns:
        values = np.array([*self.values.to_list(), None], dtype=object)[:-1]
        result = x.copy()
        missing = self.missing(x)
        result[missing] = np.broadcast_to(values, x.shape)[missing]
        return result


def strings(kind: Type, who: str) -> Vector:
    """The type, which must be a vector of strings."""
    fine = isinstance(kind, Vector) and kind.dtype == "string"
    expect(fine, f"{who} needs a vector of strings, got {kind}")
    assert isinstance(kind, Vector)
    return kind
