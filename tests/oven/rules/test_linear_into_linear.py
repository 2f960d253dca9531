"""A projection becomes part of the linear map behind it."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "linear_into_linear"
rng = np.random.default_rng(0)
PROJECTION = rng.normal(size=(4, 9))
HEAD = rng.normal(size=(2, 4))


def projected() -> Flow:
    """Nine columns to four."""
    return vector(9).linear(PROJECTION, rng.normal(size=4))


def example() -> Flow:
    """A program the rule applies to."""
    return projected().linear(HEAD, [1.0, 2.0])


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Linear[2x9, 2](x)")


def test_it_fires_without_either_bias() -> None:
    bare = vector(9).linear(PROJECTION, [])
    assert_fires(bare.linear(HEAD, []), RULE, "Linear[2x9, 0](x)")
    assert_fires(bare.linear(HEAD, [1.0, 2.0]), RULE, "Linear[2x9, 2](x)")
    assert_fires(projected().linear(HEAD, []), RULE, "Linear[2x9, 2](x)")


def test_it_fires_beside_other_columns() -> None:
    flow = projected().concat(vector(2, name="y")).linear(rng.normal(size=(1, 6)), [1.0])
    assert_fires(flow, RULE, "Linear[1x11, 1](Concat(x, y))")


def test_it_fires_in_float32() -> None:
    narrow = vector(9, "float32").linear(PROJECTION.astype("f4"), np.zeros(4, "f4"))
    assert_fires(narrow.linear(HEAD.astype("f4"), []), RULE, "Linear[2x9, 2](x)")


def test_it_fires_on_three_in_a_row() -> None:
    assert_fires(example().linear([[1.0, -1.0]], []), RULE, "Linear[1x9, 1](x)")


def test_it_declines_where_somebody_else_reads_the_projection() -> None:
    features = projected()
    assert_declines(outputs(features=features, scores=features.linear(HEAD, [])), RULE)


def test_it_declines_a_narrow_waist() -> None:
    waist = vector(9).linear(rng.normal(size=(1, 9)), [])
    assert_declines(waist.linear(rng.normal(size=(9, 1)), []), RULE)


def test_it_declines_to_skip_a_rounding() -> None:
    narrow = vector(9, "float32").linear(PROJECTION.astype("f4"), [])
    assert_declines(narrow.linear(HEAD, []), RULE)


def test_it_declines_products_that_overflow() -> None:
    huge = vector(9).linear(PROJECTION * 1e200, [])
    assert_declines(huge.linear(HEAD * 1e200, []), RULE)
