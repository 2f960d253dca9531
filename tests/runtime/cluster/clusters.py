"""A cluster without Ray, whose replicas are processes of this machine; and who asks one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.cluster.serving.bodies import MemberState, Roster
from runtime.cluster.serving.client import ClusterClient
from runtime.cluster.serving.controller import Controller
from runtime.cluster.serving.settings import ClusterSettings
from runtime.errors import ClusterError
from runtime.http import ServerSettings
from runtime.workers.options import WorkerOptions
from tests.house import ROOT

ROW = [0.0, 0.0, 0.0, 0.0]
_PROGRAM = """
import json, sys
from runtime.cluster.serving.link import Address
from runtime.cluster.serving.replica import Replica
number, lease, path, node = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
Replica(number, "127.0.0.1", lambda: Address(*json.load(open(path))), lease, node).run()
"""


class Processes:
    """A launcher of processes, which are started again when they die, as if on so many nodes."""

    def __init__(self, place: Path, lease: float, nodes: int = 1) -> None:
        self.place, self.lease, self.nodes = place, lease, nodes
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: set[int] = set()

    def launch(self, number: int) -> None:
        if number in self._ended:
            return
        node = f"node{number % self.nodes}"
        command = [sys.executable, "-c", _PROGRAM, str(number), str(self.lease)]
        command += [str(self.place), node]
        self.running[number] = process = subprocess.Popen(command, cwd=ROOT)
        threading.Thread(target=self._again, args=(number, process), daemon=True).start()

    def _again(self, number: int, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if number in self.running and self.running[number] is process:
            self.launch(number)

    def end(self, number: int) -> None:
        self._ended.add(number)
        process = self.running.pop(number, None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait(30)

    def existing(self) -> list[int]:
        return list(self.running)

    def close(self) -> None:
        for number in list(self.running):
            self.end(number)


@contextmanager
def cluster(
    tmp_path: Path,
    folder: Path | str,
    launcher: Processes | None = None,
    *,
    nodes: int = 1,
    **settings: Any,
) -> Iterator[Controller]:
    """A running controller, with `Processes`."""
    place = tmp_path / "address.json"
    lease = settings.setdefault("lease", 2.0)
    processes = launcher or Processes(place, lease, nodes)
    http = settings.pop("http", ServerSettings(drain_delay=0.2, drain_seconds=5.0))
    made = ClusterSettings(
        str(folder),
        str(tmp_path / "staging"),
        options=WorkerOptions(
            http,
            executors=1,
            store=str(tmp_path / "store"),
            allow_python=settings.pop("allow_python", ()),
        ),
        poll=settings.pop("poll", 0.1),
        **settings,
    )
    controller = Controller(made, processes).start()
    place.write_text(json.dumps(controller.address()))
    try:
        yield controller
    finally:
        controller.stop()
        if launcher is None:
            processes.close()


@contextmanager
def asked_cluster(
    tmp_path: Path, folder: Path | str, **settings: Any
) -> Iterator[tuple[Controller, ClusterClient]]:
    """A controller whose replicas are ready, and a client of it."""
    with (
        cluster(tmp_path, folder, **settings) as controller,
        ClusterClient(controller.front.url) as client,
    ):
        controller.wait_ready()
        yield controller, client


@contextmanager
def lost(controller: Controller) -> Iterator[None]:
    """As if it was killed: nothing is said to replicas, which run on."""
    controller._let_go()
    yield


def only(member: MemberState) -> Roster:
    """A cluster with this replica alone, for a client that is to ask no other."""
    return Roster(0, [member])


class Asking:
    """Threads that ask for predictions; each answer with the moments before and after it."""

    def __init__(self, client: ClusterClient, name: str = "a", threads: int = 3) -> None:
        self._client, self._name, self._ended = client, name, threading.Event()
        self.answers: list[tuple[float, float, int, float]] = []
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def _ask(self) -> None:
        body, path = json.dumps(ROW).encode(), f"/predict/{self._name}"
        while not self._ended.is_set():
            before = time.monotonic()
            try:
                found = self._client.request("POST", path, body)
            except ClusterError as problem:
                self.failed.append(str(problem))
                continue
            top = json.loads(found.body)["top"] if found.status == 200 else -1.0
            self.answers.append((before, time.monotonic(), found.status, top))
            time.sleep(0.002)

    @contextmanager
    def on(self) -> Iterator[Asking]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join(60)

    def after(self, moment: float) -> set[tuple[int, float]]:
        """The answers to what was asked after this."""
        return {(status, top) for before, _, status, top in self.answers if before > moment}
