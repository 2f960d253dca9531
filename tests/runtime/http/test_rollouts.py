"""Rollouts over HTTP: begun, counted, reported, paused, aborted, shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.plans import shift

ROW = [0.0, 1.0, 2.0, 3.0]
TERMS = {"to": "m@2", "steps": [50, 100], "dwell": 600, "header": "x-user", "least": 5}
TENSOR = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64", "data": ROW}]}


BOB, ALICE = ({"Authorization": f"Bearer {each * 20}"} for each in "ba")


@contextmanager
def serving(**settings: Any) -> Iterator[tuple[Runtime, Client]]:
    """A server of two versions of a model, of which the first one answers."""
    with Runtime(executors=1) as runtime:
        for version in (1, 2):
            runtime.register("m", shift(float(version)), activate=version == 1, background=False)
        with Server(runtime, ServerSettings(port=0, max_unread=0.0, **settings)) as server:
            yield runtime, Client(server.port)


@pytest.fixture
def served() -> Iterator[tuple[Runtime, Client]]:
    with serving() as made:
        yield made


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Runtime, Client]]:
    """Alice may do all, and Bob may not change anything."""
    path = tmp_path / "tokens"
    path.write_text(f"alice {'a' * 20}\nbob {'b' * 20} predict,read\n")
    with serving(tokens=path) as made:
        yield made


def test_it_is_begun_counted_and_ended(served: tuple[Runtime, Client]) -> None:
    runtime, client = served
    begun = client.post("/v2/models/m/rollout", {**TERMS, "require": ["conversion > 1 %"]})
    assert begun.status == 200
    assert (begun.json["state"], begun.json["weight"]) == ("running", 50.0)
    versions = []
    for user in range(60):
        headers = {"X-User": str(user), "X-Request-Id": f"r{user}"}
        path, body = [("/predict/m", ROW), ("/v2/models/m/infer", TENSOR)][user % 2]
        reply = client.post(path, body, headers)
        versions.append(reply.headers["x-model-version"])
    assert {versions.count("m@1") + versions.count("m@2"), len(set(versions))} == {60, 2}
    until(
        lambda: (
            client.get("/v2/models/m/rollout").json["counts"]["m@2"]["answers"]["number"]
            == versions.count("m@2")
        )
    )
    for user in range(60):
        values = {"request": f"r{user}", "values": {"conversion": 1.0}}
        assert client.post("/v2/models/m/report", values).json == {"known": True}
    unknown = {"request": "nobody", "values": {"conversion": 1.0}}
    assert client.post("/v2/models/m/report", unknown).json == {"known": False}
    counts = client.get("/v2/models/m/rollout").json["counts"]
    assert counts["m@1"]["conversion"] == {
        "total": float(versions.count("m@1")),
        "number": versions.count("m@1"),
    }
    metrics = client.get("/metrics").body.decode()
    assert 'pretzel_rollout_weight{model="m",challenger="m@2"} 50' in metrics
    assert 'metric="conversion"' in metrics
    paused = client.post("/v2/models/m/rollout/state", {"action": "pause", "why": "lunch"})
    assert (paused.json["state"], paused.json["reason"]) == ("paused", "lunch")
    assert (
        client.post("/v2/models/m/rollout/state", {"action": "resume"}).json["state"] == "running"
    )
    ended = client.post("/v2/models/m/rollout/state", {"action": "abort", "why": "enough"})
    assert (ended.json["state"], ended.json["weight"]) == ("aborted", 0.0)
    assert runtime.endpoints.find("m").owner == "m@1"
    assert [each["event"] for each in ended.json["events"]] == [
        "started",
        "paused",
        "resumed",
        "aborted",
    ]
    assert "abort" in client.get("/").body.decode()


def test_what_cannot_be_is_refused(served: tuple[Runtime, Client]) -> None:
    _, client = served
    assert client.get("/v2/models/m/rollout").status == 404
    assert client.get("/v2/models/nobody/rollout").status == 404
    for change, said in (
        *(({"to": "m@9"}, "no version"), ({"steps": [5, 1]}, "steps"), ({"more": 1}, "more")),
        *(({"require": ["nonsense"]}, "no criterion"), ({"header": None}, "key")),
    ):
        reply = client.post("/v2/models/m/rollout", {**TERMS, **change})
        assert reply.status in {400, 404}
        assert said in reply.error
    assert client.post("/v2/models/m/rollout", TERMS).status == 200
    assert client.post("/v2/models/m/rollout", TERMS).status == 400
    assert client.post("/v2/models/m/rollout/state", {"action": "promote"}).status == 400
    assert client.post("/v2/models/m/report", {"request": "r", "values": {"c": 2}}).status == 400


def test_errors_of_the_challenger_end_it(served: tuple[Runtime, Client]) -> None:
    """What the versions refuse is counted for them: here both refuse the same."""
    runtime, client = served
    client.post("/v2/models/m/rollout", TERMS)
    for user in range(20):
        reply = client.post("/predict/m", [0.0], {"X-User": str(user)})
        assert reply.status == 400
    assert runtime.rollout("m").state == "running"


def test_changing_needs_the_right(guarded: tuple[Runtime, Client]) -> None:
    runtime, client = guarded
    assert client.post("/v2/models/m/rollout", TERMS, BOB).status == 403
    assert client.post("/v2/models/m/rollout", TERMS, ALICE).status == 200
    assert client.post("/v2/models/m/rollout/state", {"action": "abort"}, BOB).status == 403
    report = {"request": "r", "values": {"c": 1.0}}
    assert client.post("/v2/models/m/report", report, BOB).status == 200
    assert runtime.routes.history("m")[-1].who == "alice"


def test_buttons_are_for_who_may_change(guarded: tuple[Runtime, Client]) -> None:
    runtime, client = guarded
    runtime.route("m", "m@1", shadow="m@2")
    assert b"<form method" not in client.ask("GET", "/", headers=BOB).body
    page = client.ask("GET", "/", headers=ALICE).body.decode()
    (action,) = re.findall(r'action="([^"]+)"', page)
    assert client.ask("POST", action, headers=BOB).status == 403
    other = {**ALICE, "Sec-Fetch-Site": "cross-site"}
    assert client.ask("POST", action, headers=other).status == 403
    assert runtime.endpoints.find("m").owner == "m@1"
    html = {**ALICE, "Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
    reply = client.ask("POST", action, headers=html)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    assert runtime.endpoints.find("m").owner == "m@2"
    page = client.ask("GET", "/", headers=ALICE).body.decode()
    (action,) = re.findall(r'action="([^"]+)"', page)
    assert action.endswith("/rollback")
    assert client.ask("POST", action, headers=html).status == 303
    assert runtime.endpoints.find("m").owner == "m@1"
    runtime.route("m", "m@1")
    runtime.rollout("m", "m@2", header="x-user")
    for wanted in ("pause", "resume", "abort"):
        page = client.ask("GET", "/", headers=ALICE).body.decode()
        actions = [each for each in re.findall(r'action="([^"]+)"', page) if wanted in each]
        assert client.ask("POST", actions[0], headers=html).status == 303
    assert runtime.rollout("m").state == "aborted"
    assert client.ask("POST", "/v2/models/m/rollout/state?action=x", headers=ALICE).status == 400
