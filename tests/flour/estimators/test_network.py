"""Neural networks answer as scikit-learn's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import BernoulliRBM, MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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

HOW: dict[str, Any] = {"random_state": 0, "max_iter": 5}
pytestmark = pytest.mark.filterwarnings("ignore:Stochastic Optimizer")


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_classifiers(activation: str, labels: Any) -> None:
    check(MLPClassifier((7, 4), activation, **HOW).fit(X, labels), X)


@pytest.mark.parametrize("kind", LABELS)
def test_labels(kind: str) -> None:
    check(MLPClassifier(5, **HOW).fit(X, LABELS[kind]), X, native=False)


def test_several_labels() -> None:
    check(MLPClassifier(5, **HOW).fit(X, INDICATOR), X)
    check(MLPClassifier([], **HOW).fit(X, INDICATOR[:, :2]), X)


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
def test_regressors(activation: str) -> None:
    check(MLPRegressor(hidden_layer_sizes=(7, 4), activation=activation, **HOW).fit(X, TARGET), X)
    check(MLPRegressor(hidden_layer_sizes=5, activation=activation, **HOW).fit(X, TARGETS), X)


def test_regressors_of_rates() -> None:
    check(MLPRegressor(loss="poisson", hidden_layer_sizes=5, **HOW).fit(X, RATE), X)
    check(MLPRegressor(hidden_layer_sizes=5, **HOW).fit(X, COLUMN.ravel()), X)


def test_fitted_on_float32() -> None:
    narrow = X.astype(np.float32)
    check(MLPClassifier(5, **HOW).fit(narrow, THREE), narrow)
    check(MLPClassifier(5, **HOW).fit(narrow, TWO), X)
    check(MLPRegressor(hidden_layer_sizes=5, **HOW).fit(narrow, TARGETS), narrow)


def test_sparse_input() -> None:
    check(MLPClassifier(5, **HOW).fit(CSR, THREE), CSR, sample=CSR)
    check(MLPRegressor(hidden_layer_sizes=5, **HOW).fit(CSR, TARGET), CSR, sample=CSR)


def test_machines() -> None:
    model = BernoulliRBM(4, random_state=0, n_iter=3)
    squeezed = 1 / (1 + np.exp(-X))
    check(model.fit(squeezed), squeezed)
    check(model.fit(abs(CSR)), abs(CSR), sample=CSR)
    narrow = squeezed.astype(np.float32)
    check(model.fit(narrow), narrow)
    check(make_pipeline(model, LogisticRegression()).fit(squeezed, THREE), squeezed)


def test_as_a_step() -> None:
    check(make_pipeline(StandardScaler(), MLPClassifier(5, **HOW)).fit(X, THREE), X)
