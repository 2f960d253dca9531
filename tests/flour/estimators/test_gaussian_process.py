"""Gaussian processes answer as the library's do, for every kernel with a closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as k

import flour
import oven
from flour.core.errors import FlourError
from tests.estimators import check

_rng = np.random.default_rng(9)
X = _rng.uniform(-2, 2, size=(30, 3))
NEW = _rng.uniform(-2.5, 2.5, size=(17, 3))
VALUE = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * _rng.normal(size=30)
TWO = np.where(X[:, 0] > 0, "up", "down")
THREE = np.digitize(X[:, 1], [-0.7, 0.7]) * 2 - 1
KERNELS = [
    k.RBF(1.3),
    k.RBF([0.8, 1.0, 2.0]),
    k.ConstantKernel(2.0) * k.RBF(1.1) + k.WhiteKernel(0.1),
    *(k.Matern(1.2, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf)),
    k.Matern([0.8, 1.0, 2.0], nu=1.5),
    k.RationalQuadratic(1.2, alpha=0.7),
    k.ExpSineSquared(1.5, periodicity=4.0) * 0.5 + k.WhiteKernel(1.0),
    k.DotProduct(1.5) + k.WhiteKernel(0.3),
    (k.DotProduct(1.5) + 0.1) ** 2 + k.RBF(2.0),
    k.RBF(1.0) ** 1.5 * k.DotProduct(0.5) + k.ConstantKernel(0.3),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_regression(kernel: k.Kernel) -> None:
    fit = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=None, normalize_y=True)
    check(fit.fit(X, VALUE), NEW, tolerance=1e-11)


def test_settings_of_regression() -> None:
    both = np.column_stack([VALUE, VALUE**2])
    for targets in (both, both[:, :1]):
        fit = GaussianProcessRegressor(alpha=0.1, normalize_y=True).fit(X, targets)
        check(fit, NEW, tolerance=1e-11)
    tuned = k.RBF(1.0, (0.1, 100)) + k.WhiteKernel(0.1)
    check(GaussianProcessRegressor(tuned).fit(X, VALUE), NEW, tolerance=1e-10)
    pairwise = k.PairwiseKernel(metric="laplacian", gamma=0.4)
    fit = GaussianProcessRegressor(pairwise, alpha=0.1, optimizer=None).fit(X, VALUE)
    check(fit, NEW, sample=X)
    narrow = GaussianProcessRegressor(k.RBF(1.0), alpha=0.1, optimizer=None)
    check(narrow.fit(X.astype("f"), VALUE), NEW, tolerance=1e-11)
    flat = GaussianProcessRegressor(k.ConstantKernel(2.0), alpha=0.1, optimizer=None)
    # A kernel that takes any objects leaves the library without a number of columns.
    check(flat.fit(X, VALUE), NEW, tolerance=1e-11, sample=X)


@pytest.mark.parametrize("kernel", [KERNELS[1], KERNELS[2], KERNELS[4]], ids=str)
def test_classification(kernel: k.Kernel) -> None:
    # Probabilities are a sum of five large terms that cancel.
    check(GaussianProcessClassifier(kernel, optimizer=None).fit(X, TWO), NEW, tolerance=1e-9)


def test_classification_by_dot_products() -> None:
    # The length of a float32 row is added up in float32, in an order of the library's own.
    fit = GaussianProcessClassifier(KERNELS[10], optimizer=None).fit(X, TWO)
    check(fit, NEW, tolerance=1e-9, narrow=False)
    check(fit, NEW.astype("f"), tolerance=1e-5)


def test_three_classes() -> None:
    fit = GaussianProcessClassifier(k.RBF(1.2), optimizer=None).fit(X, THREE)
    check(fit, NEW, tolerance=1e-9)


def test_one_against_one() -> None:
    fit = GaussianProcessClassifier(k.RBF(1.0), optimizer=None, multi_class="one_vs_one")
    program = flour.from_sklearn(fit.fit(X, THREE))
    assert set(program.outputs) == {"label"}
    for answer in (program.reference(NEW), oven.bake(program).run(NEW)):
        np.testing.assert_array_equal(answer["label"], fit.predict(NEW))


def test_what_has_no_exact_translation_is_refused() -> None:
    class Own(k.RBF):  # type: ignore[misc]  # the library is untyped
        """Somebody's own kernel."""

    refused: list[tuple[Any, Any]] = [
        (k.Matern(1.0, nu=0.7), X),
        (Own(1.0), X),
        (k.DotProduct(1.0), X.astype("f")),
    ]
    for kernel, data in refused:
        fit = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(data, VALUE)
        with pytest.raises(FlourError):
            flour.from_sklearn(fit)
    pairwise = k.PairwiseKernel(metric="rbf", gamma=0.4)
    with pytest.raises(FlourError):
        flour.from_sklearn(GaussianProcessClassifier(pairwise, optimizer=None).fit(X, TWO))
