"""What is told of a node that fails: its name and the kind of error; the rest is in the log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from sklearn.preprocessing import OneHotEncoder

import flour
from runtime import Runtime
from runtime.errors import NodeFailed
from runtime.http import Server, ServerSettings
from scheduler import DeadlineExceeded
from tests.house import until
from tests.runtime.http.client import Client

SECRET = "detail of http://store.inside:6379/customers"
ROW = {"a": 1.0}
BLOCK = {"a": [1.0, 2.0]}


class Lost(Exception):
    """An error of a client library."""


def raising(kind: type[BaseException]) -> Any:
    async def load(_: Any) -> Any:
        raise kind(SECRET)

    return load


async def wrong(_: Any) -> Any:
    return [SECRET] * 3


async def flour_error(_: Any) -> Any:
    raise flour.FlourError(SECRET, where=SECRET, found=SECRET, hint=SECRET)


async def chained(_: Any) -> Any:
    try:
        raise ValueError(SECRET)
    except ValueError as problem:
        raise Lost(SECRET) from problem


def graph(load: Any, **policy: Any) -> flour.Flow:
    row = flour.record(a=float)
    return flour.outputs(x=flour.fetch(load, row["a"], gives=float, name="load", **policy))


FAULTS: dict[str, tuple[Any, dict[str, Any], str, int]] = {
    "error": (raising(RuntimeError), {}, "RuntimeError", 502),
    "error of a library": (chained, {}, "Lost", 502),
    "system exit": (raising(SystemExit), {}, "SystemExit", 502),
    "late by itself": (raising(TimeoutError), {}, "TimeoutError", 504),
    "error of ours": (flour_error, {}, "FlourError", 502),
    "wrong answer": (wrong, {}, "", 502),
    "of several": ([chained, chained], {}, "Lost", 502),
    "together": (raising(RuntimeError), {"together": True}, "RuntimeError", 502),
    "again": (raising(RuntimeError), {"retries": 2, "backoff": 0.0}, "RuntimeError", 502),
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        for name, (load, policy, _, _) in FAULTS.items():
            made.register(name.replace(" ", "-"), graph(load, **policy), background=False)
        yield made


@pytest.fixture(scope="module")
def client(runtime: Runtime) -> Iterator[Client]:
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        yield Client(server.port)


@pytest.mark.parametrize("name", FAULTS)
def test_clients_are_told_no_texts_and_the_log_has_them(
    runtime: Runtime, client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, kind, status = FAULTS[name]
    model = name.replace(" ", "-")
    tensor = {"name": "a", "shape": [2], "datatype": "FP64", "data": BLOCK["a"]}
    asked = [(f"/predict/{model}", ROW), (f"/v2/models/{model}/infer", {"inputs": [tensor]})]
    with caplog.at_level(logging.WARNING, "pretzel.http"):
        for path, body in asked:
            reply = client.post(path, body)
            assert reply.status == status
            assert "detail" not in reply.error
            assert "node 'load'" in reply.error
            assert kind in reply.error
    written = "\n".join(caplog.messages) + caplog.text
    assert SECRET in written or name == "wrong answer"
    assert "Traceback" in written
    for data in (ROW, BLOCK):
        with pytest.raises(NodeFailed) as caught:
            runtime.predict(model, data)
        assert "detail" not in str(caught.value)
        assert caught.value.__cause__ is not None
    with pytest.raises(NodeFailed) as caught:
        list(runtime.predict_batch(model, [BLOCK]))
    assert "detail" not in str(caught.value)


def test_causes_survive_deadlines() -> None:
    count = [0]

    async def fails(_: float) -> float:
        raise Lost(SECRET)

    async def then_hangs(_: float) -> float:
        count[0] += 1
        if count[0] % 2:
            raise Lost(SECRET)
        await asyncio.sleep(60)
        return 0.0

    often: dict[str, Any] = {"retries": 1000, "backoff": 0.005}
    cases: list[tuple[Any, dict[str, Any], str, bool]] = [
        (fails, {"deadline": 0.05, **often}, "found  Lost", False),
        (fails, {"deadline": 0.05, "timeout": 5.0, **often}, "found  Lost", False),
        (then_hangs, {"deadline": 0.05, **often}, "2 of 1001 tries.*ended with Lost", True),
        (
            then_hangs,
            {"timeout": 0.02, "retries": 1, "backoff": 0.0},
            "timeout=0.02 s, in 2 of 2 tries.*ended with Lost",
            True,
        ),
    ]
    with Runtime(executors=1) as runtime:
        for number, (load, policy, said, late) in enumerate(cases):
            runtime.register(f"g{number}", graph(load, **policy), background=False)
            for data in (ROW, {"a": [1.0]}):
                count[0] = 0
                with pytest.raises(NodeFailed, match=said) as caught:
                    runtime.predict(f"g{number}", data)
                assert caught.value.late is late
                causes: list[type] = []
                cause = caught.value.__cause__
                while cause is not None:
                    causes, cause = [*causes, type(cause)], cause.__cause__
                assert Lost in causes
        runtime.register("long", graph(fails, **often), background=False)
        with pytest.raises(DeadlineExceeded, match="ended with Lost") as given_up:
            runtime.predict("long", ROW, timeout=0.05)
        assert isinstance(given_up.value.__cause__, Lost)


def test_a_fetch_has_a_time_limit_unless_it_is_told_otherwise() -> None:
    row = flour.record(a=float)
    usual = flour.fetch(wrong, row["a"], gives=float).node.op
    assert usual.fields()["timeout"] == 30.0
    for none in (None, 0):
        endless = flour.fetch(wrong, row["a"], gives=float, timeout=none).node.op
        assert endless.fields()["timeout"] == 0.0


def test_a_client_that_hangs_up_cancels_its_graph() -> None:
    started, ended = asyncio.Event(), []

    async def waits(_: float) -> float:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return 0.0

    with Runtime(executors=1) as runtime:
        runtime.register("waits", graph(waits), background=False)
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
            client = Client(server.port)
            body = json.dumps(ROW).encode()
            head = f"POST /predict/waits HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            with client.raw() as connection:
                connection.sendall(head.encode() + body)
                until(started.is_set)
            until(lambda: bool(ended))


@pytest.mark.parametrize("rows", [{"a": 2.0}, {"a": [1.0, 2.0]}])
def test_a_model_that_refuses_a_fetched_value_does_not_quote_it(rows: dict[str, Any]) -> None:
    async def city(a: float) -> str:
        return "Oslo" if a == 1.0 else SECRET

    row = flour.record(a=float)
    frame = pd.DataFrame({"city": ["Oslo", "Rome"]})
    known = flour.from_sklearn(OneHotEncoder(sparse_output=False).fit(frame), sample=frame)
    with Runtime(executors=1) as runtime:
        runtime.register("model", known, background=False)
        fetched = flour.fetch(city, row["a"], gives=str)
        graph = flour.outputs(x=flour.model("model")(fetched)["features"])
        runtime.register("asks", graph, background=False)
        assert runtime.predict("asks", {"a": 1.0})
        with pytest.raises(flour.FlourError, match="is not a category") as refused:
            runtime.predict("asks", rows)
        assert SECRET not in str(refused.value)
        assert "fetched values are not shown" in str(refused.value)
        with pytest.raises(flour.FlourError, match="is not a category") as own:
            runtime.predict("model", {"city": SECRET})
        assert SECRET in str(own.value), "the caller's own value is told"
        with pytest.raises(flour.FlourError, match="expected numbers") as own:
            runtime.predict("asks", {"a": "mine"})
        assert "mine" in str(own.value)
