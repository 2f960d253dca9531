"""Rollouts with several workers: judged by the supervisor, from what all of them have counted."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.house import until
from tests.runtime.repository.folders import save_plan
from tests.runtime.workers.house import ROW, Served, alive, serving
from tests.runtime.workers.test_worker_routes import put

TERMS = {"to": "m@2", "steps": [50, 100], "dwell": 600, "header": "x-user", "least": 5}
_users = itertools.count()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in (1, 2):
        save_plan(tmp_path / "m" / str(version) / "model.pretzel", float(version))
    (tmp_path / "m" / "endpoint.toml").write_text('champion = "m@1"')
    return tmp_path


def request(served: Served) -> tuple[str, str]:
    """One request on a new connection, which may be any worker's: its id, and who answered."""
    user = next(_users)
    connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
    try:
        headers = {"x-user": str(user), "x-request-id": f"r{user}"}
        connection.request("POST", "/predict/m", json.dumps(ROW), headers)
        response = connection.getresponse()
        response.read()
        return f"r{user}", response.headers["x-model-version"]
    finally:
        connection.close()


@contextmanager
def traffic(served: Served) -> Iterator[None]:
    """Requests as long as this lasts; those that are lost with a worker are asked no more."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            with suppress(OSError, HTTPException):
                request(served)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


def rollout(served: Served) -> Any:
    status, found = served.ask("/v2/models/m/rollout")
    assert status == 200, found
    return found


def numbers(found: Any, metric: str = "answers") -> dict[str, int]:
    return {owner: counts[metric]["number"] for owner, counts in found["counts"].items()}


def kill_a_worker(served: Served) -> None:
    first, before = served.workers()[0], set(served.workers().values())
    os.kill(first, signal.SIGKILL)
    until(lambda: len(set(served.workers().values()) - before) == 1 and not alive(first))


def test_what_every_worker_counts_is_one_rollout(folder: Path) -> None:
    with serving(folder, 2, "--poll", "0.05") as served:
        status, begun = put(served, "rollout", {**TERMS, "require": ["conversion > 1 %"]})
        assert (status, begun["state"], begun["weight"]) == (200, "running", 50.0)
        assert put(served, "rollout", TERMS)[0] == 400  # there is one, whichever worker is asked
        answered = dict(request(served) for _ in range(100))
        seen = Counter(answered.values())
        assert set(seen) == {"m@1", "m@2"}
        for _ in range(6):
            assert numbers(rollout(served)) == seen
        for number in answered:  # a value counts once, though it comes to two workers
            said = {"request": number, "values": {"conversion": 1.0}}
            told = [served.ask("/v2/models/m/report", said)[1] for _ in range(2)]
            assert told == [{"known": True}] * 2
        assert served.ask("/v2/models/m/report", {**said, "request": "?"})[1] == {"known": False}
        assert numbers(rollout(served), "conversion") == seen
        with urlopen(f"{served.url}/metrics", timeout=60) as response:
            lines = response.read().decode().splitlines()
        shown = [each for each in lines if each.startswith("pretzel_rollout_")]
        assert 'pretzel_rollout_weight{model="m",challenger="m@2"} 50' in shown
        labels = 'model="m",version="2",metric="answers"'
        assert f"pretzel_rollout_values_total{{{labels}}} {seen['m@2']}" in shown
        kill_a_worker(served)
        assert numbers(rollout(served)) == seen  # it was asked before it died
        more = Counter(request(served)[1] for _ in range(60))
        assert numbers(rollout(served)) == seen + more  # and the next one counts
        for action, state in (("pause", "paused"), ("resume", "running"), ("abort", "aborted")):
            status, acted = put(served, "rollout/state", {"action": action})
            assert (status, acted["state"]) == (200, state)
        assert put(served, "rollout/state", {"action": "abort"})[0] == 400
        assert {request(served)[1] for _ in range(20)} == {None}  # the champion's alone
        assert numbers(rollout(served)) == seen + more


def test_it_is_promoted_though_a_worker_and_the_supervisor_are_killed(folder: Path) -> None:
    terms = {**TERMS, "steps": [20, 40, 60, 80, 100], "dwell": 1.0}
    with serving(folder, 2, "--poll", "0.05") as served:
        assert put(served, "rollout", terms)[0] == 200
        with traffic(served):
            kill_a_worker(served)
            until(lambda: rollout(served)["step"] >= 1)
        started = [each["process"] for each in served.of("started")]
        served.stop(signal.SIGKILL)
        until(lambda: not any(alive(each) for each in started), "a worker is left behind")
        before = json.loads((folder / "m" / "endpoint.rollout").read_text())
    with serving(folder, 2, "--poll", "0.05") as served:
        again = rollout(served)
        assert again["step"] >= before["step"]
        assert again["events"][: len(before["events"])] == [
            dict(zip(again["events"][0], each, strict=True)) for each in before["events"]
        ]
        counted = before["reports"].values()
        for owner, found in numbers(again).items():
            assert found >= sum(each[owner]["answers"][1] for _, each in counted if each[owner])
        with traffic(served):
            until(lambda: rollout(served)["state"] == "done")
        assert {served.ask("/predict/m", ROW)[1]["top"] for _ in range(16)} == {2.0}
        events = [each["event"] for each in rollout(served)["events"] if each["event"] != "holding"]
        assert events == ["started", *["advanced"] * 4, "promoted"]
        assert {each["action"] for each in served.ask("/v2/models/m/history")[1]["changes"]} == {
            *("edit", "rollout", "promote")
        }


def test_errors_of_the_challenger_at_either_worker_end_it(folder: Path) -> None:
    """The new version wants rows of another width, so it refuses all."""
    save_plan(folder / "m" / "2" / "model.pretzel", 2.0, len(ROW) + 1)
    with serving(folder, 2, "--poll", "0.05") as served:
        assert put(served, "rollout", {**TERMS, "steps": [30, 100]})[0] == 200
        with traffic(served):
            until(lambda: rollout(served)["state"] == "aborted")
        assert "m@2 failed" in rollout(served)["reason"] or "errors" in rollout(served)["reason"]
        assert {served.ask("/predict/m", ROW)[1]["top"] for _ in range(16)} == {1.0}
        time.sleep(0.1)
        assert rollout(served)["events"][-1]["event"] == "aborted"


def test_what_a_killed_worker_compared_stays(folder: Path) -> None:
    with serving(folder, 2, "--poll", "0.05") as served:
        assert put(served, "route", {"champion": "m@1", "shadow": "m@2"}, "PUT")[0] == 200
        assert served.ask("/v2/models/m/compare")[1]["pairs"] == 0
        for _ in range(40):
            request(served)
        until(lambda: served.ask("/v2/models/m/compare")[1]["pairs"] == 40)
        assert served.ask("/v2/models/m/compare")[1]["outputs"]["top"]["values"] == 40
        kill_a_worker(served)
        for _ in range(20):
            request(served)
        until(lambda: served.ask("/v2/models/m/compare")[1]["pairs"] == 60)
