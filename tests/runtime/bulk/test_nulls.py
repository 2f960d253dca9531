"""A null among words is what the model knows for missing: NaN, or else None, through every door."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
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
from runtime.verify import verify_forms
from tests.house import entered
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
    with (
        Runtime(executors=1) as runtime,
        Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server,
    ):
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


# --- dicts, lists and JSON -----------------------------------------------------------------------


def records(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as JSON has them."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def lists(table: pa.Table) -> list[list[Any]]:
    """Return rows by position."""
    return [list(row.values()) for row in records(table)]


def _each(plan: Plan, rows: list[Any]) -> list[float]:
    with Runtime(executors=1) as runtime:
        runtime.register("m", plan)
        return [runtime.predict("m", row)["scores"] for row in rows]


def _json(plan: Plan, path: str, *bodies: object) -> list[Any]:
    with (
        Runtime(executors=1) as runtime,
        Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server,
    ):
        runtime.register("m", plan)
        client = Client(server.port)
        replies = [client.post(path, json.dumps(body).encode()) for body in bodies]
        assert all(reply.status == 200 for reply in replies), replies[0].body
        return [json.loads(reply.body) for reply in replies]


def _jsonl(plan: Plan, table: pa.Table, folder: Path) -> Any:
    plan.save(folder / "m.pretzel")
    lines = "".join(json.dumps(row) + "\n" for row in records(table))
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    places = (folder / "m.pretzel", folder / "rows.jsonl", "--output", folder / "to.parquet")
    assert main(["predict", *map(str, places)]) == 0
    return pq.read_table(folder / "to.parquet")["scores"]


def _tensors(table: pa.Table) -> dict[str, Any]:
    shape, columns = [len(table), 1], table.to_pydict()
    kinds = {name: "FP64" if name == "age" else "BYTES" for name in columns}
    return {
        "inputs": [
            {"name": name, "datatype": kinds[name], "shape": shape, "data": data}
            for name, data in columns.items()
        ]
    }


def _scores(replies: list[Any]) -> list[float]:
    return [row["scores"] for row in replies[0]]


def _of_tensors(reply: dict[str, Any]) -> list[float]:
    return next(each["data"] for each in reply["outputs"] if each["name"] == "scores")


def _entry(plan: Plan, data: Any) -> Any:
    return dict(zip(plan.outputs, plan.entry()(data), strict=True))["scores"]


PLAIN: dict[str, Door] = {
    "dicts": lambda plan, table, _: plan.run(records(table))["scores"],
    "dicts, then with nulls": lambda plan, table, _: [
        plan.run(records(rows))["scores"] for rows in (table.drop_null(), table)
    ][1],
    "lists": lambda plan, table, _: plan.run(lists(table))["scores"],
    "tuples": lambda plan, table, _: plan.run([*map(tuple, lists(table))])["scores"],
    "columns": lambda plan, table, _: plan.run(table.to_pydict())["scores"],
    "entry": lambda plan, table, _: [_entry(plan, row) for row in records(table)],
    "entry by position": lambda plan, table, _: [_entry(plan, row) for row in lists(table)],
    "entry of blocks": lambda plan, table, _: _entry(plan, records(table)),
    "rows": lambda plan, table, _: _each(plan, records(table)),
    "rows by position": lambda plan, table, _: _each(plan, lists(table)),
    "first calls": lambda plan, table, _: oven.bake(plan.flow, background=True).run(records(table))[
        "scores"
    ],
    "jsonl": _jsonl,
    "http rows": lambda plan, table, _: [
        reply["scores"] for reply in _json(plan, "/predict/m", *records(table))
    ],
    "http block": lambda plan, table, _: _scores(_json(plan, "/predict/m", records(table))),
    "http columns": lambda plan, table, _: _scores(_json(plan, "/predict/m", table.to_pydict())),
    "http tensors": lambda plan, table, _: _of_tensors(
        _json(plan, "/v2/models/m/infer", _tensors(table))[0]
    ),
}


KINDS = [("strict", door) for door in PLAIN]
KINDS += [(k, d) for k in ("categories", "most frequent") for d in ("dicts", "columns", "rows")]


@pytest.mark.parametrize(("kind", "door"), KINDS)
def test_a_null_of_json_is_missing(kind: str, door: str, tmp_path: Path) -> None:
    plan, model, rows = fitted(kind, np.nan)
    table = pa.table({"city": pa.array(rows["city"], from_pandas=True), "age": rows["age"]})
    made = np.asarray(PLAIN[door](plan, table[:120] if "http" in door else table, tmp_path))
    wanted = model.decision_function(rows)
    np.testing.assert_allclose(made, wanted[: len(made)], rtol=1e-9)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_nobody_looks_for_nulls_that_mean_none(missing: float | None) -> None:
    plan, _, rows = fitted("categories", missing)
    assert not plan.reader.nulls.idle, "nobody has asked yet"
    plan.run(rows.dropna().to_dict("records"))
    assert plan.reader.nulls.idle is (missing is None)


def two() -> tuple[Plan, Any, pd.DataFrame]:
    """Return a model of a column with NaN, one with None, one with both; its rows, also as JSON."""
    rows = pd.DataFrame(dict.fromkeys(("nan", "none", "both"), ROWS["city"]), dtype=object)
    rows.loc[HOLES, "nan"] = np.nan
    for name in ("none", "both"):
        values = rows[name].to_numpy(object).copy()
        values[np.roll(HOLES, 5)] = None
        if name == "both":
            values[::7] = np.nan
        rows[name] = pd.Series(values, dtype=object)
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), list(rows)))
    model = make_pipeline(columns, LogisticRegression()).fit(rows, Y)
    return oven.bake(flour.from_sklearn(model, sample=rows), background=False), model, rows


@pytest.mark.parametrize("door", ["dicts", "lists", "columns", "entry", "rows", "http block"])
def test_each_column_has_a_null_of_its_own(door: str, tmp_path: Path) -> None:
    plan, model, rows = two()
    meant = rows.copy()
    meant["both"] = rows["both"].where(rows["both"].notna(), None).astype(object)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    made = np.asarray(PLAIN[door](plan, table, tmp_path))
    np.testing.assert_allclose(made, model.decision_function(meant), rtol=1e-9)


def test_frames_and_arrays_say_what_they_mean() -> None:
    plan, model, rows = two()
    np.testing.assert_allclose(plan.run(rows)["scores"], model.decision_function(rows))
    plan, model, rows = fitted("categories", np.nan)
    rows["city"] = rows["city"].where(rows["city"].notna(), None).astype(object)
    wanted = model.decision_function(rows)  # None is an unknown category
    arrays = {name: rows[name].to_numpy() for name in rows}
    for form in (rows, arrays, rows.to_numpy(object), [*rows[["age", "city"]].itertuples()]):
        np.testing.assert_allclose(plan.run(form)["scores"], wanted)
    call, scores = plan.entry(), [*plan.outputs].index("scores")
    np.testing.assert_allclose([call(row)[scores] for _, row in rows.iterrows()], wanted)
    verify_forms(plan, rows, plan.run(rows))  # None in Python's own rows is what JSON's null is


def test_columns_as_arrays_go_by_machine_code_alone() -> None:
    plan, model, rows = fitted("categories", np.nan)
    call, age = plan.entry(), rows["age"].to_numpy()
    arrays = {"age": age, "city": rows["city"].to_numpy()}
    assert len(call(arrays)) == len(plan.outputs)
    assert (entered(partial(call, arrays)), plan.reader.nulls.idle) == ([], False)
    cities = rows["city"].where(rows["city"].notna(), None).tolist()
    for form in (arrays, {"age": age, "city": cities}, {"city": cities, "age": age}):
        found = dict(zip(plan.outputs, call(form), strict=True))
        np.testing.assert_allclose(found["scores"], model.decision_function(rows), rtol=1e-9)


def test_what_a_caller_hands_in_is_not_changed() -> None:
    plan, _, rows = fitted("categories", np.nan)
    given: Any = [{"city": None, "age": 3.0}, {"city": "Oslo", "age": 4.0}]
    before = json.dumps(given)
    for form in (given, {"city": [None, "Oslo"], "age": [3.0, 4.0]}, [[None, 3.0], ["Oslo", 4.0]]):
        text = json.dumps(form)
        plan.run(form)
        assert json.dumps(form) == text
    assert json.dumps(given) == before
    assert len(rows)
