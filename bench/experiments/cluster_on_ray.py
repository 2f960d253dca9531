"""The rates of two replicas on Ray, and how fast the first one comes; prints JSON.

`bench.experiments.cluster` runs it in the environment that has Ray.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench import wrk
from bench.experiments.cluster_load import WIDTH, save, until
from bench.ray_nodes import RayNodes
from runtime.cluster.serving import ClusterClient, ClusterSettings, Scale, ray_actors, ray_proxy
from runtime.http import ServerSettings
from runtime.repository import Repository
from runtime.workers import Fleet, Supervisor, WorkerOptions

REPLICAS, MODELS = 2, 100
ROUNDS, SECONDS, CONNECTIONS = 5, 2.0, 8
PROXY_PORT, HAPROXY = 18741, "127.0.0.1:18742"
ROW = json.dumps([0.0] * WIDTH).encode()
REQUEST = (
    b"POST /predict/m0 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(ROW), ROW)
)


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
    options = WorkerOptions(http, executors=1, store=str(place / "store"), owner="workers")
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
    with tempfile.TemporaryDirectory() as directory, closing(RayNodes(None, 4)):
        place = Path(directory)
        folder = place / "models"
        folder.mkdir()
        save(folder, range(MODELS), 1)
        settings = ClusterSettings(
            str(folder),
            str(place / "staging"),
            scale=Scale(REPLICAS, REPLICAS),
            options=WorkerOptions(http, executors=1, store=str(place / "store"), owner="bench"),
            poll=0.0,
        )
        haproxy = HAPROXY if shutil.which("haproxy") else ""
        with deployed(settings, "bench", haproxy) as actor:
            found: dict[str, Any] = {"rates": rates(folder, place, actor, http)}
        found["woken"] = woken(settings, place)
    found["by"] = "wrk" if shutil.which("wrk") else "the built-in client, the slower part"
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
