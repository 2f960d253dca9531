"""Scores to probabilities and labels as ONNX's classical models have it, formula by formula.

`Sigmoid`, `Softmax` and `ArgMax` are numpy's and scipy's; what onnxruntime computes differs from
them in the last bits, where numbers are zero, and where they are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.native import columnwise, expression
from flour.core.words import Number, Row, indexable, one, zero
from flour.ops.bases import FloatElementwise
from flour.ops.link import for_width
from flour.ops.reduce import ArgMax


class Logistic(FloatElementwise):
    """v = 1 / (1 + exp(-|x|)), and 1 - v where x is below zero."""

    method = ""
    monotone = True

    def compute(self, x: NDArray[Any]) -> Any:
        upper = 1 / (1 + np.exp(-np.abs(x)))
        return np.where(x < 0, 1 - upper, upper)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        sigmoid = for_width("sigmoid", getattr(x, "width", 1))
        return columnwise(e, folded, x, sigmoid, dtype=x.dtype)


def folded(x: Number, _: int, sigmoid: Callable[[Number], Number]) -> Number:
    """The sigmoid of the magnitude, taken from one below zero."""
    upper = sigmoid(abs(x))
    return one(x) - upper if x < zero(x) else upper


class FirstLargest(ArgMax):
    """The number of the largest column: the first of equals; NaN wins in the first column only."""

    method = ""

    def compute(self, x: NDArray[Any]) -> Any:
        best, index = x[:, 0].copy(), np.zeros(len(x), np.int64)
        for j in range(1, x.shape[1]):
            wins = x[:, j] > best
            best, index = np.where(wins, x[:, j], best), np.where(wins, j, index)
        return index

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(expression(e, first_largest, x), "int64")


def first_largest(x: Row) -> Number:
    """The number of the first column that no other exceeds."""
    columns = indexable(x)
    best, index = columns[0], 0
    for j in range(1, len(x)):
        value = columns[j]
        if value > best:
            best = value
            index = j
    return index
