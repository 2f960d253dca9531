"""A cluster on Ray itself: several nodes of this machine, on addresses of its loopback device."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.cluster.serving import ClusterClient, ClusterSettings, Scale
from runtime.errors import ClusterError
from runtime.http import ServerSettings
from runtime.workers.options import WorkerOptions
from tests.house import ROOT, until
from tests.runtime.cluster.clusters import ROW, Asking
from tests.runtime.repository.folders import age, save_plan
from tests.runtime.workers.house import Askers

pytestmark = pytest.mark.integrations

#: Not 127.0.0.1, which Ray replaces by another address of the machine.
LOOPBACK = "127.0.0.2"
MODELS, REPLICAS, LEASE = 30, 3, 6.0
#: The port of HAProxy; the front has the one before it, Ray's proxy the one after it.
HAPROXY = 18731
#: A killed process comes back in 3 s on an idle machine with two cores, and one that is busy
#: with other work has taken half a minute.
BACK_SECONDS = 120.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Start Ray with a head and two nodes; nothing of the cluster is on the second one."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "node_ip_address": LOOPBACK, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
    for _ in range(2):
        made.add_node(**node)
    ray.init(
        address=made.address,
        _node_ip_address=LOOPBACK,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )
    yield SimpleNamespace(cluster=made, ray=ray, node=node)
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save_all(made, 1.0)
    return made


def save_all(folder: Path, offset: float) -> None:
    for number in range(MODELS):
        path = folder / f"m{number}.pretzel"
        save_plan(path, offset + number)
        age(path)


class Running:
    """A cluster that runs, and what the tests ask of its controller."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.front: str = self.status()["front"]

    def status(self) -> dict[str, Any]:
        from runtime.cluster.serving.ray_actors import asked

        return dict(asked(self._actor.status.remote(), BACK_SECONDS))

    def ask(self, what: str, *arguments: Any) -> Any:
        from runtime.cluster.serving.ray_actors import asked

        return asked(self._actor.ask.remote(what, *arguments), REPLICAS * BACK_SECONDS)

    def ready(self) -> dict[int, int]:
        """The processes of the replicas that answer."""
        replicas = self.status()["replicas"]
        return {each["number"]: each["process"] for each in replicas if each["state"] == "ready"}

    def again(self, killed: int) -> bool:
        """Whether there is another controller."""
        try:
            return bool(self.status()["controller"] != killed)
        except ClusterError:
            return False

    def back(self, killed: int) -> float:
        """Wait until there are as many as before, without this process; the seconds."""
        began = time.monotonic()

        def all_there() -> bool:
            ready = self.ready()
            return len(ready) == REPLICAS and killed not in ready.values()

        until(all_there, seconds=BACK_SECONDS)
        return time.monotonic() - began


@pytest.fixture(scope="module")
def running(
    nodes: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    from runtime.cluster.serving import ray_actors

    http = ServerSettings(drain_delay=0.3, drain_seconds=5.0)
    settings = ClusterSettings(
        str(folder),
        str(tmp_path_factory.mktemp("staging")),
        scale=Scale(REPLICAS, REPLICAS),
        options=WorkerOptions(http, executors=1, owner="tests"),
        lease=LEASE,
        port=HAPROXY - 1,
        poll=0.2,
    )
    bind = f"127.0.0.1:{HAPROXY}" if shutil.which("haproxy") else ""
    actor = ray_actors.up(ray_actors.Deployment(settings, "tests", 1.0, bind), BACK_SECONDS)
    yield Running(actor)
    ray_actors.down("tests")
    names = nodes.ray.util.list_named_actors(all_namespaces=True)
    assert not [each for each in names if each["namespace"] == "tests"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_replicas_are_as_prompt_as_ray_itself(running: Running) -> None:
    for process in [*running.ready().values(), running.status()["controller"]]:
        threads = [int(each.name) for each in Path(f"/proc/{process}/task").iterdir()]
        assert {os.getpriority(os.PRIO_PROCESS, each) for each in threads} == {
            os.getpriority(os.PRIO_PROCESS, 0)
        }


def test_an_upgrade_of_every_model_fails_no_request(running: Running, folder: Path) -> None:
    with ClusterClient(running.front) as client, Asking(client, "m7").on() as asking:
        until(lambda: len(asking.answers) > 100)
        for offset in (100.0, 200.0):
            save_all(folder, offset)
            running.ask("sync")
            acknowledged = time.monotonic()
            until(partial(asking.after, acknowledged))
            assert asking.after(acknowledged) == {(200, offset + 7)}
    assert asking.failed == []
    assert {status for _, _, status, _ in asking.answers} == {200}


def test_a_killed_replica_is_started_again_by_ray(running: Running, folder: Path) -> None:
    with ClusterClient(running.front) as client, Asking(client, "m3").on() as asking:
        until(lambda: len(asking.answers) > 100)
        killed = next(iter(running.ready().values()))
        os.kill(killed, signal.SIGKILL)
        save_plan(folder / "m3.pretzel", 300.0)
        age(folder / "m3.pretzel")
        running.ask("sync")
        acknowledged = time.monotonic()
        running.back(killed)
        time.sleep(0.5)
    assert asking.failed == []
    assert asking.after(acknowledged) == {(200, 300.0)}


def test_a_killed_node_takes_no_request_along(nodes: Any, running: Running) -> None:
    with ClusterClient(running.front) as client, Asking(client, "m5").on() as asking:
        until(lambda: len(asking.answers) > 100)
        before = running.ready()
        held = {each["node"]: each["number"] for each in running.status()["replicas"]}
        lost = next(node for node in nodes.cluster.worker_nodes if node.node_id in held)
        number = held[lost.node_id]
        nodes.cluster.remove_node(lost, allow_graceful=False)
        running.ask("unload", "m6")  # acknowledged, though a node has just gone
        assert {client.request("POST", "/predict/m6", b"[0,0,0,0]").status for _ in range(40)} == {
            404
        }
        nodes.cluster.add_node(**nodes.node)
        running.back(before[number])
        assert {client.request("POST", "/predict/m6", b"[0,0,0,0]").status for _ in range(40)} == {
            404
        }
    assert asking.failed == []
    assert {status for _, _, status, _ in asking.answers} == {200}


def test_a_killed_controller_is_not_missed(running: Running, folder: Path) -> None:
    with ClusterClient(running.front) as client, Asking(client, "m4").on() as asking:
        until(lambda: len(asking.answers) > 50)
        before = running.ready()
        killed = running.status()["controller"]
        began = time.monotonic()
        os.kill(killed, signal.SIGKILL)
        until(lambda: running.again(killed), seconds=BACK_SECONDS)
        until(lambda: len(running.ready()) == REPLICAS, seconds=BACK_SECONDS)
        if time.monotonic() - began < LEASE:  # else some may have been given up
            assert running.ready() == before
        # It remembers what was withdrawn, and goes on.
        assert client.request("POST", "/predict/m6", b"[0,0,0,0]").status == 404
        save_plan(folder / "m4.pretzel", 400.0)
        age(folder / "m4.pretzel")
        running.ask("sync")
        acknowledged = time.monotonic()
        until(lambda: len(asking.after(acknowledged)) > 0)
    assert asking.failed == []
    assert asking.after(acknowledged) == {(200, 400.0)}


def test_a_rollout_goes_on_with_the_next_controller(running: Running, folder: Path) -> None:
    for version in (1, 2):
        save_plan(folder / "rolled" / str(version) / "m.pretzel", float(version))
    (folder / "rolled" / "endpoint.toml").write_text('champion = "rolled@1"')
    running.ask("sync")
    seen: Counter[str] = Counter()
    with ClusterClient(running.front) as client:

        def asked(tail: str, body: object = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            method = "GET" if body is None else "POST"
            answer = client.request(method, f"/v2/models/rolled/{tail}", data)
            assert answer.status == 200, answer.body
            return answer.value()

        def predict(users: range) -> None:
            for user in users:
                headers = {"x-user": str(user)}
                answer = client.request("POST", "/predict/rolled", b"[0, 0, 0, 0]", headers)
                seen[f"rolled@{answer.value()['top']:g}"] += 1

        def counted() -> dict[str, int]:
            counts = asked("rollout")["counts"]
            return {owner: found["answers"]["number"] for owner, found in counts.items()}

        def written() -> int:
            data = json.loads((folder / "rolled" / "endpoint.rollout").read_text("utf-8"))
            counts = [each for _, told in data["reports"].values() for each in told.values()]
            return sum(int(each["answers"][1]) for each in counts if each)

        terms = {"to": "rolled@2", "steps": [50, 100], "dwell": 3600, "header": "x-user"}
        assert asked("rollout", terms)["state"] == "running"
        predict(range(60))
        assert set(seen) == {"rolled@1", "rolled@2"}
        assert counted() == seen
        until(lambda: written() == 60)
        killed = running.status()["controller"]
        os.kill(killed, signal.SIGKILL)
        until(lambda: running.again(killed), seconds=BACK_SECONDS)
        until(lambda: len(running.ready()) == REPLICAS, seconds=BACK_SECONDS)
        predict(range(60, 120))
        assert counted() == seen
        assert asked("rollout/state", {"action": "abort"})["state"] == "aborted"
        assert counted() == seen
        seen.clear()
        predict(range(40))
        assert set(seen) == {"rolled@1"}


@pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not installed")
def test_haproxy_loses_no_request_to_an_upgrade_or_a_kill(running: Running) -> None:
    with Askers(HAPROXY, 4, "/predict/m1") as askers:
        until(lambda: len(askers.answers) > 100)
        assert running.ask("roll", BACK_SECONDS) == REPLICAS
        killed = next(iter(running.ready().values()))
        os.kill(killed, signal.SIGKILL)
        running.back(killed)
    assert {status for _, status, _ in askers.answers} == {200}
    assert askers.lost == askers.untaken == []


def test_rays_own_proxy_passes_requests_on(running: Running) -> None:
    from runtime.cluster.serving import ray_proxy

    ray_proxy.start("tests", "127.0.0.1", HAPROXY + 1, running.front)
    try:
        with ClusterClient(running.front) as direct:
            wanted = direct.predict("m1", ROW)
        url = f"http://127.0.0.1:{HAPROXY + 1}"
        with ClusterClient(url) as client:
            answer = client.request("GET", "/v2/models/m1")
            assert answer.status == 200
        with urllib.request.urlopen(f"{url}/predict/m1", json.dumps(ROW).encode()) as found:
            assert json.load(found) == wanted
        with pytest.raises(ClusterError, match="does not pass requests on here") as refused:
            ray_proxy.start("other", "127.0.0.1", HAPROXY + 2, running.front)
        assert "the one that it was started with" in str(refused.value.hint)
        with urllib.request.urlopen(f"{url}/predict/m1", json.dumps(ROW).encode()) as found:
            assert json.load(found) == wanted
    finally:
        from ray import serve

        serve.shutdown()


def commanded(address: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runtime", "cluster", *words, "--name", "cli", "--address", address],
        capture_output=True,
        text=True,
        timeout=2 * BACK_SECONDS,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.parametrize("front", ["direct", "haproxy", "ray"])
def test_up_says_that_its_port_is_taken_and_leaves_nothing(
    nodes: Any, folder: Path, front: str
) -> None:
    if front == "haproxy" and not shutil.which("haproxy"):
        pytest.skip("HAProxy is not installed")
    address = nodes.cluster.address
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as busy:
        port = str(busy.getsockname()[1])
        words = ("--replicas", "1", "--cpus", "0.5", "--front", front, "--port", port)
        ran = commanded(address, "up", str(folder), *words)
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert f"127.0.0.1:{port}" in ran.stderr
    assert "hint   another port" in ran.stderr.replace("--port", "port")
    assert "no cluster runs under this name" in commanded(address, "status").stderr


def test_up_says_what_else_is_wrong(nodes: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    staging = str(tmp_path / "file" / "plans")
    for words, code, said in (
        ((str(tmp_path / "none"),), 5, "this folder cannot be read"),
        ((str(folder), "--staging", staging), 1, "the controller cannot work here"),
    ):
        ran = commanded(nodes.cluster.address, "up", *words, "--replicas", "1", "--port", "0")
        assert ran.returncode == code, ran.stderr
        assert said in ran.stderr
        assert "hint" in ran.stderr
        assert "Traceback" not in ran.stderr
    began = time.monotonic()
    ran = commanded("127.0.0.1:1", "status")
    assert (ran.returncode, "there is no Ray to run on" in ran.stderr) == (1, True)
    assert time.monotonic() - began < BACK_SECONDS / 2  # Ray itself takes minutes


@pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not installed")
def test_haproxy_listens_at_the_address_of_the_node(nodes: Any, folder: Path) -> None:
    address, port = nodes.cluster.address, HAPROXY + 3
    words = ("--replicas", "1", "--cpus", "0.5", "--host", "node", "--front", "haproxy")
    up = commanded(address, "up", str(folder), *words, "--port", str(port), "--json")
    try:
        assert up.returncode == 0, up.stderr
        url = json.loads(up.stdout)["url"]
        assert url == f"http://{LOOPBACK}:{port}"
        with urllib.request.urlopen(f"{url}/v2/models/m2") as found:
            assert found.status == 200
    finally:
        commanded(address, "down")


def test_the_command(nodes: Any, folder: Path, tmp_path: Path) -> None:
    def pretzel(*words: str) -> dict[str, Any]:
        done = commanded(nodes.cluster.address, *words, "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    plans = tmp_path / "plans"  # a folder on object storage, as is that of the models
    options = ("--replicas", "1", "--port", "0", "--cpus", "0.5", "--staging", f"file://{plans}")
    up = pretzel("up", f"file://{folder}", *options)
    try:
        assert len(list(plans.glob("*.pretzel"))) >= MODELS  # others may have added versions
        with ClusterClient(up["url"]) as client:
            assert client.predict("m1", ROW)["top"] in {2.0, 201.0}  # another test upgrades it
        status = pretzel("status")
        assert [each["state"] for each in status["replicas"]] == ["ready"]
        assert len(pretzel("scale", "2")["replicas"]) == 2
    finally:
        assert pretzel("down") == {"event": "down"}
