"""Blocks whose rows belong to several versions: each row's answer is that of the row alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flour
from flour.core.sparse import Sparse
from runtime import Runtime
from runtime.errors import BadCall
from runtime.http import Server, ServerSettings
from runtime.routing.blocks import merged
from tests.runtime.http.client import Client

ROWS = [
    {"country": ("UK", "DE", "caf\u00e9", "")[n % 4], "amount": float(n), "user": f"u{n}"}
    for n in range(40)
]
FRAME = pd.DataFrame(ROWS)
FORMS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: FRAME,
    "polars": lambda: pl.DataFrame(ROWS),
    "arrow": lambda: pa.Table.from_pylist(ROWS),
    "a batch of arrow": lambda: pa.RecordBatch.from_pylist(ROWS),
    "dicts": lambda: list(ROWS),
    "lists by column": lambda: {name: FRAME[name].tolist() for name in FRAME},
    "arrays by column": lambda: {name: FRAME[name].to_numpy() for name in FRAME},
    "series by column": lambda: {name: FRAME[name] for name in FRAME},
    "records": lambda: FRAME.to_records(index=False),
    "structured": lambda: np.array(
        [tuple(row.values()) for row in ROWS], [("country", "U4"), ("amount", "f8"), ("user", "U4")]
    ),
}
ROUTES: dict[str, dict[str, Any]] = {
    "split": {"split": {"m@2": 30, "m@3": 30}, "by": "user"},
    "rules": {"rules": {"country == 'UK'": "m@2", "amount > 30": "m@3"}},
    "both": {"rules": {"country == 'UK'": "m@2"}, "split": {"m@3": 50}, "by": "user"},
    "where": {"split": {"m@2": 50}, "by": "user", "where": "amount <= 20"},
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        for version in (1, 2, 3):
            row = flour.record(country=flour.Category(), amount=float)
            score = row["amount"] * float(version)
            flow = flour.outputs(score=score)
            made.register("m", flow, activate=version == 1, background=False)
        yield made


def alone(runtime: Runtime, rows: list[dict[str, Any]] = ROWS) -> list[float]:
    return [runtime.predict("m", row)["score"] for row in rows]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("form", FORMS)
def test_each_row_is_answered_as_alone(runtime: Runtime, form: str, route: str) -> None:
    runtime.route("m", "m@1", **ROUTES[route])
    expected, data = alone(runtime), FORMS[form]()
    assert len({a / b for a, b in zip(expected[1:], range(1, 40), strict=True)}) > 1
    parts = runtime.routes.by_version("m", data)
    assert parts is not None
    assert sorted(place for places in parts.values() for place in places) == list(range(40))
    assert runtime.predict("m", data)["score"].tolist() == expected
    assert runtime.submit("m", data).result()["score"].tolist() == expected
    (block,) = runtime.predict_batch("m", [data])
    assert block["score"].tolist() == expected


def test_rows_by_position(runtime: Runtime) -> None:
    runtime.route("m", "m@1", rules={"country == 'UK'": "m@2"})
    listed = [[row["country"], row["amount"]] for row in ROWS]
    expected = alone(runtime)
    for data in (listed, np.array(listed, object)):
        assert runtime.predict("m", data)["score"].tolist() == expected
    assert runtime.predict("m", listed[0])["score"] == expected[0]
    assert runtime.predict("m", [listed[4]])["score"].tolist() == expected[4:5]
    assert runtime.predict("m", FRAME[:0])["score"].tolist() == []


def test_a_block_of_one_version_is_one_call(runtime: Runtime) -> None:
    runtime.route("m", "m@1", rules={"country == 'UK'": "m@2"})
    same = FRAME[FRAME["country"] == "UK"]
    parts = runtime.routes.by_version("m", same)
    assert parts == {"m@2": list(range(len(same)))}
    assert runtime.predict("m", same)["score"].tolist() == (2 * same["amount"]).tolist()


def test_errors_name_what_is_wrong(runtime: Runtime) -> None:
    runtime.route("m", "m@1", rules={"country == 'UK'": "m@2"})
    wrong = [*ROWS[:5], {"country": "UK", "amount": "?"}]
    with pytest.raises(Exception, match="amount"):
        runtime.predict("m", wrong)
    with pytest.raises(Exception, match="amount"):
        runtime.submit("m", wrong).result()


def test_versions_that_answer_otherwise_are_told() -> None:
    row = flour.record(country=flour.Category(), amount=float)
    with Runtime(executors=1) as runtime:
        runtime.register("m", flour.outputs(score=row["amount"]), background=False)
        runtime.register("m", flour.outputs(other=row["amount"]), activate=False, background=False)
        runtime.route("m", "m@1", rules={"country == 'UK'": "m@2"})
        with pytest.raises(BadCall, match="different forms"):
            runtime.predict("m", FRAME)


def test_a_shadow_is_asked_the_champions_rows(runtime: Runtime) -> None:
    runtime.route("m", "m@1", rules={"country == 'UK'": "m@2"}, shadow="m@3")
    compared = runtime.experiments.compare("m")
    before = compared.to_dict()["pairs"]
    runtime.predict("m", FRAME)
    while compared.to_dict()["pairs"] == before:
        pass
    assert len(compared.disagreements[-1].rows) == 30  # type: ignore[arg-type] # a frame


def test_over_http(runtime: Runtime) -> None:
    runtime.route("m", "m@1", **ROUTES["both"])
    expected = alone(runtime)
    columns = {name: FRAME[name].tolist() for name in FRAME}
    tensors = [
        {
            "name": name,
            "shape": [40, 1],
            "datatype": "FP64" if name == "amount" else "BYTES",
            "data": column,
        }
        for name, column in columns.items()
    ]
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = Client(server.port)
        for body in (ROWS, columns):
            reply = client.post("/predict/m", json.dumps(body).encode())
            assert reply.status == 200, reply.body
            assert _scores(reply.json) == expected
            assert set(reply.headers["x-model-version"].split(", ")) == {"m@1", "m@2", "m@3"}
        # A protocol that names a model's inputs has no other columns: a header would do.
        runtime.route("m", "m@1", **ROUTES["rules"])
        expected = alone(runtime)
        reply = client.post("/v2/models/m/infer", {"inputs": tensors})
        assert reply.status == 200, reply.body
        (output,) = reply.json["outputs"]
        assert output["data"] == expected


def _scores(answer: Any) -> list[float]:
    if isinstance(answer, list):
        return [row["score"] for row in answer]
    found: list[float] = answer["score"]
    return found


def test_sparse_answers_are_put_together() -> None:
    from scipy.sparse import issparse
    from sklearn.preprocessing import OneHotEncoder

    frame = FRAME[["country"]]
    program = flour.from_sklearn(OneHotEncoder().fit(frame), frame)
    with Runtime(executors=1) as runtime:
        for version in (1, 2):
            runtime.register("m", program, activate=version == 1, background=False)
        (want,) = runtime.predict("m", frame).values()
        runtime.route("m", "m@1", split={"m@2": 50}, by="user")
        assert len(runtime.routes.by_version("m", FRAME) or ()) == 2
        (found,) = runtime.predict("m", FRAME).values()
        assert issparse(found)
        assert np.array_equal(found.toarray(), want.toarray())
    parts = [([2, 0], {"x": Sparse.of(np.eye(2, 3))}), ([1], {"x": Sparse.of(np.zeros((1, 3)))})]
    made = merged(parts)["x"]
    assert np.array_equal(made.toarray(), [[0, 1, 0], [0, 0, 0], [1, 0, 0]])
