"""Arithmetic with fitted numbers, column by column: x - offset, x / scale, ...

Estimators are compositions of these, so each keeps its exact order of operations: dividing by a
scale and multiplying by its reciprocal differ in the last bit, and so do (x - m) / s and x * a + b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flour.adapters import adapts
from flour.op import Array
from flour.ops.bases import Elementwise, FloatElementwise
from flour.types import Scalar, Type, Vector

if TYPE_CHECKING:
    from flour.emission import Emitter, ScalarValue
    from flour.flow import Flow
    from flour.sklearn import Importer


class WithParameter(FloatElementwise, abstract=True):
    """An infix operation between each column and its fitted number."""

    symbol: ClassVar[str] = "?"
    operand: Array

    def fitted(self, x: Any) -> Any:
        """The parameter in the data's own float width."""
        return self.operand.array.reshape(-1).astype(x.dtype)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return f"({x.expr} {self.symbol} {e.at(self.operand, j, x.dtype)})"


class Subtract(WithParameter):
    """x - operand, column by column."""

    symbol = "-"
    monotone = True

    def compute(self, x: Any) -> Any:
        return x - self.fitted(x)


class Add(WithParameter):
    """x + operand, column by column."""

    symbol = "+"
    monotone = True

    def compute(self, x: Any) -> Any:
        return x + self.fitted(x)


class Multiply(WithParameter):
    """x * operand, column by column."""

    symbol = "*"
    keeps_zero = True
    takes_sparse = True

    def compute(self, x: Any) -> Any:
        return x * self.fitted(x)


class Divide(WithParameter):
    """x / operand, column by column."""

    symbol = "/"
    keeps_zero = True
    takes_sparse = True

    def compute(self, x: Any) -> Any:
        return x / self.fitted(x)


class Clip(FloatElementwise):
    """x limited to [low, high], column by column; NaN stays NaN."""

    low: Array
    high: Array
    monotone = True

    def compute(self, x: Any) -> Any:
        low, high = (side.array.reshape(-1).astype(x.dtype) for side in (self.low, self.high))
        return np.clip(x, low, high)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return f"clip({x.expr}, {e.at(self.low, j, x.dtype)}, {e.at(self.high, j, x.dtype)})"


class OneMinus(FloatElementwise):
    """1 - x: the probability of the other class."""

    def compute(self, x: Any) -> Any:
        return 1 - x

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return f"({one(x.dtype)} - {x.expr})"


def one(dtype: str) -> str:
    """A one of this dtype, as an expression."""
    return {"float64": "1.0", "float32": "float32(1.0)"}.get(dtype, "1")


class Greater(Elementwise):
    """Whether x > operand, column by column; never for NaN."""

    operand: Array
    result = "bool"

    def compute(self, x: Any) -> Any:
        return x > self.operand.array.reshape(-1)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return f"({x.expr} > {e.at(self.operand, j)})"


class Cast(Elementwise):
    """The values in another dtype, converted as numpy's astype does."""

    dtype: str
    takes_sparse = True
    keeps_zero = True
    monotone = True

    def output(self, kind: Vector | Scalar) -> Type:
        return Scalar(self.dtype) if isinstance(kind, Scalar) else kind.having(dtype=self.dtype)

    def compute(self, x: Any) -> Any:
        return x.astype(self.dtype)

    def emit(self, e: Emitter, x: Any) -> Any:
        from flour.emission import ScalarValue

        if isinstance(x, ScalarValue):
            return e.let(e.cast(x.expr, x.dtype, self.dtype), self.dtype)
        return e.map(
            lambda _, v: e.cast(v, x.dtype, self.dtype),
            x,
            dtype=self.dtype,
            width=x.width,
            keeps_zero=True,
        )


class AsFloat(Cast):
    """Ints and bools become float64, floats stay what they are (what check_array does)."""

    dtype: str = "float64"

    def output(self, kind: Vector | Scalar) -> Type:
        return kind if kind.dtype in ("float32", "float64") else super().output(kind)

    def compute(self, x: Any) -> Any:
        return x if x.dtype.kind == "f" else x.astype(np.float64)

    def emit(self, e: Emitter, x: Any) -> Any:
        return x if x.dtype in ("float32", "float64") else super().emit(e, x)


# --- adapters ---------------------------------------------------------------------------------


@adapts("sklearn.preprocessing.StandardScaler")
def _standard_scaler(fit: Any, x: Flow, to: Importer) -> Flow:
    x = to.floats(x)
    if fit.with_mean:
        x = x.subtract(fit.mean_)
    if not fit.with_std:
        return x
    # Sparse data is scaled in place by the reciprocal, dense data is divided.
    return x.multiply(1 / fit.scale_) if to.is_sparse(x) else x.divide(fit.scale_)
