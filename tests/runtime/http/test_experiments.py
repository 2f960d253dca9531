"""Routes over HTTP: who answers, what a shadow changes (nothing), and who may change what."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import flour
from flour import Flow
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.repository.repository import Repository
from runtime.routing import Pair
from tests.house import until
from tests.runtime.http.client import Client, Reply
from tests.runtime.repository.folders import save_plan

ODD = "\u00e9\u4e2d\U0001f600"


def scored(factor: float) -> Flow:
    row = flour.record(city=flour.text, amount=float)
    return flour.outputs(score=row["amount"] * factor)


def registered(runtime: Runtime) -> Runtime:
    for version in (1, 2, 3):
        runtime.register("m", scored(float(version)), version=version, activate=version == 1)
    return runtime


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        yield registered(made)


@pytest.fixture
def client(runtime: Runtime) -> Iterator[Client]:
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        yield Client(server.port)


def infer(city: str, amount: float) -> dict[str, Any]:
    columns = (("city", "BYTES", city), ("amount", "FP64", amount))
    return {
        "inputs": [
            {"name": name, "datatype": kind, "shape": [1, 1], "data": [value]}
            for name, kind, value in columns
        ]
    }


def asked(client: Client, headers: dict[str, str] | None = None, **row: Any) -> list[Reply]:
    """The answers to one row by each of the protocols."""
    return [
        client.post("/predict/m", row, headers),
        client.post("/v1/models/m:predict", {"instances": [row]}, headers),
        client.post("/v2/models/m/infer", infer(**row), headers),
    ]


def versions(replies: list[Reply]) -> set[str | None]:
    assert all(each.status == 200 for each in replies), [each.body for each in replies]
    return {each.headers.get("x-model-version") for each in replies}


def test_requests_follow_the_route(client: Client) -> None:
    assert versions(asked(client, city="Oslo", amount=1.0)) == {None}
    route = {
        "champion": "m@1",
        "rules": {"city == 'Oslo' and amount > 100": "m@2"},
        "split": {"m@3": 100},
        "header": "X-User",
        "tenants": {"acme": "m@2"},
    }
    reply = client.ask("PUT", "/v2/models/m/route", json.dumps(route))
    assert reply.status == 200, reply.body
    assert versions(asked(client, city="Oslo", amount=1.0)) == {"m@1"}
    assert versions(asked(client, city="Oslo", amount=101.0)) == {"m@2"}
    assert versions(asked(client, {"x-user": "7"}, city="Oslo", amount=1.0)) == {"m@3"}
    assert versions(asked(client, {"X-Tenant": "acme"}, city="Oslo", amount=1.0)) == {"m@2"}
    plain, _, protocol = asked(client, {"x-user": "7"}, city="Oslo", amount=2.0)
    assert plain.json == {"score": 6.0}
    assert protocol.json["model_version"] == "3"
    named = client.post("/v2/models/m/versions/2/infer", infer("Oslo", 2.0))
    assert named.json["outputs"][0]["data"] == [4.0]
    assert "x-model-version" not in named.headers
    assert client.get("/v2/models/m/route").json == {**route, "header": "x-user", "salt": "m"}


def test_a_shadow_is_compared(client: Client, runtime: Runtime) -> None:
    runtime.route("m", "m@1", shadow="m@2")
    assert client.get("/v2/models/m/compare").json["pairs"] == 0
    asked(client, city="Oslo", amount=2.0)
    until(lambda: client.get("/v2/models/m/compare").json["pairs"])
    found = client.get("/v2/models/m/compare").json
    assert (found["champion"], found["challenger"]) == ("m@1", "m@2")
    assert found["outputs"]["score"]["agreement"] == 0
    assert found["first_difference"]
    assert client.get("/v2/models/nobody/compare").status == 404


def test_promotion_and_rollback(client: Client) -> None:
    assert client.get("/v2/models/m/route").json == {"champion": "m@1"}
    assert client.get("/v2/models/m/history").status == 404
    body = json.dumps({"champion": "m@1", "split": {"m@2": 5}, "header": "x-user"})
    assert client.ask("PUT", "/v2/models/m/route", body).status == 200
    assert client.post("/v2/models/m/promote").json["champion"] == "m@2"
    assert versions(asked(client, city="Oslo", amount=1.0)) == {None}
    assert asked(client, city="Oslo", amount=1.0)[0].json == {"score": 2.0}
    for version in ("m@2", "2", 2, "m@3"):
        champion = client.post("/v2/models/m/promote", {"version": version}).json["champion"]
        assert champion == f"m@{str(version)[-1]}"
    assert client.post("/v2/models/m/rollback").json["champion"] == "m@2"
    changes = client.get("/v2/models/m/history").json["changes"]
    assert [each["action"] for each in changes] == ["route", *["promote"] * 5, "rollback"]
    assert {each["who"] for each in changes} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"champion": "m@9"}, 404, "no version"),
        ({}, 400, "champion"),
        ({"champion": "m@1", "rules": {"citi == 'x'": "m@2"}}, 400, "no column 'citi'"),
        ({"champion": "m@1", "rules": {"city =": "m@2"}}, 400, "no condition"),
        ({"champion": "m@1", "splitt": {}}, 400, "splitt"),
        ({"champion": "m@1", "split": {"m@2": "5"}}, 400, "split"),
    ],
)
def test_wrong_routes_change_nothing(
    client: Client, body: dict[str, Any], status: int, message: str
) -> None:
    reply = client.ask("PUT", "/v2/models/m/route", json.dumps(body))
    assert reply.status == status
    assert message in reply.body.decode()
    assert client.get("/v2/models/m/history").status == 404


@pytest.mark.parametrize("at_the_start", [True, False])
def test_what_keeps_a_route_from_being_written(tmp_path: Path, *, at_the_start: bool) -> None:
    """A broken file stands in the way until it is mended or deleted; a full disk for a while."""
    save_plan(tmp_path / "m" / "1" / "model.pretzel", 1.0)
    file, body = tmp_path / "m" / "endpoint.toml", json.dumps({"champion": "m@1"})
    if at_the_start:
        file.write_text("champion")
    with Runtime(executors=1) as runtime, Repository(tmp_path, runtime, quiet_seconds=0.0) as made:
        made.load_all()
        file.write_text("champion")
        made.poll()
        with Server(runtime, ServerSettings(port=0), repository=made) as server:
            client = Client(server.port)
            refused = client.ask("PUT", "/v2/models/m/route", body)
            assert refused.status == 409
            assert "m/endpoint.toml (found: this is no TOML;" in refused.error
            assert "mend the file, or delete it" in refused.error
            file.unlink()
            full = OSError(errno.ENOSPC, "No space left on device")
            with patch("runtime.repository.route_files.write_file", side_effect=full):
                refused = client.ask("PUT", "/v2/models/m/route", body)
            assert refused.status == 507
            assert "(found: No space left on device); make room" in refused.error
            assert client.ask("PUT", "/v2/models/m/route", body).status == 200
            assert client.get("/v2/models/m/route").json["champion"] == "m@1"


class Seen:
    """Pairs, as a comparison gets them."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []

    def add(self, pair: Pair) -> None:
        self.pairs.append(pair)
        if len(self.pairs) % 2:
            raise ValueError("a comparison that fails changes nothing")


def test_a_shadow_changes_no_byte(client: Client, runtime: Runtime) -> None:
    rows: list[tuple[str, Any]] = [("Oslo", 1.5), (ODD, 1e300), ("", -0.0), ("x", "no number")]
    bodies: list[tuple[str, Any]] = [
        ("/predict/m", {"city": city, "amount": amount}) for city, amount in rows
    ]
    bodies += [("/v2/models/m/infer", infer(city, amount)) for city, amount in rows]
    bodies += [("/predict/m", [{"city": city, "amount": 2.0} for city, _ in rows])]

    def answers() -> list[tuple[int, bytes]]:
        replies = [client.post(path, body) for path, body in bodies]
        return [(each.status, each.body) for each in replies]

    before, seen = answers(), Seen()
    runtime.experiments.observe("m", seen)
    runtime.route("m", "m@1", shadow="m@2")
    assert answers() == before
    until(lambda: len(seen.pairs) == 8)  # the row without a number is refused
    answered = [each for each in seen.pairs if isinstance(each.expected, dict)]
    assert {(each.champion, each.challenger) for each in seen.pairs} == {("m@1", "m@2")}
    for pair in answered:
        assert isinstance(pair.found, dict)
        assert isinstance(pair.expected, dict)
        assert np.array_equal(2 * np.asarray(pair.expected["score"]), pair.found["score"])
    assert len(answered) >= 6


def test_metrics_and_the_page_tell_of_routes(client: Client, runtime: Runtime) -> None:
    runtime.route("m", "m@1", shadow="m@2", who="<ann>")
    asked(client, city="Oslo", amount=1.0)
    metric = 'pretzel_shadow_requests_total{model="m",version="2",state="answered"} 3'
    until(lambda: metric in client.get("/metrics").body.decode())
    page = client.get("/").body.decode()
    assert "Routes" in page
    assert "shadow m@2" in page
    assert "&lt;ann&gt;" in page


def test_rights(tmp_path: Path, runtime: Runtime) -> None:
    file = tmp_path / "tokens"
    names = {"asks": "predict", "looks": "read", "rules": "change,read", "all": ""}
    lines = [f"{name} {name * 8}-{name * 8} {rights}" for name, rights in names.items()]
    file.write_text("\n".join(lines), encoding="utf-8")
    settings = ServerSettings(port=0, tokens=str(file), tokens_required=False)
    body = json.dumps({"champion": "m@2"})

    with Server(runtime, settings) as server:
        client = Client(server.port)

        def statuses(name: str) -> tuple[int, int, int]:
            known = {"Authorization": f"Bearer {name * 8}-{name * 8}"} if name else {}
            return (
                client.post("/predict/m", {"city": "", "amount": 1.0}, known).status,
                client.get("/v2/models/m/route", **known).status,
                client.ask("PUT", "/v2/models/m/route", body, known).status,
            )

        assert statuses("asks") == (200, 403, 403)
        assert statuses("looks") == (403, 200, 403)
        assert statuses("rules") == (403, 200, 200)
        assert statuses("all") == (200, 200, 200)
        assert statuses("") == (200, 200, 403)
        assert [each.who for each in runtime.routes.history("m")] == ["rules", "all"]
