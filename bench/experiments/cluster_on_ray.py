"""What `bench.experiments.cluster` measures, in the environment that has Ray; prints JSON."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import flour
from bench import wrk
from bench.machine import ROOT
from runtime.cluster.serving import ClusterClient, ClusterSettings, Scale, ray_actors, ray_proxy
from runtime.errors import ClusterError
from runtime.http import ServerSettings
from runtime.repository import Repository
from runtime.workers import Fleet, Options, Supervisor

#: Not 127.0.0.1, which Ray replaces by another address of the machine.
LOOPBACK = "127.0.0.2"
REPLICAS, MODELS, WIDTH = 2, 100, 16
ROUNDS, SECONDS, CONNECTIONS, UPGRADES = 5, 2.0, 8, 5
PROXY_PORT, HAPROXY = 18741, "127.0.0.1:18742"
ROW = json.dumps([0.0] * WIDTH).encode()
REQUEST = (
    b"POST /predict/m0 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(ROW), ROW)
)


def save_all(folder: Path, offset: float) -> None:
    """Write all models anew: each answers its number plus `offset`."""
    for number in range(MODELS):
        flow = flour.vector("x", WIDTH).linear([[1.0] * WIDTH], [offset + number]).named("y")
        path = folder / f"m{number}.pretzel"
        flow.plan().save(path, durable=False)
        os.utime(path, (time.time() - 60, time.time() - 60 + offset / 1e3))


class Load:
    """Threads that ask all models in turn."""

    def __init__(self, client: ClusterClient, threads: int = 2) -> None:
        self._client, self._ended = client, threading.Event()
        self.answers: list[tuple[float, float]] = []
        self.failed = 0
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(threads)]

    def _ask(self, number: int) -> None:
        while not self._ended.is_set():
            number = (number + 7) % MODELS
            before = time.monotonic()
            try:
                found = self._client.request("POST", f"/predict/m{number}", ROW)
            except ClusterError:
                self.failed += 1
                continue
            if found.status != 200:
                self.failed += 1
                continue
            value = json.loads(found.body)["y"]
            top = value[0] if isinstance(value, list) else value
            self.answers.append((before, top - number))

    @contextmanager
    def on(self) -> Iterator[Load]:
        """Ask as long as this lasts."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something, with an end."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not happen")
        time.sleep(0.01)


def raced(urls: list[str]) -> float:
    """Requests a second at these addresses together, each by a load of its own."""
    rates = [0.0] * len(urls)

    def one(place: int, url: str) -> None:
        port = urlsplit(url).port or 0
        rates[place] = wrk.race(port, [REQUEST], CONNECTIONS // len(urls), SECONDS).rate

    threads = [threading.Thread(target=one, args=each) for each in enumerate(urls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


@contextmanager
def on_ray() -> Iterator[None]:
    """A head and two nodes, on the loopback device."""
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 4, "node_ip_address": LOOPBACK, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    for _ in range(2):
        cluster.add_node(**node)
    variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
    ray.init(
        address=cluster.address,
        _node_ip_address=LOOPBACK,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def deployed(settings: ClusterSettings, name: str, haproxy: str = "") -> Iterator[Any]:
    """A cluster, until the end of this."""
    actor = ray_actors.up(ray_actors.Deployment(settings, name, 0.5, haproxy), 120.0)
    try:
        yield actor
    finally:
        ray_actors.down(name)


def status(actor: Any) -> Any:
    """What its controller says."""
    return ray_actors.asked(actor.status.remote(), 60.0)


def ready(actor: Any) -> dict[str, int]:
    """The processes that answer, by their addresses."""
    return {e["url"]: e["process"] for e in status(actor)["replicas"] if e["state"] == "ready"}


def rates(folder: Path, place: Path, actor: Any, http: ServerSettings) -> dict[str, float]:
    """Workers, replicas and Ray's proxy in turns, as the machine is not equally busy always."""
    found: dict[str, list[float]] = {}
    ray_proxy.start("bench", "127.0.0.1", PROXY_PORT, status(actor)["front"])
    fleet = Fleet()
    options = Options(http, executors=1, store=str(place / "store"), owner="workers")
    with Repository(folder, fleet, staging=place / "workers") as repository:
        repository.load_all()
        with Supervisor(REPLICAS, fleet, repository, options) as supervisor:
            ways = {
                "workers": [supervisor.url] * REPLICAS,
                "replicas": list(ready(actor)),
                "ray's proxy": [f"http://127.0.0.1:{PROXY_PORT}"],
            }
            if shutil.which("haproxy"):
                ways["HAProxy"] = [f"http://{HAPROXY}"]
            for urls in ways.values():
                raced(urls)
            for _ in range(ROUNDS):
                for name, urls in ways.items():
                    found.setdefault(name, []).append(raced(urls))
    ray_proxy.stop("bench")
    return {name: median(each) for name, each in found.items()}


def upgrades(folder: Path, actor: Any, client: ClusterClient) -> dict[str, Any]:
    """All models are replaced several times, then all processes, while requests come."""
    withdrawn = 0
    with Load(client).on() as load:
        for number in range(1, UPGRADES + 1):
            save_all(folder, 1000.0 * number)
            ray_actors.asked(actor.ask.remote("sync"), 120.0)
            moment = time.monotonic()
            time.sleep(1.0)
            late = [offset for asked, offset in load.answers if asked > moment]
            withdrawn += sum(offset != 1000.0 * number for offset in late)
        rolled = ray_actors.asked(actor.ask.remote("roll"), 120.0)
    return {
        "upgrades": UPGRADES,
        "upgraded": len(load.answers),
        "failed": load.failed,
        "withdrawn": withdrawn,
        "rolled": rolled,
    }


def replaced(actor: Any, killed: int) -> bool:
    """Whether all replicas answer, and this process is none of them."""
    processes = ready(actor).values()
    return len(processes) == REPLICAS and killed not in processes


def kills(actor: Any, client: ClusterClient) -> dict[str, Any]:
    """One replica after the other is killed while requests come."""
    seconds = []
    with Load(client).on() as load:
        for _ in range(3):
            until(lambda: len(ready(actor)) == REPLICAS)
            killed = next(iter(ready(actor).values()))
            os.kill(killed, signal.SIGKILL)
            began = time.monotonic()
            until(partial(replaced, actor, killed))
            seconds.append(time.monotonic() - began)
    return {"killed": load.failed, "back": max(seconds), "asked_at_kills": len(load.answers)}


def woken(settings: ClusterSettings, place: Path) -> float:
    """The longest of three times from no replica to the first answer."""
    none = replace(
        settings,
        staging=str(place / "zero"),
        scale=Scale(0, 1, zero_seconds=1.0, down_seconds=0.5),
        standby=1,
    )
    times = []
    with deployed(none, "zero") as actor, ClusterClient(status(actor)["front"]) as client:
        for _ in range(3):
            until(lambda: [e["state"] for e in status(actor)["replicas"]] == ["spare"])
            began = time.monotonic()
            client.request("POST", "/predict/m0", ROW).value()
            times.append(time.monotonic() - began)
    return max(times)


def main() -> None:
    """Measure everything, and print it."""
    http = ServerSettings(port=0, drain_delay=0.3, drain_seconds=5.0)
    with tempfile.TemporaryDirectory() as directory, on_ray():
        place = Path(directory)
        folder = place / "models"
        folder.mkdir()
        save_all(folder, 0.0)
        settings = ClusterSettings(
            str(folder),
            str(place / "staging"),
            scale=Scale(REPLICAS, REPLICAS),
            options=Options(http, executors=1, store=str(place / "store"), owner="bench"),
            poll=0.0,
        )
        with (
            deployed(settings, "bench", HAPROXY if shutil.which("haproxy") else "") as actor,
            ClusterClient(status(actor)["front"]) as client,
        ):
            found: dict[str, Any] = {"rates": rates(folder, place, actor, http)}
            found |= upgrades(folder, actor, client) | kills(actor, client)
            found["repeated"] = client.repeated
        found["woken"] = woken(settings, place)
    found["asked"] = found["upgraded"] + found["asked_at_kills"]
    found["by"] = "wrk" if shutil.which("wrk") else "the built-in client, the slower part"
    print(json.dumps(found | {"models": MODELS}), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
