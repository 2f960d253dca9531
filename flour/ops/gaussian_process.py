"""Gaussian processes: covariances with the training points, then products with fitted numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.check import expect, fitted, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, held, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Numbers, Row, added, indexable, scratch, size
from flour.core.words import fitted as fitted_numbers


class SolveLower(Op):
    """The y for which matrix @ y = x; the matrix is lower triangular."""

    matrix: Array
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE

    def check(self) -> None:
        shape = self.matrix.shape
        if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
            raise ParameterError("a triangular matrix is square", found=str(shape))

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "solve_lower")
        fitted(self.matrix.shape[0], kind, "solve_lower")
        expect(kind.dtype == "float64", f"solve_lower computes in float64, got {kind}")
        return kind.having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        matrix, solution = self.matrix.array.astype(np.float64), np.array(x)
        for i in range(x.shape[1]):
            solution[:, i] -= solution[:, :i] @ matrix[i, :i]
            solution[:, i] /= matrix[i, i]
        return solution

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        matrix = FittedNumbers(self.matrix, "float64")
        return held(e, *write(e, solved, x, matrix, self.matrix.shape[0]))


def solved(x: Row, matrix: Numbers, rows: int) -> Any:
    """The solution, from the first number to the last."""
    columns, count = indexable(x), size(rows)
    solution, entries = scratch("float64", rows), fitted_numbers(matrix)
    for i in range(count):
        total = 0.0
        for j in range(i):
            total = added(total, entries[i * count + j] * solution[j])
        solution[i] = (columns[i] - total) / entries[i * count + i]
    return solution, rows, len(x)
