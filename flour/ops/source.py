"""Columns picked out of a record, and values that are the same for every row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flour.core.emission import Emitter, RowValue
from flour.core.errors import ParameterError, TypeMismatch, nearest
from flour.core.op import Array, Columns, Op
from flour.core.raw_columns import NO_COLUMN, Made
from flour.core.reference import row_count
from flour.core.types import Category, Record, Scalar, Type, Vector, promote


def check_columns(record: Type, labels: Sequence[str]) -> None:
    """Raise TypeMismatch unless it is a record that has these columns."""
    if not isinstance(record, Record):
        raise TypeMismatch(f"only a record has a column {', '.join(map(repr, labels))}")
    for label in labels:
        if label not in record.names:
            raise TypeMismatch(
                f"the record has no column {label!r}",
                found=", ".join(record.names),
                hint=nearest(label, record.names),
            )


class Field(Op):
    """One named column of a record."""

    method = ""  # written by Flow.field, which knows the source of a record's column
    label: str

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return made[0][places(kinds[0], [self.label])]

    def infer(self, record: Record) -> Type:
        check_columns(record, [self.label])
        return record[self.label]

    def reference(self, record: Columns) -> Columns:
        return record[self.label]


class Pick(Op, method=""):
    """Several columns of a record, all numbers or all strings, as one vector."""

    labels: tuple[str, ...]

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return made[0][places(kinds[0], self.labels)]

    def infer(self, record: Record) -> Vector:
        check_columns(record, self.labels)
        kinds = [record[label] for label in self.labels]
        return Vector(len(kinds), _common(dict(zip(self.labels, kinds, strict=True))))

    def reference(self, record: Columns) -> Columns:
        columns = [record[label] for label in self.labels]
        if any(column.dtype == object for column in columns):
            return np.stack([column.astype(object) for column in columns], axis=1)
        return np.stack(columns, axis=1)


def places(record: Type, labels: Sequence[str]) -> list[int]:
    """The numbers of these columns of a record."""
    assert isinstance(record, Record)
    return [record.names.index(label) for label in labels]


def _common(kinds: dict[str, Type]) -> str:
    dtypes = []
    for label, kind in kinds.items():
        if not isinstance(kind, Scalar | Category):
            raise TypeMismatch(f"column {label!r} is {kind}, not one value per row")
        dtypes.append(kind.dtype)
    if "string" in dtypes and set(dtypes) != {"string"}:
        raise TypeMismatch(
            "strings and numbers cannot share a vector",
            found=", ".join(f"{label}: {kind}" for label, kind in kinds.items()),
            hint="pick them apart and encode the strings",
        )
    return promote(*dtypes) if dtypes else "float64"


class Fill(Op, answers=("values",)):
    """Constant values for every row; the input gives only the number of rows."""

    values: Array
    scalar: bool = False

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return np.full(width, NO_COLUMN)

    def check(self) -> None:
        shape = self.values.shape
        if len(shape) != 1 or (self.scalar and shape != (1,)):
            raise ParameterError("fill needs a row of values, or one value", found=str(shape))

    def infer(self, x: Type) -> Type:
        dtype = str(self.values.dtype.name)
        return Scalar(dtype) if self.scalar else Vector(len(self.values), dtype)

    def reference(self, x: Columns) -> Columns:
        rows = row_count(x)
        values = self.values.array
        return np.full(rows, values[0]) if self.scalar else np.tile(values, (rows, 1))

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        dtype = str(self.values.dtype.name)
        if self.scalar:
            return e.let(e.at(self.values, "0"), dtype)
        return e.dense(dtype, len(self.values), lambda j: e.at(self.values, j))
