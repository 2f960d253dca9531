"""Scores to probabilities and labels, as numpy, scipy and ONNX's models have it; shares of a row.

What onnxruntime computes differs from numpy's in the last bits, where numbers are zero, and where
they are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import empty_like, exp, log, log1p, maximum
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.native import Code, columnwise, expression, write
from flour.core.op import Arity, Columns, Op
from flour.core.types import Scalar, Type
from flour.core.words import Number, Row, added, cast, indexable, one, zero
from flour.ops.bases import FloatElementwise, Reduction
from flour.ops.reduce import ArgMax


class Sigmoid(FloatElementwise, monotone=True, alike=True, restates=True):
    """1 / (1 + exp(-x)), zero where exp(-x) overflows: scipy's expit to the last bits."""

    def compute(self, x: NDArray[Any]) -> Any:
        return 1 / (1 + np.exp(-x))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return f"sigmoid({x.expr})"

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        word = for_width("sigmoid", getattr(x, "width", 1))
        return e.map(lambda _, v: f"{word}({v})", x, dtype=x.dtype)


def for_width(word: str, width: int) -> Code:
    """The function for a loop of this length: below eight, numbers are computed one by one."""
    return Code(word if width >= 8 else f"{word}_alone")


class Softmax(Op, largest_result=1.0, arity=Arity.AGGREGATE, restates=True):
    """exp(x) over its row sum, shifted by the row's maximum first."""

    def infer(self, x: Type) -> Type:
        kind = vector(x, "softmax")
        expect(is_float(kind), f"softmax computes on floats, got {kind}")
        expect(kind.width > 0, "softmax needs at least one column")
        return kind.having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        result = np.exp(x - x.max(axis=1, keepdims=True))
        result /= result.sum(axis=1, keepdims=True)
        return result

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.dense(x.dtype, x.width, write(e, softmax, x, for_width("exp", x.width)).write)


def softmax(x: Row, exponential: Callable[[Number], Number]) -> Any:
    """The exponentials over their sum."""
    columns = indexable(x)
    top = columns[0]
    for j in range(1, len(x)):
        top = maximum(top, columns[j])
    powers, total = empty_like(x), zero(x)
    for j in range(len(x)):
        value = exponential(columns[j] - top)
        powers[j] = value
        total = added(total, value)
    return [powers[j] / total for j in range(len(x))]


class Logistic(FloatElementwise, method="", monotone=True):
    """v = 1 / (1 + exp(-|x|)), and 1 - v where x is below zero."""

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


class FirstLargest(ArgMax, method=""):
    """The number of the largest column: the first of equals; NaN wins in the first column only."""

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


class Proportions(Op, arity=Arity.AGGREGATE, restates=True):
    """x over its row sum; a row that sums to zero becomes equal shares."""

    def infer(self, x: Type) -> Type:
        kind = vector(x, self.name)
        expect(is_float(kind), f"proportions are floats, got {kind}", "call as_float() first")
        expect(kind.width > 0, "proportions need at least one column")
        return kind.having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        total = x.sum(axis=1, keepdims=True)
        none = total == 0
        return np.where(none, x.dtype.type(1), x) / np.where(none, x.dtype.type(x.shape[1]), total)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.dense(x.dtype, x.width, write(e, shares, x).write, size=x.size)


def shares(x: Row) -> Any:
    """Each column over the sum of all; where that is zero, one over their number."""
    columns = indexable(x)
    total = zero(x)
    for j in range(len(x)):
        total = total + columns[j]
    none = total == 0
    whole = cast(len(x), x.dtype) if none else total
    return [(one(x) if none else columns[j]) / whole for j in range(len(x))]


class LogSumExp(Reduction):
    """log(sum(exp(x))), shifted by the row's maximum so that nothing overflows.

    The largest terms are kept out of the sum and come back through log1p, which keeps the digits
    of what is small beside them.
    """

    def infer(self, x: Type) -> Scalar:
        kind = vector(x, self.name)
        expect(is_float(kind), f"log_sum_exp computes on floats, got {kind}", "call as_float()")
        return super().infer(x)

    def compute(self, x: NDArray[Any]) -> Any:
        top = x.max(axis=1, keepdims=True)
        largest = x == top
        count = largest.sum(axis=1, dtype=x.dtype)
        shift = np.where(np.isfinite(top), top, x.dtype.type(0))
        rest = np.exp(np.where(largest, -x.dtype.type(np.inf), x) - shift).sum(axis=1)
        return np.log1p(np.where(rest == 0, rest, rest / count)) + np.log(count) + top[:, 0]

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, log_sum_exp, x), x.dtype)


def log_sum_exp(x: Row) -> Number:
    """The logarithm of the sum of exponentials."""
    columns = indexable(x)
    top = columns[0]
    for j in range(1, len(x)):
        top = maximum(top, columns[j])
    # An infinite maximum cannot be subtracted; a NaN one makes everything NaN as it should.
    shift = zero(x) if top - top != 0 else top
    rest, count = zero(x), zero(x)
    for j in range(len(x)):
        value = columns[j]
        if value == top:
            count = count + one(x)
        else:
            rest = rest + exp(value - shift)
    if rest != 0:
        rest = rest / count
    return log1p(rest) + log(count) + top
