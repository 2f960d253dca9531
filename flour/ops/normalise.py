"""A row held against its own total: shares of a sum, log-sum-exp, log-probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.op import Arity, Columns, Op
from flour.core.types import Scalar, Type
from flour.ops.bases import Reduction
from flour.ops.elementwise import one
from flour.ops.reduce import zero


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
        at, total = e.indexable(x), e.var(zero(x.dtype))
        with e.loop(x.size) as j:
            e.line(f"{total} = {total} + {at(j)}")
        equal, count = one(x.dtype), e.cast(x.size, "int64", x.dtype)
        none = e.let(f"{total} == 0", "bool").expr
        whole = e.let(f"{count} if {none} else {total}", x.dtype).expr
        return e.dense(
            x.dtype, x.width, lambda j: f"(({equal} if {none} else {at(j)}) / {whole})", size=x.size
        )


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
        at, none = e.indexable(x), zero(x.dtype)
        top = e.var(at("0"))
        with e.loop(x.size, "1") as j:
            e.line(f"{top} = maximum({top}, {at(j)})")
        # An infinite maximum cannot be subtracted; a NaN one makes everything NaN as it should.
        shift = e.let(f"{none} if {top} - {top} != 0 else {top}", x.dtype).expr
        rest, count = e.var(none), e.var(none)
        with e.loop(x.size) as j:
            value = e.let(at(j), x.dtype).expr
            with e.block(f"if {value} == {top}:"):
                e.line(f"{count} = {count} + {one(x.dtype)}")
            with e.block("else:"):
                e.line(f"{rest} = {rest} + exp({value} - {shift})")
        with e.block(f"if {rest} != 0:"):
            e.line(f"{rest} = {rest} / {count}")
        return e.let(f"(log1p({rest}) + log({count}) + {top})", x.dtype)
