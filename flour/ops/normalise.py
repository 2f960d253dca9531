"""A row held against its own total: shares of a sum, log-sum-exp, log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import exp, log, log1p, maximum
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.native import write
from flour.core.op import Arity, Columns, Op
from flour.core.types import Scalar, Type
from flour.core.words import Number, Row, cast, indexable, one, zero
from flour.ops.bases import Reduction


class Proportions(Op):
    """x over its row sum; a row that sums to zero becomes equal shares."""

    arity = Arity.AGGREGATE
    restates = True

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
        rest = np.where(rest == 0, rest, rest / count)
        return np.log1p(rest) + np.log(count) + top[:, 0]

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
