"""The dialects of MLflow, SageMaker, KServe and Triton: forms of bodies, which model, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tritonclient.http as triton
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tritonclient.utils import InferenceServerException

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.routing import Route
from tests.runtime.http.client import Client, Reply
from tests.runtime.plans import record_flow, shift

NUMBERS = pd.DataFrame({"a": [1.0, 2.5, -3.0, 4.0], "b": [2.0, 1.0, 0.0, 3.0]})
MIXED = NUMBERS.assign(c=["07", "v, w", "07", "é"])[["c", "a", "b"]]
TEXTS = pd.DataFrame({"text": ["good film", 'a "bad" film', "good,\n07", "bad"]})
TABLES = {"named": NUMBERS, "numbers": NUMBERS, "mixed": MIXED, "texts": TEXTS}
LABELS = ["no", "yes", "yes", "no"]


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    parts = (StandardScaler(), ["a", "b"]), (OneHotEncoder(), ["c"])
    mixed = make_pipeline(make_column_transformer(*parts), LogisticRegression())
    texts = make_pipeline(CountVectorizer(), LogisticRegression())
    with Runtime(executors=1) as made:
        made.register("named", flour.from_sklearn(LogisticRegression().fit(NUMBERS, LABELS)))
        made.register(
            "numbers", flour.from_sklearn(LogisticRegression().fit(NUMBERS.to_numpy(), LABELS))
        )
        made.register("mixed", flour.from_sklearn(mixed.fit(MIXED, LABELS)))
        made.register("texts", flour.from_sklearn(texts.fit(TEXTS["text"], LABELS)))
        yield made


def ask(runtime: Runtime, model: str | None, body: Any, kind: str = "application/json") -> Reply:
    """Ask a server that has this model as its only one for such paths."""
    settings = ServerSettings(port=0, max_unread=0.0, default_model=model)
    with Server(runtime, settings) as server:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        return Client(server.port).post("/invocations", data, {"Content-Type": kind})


def forms(table: pd.DataFrame) -> Iterator[tuple[Any, str]]:
    rows = table.to_numpy().tolist()
    plain = [row[0] for row in rows] if len(table.columns) == 1 else rows
    for body in (
        {"dataframe_split": table.to_dict("split")},
        {"dataframe_split": {"columns": list(table), "data": rows}, "params": {"x": 1}},
        *({name: table.to_dict("records")} for name in ("dataframe_records", "instances")),
        *({"instances": plain}, {"inputs": plain}, {"inputs": table.to_dict("list")}),
    ):
        yield body, "application/json"
    yield table.to_csv(index=False), "text/csv"
    yield "\ufeff" + table.to_csv(index=False).replace("\n", "\r\n"), "Text/CSV; charset=utf-8"
    yield table.to_csv(index=False, header=False), "text/csv;header=absent"
    yield "\n" + table.to_csv(index=False), "text/csv; Header=Present"
    if table is NUMBERS:
        yield table.to_csv(index=False, header=False), "text/csv"


@pytest.mark.parametrize("model", TABLES)
def test_every_form_of_a_body_is_answered_alike(runtime: Runtime, model: str) -> None:
    table = TABLES[model]
    data = table["text"].tolist() if model == "texts" else table
    wanted = np.asarray(runtime.predict(model, data)["label"]).tolist()
    for body, kind in forms(table):
        reply = ask(runtime, model, body, kind)
        assert reply.status == 200, (kind, body, reply.body)
        assert reply.json == {"predictions": wanted}, (kind, body)


PREDICTED: list[tuple[Any, Any, dict[str, Any], str]] = [
    (LogisticRegression(), LABELS, {}, "predict"),
    (LogisticRegression(), LABELS, {"default_outputs": ("probabilities",)}, "predict_proba"),
    (MultiOutputClassifier(LogisticRegression()), [[0, 2], [1, 2], [1, 1], [0, 1]], {}, "predict"),
    (PLSRegression(1), [0.5, 1.5, 2.0, 3.0], {}, "predict"),  # it has features, too
    (KMeans(2, n_init=1), None, {}, "predict"),
    (StandardScaler(), None, {}, "transform"),
]


@pytest.mark.parametrize(("original", "targets", "notes", "method"), PREDICTED)
def test_predictions_are_what_the_original_returns(
    original: Any, targets: Any, notes: dict[str, Any], method: str
) -> None:
    """In the forms of MLflow and KServe, of one row, of some, and of many; others have it all."""
    rows = NUMBERS.to_numpy()
    wanted = getattr(original.fit(rows, targets), method)(rows).tolist()
    many, settings = 20_000, ServerSettings(port=0, max_unread=0.0)
    with Runtime(executors=1) as runtime, Server(runtime, settings) as server:
        runtime.register("m", flour.from_sklearn(original), notes=notes)
        client = Client(server.port)
        for path in ("/invocations", "/v1/models/m:predict", "/v1/models/m@1:predict"):
            for count in (1, len(rows), many * len(rows)):
                body = {"instances": np.resize(rows, (count, 2)).tolist()}
                told = client.post(path, body).json["predictions"]
                want = wanted[:1] if count == 1 else wanted * (count // len(rows))
                if isinstance(want[0], str):
                    assert told == want
                else:
                    np.testing.assert_allclose(told, want, rtol=1e-9)
        every = client.post("/predict/m", rows.tolist()).json
        if not notes:
            assert every[0].keys() == flour.from_sklearn(original).outputs.keys()


def test_columns_are_found_by_name(runtime: Runtime) -> None:
    table = MIXED[["b", "c", "a"]]
    wanted = ask(runtime, "mixed", {"dataframe_records": MIXED.to_dict("records")}).body
    for body, kind in forms(table):
        if "absent" not in kind and not (isinstance(body, dict) and _by_position(body)):
            assert ask(runtime, "mixed", body, kind).body == wanted, (body, kind)


def _by_position(body: dict[str, Any]) -> bool:
    rows = body.get("instances") or body.get("inputs")
    return isinstance(rows, list) and isinstance(rows[0], list)


def test_missing_cells_are_missing_values(runtime: Runtime) -> None:
    told = ask(runtime, "numbers", "a,b\n1,\n", "text/csv")
    assert told.status == 400
    assert "NaN" in told.error or "missing" in told.error


WRONG: list[tuple[str, Any, str, str]] = [
    ("numbers", {}, "", "a body has one of these at $ (found: none); dataframe_split"),
    ("numbers", {"inputs": [[1, 2]], "instances": [[1, 2]]}, "", "found: instances, inputs"),
    ("numbers", "[[1, 2]]", "", "object"),
    ("numbers", "", "", "JSON"),
    ("numbers", {"instances": []}, "", "there is no row at $.instances"),
    ("numbers", {"inputs": {}}, "", "there is no row at $.inputs"),
    ("numbers", {"inputs": {"a": [1, 2], "b": [1]}}, "", "columns are arrays of one length"),
    ("numbers", {"inputs": {"a": 1.0, "b": 2.0}}, "", "columns are arrays of one length"),
    ("numbers", {"instances": [1.0, 2.0]}, "", "each row is an array or an object of its own"),
    ("mixed", {"instances": {"a": 1.0}}, "", "columns are arrays of one length"),
    ("numbers", {"instances": [{"a": 1, "b": 2}, {"a": 1}]}, "", "rows have the same columns"),
    ("numbers", {"instances": [{"a": 1, "b": 2}, 3]}, "", "rows have the same columns"),
    ("numbers", {"dataframe_split": {"columns": ["a"]}}, "", "data"),
    ("numbers", {"dataframe_split": {"columns": ["a"], "data": []}}, "", "expected 2 columns"),
    (
        "numbers",
        {"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], [3]]}},
        *("", "there are 2 columns at $.dataframe_split (found: 1 values in row 2)"),
    ),
    ("numbers", {"dataframe_split": {"columns": ["a"], "data": [[1]]}}, "", "expected 2 columns"),
    ("mixed", {"dataframe_records": [{"a": 1, "b": 2}]}, "", "there is no column 'c'"),
    ("numbers", "", "text/csv", "there is no row at the body"),
    ("numbers", "0,1\n3,4\n", "text/csv", "may be a header or a row at the body (found: 0,1)"),
    ("numbers", "a,b\n1,2\n3\n", "text/csv", "there are 2 columns at the body (found: 1 values"),
    ("numbers", 'a,b\n"1,2\n', "text/csv", "this is not CSV in UTF-8"),
    ("numbers", "a,b\n1,2\n1,x\n", "text/csv", "expected numbers at $[1][1] (found: str 'x')"),
    ("numbers", "a,b\n1,1_0\n", "text/csv", "expected numbers"),
    ("mixed", "c,a,b,a\nx,1,2,3\n", "text/csv", "several columns have the name 'a'"),
    ("mixed", "1,2\n", "text/csv;header=absent", "there are 3 columns"),
]


@pytest.mark.parametrize(("model", "body", "kind", "said"), WRONG)
def test_wrong_bodies_are_refused(
    runtime: Runtime, model: str, body: Any, kind: str, said: str
) -> None:
    reply = ask(runtime, model, body, kind or "application/json")
    assert (reply.status, said in reply.error) == (400, True), reply.error


def test_bytes_that_are_no_text_are_refused(runtime: Runtime) -> None:
    with Server(runtime, ServerSettings(port=0, default_model="numbers")) as server:
        reply = Client(server.port).post(
            "/invocations", b"a,b\n\xff,1", {"Content-Type": "text/csv"}
        )
    assert (reply.status, "UTF-8" in reply.error) == (400, True)


def test_which_model_is_meant(runtime: Runtime) -> None:
    body = {"inputs": [[0.0, 1.0, 2.0, 3.0]]}
    refused = ask(runtime, None, body)
    assert refused.status == 404
    assert "several models are loaded" in refused.error
    assert "default_model" in refused.error
    assert ask(runtime, "nobody", body).status == 404
    with Runtime(executors=1) as alone:
        assert "no model is loaded" in ask(alone, None, body).error
        for offset in (1.0, 2.0):
            alone.register("only", shift(offset))
        tops = [ask(alone, each, body).json["predictions"][0]["top"] for each in (None, "only@1")]
        assert tops == [5.0, 4.0]


def test_routes_and_rights_are_those_of_the_model(tmp_path: Path) -> None:
    """A route that looks at rows, too, looks at those of this form."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice {'a' * 16} predict only*\nbob {'b' * 16} predict other\n")
    alice, bob = ({"Authorization": f"Bearer {each * 16}"} for each in "ab")
    with Runtime(executors=1) as runtime:
        for _ in range(3):
            runtime.register("only", record_flow())
        rules, tenants = {"age > 50": "only@2"}, {"old": "only@1"}
        runtime.routes.put_route("only", Route("only@3", rules=rules, tenants=tenants))
        with Server(runtime, ServerSettings(port=0, max_unread=0.0, tokens=tokens)) as server:
            client = Client(server.port)

            def owner(age: float, headers: dict[str, str]) -> tuple[int, str | None]:
                body = {"inputs": {"age": [age], "income": [1.0], "city": ["Oslo"]}}
                reply = client.post("/invocations", body, headers)
                return reply.status, reply.headers.get("x-model-version")

            assert owner(41.0, alice) == (200, "only@3")
            assert owner(51.0, alice) == (200, "only@2")
            assert owner(41.0, alice | {"X-Tenant": "old"}) == (200, "only@1")
            assert owner(41.0, bob) == (403, None)
            assert owner(41.0, {}) == (401, None)
            assert client.get("/ping").status == 200, "probes have no token"
            assert client.get("/version").status == 401


def test_what_other_servers_tell_of_themselves(runtime: Runtime) -> None:
    with Server(runtime, ServerSettings(port=0)) as server:
        client = Client(server.port)
        assert client.get("/ping").json["ready"] is True
        version = client.get("/version")
        assert version.headers["content-type"] == "text/plain"
        assert version.body.decode() == client.get("/v2").json["version"]
        assert client.get("/v1/models").json == {"models": list(TABLES)}
        assert client.get("/v1/models/mixed").json == {"name": "mixed", "ready": True}
        assert client.get("/v1/models/nobody").status == 404
        instances = {"instances": NUMBERS.to_numpy().tolist()}
        assert client.post("/v1/models/numbers:predict", instances).status == 200
        server.service.leaving = True
        assert client.get("/ping").status == 503


def test_tritons_client_shows_what_is_not_there(runtime: Runtime) -> None:
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
        calls: list[tuple[Any, ...]] = [
            *((client.get_trace_settings, name) for name in (None, "mixed")),
            *((client.update_trace_settings, name, {}) for name in (None, "mixed")),
            *((client.get_log_settings,), (client.update_log_settings, {})),
            *((client.get_system_shared_memory_status, name) for name in ("", "r")),
            *((client.unregister_system_shared_memory, name) for name in ("", "r")),
            (client.register_system_shared_memory, "r", "/key", 8),
            *((client.get_cuda_shared_memory_status, name) for name in ("", "r")),
            *((client.unregister_cuda_shared_memory, name) for name in ("", "r")),
            (client.register_cuda_shared_memory, "r", b"handle", 0, 8),
        ]
        for call, *arguments in calls:
            with pytest.raises(InferenceServerException) as shown:
                call(*arguments)
            assert shown.value.status() == "501"
            assert "this server has no shared memory with clients" in str(shown.value.message())
        shared = triton.InferInput("X", [1, 2], "FP64")
        shared.set_shared_memory("r", 16)
        with pytest.raises(InferenceServerException) as shown:
            client.infer("numbers", [shared])
        assert shown.value.status() == "501"
        assert "send tensors in the body" in str(shown.value.message())
        client.close()
