"""Scores to probabilities and labels as ONNX's classical models have it, formula by formula.

`Sigmoid`, `Softmax` and `ArgMax` are numpy's and scipy's; what onnxruntime computes differs from
them in the last bits, where numbers are zero, and where they are NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.op import Arity, Columns, Op
from flour.core.types import Type
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


# Winitzki's approximation of the inverse error function, with onnxruntime's digits.
_SHAPE = 0.147
_PI = 3.14159
_ROOT = 1.41421356


class Probit(FloatElementwise):
    """The normal distribution's quantile of x by a formula that is good to three digits."""

    method = ""

    def compute(self, x: NDArray[Any]) -> Any:
        kind = x.dtype.type
        with np.errstate(invalid="ignore", divide="ignore"):
            y = kind(2) * x - kind(1)
            log = np.log((1 - y) * (1 + y))
            first = kind(2) / (kind(_PI) * kind(_SHAPE)) + kind(0.5) * log
            second = kind(1) / kind(_SHAPE) * log
            size = np.sqrt(np.sqrt(first * first - second) - first)
            return kind(_ROOT) * np.where(y < 0, -size, size)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        kind, unit = x.dtype, one(x.dtype)
        y = e.let(f"{kind}(2) * {x.expr} - {unit}", kind).expr
        log = e.let(f"log(({unit} - {y}) * ({unit} + {y}))", kind).expr
        start = f"{kind}(2) / ({kind}({_PI}) * {kind}({_SHAPE}))"
        first = e.let(f"{start} + {kind}(0.5) * {log}", kind).expr
        second = f"{unit} / {kind}({_SHAPE}) * {log}"
        size = e.let(f"sqrt(sqrt({first} * {first} - {second}) - {first})", kind).expr
        return f"({kind}({_ROOT}) * (-{size} if {y} < {zero(kind)} else {size}))"


#: Numbers no larger than this count as zero in SoftmaxZero.
_NOTHING = 0.0000001


class SoftmaxZero(Op):
    """Softmax in which a zero (almost) stays one: it is scaled, and not counted in the sum."""

    method = ""
    arity = Arity.AGGREGATE

    def infer(self, x: Type) -> Type:
        kind = vector(x, "softmax_zero")
        expect(is_float(kind), f"softmax_zero computes on floats, got {kind}")
        expect(kind.width > 0, "softmax_zero needs at least one column")
        return kind.having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        kind = x.dtype.type
        top = np.fmax.reduce(x, axis=1, keepdims=True)
        nonzero = (x > kind(_NOTHING)) | (x < kind(-_NOTHING))
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            grown = np.where(nonzero, np.exp(x - top), kind(0))
            exponentials = np.where(nonzero, grown, x * np.exp(-top))
            return exponentials / grown.sum(axis=1, keepdims=True)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at, kind = e.indexable(x), x.dtype
        top = e.var(at("0"))
        with e.loop(x.size, "1") as j:
            value = e.let(at(j), kind).expr
            with e.block(f"if {value} > {top} or {top} != {top}:"):
                e.line(f"{top} = {value}")
        out, total = e.scratch(kind, x.width), e.var(zero(kind))
        small = e.let(f"exp(-{top})", kind).expr
        with e.loop(x.size) as j:
            value = e.let(at(j), kind).expr
            with e.block(f"if {value} > {kind}({_NOTHING}) or {value} < {kind}({-_NOTHING}):"):
                grown = e.let(f"exp({value} - {top})", kind).expr
                e.store(out, j, grown, kind)
                e.line(f"{total} = {total} + {grown}")
            with e.block("else:"):
                e.store(out, j, f"{value} * {small}", kind)
        return e.dense(kind, x.width, lambda j: f"({e.load(out, j, kind)} / {total})", size=x.size)


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
