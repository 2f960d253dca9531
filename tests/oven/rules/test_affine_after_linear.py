"""What is added to a sum or scales it is part of the sum."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "affine_after_linear"
rng = np.random.default_rng(0)
WEIGHTS = rng.normal(size=(3, 5))


def summed() -> Flow:
    """Three sums over five columns."""
    return vector(5).linear(WEIGHTS, [])


def example() -> Flow:
    """A program the rule applies to."""
    return summed().subtract([1.0, 2.0, 3.0])


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Linear[3x5, 3](x)")


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_it_fires_on_whole_chains(sign: float) -> None:
    flow = vector(5).linear(WEIGHTS, [1.0, 2.0, 3.0]).subtract([4.0]).divide([2.0, 3.0, 4.0 * sign])
    assert_fires(flow.multiply([3.0]).add([1.0, 1.0, 0.0]), RULE, "Linear[3x5, 3](x)")


def test_it_fires_in_float32() -> None:
    flow = vector(5, "float32").linear(WEIGHTS.astype("f4"), []).divide([3.0])
    assert_fires(flow, RULE, "Linear[3x5, 3](x)")


def test_it_declines_where_somebody_else_reads_the_sums() -> None:
    sums = summed()
    assert_declines(outputs(a=sums, b=sums.subtract([1.0])), RULE)


@pytest.mark.parametrize("factor", [0.0, np.inf, np.nan, 1e-200, 1e200])
def test_it_declines_numbers_close_to_the_end(factor: float) -> None:
    assert_declines(summed().multiply([factor]), RULE)


def test_it_declines_weights_that_overflow() -> None:
    assert_declines(vector(5).linear(WEIGHTS * 1e149, []).multiply([1e149]), RULE)
