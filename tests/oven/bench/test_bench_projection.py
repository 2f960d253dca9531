"""PCA from 40 to 20 columns and LinearRegression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from tests.oven.bench.contest import BLOCK, c_kernel, contest


@pytest.mark.bench
@pytest.mark.parametrize("exact", [False, True], ids=["default", "exact"])
def test_projection_and_regression(benchmark: Any, *, exact: bool) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(BLOCK, 40))
    model = make_pipeline(PCA(20), LinearRegression()).fit(data[:500], data[:500, :3].sum(axis=1))
    call = oven.bake(flour.from_sklearn(model), exact=exact).entry()
    pca, linear = model[0], model[1]
    value = np.empty(BLOCK)
    components = pca.components_.T.copy()
    c = c_kernel(
        "pca_linear",
        *(BLOCK, data, components, -pca.mean_ @ components, linear.coef_.copy()),
        *(float(linear.intercept_), value),
    )
    c(None)
    np.testing.assert_allclose(call(data)[0], value, rtol=1e-9, atol=1e-12)
    verdict = contest(call, c, model, data)
    verdict.show(benchmark)
    benchmark(call, data)
    assert verdict.c_by_ours > 1 / 3
    assert verdict.row_p99 > 6
