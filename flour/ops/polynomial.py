"""Products of columns: polynomial and interaction features."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import write
from flour.core.op import Arity, Array, Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Row, indexable, one, scratch, size
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow


class Products(Op):
    """The columns, then the product of terms left[i] and right[i] for each i; `skip` left out.

    Terms are numbered as they are made, the columns first, so that a cube is a square times a
    column. With `bias` a one comes ahead of the terms that are kept.
    """

    left: Array
    right: Array
    skip: int = 0
    bias: bool = False
    arity = Arity.ONE_TO_MANY

    def check(self) -> None:
        left, right = self.left.array, self.right.array
        kinds = {left.dtype.name, right.dtype.name}
        if left.ndim != 1 or left.shape != right.shape or kinds != {"int64"} or self.skip < 0:
            raise ParameterError("products need as many left as right factors, by their numbers")
        if left.size and min(left.min(), right.min()) < 0:
            raise ParameterError("terms count from 0")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "products")
        expect(is_float(kind), f"products are of floats, got {kind}", "call as_float() first")
        term_numbers = kind.width + np.arange(len(self.left))
        for side in (self.left, self.right):
            expect(
                np.all(np.less(side.array, term_numbers)),
                "a product uses a term that is not there yet",
            )
        terms = kind.width + len(self.left)
        expect(self.skip <= terms, f"products skips {self.skip} of {terms} terms")
        return kind.having(width=terms - self.skip + self.bias)

    def reference(self, x: Columns) -> Columns:
        rows, width = x.shape
        terms = np.empty((rows, width + len(self.left)), x.dtype)
        terms[:, :width] = x
        sides = zip(self.left.array, self.right.array, strict=True)
        for number, (left, right) in enumerate(sides, width):
            terms[:, number] = terms[:, left] * terms[:, right]
        kept = terms[:, self.skip :]
        return np.hstack([np.ones((rows, 1), x.dtype), kept]) if self.bias else kept

    def structure(self) -> tuple[object, ...]:
        return (self.bias,)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        terms = x.width + len(self.left)
        return e.dense(
            x.dtype,
            terms - self.skip + self.bias,
            write(e, products, x, self, terms, len(self.left)).write,
            stored=True,
        )


def products(x: Row, op: Any, terms: int, pairs: int) -> Any:
    """The columns and the products of terms, without those that are left out."""
    # A slot ahead of the terms holds the one of the bias where nothing is skipped.
    found = scratch(x.dtype, terms + 1)
    columns = indexable(x)
    for j in range(len(x)):
        found[1 + j] = columns[j]
    for i in range(size(pairs)):
        found[1 + len(x) + i] = found[1 + op.left[i]] * found[1 + op.right[i]]
    skip = size(op.skip)
    if op.bias:
        found[skip] = one(x)
    else:
        skip = 1 + skip
    return [found[skip + j] for j in range(terms - op.skip + op.bias)]


_MOST = 1 << 22


@adapts("sklearn.preprocessing.PolynomialFeatures")
def _polynomial_features(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(fit._n_out_full <= _MOST, f"{fit._n_out_full} polynomial terms are too many")
    left, right, low = _factors(fit)
    return to.floats(x).products(left, right, skip=low, bias=fit.include_bias)


def _factors(fit: Fitted) -> tuple[Any, Any, int]:
    """(left, right) of every term above degree 1, and the number of terms of too low a degree.

    The first column of a term multiplies the term of all the others, as the library builds them.
    """
    width = fit.n_features_in_
    number: dict[tuple[int, ...], int] = {(j,): j for j in range(width)}
    left: list[int] = []
    right: list[int] = []
    low = 0 if fit._min_degree <= 1 and fit._max_degree > 0 else width
    choose = combinations if fit.interaction_only else combinations_with_replacement
    for degree in range(2, fit._max_degree + 1):
        for term in choose(range(width), degree):
            number[term] = len(number)
            left.append(number[term[1:]])
            right.append(term[0])
        if degree < fit._min_degree:
            low = len(number)
    return np.array(left, np.int64), np.array(right, np.int64), low
