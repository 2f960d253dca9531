"""Columns side by side, columns picked out, tables looked up: moving values, computing nothing.

Dense vectors become sparse ones here, and records are made and narrowed inside a program. Picking a
column out of a record goes straight to the column's own source (`Flow.field`, `Flow.columns`), so
that a record is assembled only where it is an output of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flour.core import native
from flour.core.check import expect, is_string, numeric, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.errors import ParameterError, TypeMismatch
from flour.core.op import Arity, Array, Columns, Op, Table
from flour.core.raw_columns import Made
from flour.core.sparse import Sparse, densify, hstack
from flour.core.types import INTS, Category, Record, Scalar, Type, Vector, promote
from flour.core.words import Number, Numbers
from flour.ops.source import check_columns, places


class Concat(Op, arity=Arity.ONE_TO_ONE, associative=True, takes_sparse=True, moves=True):
    """The inputs side by side; a scalar is one column. Sparse if any input is."""

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return np.concatenate(made)

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        ends = np.cumsum([_columns(kind).width for kind in inputs])
        return np.split(weights, ends[:-1], axis=1)

    def infer(self, *inputs: Type) -> Vector:
        expect(inputs, "concat needs at least one input")
        kinds = [_columns(kind) for kind in inputs]
        strings = {kind.dtype == "string" for kind in kinds}
        expect(len(strings) == 1, "strings and numbers cannot share a vector", "encode first")
        dtype = promote(*(kind.dtype for kind in kinds))
        return Vector(sum(k.width for k in kinds), dtype, any(k.sparse for k in kinds))

    def reference(self, *inputs: Columns) -> Columns:
        matrices = [x[:, None] if not isinstance(x, Sparse) and x.ndim == 1 else x for x in inputs]
        if any(isinstance(x, Sparse) for x in matrices):
            return hstack(matrices, np.result_type(*(x.dtype for x in matrices)))
        return np.concatenate(matrices, axis=1)

    def emit(self, e: Emitter, *inputs: RowValue) -> RowValue:
        dtype = promote(*(value.dtype for value in inputs))
        return e.joined(inputs, dtype, sum(getattr(value, "width", 1) for value in inputs))


def _columns(kind: Type) -> Vector:
    if is_string(kind):
        return Vector(1, "string")
    if isinstance(kind, Vector):
        return kind
    if isinstance(kind, Category):
        return Vector(1, kind.dtype)
    return Vector(1, numeric(kind, "concat").dtype)


class AsVector(Op, by_column=True, moves=True, same_values=True):
    """A scalar as a vector of one column."""

    def infer(self, x: Type) -> Vector:
        if not isinstance(x, Scalar | Category):
            raise TypeMismatch(f"as_vector needs one value per row, got {x}")
        return Vector(1, x.dtype)

    def reference(self, x: Columns) -> Columns:
        return x[:, None]

    def emit(self, e: Emitter, x: ScalarValue) -> RowValue:
        return e.joined([x], x.dtype, 1)


class Select(Op, takes_sparse=True, keeps_zero=True, moves=True):
    """Columns by number, in this order; a column may be picked more than once."""

    columns: Array

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return made[0][self.columns.array.astype(np.int64)]

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        pulled = np.zeros((len(weights), _columns(inputs[0]).width))
        for place, column in enumerate(self.columns.array.tolist()):
            pulled[:, column] += weights[:, place]
        return [pulled]

    def check(self) -> None:
        whole = self.columns.dtype.kind in "iu" or not self.columns.array.size
        if not whole or self.columns.array.ndim != 1:
            raise ParameterError("columns are picked by whole numbers, in one dimension")

    def infer(self, x: Vector) -> Vector:
        expect(isinstance(x, Vector), f"select needs a vector, got {x}")
        picked = self.columns.array
        low, high = (picked.min(), picked.max()) if picked.size else (0, -1)
        expect(
            low >= 0 and high < x.width,
            f"select picks column {high if low >= 0 else low} of {x.width}",
            "columns count from 0",
        )
        return x.having(width=picked.size)

    def reference(self, x: Columns) -> Columns:
        picked = self.columns.array.astype(np.int64)
        return x.columns(picked) if isinstance(x, Sparse) else x[:, picked]

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at = e.indexable(x)
        return e.dense(
            x.dtype, len(self.columns), lambda j: at(e.at(self.columns, j, "int64")), stored=True
        )


class Element(Op, moves=True):
    """One column of a vector as a scalar."""

    column: int

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return made[0][[self.column]]

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        pulled = np.zeros((len(weights), _columns(inputs[0]).width))
        pulled[:, [self.column]] = weights
        return [pulled]

    def infer(self, x: Vector) -> Scalar:
        expect(isinstance(x, Vector), f"element needs a vector, got {x}")
        expect(0 <= self.column < x.width, f"there is no column {self.column} of {x.width}")
        return Scalar(x.dtype)

    def reference(self, x: Columns) -> Columns:
        return x[:, self.column]

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(e.indexable(x)(e.size(self.column)), x.dtype)


class Take(Op, method="", answers=("table",)):
    """The entry of a table for each index: class labels, cluster numbers, encoded targets.

    An index outside the table picks its nearest end, so that no number can read past it.
    """

    table: Array

    def infer(self, x: Type) -> Type:
        kind = numeric(x, "take")
        expect(kind.dtype in INTS, f"take needs whole numbers, got {kind}")
        dtype = str(self.table.dtype.name)
        return Scalar(dtype) if isinstance(kind, Scalar) else Vector(kind.width, dtype)

    def reference(self, x: Columns) -> Columns:
        return self.table.array[np.clip(x, 0, len(self.table) - 1)]

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        dtype = str(self.table.dtype.name)
        table = native.Memory(e.address(self.table), dtype, constant=True)
        last = native.Code(e.size(len(self.table) - 1))
        return native.columnwise(e, nearest_entry, x, table, last, dtype=dtype)

    def check(self) -> None:
        if self.table.array.ndim != 1 or not len(self.table):
            raise ParameterError("a table has at least one entry, in one dimension")


def nearest_entry(index: Number, _: int, table: Numbers, last: int) -> Number:
    """The table's entry of this number, or the nearest one."""
    inside = min(max(index, 0), last)
    return table[inside]


class TakeText(Op, method=""):
    """The string of a table for each index: class labels that are text."""

    table: Table

    def infer(self, x: Type) -> Type:
        kind = numeric(x, "take")
        expect(kind.dtype in INTS, f"take needs whole numbers, got {kind}")
        return Scalar("string") if isinstance(kind, Scalar) else Vector(kind.width, "string")

    def reference(self, x: Columns) -> Columns:
        return self._texts.take(x, mode="clip")

    @cached_property
    def _texts(self) -> NDArray[np.object_]:
        """The table's strings, made once."""
        texts = np.empty(len(self.table), object)
        texts[:] = self.table.to_list()
        return texts

    def check(self) -> None:
        if not len(self.table):
            raise ParameterError("a table has at least one entry")


class ToDense(Op, takes_sparse=True, monotone=True, by_column=True, moves=True, same_values=True):
    """The values of x, all of them stored."""

    def infer(self, x: Type) -> Vector:
        return vector(x, "to_dense").having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        return densify(x)

    def emit(self, e: Emitter, x: VectorValue) -> VectorValue:
        return x


class ToSparse(Op):
    """The values of x, storing only those that are not zero."""

    takes_sparse = True
    keeps_zero = True
    monotone = True
    by_column = True
    moves = True
    same_values = True

    def infer(self, x: Type) -> Vector:
        return vector(x, "to_sparse").having(sparse=True)

    def reference(self, x: Columns) -> Columns:
        return x if isinstance(x, Sparse) else Sparse.of(x)

    def emit(self, e: Emitter, x: VectorValue) -> VectorValue:
        return x


class Narrow(Op):
    """Some columns of a record, in this order, still as a record."""

    labels: tuple[str, ...]

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return made[0][places(kinds[0], self.labels)]

    def infer(self, record: Record) -> Record:
        check_columns(record, self.labels)
        return Record(tuple((label, record[label]) for label in self.labels), record.positional)

    def reference(self, record: Columns) -> Columns:
        return {label: record[label] for label in self.labels}


class Bundle(Op, method=""):
    """The inputs as the named columns of a record, a vector as one name for each of its columns."""

    labels: tuple[str, ...]

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return np.concatenate(made)

    def infer(self, *inputs: Type) -> Record:
        kinds = [kind for item in inputs for kind in _spread(item)]
        expect(
            len(kinds) == len(self.labels),
            f"bundle has {len(self.labels)} names for {len(kinds)} columns",
        )
        expect(len(set(self.labels)) == len(self.labels), "two columns have one name")
        return Record(tuple(zip(self.labels, kinds, strict=True)), positional=True)

    def reference(self, *inputs: Columns) -> Columns:
        columns: list[Columns] = []
        for item in map(densify, inputs):
            many = not isinstance(item, list) and item.ndim == 2
            columns += list(item.T) if many else [item]
        return dict(zip(self.labels, columns, strict=True))


def _spread(kind: Type) -> list[Type]:
    """The types of the columns an input contributes."""
    expect(not isinstance(kind, Record), "a record cannot hold records")
    return [Scalar(kind.dtype)] * kind.width if isinstance(kind, Vector) else [kind]
