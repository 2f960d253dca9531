"""Durations are measured with a clock that nobody sets; what reads the other one says why."""

from __future__ import annotations

import ast
import os
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from objectstore import Blob, FileStore
from oven.compiler import cache
from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.house import PACKAGES, ROOT
from tests.runtime.http.client import Client
from tests.runtime.plans import shift

#: Every file that reads the wall clock: it is compared with times of files, or shown to people.
WALL = {
    "objectstore/filestore.py": "the age of files of other processes",
    "oven/compiler/cache.py": "the age of files of other processes",
    "runtime/cluster/serving/homes.py": "a number that the next controller's are above",
    "runtime/http/watch/access_log.py": "the moment of a request, for people",
    "runtime/http/watch/metrics_process.py": "the start of the process, for Prometheus",
    "runtime/http/pages/page.py": "how long the process has run, for people",
    "runtime/http/watch/tracing.py": "the moments of a span, for OpenTelemetry",
    "runtime/feedback/folder.py": "the moment of an answer or a label, read by other processes",
    "runtime/provenance/keeping.py": "the moment of an answer, for people",
    "runtime/provenance/log.py": "the age of files, which outlive their process",
    "runtime/repository/object_storage.py": "a mark that differs at each look",
    "runtime/repository/repository.py": "the age of files, or the time since they changed",
    "runtime/repository/route_files.py": "the moment of a change, for people",
    "runtime/repository/staging.py": "the age of files of other processes",
    "runtime/rollout/judging.py": "the moment of an event, for people",
    "runtime/rollout/rollout.py": "the moment of an event, for people",
    "runtime/routing/comparison.py": "the moment of a pair, for people",
    "runtime/routing/history.py": "the moment of a change, for people",
    "runtime/service/routes.py": "the moment of a change, for people",
    "runtime/training/cache.py": "the age of results, which outlive their process",
}


def reads_the_wall_clock(path: Path) -> bool:
    """Return whether a file uses `time.time` or the current date."""
    names = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"}
    text = path.read_text("utf-8")
    if "time" not in text and "date." not in text:
        return False
    tree = ast.parse(text)
    found = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found |= {f"time.{each.name}" for each in node.names}
    return bool(found & names)


def test_who_reads_the_wall_clock_says_why() -> None:
    """Leases, deadlines, windows and ages in memory are not moved by a clock that is set."""
    paths = [path for each in PACKAGES for path in (ROOT / each).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in paths if reads_the_wall_clock(path)}
    assert found == WALL.keys()


@pytest.mark.parametrize("hours", [-24.0, 24.0])
def test_code_is_found_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    """An entry from the future, or of long ago, is read; dropping begins with the oldest."""
    monkeypatch.setattr(cache, "directory", lambda: tmp_path)
    now = time.time()
    (tmp_path / "aa").mkdir()
    for number in range(3):
        entry = tmp_path / "aa" / f"{number}.o"
        entry.write_bytes(b"x" * 100)
        os.utime(entry, (now + number, now + number + 3600 * hours))
    monkeypatch.setattr("oven.compiler.cache.time.time", lambda: now)
    cache.evict(200)
    assert sorted(each.name for each in (tmp_path / "aa").iterdir()) == ["1.o", "2.o"]
    assert cache.read_entry(tmp_path / "aa" / "2.o") == b"x" * 100


def test_what_is_held_stays_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that jumps ends the grace of what nobody holds, and of nothing else."""
    now = time.time()
    with FileStore(tmp_path, grace_seconds=3600.0) as store:
        held, loose = (store.put(Blob.of(np.arange(each))) for each in (5, 6))
        store.hold("m", [held])
        for shift, left in ((-86400.0, True), (0.0, True), (86400.0, False)):
            monkeypatch.setattr("objectstore.filestore.time.time", lambda s=shift: now + s)
            store.gc()
            assert (loose in store) is left
            assert held in store


@pytest.mark.parametrize("jump", [86_400.0 * 2, -86_400.0 * 2, 1e9])
def test_limits_of_clients_do_not_follow_the_wall(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps, wall, wall_ns = count(), time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: wall() + next(jumps) * jump)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + next(jumps) * int(jump * 1e9))

    def statuses(bodies: list[bytes], **settings: float) -> list[int]:
        with Server(runtime, ServerSettings(port=0, **settings)) as server:  # type: ignore[arg-type]
            client = Client(server.port)
            return [client.post("/predict/m", each).status for each in bodies]

    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        same, new = b"[0,1,2,3]", b"[0,1,2,4]"
        rates = {"anonymous_rate": 0.01, "rate_burst": 300.0}
        assert statuses([same] * 5, **rates) == [200] * 3 + [429] * 2
        assert statuses([same, same, new, new], new_bytes_a_day=9) == [200, 200, 429, 429]
        assert statuses([same] * 5, idle_seconds=60.0, cache_bytes=1 << 16) == [200] * 5
