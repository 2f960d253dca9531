"""Columns that nothing reads may be absent, or be anything, by every way into a plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
import runtime.bulk as pretzel
from runtime import Runtime
from runtime.cli import main
from runtime.http import Server, ServerSettings
from tests.runtime.http.client import Client

ROWS = 3
READ: dict[str, list[Any]] = {"a": [1.0, 2.0, 3.0], "city": ["Oslo", "Rome", "Oslo"]}
UNREAD: dict[str, list[Any]] = {"b": [4.0, 5.0, 6.0], "note": ["x", "y", "z"]}
DATA: dict[str, dict[str, list[Any]]] = {
    "absent": READ,
    "whole": {**READ, **UNREAD},
    "some": {"note": UNREAD["note"], **READ},
    "junk": {**READ, "b": ["?", "", "no"], "note": [1, 2, 3]},
}
EXPECTED = [12.0, 4.0, 16.0]


def program() -> flour.Flow:
    """Half of the columns of its record are read."""
    row = flour.record(a=float, b=float, city=str, note=flour.text)
    return flour.outputs(x=row["a"] * 2 + flour.where(row["city"] == "Oslo", 10.0, 0.0))


def graph_of_graphs() -> flour.Flow:
    """It passes one column on, of which the inner graph reads what it reads."""
    row = flour.record(a=float, b=float, city=str, note=flour.text)
    return flour.outputs(x=flour.model("inner")(row["a", "city"])["x"])


async def same(a: float, city: str) -> float:
    return 2 * a + (10.0 if city == "Oslo" else 0.0)


def waiting() -> flour.Flow:
    row = flour.record(a=float, b=float, city=str, note=flour.text)
    return flour.outputs(x=flour.fetch(same, row["a"], row["city"], gives=float))


@pytest.fixture(scope="module")
def plan() -> oven.Plan:
    return oven.bake(program(), background=False)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        made.register("plan", program(), background=False)
        row = flour.record(a=float, b=float, city=str, note=flour.text)
        inner = flour.outputs(x=flour.model("plan")(row)["x"])
        made.register("inner", inner, background=False)
        made.register("graph", graph_of_graphs(), background=False)
        made.register("waits", waiting(), background=False)
        yield made


@pytest.fixture(scope="module")
def client(runtime: Runtime) -> Iterator[Client]:
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        yield Client(server.port)


def rows(data: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [{name: values[i] for name, values in data.items()} for i in range(ROWS)]


BLOCKS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "columns": dict,
    "arrays": lambda data: {name: np.array(values) for name, values in data.items()},
    "dicts": rows,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
}


@pytest.fixture(scope="module", params=[False, True])
def plans(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A plan, exact or not, and as it is loaded."""
    made = oven.bake(program(), exact=request.param, background=False)
    path = tmp_path_factory.mktemp("plans") / "plan.pretzel"
    made.save(path, durable=False)
    return made, oven.load(path, background=False)


@pytest.mark.parametrize("form", BLOCKS)
@pytest.mark.parametrize("name", DATA)
def test_blocks(plans: tuple[oven.Plan, oven.Plan], name: str, form: str) -> None:
    data = BLOCKS[form](DATA[name])
    assert program().reference(data)["x"].tolist() == EXPECTED
    for plan in plans:
        assert plan.run(data)["x"].tolist() == EXPECTED
        assert plan.entry()(data)[0].tolist() == EXPECTED


@pytest.mark.parametrize("model", ["plan", "inner", "graph", "waits"])
@pytest.mark.parametrize("name", DATA)
def test_a_runtime(runtime: Runtime, name: str, model: str) -> None:
    for form, make in BLOCKS.items():
        answers = runtime.predict(model, make(DATA[name]))["x"].tolist()
        assert answers == EXPECTED, form
    for row, value in zip(rows(DATA[name]), EXPECTED, strict=True):
        assert runtime.predict(model, row)["x"] == value
        assert asyncio.run(runtime.apredict(model, row))["x"] == value
    blocks = runtime.predict_batch(model, [DATA[name]] * 2)
    assert [each["x"].tolist() for each in blocks] == [EXPECTED] * 2


DATATYPES = {float: "FP64", str: "BYTES", int: "INT64"}


def tensors(data: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": n, "shape": [len(v)], "datatype": DATATYPES[type(v[0])], "data": v}
            for n, v in data.items()
        ]
    }


def packed(data: dict[str, list[Any]]) -> tuple[bytes, dict[str, str]]:
    """The same with raw tensors."""
    body, raw = tensors(data), []
    for each in body["inputs"]:
        values = each.pop("data")
        if each["datatype"] == "BYTES":
            parts = [text.encode() for text in values]
            raw.append(b"".join(len(part).to_bytes(4, "little") + part for part in parts))
        else:
            raw.append(np.array(values).tobytes())
        each["parameters"] = {"binary_data_size": len(raw[-1])}
    head = json.dumps(body).encode()
    return head + b"".join(raw), {"Inference-Header-Content-Length": str(len(head))}


@pytest.mark.parametrize("model", ["plan", "graph", "waits"])
@pytest.mark.parametrize("name", DATA)
def test_http(client: Client, name: str, model: str) -> None:
    data, infer = DATA[name], f"/v2/models/{model}/infer"
    answers = [client.post(infer, tensors(data)), client.post(infer, *packed(data))]
    for answer in answers:
        assert answer.status == 200, answer.body
        assert answer.json["outputs"][0]["data"] == EXPECTED
    for row, value in zip(rows(data), EXPECTED, strict=True):
        one = client.post(infer, tensors({name: [each] for name, each in row.items()}))
        assert one.json["outputs"][0]["data"] == [value]
        plain = client.post(f"/predict/{model}", row)
        assert plain.status == 200, plain.body
        assert value in (plain.json, plain.json.get("x") if isinstance(plain.json, dict) else None)
    sink = pa.BufferOutputStream()
    table = pa.table(data)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
    reply = client.post(f"/predict/{model}", body, kind)
    assert reply.status == 200, reply.body
    assert pa.ipc.open_stream(reply.body).read_all()["x"].to_pylist() == EXPECTED


@pytest.mark.parametrize("name", DATA)
def test_bulk(plan: oven.Plan, name: str, tmp_path: Path) -> None:
    data = DATA[name]
    assert pretzel.pandas.predict(plan, pd.DataFrame(data))["x"].tolist() == EXPECTED
    made = pl.DataFrame(data).select(pretzel.polars.predict(plan, *data).alias("made"))
    assert made.unnest("made")["x"].to_list() == EXPECTED
    assert pa.table(plan.run_arrow(pa.table(data)))["x"].to_pylist() == EXPECTED
    plan.save(tmp_path / "plan.pretzel", durable=False)
    for ending, write in (("csv", pd.DataFrame.to_csv), ("parquet", pd.DataFrame.to_parquet)):
        rows, answers = tmp_path / f"rows.{ending}", tmp_path / f"{ending}.answers.parquet"
        write(pd.DataFrame(data), rows, index=False)
        assert (
            main(["predict", str(tmp_path / "plan.pretzel"), str(rows), "--output", str(answers)])
            == 0
        )
        assert pd.read_parquet(answers)["x"].tolist() == EXPECTED
    with duckdb.connect() as connection:
        connection.register("rows", pa.table(data))
        pretzel.duckdb.register(connection, "score", plan)
        found = connection.sql("select score(a, city).x from rows").fetchall()
        assert [value for (value,) in found] == EXPECTED


def test_several_records_and_records_that_are_read_whole() -> None:
    fields = {"a": flour.Scalar(), "b": flour.Scalar()}
    one, two = flour.record("one", fields), flour.record("two", fields)
    plan = oven.bake(flour.outputs(x=one["a"] + two["b"]), background=False)
    assert plan.run({"one": {"a": [1.0]}, "two": {"b": [2.0]}})["x"].tolist() == [3.0]
    whole = oven.bake(flour.outputs(x=one["a"], row=one), background=False)
    with pytest.raises(flour.FlourError, match="no column 'b'"):
        whole.run({"a": [1.0]})
    with pytest.raises(flour.FlourError, match="no column 'a'"):
        oven.bake(program(), background=False).run({"b": [1.0], "city": ["Oslo"]})


def test_a_sample_without_a_column_that_is_only_dropped() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "when": "2024"})
    dropping = make_column_transformer((StandardScaler(), ["a", "b"]))
    fitted = make_pipeline(dropping, LogisticRegression()).fit(frame, frame["a"] > 0)
    wanted = fitted.predict_proba(frame)
    for sample in (frame, frame[["a", "b"]]):
        plan = oven.bake(flour.from_sklearn(fitted, sample=sample), background=False)
        for data in (frame, frame[["a", "b"]]):
            np.testing.assert_allclose(plan.run(data)["probabilities"], wanted, rtol=1e-12)


@pytest.mark.parametrize("unread", [["x", "y"], ["x"], [], ("x",), np.arange(2), {"a": [1]}])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("model", ["plan", "graph", "waits"])
def test_a_row_stays_one_whatever_its_unread_columns_hold(
    runtime: Runtime, client: Client, model: str, unread: Any, *, first: bool
) -> None:
    read = {"a": 1.0, "city": "Oslo"}
    row = {"b": unread, **read} if first else {**read, "note": unread}
    for each in (row, {**row, "more": unread}):
        assert runtime.predict(model, each) == {"x": 12.0}
        assert runtime.predict(model, each, engine="inline") == {"x": 12.0}
        assert asyncio.run(runtime.apredict(model, each)) == {"x": 12.0}
        assert runtime.submit(model, each).result(10) == {"x": 12.0}
    if not isinstance(unread, np.ndarray):
        assert client.post(f"/predict/{model}", row).json in (12.0, {"x": 12.0})
