"""Chains of arithmetic become shorter ones."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "collapse_elementwise"
rng = np.random.default_rng(0)
MEAN, SCALE = rng.normal(size=4), rng.uniform(0.5, 2.0, 4)


def scaled() -> Flow:
    """(x - mean) / scale."""
    return vector(4).subtract(MEAN).divide(SCALE)


def example() -> Flow:
    """A program the rule applies to."""
    return scaled().multiply([3.0]).add([1.0])


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Add[4](Multiply[4](x))")


CHAINS = [
    (vector(4).subtract(MEAN).subtract([1.0]), "Subtract[4](x)"),
    (vector(4).add(MEAN).add(SCALE).subtract([1.0]), "Subtract[4](x)"),
    (vector(4).divide(SCALE).multiply([3.0]), "Multiply[4](x)"),
    (vector(4, sparse=True).divide(SCALE).multiply([3.0]), "Multiply[4](x)"),
    (vector(4, "float32").divide(SCALE).multiply([3.0]), "Multiply[4](x)"),
    (vector(4).subtract([1e9]).divide(SCALE).divide([2.0]), "Multiply[4](Subtract[1](x))"),
    (
        scaled().multiply([3.0]).linear(np.ones((1, 4)), []),
        "Linear[1x4, 0](Multiply[4](Subtract[4](x)))",
    ),
]


@pytest.mark.parametrize(("flow", "after"), CHAINS)
def test_it_fires_on_chains(flow: Flow, after: str) -> None:
    assert_fires(flow, RULE, after)


def test_a_large_offset_stays_ahead_of_the_factor() -> None:
    flow = vector(4).subtract([1e9]).divide([3.0]).multiply([2.0]).add([1.0])
    assert_fires(flow, RULE, "Add[1](Multiply[1](Subtract[1](x)))")


def test_it_declines_one_scaler() -> None:
    assert_declines(scaled(), RULE)
    assert_declines(vector(4).multiply(SCALE).add(MEAN), RULE)
    assert_declines(vector(4).divide(SCALE), RULE)


def test_it_declines_where_something_decides() -> None:
    chain = vector(4).divide(SCALE).multiply([3.0])
    assert_declines(chain.greater([0.5]), RULE)
    assert_declines(chain.sigmoid().concat(vector(1, name="y")).arg_max(), RULE)
    assert_declines(chain.floor(), RULE)
    assert_declines(chain.cast("int64"), RULE)


def test_it_fires_where_only_a_linear_map_decides() -> None:
    flow = vector(4).divide(SCALE).multiply([3.0]).linear(np.ones((1, 4)), []).greater([0.5])
    assert_fires(flow, RULE, "Greater[1](Linear[1x4, 0](Multiply[4](x)))")


def test_it_declines_where_somebody_else_reads_a_step() -> None:
    features = scaled()
    assert_declines(outputs(a=features, b=features.multiply([3.0])), RULE)


@pytest.mark.parametrize("factor", [0.0, np.inf, np.nan, 1e-200, 1e200])
def test_it_declines_numbers_close_to_the_end(factor: float) -> None:
    assert_declines(vector(4).divide(SCALE).multiply([factor]), RULE)
