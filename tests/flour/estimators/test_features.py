"""Bins, polynomials, splines and selected columns are those of scikit-learn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMClassifier
from sklearn import ensemble
from sklearn import feature_selection as fs
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, SplineTransformer
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
from flour.core.errors import InputError, UnsupportedSetting
from flour.sklearn.file import read_as_data
from tests.estimators import check

rng = np.random.default_rng(3)
X = rng.normal(size=(60, 4))
X[:, 1] = np.round(X[:, 1])
CSR = sp.csr_array(X * (X > 0.3))
LABELS = np.where(X[:, 0] + X[:, 2] > 0, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5]) * 2 - 1
VALUES = X @ [1.0, 0.0, -2.0, 0.5]
WIDE = np.concatenate([X, 3 * X, X[:1] * 0])


# --- bins -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Bins whose width are too small")
@pytest.mark.parametrize("encode", ["ordinal", "onehot", "onehot-dense"])
@pytest.mark.parametrize("strategy", ["uniform", "quantile", "kmeans"])
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
def test_bins(encode: str, strategy: str, dtype: Any) -> None:
    bins = KBinsDiscretizer(
        [4, 3, 2, 9],
        encode=encode,
        strategy=strategy,
        dtype=dtype,
        quantile_method="averaged_inverted_cdf",
    ).fit(X)
    edges = np.column_stack([np.resize(edge, 9) for edge in bins.bin_edges_])
    near = np.concatenate([edges, np.nextafter(edges, -9), np.nextafter(edges, 9)])
    check(bins, np.concatenate([WIDE, near]), tolerance=0)


@pytest.mark.filterwarnings("ignore:Feature 0 is constant")
def test_a_constant_column_has_one_bin() -> None:
    data = X.copy()
    data[:, 0] = 3.0
    check(KBinsDiscretizer(3, strategy="uniform").fit(data), WIDE, tolerance=0)


# --- polynomials ----------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [0, 1, 2, 3, (2, 3), (0, 2), (3, 4), (5, 5)])
@pytest.mark.parametrize("interactions", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_polynomials(degree: Any, *, interactions: bool, bias: bool) -> None:
    if degree == 0 and not bias:
        pytest.skip("the library refuses to make nothing")
    if degree == (5, 5) and interactions and not bias:
        pytest.skip("there is no such term")
    made = PolynomialFeatures(degree, interaction_only=interactions, include_bias=bias).fit(X)
    check(made, WIDE, tolerance=0)


@pytest.mark.parametrize("degree", [1, 2, 3, (2, 4)])
def test_polynomials_of_sparse_data(degree: Any) -> None:
    check(PolynomialFeatures(degree).fit(CSR), CSR, sample=CSR)


def test_polynomials_of_too_many_columns_are_refused() -> None:
    fitted = PolynomialFeatures(3).fit(np.zeros((2, 400)))
    with pytest.raises(UnsupportedSetting, match="too many"):
        flour.from_sklearn(fitted)


@settings(max_examples=20)
@given(
    rows=st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=6),
    degree=st.integers(1, 4),
)
def test_any_polynomials(rows: list[list[float]], degree: int) -> None:
    check(PolynomialFeatures(degree).fit(rows), np.array(rows), tolerance=0)


# --- splines --------------------------------------------------------------------------------------


@pytest.mark.parametrize("beyond", ["constant", "linear", "continue", "periodic", "error"])
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_splines(beyond: str, degree: int) -> None:
    data = X[:, :3] if beyond == "error" else WIDE[:, :3]
    for how in ({"include_bias": False}, {"knots": "quantile"}, {"sparse_output": True}):
        columns = X[:, [0, 2, 3]] if "knots" in how else X[:, :3]
        fitted = SplineTransformer(6, degree, extrapolation=beyond, **how).fit(columns)
        asked = columns if beyond == "error" else data
        check(fitted, asked, narrow=beyond != "error" and "sparse_output" not in how)


@pytest.mark.parametrize("beyond", ["constant", "linear", "continue", "periodic"])
def test_splines_of_missing_values_are_zero(beyond: str) -> None:
    fitted = SplineTransformer(extrapolation=beyond, handle_missing="zeros").fit(X)
    check(fitted, np.where(rng.random(WIDE.shape) < 0.2, np.nan, WIDE))


@pytest.mark.parametrize("beyond", ["linear", "continue", "periodic"])
def test_splines_of_degree_zero(beyond: str) -> None:
    check(SplineTransformer(5, 0, extrapolation=beyond).fit(X), WIDE)


@pytest.mark.parametrize("beyond", ["constant", "linear", "continue", "periodic"])
def test_splines_of_a_constant_column(beyond: str) -> None:
    data = np.column_stack([np.ones(20), np.arange(20.0)])
    check(SplineTransformer(extrapolation=beyond).fit(data), np.concatenate([data, data + 30]))


def test_splines_with_knots_of_their_own() -> None:
    knots = np.array([[-1.0, 0.0, -2.0, -1.0], [0.0, 0.5, 0.0, 0.1], [2.0, 1.0, 0.3, 4.0]])
    check(SplineTransformer(knots=knots, degree=2).fit(X), WIDE)


def test_a_value_beyond_the_knots_is_an_error_where_the_library_raises_one() -> None:
    program = flour.from_sklearn(SplineTransformer(extrapolation="error").fit(X))
    for run in (program.reference, oven.bake(program).run):
        with pytest.raises(InputError, match="beyond the knots"):
            run(X + 0.5)


def test_sparse_splines_that_depend_on_their_batch_are_refused() -> None:
    fitted = SplineTransformer(
        extrapolation="continue", handle_missing="zeros", sparse_output=True
    ).fit(X)
    with pytest.raises(UnsupportedSetting, match="other rows of its batch"):
        flour.from_sklearn(fitted)


# --- selection ------------------------------------------------------------------------------------

FOREST = LogisticRegression(C=0.1)
SELECTORS = [
    fs.SelectKBest(k=2),
    fs.SelectKBest(k="all"),
    fs.SelectPercentile(percentile=50),
    fs.SelectFpr(),
    fs.SelectFdr(),
    fs.SelectFwe(),
    fs.GenericUnivariateSelect(mode="k_best", param=3),
    fs.VarianceThreshold(0.9),
    fs.SelectFromModel(FOREST),
    fs.SelectFromModel(FOREST, max_features=1, threshold=-np.inf),
    fs.SequentialFeatureSelector(FOREST, n_features_to_select=2, cv=2),
]


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
def test_selected_columns(selector: Any) -> None:
    check(selector.fit(X, LABELS), WIDE, tolerance=0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    program = check(selector.fit(frame, LABELS), frame, tolerance=0)
    turned = program.reference(frame[list("dbca")])["features"]
    np.testing.assert_array_equal(turned, selector.transform(frame))


TREES = [
    DecisionTreeClassifier(max_depth=4, random_state=0),
    ensemble.RandomForestClassifier(5, max_depth=1, min_samples_leaf=25, random_state=0),
    ensemble.ExtraTreesRegressor(5, random_state=0),
    ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0),
    ensemble.AdaBoostClassifier(n_estimators=4, random_state=0),
    LGBMClassifier(n_estimators=3, min_child_samples=5, verbose=-1),
]


@pytest.mark.parametrize("how", [{}, {"threshold": "1.25*median"}, {"max_features": 2}], ids=str)
@pytest.mark.parametrize("inner", TREES, ids=lambda inner: type(inner).__name__)
def test_columns_selected_by_trees_are_known_from_a_file(inner: Any, how: dict[str, Any]) -> None:
    fitted = fs.SelectFromModel(inner, **how).fit(X, THREE)
    program = flour.from_sklearn(read_as_data(pickle.dumps(fitted)))
    np.testing.assert_array_equal(program.reference(X)["features"], fitted.transform(X))


@pytest.mark.parametrize("selector", [SELECTORS[0], fs.VarianceThreshold(0.05)], ids=str)
def test_selected_columns_of_sparse_and_whole_numbers(selector: Any) -> None:
    check(selector.fit(CSR, LABELS), CSR, sample=CSR, tolerance=0)
    whole = rng.integers(0, 9, size=X.shape)
    check(selector.fit(whole, LABELS), whole, sample=whole, tolerance=0)


@pytest.mark.filterwarnings("ignore:No features were selected")
def test_nothing_selected() -> None:
    noise = rng.normal(size=X.shape)
    check(fs.SelectFwe(alpha=1e-9).fit(noise, LABELS), X, tolerance=0)


@pytest.mark.parametrize("labels", [LABELS, THREE], ids=["two", "three"])
@pytest.mark.parametrize(
    "eliminate",
    [
        fs.RFE(FOREST, n_features_to_select=2),
        fs.RFECV(FOREST, cv=2, min_features_to_select=2),
        fs.RFE(FOREST, n_features_to_select=1, step=2),
    ],
    ids=str,
)
def test_eliminated_columns(eliminate: Any, labels: Any) -> None:
    check(eliminate.fit(X, labels), WIDE)


def test_eliminated_columns_of_a_regressor() -> None:
    check(fs.RFE(LinearRegression(), n_features_to_select=2).fit(X, VALUES), WIDE)


def test_selection_within_a_pipeline() -> None:
    model = make_pipeline(
        PolynomialFeatures(2, include_bias=False), fs.SelectKBest(k=6), LogisticRegression()
    ).fit(X, THREE)
    program = check(model, WIDE)
    assert all(stage.native for stage in oven.bake(program).program.stages)


def test_a_selector_that_keeps_nothing() -> None:
    fitted = fs.SelectKBest(k=0).fit(X, LABELS)
    for rows in (X, sp.csr_array(X)):
        with pytest.warns(UserWarning, match="No features were selected"):
            want = fitted.transform(rows)
        for made in (flour.from_sklearn(fitted), oven.bake(flour.from_sklearn(fitted))):
            run = made.reference if isinstance(made, flour.Flow) else made.run
            got = run(rows)["features"]
            assert type(got) is type(want)
            assert got.shape == want.shape
