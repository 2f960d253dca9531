"""Scores to probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.op import Arity, Columns, Op
from flour.core.types import Type
from flour.ops.bases import FloatElementwise
from flour.ops.reduce import zero


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
        if isinstance(x, ScalarValue):
            return e.let(f"sigmoid_alone({x.expr})", x.dtype)
        intrinsic = _for_width("sigmoid", x.width)
        return e.map(lambda _, v: f"{intrinsic}({v})", x, dtype=x.dtype, width=x.width)


def _for_width(intrinsic: str, width: int) -> str:
    """The function for a loop of this length: below eight, numbers are computed one by one."""
    return intrinsic if width >= 8 else f"{intrinsic}_alone"


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
        at = e.indexable(x)
        top = e.var(at("0"))
        with e.loop(x.size, "1") as j:
            e.line(f"{top} = maximum({top}, {at(j)})")
        out, total = e.scratch(x.dtype, x.width), e.var(zero(x.dtype))
        intrinsic = _for_width("exp", x.width)
        with e.loop(x.size) as j:
            value = e.let(f"{intrinsic}({at(j)} - {top})", x.dtype).expr
            e.store(out, j, value, x.dtype)
            e.add(total, value, x.dtype)
        return e.dense(x.dtype, x.width, lambda j: f"({e.load(out, j, x.dtype)} / {total})")
