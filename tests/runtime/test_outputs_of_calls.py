"""Some outputs of a call: named alike at every door, and answered by an entry of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

import flour
import oven
from runtime import Runtime, bulk
from runtime.cli import main
from runtime.errors import BadCall
from runtime.http import Server, ServerSettings
from scheduler import DeadlineExceeded
from tests.house import entered, until
from tests.runtime.http.client import Client

EXECUTORS = 1

X: NDArray[np.float64] = np.random.default_rng(0).normal(size=(60, 3))
PLAN = oven.bake(flour.from_sklearn(LogisticRegression().fit(X, X[:, 0] > 0)), background=False)
FRAME = pd.DataFrame(X, columns=[*"abc"])
POLARS: Any = pl.from_pandas(FRAME)
ALL = ("label", "probabilities", "scores")


class Names(str, Enum):
    """Names whose `str` is another text."""

    LABEL = "label"


@pytest.fixture(scope="module")
def serving() -> Iterator[tuple[Runtime, Client]]:
    assert bulk.polars.predict is not None  # its module gives frames their accessor
    with Runtime(executors=1) as runtime:
        runtime.register("plain", PLAN)
        runtime.register("routed", PLAN)
        runtime.register("routed", PLAN, activate=False)
        runtime.route("routed", "1", split={"2": 0.5}, header="x-user")
        assert type(runtime.predict) is BuiltinFunctionType
        with Server(runtime, ServerSettings(port=0)) as server:
            yield runtime, Client(server.port)


def tensors(client: Client, wanted: Any) -> list[str]:
    """The outputs of a request in the protocol's words."""
    named = wanted if isinstance(wanted, list | np.ndarray) else [wanted]
    x = {"name": "x", "datatype": "FP64", "shape": [1, 3], "data": X[0].tolist()}
    asked = {"inputs": [x], "outputs": [{"name": str(each)} for each in named]}
    reply = client.post("/v2/models/plain/infer", asked)
    if reply.status != 200:
        raise BadCall(reply.error)
    return [each["name"] for each in reply.json["outputs"]]


def by_query(client: Client, path: str, wanted: Any, body: Any) -> list[str]:
    """The outputs of plain JSON."""
    named = wanted if isinstance(wanted, list | np.ndarray) else [wanted]
    reply = client.post(f"{path}?outputs={','.join(map(str, named))}", body)
    if reply.status != 200:
        assert reply.status == 400
        raise BadCall(reply.error)
    (row,) = reply.json if isinstance(reply.json, list) else [reply.json]
    return list(row)


def columns(made: Any) -> list[str]:
    """The outputs in a frame of answers, or the one of a column."""
    names = made.columns if hasattr(made, "columns") else [made.name]
    return list(dict.fromkeys(str(each).partition("_")[0] for each in names))


Door = Callable[[Runtime, Client, Any], list[str]]
DOORS: dict[str, Door] = {
    "predict": lambda r, _, w: list(r.predict("plain", X[0], outputs=w)),
    "a block": lambda r, _, w: list(r.predict("plain", X, outputs=w)),
    "the method": lambda r, _, w: list(r._predict("plain", X[0], outputs=w)),
    "submit": lambda r, _, w: list(r.submit("plain", X[0], outputs=w).result()),
    "apredict": lambda r, _, w: list(asyncio.run(r.apredict("plain", X[0], outputs=w))),
    "batches": lambda r, _, w: list(next(r.predict_batch("plain", [X], outputs=w))),
    "a route": lambda r, _, w: list(r.predict("routed", X[0], outputs=w)),
    "a route later": lambda r, _, w: list(r.submit("routed", X[0], outputs=w).result()),
    "tensors": lambda _, c, w: tensors(c, w),
    "a query": lambda _, c, w: by_query(c, "/predict/plain", w, X[0].tolist()),
    "rows": lambda _, c, w: by_query(c, "/predict/plain", w, X[:1].tolist()),
    "pandas": lambda _, __, w: columns(bulk.pandas.predict(PLAN, FRAME, w)),
    "polars": lambda _, __, w: columns(POLARS.pretzel.predict(PLAN, outputs=w)),
}
WRONG: dict[str, tuple[Any, str]] = {
    "none": ([], "no output is asked for"),
    "twice": (["label", "label"], "an output is asked for twice"),
    "a number": (5, "has no output"),
    "bytes": (b"label", "has no output"),
    "unknown": (["labels"], "has no output"),
}


@pytest.mark.parametrize("name", DOORS)
def test_outputs_mean_one_thing_at_every_door(serving: tuple[Runtime, Client], name: str) -> None:
    door = partial(DOORS[name], *serving)
    assert door("label") == door(["label"]) == ["label"]
    assert door(np.array(["label", "probabilities"])) == ["label", "probabilities"]
    assert sorted(door(list(ALL[::-1]))) == list(ALL)
    if not name.endswith(("tensors", "query", "rows", "polars")):  # which have texts
        assert door(Names.LABEL) == door([Names.LABEL]) == ["label"]
    for wanted, said in WRONG.values():
        if wanted == [] and name == "tensors":  # as in the protocol's other servers, and in gRPC
            assert sorted(door(wanted)) == list(ALL)
            continue
        with pytest.raises(BadCall, match=said):
            door(wanted)


@pytest.mark.parametrize("outputs", ["", ",", "label,label", "labels"])
def test_the_program_refuses_the_same(
    outputs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PLAN.save(tmp_path / "model.pretzel")
    (tmp_path / "rows.jsonl").write_text("[1.0, 2.0, 3.0]\n")
    given = [str(tmp_path / each) for each in ("model.pretzel", "rows.jsonl")]
    assert main(["predict", *given, "--outputs", outputs])
    said = {"labels": "has no output", "label,label": "asked for twice"}
    assert said.get(outputs, "no output is asked for") in capsys.readouterr().err


OPTIONS: list[dict[str, Any]] = [
    {"outputs": None, "headers": None, "timeout": None, "priority": None, "engine": None},
    {"headers": {"x": "1"}, "tenant": "t"},
    {"timeout": 1.0},
    {"timeout": 1},
    {"priority": 3, "engine": "inline"},
    {"outputs": "label"},
    {"outputs": ["label"], "timeout": 5.0},
    {"outputs": ("scores", "label")},
    {"outputs": [*ALL]},
    {"outputs": [*ALL[::-1]]},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("data", [X[0], X[:8], X[0].tolist()])
def test_options_stay_in_machine_code(data: Any, options: dict[str, Any], runtime: Runtime) -> None:
    """As soon as an entry for the outputs is there, no function of Python's is entered."""
    runtime.register("m", PLAN, background=False)
    whole, version = runtime.predict("m", data), runtime.endpoints.find("m")
    calls = [partial(runtime.predict, "m", data, **options)]
    calls += [partial(runtime.predict, name="m", data=data, **options)]
    for call in calls:
        until(lambda call=call: not entered(call))  # type: ignore[misc]  # early
        count, found = version.counts.inline.value, call()
        assert version.counts.inline.value == count + 1
        wanted = options.get("outputs") or ALL
        assert list(found) == ([wanted] if isinstance(wanted, str) else [*wanted])
        for name, value in found.items():
            assert type(value) is type(whole[name])
            np.testing.assert_allclose(value, whole[name], rtol=1e-12)


def test_the_only_output_by_name_is_the_whole(runtime: Runtime) -> None:
    runtime.register("m", flour.from_sklearn(Ridge().fit(X, X[:, 0])), background=False)
    ask = partial(runtime.predict, "m", X[0])
    for call in (ask, partial(ask, outputs="value"), partial(ask, outputs=["value"])):
        until(lambda call=call: not entered(call))  # type: ignore[misc]  # early


def test_a_long_call_of_some_outputs_is_learned(runtime: Runtime) -> None:
    """The whole takes as long at least; a short one says nothing of it."""
    words = TfidfVectorizer(analyzer="char", ngram_range=(1, 6))
    text = "a long text with many words " * 300
    fitted = make_pipeline(words, LogisticRegression()).fit([text, "short"], [0, 1])
    runtime.register("m", flour.from_sklearn(fitted), background=False)
    version, ask = runtime.endpoints.find("m"), partial(runtime.predict, outputs="label")
    for _ in range(2500):
        ask("m", "short")
    assert runtime.direct.expected(version, 1) is None
    until(lambda: ask("m", text) and runtime.direct.expected(version, 1))
    assert not version.learned.nonblocking


def test_entries_of_outputs_go_with_the_plan(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "model.pretzel")
    with Runtime(executors=1) as runtime:
        runtime.register("m", tmp_path / "model.pretzel", background=False)
        version = runtime.endpoints.find("m")
        ask = partial(runtime.predict, "m", X[0], outputs="label")
        until(lambda: ask() and "label" in version.entry.parts)
        version.drop()
        assert not version.entry.parts
        assert list(ask()) == ["label"]


def test_wrong_options_are_the_methods_to_refuse(serving: tuple[Runtime, Client]) -> None:
    predict = serving[0].predict
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (DeadlineExceeded, {"timeout": 0}),
        (DeadlineExceeded, {"timeout": 0.0, "outputs": ["label"]}),
        (BadCall, {"timeout": float("nan")}),
        (BadCall, {"timeout": 10**400}),
        (BadCall, {"timeout": "1"}),
        (BadCall, {"priority": 1.5}),
        (BadCall, {"engine": "gpu"}),
        (BadCall, {"outputs": ([],)}),
        (TypeError, {"rows": None}),
        (TypeError, {"data": X[0]}),
        (TypeError, {"name": "plain"}),
    ]
    for kind, options in wrong:
        with pytest.raises(kind):
            predict("plain", X[0], **options)
    with pytest.raises(TypeError):
        predict("plain", outputs=["label"])  # type: ignore[call-arg]
    assert list(predict("plain", X[0], engine=str(np.str_("inline")))) == list(ALL)
