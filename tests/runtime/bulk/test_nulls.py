"""A null among words is what the model knows for missing: NaN, or else None, through every door."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import flour
import oven
import runtime.bulk as pretzel
from oven import Plan
from runtime import Runtime
from runtime.cli import main
from runtime.http import Server, ServerSettings
from tests.runtime.http.client import Client

RNG = np.random.default_rng(3)
ROWS = pd.DataFrame(
    {
        "city": RNG.choice(["Oslo", "Rome", "a much longer name than that", ""], 300),
        "age": RNG.normal(40, 9, 300),
    }
)
ROWS["city"] = ROWS["city"].astype(object)
HOLES = RNG.uniform(size=300) < 0.3
Y = HOLES ^ (ROWS["age"] > 45)


def encoder(kind: str) -> Any:
    return {
        "categories": OneHotEncoder(handle_unknown="ignore"),
        "codes": OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-7, encoded_missing_value=-3
        ),
        "strict": OneHotEncoder(),
        "most frequent": make_pipeline(
            SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
        ),
    }[kind]


def fitted(kind: str, missing: float | None) -> tuple[Plan, Any, pd.DataFrame]:
    """A plan, its model, and its rows with this for what is missing."""
    rows = ROWS.copy()
    rows.loc[HOLES, "city"] = missing
    columns = make_column_transformer((encoder(kind), ["city"]), ("passthrough", ["age"]))
    model = make_pipeline(columns, LogisticRegression()).fit(rows, Y)
    return oven.bake(flour.from_sklearn(model, sample=rows), background=False), model, rows


def _dictionary(table: pa.Table) -> pa.Table:
    return table.set_column(0, "city", table["city"].dictionary_encode())


def _views(table: pa.Table) -> pa.Table:
    return table.set_column(0, "city", table["city"].cast(pa.string_view()))


def _duckdb(plan: Plan, table: pa.Table) -> Any:
    connection = pretzel.duckdb.connect()
    connection.register("given", table)
    connection.execute("create table rows as select * from given")
    pretzel.duckdb.register(connection, "f", plan, outputs="scores")
    return [row[0] for row in connection.execute("select f(city, age) from rows").fetchall()]


def _parquet(plan: Plan, table: pa.Table, folder: Path) -> Any:
    plan.save(folder / "m.pretzel")
    pq.write_table(table, folder / "rows.parquet")
    places = (folder / "m.pretzel", folder / "rows.parquet", "--output", folder / "to.parquet")
    assert main(["predict", *map(str, places)]) == 0
    return pq.read_table(folder / "to.parquet")["scores"]


def _http(plan: Plan, table: pa.Table) -> Any:
    stream, kind = io.BytesIO(), "application/vnd.apache.arrow.stream"
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    with Runtime(executors=1) as runtime, Server(runtime, ServerSettings(port=0)) as server:
        runtime.register("m", plan)
        headers = {"Content-Type": kind, "Accept": kind}
        reply = Client(server.port).post("/predict/m", stream.getvalue(), headers)
    return pa.ipc.open_stream(reply.body).read_all()["scores"]


Door = Callable[[Plan, pa.Table, Path], Any]
DOORS: dict[str, Door] = {
    "batches": lambda plan, table, _: plan.run_arrow(table)["scores"],
    "dictionaries": lambda plan, table, _: plan.run_arrow(_dictionary(table))["scores"],
    "views": lambda plan, table, _: plan.run_arrow(_views(table))["scores"],
    "table": lambda plan, table, _: plan.run(table)["scores"],
    "batch": lambda plan, table, _: plan.run(table.to_batches()[0])["scores"],
    "polars": lambda plan, table, _: plan.run(pl.from_arrow(table))["scores"],
    "expression": lambda plan, table, _: pl.DataFrame(table).select(
        pretzel.polars.predict(plan, outputs="scores")
    )["scores"],
    "one row each": lambda plan, table, _: [
        plan.run(pl.from_arrow(table.slice(row, 1)))["scores"][0] for row in range(len(table))
    ],
    "duckdb": lambda plan, table, _: _duckdb(plan, table),
    "parquet": _parquet,
    "http": lambda plan, table, _: _http(plan, table),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        *((kind, np.nan) for kind in ("categories", "codes", "strict", "most frequent")),
        *((kind, None) for kind in ("categories", "codes", "strict")),
    ],
)
def test_a_null_is_what_the_model_was_fitted_on(
    kind: str, missing: float | None, door: str, tmp_path: Path
) -> None:
    plan, model, rows = fitted(kind, missing)
    table = pa.table({"city": pa.array(rows["city"], from_pandas=True), "age": rows["age"]})
    assert table["city"].null_count == HOLES.sum()
    scores = np.asarray(DOORS[door](plan, table, tmp_path))
    np.testing.assert_allclose(scores, model.decision_function(rows), rtol=1e-9)


def test_none_in_rows_stays_none() -> None:
    plan, model, rows = fitted("categories", np.nan)
    rows.loc[HOLES, "city"] = None
    for form in (rows, rows.to_dict("records"), {name: rows[name].tolist() for name in rows}):
        np.testing.assert_allclose(plan.run(form)["scores"], model.decision_function(rows))
