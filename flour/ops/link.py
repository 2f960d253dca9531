"""Scores to probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import empty_like, maximum
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.native import Code, write
from flour.core.op import Arity, Columns, Op
from flour.core.types import Type
from flour.core.words import Number, Row, added, indexable, zero
from flour.ops.bases import FloatElementwise


class Sigmoid(FloatElementwise):
    """1 / (1 + exp(-x)), zero where exp(-x) overflows: scipy's expit to the last bits."""

    monotone = True
    alike = True
    restates = True

    def compute(self, x: NDArray[Any]) -> Any:
        return 1 / (1 + np.exp(-x))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return f"sigmoid({x.expr})"

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        word, dtype = for_width("sigmoid", getattr(x, "width", 1)), x.dtype
        if isinstance(x, ScalarValue):
            return e.let(f"{word}({x.expr})", dtype)
        return e.map(lambda _, v: f"{word}({v})", x, dtype=dtype, width=x.width)


def for_width(word: str, width: int) -> Code:
    """The function for a loop of this length: below eight, numbers are computed one by one."""
    return Code(word if width >= 8 else f"{word}_alone")


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
        shares = write(e, softmax, x, for_width("exp", x.width))
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
