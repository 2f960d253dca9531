"""What is missing goes where its imputed value would go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flour
import oven
from flour.language.flow import Flow, outputs
from oven.explain import explain
from oven.optimise.summary import expression
from tests import ensembles
from tests.rewrites import assert_declines, assert_means_the_same, traced, vector

pytestmark = pytest.mark.rules
RULE = "impute_into_trees"
rng = np.random.default_rng(0)
VALUES = rng.normal(size=6)


def imputed(dtype: str = "float64", values: Any = VALUES, marker: float = np.nan) -> Flow:
    return vector(6, dtype).impute(marker, values)


def example() -> Flow:
    """A program the rule applies to."""
    return ensembles.sums(0)(imputed())


def fires(flow: Flow) -> Flow:
    """The rule applies and means the same, and the imputer is gone."""
    found = traced(flow, RULE)
    assert found.fired == {RULE}, found.text()
    assert "Impute" not in expression(found.flow.node)
    assert_means_the_same(flow, found.flow, RULE)
    return found.flow


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("strict", [False, True])
def test_it_fires(dtype: str, *, strict: bool) -> None:
    for seed in range(4):
        op = ensembles.sums(seed, strict=strict, narrow=dtype == "float32")
        made = fires(op(imputed(dtype)))
        for rows in (1, 100):
            block = rng.choice([np.nan, 0.0, 1.0, -1.0], size=(rows, 6)).astype(dtype)
            got = oven.bake(made, exact=True).run(block)["output"]
            np.testing.assert_array_equal(got, op(imputed(dtype)).reference(block)["output"])


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.booleans())
def test_it_fires_with_categories_and_leaves(seed: int, sets: bool) -> None:  # noqa: FBT001 (drawn)
    values = np.random.default_rng(seed).choice([-0.5, 0.0, 7.0, 63.0, np.inf], 6)
    made = ensembles.leaves(seed, sets=sets)
    fires(made(imputed(values=values)))


def test_it_fires_for_the_imputed_part() -> None:
    x = vector(12)
    both = x.select(np.arange(6)).impute(np.nan, VALUES).concat(x.select(np.arange(6, 12)))
    op = ensembles.sums(1, width=12)
    fires(op(both))


def test_it_fires_behind_a_scaler() -> None:
    program = outputs(y=ensembles.sums(3)(imputed().subtract(VALUES).divide([2.0])))
    assert "Impute" not in explain(oven.bake(program), "optimised")


def test_it_declines() -> None:
    op = ensembles.sums(2)
    assert_declines(op(imputed(marker=-1.0)), RULE)
    assert_declines(op(imputed(values=np.full(6, np.nan))), RULE)
    assert_declines(outputs(y=op(imputed()), seen=imputed()), RULE)
    assert_declines(ensembles.sums(2, zeros=True)(imputed()), RULE)
    assert_declines(op(vector(6)), RULE)


def test_what_is_left_of_a_pipeline() -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline

    X = rng.normal(size=(200, 6))
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    model = make_pipeline(SimpleImputer(strategy="median"), RandomForestClassifier(5))
    program = flour.from_sklearn(model.fit(holes, X[:, 0] > 0))
    plan = oven.bake(program)
    assert "Impute(" not in explain(plan, "optimised")
    want = model.predict_proba(holes)
    np.testing.assert_array_equal(plan.run(holes)["probabilities"], want)
