"""All columns to one number: sums, norms, extremes and their columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Columns
from flour.core.sparse import Sparse, densify
from flour.core.types import Scalar, Type
from flour.ops.bases import Reduction


class Sum(Reduction):
    """The sum of all columns."""

    skips_zeros = True
    takes_sparse = True
    associative = True
    commutative = True

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [np.repeat(weights, vector(inputs[0], self.name).width, axis=1)]

    def reference(self, x: Columns) -> Columns:
        if isinstance(x, Sparse) and x.dtype == np.float64:
            # One after the other, as native code and scipy add them.
            return x.row_sums(x.data).astype(x.dtype)
        return super().reference(densify(x))

    def compute(self, x: NDArray[Any]) -> Any:
        return x.sum(axis=1, dtype=x.dtype)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        total = e.var(zero(x.dtype))
        x.each(lambda _, v: e.add(total, v, x.dtype))
        return e.let(total, x.dtype)


class Max(Reduction):
    """The largest column; NaN if any is NaN."""

    associative = True
    commutative = True

    def compute(self, x: NDArray[Any]) -> Any:
        return x.max(axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return _extreme(e, x, "maximum")


class Min(Reduction):
    """The smallest column; NaN if any is NaN."""

    associative = True
    commutative = True

    def compute(self, x: NDArray[Any]) -> Any:
        return x.min(axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return _extreme(e, x, "minimum")


def _extreme(e: Emitter, x: VectorValue, function: str) -> RowValue:
    at = e.indexable(x)
    best = e.var(at("0"))
    with e.loop(x.size, "1") as j:
        e.line(f"{best} = {function}({best}, {at(j)})")
    return e.let(best, x.dtype)


class ArgMax(Reduction):
    """The number of the largest column: the first of equals, the first NaN before all."""

    result = "int64"

    def infer(self, x: Type) -> Scalar:
        expect(vector(x, self.name).width > 0, "argmax needs at least one column")
        return Scalar("int64")

    def compute(self, x: NDArray[Any]) -> Any:
        return np.argmax(x, axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return _where(e, x, ">")


class ArgMin(ArgMax):
    """The number of the smallest column: the first of equals, the first NaN before all."""

    def compute(self, x: NDArray[Any]) -> Any:
        return np.argmin(x, axis=1)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return _where(e, x, "<")


def _where(e: Emitter, x: VectorValue, symbol: str) -> RowValue:
    at = e.indexable(x)
    best, index = e.var(at("0")), e.var("0")
    with e.loop(x.size, "1") as j:
        value = e.let(at(j), x.dtype).expr
        # A NaN beats everything but an earlier NaN, as numpy's argmax has it.
        wins = f"{value} {symbol} {best}"
        if x.dtype in ("float32", "float64"):
            wins = f"({wins} or {value} != {value}) and {best} == {best}"
        with e.block(f"if {wins}:"):
            e.line(f"{best} = {value}")
            e.line(f"{index} = {j}")
    return e.let(index, "int64")


class Norm(Reduction):
    """The length of the vector: l1, l2 or max norm (the largest magnitude)."""

    kind: str
    arity = Arity.AGGREGATE
    skips_zeros = True

    def check(self) -> None:
        if self.kind not in ("l1", "l2", "max"):
            raise ParameterError(f"there is no norm {self.kind!r}", hint="l1, l2, max")

    def compute(self, x: NDArray[Any]) -> Any:
        if self.kind == "l1":
            return np.abs(x).sum(axis=1)
        if self.kind == "l2":
            return np.sqrt(np.einsum("ij,ij->i", x, x))
        return np.max(np.abs(x), axis=1, initial=0)

    def structure(self) -> tuple[object, ...]:
        return (self.kind,)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        total = e.var(zero(x.dtype))
        if self.kind == "l1":
            x.each(lambda _, v: e.add(total, f"abs({v})", x.dtype))
        elif self.kind == "max":
            x.each(lambda _, v: e.line(f"{total} = maximum({total}, abs({v}))"))
        else:

            def square(_: str, v: str) -> None:
                value = e.let(v, x.dtype).expr
                e.add(total, f"{value} * {value}", x.dtype)

            x.each(square)
            return e.let(f"sqrt({total})", x.dtype)
        return e.let(total, x.dtype)


def zero(dtype: str) -> str:
    """A zero of this dtype, as an expression."""
    return {"float64": "0.0", "float32": "float32(0.0)"}.get(dtype, "0")
