"""Naive Bayes answers as scikit-learn's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import naive_bayes as nb
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from flour.core.errors import ParameterError
from flour.ops.bayes import SpreadDistances, SumOfEntries
from tests.estimators import check
from tests.flour.estimators.linear_data import COUNTS, LABELS, POSITIVE, ROWS, THREE, X

FLOATS: Any = COUNTS.astype(np.float64)
COUNTING = [
    nb.MultinomialNB(),
    nb.MultinomialNB(fit_prior=False, alpha=0.1),
    nb.ComplementNB(),
    nb.ComplementNB(norm=True),
    nb.BernoulliNB(),
    nb.BernoulliNB(binarize=1.5, fit_prior=False),
]


def name(model: Any) -> str:
    return type(model).__name__


@pytest.mark.parametrize("kind", LABELS)
def test_gaussian(kind: str) -> None:
    check(nb.GaussianNB().fit(X, LABELS[kind]), X)


def test_gaussian_settings() -> None:
    check(nb.GaussianNB(priors=[0.2, 0.3, 0.5], var_smoothing=1e-3).fit(X, THREE), X)
    check(make_pipeline(StandardScaler(), nb.GaussianNB()).fit(X, THREE), X)
    check(nb.GaussianNB().fit(X, np.ones(ROWS)), X)


def test_gaussian_fitted_on_float32() -> None:
    narrow = X.astype(np.float32)
    check(nb.GaussianNB().fit(narrow, THREE), narrow)
    check(nb.GaussianNB().fit(narrow, THREE), X)


@pytest.mark.parametrize("kind", ["two", "three", "three_words"])
@pytest.mark.parametrize("model", COUNTING, ids=name)
def test_counts(model: Any, kind: str) -> None:
    model.fit(FLOATS, LABELS[kind])
    check(model, FLOATS)
    check(model, sp.csr_matrix(FLOATS), sample=sp.csr_matrix(FLOATS))
    check(model, COUNTS, sample=COUNTS)


@pytest.mark.parametrize("model", COUNTING[:5], ids=name)
def test_one_class(model: Any) -> None:
    check(model.fit(FLOATS, np.zeros(ROWS)), FLOATS)


def test_fractions() -> None:
    check(nb.MultinomialNB().fit(POSITIVE, THREE), POSITIVE)
    check(nb.BernoulliNB(binarize=0.3).fit(POSITIVE, THREE), POSITIVE)
    whole = (FLOATS > 1).astype(np.float64)
    check(nb.BernoulliNB(binarize=None).fit(whole, THREE), whole)
    check(nb.BernoulliNB().fit(X, THREE), X)


@pytest.mark.parametrize("kind", LABELS)
def test_categories(kind: str) -> None:
    model = nb.CategoricalNB().fit(COUNTS, LABELS[kind])
    check(model, FLOATS)
    check(model, COUNTS, sample=COUNTS)


def test_categories_that_fitting_did_not_see() -> None:
    codes = COUNTS.copy()
    codes[:, 2] = 0
    model = nb.CategoricalNB(min_categories=8, alpha=0.5, fit_prior=False).fit(codes, THREE)
    check(model, COUNTS + 3, sample=COUNTS)


def test_tables_and_centres_have_to_fit() -> None:
    with pytest.raises(ParameterError, match="one spread"):
        SpreadDistances(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(ParameterError, match="where each column starts"):
        SumOfEntries(np.ones((2, 3)), [0.0])
    with pytest.raises(ParameterError, match="at least one row"):
        SumOfEntries(np.ones((2, 3)), [0, 2])


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 5), st.integers(1, 9), st.integers(0, 2**31))
def test_any_size(classes: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(30, columns)) * rng.uniform(0.1, 10, columns)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, 30 - classes)])
    check(nb.GaussianNB().fit(data, labels), data)
