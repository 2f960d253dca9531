"""Imputers answer as scikit-learn's do, native code included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (the import enables it)
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

import flour
import oven
import pretzel
from flour.core.errors import InputError, TypeMismatch, UnsupportedSetting
from tests.estimators import check

# A few rounds do not converge, and columns without values are part of what is tested.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Early stopping criterion not reached"),
    pytest.mark.filterwarnings("ignore:Skipping features without any observed values"),
]

rng = np.random.default_rng(5)
ROWS = 50


def holed(values: Any, what: Any = np.nan, share: float = 0.3) -> Any:
    """The values with some of them missing."""
    made = values.copy()
    made[rng.random(values.shape) < share] = what
    return made


X = rng.normal(size=(ROWS, 4))
HOLES = holed(X)
OTHERS = holed(rng.normal(size=(30, 4)))
OTHERS[2] = 1.5  # a row without a hole
EMPTY = HOLES.copy()
EMPTY[:, 2] = np.nan
WHOLE = rng.integers(0, 4, size=(ROWS, 3))
NAMES = rng.choice(np.array(["a", "b", "日本", "?"], object), (ROWS, 2), p=[0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant", np.sum])
@pytest.mark.parametrize("data", [HOLES, EMPTY], ids=["holes", "empty"])
@pytest.mark.parametrize("keep", [False, True])
def test_each_column_by_itself(strategy: Any, data: Any, *, keep: bool) -> None:
    for indicator in (False, True):
        fitted = SimpleImputer(
            strategy=strategy, add_indicator=indicator, keep_empty_features=keep
        ).fit(data)
        check(fitted, OTHERS, tolerance=0)


@pytest.mark.parametrize("strategy", ["mean", "most_frequent", "median"])
def test_sparse_data(strategy: str) -> None:
    data = sp.csr_array(np.where(rng.random(HOLES.shape) < 0.5, HOLES, 0))
    check(SimpleImputer(strategy=strategy, add_indicator=True).fit(data), data, sample=data)
    check(MissingIndicator().fit(data), data, sample=data)


def test_zeros_that_are_not_stored_cannot_be_missing() -> None:
    program = flour.from_sklearn(SimpleImputer(missing_values=0).fit(WHOLE))
    with pytest.raises(TypeMismatch, match="zeros are not stored"):
        program.reference(sp.csr_array(WHOLE.astype(float)))


@pytest.mark.parametrize("strategy", ["mean", "most_frequent", "constant"])
@pytest.mark.parametrize("marker", [0, 3])
def test_whole_numbers(strategy: str, marker: int) -> None:
    fitted = SimpleImputer(missing_values=marker, strategy=strategy, add_indicator=True).fit(WHOLE)
    check(fitted, WHOLE, sample=WHOLE, tolerance=0)


GAPS = {
    "nan": (holed(NAMES), np.nan),
    "none": (holed(NAMES, None), None),
    "text": (NAMES, "?"),
    "na": (holed(NAMES, pd.NA), pd.NA),
}


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_strings(name: str, strategy: str) -> None:
    data, marker = GAPS[name]
    fitted = SimpleImputer(missing_values=marker, strategy=strategy).fit(data)
    check(fitted, data, sample=data, black=("ImputeText", "RequirePresent"))


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_strings_that_are_encoded_next_are_never_written(name: str, strategy: str) -> None:
    data, marker = GAPS[name]
    imputer = SimpleImputer(missing_values=marker, strategy=strategy, fill_value="none at all")
    fitted = make_pipeline(imputer, OneHotEncoder(handle_unknown="ignore")).fit(data)
    other = data.copy()
    other[3, 0] = "never seen"
    check(fitted, other, sample=data, tolerance=0)


@pytest.mark.parametrize("name", ["none", "text"])
@pytest.mark.parametrize("last", [None, OneHotEncoder(handle_unknown="ignore")])
def test_strings_that_are_nan_are_refused_where_that_is_not_the_marker(
    name: str, last: Any
) -> None:
    data, marker = GAPS[name]
    for imputer in (SimpleImputer(missing_values=marker, strategy="most_frequent"), None):
        first = imputer or MissingIndicator(missing_values=marker, features="all")
        fitted = make_pipeline(first, *([last] if last and imputer else [])).fit(data)
        program = flour.from_sklearn(fitted, data)
        other = data.copy()
        other[3, 1] = np.nan
        with pytest.raises(ValueError, match="contains NaN"):
            fitted.transform(other)
        plan = oven.bake(program, background=False)
        assert all(stage.native for stage in plan.program.stages) == (bool(last) or not imputer)
        for run in (oven.bake(program).run, plan.run):
            with pytest.raises(InputError, match="refuses missing strings"):
                run(other)
        answering = oven.bake(flour.from_sklearn(fitted, data, on_missing="answer"))
        assert answering.run(other)["features"].shape[0] == len(other)


@pytest.mark.parametrize("name", ["nan", "none", "text"])
@pytest.mark.parametrize("features", ["missing-only", "all"])
def test_indicators_of_strings(name: str, features: str) -> None:
    data, marker = GAPS[name]
    check(MissingIndicator(missing_values=marker, features=features).fit(data), data, sample=data)


@pytest.mark.parametrize("sparse", [True, False, "auto"])
@pytest.mark.parametrize("features", ["missing-only", "all"])
def test_indicators(sparse: Any, features: str) -> None:
    data = HOLES.copy()
    data[:, 1] = 0.5
    check(MissingIndicator(features=features, sparse=sparse).fit(data), data, tolerance=0)


def test_indicators_of_sparse_data_are_stored_as_the_library_stores_them() -> None:
    data = sp.csr_array(np.where(rng.random(HOLES.shape) < 0.5, HOLES, 0))
    for sparse in (True, False, "auto"):
        fitted = MissingIndicator(sparse=sparse, features="all").fit(HOLES)
        made = flour.from_sklearn(fitted).reference(data)["features"]
        want = fitted.transform(data)
        assert sp.issparse(made) == sp.issparse(want)
        np.testing.assert_array_equal(sp.csr_array(made).toarray(), sp.csr_array(want).toarray())


def test_bools_beside_strings_that_are_filled_with_a_string() -> None:
    frame = pd.DataFrame(
        {"b": [True, False, True], "s": ["x", None, "y"], "c": [False, True, True]}
    )
    fitted = SimpleImputer(strategy="constant", fill_value="?").fit(frame.astype(object))
    got = oven.bake(flour.from_sklearn(fitted, frame)).run(frame)["features"]
    want = fitted.transform(frame.astype(object))
    for column, values in zip(want.T, got.values(), strict=True):
        assert column.tolist() == list(values)
    numbers = frame.assign(c=[1.0, 2.0, 3.0])
    fitted.fit(numbers.astype(object))
    with pytest.raises(UnsupportedSetting, match="numbers is filled with a string"):
        flour.from_sklearn(fitted, numbers)


def test_strings_beside_numbers() -> None:
    frame = pd.DataFrame({"a": GAPS["nan"][0][:, 0], "n": HOLES[:, 0], "b": NAMES[:, 1]})
    imputer = SimpleImputer(strategy="most_frequent")
    check(make_pipeline(imputer, OneHotEncoder()).fit(frame), frame, sample=frame)
    fitted = SimpleImputer(strategy="most_frequent", add_indicator=True).fit(frame)
    with pytest.raises(UnsupportedSetting, match="indicators beside strings"):
        flour.from_sklearn(fitted, sample=frame)


# --- from the other columns -----------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("count", [1, 4, 100])
def test_nearest_rows(weights: str, count: int) -> None:
    lost = OTHERS.copy()
    lost[5] = np.nan  # a row that cannot be compared
    # The library gets distances as a difference of large numbers, and weights have its rounding.
    tolerance = 1e-12 if weights == "uniform" else 1e-10
    for how in ({}, {"add_indicator": True}, {"keep_empty_features": True}):
        for data in (HOLES, EMPTY):
            fitted = KNNImputer(n_neighbors=count, weights=weights, **how).fit(data)
            check(fitted, lost, tolerance=tolerance)


def test_nearest_rows_with_another_marker() -> None:
    fitted = KNNImputer(missing_values=-1.0).fit(np.nan_to_num(HOLES, nan=-1.0))
    check(fitted, np.nan_to_num(OTHERS, nan=-1.0))


def test_a_training_row_itself_counts_alone() -> None:
    data = np.array([[1.0, 2.0, 3.0], [4.0, 9.0, 6.0], [7.0, 1.0, 0.0]])
    asked = np.array([[4.0, 9.0, np.nan]])
    check(KNNImputer(n_neighbors=2, weights="distance").fit(data), asked)


def test_python_code_among_the_settings_is_refused() -> None:
    for how in ({"weights": np.abs}, {"metric": lambda *_, **__: 1.0}):
        with pytest.raises(UnsupportedSetting, match="Python code"):
            flour.from_sklearn(KNNImputer(**how).fit(HOLES))


ROUNDS = [
    {},
    {"estimator": LinearRegression()},
    {"estimator": Ridge(), "imputation_order": "random", "n_nearest_features": 2},
    {"min_value": -0.3, "max_value": [0.3, 0.2, 0.1, 5.0]},
    {"add_indicator": True, "initial_strategy": "median"},
    {"skip_complete": True, "imputation_order": "descending"},
    {"max_iter": 0},
    {"estimator": DecisionTreeRegressor(max_depth=2, random_state=0), "max_iter": 2},
]


@pytest.mark.parametrize("how", ROUNDS, ids=str)
def test_rounds_of_regression(how: dict[str, Any]) -> None:
    for data in (HOLES, EMPTY):
        fitted = IterativeImputer(**{"max_iter": 4, "random_state": 0, **how}).fit(data)
        present = ~np.isnan(OTHERS[:, [0, 1, 3]]).all(axis=1)
        check(fitted, OTHERS[present])


@pytest.mark.parametrize("estimator", [None, DecisionTreeRegressor(max_depth=2)], ids=str)
def test_a_row_of_holes_is_refused_or_filled_as_the_library_fills_it_alone(estimator: Any) -> None:
    fitted = IterativeImputer(estimator, max_iter=3, random_state=0).fit(HOLES)
    lost = np.full((1, 4), np.nan)
    both = np.concatenate([OTHERS[:3], lost])
    assert np.any(fitted.transform(both)[3:] != fitted.transform(lost))
    plan = oven.bake(flour.from_sklearn(fitted))
    for run in (plan.run, plan.wait().run):
        with pytest.raises(InputError, match=r"other rows of the call(.|\n)*at +\$\[3\]"):
            run(both)
    with pytest.raises(InputError, match="other rows of the call"):
        pretzel.compile(fitted, verify=both)
    plan = oven.bake(flour.from_sklearn(fitted, on_missing="answer"))
    np.testing.assert_array_equal(plan.run(both)["features"][3:], fitted.transform(lost))


def test_random_rounds_are_refused() -> None:
    fitted = IterativeImputer(sample_posterior=True, max_iter=2, random_state=0).fit(HOLES)
    with pytest.raises(UnsupportedSetting, match="random"):
        flour.from_sklearn(fitted)


numbers = st.floats(-100, 100) | st.just(float("nan"))


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=9))
def test_any_holes(rows: list[tuple[float, ...]]) -> None:
    check(SimpleImputer(add_indicator=True).fit(HOLES[:, :3]), np.array(rows), tolerance=0)
