"""A linear map need not see zeros."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "sparse_into_linear"
WEIGHTS = np.random.default_rng(0).normal(size=(2, 5))


def stored(width: int = 5) -> Flow:
    """Sparse columns made dense."""
    return vector(width, sparse=True).to_dense()


def example() -> Flow:
    """A program the rule applies to."""
    return stored().linear(WEIGHTS, [1.0, 2.0])


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Linear[2x5, 2](x)")


def test_it_fires_beside_other_columns() -> None:
    after = "Linear[2x5, 0](Concat(y, x))"
    assert_fires(vector(2, name="y").concat(stored(3)).linear(WEIGHTS, []), RULE, after)
    both = vector(2, name="y").concat(vector(3, sparse=True)).to_dense()
    assert_fires(both.linear(WEIGHTS, []), RULE, after)


def test_it_declines_weights_that_are_not_finite() -> None:
    assert_declines(stored().linear(WEIGHTS * np.inf, []), RULE)


def test_it_declines_where_somebody_else_reads_the_dense_columns() -> None:
    x = stored()
    assert_declines(outputs(a=x, b=x.linear(WEIGHTS, [])), RULE)


def test_it_declines_one_output() -> None:
    assert_declines(stored().linear(WEIGHTS[:1], []), RULE)
