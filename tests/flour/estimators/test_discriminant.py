"""Discriminant analysis answers as scikit-learn's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from tests.columns import assert_close
from tests.estimators import check
from tests.flour.estimators.linear_data import LABELS, THREE, TWO, X

#: Without the constant column, whose covariance is singular.
VARIED: Any = X[:, :5]


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("solver", ["svd", "eigen"])
def test_linear(solver: str, kind: str) -> None:
    check(LinearDiscriminantAnalysis(solver=solver).fit(VARIED, LABELS[kind]), VARIED)


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_least_squares_has_no_features(labels: Any) -> None:
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(VARIED, labels)
    program = flour.from_sklearn(model)
    assert set(program.outputs) == {"label", "probabilities", "scores"}
    for made in (program.reference(VARIED), oven.bake(program).run(VARIED)):
        np.testing.assert_array_equal(made["label"], model.predict(VARIED))
        assert_close(made["probabilities"], model.predict_proba(VARIED), 1e-12)
        assert_close(made["scores"], model.decision_function(VARIED), 1e-12)


def test_linear_settings() -> None:
    check(LinearDiscriminantAnalysis(n_components=1, priors=[0.2, 0.3, 0.5]).fit(X, THREE), X)
    check(LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.3).fit(VARIED, THREE), VARIED)
    narrow = VARIED.astype(np.float32)
    check(LinearDiscriminantAnalysis().fit(narrow, THREE), VARIED)
    check(LinearDiscriminantAnalysis().fit(narrow, THREE), narrow)


def test_as_a_step() -> None:
    steps = StandardScaler(), LinearDiscriminantAnalysis(), LogisticRegression()
    check(make_pipeline(*steps).fit(VARIED, THREE), VARIED)


@pytest.mark.parametrize("kind", LABELS)
def test_quadratic(kind: str) -> None:
    check(QuadraticDiscriminantAnalysis().fit(VARIED, LABELS[kind]), VARIED)


def test_quadratic_settings() -> None:
    model = QuadraticDiscriminantAnalysis(reg_param=0.2, priors=[0.2, 0.3, 0.5])
    check(model.fit(VARIED, THREE), VARIED)
    model = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.2)
    check(model.fit(VARIED, TWO), VARIED)
    narrow = VARIED.astype(np.float32)
    fit = QuadraticDiscriminantAnalysis().fit(narrow, THREE)
    check(fit, VARIED, narrow=False)
    check(fit, narrow, tolerance=1e-6)  # sums of float32, made float64 by float64 priors
