"""Robust ellipses answer as scikit-learn's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.covariance import EllipticEnvelope
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from tests.estimators import check
from tests.flour.estimators.linear_data import X

VARIED: Any = X[:, :4]


@pytest.mark.parametrize("how", [{}, {"store_precision": False}, {"assume_centered": True}])
def test_ellipse(how: dict[str, Any]) -> None:
    model = EllipticEnvelope(random_state=0, contamination=0.2, **how).fit(VARIED)
    check(model, VARIED)
    assert 5 < np.sum(model.predict(VARIED) < 0) < 40
    scaled = make_pipeline(StandardScaler(), EllipticEnvelope(random_state=0))
    check(scaled.fit(VARIED), VARIED)


def test_what_overflows_has_no_score_and_is_no_inlier() -> None:
    model = EllipticEnvelope(random_state=0).fit(VARIED)
    far = VARIED * 1e200
    with np.errstate(all="ignore"):
        want = model.predict(far)
    program = flour.from_sklearn(model)
    assert program.reference(far)["label"].tolist() == want.tolist()
    assert oven.bake(program).run(far)["label"].tolist() == want.tolist()
