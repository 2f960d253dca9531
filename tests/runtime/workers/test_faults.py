"""What befalls a server under load: kills, storms of versions, a disk without room.

Every client asks with rows of its own and knows what each version answers to them, so an answer
that belongs to somebody else's row, or to no version that ever was, is seen.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.house import until
from tests.runtime.repository.folders import WIDTH, age, save_plan
from tests.runtime.workers.house import Served, serving

CLIENTS = 8
#: How a connection ends whose other end has died.
RESETS = {"ConnectionResetError", "RemoteDisconnected", "BrokenPipeError", "IncompleteRead"}
NAMES = {"a": 1.0, "b": 2.0}
_OPEN_INFERENCE = "/v2/models/{}/infer"


class Client:
    """Asks models in turn on one kept connection, and judges every answer."""

    def __init__(self, port: int, number: int, offsets: dict[str, set[float]]) -> None:
        self._port, self._offsets = port, offsets
        self._rows = np.random.default_rng(number).normal(size=(64, WIDTH)).round(3)
        self.right, self.wrong = 0, list[str]()
        #: How requests were lost that were on their way, and whose connection had answered before.
        self.lost: list[str] = []
        #: What was answered by whom, as a connection has seen it: (name, offset), in order.
        self.seen: list[list[tuple[str, float]]] = []
        self.longest = 0.0
        self.newest = dict.fromkeys(offsets, 0.0)

    def run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                connection.connect()
                self.seen.append([])
                self._talk(connection, ended)
            except Exception as problem:  # noqa: BLE001 (which one it may be is the test's matter)
                self.lost.append(type(problem).__name__)
            finally:
                connection.close()

    def _talk(self, connection: HTTPConnection, ended: threading.Event) -> None:
        names, turn = list(self._offsets), 0
        while not ended.is_set():
            turn += 1
            name, row = names[turn % len(names)], self._rows[turn % len(self._rows)]
            tensor = {"name": "x", "shape": [1, WIDTH], "datatype": "FP64", "data": row.tolist()}
            body = json.dumps({"inputs": [tensor], "id": str(turn)})
            start = time.monotonic()
            connection.request("POST", _OPEN_INFERENCE.format(name), body)
            response = connection.getresponse()
            found = response.read()
            self.longest = max(self.longest, time.monotonic() - start)
            self._judge(name, row, str(turn), response.status, found)
            if response.will_close:
                return
            time.sleep(0.001)

    def _judge(self, name: str, row: Any, request: str, status: int, found: bytes) -> None:
        try:
            body = json.loads(found)
            outputs = {each["name"]: each["data"] for each in body["outputs"]}
            offset = round(outputs["top"][0] - row.max(), 6)
            right = body["id"] == request and body["model_name"] == name
            right = right and outputs["moved"] == (row + offset).tolist()
            right = right and offset in self._offsets[name]
        except (ValueError, LookupError):
            right = False
        if not right or status != 200:
            self.wrong.append(f"{name}: {status} {found[:300]!r}")
            return
        self.right += 1
        self.newest[name] = max(self.newest[name], offset)
        self.seen[-1].append((name, offset))


@contextmanager
def load(
    port: int, offsets: dict[str, set[float]], client: type[Client] = Client
) -> Iterator[list[Client]]:
    """Eight clients that ask as long as this lasts."""
    ended, clients = threading.Event(), [client(port, number, offsets) for number in range(CLIENTS)]
    threads = [
        threading.Thread(target=client.run, args=(ended,), daemon=True) for client in clients
    ]
    for thread in threads:
        thread.start()
    try:
        yield clients
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a client hangs"


def models(place: Path) -> Path:
    for name, offset in NAMES.items():
        save_plan(place / f"{name}.pretzel", offset)
    return place


def index(served: Served) -> dict[str, str]:
    return {each["name"]: each["state"] for each in served.ask("/v2/repository/index", {})[1]}


def kill_under_load(served: Served, kills: int) -> list[Client]:
    """Kill one worker after the other, each when the last one was replaced."""
    with load(served.port, {name: {offset} for name, offset in NAMES.items()}) as clients:
        for turn in range(kills):
            victim = turn % 2
            before = served.workers()[victim]
            until(lambda: all(client.right > 20 for client in clients), "nobody is answered")
            os.kill(before, signal.SIGKILL)
            until(
                lambda victim=victim, before=before: served.workers()[victim] != before,  # type: ignore[misc]
                "it was not replaced",
            )
        counts = [client.right for client in clients]
        until(
            lambda: all(c.right > count + 10 for c, count in zip(clients, counts, strict=True)),
            "somebody is answered no more",
        )
    assert [wrong for client in clients for wrong in client.wrong] == []
    lost = [problem for client in clients for problem in client.lost]
    assert set(lost) <= RESETS
    assert all(len(client.lost) <= kills for client in clients), "one request for each kill"
    assert index(served) == dict.fromkeys(NAMES, "READY")
    until(lambda: served.ask("/v2/health/ready")[1] == {"ready": True})
    assert len([each for each in served.of("ended") if "SIGKILL" in each["reason"]]) == kills
    return clients


def test_a_kill_under_load_costs_the_requests_on_their_way_and_nothing_else(tmp_path: Path) -> None:
    with serving(models(tmp_path), 2, "--poll", "0") as served:
        clients = kill_under_load(served, 2)
        # Whoever had lost a connection was answered by the other worker, and waited for nobody.
        assert sum(client.right for client in clients) > CLIENTS * 40
        assert max(client.longest for client in clients) < 15


@pytest.mark.soak
def test_many_kills_under_load(tmp_path: Path) -> None:
    with serving(models(tmp_path), 2, "--poll", "0") as served:
        kill_under_load(served, 20)


def storm(folder: Path, made: list[Path], every: float, clients: list[Client]) -> None:
    """Versions of two models, one after the other: in one file, and in a folder for each."""
    for number, path in enumerate(made):
        beside = folder / ".coming"
        shutil.copy2(path, beside)
        beside.replace(folder / "a.pretzel")
        version = folder / "b" / str(number + 2)
        version.mkdir(parents=True)
        shutil.copy2(path, version / ".coming")
        (version / ".coming").replace(version / "b.pretzel")
        if number > 2:  # what has been followed by another one goes, and not before
            until(lambda last=7.0 + number: newest(clients, "b") > last, "nobody follows")  # type: ignore[misc]
            shutil.rmtree(folder / "b" / str(number - 1), ignore_errors=True)
        time.sleep(every)


def newest(clients: list[Client], name: str) -> float:
    """The newest version of a model that anybody was answered by."""
    return max(client.newest[name] for client in clients)


def storm_under_load(tmp_path: Path, workers: int, count: int) -> None:
    folder, made = tmp_path / "models", [tmp_path / f"{number}.x" for number in range(count)]
    for number, path in enumerate(made):
        save_plan(path, 10.0 + number)
        age(path)
    save_plan(folder / "a.pretzel", 1.0)
    save_plan(folder / "b" / "1" / "b.pretzel", 1.0)
    offsets = {1.0} | {10.0 + number for number in range(count)}
    with serving(folder, workers, "--poll", "0.02") as served:
        with load(served.port, {"a": offsets, "b": offsets}) as clients:
            until(lambda: all(client.right > 5 for client in clients), "nobody is answered")
            storm(folder, made, 0.05, clients)
            last = 9.0 + count
            until(
                lambda: all(
                    {*client.seen[-1][-2:]} == {("a", last), ("b", last)} for client in clients
                ),
                "somebody is behind",
            )
        assert [wrong for client in clients for wrong in client.wrong] == []
        assert [problem for client in clients for problem in client.lost] == []
        assert set(index(served).values()) <= {"READY"}
    followed = set()
    for client in clients:
        for answers in client.seen:
            for name in ("a", "b"):
                order = [offset for each, offset in answers if each == name]
                assert order == sorted(order), "a connection never goes back to an older version"
                followed |= set(order)
    assert len(followed) > 5, "the folder was followed under way"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_storm_of_versions_is_never_seen_as_an_error(tmp_path: Path, workers: int) -> None:
    storm_under_load(tmp_path, workers, 40)


@pytest.mark.soak
def test_a_long_storm_of_versions(tmp_path: Path) -> None:
    storm_under_load(tmp_path, 2, 1000)


def _can_mount() -> bool:
    tried = subprocess.run(
        ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /srv"],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_a_disk_without_a_free_byte(tmp_path: Path) -> None:
    """A disk of the server's own, filled to the brim: what is new waits until there is room."""
    if not _can_mount():
        pytest.skip("this user may mount nothing")
    folder, disk = tmp_path / "models", tmp_path / "disk"
    disk.mkdir()
    save_plan(folder / "a.pretzel", 1.0)
    mount = f'mount -t tmpfs -o size=8m tmpfs {disk} && exec "$@"'
    before = ("unshare", "-rm", "sh", "-c", mount, "sh")
    with serving(folder, 1, "--poll", "0.05", before=before, TMPDIR=str(disk)) as served:
        inside = Path(f"/proc/{served.process.pid}/root{disk}")
        staged = next(inside.glob("pretzel-models-*"))
        fill(inside / "rubbish")
        with load(served.port, {"a": {1.0, 3.0}}) as clients:
            save_plan(folder / "a.pretzel", 3.0)
            age(folder / "a.pretzel")
            until(lambda: served.of("refused"), "it was not noticed")
            count = clients[0].right
            until(lambda: clients[0].right > count + 5, "the old one goes on")
            assert clients[0].seen[-1][-1] == ("a", 1.0), "the old one goes on"
            assert "No space left" in json.dumps(served.of("refused"))
            assert index(served) == {"a": "READY"}
            (inside / "rubbish").unlink()
            until(lambda: clients[0].seen[-1][-1] == ("a", 3.0), "it is not tried again by itself")
        assert [wrong for client in clients for wrong in client.wrong] == []
        assert [problem for client in clients for problem in client.lost] == []
        assert not list(staged.glob(".copy-*")), "half copies are removed"


def fill(path: Path) -> None:
    """Write until there is no room, then byte by byte."""
    with path.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):
            try:
                while stream.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
