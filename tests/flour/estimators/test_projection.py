"""Projections and approximate kernel maps answer as scikit-learn's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import kernel_approximation as ka
from sklearn.cluster import FeatureAgglomeration
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

import flour
from flour.core.errors import UnsupportedSetting
from tests.estimators import check
from tests.flour.estimators.linear_data import CSR, POSITIVE, THREE, X


@pytest.mark.parametrize(
    "model",
    [
        GaussianRandomProjection(3, random_state=0),
        SparseRandomProjection(3, density=0.5, random_state=0),
        SparseRandomProjection(3, density=0.5, random_state=0, dense_output=True),
        ka.RBFSampler(n_components=7, random_state=0),
        ka.RBFSampler(gamma="scale", n_components=7, random_state=0),
        ka.PolynomialCountSketch(n_components=8, random_state=0),
        ka.PolynomialCountSketch(degree=3, gamma=0.5, coef0=1.5, n_components=9, random_state=0),
        ka.PolynomialCountSketch(degree=1, n_components=5, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_projections(model: Any) -> None:
    # The library cannot multiply float32 data by sparse float64 components into a dense result.
    mixed = not getattr(model, "dense_output", False)
    check(model.fit(X), X, narrow=mixed)
    check(model.fit(CSR), CSR, sample=CSR, narrow=mixed)


@pytest.mark.parametrize(
    "model",
    [
        GaussianRandomProjection(3, random_state=0),
        SparseRandomProjection(3, density=0.5, random_state=0),
        ka.RBFSampler(n_components=7, random_state=0),
        ka.PolynomialCountSketch(n_components=8, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_fitted_on_float32(model: Any) -> None:
    narrow = X.astype(np.float32)
    check(model.fit(narrow), narrow)
    check(model, X)


def test_learnt_projections() -> None:
    model = NeighborhoodComponentsAnalysis(2, random_state=0, max_iter=5)
    check(model.fit(X, THREE), X)
    check(make_pipeline(StandardScaler(), model).fit(X, THREE), X)


@pytest.mark.parametrize(
    "how",
    [
        {"kernel": "rbf"},
        {"kernel": "rbf", "gamma": 0.2},
        {"kernel": "linear"},
        {"kernel": "poly", "degree": 2, "coef0": 0.5},
        {"kernel": "polynomial", "gamma": 0.1},
        {"kernel": "sigmoid", "gamma": 0.01},
        {"kernel": "laplacian"},
        {"kernel": "cosine"},
    ],
    ids=str,
)
def test_kernels_with_a_few_rows(how: dict[str, Any]) -> None:
    check(ka.Nystroem(n_components=5, random_state=0, **how).fit(X), X, tolerance=1e-10)


@pytest.mark.parametrize("how", [{"kernel": "chi2"}, {"kernel": "additive_chi2"}])
def test_kernels_of_histograms(how: dict[str, Any]) -> None:
    model = ka.Nystroem(n_components=5, random_state=0, **how).fit(POSITIVE)
    check(model, POSITIVE, tolerance=1e-10)
    pair = make_pipeline(StandardScaler(), ka.Nystroem(n_components=5, random_state=0))
    check(pair.fit(X), X, tolerance=1e-10)


def test_skewed_chi_squared() -> None:
    model = ka.SkewedChi2Sampler(skewedness=0.5, n_components=7, random_state=0)
    check(model.fit(POSITIVE), POSITIVE, narrow=False)
    # The logarithm of a float32 is rounded to float32 before it is multiplied in float64.
    check(model, POSITIVE.astype(np.float32), tolerance=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_additive_chi_squared(steps: int) -> None:
    data = np.where(POSITIVE > 0.5, POSITIVE, 0)
    model = ka.AdditiveChi2Sampler(sample_steps=steps).fit(data)
    check(model, data)
    check(model, sp.csr_matrix(data), sample=sp.csr_matrix(data))
    check(ka.AdditiveChi2Sampler(sample_steps=4, sample_interval=0.3).fit(data), data)


@pytest.mark.parametrize("dtype", [bool, np.int64])
def test_additive_chi_squared_in_the_dtype_of_its_rows(dtype: type) -> None:
    data = (POSITIVE * 5).astype(dtype)
    for form in (data, sp.csr_matrix(data)):
        check(ka.AdditiveChi2Sampler().fit(form), form, sample=form, narrow=False)
    model = make_pipeline(ka.AdditiveChi2Sampler(), StandardScaler()).fit(data)
    check(model, data, sample=data, narrow=False)


@pytest.mark.parametrize("pool", [np.mean, np.max, np.min, np.sum])
def test_pooled_columns(pool: Any) -> None:
    check(FeatureAgglomeration(3, pooling_func=pool).fit(X), X)


def test_other_pools_are_refused() -> None:
    with pytest.raises(UnsupportedSetting, match="pooling_func"):
        flour.from_sklearn(FeatureAgglomeration(3, pooling_func=np.prod).fit(X))
