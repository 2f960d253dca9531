"""Support vector machines answer as the library's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

import flour
from flour.core.errors import FlourError
from tests.estimators import check

_rng = np.random.default_rng(3)
X = _rng.normal(size=(70, 4))
NEW = _rng.normal(size=(29, 4)) * 1.5
TWO = np.where(X[:, 0] + X[:, 1] ** 2 > 0.7, "in", "out")
FOUR = np.array([5, -3, 11, 2])[(X[:, 0] > 0) * 2 + (X[:, 1] > 0)]
VALUE = X @ [1.0, -2.0, 0.5, 0.0] + 0.1 * _rng.normal(size=70)
SPARSE = csr_matrix(np.where(np.abs(X) < 0.5, 0.0, X))
NEW_SPARSE = csr_matrix(np.where(np.abs(NEW) < 0.5, 0.0, NEW))
KERNELS: list[dict[str, Any]] = [
    {"kernel": "linear"},
    {"kernel": "rbf"},
    {"kernel": "rbf", "gamma": 0.3},
    {"kernel": "poly", "degree": 3, "coef0": 1.0},
    {"kernel": "poly", "degree": 2, "gamma": "auto"},
    {"kernel": "sigmoid", "coef0": 0.1},
]


@pytest.mark.parametrize("how", KERNELS, ids=str)
def test_classifiers(how: dict[str, Any]) -> None:
    for target in (TWO, FOUR, X[:, 2] > 0):
        for shape in ("ovr", "ovo"):
            fit = SVC(decision_function_shape=shape, **how).fit(X, target)
            check(fit, NEW)
    check(SVC(break_ties=True, **how).fit(X, FOUR), NEW)
    check(SVC(class_weight="balanced", C=10.0, **how).fit(X, FOUR), NEW)
    check(NuSVC(nu=0.2, **how).fit(X, FOUR), NEW)


@pytest.mark.parametrize("how", KERNELS, ids=str)
def test_regressors_and_outliers(how: dict[str, Any]) -> None:
    check(SVR(**how).fit(X, VALUE), NEW)
    check(NuSVR(**how).fit(X, VALUE), NEW)
    # A plane through the middle of the data: scores are tiny differences of large sums.
    tolerance = 1e-8 if how["kernel"] == "linear" else 1e-12
    check(OneClassSVM(nu=0.2, **how).fit(X), NEW, tolerance=tolerance)


@pytest.mark.filterwarnings("ignore:.*probability.*:FutureWarning")
@pytest.mark.parametrize("target", [TWO, FOUR], ids=["two", "four"])
def test_probabilities(target: Any) -> None:
    for kind in (SVC, NuSVC):
        fit = kind(probability=True, random_state=0).fit(X, target)
        check(fit, np.concatenate([NEW, NEW * 100]))
    many = np.arange(70) % 7
    check(SVC(probability=True, random_state=0, C=5.0).fit(X, many), NEW, tolerance=1e-11)


def test_sparse_rows() -> None:
    for how in KERNELS:
        check(SVC(**how).fit(SPARSE, FOUR), NEW_SPARSE, sample=NEW_SPARSE)
    check(SVC().fit(SPARSE, TWO), NEW)
    check(SVR().fit(SPARSE, VALUE), NEW_SPARSE, sample=NEW_SPARSE)
    check(OneClassSVM(nu=0.3).fit(SPARSE), NEW_SPARSE, sample=NEW_SPARSE)


def test_narrow_training_data_and_pipelines() -> None:
    check(SVC().fit(X.astype("f"), FOUR), NEW)
    check(make_pipeline(StandardScaler(), SVC()).fit(X, TWO), NEW)


def test_precomputed_kernels() -> None:
    fit = SVC(kernel="precomputed").fit(rbf_kernel(X), FOUR)
    check(fit, rbf_kernel(NEW, X))
    check(SVR(kernel="precomputed").fit(rbf_kernel(X), VALUE), rbf_kernel(NEW, X))


def test_no_support_vectors() -> None:
    check(SVR(epsilon=5.0).fit(X, np.full(70, 3.0)), NEW)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_any_classes(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    rows, target = rng.normal(size=(30, 3)), rng.permutation(30) % classes
    check(SVC(C=2.0).fit(rows, target), rng.normal(size=(8, 3)) * 3)


def test_what_has_no_exact_translation_is_refused() -> None:
    for fit in (
        SVC(kernel=lambda a, b: a @ b.T).fit(X, TWO),
        SVC(break_ties=True, decision_function_shape="ovo").fit(X, FOUR),
    ):
        with pytest.raises(FlourError):
            flour.from_sklearn(fit)
