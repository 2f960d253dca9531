"""Estimators that do not look at their input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor

import flour
from flour.core.errors import UnsupportedSetting
from tests.estimators import check
from tests.flour.estimators.linear_data import COLUMN, INDICATOR, LABELS, TARGET, TARGETS, THREE, X


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("strategy", ["most_frequent", "prior", "constant"])
def test_classifiers(strategy: str, kind: str) -> None:
    labels = LABELS[kind]
    constant = [labels[0]] if strategy == "constant" else None
    check(DummyClassifier(strategy=strategy, constant=constant).fit(X, labels), X)


def test_several_targets() -> None:
    check(DummyClassifier().fit(X, INDICATOR), X)
    check(DummyClassifier(strategy="most_frequent").fit(X, INDICATOR), X)
    check(DummyClassifier(strategy="constant", constant=[1, 0, 1]).fit(X, INDICATOR), X)
    check(DummyRegressor().fit(X, TARGETS), X)
    check(DummyRegressor(strategy="constant", constant=[1, 2, 3]).fit(X, TARGETS), X)


@pytest.mark.parametrize(
    "model",
    [
        DummyRegressor(),
        DummyRegressor(strategy="median"),
        DummyRegressor(strategy="quantile", quantile=0.3),
        DummyRegressor(strategy="constant", constant=7),
    ],
)
def test_regressors(model: Any) -> None:
    check(model.fit(X, TARGET), X)
    check(model.fit(X, COLUMN), X)


def test_any_input_will_do() -> None:
    frame = pd.DataFrame({"city": ["a", "b"] * 45, "age": np.arange(90.0)})
    model = DummyClassifier().fit(frame, THREE)
    check(model, frame, sample=frame, black=("Fill", "Field"))


@pytest.mark.parametrize("strategy", ["uniform", "stratified"])
def test_chance_is_refused(strategy: str) -> None:
    with pytest.raises(UnsupportedSetting, match="at random"):
        flour.from_sklearn(DummyClassifier(strategy=strategy).fit(X, THREE))
