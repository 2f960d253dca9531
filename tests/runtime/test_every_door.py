"""Every door answers alike: gRPC as HTTP, in every form of rows; and batches of no rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import flour
from flour.core.errors import InputError
from runtime import Runtime
from runtime.client import CallFailed
from runtime.http import Server, ServerSettings
from tests.runtime.http.client import Client
from tests.runtime.test_server_client import once

NUMBERS = pd.DataFrame({"a": [1.0, 2.5, -3.0, 4.0], "b": [2.0, 1.0, 0.0, 3.0]})
MIXED = NUMBERS.assign(c=["07", "v, w", "07", "é"])
FRAMES = {
    **dict.fromkeys(("numbers", "multi", "graph"), NUMBERS),
    "mixed": MIXED,
    "texts": pd.DataFrame({"X": ["good film", "", "é bad", "bad"]}),
}
LABELS, PAIRS = [True, False, False, True], [["x", 1], ["y", 2], ["x", 2], ["y", 1]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    encoder = make_column_transformer((OneHotEncoder(), ["c"]), remainder="passthrough")
    model = LogisticRegression
    with Runtime(executors=1) as runtime:
        for name, made in {
            "numbers": model().fit(NUMBERS.to_numpy(), LABELS),
            "multi": MultiOutputClassifier(model()).fit(NUMBERS.to_numpy(), PAIRS),
            "mixed": make_pipeline(encoder, model()).fit(MIXED, ["no", "yes", "yes", "no"]),
            "texts": make_pipeline(CountVectorizer(), model()).fit(FRAMES["texts"]["X"], LABELS),
        }.items():
            runtime.register(name, flour.from_sklearn(made), background=False)
        row = flour.record(a=float, b=float)
        inner = flour.model("numbers")(row.columns(["a", "b"]))
        nested = flour.outputs(whole=inner, twice=row["a"] * 2.0)
        runtime.register("graph", nested, background=False)
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as made_server:
            yield made_server


def forms(name: str, frame: pd.DataFrame) -> dict[str, Any]:
    """The rows in each form of a client; some models have no names of columns."""
    array = frame["X"].to_numpy(object) if name == "texts" else frame.to_numpy()
    listed = frame.to_dict("records") if name in {"mixed", "graph"} else array.tolist()
    made = {"pandas": frame, "polars": pl.from_pandas(frame), "columns": frame.to_dict("list")}
    made |= {"arrow": pa.Table.from_pandas(frame, preserve_index=False), "rows": listed}
    made |= {"row": listed[0]} if listed else {}
    return made if name in {"mixed", "graph"} else {**made, "array": array}


def told(value: Any) -> Any:
    """Everything of an answer that a caller can see."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tolist()
    if isinstance(value, pd.DataFrame):
        return repr(value.to_dict("list")), value.dtypes.to_dict(), value.index.tolist()
    if isinstance(value, pa.Table | pl.DataFrame):
        return value.schema, (value.to_pylist() if isinstance(value, pa.Table) else value.rows())
    return {k: told(v) for k, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("name", FRAMES)
def test_clients_of_http_and_grpc_answer_alike(server: Server, name: str) -> None:
    for form, rows in forms(name, FRAMES[name]).items():
        ways = product(("http", "grpc"), (False, True))
        found = [told(once(server.url, name, rows, loop=x, protocol=p)) for p, x in ways]
        assert found == [found[0]] * 4, form


ODD = (1j, b"07", np.datetime64("2020-01-01"), "\ud800", np.void(b"ab"), object(), {1.0}, pd.NaT)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_no_form_holds_is_refused_by_its_place(server: Server, protocol: str) -> None:
    def refused(rows: Any, place: str, model: str = "mixed") -> None:
        with pytest.raises(InputError) as caught:
            once(server.url, model, rows, loop=False, protocol=protocol)
        where, _, hint = str(caught.value).partition("hint")
        assert (place in where, hint != "") == (True, True), caught.value

    row = {"a": 1.0, "b": 2.0, "c": "07"}
    for odd in ODD:
        refused([row, {**row, "c": odd}], "rows[1]['c']")
        refused([[1.0, 2.0], [1.0, odd]], "rows[1][1]", "numbers")
        refused({"a": [1.0] * 2, "b": [1.0] * 2, "c": ["07", odd]}, "rows['c']")
    for rows, place in (
        (iter([row]), "list_iterator"),
        ({"a": [1.0], "b": [10**400], "c": ["07"]}, "rows['b']"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), "names found: ['a', 'a']"),
        (pd.DataFrame({"a": [1.0, "x"], "b": 1.0, "c": "07"}), "column a"),
        (np.ones((2, 2), complex), "rows[0][0]"),
    ):
        refused(rows, place)
    uneven = {"a": [1.0], "b": [1.0], "c": ["07", "é"]}
    with pytest.raises(CallFailed, match="a: 1, b: 1, c: 2"):
        once(server.url, "mixed", uneven, loop=False, protocol=protocol)
    for number in (np.inf, np.float32(np.inf)):  # which is no missing number
        with pytest.raises(CallFailed, match="infinity"):
            once(server.url, "mixed", [row, {**row, "a": number}], loop=False, protocol=protocol)


def outline(value: Any) -> Any:
    """Names, types and widths of an answer, whatever its rows."""
    if isinstance(value, dict):
        return {key: outline(each) for key, each in value.items()}
    if isinstance(value, pd.DataFrame):
        return value.dtypes.to_dict()
    return value.schema if hasattr(value, "schema") else (value.dtype, value.shape[1:])


@pytest.mark.parametrize("name", FRAMES)
def test_no_rows_have_answers_of_no_rows(server: Server, name: str) -> None:
    """In the form of any answers, from Python and by clients; `[]` says no columns."""
    runtime, full, none = server.service.runtime, *(forms(name, FRAMES[name][:n]) for n in (4, 0))
    form = "rows" if name == "texts" else "pandas"
    some, *empty = runtime.predict_batch(name, [full[form], none[form]])
    assert [*map(outline, empty)] == [outline(some)] == [outline(runtime.predict(name, none[form]))]
    for (form, rows), protocol in product(none.items(), ("http", "grpc")):
        ask = partial(once, server.url, name, loop=False, protocol=protocol)
        if form != "rows":
            assert outline(ask(rows=rows)) == outline(ask(rows=full[form])), form
        elif name == "texts":
            assert ask(rows=[]) == []
        else:
            with pytest.raises(CallFailed, match="there is no row"):
                ask(rows=[])


@pytest.mark.parametrize("name", FRAMES)
def test_bodies_of_no_rows(server: Server, name: str) -> None:
    """Each has an empty answer; 400 where it says no columns, and the model has some."""
    runtime, names, wide = server.service.runtime, list(FRAMES[name]), name != "texts"
    columns: dict[str, list[Any]] = {each: [] for each in names}
    lines = ",".join(names).encode() + b"\n"
    split, predict = {"columns": names, "data": []}, f"/predict/{name}"
    table: list[tuple[str, Any, bool]] = [
        (predict, [], not wide),
        (f"/v1/models/{name}:predict", {"instances": []}, not wide),
        *(("/invocations", {form: []}, not wide) for form in ("instances", "inputs")),
        ("/invocations", {"dataframe_records": []}, not wide),
        ("/invocations", {"inputs": {}}, False),
        ("/invocations", {"inputs": columns}, True),
        ("/invocations", {"dataframe_split": split}, True),
        ("/invocations", b"", False),
        ("/invocations", lines, True),
        *([(predict, columns, True)] if wide else ()),
    ]
    settings = ServerSettings(port=0, max_unread=0.0, default_model=name)
    with Server(runtime, settings) as own:
        for path, body, good in table:
            kind = "text/csv; header=present" if isinstance(body, bytes) else "application/json"
            reply = Client(own.port).post(path, body, {"content-type": kind})
            assert reply.status == (200 if good else 400), (path, body, reply.body)
            if good:
                assert reply.json in ([], {"predictions": []}), (path, body)
            else:
                assert "no row" in reply.error
