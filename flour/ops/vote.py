"""Many opinions to one: counting votes, weighted medians, duels between pairs of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import isnan

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, held, listed, write
from flour.core.op import Arity, Array, Columns, Op
from flour.core.types import INTS, Scalar, Type, Vector
from flour.core.words import Number, Numbers, Row, cast, indexable, one, scratch, size, zero


class Tally(Op, arity=Arity.AGGREGATE):
    """Per class, the weights of the columns that name it plus the `against` of those that do not.

    The columns hold class numbers in [0, classes); they are added up in order.
    """

    weights: Array
    against: Array
    classes: int

    def check(self) -> None:
        if self.weights.array.shape != self.against.array.shape or self.classes < 1:
            raise ParameterError("a tally needs two weights for each column, and a class")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "tally")
        expect(kind.dtype in INTS, f"tally counts class numbers, got {kind}")
        fitted(len(self.weights), kind, "tally")
        return Vector(self.classes, "float64")

    def reference(self, x: Columns) -> Columns:
        votes, numbers = np.zeros((len(x), self.classes)), np.arange(self.classes)
        for j in range(x.shape[1]):
            hit = x[:, j, None] == numbers
            votes += np.where(hit, self.weights.array[j], self.against.array[j])
        return votes

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        weights = FittedNumbers(self.weights, "float64")
        against = FittedNumbers(self.against, "float64")
        return held(e, write(e, tally, x, weights, against, self.classes), self.classes)


def tally(x: Row, weights: Numbers, against: Numbers, classes: int) -> Any:
    """Per class, the weights of the columns that name it and of those that do not."""
    columns, count = indexable(x), size(classes)
    votes = scratch("float64", classes)
    for c in range(count):
        votes[c] = 0.0
    for j in range(len(x)):
        named, weight, other = columns[j], weights[j], against[j]
        for c in range(count):
            votes[c] += weight if named == c else other
    return votes


class Share(Op, arity=Arity.AGGREGATE):
    """x over its row sum; a row that sums to zero stays as it is."""

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "share")
        expect(is_float(kind), f"share computes on floats, got {kind}", "call as_float() first")
        return kind.having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        total = x.sum(axis=1, keepdims=True)
        return np.divide(x, total, out=x.copy(), where=total != 0)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return listed(e, write(e, shares, x, x.width), x.dtype, x.width)


def shares(x: Row, count: int) -> Any:
    """A row over its sum, or over one if that is zero."""
    columns, total = indexable(x), zero(x)
    for j in range(len(x)):
        total = total + columns[j]
    total = total if total != zero(x) else one(x)
    return [columns[j] / total for j in range(count)]


class WeightedMedian(Op, arity=Arity.AGGREGATE):
    """The smallest column at which the columns in ascending order hold half of all weight."""

    weights: Array

    def infer(self, x: Type) -> Scalar:
        kind = vector(x, "weighted_median", len(self.weights))
        expect(kind.width > 0, "weighted_median needs at least one column")
        return Scalar(kind.dtype)

    def reference(self, x: Columns) -> Columns:
        order = np.argsort(x, axis=1, kind="stable")
        sums = np.cumsum(self.weights.array[order], axis=1)
        first = (sums >= 0.5 * sums[:, -1:]).argmax(axis=1)
        rows = np.arange(len(x))
        return x[rows, order[rows, first]]

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return e.let(write(e, median, x, FittedNumbers(self.weights, "float64"), x.width), x.dtype)


def median(x: Row, weights: Numbers, count: int) -> Number:
    """The smallest column at which those in ascending order hold half of all weight."""
    columns, order = indexable(x), ascending(x, count)
    total, sum_ = 0.0, 0.0
    for j in range(len(x)):
        total = total + weights[order[j]]
    column, done = 0, 0
    for j in range(len(x)):
        sum_ = sum_ + weights[order[j]]
        if done == 0 and sum_ >= 0.5 * total:
            done = 1
            column = order[j]
    # With a NaN weight no half is ever reached, and numpy's argmax is 0: the smallest column.
    column = column if done == 1 else order[0]
    return columns[column]


def ascending(x: Row, count: int) -> Any:
    """The column numbers in ascending order of their values, NaN last."""
    columns, order = indexable(x), scratch("int64", count)
    for j in range(len(x)):
        value, position = columns[j], j
        searching = 1
        while position > 0 and searching == 1:
            before = order[position - 1]
            other = columns[before]
            if other > value or (isnan(other) and not isnan(value)):
                order[position] = before
                position = position - 1
            else:
                searching = 0
        order[position] = j
    return order


class Duels(Op, arity=Arity.AGGREGATE):
    """Per class, its wins over the others one against one, confidences breaking ties.

    Columns are the pairs (0, 1), (0, 2), ..., (1, 2), ...: `won` holds 1 where the later class
    wins, and `confidence` how clearly (negative for the earlier). The sum of a class's confidences
    s counts as s / (3 (|s| + 1)), less than half a win.
    """

    classes: int

    def infer(self, won: Type, confidence: Type) -> Vector:
        pairs = self.classes * (self.classes - 1) // 2
        vector(won, "duels", pairs)
        vector(confidence, "duels", pairs)
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
        return listed(e, write(e, duels, won, confidence, self.classes), "float64", self.classes)


def duels(won: Row, confidence: Row, classes: int) -> Any:
    """Per class, its wins and less than half a win for how clear they were."""
    wins, sure = indexable(won), indexable(confidence)
    count = size(classes)
    votes, sums = scratch("float64", classes), scratch("float64", classes)
    for c in range(count):
        votes[c] = 0.0
        sums[c] = 0.0
    k = 0
    for i in range(count):
        for j in range(i + 1, count):
            clearly, winner = cast(sure[k], "float64"), wins[k]
            sums[i] -= clearly
            sums[j] += clearly
            votes[i] += 1.0 if winner == 0 else 0.0
            votes[j] += 1.0 if winner == 1 else 0.0
            k = k + 1
    return [score(votes[c], sums[c]) for c in range(classes)]


def score(votes: Number, sum_: Number) -> Number:
    """A class's wins, and its confidences as less than half a win."""
    return votes + sum_ / (3.0 * (abs(sum_) + 1.0))
