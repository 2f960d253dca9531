"""All columns to one number: sums, norms, extremes and their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import isnan, maximum, minimum, sqrt
from numpy.typing import NDArray

from flour.core import words
from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import write
from flour.core.op import Arity, Columns
from flour.core.sparse import Sparse, densify
from flour.core.types import FLOATS, Scalar, Type
from flour.core.words import Number, Row, added, indexable, stored
from flour.ops.bases import Reduction


class Sum(Reduction, skips_zeros=True, takes_sparse=True, associative=True, commutative=True):
    """The sum of all columns."""

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [np.repeat(weights, vector(inputs[0], self.name).width, axis=1)]

    def reference(self, x: Columns) -> Columns:
        if isinstance(x, Sparse) and x.dtype == np.float64:
            # One after the other, as native code and scipy add them.
            return x.row_sums(x.data).astype(x.dtype)
        return super().reference(densify(x))

    def compute(self, x: NDArray[Any]) -> Any:
        return x.sum(axis=1, dtype=x.dtype)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, summed, x), x.dtype)


class Max(Reduction, associative=True, commutative=True):
    """The largest column; NaN if any is NaN."""

    def compute(self, x: NDArray[Any]) -> Any:
        return x.max(axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, extreme, x, maximum), x.dtype)


class Min(Reduction, associative=True, commutative=True):
    """The smallest column; NaN if any is NaN."""

    def compute(self, x: NDArray[Any]) -> Any:
        return x.min(axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, extreme, x, minimum), x.dtype)


def summed(x: Row) -> Number:
    """The sum of a row."""
    total = words.zero(x)
    for _, value in stored(x):
        total = added(total, value)
    return total


def extreme(x: Row, further: Callable[[Number, Number], Number]) -> Number:
    """The largest of a row, or the smallest."""
    columns = indexable(x)
    best = columns[0]
    for j in range(1, len(x)):
        best = further(best, columns[j])
    return best


class ArgMax(Reduction, result="int64"):
    """The number of the largest column: the first of equals, the first NaN before all."""

    def infer(self, x: Type) -> Scalar:
        expect(vector(x, self.name).width > 0, "argmax needs at least one column")
        return Scalar("int64")

    def compute(self, x: NDArray[Any]) -> Any:
        return np.argmax(x, axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, place, x, smallest=False), "int64")


class ArgMin(ArgMax):
    """The number of the smallest column: the first of equals, the first NaN before all."""

    def compute(self, x: NDArray[Any]) -> Any:
        return np.argmin(x, axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, place, x, smallest=True), "int64")


def place(x: Row, *, smallest: bool) -> Number:
    """The column of the largest of a row, or of the smallest."""
    columns = indexable(x)
    best, index = columns[0], 0
    for j in range(1, len(x)):
        value = columns[j]
        wins = value < best if smallest else value > best
        if x.dtype in FLOATS:
            # A NaN beats everything but an earlier NaN, as numpy's argmax has it.
            wins = (wins or isnan(value)) and not isnan(best)
        if wins:
            best = value
            index = j
    return index


class Norm(Reduction, arity=Arity.AGGREGATE, skips_zeros=True):
    """The length of the vector: l1, l2 or max norm (the largest magnitude)."""

    kind: str

    def check(self) -> None:
        if self.kind not in ("l1", "l2", "max"):
            raise ParameterError(f"there is no norm {self.kind!r}", hint="l1, l2, max")

    def compute(self, x: NDArray[Any]) -> Any:
        if self.kind == "l1":
            return np.abs(x).sum(axis=1)
        if self.kind == "l2":
            return np.sqrt(np.einsum("ij,ij->i", x, x))
        return np.max(np.abs(x), axis=1, initial=0)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, length, x, self.kind), x.dtype)


def length(x: Row, kind: str) -> Number:
    """The norm of a row."""
    total = words.zero(x)
    for _, value in stored(x):
        if kind == "l1":
            total = added(total, abs(value))
        elif kind == "max":
            total = maximum(total, abs(value))
        else:
            total = added(total, value * value)
    return sqrt(total) if kind == "l2" else total
