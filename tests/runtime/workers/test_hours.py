"""Two hours of a busy server with workers: upgrades, kills and load that drifts; memory stays flat.

SOAK_SECONDS=180 pytest -m soak tests/runtime/workers/test_hours.py    is a trial of it
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import statistics
import time
from math import pi, sin
from pathlib import Path
from typing import Any

import pytest

from tests.house import until
from tests.runtime.repository.folders import age, save_plan
from tests.runtime.workers.house import Served, serving
from tests.runtime.workers.test_faults import RESETS, Client, load

log = logging.getLogger("pretzel.soak")
SECONDS = float(os.environ.get("SOAK_SECONDS", "7200"))
#: A worker is killed after so many upgrades; the load has so many waves.
KILL_EVERY, WAVES = 7, 24
#: A request that takes longer hangs. A worker may have to start, on a machine that does other work.
LONGEST = 30.0
#: What the second half may take more than the first one: what the C library keeps is chance.
SLACK = 24 << 20


class Drifting(Client):
    """Asks with rows that grow, now often and now seldom, and keeps none of the answers."""

    def __init__(self, port: int, number: int, offsets: dict[str, set[float]]) -> None:
        super().__init__(port, number, offsets)
        self._first, self._began = self._rows, time.monotonic()

    def _judge(self, name: str, row: Any, request: str, status: int, found: bytes) -> None:
        super()._judge(name, row, request, status, found)
        self.seen[:] = [[]]
        past = (time.monotonic() - self._began) / SECONDS
        self._rows = (self._first * (1.0 + past)).round(3)
        time.sleep(0.01 * (1.0 + sin(2.0 * pi * WAVES * past)))


def resident_bytes(process: int) -> int:
    """Memory of a process that is its own: what is mapped from files may be dropped."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) << 10


class Upgrades:
    """Versions of two models: one in a folder for each, which is watched, one in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.version = folder, 1
        save_plan(folder / "a" / "1" / "a.pretzel", 1.0)
        save_plan(folder / "b.pretzel", 1.0)
        (folder / "a" / "notes.toml").write_text("[watch]\n", encoding="utf-8")
        self.offsets = {"a": {1.0}, "b": {1.0}}

    def next(self, clients: list[Client]) -> None:
        """Put one more there; it is over when everybody was answered by it."""
        self.version += 1
        offset = float(self.version)
        coming = self.folder.parent / "coming"
        save_plan(coming, offset)
        age(coming)
        for each in self.offsets.values():
            each.add(offset)
        place = self.folder / "a" / str(self.version)
        place.mkdir()
        shutil.copy2(coming, place / ".coming")
        (place / ".coming").replace(place / "a.pretzel")
        coming.replace(self.folder / "b.pretzel")
        until(lambda: all(min(c.newest.values()) >= offset for c in clients), "nobody follows")
        for name in self.offsets:
            self.offsets[name] = {offset - 1.0, offset}  # the other worker may be behind by one
        shutil.rmtree(self.folder / "a" / str(self.version - 2), ignore_errors=True)


def kill(served: Served, turn: int) -> None:
    victim = turn % 2
    before = served.workers()[victim]
    os.kill(before, signal.SIGKILL)
    until(lambda: served.workers()[victim] != before, "it was not replaced")


@pytest.mark.soak
def test_hours_of_upgrades_kills_and_drifting_load(tmp_path: Path) -> None:
    upgrades = Upgrades(tmp_path / "models")
    sizes: list[tuple[float, int]] = []
    # What waits unread on a machine that does other work is late, and not wrong.
    with serving(upgrades.folder, 2, "--poll", "0.05", "--set", "max_unread=0") as served:
        with load(served.port, upgrades.offsets, Drifting) as clients:
            began, kills = time.monotonic(), 0
            while (past := (time.monotonic() - began) / SECONDS) < 1.0:
                upgrades.next(clients)
                if upgrades.version % KILL_EVERY == 0:
                    kill(served, kills)
                    kills += 1
                processes = (served.process.pid, *served.workers().values())
                sizes.append((past, sum(map(resident_bytes, processes))))
                served.events[:-1000] = []
                time.sleep(0.2)
        assert served.ask("/v2/health/ready")[1] == {"ready": True}
    answers = sum(client.right for client in clients)
    told = [size >> 20 for _, size in sizes]
    log.info("%d answers, %d versions, %d kills, MB %s", answers, upgrades.version, kills, told)
    assert [wrong for client in clients for wrong in client.wrong] == []
    lost = [problem for client in clients for problem in client.lost]
    assert set(lost) <= RESETS
    assert all(len(client.lost) <= kills for client in clients), "one request for each kill"
    assert max(client.longest for client in clients) < LONGEST
    assert kills > 0
    assert min(client.right for client in clients) > SECONDS
    second, last = ([size for past, size in sizes if n <= 4.0 * past < n + 1] for n in (1, 3))
    assert statistics.median(last) < statistics.median(second) + SLACK, told
