"""Ray's head is killed, its state in Redis: alone, with its node, and with the controller."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.ray_nodes import RayNodes, free_port, redis_server
from runtime.cluster.serving import ClusterClient, ClusterSettings, Scale
from runtime.cluster.serving.bodies import MemberState, Roster
from runtime.errors import ClusterError
from runtime.http import ServerSettings
from runtime.workers.options import WorkerOptions
from tests.house import until
from tests.runtime.cluster.clusters import Asking
from tests.runtime.repository.folders import age, save_plan

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed"),
]

REPLICAS, LEASE = 3, 6.0
#: On an idle machine with two cores a head is back after 5 s, and all else 5 s later.
BACK_SECONDS = 120.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """Start Ray with a head and two nodes, on the first of which is this process."""
    pytest.importorskip("ray")
    with redis_server(tmp_path_factory.mktemp("redis")) as redis:
        made = RayNodes(redis, 4)
        yield made
        made.close()


class Running:
    """A cluster under load, directly and by way of HAProxy."""

    def __init__(self, place: Path) -> None:
        self.place, self.proxy = place, free_port() if shutil.which("haproxy") else 0
        self.path = place / "models" / "a.pretzel"
        self.save(1.0)
        self._actor: Any = None
        self.asking: list[Asking] = []

    def save(self, offset: float) -> None:
        save_plan(self.path, offset)
        age(self.path)

    @contextmanager
    def on(self, start: Callable[[Any], object]) -> Iterator[None]:
        from runtime.cluster.serving import ray_actors

        http = ServerSettings(drain_delay=0.3, drain_seconds=5.0)
        settings = ClusterSettings(
            str(self.path.parent),
            str(self.place / "staging"),
            scale=Scale(REPLICAS, REPLICAS),
            options=WorkerOptions(http, executors=1, owner="head"),
            lease=LEASE,
            port=free_port(),
            poll=0.0,
        )
        bind = f"127.0.0.1:{self.proxy}" if self.proxy else ""
        start(ray_actors.Deployment(settings, "head", 1.0, bind))
        self._actor = ray_actors.running("head")
        try:
            with ClusterClient(self.status()["front"]) as client, Asking(client).on() as asking:
                self.asking = [asking]
                if not self.proxy:
                    yield
                else:
                    only = Roster(1, [MemberState(0, f"http://127.0.0.1:{self.proxy}", "ready")])
                    with (
                        ClusterClient(look=lambda: only, attempts=1) as proxied,
                        Asking(proxied).on() as more,
                    ):
                        self.asking.append(more)
                        yield
        finally:
            ray_actors.down("head")

    def status(self) -> dict[str, Any]:
        from runtime.cluster.serving.ray_actors import asked

        return dict(asked(self._actor.status.remote(), BACK_SECONDS))

    def sync(self) -> float:
        """Follow the folder; the moment when that is acknowledged."""
        from runtime.cluster.serving.ray_actors import asked

        asked(self._actor.ask.remote("sync"), BACK_SECONDS)
        return time.monotonic()

    def ready(self) -> dict[int, int]:
        replicas = self.status()["replicas"]
        return {each["number"]: each["process"] for each in replicas if each["state"] == "ready"}

    def back(self, lost: set[int], controller: int = 0) -> bool:
        """Whether all are there, without these processes, and another controller."""
        try:
            status = self.status()
        except ClusterError:
            return False
        ready = {each["process"] for each in status["replicas"] if each["state"] == "ready"}
        return len(ready) == REPLICAS and not ready & lost and status["controller"] != controller

    def asked_after(self, moment: float) -> None:
        """Return when some requests are answered that were sent after this."""
        until(lambda: all(each.after(moment) for each in self.asking))

    def all_good(self, moment: float, offset: float) -> None:
        """No request has failed; all that were sent after a moment were answered by a version."""
        self.asked_after(moment)
        for each in self.asking:
            assert each.failed == []
            assert {status for _, _, status, _ in each.answers} == {200}
            assert each.after(moment) == {(200, offset)}


def start_here(deployment: Any) -> None:
    from runtime.cluster.serving import ray_actors

    ray_actors.up(deployment, BACK_SECONDS)


def start_on_head(nodes: RayNodes, deployment: Any) -> None:
    from runtime.cluster.serving import ray_actors

    nodes.on_head(ray_actors.up, deployment, BACK_SECONDS)


def test_without_its_head_a_cluster_goes_on(nodes: RayNodes, tmp_path: Path) -> None:
    running = Running(tmp_path)
    with running.on(start_here):
        # The GCS alone, for longer than a lease: a change is followed, a killed replica waits.
        nodes.kill_gcs()
        time.sleep(1.5 * LEASE)
        killed = next(iter(running.ready().values()))
        os.kill(killed, signal.SIGKILL)
        running.save(2.0)
        running.all_good(running.sync(), 2.0)
        assert len(running.ready()) == REPLICAS - 1
        nodes.start_gcs()
        until(partial(running.back, {killed}), seconds=BACK_SECONDS)
        running.save(3.0)
        running.all_good(running.sync(), 3.0)

        # Its whole node, with the replicas that are there.
        head = nodes.cluster.head_node.node_id
        lost = {e["process"] for e in running.status()["replicas"] if e["node"] == head}
        nodes.kill(nodes.cluster.head_node)
        running.save(4.0)
        running.all_good(running.sync(), 4.0)
        nodes.start_head()
        until(partial(running.back, lost), seconds=BACK_SECONDS)
        running.save(5.0)
        running.all_good(running.sync(), 5.0)


def test_a_head_takes_the_controller_along(nodes: RayNodes, tmp_path: Path) -> None:
    running = Running(tmp_path)
    with running.on(partial(start_on_head, nodes)):
        began, status = time.monotonic(), running.status()
        running.asked_after(began)
        head = nodes.cluster.head_node.node_id
        lost = {e["process"] for e in status["replicas"] if e["node"] == head}
        nodes.kill(nodes.cluster.head_node)
        running.save(2.0)  # nobody sees it before there is a controller
        nodes.start_head()
        until(partial(running.back, lost, status["controller"]), seconds=BACK_SECONDS)
        acknowledged = running.sync()
        running.asked_after(acknowledged)
    for each in running.asking:
        assert each.after(acknowledged) == {(200, 2.0)}
        # The replicas of other nodes answer on, for as long as there is no controller.
        assert each.failed == []
        assert {status for _, _, status, _ in each.answers} == {200}
