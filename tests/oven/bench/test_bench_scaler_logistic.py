"""StandardScaler and LogisticRegression over 20 columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from tests.oven.bench.contest import BLOCK, c_kernel, contest


@pytest.mark.bench
@pytest.mark.parametrize("exact", [False, True], ids=["default", "exact"])
def test_scaler_and_logistic(benchmark: Any, *, exact: bool) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(3, 2, size=(BLOCK, 20))
    target = (data[:, 0] + rng.normal(size=BLOCK) > 3).astype(int)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(data[:500], target[:500])
    call = oven.bake(flour.from_sklearn(model), exact=exact).entry()
    scaler, logistic = model[0], model[1]
    label, score = np.empty(BLOCK, np.int64), np.empty(BLOCK)
    probabilities = np.empty((BLOCK, 2))
    c = c_kernel(
        "scaler_logistic",
        *(BLOCK, data, scaler.mean_, scaler.scale_, logistic.coef_[0].copy()),
        *(float(logistic.intercept_[0]), label, probabilities, score),
    )
    c(None)
    ours = call(data)
    np.testing.assert_array_equal(ours[0], label)
    np.testing.assert_allclose(ours[1], probabilities, rtol=1e-11)
    np.testing.assert_allclose(ours[2], score, rtol=1e-11)
    verdict = contest(call, c, model, data)
    verdict.show(benchmark)
    benchmark(call, data[0].copy())
    # The goals: no slower than 1.5 times C, a row 12 times faster than onnxruntime. Half of each
    # is asserted, as machines are shared.
    assert verdict.c_by_ours > 1 / 3
    assert verdict.row_p99 > 6
