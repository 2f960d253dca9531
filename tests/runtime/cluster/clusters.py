"""A cluster without Ray: replicas are processes of this machine, which are started again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.cluster.serving.controller import ClusterSettings, Controller
from runtime.http import ServerSettings
from runtime.workers.options import Options
from tests.house import ROOT

ROW = [0.0, 0.0, 0.0, 0.0]
_PROGRAM = """
import json, sys
from runtime.cluster.serving.link import Address
from runtime.cluster.serving.replica import Replica
number, lease, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
Replica(number, "127.0.0.1", lambda: Address(*json.load(open(path))), lease).run()
"""


class Processes:
    """A launcher of processes, which are started again when they die."""

    def __init__(self, place: Path, lease: float) -> None:
        self.place, self.lease = place, lease
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: set[int] = set()

    def launch(self, number: int) -> None:
        if number in self._ended:
            return
        command = [sys.executable, "-c", _PROGRAM, str(number), str(self.lease), str(self.place)]
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
    tmp_path: Path, folder: Path, launcher: Processes | None = None, **settings: Any
) -> Iterator[Controller]:
    """A running controller, with `Processes`."""
    place = tmp_path / "address.json"
    lease = settings.setdefault("lease", 2.0)
    processes = launcher or Processes(place, lease)
    http = ServerSettings(drain_delay=0.2, drain_seconds=5.0)
    made = ClusterSettings(
        str(folder),
        str(tmp_path / "staging"),
        options=Options(http, executors=1, store=str(tmp_path / "store")),
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


