"""Three nodes of Ray with two replicas each: kills and upgrades under load; prints JSON.

    python -m bench.experiments.cluster_failures MODELS REQUESTS

`bench.experiments.cluster` runs it in the environment that has Ray.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.experiments.cluster_load import Load, save, until
from bench.ray_nodes import NODES, RayNodes, free_port, redis_server
from runtime.cluster.serving import ClusterClient, ClusterSettings, Scale, ray_actors
from runtime.cluster.serving.bodies import MemberState, Roster
from runtime.errors import ClusterError
from runtime.http import ServerSettings
from runtime.workers import WorkerOptions

REPLICAS, LEASE, NAME = 6, 6.0, "failures"
#: Upgrades end after this time, whether so many requests were asked or not.
_UPGRADE_SECONDS = 150.0


class Trial:
    """A cluster under load."""

    def __init__(self, nodes: RayNodes, folder: Path, models: int, place: Path) -> None:
        self.nodes, self.folder, self.models = nodes, folder, range(models)
        self._place, self._version = place, 1
        self._proxy = free_port() if shutil.which("haproxy") else 0
        self._actor: Any = None
        self.clients: list[ClusterClient] = []
        save(folder, self.models, 1)

    @contextmanager
    def deployed(self) -> Iterator[None]:
        """Start it, on Ray's nodes, and find who may be asked."""
        settings = ClusterSettings(
            str(self.folder),
            str(self._place / "staging"),
            scale=Scale(REPLICAS, REPLICAS),
            options=WorkerOptions(
                ServerSettings(port=0, drain_delay=0.3, drain_seconds=5.0),
                executors=1,
                store=str(self._place / "store"),
                owner=NAME,
            ),
            lease=LEASE,
            port=free_port(),
            poll=0.0,
        )
        bind = f"127.0.0.1:{self._proxy}" if self._proxy else ""
        self._actor = ray_actors.up(ray_actors.Deployment(settings, NAME, 1.0, bind), 120.0)
        try:
            with ExitStack() as stack:
                front = self.status()["front"]
                self.clients = [stack.enter_context(ClusterClient(front)) for _ in range(2)]
                if self._proxy:
                    url = f"http://127.0.0.1:{self._proxy}"
                    only = Roster(1, [MemberState(0, url, "ready")])
                    proxied = ClusterClient(look=lambda: only, attempts=1)
                    self.clients.append(stack.enter_context(proxied))
                yield
        finally:
            ray_actors.down(NAME)

    def status(self) -> dict[str, Any]:
        """What the controller says."""
        return dict(ray_actors.asked(self._actor.status.remote(), 60.0))

    def ready(self) -> dict[int, str]:
        """The processes that answer, and their nodes."""
        try:
            replicas = self.status()["replicas"]
        except ClusterError:
            return {}
        return {each["process"]: each["node"] for each in replicas if each["state"] == "ready"}

    def upgrade(self, load: Load, models: range) -> float:
        """Replace these models; returns after how long all replicas have followed."""
        self._version += 1
        save(self.folder, models, self._version)
        began = time.monotonic()
        ray_actors.asked(self._actor.ask.remote("sync", 120.0), 300.0)
        load.acknowledged(models, self._version)
        return time.monotonic() - began

    def roll(self) -> int:
        """Replace all processes."""
        return int(ray_actors.asked(self._actor.ask.remote("roll", 300.0), 300.0))

    def back(self, lost: set[int]) -> bool:
        """Whether all replicas answer, these processes not among them."""
        now = self.ready().keys()
        return len(now) == REPLICAS and not now & lost


def upgrades(trial: Trial, requests: int) -> dict[str, Any]:
    """All models are replaced, again and again, then all processes, until so many were asked."""
    seconds = []
    with Load(trial.clients, len(trial.models)).on() as load:
        end = time.monotonic() + _UPGRADE_SECONDS
        seconds.append(trial.upgrade(load, trial.models))
        rolled = trial.roll()
        while load.answered < requests and time.monotonic() < end:
            seconds.append(trial.upgrade(load, trial.models))
    return {"seconds": seconds, "rolled": rolled, **_judged(load)}


def _judged(load: Load) -> dict[str, Any]:
    return {
        "answered": load.answered,
        "failed": len(load.failed),
        "said": load.failed[:3],
        "withdrawn": load.withdrawn(),
        "foreign": load.foreign,
        "slowest": load.slowest(),
    }


def killed(trial: Trial, kill: Callable[[dict[int, str]], set[int]]) -> dict[str, Any]:
    """Something is killed under load, and a tenth of the models is replaced right after that.

    `kill` is told the processes and their nodes, and returns those that it has ended.
    """
    until(lambda: len(trial.ready()) == REPLICAS)
    with Load(trial.clients, len(trial.models)).on() as load:
        until(lambda: load.answered > 200)
        before, began = trial.ready(), time.monotonic()
        lost = kill(before)
        followed = trial.upgrade(load, trial.models[::10])
        until(partial(trial.back, lost))
        back, answered = time.monotonic() - began, load.answered
        until(lambda: load.answered > answered + 200)
    return {"lost": len(lost), "followed": followed, "back": back, **_judged(load)}


def kills(trial: Trial, *, head: bool) -> dict[str, Any]:
    """A replica, a node, and the head with its node."""
    nodes = trial.nodes

    def replica(running: dict[int, str]) -> set[int]:
        process = next(iter(running))
        os.kill(process, signal.SIGKILL)
        return {process}

    def node(running: dict[int, str]) -> set[int]:
        lost = nodes.cluster.worker_nodes
        chosen = next(each for each in lost if each.node_ip_address == NODES[1])
        nodes.kill(chosen)
        nodes.add(NODES[1])
        return {process for process, where in running.items() if where == chosen.node_id}

    def whole_head(running: dict[int, str]) -> set[int]:
        chosen = nodes.cluster.head_node
        nodes.kill(chosen)
        nodes.start_head()
        return {process for process, where in running.items() if where == chosen.node_id}

    ways = {"replica": replica, "node": node} | ({"head": whole_head} if head else {})
    found = {}
    for name, way in ways.items():
        found[name] = killed(trial, way)
    return found


def measured(models: int, requests: int) -> dict[str, Any]:
    """Everything."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "models").mkdir()
        with (
            redis_server(place / "redis") as redis,
            closing(RayNodes(redis, 3)) as nodes,  # room for one more on each
        ):
            trial = Trial(nodes, place / "models", models, place)
            began = time.monotonic()
            with trial.deployed():
                return {
                    "models": models,
                    "up": time.monotonic() - began,
                    "nodes": len(set(trial.ready().values())),
                    "upgrades": upgrades(trial, requests),
                    "kills": kills(trial, head=redis is not None),
                    "repeated": sum(each.repeated for each in trial.clients),
                }


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), int(sys.argv[2]))), flush=True)
