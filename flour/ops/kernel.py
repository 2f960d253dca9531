"""Kernel functions between a row and each fitted point, for kernel machines and Gaussian processes.

They are compositions: distances or products, then a function of each number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, held, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Number, Numbers, Row, added, indexable, number, scratch, size
from flour.core.words import fitted as fitted_numbers
from flour.language.adapters import Importer
from flour.language.flow import Flow
from flour.ops.bases import FloatElementwise
from flour.ops.neighbours import cosine_similarity


class Power(FloatElementwise):
    """x ** exponent: NaN where x is below zero and the exponent is not whole."""

    exponent: float

    def compute(self, x: NDArray[Any]) -> Any:
        return type(self).function(x, self.exponent)

    @staticmethod
    def function(x: Number, exponent: float) -> Number:
        return x ** number(exponent, x.dtype)


KERNELS = (
    *("linear", "poly", "polynomial", "rbf", "sigmoid", "laplacian", "cosine"),
    *("chi2", "additive_chi2", "precomputed"),
)


def pairwise_kernel(
    x: Flow,
    points: NDArray[Any],
    metric: Any,
    to: Importer,
    *,
    gamma: float | None = None,
    degree: float = 3,
    coef0: float = 1,
) -> Flow:
    """`sklearn.metrics.pairwise.pairwise_kernels` between x and the points."""
    to.need(isinstance(metric, str), "a kernel that is a Python function stays Python")
    to.need(metric in KERNELS, f"there is no native kernel {metric!r}", ", ".join(KERNELS))
    if metric == "precomputed":
        return to.promoted(x, points)
    gamma = 1.0 / points.shape[1] if gamma is None else float(gamma)
    if metric in _PRODUCTS:
        return product_kernel(to.floats(x), points, metric, gamma, degree, coef0)
    if metric == "rbf":
        return to.floats(x).squared_distances(points).multiply(-gamma).exp()
    if metric == "cosine":
        return cosine_similarity(to.promoted(x, points), points)
    if metric == "laplacian":
        return to.doubles(x).distances(points, "manhattan").multiply(-gamma).exp()
    # For histograms. On float32 training data the library subtracts in float32.
    to.need(
        points.dtype != np.float32, f"{metric!r} on float32 training data rounds in its own way"
    )
    kernel = to.doubles(x).distances(points, "chi2").negate()
    return kernel if metric == "additive_chi2" else kernel.multiply(gamma).exp()


_PRODUCTS = ("linear", "poly", "polynomial", "sigmoid")


def product_kernel(
    x: Flow, points: NDArray[Any], metric: str, gamma: float, degree: float, coef0: float
) -> Flow:
    """A function of the dot product."""
    products = x.linear(points, [])
    if metric == "linear":
        return products
    shifted = products.multiply(gamma).add(coef0)
    return shifted.tanh() if metric == "sigmoid" else shifted.power(float(degree))


class SolveLower(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE):
    """The y for which matrix @ y = x; the matrix is lower triangular."""

    matrix: Array

    def check(self) -> None:
        shape = self.matrix.shape
        if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
            raise ParameterError("a triangular matrix is square", found=str(shape))

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "solve_lower", self.matrix.shape[0])
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
