"""Kernel ridge, kernel components and spreading labels answer as the library's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.decomposition import KernelPCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

import flour
from flour.core.errors import FlourError
from tests.estimators import check

_rng = np.random.default_rng(5)
X = _rng.uniform(0.05, 2, size=(50, 4))
NEW = _rng.uniform(0, 2, size=(21, 4))
VALUE = X @ [1.0, -2.0, 0.5, 0.0]
KERNELS: list[dict[str, Any]] = [
    {"kernel": "linear"},
    {"kernel": "rbf"},
    {"kernel": "rbf", "gamma": 0.3},
    {"kernel": "poly", "degree": 3, "gamma": 0.5},
    {"kernel": "sigmoid", "gamma": 0.1, "coef0": 0.2},
    {"kernel": "cosine"},
]
MORE: list[dict[str, Any]] = [
    {"kernel": "laplacian", "gamma": 0.4},
    {"kernel": "chi2", "gamma": 0.4},
    {"kernel": "additive_chi2"},
    {"kernel": "polynomial", "degree": 2.5},
]


@pytest.mark.parametrize("how", KERNELS + MORE, ids=str)
def test_kernel_ridge(how: dict[str, Any]) -> None:
    alpha = 500 if how["kernel"] == "additive_chi2" else 0.5
    check(KernelRidge(alpha=alpha, **how).fit(X, VALUE), NEW, tolerance=1e-11)
    both = np.column_stack([VALUE, VALUE**2])
    check(KernelRidge(alpha=alpha, **how).fit(X, both), NEW, tolerance=1e-11)


@pytest.mark.parametrize("how", KERNELS, ids=str)
def test_kernel_components(how: dict[str, Any]) -> None:
    check(KernelPCA(3, **how).fit(X), NEW, tolerance=1e-11)
    check(KernelPCA(3, **how).fit(X.astype("f")), NEW.astype("f"), tolerance=1e-9)


def test_sparse_rows() -> None:
    some, new = (csr_matrix(np.where(rows < 0.7, 0.0, rows)) for rows in (X, NEW))
    for how in KERNELS:
        check(KernelRidge(**how).fit(some, VALUE), new, sample=new, tolerance=1e-11)
    check(KernelRidge(kernel="laplacian").fit(some, VALUE), new, sample=new, tolerance=1e-11)
    check(KernelPCA(2, kernel="rbf").fit(some), new, sample=new, tolerance=1e-11)


def test_precomputed_kernels() -> None:
    kernel, new = rbf_kernel(X), rbf_kernel(NEW, X)
    check(KernelRidge(kernel="precomputed").fit(kernel, VALUE), new, tolerance=1e-11)
    check(KernelPCA(3, kernel="precomputed").fit(kernel), new, tolerance=1e-11)


@pytest.mark.parametrize("kind", [LabelPropagation, LabelSpreading])
def test_labels_that_spread(kind: Any) -> None:
    for labels in (np.arange(50) % 2, np.arange(50) % 3 * 5 + 2):
        target = np.where(_rng.random(50) < 0.5, labels, -1)
        check(kind(gamma=5, max_iter=2000).fit(X, target), NEW)
        check(kind(kernel="knn", n_neighbors=6, max_iter=2000).fit(X, target), NEW)


def test_what_has_no_exact_translation_is_refused() -> None:
    for fit in (
        KernelRidge(kernel=lambda a, b: float(a @ b)).fit(X, VALUE),
        KernelRidge(kernel="chi2", gamma=0.5).fit(X.astype("f"), VALUE),
        LabelPropagation(kernel=rbf_kernel).fit(X, np.arange(50) % 2),
    ):
        with pytest.raises(FlourError):
            flour.from_sklearn(fit)
