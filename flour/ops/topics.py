"""Latent Dirichlet allocation: the topics of a document, found by iterating over its words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import exp
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import Code, held, write, written_as
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse, densify
from flour.core.types import Type, Vector
from flour.core.words import (
    Number,
    Numbers,
    Row,
    added,
    cast,
    number,
    one,
    scratch,
    size,
    stored,
    zero,
)
from flour.core.words import fitted as fitted_numbers
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.require import above

#: scikit-learn's default is 100; without a limit a file could ask for a year's worth of them.
MOST_ROUNDS = 100_000
EULER = 0.577215664901532860606512090082402431


class TopicWeights(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE, takes_sparse=True):
    """The weight of each topic (a row of `words`) in a document of word counts, not normalised.

    Every document is solved by itself: its topics are weighted by its words, its words by its
    topics, until the mean change falls below `tolerance` or `rounds` are over. The counts have the
    dtype of `words`.
    """

    words: Array
    prior: float
    tolerance: float
    rounds: int

    def check(self) -> None:
        if len(self.words.shape) != 2 or self.words.dtype.kind != "f" or not self.words.shape[0]:
            raise ParameterError("topic_weights needs words as floats (topics, words)")
        if not 0 <= self.rounds <= MOST_ROUNDS:
            raise ParameterError(f"topic_weights makes at most {MOST_ROUNDS} rounds a row")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, self.name, self.words.shape[1])
        dtype = self.words.dtype.name
        expect(kind.dtype == dtype, f"{self.name} needs {dtype} counts, got {kind}", "cast() first")
        return Vector(self.words.shape[0], dtype)

    def reference(self, x: Columns) -> Columns:
        dense = densify(x) if isinstance(x, Sparse) else x
        rows = [self._document(row) for row in dense]
        return np.array(rows, x.dtype).reshape(len(dense), self.words.shape[0])

    def _document(self, row: NDArray[Any]) -> Any:
        used = np.flatnonzero(row)
        counts, words = row[used], self.words.array[:, used]
        weights = np.ones(len(words), row.dtype)
        inner = np.exp(digamma(weights) - digamma(weights.sum()))
        for _ in range(self.rounds):
            last = weights
            outer = np.dot(inner, words) + np.finfo(row.dtype).eps
            weights = inner * np.dot(counts / outer, words.T) + row.dtype.type(self.prior)
            inner = np.exp(digamma(weights) - digamma(weights.sum()))
            if np.abs(last - weights).mean() < self.tolerance:
                break
        return weights

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        words, least = Array.of(np.ascontiguousarray(self.words.array.T)), np.finfo(x.dtype).eps
        sizes = self.words.shape[0], x.width
        return held(e, *write(e, topic_weights, x, words, sizes, self, float(least)))


def topic_weights(
    x: Row, words: Numbers, sizes: tuple[int, int], how: TopicWeights, epsilon: float
) -> Any:
    """The weights of the topics, by rounds over the words that occur."""
    count, columns = sizes
    topics = size(count)
    weights, inner, sums = [scratch(x.dtype, count) for _ in ("weights", "inner", "sums")]
    places, counts = scratch("int64", columns), scratch(x.dtype, columns)
    used = note_words(x, places, counts)
    for k in range(topics):
        weights[k] = one(x)
    expect_topics(weights, inner, topics, cast(topics, x.dtype))
    for _ in range(size(how.rounds)):
        for k in range(topics):
            sums[k] = zero(x)
        table, least = fitted_numbers(words), number(epsilon, x.dtype)
        for i in range(used):  # share every word's count out over the topics
            start, outer = places[i] * topics, zero(x)
            for k in range(topics):
                outer = added(outer, inner[k] * table[start + k])
            share = counts[i] / (outer + least)
            for k in range(topics):
                sums[k] += share * table[start + k]
        total, change = zero(x), zero(x)
        prior = number(how.prior, x.dtype)
        for k in range(topics):
            weight = inner[k] * sums[k] + prior
            change = change + abs(weights[k] - weight)
            total = total + weight
            weights[k] = weight
        expect_topics(weights, inner, topics, total)
        if change / cast(topics, x.dtype) < number(how.tolerance, "float64"):
            break
    return weights, count, topics


def note_words(x: Row, places: Numbers, counts: Numbers) -> int:
    """Write the columns that are not zero, and their counts; return how many there are."""
    used = 0
    for j, v in stored(x):
        value = v
        if value != 0:
            places[used] = j
            counts[used] = value
            used = used + 1
    return used


def expect_topics(weights: Numbers, inner: Numbers, topics: int, total: Number) -> None:
    """Write the geometric means of a Dirichlet distribution with these weights into `inner`."""
    whole = digamma(cast(total, "float64"))
    for k in range(topics):
        inner[k] = cast(exp(digamma(cast(weights[k], "float64")) - whole), weights.dtype)


@written_as(lambda _, x: Code(f"digamma({x})", "float64"))
def digamma(x: NDArray[Any]) -> Any:
    """The logarithmic derivative of the gamma function for positive numbers, as the library has it.

    Recurrence up to 6, then an asymptotic series: quick, and exact to about 1e-9 only.
    """
    value = np.array(x, np.float64)
    tiny = value <= 1e-6
    result = np.where(tiny, -EULER - 1 / np.where(tiny, value, 1), 0.0)
    value = np.where(tiny, 6.0, value)
    low = value < 6
    while low.any():
        result = np.where(low, result - 1 / value, result)
        value = np.where(low, value + 1, value)
        low = value < 6
    inverse = 1 / value
    series = np.log(value) - 0.5 * inverse
    square = inverse * inverse
    series -= square * ((1 / 12) - square * ((1 / 120) - square * (1 / 252)))
    return np.where(tiny, result, result + series).astype(x.dtype)


# --- adapters -------------------------------------------------------------------------------------


@adapts("sklearn.decomposition.LatentDirichletAllocation")
def _allocation(fit: Fitted, x: Flow, to: Importer) -> Flow:
    words = fit.exp_dirichlet_component_
    counts = above(to.floats(x), 0.0, "LatentDirichletAllocation").cast(str(words.dtype.name))
    weights = counts.topic_weights(
        words, fit.doc_topic_prior_, fit.mean_change_tol, fit.max_doc_update_iter
    )
    return weights.over(weights.sum())
