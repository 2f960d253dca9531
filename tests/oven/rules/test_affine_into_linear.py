"""A scaler becomes part of the linear map behind it, where no digits are lost."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from oven.optimise.rewrite import optimise
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "affine_into_linear"
rng = np.random.default_rng(0)
WEIGHTS = rng.normal(size=(1, 5))
MEAN, SCALE = rng.normal(size=5), rng.uniform(0.5, 2.0, 5)


def scaled(dtype: str = "float64") -> Flow:
    """(x - mean) / scale."""
    return vector(5, dtype).subtract(MEAN).divide(SCALE)


def example() -> Flow:
    """A program the rule applies to."""
    return scaled().linear(WEIGHTS, [0.5])


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Linear[1x5, 1](x)")


def test_it_fires_on_multiply_and_add() -> None:
    flow = vector(5).multiply(SCALE).add([1e2]).linear(WEIGHTS, [])
    assert_fires(flow, RULE, "Linear[1x5, 1](x)")


def test_it_declines_where_an_offset_behind_the_factor_would_cost_digits() -> None:
    assert_declines(vector(5).multiply([1e4]).add([-1e6]).linear(WEIGHTS, []), RULE)


@pytest.mark.parametrize(("dtype", "most"), [("float64", 50.0), ("float32", 0.5)])
def test_float32_has_fewer_digits_to_lose(dtype: str, most: float) -> None:
    def program(offset: float) -> Flow:
        x = vector(5, dtype).subtract([offset]).multiply([2.0])
        return x.linear(np.ones((1, 5), dtype), np.zeros(0, dtype))

    assert_fires(program(most), RULE, "Linear[1x5, 1](x)")
    assert_declines(program(100 * most), RULE)


def test_it_fires_on_a_factor_alone_and_needs_no_bias_for_it() -> None:
    assert_fires(vector(5).divide(-SCALE).linear(WEIGHTS, []), RULE, "Linear[1x5, 0](x)")


def test_it_fires_on_sparse_rows() -> None:
    flow = vector(5, sparse=True).multiply(SCALE).linear(WEIGHTS, [1.0])
    assert_fires(flow, RULE, "Linear[1x5, 1](x)")


def test_it_fires_for_several_heads() -> None:
    features = scaled()
    flow = outputs(a=features.linear(WEIGHTS, [0.5]), b=features.linear(-WEIGHTS, [0.1]))
    made = assert_fires(flow, RULE, "Linear[1x5, 1](x)", output="b")
    assert {item.op.name for item in made.nodes()} == {"Source", "Linear"}


def test_it_fires_beside_other_columns() -> None:
    flow = scaled().concat(vector(2, name="y")).linear(rng.normal(size=(2, 7)), [])
    assert_fires(flow, RULE, "Linear[2x7, 2](Concat(x, y))")


def test_it_fires_beside_sparse_columns_made_dense() -> None:
    both = scaled().concat(vector(2, name="y", sparse=True)).to_dense()
    after = "Linear[1x7, 1](ToDense(Concat(x, y)))"
    assert_fires(both.linear(rng.normal(size=(1, 7)), [0.0]), RULE, after)


def test_it_fires_in_float32() -> None:
    flow = scaled("float32").linear(WEIGHTS.astype("f4"), np.array([0.5], "f4"))
    assert_fires(flow, RULE, "Linear[1x5, 1](x)")


def test_it_declines_where_somebody_else_reads_the_scaled_columns() -> None:
    features = scaled()
    assert_declines(outputs(a=features.linear(WEIGHTS, []), b=features), RULE)
    assert_declines(outputs(a=features.linear(WEIGHTS, []), b=features.sigmoid()), RULE)


def test_it_declines_to_skip_a_rounding() -> None:
    assert_declines(scaled("float32").linear(WEIGHTS, []), RULE)


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, 1e-200, 1e200])
def test_it_declines_numbers_close_to_the_end(scale: float) -> None:
    assert_declines(vector(5).divide([scale]).linear(WEIGHTS, []), RULE)


def test_it_declines_weights_that_are_not_numbers() -> None:
    assert_declines(vector(5).divide(SCALE).linear(WEIGHTS * np.inf, []), RULE)


def test_it_declines_an_offset_that_dwarfs_the_scale() -> None:
    near = vector(5).subtract([1e3]).divide([10.0]).linear(WEIGHTS, [])
    assert_fires(near, RULE, "Linear[1x5, 1](x)")
    far = vector(5).subtract([1e9]).divide([10.0]).linear(WEIGHTS, [])
    assert_declines(far, RULE)


def test_what_it_declines_would_have_lost_digits() -> None:
    rows = 1e9 + rng.normal(size=(50, 5))
    far = vector(5).subtract([1e9]).divide([1.0 / 3]).linear(WEIGHTS, [])
    folded = vector(5).linear(WEIGHTS * 3, [-(WEIGHTS.sum() * 3e9)])
    want = far.reference(rows)["output"]
    lost = np.abs(folded.reference(rows)["output"] - want).max() / np.abs(want).max()
    kept = np.abs(optimise(far, exact=False).reference(rows)["output"] - want).max()
    assert lost > 1e-9
    assert kept == 0


def test_it_declines_an_offset_without_a_scale() -> None:
    assert_declines(vector(5).subtract(MEAN).linear(WEIGHTS, []), RULE)
