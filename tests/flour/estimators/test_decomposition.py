"""Decompositions answer as scikit-learn's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import decomposition as dc
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.core.errors import UnknownEstimator, UnsupportedSetting
from tests.columns import assert_close
from tests.estimators import check
from tests.flour.estimators.linear_data import CSR, POSITIVE, THREE, X

#: The mean of a column is large beside its spread.
FAR: Any = X + 1000.0
MODELS = [
    dc.PCA(),
    dc.PCA(n_components=2, whiten=True),
    dc.PCA(n_components=0.9, svd_solver="full"),
    dc.PCA(n_components=2, svd_solver="randomized", random_state=0),
    dc.PCA(n_components=3, svd_solver="covariance_eigh", whiten=True),
    dc.PCA(n_components=2, svd_solver="arpack", random_state=0),
    dc.IncrementalPCA(n_components=3, batch_size=20),
    dc.IncrementalPCA(n_components=3, batch_size=20, whiten=True),
    dc.TruncatedSVD(n_components=3, random_state=0),
    dc.TruncatedSVD(n_components=3, algorithm="arpack", random_state=0),
    dc.FactorAnalysis(n_components=2),
    dc.FactorAnalysis(n_components=2, svd_method="lapack", rotation="varimax"),
    dc.FastICA(n_components=3, random_state=0, max_iter=2000, tol=1e-3),
    dc.FastICA(
        n_components=3, random_state=0, max_iter=2000, tol=1e-3, whiten="arbitrary-variance"
    ),
]


def name(model: Any) -> str:
    return type(model).__name__


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_products(model: Any) -> None:
    check(model.fit(X[:, :5]), X[:, :5])


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_fitted_on_float32(model: Any) -> None:
    narrow = X[:, :5].astype(np.float32)
    model.fit(narrow)
    check(model, narrow)
    check(model, X[:, :5])


def test_far_from_the_origin() -> None:
    check(dc.PCA(n_components=2).fit(FAR), FAR)
    check(dc.PCA(n_components=2, whiten=True).fit(X), X)


def test_a_column_without_variance() -> None:
    data = np.where(np.arange(6) == 5, 0.0, X)
    model = dc.PCA(whiten=True, svd_solver="covariance_eigh").fit(data)
    assert model.explained_variance_[-1] == 0
    check(model, data)


@pytest.mark.parametrize(
    "model",
    [dc.TruncatedSVD(n_components=2), dc.PCA(n_components=2, svd_solver="arpack")],
    ids=name,
)
def test_sparse(model: Any) -> None:
    check(model.fit(CSR), CSR, sample=CSR)


@pytest.mark.parametrize(
    "model",
    [
        dc.SparsePCA(n_components=3, alpha=0.1, random_state=0, max_iter=50),
        dc.MiniBatchSparsePCA(3, alpha=0.1, random_state=0, ridge_alpha=0.1, max_iter=50),
        dc.MiniBatchSparsePCA(8, alpha=0.01, random_state=0, max_iter=20),
    ],
    ids=name,
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_components(model: Any, dtype: Any) -> None:
    data = X[:, :5].astype(dtype)
    program = flour.from_sklearn(model.fit(data))
    for rows in (data, data[:2]):
        for made in (program.reference(rows), oven.bake(program).run(rows)):
            assert_close(made["features"], model.transform(rows), 1e-10)
    # The library forgets that one row is a block of one row.
    one = program.reference(data[:1])["features"]
    assert_close(one, model.transform(data[:1]).reshape(1, -1), 1e-10)


@pytest.mark.parametrize("split", [False, True])
def test_threshold_codes(*, split: bool) -> None:
    how = {"transform_algorithm": "threshold", "transform_alpha": 0.3, "split_sign": split}
    atoms = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    check(dc.SparseCoder(atoms, **how).fit(X), X)
    check(dc.SparseCoder(atoms, positive_code=True, **how).fit(X), X)
    check(dc.DictionaryLearning(3, max_iter=3, random_state=0, **how).fit(X), X)
    model = dc.MiniBatchDictionaryLearning(3, max_iter=3, random_state=0, **how)
    check(model.set_params(transform_alpha=None).fit(X), X)


def test_as_a_step() -> None:
    check(make_pipeline(dc.PCA(3, whiten=True), LogisticRegression()).fit(X, THREE), X)


@pytest.mark.parametrize("atoms", [None, 1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_greedy_codes(atoms: int | None, dtype: Any) -> None:
    data = X.astype(dtype)
    how = {"transform_algorithm": "omp", "transform_n_nonzero_coefs": atoms, "random_state": 0}
    check(dc.DictionaryLearning(8, max_iter=2, **how).fit(data), data, tolerance=1e-11)
    model = dc.MiniBatchDictionaryLearning(5, max_iter=2, split_sign=True, **how)
    # Split codes are float64, whatever float width they were computed in.
    check(model.fit(data), data, tolerance=1e-11 if dtype == np.float64 else 1e-5, narrow=False)
    dictionary = np.random.default_rng(0).normal(size=(7, 6))
    coder = dc.SparseCoder(dictionary, transform_n_nonzero_coefs=atoms)
    check(coder.fit(data), data, tolerance=1e-11)


@pytest.mark.filterwarnings("ignore:.*Orthogonal matching pursuit ended prematurely:RuntimeWarning")
def test_greedy_codes_that_end_early() -> None:
    dictionary = np.eye(3)[[0, 1, 0]]
    coder = dc.SparseCoder(dictionary, transform_n_nonzero_coefs=3)
    rows = np.array([[1.0, 2.0, 5.0], [0.0, 0.0, 1.0], [0.0, -3.0, 0.0], [1e-9, 0.0, 1.0]])
    check(coder.fit(rows), rows)


@pytest.mark.parametrize(
    "how", [{}, {"max_doc_update_iter": 1}, {"doc_topic_prior": 0.9, "mean_change_tol": 1e-7}]
)
def test_topics(how: dict[str, Any]) -> None:
    counts = np.random.default_rng(3).poisson(0.7, size=(16, 15)).astype(np.float64)
    counts[5] = 0
    model = dc.LatentDirichletAllocation(4, random_state=0, max_iter=3, **how).fit(counts)
    check(model, counts, tolerance=1e-11)
    check(model, sp.csr_matrix(counts), sample=sp.csr_matrix(counts), tolerance=1e-11)
    narrow = counts.astype(np.float32)
    check(model.fit(narrow), narrow)


def test_codes_that_iterate_are_refused() -> None:
    model = dc.DictionaryLearning(3, max_iter=3, random_state=0, transform_algorithm="lasso_cd")
    with pytest.raises(UnsupportedSetting, match="iterates"):
        flour.from_sklearn(model.fit(X))


def test_answers_that_depend_on_other_rows_are_refused() -> None:
    model = dc.NMF(2, max_iter=500, random_state=0).fit(POSITIVE)
    with pytest.raises(UnknownEstimator, match="depends on the rows"):
        flour.from_sklearn(model)
    program = flour.from_sklearn(model, POSITIVE[:5], allow_python=True)  # a step that stays Python
    for rows in (POSITIVE, POSITIVE[:1]):
        np.testing.assert_array_equal(
            oven.bake(program).run(rows)["features"], model.transform(rows)
        )


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**31), st.booleans())
def test_any_size(columns: int, seed: int, whiten: bool) -> None:  # noqa: FBT001 (drawn)
    data = np.random.default_rng(seed).normal(size=(25, columns))
    check(dc.PCA(n_components=columns // 2, whiten=whiten).fit(data), data)
