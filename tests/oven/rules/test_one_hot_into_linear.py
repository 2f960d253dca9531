"""The product with a one is the weight."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from flour.ops.encode import OneHot
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "one_hot_into_linear"
rng = np.random.default_rng(0)
STARTS = np.array([0, 30, 50, 60])
WEIGHTS = rng.normal(size=(1, 60))


def hot(dtype: str = "float64") -> Flow:
    """Three columns of codes (drawn from 0 to 49, so some are out of range) as 60 columns."""
    return OneHot(STARTS, dtype)(vector(3, "int64"))


def example() -> Flow:
    """A program the rule applies to."""
    return hot().linear(WEIGHTS, [1.0])


def test_it_fires() -> None:
    after = "Linear[1x3, 1](LookUp[60, {0 30 50 60}, 3](x))"
    assert_fires(example(), RULE, after)


def test_it_fires_on_dense_columns() -> None:
    after = "Linear[1x3, 0](LookUp[60, {0 30 50 60}, 3](x))"
    assert_fires(hot().to_dense().linear(WEIGHTS, []), RULE, after)


def test_it_fires_beside_other_columns() -> None:
    flow = vector(2, name="y").concat(hot()).to_dense().linear(rng.normal(size=(1, 62)), [1.0])
    after = "Linear[1x5, 1](Concat(y, LookUp[60, {0 30 50 60}, 3](x)))"
    assert_fires(flow, RULE, after)


def test_it_fires_in_float32() -> None:
    after = "Linear[1x3, 0](LookUp[60, {0 30 50 60}, 3](x))"
    assert_fires(hot("float32").linear(WEIGHTS.astype("f4"), []), RULE, after)


def test_it_declines_several_outputs() -> None:
    assert_declines(hot().linear(rng.normal(size=(2, 60)), []), RULE)


def test_it_declines_where_somebody_else_reads_the_columns() -> None:
    columns = hot()
    assert_declines(outputs(a=columns, b=columns.linear(WEIGHTS, [])), RULE)


def test_it_declines_a_narrower_float() -> None:
    assert_declines(hot("float32").linear(WEIGHTS, []), RULE)
    assert_declines(hot("int64").linear(WEIGHTS, []), RULE)


def test_it_declines_weights_that_are_not_finite() -> None:
    assert_declines(hot().linear(WEIGHTS * np.inf, []), RULE)
