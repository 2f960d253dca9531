"""Latent Dirichlet allocation: the topics of a document, found by iterating over its words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, fitted, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse, densify
from flour.core.types import Type, Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.elementwise import one
from flour.ops.reduce import zero
from flour.ops.require import above

#: scikit-learn's default is 100; without a limit a file could ask for a year's worth of them.
MOST_ROUNDS = 100_000
EULER = 0.577215664901532860606512090082402431


class TopicWeights(Op):
    """The weight of each topic (a row of `words`) in a document of word counts, not normalised.

    Every document is solved by itself: its topics are weighted by its words, its words by its
    topics, until the mean change falls below `tolerance` or `rounds` are over. The counts have the
    dtype of `words`.
    """

    words: Array
    prior: float
    tolerance: float
    rounds: int
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE
    takes_sparse = True

    def check(self) -> None:
        if len(self.words.shape) != 2 or self.words.dtype.kind != "f" or not self.words.shape[0]:
            raise ParameterError("topic_weights needs words as floats (topics, words)")
        if not 0 <= self.rounds <= MOST_ROUNDS:
            raise ParameterError(f"topic_weights makes at most {MOST_ROUNDS} rounds a row")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, self.name)
        fitted(self.words.shape[1], kind, self.name)
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
        dtype, topics = x.dtype, e.size(self.words.shape[0])
        weights, inner, sums = (e.scratch(dtype, self.words.shape[0]) for _ in range(3))
        used = self._used(e, x)
        with e.loop(topics) as k:
            e.store(weights, k, one(dtype), dtype)
        _expect(e, weights, inner, topics, dtype, e.cast(topics, "int64", dtype))
        with e.loop(e.size(self.rounds)):
            with e.loop(topics) as k:
                e.store(sums, k, zero(dtype), dtype)
            self._weigh(e, used, inner, sums, topics, dtype)
            self._settle(e, weights, inner, sums, topics, dtype)
        return e.dense(
            dtype,
            self.words.shape[0],
            lambda k: e.load(weights, k, dtype),
            size=topics,
            stored=True,
        )

    def _used(self, e: Emitter, x: VectorValue) -> tuple[str, str, str]:
        """The words that occur: the addresses of their columns and counts, and their number."""
        columns, counts, number = (
            e.scratch("int64", x.width),
            e.scratch(x.dtype, x.width),
            e.var("0"),
        )

        def note(j: str, v: str) -> None:
            value = e.let(v, x.dtype).expr
            with e.block(f"if {value} != 0:"):
                e.store(columns, number, j, "int64")
                e.store(counts, number, value, x.dtype)
                e.line(f"{number} = {number} + 1")

        x.each(note)
        return columns, counts, number

    def _weigh(
        self,
        e: Emitter,
        used: tuple[str, str, str],
        inner: str,
        sums: str,
        topics: str,
        dtype: str,
    ) -> None:
        """Share every word's count out over the topics."""
        columns, counts, number = used
        words = e.address(Array.of(np.ascontiguousarray(self.words.array.T)))
        least = e.number(float(np.finfo(dtype).eps), dtype)
        with e.loop(number) as i:
            start = e.let(f"{e.load(columns, i, 'int64')} * {topics}", "int64").expr
            outer = e.var(zero(dtype))

            def word(k: str) -> str:
                return e.load(words, f"{start} + {k}", dtype, constant=True)

            with e.loop(topics) as k:
                e.add(outer, f"{e.load(inner, k, dtype)} * {word(k)}", dtype)
            share = e.let(f"{e.load(counts, i, dtype)} / ({outer} + {least})", dtype).expr
            with e.loop(topics) as k:
                e.store(sums, k, f"{e.load(sums, k, dtype)} + {share} * {word(k)}", dtype)

    def _settle(
        self, e: Emitter, weights: str, inner: str, sums: str, topics: str, dtype: str
    ) -> None:
        """The new weights; leaves the loop when they hardly changed."""
        total, change = e.var(zero(dtype)), e.var(zero(dtype))
        prior = e.number(self.prior, dtype)
        with e.loop(topics) as k:
            product = f"{e.load(inner, k, dtype)} * {e.load(sums, k, dtype)}"
            value = e.let(f"{product} + {prior}", dtype).expr
            e.line(f"{change} = {change} + abs({e.load(weights, k, dtype)} - {value})")
            e.line(f"{total} = {total} + {value}")
            e.store(weights, k, value, dtype)
        _expect(e, weights, inner, topics, dtype, total)
        count = e.cast(topics, "int64", dtype)
        with e.block(f"if {change} / {count} < {e.number(self.tolerance, 'float64')}:"):
            e.line("break")


def _expect(e: Emitter, weights: str, inner: str, topics: str, dtype: str, total: str) -> None:
    """The geometric means of a Dirichlet distribution with these weights, into `inner`."""
    whole = e.let(f"digamma({e.cast(total, dtype, 'float64')})", "float64").expr
    with e.loop(topics) as k:
        weight = e.cast(e.load(weights, k, dtype), dtype, "float64")
        value = f"exp(digamma({weight}) - {whole})"
        e.store(inner, k, e.cast(value, "float64", dtype), dtype)


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
