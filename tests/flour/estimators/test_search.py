"""Search wrappers and chosen thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 (importing enables)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
from flour.core.errors import UnsupportedSetting
from tests.estimators import check

rng = np.random.default_rng(3)
X = rng.normal(size=(80, 3))
Y = (X @ [1.0, -1.0, 0.5] + rng.normal(size=80) > 0).astype(int)
TARGET = X @ [1.0, 2.0, -1.0] + 0.1 * rng.normal(size=80)
NAMES = np.where(Y == 1, "yes", "no")


def test_grid_search() -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression())
    check(GridSearchCV(model, {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(X, Y), X)
    check(GridSearchCV(model, {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(X, NAMES), X)


@pytest.mark.parametrize("search", [RandomizedSearchCV, HalvingRandomSearchCV])
def test_random_searches(search: Any) -> None:
    found = search(LogisticRegression(), {"C": [0.1, 1.0, 3.0]}, cv=2, random_state=0)
    found.set_params(
        **{"n_iter": 2}
        if search is RandomizedSearchCV
        else {"n_candidates": 2, "min_resources": 40}
    )
    check(found.fit(X, Y), X)


def test_halving_grid_search() -> None:
    found = HalvingGridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2, random_state=0)
    check(found.fit(X, Y), X)


def test_a_search_that_kept_nothing_is_refused() -> None:
    kept = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2, refit=False).fit(X, Y)
    with pytest.raises(UnsupportedSetting):
        flour.from_sklearn(kept, sample=X)


@pytest.mark.parametrize("threshold", ["auto", 0.2, 0.8])
@pytest.mark.parametrize("method", ["auto", "predict_proba", "decision_function"])
@pytest.mark.parametrize("labels", [Y, NAMES, Y - 1], ids=["ints", "strings", "negative"])
def test_fixed_thresholds(threshold: Any, method: str, labels: Any) -> None:
    for positive in (None, *np.unique(labels)):
        # Only 0/1 and -1/1 labels have a positive class that goes without saying.
        if positive is None and set(np.unique(labels).tolist()) != {0, 1}:
            continue
        made = FixedThresholdClassifier(
            LogisticRegression(), threshold=threshold, response_method=method, pos_label=positive
        )
        check(made.fit(X, labels), X, narrow=False)


def test_a_score_on_the_threshold_belongs_to_the_positive_class() -> None:
    child = LogisticRegression().fit(X, Y)
    score = float(child.decision_function(X[:1])[0])
    made = FixedThresholdClassifier(
        child, threshold=score, response_method="decision_function", pos_label=1
    ).fit(X, Y)
    exact = float(flour.from_sklearn(made).reference(X[:1])["scores"][0])
    made.threshold = exact
    assert flour.from_sklearn(made).reference(X[:1])["label"] == [1]
    made.threshold = float(np.nextafter(exact, np.inf))
    assert flour.from_sklearn(made).reference(X[:1])["label"] == [0]


@pytest.mark.parametrize("method", ["predict_proba", "decision_function"])
def test_tuned_thresholds(method: str) -> None:
    made = TunedThresholdClassifierCV(
        LogisticRegression(), response_method=method, cv=2, thresholds=12
    )
    check(made.fit(X, Y), X, narrow=False)


def test_a_positive_class_that_nobody_saw_is_refused() -> None:
    child = LogisticRegression().fit(X, NAMES)
    made = FixedThresholdClassifier(FrozenEstimator(child), pos_label="maybe").fit(X, NAMES)
    with pytest.raises(UnsupportedSetting, match="none of the classes"):
        flour.from_sklearn(made)
