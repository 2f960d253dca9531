"""Pipelines, columns, unions: what only says what runs on what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import flour
import oven
from flour.core.errors import InputError, MissingColumn, UnfittedEstimator, UnknownEstimator
from flour.core.types import Record
from tests.estimators import check

rng = np.random.default_rng(7)
X = rng.normal(size=(60, 4)) * [1, 10, 0.1, 3] + [0, 5, -1, 2]
Y = (X[:, 0] + X[:, 2] > -1).astype(int)
TARGET = X @ [1.0, -0.5, 3.0, 0.25] + 1
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(
    whole=np.arange(60) % 7,
    flag=rng.random(60) < 0.5,
    city=rng.choice(["Rome", "Oslo", "Bonn"], 60),
    size=rng.choice(["s", "m", "l"], 60),
)
NUMBERS = FRAME[["a", "b", "c", "d"]]


def scaled(*columns: Any, **how: Any) -> ColumnTransformer:
    """A column transformer that scales these columns."""
    return ColumnTransformer([("scale", StandardScaler(), list(columns))], **how)


PICKS: dict[str, Any] = {
    "positions": [2, 0],
    "negative": [-1, 1],
    "slice": slice(1, 3),
    "mask": [True, False, False, True],
    "callable": lambda _: [1, 3],
    "one": [2],
    "array": np.array([3, 1]),
}


@pytest.mark.parametrize("pick", PICKS, ids=str)
@pytest.mark.parametrize("remainder", ["drop", "passthrough", StandardScaler()], ids=str)
def test_columns_of_an_array(pick: str, remainder: Any) -> None:
    made = ColumnTransformer([("s", StandardScaler(), PICKS[pick])], remainder=remainder)
    check(made.fit(X), X)


NAMED: dict[str, Any] = {
    "names": ["c", "a"],
    "positions": [2, 0],
    "slice": slice("b", "d"),
    "mask": [True, False, False, True, True, False, False, False],
    "selector": make_column_selector(dtype_include=np.number),
    "pattern": make_column_selector(pattern="^[ab]$"),
    "callable": lambda _: ["d", "whole"],
}


@pytest.mark.parametrize("pick", NAMED, ids=str)
@pytest.mark.parametrize("remainder", ["drop", StandardScaler()], ids=str)
def test_columns_of_a_frame(pick: str, remainder: Any) -> None:
    frame = FRAME.drop(columns=["city", "size"])
    picked = NAMED[pick][:6] if pick == "mask" else NAMED[pick]
    made = ColumnTransformer([("s", StandardScaler(), picked)], remainder=remainder).fit(frame)
    program = check(made, frame)
    for name, value in program.reference(frame[frame.columns[::-1]]).items():
        np.testing.assert_array_equal(value, program.reference(frame)[name])
    check(made, frame[frame.columns[::-1]], narrow=False)


def test_columns_the_transformer_drops_may_be_absent() -> None:
    made = scaled("c", "a").fit(NUMBERS)
    few = NUMBERS[["a", "c"]]
    np.testing.assert_allclose(
        flour.from_sklearn(made).reference(few)["features"], made.transform(few), rtol=1e-12
    )
    with pytest.raises(MissingColumn):
        flour.from_sklearn(made).reference(NUMBERS[["a"]])


def test_the_sample_may_have_its_columns_in_another_order() -> None:
    made = ColumnTransformer([("s", StandardScaler(), [0, 1])], remainder="passthrough")
    made.fit(NUMBERS)
    shuffled = NUMBERS[["d", "b", "a", "c"]]
    program = flour.from_sklearn(made, sample=shuffled)
    np.testing.assert_allclose(
        program.reference(shuffled)["features"], made.transform(shuffled), rtol=1e-12
    )


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
def test_sparse_parts_beside_dense_ones(threshold: float, remainder: str) -> None:
    frame = FRAME.drop(columns=["size"])
    made = ColumnTransformer(
        [("s", StandardScaler(), ["a"]), ("city", OneHotEncoder(), ["city"])],
        sparse_threshold=threshold,
        remainder=remainder,
    ).fit(frame)
    program = check(made, frame, black=("Narrow",))
    kind = program["features"].type
    assert isinstance(kind, flour.Vector)
    assert kind.sparse == made.sparse_output_


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_columns_of_a_sparse_matrix(threshold: float) -> None:
    stored = sparse.csr_matrix(np.where(rng.random((40, 5)) < 0.4, rng.normal(size=(40, 5)), 0))
    made = ColumnTransformer(
        [("s", StandardScaler(with_mean=False), [3, 0]), ("p", "passthrough", [1])],
        sparse_threshold=threshold,
    ).fit(stored)
    check(made, stored, sample=stored)


def test_weights_multiply_what_a_transformer_makes() -> None:
    steps = [("s", StandardScaler(), [0, 1]), ("p", "passthrough", [2])]
    check(ColumnTransformer(steps, transformer_weights={"s": 0.3, "p": -2}).fit(X), X)
    union = [("s", StandardScaler()), ("p", "passthrough"), ("d", "drop")]
    check(FeatureUnion(union, transformer_weights={"s": 3}).fit(X), X)


def test_everything_dropped_and_nothing_picked() -> None:
    check(ColumnTransformer([("d", "drop", [0, 1])]).fit(X), X, native=False)
    check(ColumnTransformer([("n", StandardScaler(), []), ("s", StandardScaler(), [1])]).fit(X), X)


def test_transformers_inside_transformers() -> None:
    inner = ColumnTransformer([("x", StandardScaler(), [1])], remainder="passthrough")
    outer = ColumnTransformer([("inner", inner, ["d", "a"])], remainder=StandardScaler())
    both = FeatureUnion([("outer", outer), ("s", StandardScaler())])
    check(both.fit(NUMBERS), NUMBERS)
    check(make_pipeline(both, LogisticRegression()).fit(NUMBERS, Y), NUMBERS)


def test_strings_beside_numbers_travel_to_a_later_step() -> None:
    first = ColumnTransformer(
        [("num", StandardScaler(), ["a", "b"]), ("p", "passthrough", ["city", "size"])]
    )
    second = ColumnTransformer(
        [("hot", OneHotEncoder(sparse_output=False), [3, 2])], remainder="passthrough"
    )
    made = Pipeline([("first", first), ("second", second), ("model", LogisticRegression())])
    check(made.fit(FRAME, Y), FRAME, sample=FRAME)


def test_a_program_can_answer_with_mixed_columns() -> None:
    made = ColumnTransformer([("n", StandardScaler(), ["a"]), ("p", "passthrough", ["city"])])
    program = flour.from_sklearn(made.fit(FRAME), sample=FRAME)
    assert isinstance(program["features"].type, Record)
    got, want = program.reference(FRAME)["features"], made.transform(FRAME)
    for j, column in enumerate(got.values()):
        assert list(column) == list(want[:, j])
    np.testing.assert_array_equal(oven.bake(program).run(FRAME)["features"]["x1"], want[:, 1])


@pytest.mark.parametrize("container", ["pandas", "polars", "default"])
def test_set_output_changes_no_value(container: str) -> None:
    if container == "polars":
        pytest.importorskip(container)
    made = ColumnTransformer(
        [("s", StandardScaler(), ["a", "c"]), ("p", "passthrough", ["d"])],
        verbose_feature_names_out=False,
    ).set_output(transform=container)
    check(made.fit(NUMBERS), NUMBERS)
    check(make_pipeline(made, LinearRegression()).fit(NUMBERS, TARGET), NUMBERS)


@pytest.mark.parametrize("step", [None, "passthrough", FunctionTransformer()], ids=str)
def test_steps_that_do_nothing(step: Any) -> None:
    check(Pipeline([("no", step), ("s", StandardScaler())]).fit(X), X)
    check(Pipeline([("s", StandardScaler()), ("no", step)]).fit(X), X)
    check(
        Pipeline([("s", StandardScaler()), ("no", step), ("m", LogisticRegression())]).fit(X, Y), X
    )


def test_frozen_estimators_answer_as_what_they_hold() -> None:
    held = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    check(FrozenEstimator(held), X)
    check(
        make_pipeline(FrozenEstimator(StandardScaler().fit(X)), LogisticRegression()).fit(X, Y), X
    )


def test_errors_name_the_step() -> None:
    class Mine(StandardScaler):  # type: ignore[misc]  # sklearn is untyped
        """Nobody's estimator."""

    inner = ColumnTransformer([("mine", Mine(), [0])]).fit(X)
    with pytest.raises(UnknownEstimator) as caught:
        flour.from_sklearn(Pipeline([("columns", inner)]))
    assert "columns.mine" in str(caught.value)
    with pytest.raises(UnfittedEstimator) as unfitted:
        flour.from_sklearn(Pipeline([("s", StandardScaler()), ("m", LinearRegression())]), sample=X)
    assert "'s'" in str(unfitted.value)


def test_columns_that_happen_to_be_full_or_empty() -> None:
    frame = pd.DataFrame({"k": ["a", "b", None, "a"], "n": pd.array([1, 2, None, 4], "Int64")})
    steps = [("k", OneHotEncoder(handle_unknown="ignore"), ["k"]), ("n", SimpleImputer(), ["n"])]
    model = ColumnTransformer(steps).fit(frame)
    # The rows of the sample have no holes, but their column may have some later.
    program = flour.from_sklearn(model, sample=frame[:2])
    want = model.transform(frame)
    for made in (program.reference, oven.bake(program).run):
        np.testing.assert_array_equal(made(frame)["features"], want)
        # One row whose string is missing is a column of floats.
        for row in (pd.DataFrame({"k": [np.nan], "n": [4]}), {"k": [np.nan], "n": [4.0]}):
            np.testing.assert_array_equal(made(row)["features"], [[0, 0, 1, 4]])


class Sampler(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """A sampler as those of imbalanced-learn: it only has a say while a pipeline is trained."""

    def fit_resample(self, rows: Any, target: Any) -> Any:
        """All rows, twice."""
        return np.concatenate([rows, rows]), np.concatenate([target, target])


def test_samplers_leave_rows_alone_when_predicting() -> None:
    rows = np.random.default_rng(5).normal(size=(40, 3))
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, rows[:, 0] > 0)
    kind = type("Pipeline", (Pipeline,), {"__module__": "imblearn.pipeline"})
    steps = [("sampler", Sampler()), *plain.steps]
    program = flour.from_sklearn(kind(steps))
    np.testing.assert_array_equal(program.reference(rows)["label"], plain.predict(rows))


@pytest.mark.parametrize("other", [None, 3, {}, [1.0]])
def test_what_is_no_estimator_is_not_called_unfitted(other: object) -> None:
    with pytest.raises(UnknownEstimator, match="this is no estimator"):
        flour.from_sklearn(other)


ENCODE: dict[str, Any] = {
    "one hot": OneHotEncoder(handle_unknown="ignore"),
    "filled": make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()),
}


@pytest.mark.parametrize(
    ("encode", "vectoriser", "last"),
    [
        ("one hot", TfidfVectorizer(), True),
        ("one hot", CountVectorizer(analyzer="char"), False),
        ("filled", TfidfVectorizer(), False),
        ("filled", CountVectorizer(analyzer="char"), True),
    ],
)
def test_a_column_that_is_a_document_and_a_category(
    encode: str, vectoriser: Any, *, last: bool
) -> None:
    parts = [("words", vectoriser, "city"), ("category", ENCODE[encode], ["city"])]
    made = ColumnTransformer(parts[:: 1 if last else -1])
    fitted = make_pipeline(made, LogisticRegression()).fit(FRAME[["city", "a"]], Y)
    for sample in (FRAME[["city", "a"]], None):
        check(fitted, FRAME[["city", "a"]], sample=sample, tolerance=1e-9)
    program = flour.from_sklearn(fitted)
    for missing in (None, np.nan):
        row = {"city": [missing], "a": [1.0]}
        with pytest.raises((ValueError, AttributeError, TypeError)):
            fitted.predict(pd.DataFrame(row))
        for run in (oven.bake(program).run, oven.bake(program, background=False).run):
            with pytest.raises(InputError, match=r"refuses missing strings|not a category"):
                run(row)


PASSED = [["a", "b"], ["a"], ["n", "a"], ["s", "a", "n"], ["s", "t"], ["f"]]


@pytest.mark.parametrize("weight", [1 / 3, 2])
@pytest.mark.parametrize("columns", PASSED)
def test_weights_of_columns_of_frames_that_pass_through(columns: list[str], weight: float) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "n": np.arange(60), "f": X[:, 2] > 0})
    frame["s"], frame["t"] = X[:, 2].astype(np.float32), X[:, 3].astype(np.float32)
    two = [("z", StandardScaler(), ["b"]), ("p", "passthrough", columns)]
    for model in (
        ColumnTransformer(two, transformer_weights={"p": weight, "z": 3.0}),
        ColumnTransformer(
            two[:1], remainder="passthrough", transformer_weights={"remainder": weight}
        ),
        FeatureUnion(
            [("p", "passthrough"), ("z", StandardScaler())], transformer_weights={"p": weight}
        ),
    ):
        given = frame[list(dict.fromkeys([*columns, "b"]))]
        wanted = model.fit(given).transform(given)
        (made,) = oven.bake(flour.from_sklearn(model, sample=given)).run(given).values()
        np.testing.assert_allclose(made, wanted, rtol=1e-12, atol=1e-15)
