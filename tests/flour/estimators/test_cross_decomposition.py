"""Partial least squares answers as scikit-learn's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import cross_decomposition as cd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.estimators import check
from tests.flour.estimators.linear_data import COLUMN, TARGET, TARGETS, X

VARIED: Any = X[:, :5]
MODELS = [
    cd.PLSRegression(2),
    cd.PLSRegression(2, scale=False),
    cd.PLSCanonical(2),
    cd.CCA(1, max_iter=2000),
    cd.PLSSVD(2),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_several_targets(model: Any) -> None:
    check(model.fit(VARIED, TARGETS), VARIED)
    narrow = VARIED.astype(np.float32)
    check(model.fit(narrow, TARGETS), narrow)


def test_one_target() -> None:
    check(cd.PLSRegression(2).fit(VARIED, TARGET), VARIED)
    check(cd.PLSRegression(2).fit(VARIED, COLUMN), VARIED)


def test_as_a_step() -> None:
    check(make_pipeline(StandardScaler(), cd.PLSRegression(2)).fit(VARIED, TARGETS), VARIED)
