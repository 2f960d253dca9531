"""Gaussian processes: covariances with the training points, then products with fitted numbers."""

from __future__ import annotations

import numpy as np

from flour.core.check import expect, fitted, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import Type, Vector


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
        at, size = e.indexable(x), e.size(self.matrix.shape[0])
        solution, matrix = e.scratch("float64", x.width), e.address(self.matrix, "float64")

        def entry(i: str, j: str) -> str:
            return e.load(matrix, f"{i} * {size} + {j}", "float64", constant=True)

        with e.loop(size) as i:
            total = e.var("0.0")
            with e.loop(i) as j:
                e.add(total, f"{entry(i, j)} * {e.load(solution, j, 'float64')}")
            e.store(solution, i, f"({at(i)} - {total}) / {entry(i, i)}", "float64")
        return e.dense(
            "float64", x.width, lambda j: e.load(solution, j, "float64"), size=x.size, stored=True
        )
