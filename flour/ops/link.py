"""Scores to probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import empty_like, exp, maximum
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.native import Code, write
from flour.core.op import Arity, Columns, Op
from flour.core.types import Type
from flour.core.words import Number, Row, added, exp_alone, indexable, sigmoid, sigmoid_alone, zero
from flour.ops.bases import FloatElementwise

#: Exponentials of fewer numbers are computed one by one.
SEVERAL = 8


class Sigmoid(FloatElementwise):
    """1 / (1 + exp(-x)), zero where exp(-x) overflows: scipy's expit to the last bits."""

    monotone = True
    alike = True
    restates = True

    def compute(self, x: NDArray[Any]) -> Any:
        return sigmoid(x)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return write(e, sigmoid, x)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        if isinstance(x, ScalarValue):
            return e.let(write(e, sigmoid_alone, x), x.dtype)
        function, dtype = sigmoid if x.width >= SEVERAL else sigmoid_alone, x.dtype
        return e.map(lambda _, v: write(e, function, Code(v, dtype)), x, dtype=dtype, width=x.width)


class Softmax(Op):
    """exp(x) over its row sum, shifted by the row's maximum first."""

    largest_result = 1.0
    arity = Arity.AGGREGATE
    restates = True

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
        shares = write(e, softmax, x, exp if x.width >= SEVERAL else exp_alone)
        return e.dense(x.dtype, x.width, shares.write)


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
