"""Scores to probabilities and labels as ONNX's classical models have it, formula by formula.

`Sigmoid`, `Softmax` and `ArgMax` are numpy's and scipy's; what onnxruntime computes differs from
them in the last bits, where numbers are zero, and where they are NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.ops.bases import FloatElementwise
from flour.ops.elementwise import one
from flour.ops.reduce import ArgMax, zero


class Logistic(FloatElementwise):
    """v = 1 / (1 + exp(-|x|)), and 1 - v where x is below zero."""

    method = ""
    monotone = True

    def compute(self, x: NDArray[Any]) -> Any:
        upper = 1 / (1 + np.exp(-np.abs(x)))
        return np.where(x < 0, 1 - upper, upper)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return _folded(e, x.expr, x.dtype, "sigmoid_alone")

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        if isinstance(x, ScalarValue):
            return super().emit(e, x)
        intrinsic, dtype = "sigmoid" if x.width >= 8 else "sigmoid_alone", x.dtype
        return e.map(lambda _, v: _folded(e, v, dtype, intrinsic), x, dtype=dtype, width=x.width)


def _folded(e: Emitter, value: str, dtype: str, intrinsic: str) -> str:
    x = e.let(value, dtype).expr
    upper = e.let(f"{intrinsic}(abs({x}))", dtype).expr
    return f"({one(dtype)} - {upper} if {x} < {zero(dtype)} else {upper})"


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
        at = e.indexable(x)
        best, index = e.var(at("0")), e.var("0")
        with e.loop(x.size, "1") as j:
            value = e.let(at(j), x.dtype).expr
            with e.block(f"if {value} > {best}:"):
                e.line(f"{best} = {value}")
                e.line(f"{index} = {j}")
        return e.let(index, "int64")
