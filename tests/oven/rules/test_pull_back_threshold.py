"""Thresholds move to the very float where the transformed comparison flips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flour.core.types import Scalar
from flour.language.flow import Flow, outputs, source
from flour.ops.trees.trees import Trees
from oven.optimise.rewrite import trace
from tests import ensembles
from tests.rewrites import assert_declines, assert_fires, only, vector

pytestmark = pytest.mark.rules
RULE = "pull_back_threshold"
rng = np.random.default_rng(0)
MEAN, SCALE = rng.normal(size=4), rng.uniform(0.5, 2.0, 4)


def scaled(dtype: str = "float64", *, wide: bool = False) -> Flow:
    """(x - mean) / scale."""
    return vector(4, dtype).subtract(MEAN, wide=wide).divide(SCALE, wide=wide)


def example() -> Flow:
    """A program the rule applies to."""
    return scaled().greater([0.5])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("wide", [False, True])
def test_it_fires(dtype: str, *, wide: bool) -> None:
    assert_fires(scaled(dtype, wide=wide).greater([0.5]), RULE, "Greater[4](x)")


COMPARISONS = {
    "greater": "Greater[4](x)",
    "greater_equal": "Greater[4](x)",
    "less": "LessEqual[4](x)",
    "less_equal": "LessEqual[4](x)",
}


@pytest.mark.parametrize("method", COMPARISONS)
def test_it_fires_on_every_comparison(method: str) -> None:
    # 1.5 is an answer of the scaled column, so that `>` and `>=` differ.
    flow = getattr(vector(4).subtract([1.0]).divide([2.0]), method)([1.5])
    made = assert_fires(flow, RULE, COMPARISONS[method])
    rows = np.array([[4.0, np.nextafter(4.0, 9), np.nextafter(4.0, 0), np.nan]])
    np.testing.assert_array_equal(made.reference(rows)["output"], flow.reference(rows)["output"])


CHAINS = [
    vector(4).add(MEAN),
    vector(4).multiply(SCALE).add(MEAN).clip([-1.0], [1.0]),
    vector(4).cast("float32").divide(SCALE),
    vector(4, "float32").cast("float64").subtract(MEAN),
    source("x", Scalar()).multiply([3.0]),
]


@pytest.mark.parametrize("flow", CHAINS, ids=lambda flow: flow.node.op.name)
def test_it_fires_on_chains(flow: Flow) -> None:
    assert_fires(flow.greater([0.5]), RULE, f"Greater[{_width(flow)}](x)")


def _width(flow: Flow) -> int:
    return getattr(flow.type, "width", 1)


@pytest.mark.parametrize("limit", [np.inf, 1e308, 0.0, -1e308])
def test_it_fires_on_limits_far_out(limit: float) -> None:
    assert_fires(scaled().greater([limit]), RULE, "Greater[4](x)")


@settings(max_examples=150)
@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(min_value=1e-12, max_value=1e12),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_the_answer_flips_at_the_same_float(mean: float, scale: float, limit: float) -> None:
    flow = vector(1).subtract([mean]).divide([scale]).greater([limit])
    made = trace(flow, passes=only(RULE)).flow
    at = float(np.asarray(made.node.op.fields().get("operand", [limit]))[0])
    with np.errstate(over="ignore"):
        around = [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]
    near = [*around, mean, limit, np.inf, -np.inf]
    rows = np.array([*near, np.nan, 0.0, -0.0])[:, None]
    np.testing.assert_array_equal(made.reference(rows)["output"], flow.reference(rows)["output"])


def test_it_declines_where_somebody_else_reads_the_columns() -> None:
    x = scaled()
    assert_declines(outputs(a=x, b=x.greater([0.5])), RULE)
    assert_declines(outputs(a=x.sigmoid(), b=x.greater([0.5])), RULE)


@pytest.mark.parametrize("factor", [-1.0, 0.0, np.inf, np.nan])
def test_it_declines_steps_that_do_not_grow(factor: float) -> None:
    assert_declines(vector(2).multiply([1.0, factor]).greater([0.5]), RULE)
    assert_declines(vector(2).sigmoid().greater([0.5]), RULE)


def test_it_declines_whole_numbers() -> None:
    assert_declines(vector(2, "int64").as_float().greater([0.5]), RULE)


def test_it_declines_a_test_no_threshold_says() -> None:
    # Above the lower end of the clip is everything but NaN, minus infinity included.
    assert_declines(vector(2).clip([0.0], [1.0]).greater([-1.0]), RULE)
    assert_declines(vector(2).add([1.0]).greater([np.nan]), RULE)


# --- trees ---------------------------------------------------------------------------------------


def trees(**changed: Any) -> Trees:
    """Two trees over the columns 0 to 3, one of whose nodes sends NaN left."""
    leaf = -1
    fields: dict[str, Any] = {
        "feature": np.array([0, 1, leaf, leaf, leaf, 3, leaf, leaf], np.int32),
        "threshold": np.array([0.25, -0.5, 0, 0, 0, 0.75, 0, 0]),
        "left": np.array([1, 3, 0, 1, 2, 6, 3, 4], np.int32),
        "right": np.array([2, 4, 0, 0, 0, 7, 0, 0], np.int32),
        "missing": np.array([1, 0, 0, 0, 0, 2, 0, 0], np.uint8),
        "roots": np.array([0, 5], np.int32),
        "value": np.arange(1.0, 6.0)[:, None],
        "target": np.zeros(2, np.int32),
        "base": np.zeros(1),
    }
    return Trees(**{**fields, **changed})


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_trees_see_through_a_scaler(dtype: str, *, strict: bool, narrow: bool) -> None:
    flow = trees(strict=strict, narrow=narrow)(scaled(dtype))
    made = trace(flow, passes=only(RULE)).flow
    assert [item.op.name for item in made.nodes()] == ["Source", "Trees"]
    item = made.node.op
    assert not item.fields()["narrow"], "the thresholds know of the rounding"
    before, after = flow.node.op.fields()["threshold"], item.fields()["threshold"]
    rows = _around(after.array, before.array * 1.0).astype(dtype)
    np.testing.assert_array_equal(made.reference(rows)["output"], flow.reference(rows)["output"])


def _around(*thresholds: Any) -> Any:
    """Rows of every threshold, its neighbours, and what no threshold is."""
    at = np.concatenate(thresholds)
    near = [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)]
    values = np.concatenate([*near, [np.nan, np.inf, -np.inf, 0.0, -0.0]])
    pools = [np.concatenate([values, np.float32(values)]), rng.normal(size=100)]
    return rng.choice(np.concatenate(pools), size=(4000, 4))


def test_it_fires_on_trees() -> None:
    made = assert_fires(trees()(scaled()), RULE, _written("x"))
    assert len(made.nodes()) == 2


def test_it_fires_beside_columns_that_are_not_scaled() -> None:
    left, right = vector(2), vector(2, name="y").subtract([1.0]).divide([3.0])
    for narrow in (False, True):
        flow = trees(narrow=narrow)(left.concat(right))
        assert_fires(flow, RULE, _written("Concat(x, y)"))


def _written(below: str) -> str:
    return f"Trees[8, 8, 8, 8, 8, {{0 5}}, 0, 0, 0, 5x1, {{0 0}}, 1, 0]({below})"


def test_several_forests_over_one_scaler_all_see_through_it() -> None:
    x = scaled()
    flow = outputs(a=trees()(x), b=trees(strict=True)(x), c=x.greater([0.5]))
    made = trace(flow, passes=only(RULE)).flow
    assert sorted(item.op.name for item in made.nodes()) == ["Greater", "Source", "Trees", "Trees"]


def test_it_declines_categories_decided_on_the_columns() -> None:
    none = np.full(8, -1, np.int32)
    sets = {"words": np.array([1], np.uint32), "length": (none >= 0).astype(np.int32)}
    category = none.copy()
    category[0], sets["length"][0] = 0, 1
    assert_declines(trees(category=category, **sets)(scaled()), RULE)


def test_it_declines_zeros_taken_for_missing() -> None:
    if "zeros" in Trees._fields:
        assert_declines(trees(zeros=True)(scaled()), RULE)


def test_it_declines_many_nodes_of_float32() -> None:
    """They would take twice the bytes; as many of float64 lose nothing."""
    how: dict[str, Any] = {"trees": 24, "depth": 6, "width": 4}
    assert len(ensembles.sums(0, **how).feature) > 64 * 4
    assert_declines(ensembles.sums(0, **how, narrow=True)(scaled()), RULE)
    flow = ensembles.sums(0, **how)(scaled())
    assert len(trace(flow, passes=only(RULE)).flow.nodes()) == 2


def test_it_declines_a_test_that_fails_for_all() -> None:
    never = np.array([-2.0, -0.5, 0, 0, 0, 0.75, 0, 0])
    assert_declines(trees(threshold=never)(vector(4).clip([-1.0], [1.0])), RULE)
