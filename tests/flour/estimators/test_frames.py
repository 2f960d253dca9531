"""Steps that read frames: the user's own classes and functions, and samples of odd columns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import flour
import oven
import pretzel
from flour.core.errors import (
    FlourError,
    FunctionFailed,
    MissingColumn,
    ParameterError,
    PythonRefused,
    UnknownEstimator,
    UnsupportedSetting,
)
from runtime import Runtime

_rng = np.random.default_rng(3)
ROWS = 60
FRAME = pd.DataFrame(
    {
        "age": _rng.normal(40, 10, ROWS),
        "fare": _rng.exponential(30, ROWS),
        "city": _rng.choice(["Oslo", "Rome", "Bern"], ROWS),
        "kids": _rng.integers(0, 5, ROWS),
        "member": _rng.random(ROWS) > 0.5,
        "day": [f"2021-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(ROWS)],
    }
)
LABELS = (FRAME["age"] + _rng.normal(0, 5, ROWS) > 40).astype(int)


class Ratio(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Reads columns by name, and does not remember them."""

    def fit(self, rows: Any, target: Any = None) -> Ratio:
        """Learn nothing."""
        return self

    def transform(self, rows: Any) -> Any:
        """Numbers of numbers."""
        return rows.assign(ratio=rows["age"] / (rows["fare"] + 1))[["ratio", "age"]]


class Cities(Ratio):
    """Reads strings beside numbers, whole ones and bools."""

    def transform(self, rows: Any) -> Any:
        """Numbers of all of them."""
        known = {"Oslo": 1.0, "Rome": 2.0}
        adults = rows["kids"] // 2 + rows["member"]
        return pd.DataFrame({"city": rows["city"].map(known).fillna(0), "adults": adults})


class Capitals(Ratio):
    """Answers strings beside numbers."""

    def transform(self, rows: Any) -> Any:
        """The frame with another city."""
        return rows.assign(city=rows["city"].str.upper(), age=rows["age"].round())


class Arrays(Ratio):
    """Answers an array of objects."""

    def transform(self, rows: Any) -> Any:
        """Strings and numbers without names."""
        return rows[["city", "age"]].to_numpy(object)


def months(rows: Any) -> Any:
    """Months of strings."""
    return pd.DataFrame({name: pd.to_datetime(rows[name]).dt.month for name in rows.columns})


def shouted(texts: Any) -> Any:
    """Documents of documents."""
    return [str(text).upper() for text in texts]


ENCODED = ColumnTransformer([("o", OneHotEncoder(), ["city"])], remainder="passthrough")
NAMED = ColumnTransformer(
    [("s", StandardScaler(), ["age", "fare"])], verbose_feature_names_out=False
)
MODELS: dict[str, tuple[list[str], list[Any]]] = {
    "numbers": (["age", "fare"], [Ratio()]),
    "several kinds": (["age", "city", "kids", "member"], [Cities()]),
    "one after another": (["age", "fare", "city"], [Capitals(), Capitals(), ENCODED]),
    "before another": (["age", "fare", "city"], [Capitals(), Ratio()]),
    "objects": (["city", "age"], [Arrays(), OneHotEncoder(handle_unknown="ignore")]),
    "dates": (["age", "day"], [ColumnTransformer([("d", FunctionTransformer(months), ["day"])])]),
    "of some columns": (
        ["age", "fare", "city"],
        [ColumnTransformer([("r", Ratio(), ["age", "fare"]), ("o", OneHotEncoder(), ["city"])])],
    ),
    "a series": (
        ["age", "city"],
        [
            ColumnTransformer(
                [("n", FunctionTransformer(lambda one: one.str.len().to_frame()), "city")],
                remainder="passthrough",
            )
        ],
    ),
    "texts of a column": (
        ["age", "day"],
        [
            ColumnTransformer(
                [("t", make_pipeline(FunctionTransformer(shouted), TfidfVectorizer()), "day")],
                remainder="passthrough",
            )
        ],
    ),
    "frames by set_output": (
        ["age", "fare"],
        [NAMED.set_output(transform="pandas"), FunctionTransformer(lambda it: it[["age"]] * 2)],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_steps_are_handed_the_frame_they_were_fitted_on(name: str) -> None:
    columns, steps = MODELS[name]
    frame = FRAME[columns]
    model = make_pipeline(*steps, LogisticRegression()).fit(frame, LABELS)
    with pytest.raises((UnknownEstimator, UnsupportedSetting), match="allow_python=True"):
        flour.from_sklearn(model, frame[:5])
    program = flour.from_sklearn(model, frame[:5], allow_python=True)
    assert program.inputs()["X"].names == tuple(columns)  # type: ignore[union-attr]  # a record
    with Runtime() as serving:
        serving.register("m", program)
        plans = (program.reference, oven.bake(program).run, oven.bake(program, exact=True).run)
        for block in (frame, frame[:1], frame[7:3:-1]):
            want = model.predict_proba(block)
            for call in (*plans, partial(serving.predict, "m")):
                got = call(block)["probabilities"]
                np.testing.assert_allclose(got, want, rtol=1e-12)
        row = frame[4:5].to_dict("records")
        np.testing.assert_allclose(
            serving.predict("m", row)["probabilities"], model.predict_proba(frame[4:5])
        )


@pytest.mark.parametrize("docs", ["list", "array", "series"])
def test_functions_of_documents(docs: str) -> None:
    texts: Any = {"list": list, "array": np.asarray, "series": pd.Series}[docs](FRAME["day"])
    made = FunctionTransformer(lambda it: it.str.upper() if docs == "series" else shouted(it))
    model = make_pipeline(made, TfidfVectorizer(lowercase=False)).fit(texts)
    plan = oven.bake(flour.from_sklearn(model, texts[:4], allow_python=True))
    assert (plan.run(texts)["features"] != model.transform(texts)).nnz == 0
    assert (plan.run(texts[:1])["features"] != model.transform(texts[:1])).nnz == 0


def test_what_a_frame_ends_with() -> None:
    frame = FRAME[["age", "city", "kids"]]
    made = oven.bake(flour.from_sklearn(Capitals(), frame[:4], allow_python=True)).run(frame)
    want = Capitals().transform(frame)
    assert list(made["features"]) == list(want)
    assert all((made["features"][name] == want[name]).all() for name in want)
    numbers = flour.from_sklearn(Ratio(), FRAME[["age", "fare"]][:4], allow_python=True)
    assert oven.bake(numbers).run(FRAME[["age", "fare"]])["features"].shape == (ROWS, 2)


def test_missing_values_reach_the_function() -> None:
    frame = FRAME[["age", "city"]].copy()
    frame.loc[[0, 5], "city"] = None
    frame.loc[[1, 5], "age"] = np.nan

    def gaps(rows: Any) -> Any:
        return rows.isna().astype(float)

    plan = oven.bake(flour.from_sklearn(FunctionTransformer(gaps), frame[:9], allow_python=True))
    assert plan.run(frame)["features"].tolist() == gaps(frame).to_numpy().tolist()


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (lambda rows: rows.rename(columns={"age": "years"}), "years"),
        (lambda rows: rows.assign(age=rows["city"]), "where the sample gave float64"),
        (lambda rows: rows[:1], r"\(1,\), where the sample gave"),
    ],
)
def test_a_function_that_answers_otherwise_later(late: Any, said: str) -> None:
    frame = FRAME[["age", "city"]]
    made = FunctionTransformer(lambda rows: rows if len(rows) < 9 else late(rows))
    plan = oven.bake(flour.from_sklearn(made, frame[:8], allow_python=True))
    with pytest.raises(FunctionFailed, match=said):
        plan.run(frame)


def test_a_frame_of_dates_is_refused_by_name() -> None:
    made = FunctionTransformer(lambda rows: rows.assign(when=pd.Timestamp(0)))
    with pytest.raises(UnsupportedSetting, match="a column 'when' of datetime64"):
        flour.from_sklearn(made, FRAME[["age", "city"]], allow_python=True)


def test_saved_with_its_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("frames_of_theirs")
    exec("def changed(rows):\n    return rows.assign(city=rows['city'] + '!')", module.__dict__)
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    frame = FRAME[["age", "city"]]
    program = flour.from_sklearn(FunctionTransformer(module.changed), frame, allow_python=True)
    oven.bake(program).save(tmp_path / "plan")
    got = oven.load(tmp_path / "plan", allow_python=True).run(frame)["features"]
    assert list(got["city"]) == list(frame["city"] + "!")
    monkeypatch.setattr("flour.core.callables._granted", {})
    with pytest.raises(PythonRefused):
        oven.load(tmp_path / "plan")


# --- samples ------------------------------------------------------------------------------------

ODD: dict[str, Any] = {
    "datetime": pd.date_range("2020", periods=ROWS),
    "zone": pd.date_range("2020", periods=ROWS, tz="UTC"),
    "timedelta": pd.to_timedelta(np.arange(ROWS), "D"),
    "float16": np.arange(ROWS).astype(np.float16),
    "complex": np.arange(ROWS) + 1j,
    "period": pd.period_range("2020", periods=ROWS),
    "interval": pd.interval_range(0, ROWS),
    "objects": [object() for _ in range(ROWS)],
    "lists": [[1, 2]] * ROWS,
    "bytes": [b"x"] * ROWS,
}
#: Those whose dtype a program cannot read, if it does read them.
REFUSED = ("datetime", "timedelta", "float16", "complex")


@pytest.mark.parametrize("kind", ODD)
def test_columns_of_a_sample_that_nothing_reads(kind: str) -> None:
    frame = FRAME[["age", "city"]].assign(odd=ODD[kind])
    parts = [("s", StandardScaler(), ["age"]), ("o", OneHotEncoder(), ["city"])]
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression()).fit(frame, LABELS)
    want = model.predict(frame)
    for sample in (frame[:5], frame[["age", "city"]][:5]):
        plan = oven.bake(flour.from_sklearn(model, sample))
        for rows in (frame, frame[["age", "city"]]):
            assert (plan.run(rows)["label"] == want).all()
    rows = None if kind == "lists" else frame[:20]  # a dict with a list is a block of rows
    compiled = pretzel.compile(model, sample=frame[:5], verify=rows)
    assert (compiled.predict(frame) == want).all()


@pytest.mark.parametrize("kind", REFUSED)
def test_columns_of_a_sample_that_a_program_cannot_read(kind: str) -> None:
    frame = FRAME[["age"]].assign(odd=ODD[kind])
    model = ColumnTransformer([("p", "passthrough", ["age", "odd"])]).fit(frame)
    with pytest.raises(ParameterError, match="have no place") as refused:
        flour.from_sklearn(model, frame)
    assert refused.value.where == "sample, column 'odd'"
    read = FunctionTransformer(lambda rows: rows[["odd"]])
    with pytest.raises(FlourError, match=r"have no place[\s\S]*column 'odd'"):
        flour.from_sklearn(read, frame, allow_python=True)


def test_a_column_that_the_sample_lacks_and_a_step_reads() -> None:
    frame = FRAME[["age", "fare", "city"]]
    scaled = ("s", StandardScaler(), ["fare"])
    model = ColumnTransformer([("r", FunctionTransformer(months), ["age"]), scaled]).fit(frame)
    plan = oven.bake(flour.from_sklearn(model, frame[["age"]], allow_python=True))
    np.testing.assert_allclose(plan.run(frame)["features"], model.transform(frame))
    with pytest.raises(MissingColumn, match="'age'"):
        flour.from_sklearn(model, frame[["fare"]], allow_python=True)
    with pytest.raises(MissingColumn, match="'fare'"):
        plan.run(frame[["age"]])
