"""Many opinions to one: counting votes, weighted medians, duels between pairs of classes."""

from __future__ import annotations

import numpy as np

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Columns, Op
from flour.core.types import INTS, Scalar, Type, Vector
from flour.ops.reduce import zero


class Tally(Op):
    """Per class, the weights of the columns that name it plus the `against` of those that do not.

    The columns hold class numbers in [0, classes); they are added up in order.
    """

    weights: Array
    against: Array
    classes: int
    arity = Arity.AGGREGATE

    def check(self) -> None:
        if self.weights.array.shape != self.against.array.shape or self.classes < 1:
            raise ParameterError("a tally needs two weights for each column, and a class")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "tally")
        expect(kind.dtype in INTS, f"tally counts class numbers, got {kind}")
        fitted(len(self.weights), kind, "tally")
        return Vector(self.classes, "float64")

    def reference(self, x: Columns) -> Columns:
        votes = np.zeros((len(x), self.classes))
        numbers = np.arange(self.classes)
        for j in range(x.shape[1]):
            hit = x[:, j, None] == numbers
            votes += np.where(hit, self.weights.array[j], self.against.array[j])
        return votes

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at, count = e.indexable(x), e.size(self.classes)
        sums = e.scratch("float64", self.classes)
        with e.loop(count) as c:
            e.store(sums, c, zero("float64"), "float64")
        with e.loop(x.size) as j:
            named = e.let(at(j), x.dtype).expr
            weight = e.let(e.at(self.weights, j, "float64"), "float64").expr
            other = e.let(e.at(self.against, j, "float64"), "float64").expr
            with e.loop(count) as c:
                term = f"({weight} if {named} == {c} else {other})"
                e.store(sums, c, f"{e.load(sums, c, 'float64')} + {term}", "float64")
        return e.dense("float64", self.classes, lambda c: e.load(sums, c, "float64"), stored=True)


class Share(Op):
    """x over its row sum; a row that sums to zero stays as it is."""

    arity = Arity.AGGREGATE

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "share")
        expect(is_float(kind), f"share computes on floats, got {kind}", "call as_float() first")
        return kind.having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        total = x.sum(axis=1, keepdims=True)
        return np.divide(x, total, out=x.copy(), where=total != 0)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at, total = e.indexable(x), e.var(zero(x.dtype))
        with e.loop(x.size) as j:
            e.line(f"{total} = {total} + {at(j)}")
        one = {"float32": "float32(1.0)"}.get(x.dtype, "1.0")
        e.line(f"{total} = {total} if {total} != {zero(x.dtype)} else {one}")
        return e.dense(x.dtype, x.width, lambda j: f"({at(j)} / {total})")


class WeightedMedian(Op):
    """The smallest column at which the columns in ascending order hold half of all weight."""

    weights: Array
    arity = Arity.AGGREGATE

    def infer(self, x: Type) -> Scalar:
        kind = vector(x, "weighted_median")
        fitted(len(self.weights), kind, "weighted_median")
        expect(kind.width > 0, "weighted_median needs at least one column")
        return Scalar(kind.dtype)

    def reference(self, x: Columns) -> Columns:
        order = np.argsort(x, axis=1, kind="stable")
        sums = np.cumsum(self.weights.array[order], axis=1)
        first = (sums >= 0.5 * sums[:, -1:]).argmax(axis=1)
        rows = np.arange(len(x))
        return x[rows, order[rows, first]]

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at, order = e.indexable(x), _ascending(e, x)
        total, sum_ = e.var("0.0"), e.var("0.0")

        def weight(j: str) -> str:
            return e.at(self.weights, e.load(order, j, "int64"), "float64")

        with e.loop(x.size) as j:
            e.line(f"{total} = {total} + {weight(j)}")
        column, done = e.var("0"), e.var("0")
        with e.loop(x.size) as j:
            e.line(f"{sum_} = {sum_} + {weight(j)}")
            with e.block(f"if {done} == 0 and {sum_} >= 0.5 * {total}:"):
                e.line(f"{done} = 1")
                e.line(f"{column} = {e.load(order, j, 'int64')}")
        # With a NaN weight no half is ever reached, and numpy's argmax is 0: the smallest column.
        e.line(f"{column} = {column} if {done} == 1 else {e.load(order, '0', 'int64')}")
        return e.let(at(column), x.dtype)


def _ascending(e: Emitter, x: VectorValue) -> str:
    """The address of the column numbers in ascending order of their values, NaN last."""
    at, order = e.indexable(x), e.scratch("int64", x.width)
    with e.loop(x.size) as j:
        value, position = e.let(at(j), x.dtype).expr, e.var(j)
        searching = e.var("1")
        with e.block(f"while {position} > 0 and {searching} == 1:"):
            before = e.let(e.load(order, f"{position} - 1", "int64"), "int64").expr
            other = e.let(at(before), x.dtype).expr
            later = f"{other} > {value} or ({other} != {other} and {value} == {value})"
            with e.block(f"if {later}:"):
                e.store(order, position, before, "int64")
                e.line(f"{position} = {position} - 1")
            with e.block("else:"):
                e.line(f"{searching} = 0")
        e.store(order, position, j, "int64")
    return order


class Duels(Op):
    """Per class, its wins over the others one against one, confidences breaking ties.

    Columns are the pairs (0, 1), (0, 2), ..., (1, 2), ...: `won` holds 1 where the later class
    wins, and `confidence` how clearly (negative for the earlier). The sum of a class's confidences
    s counts as s / (3 (|s| + 1)), less than half a win.
    """

    classes: int
    arity = Arity.AGGREGATE

    def infer(self, won: Type, confidence: Type) -> Vector:
        pairs = self.classes * (self.classes - 1) // 2
        fitted(pairs, vector(won, "duels"), "duels")
        fitted(pairs, vector(confidence, "duels"), "duels")
        return Vector(self.classes, "float64")

    def reference(self, won: Columns, confidence: Columns) -> Columns:
        votes = np.zeros((len(won), self.classes))
        sums = np.zeros((len(won), self.classes))
        first, second = np.triu_indices(self.classes, 1)
        for k, (i, j) in enumerate(zip(first, second, strict=True)):
            sums[:, i] -= confidence[:, k]
            sums[:, j] += confidence[:, k]
            votes[:, i] += won[:, k] == 0
            votes[:, j] += won[:, k] == 1
        return votes + sums / (3 * (np.abs(sums) + 1))

    def emit(self, e: Emitter, won: VectorValue, confidence: VectorValue) -> RowValue:
        wins, sure = e.indexable(won), e.indexable(confidence)
        count = e.size(self.classes)
        votes, sums = e.scratch("float64", self.classes), e.scratch("float64", self.classes)
        with e.loop(count) as c:
            e.store(votes, c, "0.0", "float64")
            e.store(sums, c, "0.0", "float64")
        k = e.var("0")
        with e.loop(count) as i, e.loop(count, f"{i} + 1") as j:
            clearly = e.let(e.cast(sure(k), confidence.dtype, "float64"), "float64").expr
            winner = e.let(wins(k), won.dtype).expr
            e.store(sums, i, f"{e.load(sums, i, 'float64')} - {clearly}", "float64")
            e.store(sums, j, f"{e.load(sums, j, 'float64')} + {clearly}", "float64")
            for label, value in ((i, 0), (j, 1)):
                vote = f"(1.0 if {winner} == {value} else 0.0)"
                e.store(votes, label, f"{e.load(votes, label, 'float64')} + {vote}", "float64")
            e.line(f"{k} = {k} + 1")

        def score(c: str) -> str:
            total = e.let(e.load(sums, c, "float64"), "float64").expr
            return f"({e.load(votes, c, 'float64')} + {total} / (3.0 * (abs({total}) + 1.0)))"

        return e.dense("float64", self.classes, score)
