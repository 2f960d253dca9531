"""Linear models answer as scikit-learn's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import linear_model as lm
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

from tests.estimators import check
from tests.flour.estimators.linear_data import (
    COLUMN,
    CSR,
    INDICATOR,
    LABELS,
    RATE,
    TARGET,
    TARGETS,
    THREE,
    TWO,
    X,
)

ALPHAS = [0.01, 0.1, 1.0]
ONE_TARGET = [
    lm.LinearRegression(),
    lm.LinearRegression(fit_intercept=False),
    lm.LinearRegression(positive=True),
    lm.Ridge(),
    lm.RidgeCV(),
    lm.Lasso(alpha=0.1),
    lm.LassoCV(alphas=ALPHAS, cv=3),
    lm.ElasticNet(alpha=0.1),
    lm.ElasticNetCV(alphas=ALPHAS, cv=3),
    lm.Lars(n_nonzero_coefs=3),
    lm.LarsCV(cv=3, max_iter=3),
    lm.LassoLars(alpha=0.01),
    lm.LassoLarsCV(cv=3, max_iter=4),
    lm.LassoLarsIC(max_iter=4, noise_variance=0.1),
    lm.OrthogonalMatchingPursuit(n_nonzero_coefs=2),
    lm.OrthogonalMatchingPursuitCV(cv=3, max_iter=2),
    lm.BayesianRidge(),
    lm.ARDRegression(),
    lm.HuberRegressor(max_iter=1000),
    lm.TheilSenRegressor(random_state=0, max_subpopulation=100),
    lm.QuantileRegressor(alpha=0.01),
    lm.SGDRegressor(random_state=0),
    lm.SGDRegressor(random_state=0, average=True, fit_intercept=False),
    lm.RANSACRegressor(random_state=0),
    lm.RANSACRegressor(lm.Ridge(), min_samples=20, random_state=0),
    LinearSVR(max_iter=100_000),
    LinearSVR(fit_intercept=False, max_iter=100_000),
]
MANY_TARGETS = [
    lm.LinearRegression(),
    lm.Ridge(alpha=[0.1, 1.0, 2.0]),
    lm.Ridge(fit_intercept=False),
    lm.RidgeCV(alpha_per_target=True),
    lm.Lasso(alpha=0.1),
    lm.MultiTaskLasso(alpha=0.1),
    lm.MultiTaskLassoCV(alphas=ALPHAS, cv=3),
    lm.MultiTaskElasticNet(alpha=0.1),
    lm.MultiTaskElasticNetCV(alphas=ALPHAS, cv=3),
    lm.Lars(n_nonzero_coefs=3),
    lm.LassoLars(alpha=0.01),
    lm.OrthogonalMatchingPursuit(n_nonzero_coefs=2),
    lm.RANSACRegressor(random_state=0),
]
LOGISTIC_CV = lm.LogisticRegressionCV(
    Cs=[0.1, 1.0], cv=3, l1_ratios=(0,), use_legacy_attributes=False, scoring="accuracy"
)
CLASSIFIERS = [
    lm.LogisticRegression(),
    lm.LogisticRegression(fit_intercept=False),
    LOGISTIC_CV,
    lm.SGDClassifier(random_state=0),
    lm.SGDClassifier(loss="log_loss", random_state=0),
    lm.SGDClassifier(loss="modified_huber", random_state=0, max_iter=2000),
    lm.SGDClassifier(loss="squared_error", learning_rate="adaptive", eta0=1e-3, random_state=0),
    lm.Perceptron(random_state=0),
    lm.RidgeClassifier(),
    lm.RidgeClassifierCV(),
    LinearSVC(),
    LinearSVC(fit_intercept=False),
]


def name(model: Any) -> str:
    return type(model).__name__


def fitted(model: Any, data: Any, target: Any) -> Any:
    """The model fitted on scaled data, so that every solver converges."""
    return clone(model).fit(data, target)


TABLE = [
    *((model, TARGET) for model in ONE_TARGET),
    *((model, TARGETS) for model in MANY_TARGETS),
    *((lm.LinearRegression(), COLUMN), (lm.Ridge(), COLUMN), (lm.Lasso(alpha=0.1), COLUMN)),
    *((lm.Lars(), COLUMN), (lm.RANSACRegressor(), COLUMN)),
    *((lm.RidgeClassifier(), INDICATOR), (lm.RidgeClassifierCV(), INDICATOR)),
]


@pytest.mark.parametrize(("model", "target"), TABLE, ids=name)
def test_one_target_or_several(model: Any, target: Any) -> None:
    check(fitted(model, X, target), X)


@pytest.mark.parametrize("model", [lm.Ridge(), lm.Lasso(), lm.LinearRegression()], ids=name)
@pytest.mark.parametrize("intercept", [True, False])
def test_fitted_on_float32(model: Any, *, intercept: bool) -> None:
    narrow = X.astype(np.float32)
    made = model.set_params(fit_intercept=intercept).fit(narrow, TARGETS.astype(np.float32))
    check(made, X, sample=narrow)
    check(made, narrow, sample=narrow)


@pytest.mark.parametrize(
    "model", [lm.LogisticRegression(), lm.SGDClassifier(loss="log_loss"), LinearSVC()], ids=name
)
def test_classifiers_fitted_on_float32(model: Any) -> None:
    narrow = X.astype(np.float32)
    made = clone(model).fit(narrow, THREE)
    check(made, X)
    check(made, narrow)


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("model", CLASSIFIERS, ids=name)
def test_classifiers(model: Any, kind: str) -> None:
    scaled = StandardScaler().fit_transform(X)
    check(fitted(model, scaled, LABELS[kind]), scaled, native=kind in ("two", "three"))


@pytest.mark.parametrize("loss", ["log_loss", "modified_huber"])
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_rows_no_model_claims_get_equal_chances(loss: str, labels: Any) -> None:
    model = lm.SGDClassifier(loss=loss, random_state=0).fit(X, labels)
    model.coef_[:] = 0
    model.intercept_[:] = -1e6
    check(model, X)


@pytest.mark.filterwarnings("ignore:Class PassiveAggressive:FutureWarning")
def test_passive_aggressive() -> None:
    check(lm.PassiveAggressiveClassifier(random_state=0).fit(X, THREE), X)
    check(lm.PassiveAggressiveClassifier(random_state=0).fit(X, TWO), X)
    check(lm.PassiveAggressiveRegressor(random_state=0).fit(X, TARGET), X)


@pytest.mark.parametrize(
    "model",
    [
        lm.PoissonRegressor(),
        lm.PoissonRegressor(fit_intercept=False),
        lm.GammaRegressor(),
        lm.TweedieRegressor(power=1.5),
        lm.TweedieRegressor(power=0),
        lm.TweedieRegressor(power=0, link="log"),
    ],
    ids=name,
)
def test_links(model: Any) -> None:
    check(model.fit(X, RATE), X)


def test_inliers() -> None:
    check(lm.SGDOneClassSVM(random_state=0).fit(X), X)
    check(lm.SGDOneClassSVM(random_state=0).fit(CSR), CSR, sample=CSR)


@pytest.mark.parametrize(
    "model",
    [
        lm.LinearRegression(),
        lm.Ridge(),
        lm.Lasso(alpha=0.01),
        lm.ElasticNet(alpha=0.01),
        lm.SGDRegressor(random_state=0),
        lm.HuberRegressor(max_iter=1000),
        lm.PoissonRegressor(),
        lm.RANSACRegressor(random_state=0),
        LinearSVR(max_iter=100_000),
    ],
    ids=name,
)
def test_sparse_regressors(model: Any) -> None:
    check(model.fit(CSR, RATE), CSR, sample=CSR)


@pytest.mark.parametrize(
    "model",
    [
        lm.LogisticRegression(),
        lm.SGDClassifier(loss="log_loss", random_state=0),
        lm.Perceptron(random_state=0),
        lm.RidgeClassifier(),
        LinearSVC(),
    ],
    ids=name,
)
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_sparse_classifiers(model: Any, labels: Any) -> None:
    made = model.fit(CSR, labels)
    check(made, CSR, sample=CSR)
    check(made, CSR.toarray(), sample=CSR)


def test_sparse_weights() -> None:
    model = lm.SGDClassifier(penalty="l1", alpha=0.05, random_state=0).fit(X, THREE).sparsify()
    check(model, X)
    check(lm.Lasso(alpha=0.5).fit(X, TARGET), X)


def test_whole_numbers_and_pipelines() -> None:
    counts = np.arange(60).reshape(20, 3) % 7
    check(lm.LinearRegression().fit(counts, counts[:, 0]), counts, sample=counts)
    scaled = make_pipeline(StandardScaler(), lm.LogisticRegression())
    check(scaled.fit(X, LABELS["three_words"]), X)
    check(make_pipeline(StandardScaler(), lm.RidgeCV()).fit(X, TARGET), X)


def test_columns_are_found_by_name() -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = lm.LogisticRegression().fit(frame, LABELS["words"])
    program = check(model, frame)
    shuffled = program.reference(frame[list("fbdace")])
    np.testing.assert_array_equal(shuffled["label"], model.predict(frame))


@settings(max_examples=15, deadline=None)
@given(
    outputs=st.integers(1, 4),
    columns=st.integers(1, 12),
    seed=st.integers(0, 2**31),
    intercept=st.booleans(),
)
def test_any_size(*, outputs: int, columns: int, seed: int, intercept: bool) -> None:
    rng = np.random.default_rng(seed)
    data, targets = rng.normal(size=(20, columns)), rng.normal(size=(20, outputs))
    check(lm.Ridge(fit_intercept=intercept).fit(data, targets), data)


def test_a_sample_of_whole_numbers_does_not_forbid_fractions() -> None:
    whole = np.arange(60).reshape(20, 3) % 7
    model = lm.LinearRegression().fit(whole, whole @ [1.0, 2.0, 3.0])
    check(model, whole, sample=whole[:3])
    check(model, whole + 0.5, sample=whole[:3])
