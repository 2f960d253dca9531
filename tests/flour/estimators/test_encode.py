"""Categorical encoders answer as scikit-learn's do, native code included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    LabelBinarizer,
    LabelEncoder,
    MultiLabelBinarizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

import flour
import oven
from flour.core.errors import InputError, UnknownEstimator, UnsupportedSetting
from flour.ops.categorise import hash_of
from tests.estimators import check

# Unknown categories make the library warn where one of them is dropped.
pytestmark = pytest.mark.filterwarnings("ignore:Found unknown categories")

rng = np.random.default_rng(11)
ROWS = 70


def sprinkled(values: Any, what: Any) -> Any:
    """The values with some of them replaced."""
    made = values.copy()
    made[rng.random(values.shape) < 0.2] = what
    return made


NAMES = np.array(["Paris", "Tōkyō", "日本", "", "x", "🥨"], object)
TEXT = rng.choice(NAMES, (ROWS, 2), p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
NONE = sprinkled(TEXT, None)
GAPS = sprinkled(NONE, np.nan)
NUMBERS = rng.choice([-2.0, 0.0, 0.5, 7.0], (ROWS, 2), p=[0.5, 0.3, 0.15, 0.05])
HOLES = sprinkled(NUMBERS, np.nan)
FRAME = pd.DataFrame(
    {
        "text": pd.Series(TEXT[:, 0], dtype=object),
        "number": HOLES[:, 0],
        "gaps": pd.Series(GAPS[:, 1], dtype=object),
        "whole": rng.integers(0, 4, ROWS),
        "flag": rng.random(ROWS) < 0.5,
        "kind": pd.Categorical(rng.choice(["u", "v"], ROWS)),
    }
)
DATA = {
    "text": TEXT,
    "none": NONE,
    "gaps": GAPS,
    "numbers": NUMBERS,
    "holes": HOLES,
    "frame": FRAME,
}
every = pytest.mark.parametrize("name", DATA)


def odd(data: Any) -> Any:
    """The same columns with categories that were never seen."""
    made = data.copy()
    if isinstance(made, pd.DataFrame):
        made.loc[3, "text"], made.loc[4, "number"], made.loc[5, "whole"] = "?", 77.0, 9
        return made
    made[3, 0], made[4, 1] = ("?", "Paris ") if made.dtype == object else (77.0, 0.25)
    return made


@every
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"drop": "first"},
        {"drop": "if_binary", "sparse_output": False},
        {"max_categories": 3},
        {"min_frequency": 0.2, "drop": "first"},
        {"dtype": np.int32, "sparse_output": False},
    ],
    ids=str,
)
def test_one_hot_of_known_categories(name: str, how: dict[str, Any]) -> None:
    fitted = OneHotEncoder(**how).fit(DATA[name])
    check(fitted, DATA[name], sample=DATA[name], tolerance=0)


@every
@pytest.mark.parametrize(
    "how",
    [
        {"handle_unknown": "ignore"},
        {"handle_unknown": "ignore", "drop": "first"},
        {"handle_unknown": "ignore", "min_frequency": 9},
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 9},
        {"handle_unknown": "infrequent_if_exist", "max_categories": 3, "drop": "first"},
        {"handle_unknown": "warn", "max_categories": 2, "dtype": np.float32},
    ],
    ids=str,
)
def test_one_hot_of_unknown_categories(name: str, how: dict[str, Any]) -> None:
    fitted = OneHotEncoder(**how).fit(DATA[name])
    check(fitted, odd(DATA[name]), sample=DATA[name], tolerance=0)


@every
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"encoded_missing_value": -5},
        {"min_frequency": 9},
        {"dtype": np.int32, "encoded_missing_value": -2},
        {"handle_unknown": "use_encoded_value", "unknown_value": -1},
        {"handle_unknown": "use_encoded_value", "unknown_value": np.nan, "dtype": np.float32},
        {"handle_unknown": "use_encoded_value", "unknown_value": -7, "max_categories": 3},
    ],
    ids=str,
)
def test_ordinals(name: str, how: dict[str, Any]) -> None:
    fitted = OrdinalEncoder(**how).fit(DATA[name])
    known = how.get("handle_unknown") is None
    check(fitted, DATA[name] if known else odd(DATA[name]), sample=DATA[name], tolerance=0)


@every
@pytest.mark.parametrize("target", ["continuous", "binary", "multiclass"])
def test_targets(name: str, target: str) -> None:
    targets = {
        "continuous": rng.normal(size=ROWS),
        "binary": rng.choice(["no", "yes"], ROWS),
        "multiclass": rng.integers(3, 6, ROWS),
    }
    fitted = TargetEncoder(smooth=2.0).fit(DATA[name], targets[target])
    check(fitted, odd(DATA[name]), sample=DATA[name], tolerance=0)


def test_types_are_known_without_a_sample() -> None:
    for data in (TEXT, HOLES):
        check(OneHotEncoder(handle_unknown="ignore").fit(data), odd(data), tolerance=0)


def test_whole_numbers_are_compared_as_such() -> None:
    huge = np.array([[2**60, 1], [2**60 + 1, 2], [2**60 + 2, 1]])
    fitted = OneHotEncoder(categories=[huge[:, 0], [1, 2]]).fit(huge)
    check(fitted, huge, sample=huge, tolerance=0)


def test_categories_may_be_given_in_any_order() -> None:
    fitted = OrdinalEncoder(categories=[["x", "Paris", ""], ["日本", "Paris"]])
    data = np.array([["", "Paris"], ["x", "日本"], ["Paris", "日本"]], object)
    check(fitted.fit(data), data, tolerance=0)


@pytest.mark.parametrize("data", [NUMBERS, TEXT], ids=["numbers", "text"])
def test_an_unknown_category_is_an_error_where_the_library_raises_one(data: Any) -> None:
    fitted = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(
        data, data[:, 0] == data[0, 0]
    )
    program = flour.from_sklearn(fitted)
    plan = oven.bake(program)
    bad = odd(data)
    with pytest.raises(ValueError, match="unknown categories"):
        fitted.predict(bad)
    for run in (program.reference, plan.run):
        with pytest.raises(InputError, match="not a category") as caught:
            run(bad)
        assert "row 3, column 0" in str(caught.value)
    np.testing.assert_array_equal(plan.run(data)["label"], fitted.predict(data))


def test_missing_values_are_an_error_where_there_were_none() -> None:
    plan = oven.bake(flour.from_sklearn(OrdinalEncoder().fit(NUMBERS)))
    with pytest.raises(InputError, match="nan is not a category"):
        plan.run(HOLES)


def test_none_and_nan_are_one_in_a_column_of_numbers() -> None:
    data = np.array([[1.0], [None], [np.nan]], object)
    with pytest.raises(UnsupportedSetting, match="None from NaN"):
        flour.from_sklearn(OrdinalEncoder().fit(data), sample=[[1.0]])


LABELS = {
    "strings": np.array(["b", "ü", "a", "b"], object),
    "unsorted": np.array([3, -1, 7, 3]),
    "two": np.array([1, 0, 1, 0]),
    "bools": np.array([True, False, True, True]),
    "one": np.array([5, 5, 5, 5]),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels(name: str) -> None:
    labels = LABELS[name]
    check(LabelEncoder().fit(labels), labels, sample=labels, narrow=False)
    for how in ({}, {"neg_label": -1, "pos_label": 2}, {"sparse_output": True}):
        check(LabelBinarizer(**how).fit(labels), labels, sample=labels, narrow=False)
        check(LabelBinarizer(**how).fit(labels), labels, narrow=False)
    check(LabelBinarizer(neg_label=-2, pos_label=0).fit(labels), labels, sample=labels)


def test_unknown_labels_are_in_no_class() -> None:
    fitted = LabelBinarizer().fit([1, 2, 5])
    check(fitted, np.array([1, 2, 4, 5]), sample=np.array([1, 2]))


def test_sets_of_labels_are_declined_with_a_reason() -> None:
    with pytest.raises(UnknownEstimator, match="refused: its input is a list of sets"):
        flour.from_sklearn(MultiLabelBinarizer().fit([{"a"}, {"b"}]), sample=[["a"], ["b"]])
    with pytest.raises(UnsupportedSetting, match="indicator matrix"):
        flour.from_sklearn(LabelBinarizer().fit(np.eye(3, dtype=int)), sample=np.eye(3))


# --- encoders in their pipelines ------------------------------------------------------------------


def model(text: Any) -> Any:
    """Numbers imputed and scaled beside encoded strings, into a classifier."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = [("num", numbers, ["number", "whole"]), ("text", text, ["text", "gaps"])]
    return make_pipeline(ColumnTransformer(columns), LogisticRegression())


ENCODERS = {
    "plain": OneHotEncoder(handle_unknown="ignore"),
    "imputed": make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    ),
    "ordinal": OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
    ),
    "target": TargetEncoder(smooth=2.0),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_mixed_columns_are_one_pass_of_native_code(name: str) -> None:
    fitted = model(ENCODERS[name]).fit(FRAME, FRAME["flag"])
    program = check(fitted, odd(FRAME))
    plan = oven.bake(program)
    assert len(plan.program.stages) == 1
    turned = FRAME[FRAME.columns[::-1]]
    np.testing.assert_array_equal(plan.run(turned)["label"], fitted.predict(FRAME))


def test_three_classes_of_mixed_columns() -> None:
    fitted = model(ENCODERS["plain"]).fit(
        FRAME, FRAME["whole"].map(["c", "a", "b", "a"].__getitem__)
    )
    check(fitted, odd(FRAME))


# --- any strings ----------------------------------------------------------------------------------

texts = st.text(max_size=12) | st.sampled_from(["a", "ab", "é", "e\u0301", "\x00", "\x00\x00"])


@settings(max_examples=40)
@given(
    known=st.lists(texts, min_size=1, max_size=12, unique=True), asked=st.lists(texts, max_size=9)
)
def test_any_strings(known: list[str], asked: list[str]) -> None:
    data = np.array([[text] for text in known], object)
    fitted = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1).fit(data)
    check(fitted, np.array([[text] for text in [*asked, *known]], object), tolerance=0)


def test_strings_whose_hashes_collide_are_told_apart() -> None:
    texts = [f"key {i}" for i in range(4000)]
    slots = [hash_of(text.encode()) & 8191 for text in texts]
    assert len(set(slots)) < len(slots), "the table would have no collision to resolve"
    data = np.array([[text] for text in texts], object)
    check(OrdinalEncoder().fit(data), data, tolerance=0)
