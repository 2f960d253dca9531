"""What a caller may hand in: rows and blocks of every kind, and errors that say where."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import flour
import oven
from flour.core.errors import FlourError, MissingColumn, NotRectangular, WrongDtype
from runtime import Runtime
from tests.runtime.plans import record_flow

COLUMNS: dict[str, list[Any]] = {"age": [31.0, 45.5], "income": [2.5, 1.0], "city": ["Rome", None]}
ROWS: list[dict[str, Any]] = [
    {name: column[i] for name, column in COLUMNS.items()} for i in range(2)
]
BLOCKS: dict[str, Any] = {
    "dict": COLUMNS,
    "other order": dict(reversed(COLUMNS.items())),
    "dict of arrays": {name: np.array(column, object) for name, column in COLUMNS.items()},
    "dicts": ROWS,
    "rows": [[31.0, 2.5, "Rome"], [45.5, 1.0, None]],
    "pandas": pd.DataFrame(COLUMNS),
    "polars": pl.DataFrame(COLUMNS),
    "arrow batch": pa.RecordBatch.from_pydict(COLUMNS),
    "decimals": {**COLUMNS, "age": [Decimal("31.0"), Decimal("45.5")]},
    "arrow": pa.table(COLUMNS),
    "arrow dictionary": pa.table(
        {**COLUMNS, "city": pa.array(COLUMNS["city"]).dictionary_encode()}
    ),
    "polars category": pl.DataFrame(COLUMNS).with_columns(pl.col("city").cast(pl.Categorical)),
    "pandas category": pd.DataFrame(COLUMNS).astype({"city": "category"}),
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        made.register("record", record_flow())
        x, w = flour.vector("x", 2), flour.scalar("w")
        made.register("two", flour.outputs(sum=x.add([1.0, 2.0]), w=w.multiply(2.0)))
        made.register("scalar", flour.scalar("s").multiply(2.0).named("twice"))
        yield made


def check_block(answers: dict[str, Any]) -> None:
    np.testing.assert_array_equal(answers["both"], [[62.0, 5.0], [91.0, 2.0]])
    first, second = answers["city"]
    assert first == "Rome"
    assert second is None or second != second  # noqa: PLR0124 (NaN)


@pytest.mark.parametrize("engine", ["inline", "batch"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks(runtime: Runtime, kind: str, engine: str) -> None:
    check_block(runtime.predict("record", BLOCKS[kind], engine=engine))


@pytest.mark.parametrize("engine", [None, "inline", "batch"])
def test_single_rows(runtime: Runtime, engine: str | None) -> None:
    for row in ({"city": "Rome", "income": 2.5, "age": 31}, [31.0, 2.5, "Rome"]):
        answers = runtime.predict("record", row, engine=engine)
        np.testing.assert_array_equal(answers["both"], [62.0, 5.0])
        assert answers["city"] == "Rome"


@pytest.mark.parametrize("wrap", [np.array, lambda cell: np.array(cell, object), np.asarray])
def test_cells_may_be_arrays_without_dimensions(runtime: Runtime, wrap: Any) -> None:
    rows = [{name: wrap(cell) for name, cell in row.items()} for row in ROWS]
    lists = [[row["age"], row["income"], row["city"]] for row in rows]
    for block in (rows, lists, {name: [row[name] for row in rows] for name in COLUMNS}):
        check_block(runtime.predict("record", block))
    for single in (rows[0], lists[0]):
        assert runtime.predict("record", single)["both"].tolist() == [62.0, 5.0]
    assert runtime.predict("scalar", wrap(4.0))["twice"] == 8.0
    with pytest.raises(WrongDtype, match="expected strings"):
        runtime.predict("record", {**ROWS[0], "city": np.array("2020-01-01", "M8[D]")})


def test_several_inputs(runtime: Runtime) -> None:
    one = runtime.predict("two", {"x": [1.0, 2.0], "w": 3.0})
    np.testing.assert_array_equal(one["sum"], [2.0, 4.0])
    assert one["w"] == 6.0
    two = runtime.predict("two", {"x": np.ones((2, 2)), "w": [3.0, 4.0]})
    np.testing.assert_array_equal(two["sum"], [[2.0, 3.0]] * 2)
    np.testing.assert_array_equal(two["w"], [6.0, 8.0])


def test_for_a_scalar_a_vector_is_a_block(runtime: Runtime) -> None:
    np.testing.assert_array_equal(runtime.predict("scalar", np.arange(3.0))["twice"], [0, 2, 4])
    assert runtime.predict("scalar", 4.0) == {"twice": 8.0}
    assert runtime.predict("scalar", {"s": 4.0}) == {"twice": 8.0}


@pytest.mark.parametrize(
    ("data", "kind", "where", "says"),
    [
        ({"age": 1.0, "city": "x"}, MissingColumn, "$", "'income'"),
        ([*ROWS, {"age": 1.0, "city": "x"}], MissingColumn, "$[2]", "'income'"),
        ({"age": 1.0, "incom": 2.0, "city": "x"}, MissingColumn, "$", "'incom'"),
        ({**COLUMNS, "city": ["x", 7]}, WrongDtype, "$.city[1]", "int"),
        ({"age": "old", "income": 1.0, "city": "x"}, FlourError, "$.age[0]", "'old'"),
    ],
    ids=[*("missing", "missing in a row", "misspelt", "type", "number")],
)
def test_errors_say_where(
    runtime: Runtime, data: Any, kind: type[FlourError], where: str, says: str
) -> None:
    for engine in (None, "batch"):
        with pytest.raises(kind) as caught:
            runtime.predict("record", data, engine=engine)
        assert caught.value.where == where
        assert says in str(caught.value)


def test_rows_that_are_not_there_yet(runtime: Runtime) -> None:
    with pytest.raises(WrongDtype, match="collect"):
        runtime.predict("record", pl.DataFrame(COLUMNS).lazy())


def test_ragged_rows_name_the_first_that_differs(runtime: Runtime) -> None:
    with pytest.raises(NotRectangular, match="different lengths") as caught:
        runtime.predict("record", [[31.0, 2.5, "Rome"], [45.5, 1.0]])
    assert caught.value.where == "$[1]"


def test_fractions_and_decimals_are_numbers() -> None:
    """As in an array of objects, which the original converts."""
    rows = np.random.default_rng(0).normal(size=(50, 3))
    original = Ridge().fit(rows, rows[:, 0])
    with Runtime() as runtime:
        runtime.register("m", flour.from_sklearn(original))
        for third in (Fraction(1, 3), Decimal("0.25"), np.float32(0.5)):
            want = original.predict([[float(third), 1, 2]])[0]
            assert runtime.predict("m", [third, 1, 2])["value"] == pytest.approx(want, rel=1e-12)
            many = runtime.predict("m", np.array([[third, 1, 2]] * 2, object))
            assert many["value"] == pytest.approx([want] * 2, rel=1e-12)


@pytest.mark.parametrize(
    "cell",
    [3.0, 2.5, Decimal("3.0"), Decimal("2.50"), Decimal("NaN"), Decimal("1e30"), Fraction(5, 2)],
)
def test_whole_columns_take_the_numbers_that_the_original_takes(cell: Any) -> None:
    """A fraction makes floats of a column, and is a category that was never seen."""
    fitted = pd.DataFrame({"kind": [1, 2, 3] * 20, "size": [*range(5)] * 12})
    columns = [("kind", OneHotEncoder(handle_unknown="ignore"), ["kind"])]
    encoded = ColumnTransformer([*columns, ("size", SimpleImputer(), ["size"])])
    original = make_pipeline(encoded, Ridge()).fit(fitted, fitted["kind"] ** 2 + fitted["size"])
    plan = oven.bake(flour.from_sklearn(original, sample=fitted))
    for name in fitted:
        rows = pd.DataFrame({"kind": [1, 2], "size": [1, 2]}).astype({name: object})
        rows.loc[1, name] = cell
        wanted = original.predict(rows)
        for given in (rows, rows.to_dict("records"), rows.to_dict("list")):
            assert np.allclose(plan.run(given)["value"], wanted, rtol=1e-12)


def test_categories_that_float64_would_make_one_of_two_are_told_apart() -> None:
    """Also where there is no sample, as in a command: the fitted categories say so."""
    keys = [2**53 + n for n in range(6)]
    fitted = pd.DataFrame({"key": keys * 10})
    encoder = make_column_transformer((OneHotEncoder(), ["key"]))
    original = make_pipeline(encoder, Ridge(1e-6)).fit(fitted, [*range(6)] * 10)
    plan = oven.bake(flour.from_sklearn(original))
    wanted = original.predict(pd.DataFrame({"key": keys}))
    assert len(np.unique(wanted.round(3))) == 6
    for given in (keys, [Decimal(key) for key in keys]):
        for rows in (pd.DataFrame({"key": given}), [{"key": key} for key in given]):
            assert np.allclose(plan.run(rows)["value"], wanted)
