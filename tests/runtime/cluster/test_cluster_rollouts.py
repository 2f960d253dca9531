"""Rollouts and comparisons in a cluster: its controller judges what all replicas have counted."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runtime.cluster.serving import ClusterClient, Controller, Scale
from tests.house import until
from tests.runtime.cluster.clusters import ROW, Processes, asked_cluster, cluster, lost, only
from tests.runtime.repository.folders import save_plan

TERMS = {"to": "m@2", "steps": [50, 100], "dwell": 600, "header": "x-user", "least": 5}
_users = itertools.count()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in (1, 2):
        save_plan(tmp_path / "models" / "m" / str(version) / "m.pretzel", float(version))
    (tmp_path / "models" / "m" / "endpoint.toml").write_text('champion = "m@1"')
    return tmp_path / "models"


def running(controller: Controller) -> set[int]:
    return {each.process for each in controller.members().ready()}


def ask(controller: Controller, count: int) -> Counter[str]:
    """So many requests to each replica: which version has answered how many."""
    found: Counter[str] = Counter()
    for each in controller.members().ready():
        with ClusterClient(each.url, attempts=1, look=partial(only, each)) as one:
            for _ in range(count):
                headers = {"x-user": str(next(_users))}
                path = "/predict/m"
                answer = one.request("POST", path, json.dumps(ROW).encode(), headers)
                assert answer.status == 200
                found[f"m@{answer.value()['top']:g}"] += 1
    return found


def said(client: ClusterClient, tail: str, body: Any = None, method: str = "") -> Any:
    data = None if body is None else json.dumps(body).encode()
    method = method or ("GET" if body is None else "POST")
    answer = client.request(method, f"/v2/models/m/{tail}", data)
    assert answer.status == 200, answer.body
    return answer.value()


def counted(found: Any) -> dict[str, int]:
    return {owner: counts["answers"]["number"] for owner, counts in found["counts"].items()}


def test_the_next_controller_and_replica_go_on_with_a_rollout(tmp_path: Path, folder: Path) -> None:
    launcher = Processes(tmp_path / "address.json", 2.0)
    start = partial(cluster, tmp_path, folder, launcher, scale=Scale(2, 2))
    try:
        with start() as first:
            first.wait_ready()
            with ClusterClient(first.front.url) as client:
                assert said(client, "rollout", TERMS)["state"] == "running"
                seen = ask(first, 40)
                assert set(seen) == {"m@1", "m@2"}
                for _ in range(4):  # at either replica
                    assert counted(said(client, "rollout")) == seen
            first.fleet.close()
            replicas = sorted(running(first))
            seen += ask(first, 20)  # nobody asks for what is counted now
            with lost(first), start() as second:
                second.wait_ready()
                assert sorted(running(second)) == replicas
                with ClusterClient(second.front.url) as client:
                    assert counted(said(client, "rollout")) == seen
                    os.kill(replicas[0], signal.SIGKILL)
                    alive = partial(running, second)
                    until(lambda: len(alive()) == 2 and replicas[0] not in alive())
                    seen += ask(second, 20)
                    assert counted(said(client, "rollout")) == seen
                    found = said(client, "rollout/state", {"action": "abort"})
                    assert (found["state"], counted(found)) == ("aborted", seen)
                    assert set(ask(second, 10)) == {"m@1"}
    finally:
        launcher.close()


def test_it_is_promoted_or_aborted_in_every_replica(tmp_path: Path, folder: Path) -> None:
    with asked_cluster(tmp_path, folder, scale=Scale(2, 2)) as (controller, client):

        def state() -> str:
            ask(controller, 10)
            found: str = said(client, "rollout")["state"]
            return found

        said(client, "rollout", {**TERMS, "steps": [30, 60, 100], "dwell": 0.5})
        until(lambda: state() == "done")
        assert set(ask(controller, 10)) == {"m@2"}
        assert said(client, "route")["champion"] == "m@2"
        # The other one is to have other answers than it has.
        said(client, "rollout", {**TERMS, "to": "m@1", "require": ["agreement > 98 %"]})
        until(lambda: state() == "aborted")
        assert "agreement" in said(client, "rollout")["reason"]
        assert set(ask(controller, 10)) == {"m@2"}
