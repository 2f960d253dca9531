"""Naive Bayes: joint log-likelihoods of the classes, and the adapters of sklearn.naive_bayes."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core import words
from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, held, listed, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import INTS, Vector, promote
from flour.core.words import Number, Row, added, cast, indexable, scratch, stored
from flour.language.adapters import Fitted, Importer, adapts, of_logarithms
from flour.language.flow import Flow
from flour.ops.linear import affine
from flour.ops.require import above


class SpreadDistances(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE):
    """The sum over columns of (x - centre)^2 / spread, for each row of `centres`.

    The squared distance to each centre, measured in the spread (variance) around it.
    """

    centres: Array
    spreads: Array

    def check(self) -> None:
        shapes = len(self.centres.shape) == 2 and self.centres.shape == self.spreads.shape
        if not shapes or (self.centres.dtype.kind, self.spreads.dtype.kind) != ("f", "f"):
            raise ParameterError(
                "spread_distances needs one spread for each number of each centre, as floats",
                found=f"centres {self.centres.shape}, spreads {self.spreads.shape}",
            )

    def infer(self, x: Vector) -> Vector:
        kind = vector(x, self.name)
        expect(is_float(kind), f"{self.name} computes on floats, got {kind}", "as_float() first")
        fitted(self.centres.shape[1], kind, self.name)
        return Vector(self.centres.shape[0], self._dtype(kind.dtype))

    def _dtype(self, dtype: str) -> str:
        return promote(dtype, self.centres.dtype.name, self.spreads.dtype.name)

    def reference(self, x: Columns) -> Columns:
        distances = np.empty((len(x), self.centres.shape[0]), self._dtype(x.dtype.name))
        pairs = zip(self.centres.array, self.spreads.array, strict=True)
        for k, (centre, spread) in enumerate(pairs):
            distances[:, k] = np.sum((x - centre) ** 2 / spread, axis=1)
        return distances

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        dtype, count = self._dtype(x.dtype), self.centres.shape[0]
        centres = FittedNumbers(self.centres, promote(x.dtype, self.centres.dtype.name))
        made = write(e, spread_distances, x, centres, FittedNumbers(self.spreads, dtype), count)
        return listed(e, made, dtype, count)


def spread_distances(x: Row, centres: words.Numbers, spreads: words.Numbers, count: int) -> Any:
    """The squared distance to each centre in the spread around it."""
    columns = indexable(x)
    return [spread_distance(columns, k * len(x), centres, spreads) for k in range(count)]


def spread_distance(x: Row, first: int, centres: words.Numbers, spreads: words.Numbers) -> Number:
    """The squared distance to the centre whose first number has this place."""
    total = words.zero(spreads)
    for j in range(len(x)):
        index = first + j
        difference = cast(x[j], centres.dtype) - centres[index]
        square = cast(difference * difference, spreads.dtype)
        total = added(total, square / spreads[index])
    return total


class SumOfEntries(Op, arity=Arity.AGGREGATE):
    """The sum over columns of a table's row, picked by that column's whole number.

    The tables of all columns are stacked in `table`; `starts` has the first row of each. A
    number outside its table picks the nearest end of the table.
    """

    table: Array
    starts: Array

    def check(self) -> None:
        starts = self.starts.array
        whole = starts.ndim == 1 and len(starts) and starts.dtype == np.int64
        if not whole or len(self.table.shape) != 2 or self.table.dtype.kind != "f":
            raise ParameterError("sum_of_entries needs a table and where each column starts")
        # Compared, not subtracted: a difference could overflow.
        ends = np.append(starts[1:], self.table.shape[0])
        if not len(starts) or starts[0] != 0 or np.any(ends <= starts):
            raise ParameterError(
                "every column needs at least one row of the table", found=str(starts)
            )

    def infer(self, x: Vector) -> Vector:
        kind = vector(x, self.name)
        expect(kind.dtype in INTS, f"{self.name} needs whole numbers, got {kind}")
        fitted(len(self.starts), kind, self.name)
        return Vector(self.table.shape[1], self.table.dtype.name)

    def _sizes(self) -> Any:
        return np.diff(np.append(self.starts.array, self.table.shape[0]))

    def reference(self, x: Columns) -> Columns:
        sums = np.zeros((len(x), self.table.shape[1]), self.table.dtype)
        for j, (start, size) in enumerate(zip(self.starts.array, self._sizes(), strict=True)):
            sums += self.table.array[start + np.clip(x[:, j], 0, size - 1)]
        return sums

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        width, sizes = self.table.shape[1], Array.of(self._sizes())
        return held(e, *write(e, summed_entries, x, self.table, self.starts, sizes, width))


def summed_entries(
    x: Row, table: words.Numbers, starts: words.Numbers, sizes: words.Numbers, width: int
) -> Any:
    """The rows of a table that a row of whole numbers picks, one for each column, added up."""
    count = words.size(width)
    entries, sums = words.fitted(table), scratch(table.dtype, width)
    for o in range(count):
        sums[o] = words.zero(table)
    for j, v in stored(x):
        inside = min(max(cast(v, "int64"), 0), sizes[j] - 1)
        row = (starts[j] + inside) * count
        for o in range(count):
            sums[o] += entries[row + o]
    return sums, width, count


# --- adapters -------------------------------------------------------------------------------------


def _classify(fit: Fitted, joint: Flow) -> dict[str, Flow]:
    """The likeliest class, and the probabilities that the joint log-likelihoods amount to."""
    return {
        "label": joint.arg_max().take(fit.classes_),
        **of_logarithms(joint - joint.log_sum_exp()),
    }


@adapts("sklearn.naive_bayes.GaussianNB")
def _gaussian(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x = to.promoted(x, fit.theta_, fit.var_)
    constant = -0.5 * np.sum(np.log(2.0 * np.pi * fit.var_), axis=1)
    # n_ij - 0.5 * distance, then the prior, in the library's order.
    likelihood = x.spread_distances(fit.theta_, fit.var_).multiply([-0.5]).add(constant)
    prior = np.log(fit.class_prior_)
    wide = np.result_type(constant, prior) != constant.dtype
    return _classify(fit, (likelihood.cast("float64") if wide else likelihood).add(prior))


@adapts("sklearn.naive_bayes.MultinomialNB")
def _multinomial(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return _classify(fit, affine(to.matrix(x), fit.feature_log_prob_, fit.class_log_prior_))


@adapts("sklearn.naive_bayes.ComplementNB")
def _complement(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    prior = fit.class_log_prior_ if len(fit.classes_) == 1 else 0.0
    return _classify(fit, affine(to.matrix(x), fit.feature_log_prob_, prior))


@adapts("sklearn.naive_bayes.BernoulliNB")
def _bernoulli(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x = to.matrix(x)
    if fit.binarize is not None:
        x = x.binarize(fit.binarize)
    absent = np.log(1 - np.exp(fit.feature_log_prob_))
    weights = fit.feature_log_prob_ - absent
    return _classify(fit, affine(x, weights, fit.class_log_prior_ + absent.sum(axis=1)))


@adapts("sklearn.naive_bayes.CategoricalNB")
def _categorical(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    sizes = [table.shape[1] for table in fit.feature_log_prob_]
    starts = np.cumsum([0, *sizes[:-1]]).astype(np.int64)
    table = np.concatenate([table.T for table in fit.feature_log_prob_])
    codes = above(to.floats(x), 0.0, "CategoricalNB").cast("int64")
    return _classify(fit, codes.sum_of_entries(table, starts).add(fit.class_log_prior_))
