"""Trees over bins ask for the edges of the bins themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flour
import oven
from flour.language.flow import Flow, outputs
from flour.ops.trees.trees import Trees
from oven.explain import explain
from oven.optimise.summary import expression
from tests import ensembles
from tests.rewrites import assert_declines, traced, vector

pytestmark = pytest.mark.rules
RULE = "bins_into_trees"
rng = np.random.default_rng(0)
#: Edges that are equal, that follow each other, and columns that have one or none.
EDGES = [
    [-1.0, -0.0, 0.0, 0.3, 0.3, 2.0],
    [1.0, float(np.nextafter(1.0, 2.0)), np.inf],
    [],
    [0.1],
    sorted(rng.normal(size=8).tolist()),
    [-3.0, float(np.float32(0.1)), 0.5],
]


def binned(x: Flow, edges: list[list[float]] = EDGES, dtype: str = "float64") -> Flow:
    starts = np.cumsum([0, *map(len, edges)]).astype(np.int64)
    return x.bins(*(np.concatenate(edges), starts)).cast(dtype)


def trees(seed: int, edges: list[list[float]] = EDGES, **how: Any) -> Trees:
    """Random trees whose every threshold lies between the first bin and the last."""
    made = ensembles.sums(seed, trees=12, **how)
    draw = np.random.default_rng(seed)
    feature = made.feature.array.astype(int)
    most = np.array([len(item) for item in edges] + [6.0] * 10)[feature]
    limits = draw.uniform(0, np.maximum(most, 1e-9))
    halves = np.where(draw.random(len(limits)) < 0.5, np.floor(limits) + 0.5, np.floor(limits))
    missing = (made.missing.array.astype(int) % 3).astype(np.uint8)
    # A column of one bin is never looked at by trees that were fitted.
    asked = np.where(most > 0, feature, np.where(feature >= 0, 0, -1)).astype(np.int32)
    halves = np.where(made.strict, np.clip(halves, 0.5, None), halves)
    return made.replace(
        feature=asked, threshold=np.minimum(halves, most), missing=missing.astype(np.uint8)
    )


def around(count: int = 600) -> Any:
    """Rows of every edge, its neighbours, and what is no number."""
    at = np.concatenate(EDGES)
    near = [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), np.float32(at)]
    odd = [np.nan, np.inf, -np.inf, 5e-324, -5e-324, 1e300, -1e300]
    return rng.choice(np.concatenate([*near, odd, rng.normal(size=20)]), size=(count, 6))


def example() -> Flow:
    """A program the rule applies to."""
    return trees(0)(binned(vector(6)))


def fires(flow: Flow, dtype: str = "float64") -> Flow:
    """The rule applies, the bins are gone, and all answers are the same to the last bit."""
    found = traced(flow, RULE)
    assert found.fired == {RULE}, found.text()
    assert "Bins" not in expression(found.flow.node)
    with np.errstate(over="ignore"):
        rows = around().astype(dtype)
    want = flow.reference(rows)["output"]
    np.testing.assert_array_equal(found.flow.reference(rows)["output"], want)
    np.testing.assert_array_equal(oven.bake(found.flow, exact=True).run(rows)["output"], want)
    return found.flow


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("narrow", [False, True])
def test_it_fires(dtype: str, *, narrow: bool) -> None:
    for seed in range(3):
        fires(trees(seed, narrow=narrow)(binned(vector(6, dtype))), dtype)
        fires(trees(seed, narrow=narrow)(binned(vector(6, dtype), dtype="float32")), dtype)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_answers_flip_at_the_edges(seed: int, narrow: bool) -> None:  # noqa: FBT001 (drawn)
    flow = trees(seed, narrow=narrow)(binned(vector(6)))
    rows = around(300)
    made = traced(flow, RULE).flow
    want = flow.reference(rows)["output"]
    np.testing.assert_array_equal(made.reference(rows)["output"], want)


def strict(seed: int = 0) -> Trees:
    """Trees that ask x < 0.5, or a bin further on."""
    made = ensembles.sums(seed, strict=True)
    most = np.array([*map(len, EDGES), 1])[made.feature.array.astype(int)]
    halves = 0.5 + np.random.default_rng(seed).integers(0, np.maximum(most, 1))
    feature = made.feature.array.astype(int)
    asked = np.where((feature >= 0) & (most == 0), 0, feature)
    return made.replace(feature=asked.astype(np.int32), threshold=halves)


def test_it_fires_where_the_test_is_strict() -> None:
    for seed in range(4):
        fires(strict(seed)(binned(vector(6))))


@pytest.mark.parametrize("narrow", [False, True])
def test_it_fires_beside_columns_that_are_not_binned(*, narrow: bool) -> None:
    x = vector(6)
    left = binned(x.select(np.arange(3)), [EDGES[0], EDGES[1], EDGES[3]])
    flow = ensembles.sums(2, narrow=narrow, trees=3)
    other = flow.feature.array.astype(int) >= 3
    assert np.any(other)
    bins = np.where(other, flow.threshold.array, 0.5)
    fires(flow.replace(threshold=bins)(left.concat(x.select(np.arange(3, 6)))))


def test_it_fires_for_all_trees_over_the_same_bins() -> None:
    x = binned(vector(6))
    program = outputs(a=trees(1)(x), b=trees(2)(x))
    found = traced(program, RULE)
    assert "Bins" not in "".join(expression(item) for item in found.flow.outputs.values())


def test_it_fires_where_a_set_is_a_run_of_bins() -> None:
    made = trees(3)
    none = np.where(made.feature.array == 4, 0, -1).astype(np.int32)
    sets = {
        "category": none,
        "length": (none >= 0).astype(np.int32),
        "words": np.array([0b111], np.uint32),
    }
    fires(made.replace(**sets)(binned(vector(6))))
    sets["words"] = np.array([0b101], np.uint32)
    assert_declines(made.replace(**sets)(binned(vector(6))), RULE)


def test_it_declines() -> None:
    x = binned(vector(6))
    assert_declines(outputs(y=trees(0)(x), seen=x), RULE)
    assert_declines(trees(0)(vector(6)), RULE)
    below = np.full(len(trees(0).feature), -1.0)
    assert_declines(trees(0).replace(threshold=below)(x), RULE)
    beyond = np.full(len(strict().feature), 99.0)
    assert_declines(strict().replace(threshold=beyond)(x), RULE)


@pytest.mark.parametrize("strategy", ["uniform", "quantile", "kmeans"])
def test_what_is_left_of_a_pipeline(strategy: Any) -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

    X = rng.normal(size=(300, 6))
    bins = KBinsDiscretizer(7, encode="ordinal", strategy=strategy)
    some = make_column_transformer((bins, [0, 1, 4]), (StandardScaler(), [2, 3, 5]))
    for first, last, output in (
        (bins, RandomForestClassifier(6, max_depth=6), "probabilities"),
        (some, GradientBoostingRegressor(n_estimators=9), "value"),
    ):
        model = make_pipeline(first, last).fit(X, X[:, 0] + X[:, 3] > 0)
        plan = oven.bake(flour.from_sklearn(model))
        assert " Bins(" in explain(plan, "logical")
        assert " Bins(" not in explain(plan, "optimised")
        rows = np.concatenate([X, np.float32(X)])
        answer = getattr(model, "predict_proba", model.predict)
        np.testing.assert_array_equal(plan.run(rows)[output].ravel(), answer(rows).ravel())
