"""Kills and upgrades under load: the bench's trial with fewer models, and replicas that are old."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from bench.ray_nodes import RayNodes
from tests.house import until
from tests.integrations.test_cluster_head import BACK_SECONDS, LEASE, Running, start_here

pytestmark = pytest.mark.integrations


def test_kills_and_upgrades_of_every_model_under_load() -> None:
    pytest.importorskip("ray")
    from bench.experiments import cluster_failures

    found = cluster_failures.measured(models=120, requests=4000)
    assert found["nodes"] == 3
    upgrades = found["upgrades"]
    assert upgrades["answered"] >= 4000
    assert upgrades["rolled"] == cluster_failures.REPLICAS
    assert found["kills"]["replica"]["lost"] == 1
    assert all(each["lost"] >= 1 for each in found["kills"].values())
    for each in (upgrades, *found["kills"].values()):
        assert each["answered"] > 400
        assert (each["failed"], each["withdrawn"], each["foreign"]) == (0, 0, 0)


def test_old_replicas_outlive_their_controllers_and_fail_no_request(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    running = Running(tmp_path)
    with closing(RayNodes(None, 4, nodes=1)), running.on(start_here):
        replicas = running.ready()
        time.sleep(12.0 * LEASE + 2.0)  # older ones once ended with their controller
        for _ in range(2):
            killed = running.status()["controller"]
            os.kill(killed, signal.SIGKILL)
            until(partial(running.back, set(), killed), seconds=BACK_SECONDS)
            assert running.ready() == replicas
        # One that cannot start for longer than leases last, as its folder is away.
        killed = running.status()["controller"]
        folder = running.path.parent.rename(tmp_path / "away")
        os.kill(killed, signal.SIGKILL)
        time.sleep(3.0 * LEASE)
        folder.rename(running.path.parent)
        until(partial(running.back, set(), killed), seconds=BACK_SECONDS)
        assert running.ready() == replicas
        lost = next(iter(replicas.values()))
        os.kill(lost, signal.SIGKILL)
        until(partial(running.back, {lost}), seconds=BACK_SECONDS)
        running.save(2.0)
        running.all_good(running.sync(), 2.0)
