"""Refused rows are counted by segment, each one and no other, through every door."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.runtime.http.client import Client

CITIES = ("Oslo", "Rome", "Bern")
#: Values of `age` that the model refuses, however they come.
BAD: list[Any] = [float("nan"), float("inf"), "old", None, [1.0, 2.0], {"a": 1}]


@pytest.fixture(scope="module")
def program() -> flour.Flow:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 9, 600), "city": rng.choice(CITIES, 600)})
    columns = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(columns, LogisticRegression()).fit(frame, frame["age"] > 40)
    return flour.from_sklearn(model, sample=frame)


@pytest.fixture
def runtime(program: flour.Flow) -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        made.register("m", program, background=False)
        yield made


def rows_with(bad: list[Any], count: int = 90) -> list[dict[str, Any]]:
    """Rows by turns of the cities; of Oslo none, of Rome every second, of Bern all are refused."""
    rows = []
    for number in range(count):
        city = CITIES[number % 3]
        wrong = city == "Bern" or (city == "Rome" and number % 2)
        age = bad[number % len(bad)] if wrong else 30.0 + number % 20
        rows.append({"age": age, "city": city})
    return rows


def expected(count: int = 90) -> dict[str, tuple[int, int]]:
    """Rows and errors by city."""
    third = count // 3
    return {"Oslo": (third, 0), "Rome": (third, third // 2), "Bern": (third, third)}


def _refusing(call: Callable[[], object]) -> None:
    with suppress(Exception):
        call()


def _predict(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        _refusing(lambda row=row: runtime.predict("m", row))  # type: ignore[misc]  # bound


def _address(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        _refusing(lambda row=row: runtime.predict("m@1", row, timeout=30.0))  # type: ignore[misc]


def _lists(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        _refusing(lambda row=row: runtime.predict("m", [*row.values()]))  # type: ignore[misc]


def _submit(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        _refusing(lambda row=row: runtime.submit("m", row).result())  # type: ignore[misc]


def _batch(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        _refusing(lambda row=row: runtime.predict("m", row, engine="batch"))  # type: ignore[misc]


def _block(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    _refusing(lambda: runtime.predict("m", rows))


def _columns(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    _refusing(lambda: runtime.predict("m", columns, engine="inline"))


def _frame(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    _refusing(lambda: runtime.predict("m", pd.DataFrame(rows)))


def _blocks(runtime: Runtime, rows: list[dict[str, Any]]) -> None:
    for part in (rows[:45], rows[45:]):
        _refusing(lambda part=part: list(runtime.predict_batch("m", [part])))  # type: ignore[misc]


PYTHON = [_predict, _address, _lists, _submit, _batch, _block, _columns, _frame, _blocks]


def counted(watch: Any) -> dict[str, tuple[int, int]]:
    watch.fold()
    return {cell.segment[0]: (cell.rows, cell.errors) for cell in watch.cells()}


@pytest.mark.parametrize(
    ("door", "bad"),
    [
        *((door, BAD[:1]) for door in PYTHON),
        *((door, BAD) for door in PYTHON if door is not _lists),  # a list of lists is a block
    ],
)
def test_python_counts_refused_rows(runtime: Runtime, door: Any, bad: list[Any]) -> None:
    with runtime.watch("m", segments=("city",), sample=None if bad is BAD else 1.0) as watch:
        door(runtime, rows_with(bad))
        assert counted(watch) == expected()
        assert watch.dropped == watch._observer.failed == 0


def _plain(client: Client, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        client.post("/predict/m", row)


def _plain_blocks(client: Client, rows: list[dict[str, Any]]) -> None:
    for part in (rows[:30], rows[30:]):
        client.post("/predict/m", part)


def _instances(client: Client, rows: list[dict[str, Any]]) -> None:
    client.post("/v1/models/m:predict", {"instances": rows})


def _tensors(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ages, cities = ([row[name] for row in rows] for name in ("age", "city"))
    shape = [len(rows), 1]
    return {
        "inputs": [
            {"name": "age", "datatype": "FP64", "shape": shape, "data": ages},
            {"name": "city", "datatype": "BYTES", "shape": shape, "data": cities},
        ]
    }


def _json(client: Client, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        client.post("/v2/models/m/infer", _tensors([row]))


def _json_block(client: Client, rows: list[dict[str, Any]]) -> None:
    client.post("/v2/models/m/infer", _tensors(rows))


def _binary(client: Client, rows: list[dict[str, Any]]) -> None:
    for part in (rows[:1], rows[1:2], rows[2:40], rows[40:]):
        ages = np.array([row["age"] for row in part], np.float64).tobytes()
        texts = [row["city"].encode() for row in part]
        cities = b"".join(len(each).to_bytes(4, "little") + each for each in texts)
        asked = _tensors(part)
        for each, data in zip(asked["inputs"], (ages, cities), strict=True):
            del each["data"]
            each["parameters"] = {"binary_data_size": len(data)}
        head = json.dumps(asked).encode()
        told = {"Inference-Header-Content-Length": str(len(head))}
        client.ask("POST", "/v2/models/m/infer", head + ages + cities, told)


HTTP = [_plain, _plain_blocks, _instances, _json, _json_block, _binary]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cached": {"cache_bytes": 1 << 20},
    "batched": {"batch_wait": 0.002},
}


@pytest.fixture(scope="module", params=SETTINGS)
def served(request: pytest.FixtureRequest, program: flour.Flow) -> Iterator[Any]:
    with Runtime(executors=1) as runtime:
        runtime.register("m", program, background=False)
        with Server(runtime, ServerSettings(port=0, **SETTINGS[request.param])) as server:
            yield runtime, Client(server.port)


@pytest.mark.parametrize(
    ("door", "bad"), [*((door, BAD[:1]) for door in HTTP), *((door, BAD[2:]) for door in HTTP[:-1])]
)
def test_http_counts_refused_rows(served: Any, door: Any, bad: list[Any]) -> None:
    runtime, client = served
    with runtime.watch("m", segments=("city",)) as watch:
        door(client, rows_with(bad))
        assert counted(watch) == expected()
        assert watch.dropped == watch._observer.failed == 0


def test_kept_answers_and_tenants_count_refused_rows(runtime: Runtime, tmp_path: Any) -> None:
    runtime.keep("m", tmp_path / "answers")
    with runtime.watch("m", segments=("@tenant", "city")) as watch:
        for number, row in enumerate(rows_with(BAD)):
            _refusing(lambda row=row, t="ab"[number % 2]: runtime.predict("m", row, tenant=t))  # type: ignore[misc]
        watch.fold()
        cells = {cell.segment: (cell.rows, cell.errors) for cell in watch.cells()}
    assert cells["a", "Bern"] == cells["b", "Bern"] == (15, 15)
    assert cells["a", "Oslo"] == cells["b", "Oslo"] == (15, 0)
    assert cells["b", "Rome"] == (15, 15)


def test_of_a_long_block_the_wrong_rows_alone_are_errors(runtime: Runtime) -> None:
    rows = rows_with(BAD[:1], 3000)
    for place, row in enumerate(rows):
        row["age"] = float("nan") if place in {7, 700, 1501, 1502, 2999} else 40.0
    with runtime.watch("m", segments=("city",)) as watch:
        _refusing(lambda: runtime.predict("m", rows))
        found = counted(watch)
        assert sum(each for _, each in found.values()) == 5
        assert sum(each for each, _ in found.values()) == 3000
        assert sum(sum(cell.labels.values()) for cell in watch.cells()) == 2995


def test_a_clients_mistake_is_no_error_of_the_server(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reference = pd.DataFrame(rows_with([40.0]))
    wrong: list[Any] = [3, None, b"x", {"age": {"b": 1}}, [[1]], {"age": [1.0], "city": [[1, 2]]}]
    wrong += [pd.DataFrame({"age": [[1], {}], "city": [1, object()]}), {"age": 1.0}, [], {}]
    wrong += [np.array([[object()]]), pd.DataFrame({"age": ["x"]}), [{"age": 1.0}, 7]]
    with runtime.watch("m", reference=reference, segments=("city",), outliers=("range",)) as watch:
        for data in wrong:
            for engine in (None, "inline", "batch"):
                _refusing(lambda d=data, e=engine: runtime.predict("m", d, engine=e))  # type: ignore[misc]
        watch.fold()
        assert watch._observer.failed == 0
    assert not caplog.records
