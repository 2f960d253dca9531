"""Isotonic curves and calibrated classifiers answer as the library's do."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import flour
from flour.core.errors import FlourError
from tests.estimators import check

_rng = np.random.default_rng(13)
X = _rng.normal(size=(90, 4))
NEW = _rng.normal(size=(33, 4)) * 2
TWO = np.where(X[:, 0] + 0.5 * _rng.normal(size=90) > 0, "yes", "no")
THREE = np.digitize(X[:, 1] + 0.4 * _rng.normal(size=90), [-0.5, 0.5]) * 4 - 3
AXIS = np.sort(_rng.normal(size=40)).round(1)
HEIGHT = AXIS + 0.4 * _rng.normal(size=40)


@pytest.mark.parametrize("bounds", ["nan", "clip"])
@pytest.mark.parametrize("increasing", [True, False])
def test_isotonic(bounds: str, *, increasing: bool) -> None:
    fit = IsotonicRegression(out_of_bounds=bounds, increasing=increasing)
    rows = np.concatenate([AXIS, _rng.normal(size=50) * 3, [1e300, -1e300]])[:, None]
    fit.fit(AXIS, HEIGHT if increasing else -HEIGHT)
    check(fit, rows, sample=rows, narrow=False)
    near = rows[:-2]
    check(fit, near, sample=near)
    fit.fit(AXIS.astype("f"), HEIGHT.astype("f"))
    check(fit, near.astype("f"), sample=near.astype("f"))
    for rows in (near, near[:, 0], near[:, 0].astype("f")):  # fitted on one value a row
        check(fit, rows, narrow=False)


def test_isotonic_of_one_point() -> None:
    fit = IsotonicRegression().fit([2.0, 2.0, 2.0], [1.0, 2.0, 4.0])
    check(fit, X[:, :1], sample=X[:, :1])


@settings(max_examples=20)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=20), st.integers(0, 2**32 - 1))
def test_any_curve(axis: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    fit = IsotonicRegression(out_of_bounds="clip").fit(axis, rng.normal(size=len(axis)))
    rows = np.concatenate([axis, rng.normal(size=5) * 4])[:, None]
    program = flour.from_sklearn(fit, rows)
    np.testing.assert_array_equal(program.reference(rows)["value"], fit.predict(rows))


BASES = {
    "sigmoid": [LinearSVC(), GaussianNB()],
    "isotonic": [LogisticRegression(), make_pipeline(StandardScaler(), SVC())],
    "temperature": [LogisticRegression(), GaussianNB(var_smoothing=0.1)],
}


@pytest.mark.parametrize("method", BASES)
@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
def test_calibrated(method: str, target: Any) -> None:
    for base, ensemble in zip(BASES[method], (True, False), strict=True):
        fit = CalibratedClassifierCV(base, method=method, cv=2, ensemble=ensemble)
        check(_fitted(fit, target), NEW, narrow=False, tolerance=1e-11)


def _fitted(fit: Any, target: Any) -> Any:
    """The classifier, fitted: the library's search for a temperature gives up now and then.

    It meets a NaN then, whatever the data, in processes that have run many other tests; a new
    process has never met one.
    """
    try:
        return fit.fit(X, target)
    except RuntimeError:
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            return apart.submit(fit.fit, X, target).result()


def test_a_classifier_that_is_ready() -> None:
    ready = FrozenEstimator(LogisticRegression().fit(X, THREE))
    check(CalibratedClassifierCV(ready, cv=3).fit(X, THREE), NEW, tolerance=1e-11)


def test_two_targets_as_whole_numbers_and_bools() -> None:
    for target in (X[:, 0] > 0, np.where(X[:, 0] > 0, -4, 9)):
        fit = CalibratedClassifierCV(GaussianNB(), cv=2).fit(X, target)
        check(fit, NEW, tolerance=1e-11)


def test_out_of_bounds_that_raises_is_refused() -> None:
    fit = IsotonicRegression(out_of_bounds="raise").fit(AXIS, HEIGHT)
    with pytest.raises(FlourError):
        flour.from_sklearn(fit, AXIS[:, None])
