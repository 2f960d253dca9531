"""Attribution held against the shap package, which has code of its own for each library."""

from __future__ import annotations

import numpy as np
import pytest

import flour
import oven
from oven.explain import attribute
from tests.shapley import MAKERS, fitted, models

pytestmark = pytest.mark.integrations

#: What shap cannot read, or explains otherwise.
NOT_THERE = {
    "boosted-three": "shap explains two classes at most",
    "hist-categories": "shap does not know its sets of categories",
    "light-forest": "shap explains the sum of a random forest of LightGBM",
}


@pytest.mark.parametrize("name", [name for name in models() if name not in NOT_THERE])
def test_trees_have_the_values_of_shap(name: str) -> None:
    """By covers, to the precision that shap computes in; XGBoost's is float32."""
    shap = pytest.importorskip("shap")
    model = fitted(name)
    plan = oven.bake(flour.from_sklearn(model.fit, sample=model.rows, covers=True))
    values = attribute(plan, model.rows).values
    explainer = shap.TreeExplainer(model.fit, feature_perturbation="tree_path_dependent")
    want = np.asarray(explainer.shap_values(model.rows, check_additivity=False))
    got = values.reshape(want.shape)
    limit = 1e-5 if name.startswith("xg") else 1e-9
    assert np.abs(got - want).max() <= limit * max(np.abs(want).max(), 1e-3), MAKERS[name]


@pytest.mark.parametrize("name", ["tree-whole", "forest", "boosted-deep", "light", "extra"])
def test_trees_against_a_background_have_the_values_of_shap(name: str) -> None:
    """Interventional values, to the float32 in which shap keeps its weights for them."""
    shap = pytest.importorskip("shap")
    model = fitted(name)
    plan = oven.bake(flour.from_sklearn(model.fit, sample=model.rows))
    background = model.rows[8:]
    got = attribute(plan, model.rows, background=background).values
    explainer = shap.TreeExplainer(model.fit, background, feature_perturbation="interventional")
    want = np.asarray(explainer.shap_values(model.rows, check_additivity=False))
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()
