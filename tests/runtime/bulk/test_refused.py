"""Rows of frames that a plan refuses: named by their place, or answered null, or left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import flour
import oven
import runtime.bulk as pretzel
from flour.core.errors import FlourError, InputError, MissingColumn, WrongDtype
from oven import Plan
from runtime.bulk.refused import moved, separated
from runtime.errors import BadCall
from tests.runtime.bulk import models

ROWS, BAD = 40_000, 35_001
assert pretzel.pandas.predict is not pretzel.polars.predict


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Return a classifier that refuses NaN and unknown cities."""
    frame = rows()[:200]
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression()).fit(frame, np.arange(200) % 2)
    return oven.bake(flour.from_sklearn(model, sample=frame)).wait()


def rows() -> pd.DataFrame:
    """Return rows without fault."""
    cities = np.array(["Oslo", "Rome"], object)[np.arange(ROWS) % 2]
    return pd.DataFrame({"kids": np.arange(ROWS) % 5 * 1.0, "city": cities})


def wrong(column: str) -> pd.DataFrame:
    """Return rows of which one has a value in this column that is refused."""
    frame = rows()
    frame.loc[BAD, column] = {"kids": np.nan, "city": "Nowhere"}[column]
    return frame


def _polars(plan: Plan, frame: pd.DataFrame, engine: Any, **more: Any) -> Any:
    made = pl.from_pandas(frame, nan_to_null=False).lazy().pretzel.predict(plan, **more)  # type: ignore[attr-defined]
    return made.collect(engine=engine)


def _duckdb(plan: Plan, frame: pd.DataFrame, connection: Any, **more: Any) -> Any:
    connection.register("given", frame)
    pretzel.duckdb.register(connection, "f", plan, "scores", **more)
    return connection.sql("select f(kids, city) as scores from given").pl()


DOORS: dict[str, Callable[..., Any]] = {
    "pandas": lambda plan, frame, **more: frame.pretzel.predict(plan, **more),
    "polars": lambda plan, frame, **more: _polars(plan, frame, "in-memory", **more),
    "streaming": lambda plan, frame, **more: _polars(plan, frame, "streaming", **more),
    "duckdb": lambda plan, frame, **more: _duckdb(plan, frame, pretzel.duckdb.connect(), **more),
    "python": lambda plan, frame, **more: _duckdb(plan, frame, duckdb.connect(), **more),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("column", ["kids", "city"])
def test_the_row_is_named_and_may_be_null(plan: Plan, door: str, column: str) -> None:
    with pytest.raises(Exception, match=r"refuses NaN|not a category") as caught:
        DOORS[door](plan, wrong(column))
    text = str(caught.value)
    if door in {"pandas", "polars"}:
        assert f"[{BAD}]" in text or f"row {BAD}" in text
    if door != "pandas":
        assert "a chunk of " in text
    scores = DOORS[door](plan, wrong(column), on_error="null")["scores"]
    values = np.array(scores.to_numpy() if door == "pandas" else scores.to_list(), float)
    assert np.flatnonzero(np.isnan(values)).tolist() == [BAD]
    whole = plan.run(rows())["scores"]
    assert np.allclose(np.delete(values, BAD), np.delete(whole, BAD), 1e-12)


def test_rows_of_pandas_may_be_left_out(plan: Plan) -> None:
    frame = wrong("kids").set_index(pd.Index(range(7, 7 + ROWS)))
    made = frame.pretzel.predict(plan, on_error="skip")
    assert made.index.tolist() == [each for each in frame.index if each != 7 + BAD]
    assert [*made.attrs["refused"]] == [BAD]
    some = frame.pretzel.predict(plan, "label", on_error="null")
    assert some.index.equals(frame.index)
    assert some.isna().sum() == 1
    none = frame[BAD : BAD + 1].pretzel.predict(plan, on_error="skip")
    assert (len(none), list(none)) == (0, list(made))


def test_policies_are_checked(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: rows().pretzel.predict(plan, on_error="ignore"),
        lambda: pretzel.polars.predict(plan, on_error="skip"),
        lambda: pretzel.duckdb.register(duckdb.connect(), "f", plan, on_error="skip"),
    ]
    for call in calls:
        with pytest.raises(BadCall, match="no policy"):
            call()
    monkeypatch.setattr(plan, "mixes_rows", True)
    with pytest.raises(BadCall, match="depend on each other"):
        rows().pretzel.predict(plan, on_error="null")


def test_what_is_wrong_with_no_row_is_raised(plan: Plan) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda some: some.pretzel.predict(plan, on_error="null"),
        lambda some: pl.from_pandas(some).pretzel.predict(plan),  # type: ignore[attr-defined]
        lambda some: pl.from_pandas(some).lazy().pretzel.predict(plan),  # type: ignore[attr-defined]
    ]
    for frame in (rows()[["kids"]], rows()[["city"]].rename(columns={"city": "cities"})):
        for call in calls:
            with pytest.raises(MissingColumn, match="there is no column"):
                call(frame)


@pytest.mark.parametrize("bad", [[], [0], [7], [3, 4, 5], list(range(16))])
def test_rows_are_separated(bad: list[int]) -> None:
    def run(start: int, end: int) -> list[int]:
        if any(start <= row < end for row in bad):
            raise InputError("no", where="$[0]")
        return list(range(start, end))

    parts, refused = separated(run, 16)
    assert sorted(refused) == bad
    assert [row for part in parts for row in part] == [row for row in range(16) if row not in bad]


@pytest.mark.parametrize(
    ("where", "then"),
    [
        ("$.kids[4]", "$.kids[104]"),
        ("$[4].kids", "$[104].kids"),
        ("row 4, column 2 of the encoder", "row 104, column 2 of the encoder"),
        ("$.a[4][2]", "$.a[104][2]"),
        ("$.kids", "$.kids"),
        (None, None),
    ],
)
def test_places_move(where: str | None, then: str | None) -> None:
    assert moved(InputError("no", where=where), 100).where == then


# --- one column ----------------------------------------------------------------------------------


def one(kind: str) -> tuple[Plan, pd.DataFrame]:
    """Return a plan that reads one column, and rows for it."""
    if kind == "text":
        words = pd.DataFrame({"review": ["good soup", "bad soup", "good day", "awful"] * 5})
        model = make_pipeline(TfidfVectorizer(), LogisticRegression())
        return oven.bake(flour.from_sklearn(model.fit(words["review"], [0, 1] * 10))), words
    frame = pd.DataFrame({"q": np.arange(20.0)})
    if kind == "number":
        fit = LinearRegression().fit(frame.to_numpy(), np.arange(20) ** 2)
        return oven.bake(flour.from_sklearn(fit)), frame
    frame = frame.astype(str).astype(object)
    codes = make_pipeline(OneHotEncoder(), LinearRegression()).fit(frame, np.arange(20))
    return oven.bake(flour.from_sklearn(codes, sample=frame)), frame


@pytest.mark.parametrize("kind", ["text", "number", "category"])
@pytest.mark.parametrize("called", ["as fitted", "X", "any"])
def test_the_only_column(kind: str, called: str) -> None:
    plan, frame = one(kind)
    name = frame.columns[0]
    wanted = [*plan.run(frame if kind != "text" else frame[name].tolist()).values()][-1].tolist()
    if called != "as fitted":
        frame = frame.rename(columns={name: called})
    output, column = list(plan.outputs)[-1], frame.columns[0]
    many: Any = pl.from_pandas(frame)
    calls: dict[str, Callable[[], Any]] = {
        "frame": lambda: frame.pretzel.predict(plan, output),
        "series": lambda: frame[column].pretzel.predict(plan, output),
        "polars": lambda: many.pretzel.predict(plan, outputs=output)[output],
        "lazy": lambda: many.lazy().pretzel.predict(plan, outputs=output).collect()[output],
        "arrow": lambda: pa.array(plan.run_arrow(pa.Table.from_pandas(frame))[output].to_numpy()),
        "expression": lambda: many.select(pl.col(column).pretzel.predict(plan, output))[output],  # type: ignore[attr-defined]
    }
    for door, call in calls.items():
        if kind == "category" and called != "as fitted" and door not in {"series", "expression"}:
            with pytest.raises(FlourError):
                call()
            continue
        made = call()
        values = np.asarray(made.to_numpy(zero_copy_only=False) if door == "arrow" else made)
        assert np.allclose(np.stack(values.tolist()), wanted), door


def test_several_columns_for_one() -> None:
    plan, frame = one("text")
    both = frame.assign(more="x")
    calls: list[Callable[[], Any]] = [
        lambda: both.pretzel.predict(plan),
        lambda: pl.from_pandas(both).pretzel.predict(plan),  # type: ignore[attr-defined]
        lambda: plan.run_arrow(pa.Table.from_pandas(both)),
    ]
    for call in calls:
        with pytest.raises(WrongDtype, match="reads one column"):
            call()
    mixed, table = models.mixed()
    with pytest.raises(BadCall, match="reads 4 columns"):
        table.to_pandas()["age"].pretzel.predict(mixed)
