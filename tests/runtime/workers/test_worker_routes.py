"""Routes with several workers: every worker follows one history, whoever changed it."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from runtime import Runtime
from runtime.errors import InUse, Overtaken, UnknownEndpoint
from runtime.routing.history import History
from runtime.routing.route import Route
from runtime.routing.written import as_toml, from_toml
from runtime.workers.fleet import Fleet
from tests.house import until
from tests.runtime.repository.folders import save_plan
from tests.runtime.workers.house import ROW, Served, alive, serving
from tests.runtime.workers.test_fleet import Line, joined


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in (1, 2):
        save_plan(tmp_path / "m" / str(version) / "model.pretzel", float(version))
    return tmp_path


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    with serving(folder, 2, "--poll", "0.05") as made:
        yield made


def put(served: Served, tail: str, body: object, method: str = "POST") -> tuple[int, Any]:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    asked = Request(f"{served.url}/v2/models/m/{tail}", json.dumps(body).encode(), method=method)
    try:
        with urlopen(asked, timeout=60) as response:
            return response.status, json.load(response)
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def answers(served: Served, count: int = 16) -> set[object]:
    """What many new connections are answered with; each may be another worker's."""
    found = [served.ask("/predict/m", ROW) for _ in range(count)]
    return {body["top"] if status == 200 else status for status, body in found}


def test_a_change_is_followed_by_every_worker(served: Served, folder: Path) -> None:
    assert answers(served) == {2.0}
    assert put(served, "route", {"champion": "m@1"}, "PUT")[0] == 200
    for _ in range(3):
        assert answers(served, 8) == {1.0}
        status, told = put(served, "promote", {"version": "m@2"})
        assert (status, told["champion"]) == (200, "m@2")
        assert answers(served, 8) == {2.0}
        assert put(served, "rollback", {})[0] == 200
    history = from_toml((folder / "m" / "endpoint.toml").read_text(), "", 0.0)
    assert [each.action for each in history] == ["route", *["promote", "rollback"] * 3]
    told = [served.ask("/v2/models/m/history")[1]["changes"] for _ in range(8)]
    assert all(each == told[0] and len(each) == 7 for each in told)
    for _ in range(3):  # an endpoint goes and comes with its route
        assert served.ask("/v2/repository/models/m/unload", {})[0] == 200
        assert answers(served, 8) == {404}
        assert {each["state"] for each in served.ask("/v2/repository/index", {})[1]} == {
            "UNAVAILABLE"
        }
        assert served.ask("/v2/repository/models/m/load", {})[0] == 200
        assert answers(served, 8) == {1.0}
        assert served.ask("/v2/models/m/history")[1]["changes"] == told[0]


def test_what_cannot_be_followed_changes_nothing(served: Served, folder: Path) -> None:
    assert put(served, "route", {"champion": "m@1"}, "PUT")[0] == 200
    assert put(served, "route", {"champion": "m@9"}, "PUT")[0] == 404
    assert put(served, "route", {"champion": "m@1", "where": "nothing > 1"}, "PUT")[0] == 400
    assert put(served, "promote", {})[0] == 400  # there is no challenger
    assert answers(served) == {1.0}
    (folder / "m" / "endpoint.toml").write_text("champion = 3")
    until(lambda: any("endpoint.toml" in each["reason"] for each in served.of("refused")))
    assert answers(served) == {1.0}
    status, said = put(served, "promote", {"version": "m@2"})
    assert (status, "mend the file" in said["error"]) == (409, True)
    (folder / "m" / "endpoint.toml").write_text('champion = "m@1"\nrules = {"nothing > 1" = "m@2"}')
    until(lambda: any("nothing" in each["reason"] for each in served.of("refused")))
    (folder / "m" / "endpoint.toml").write_text('champion = "m@2"')
    until(lambda: answers(served, 8) == {2.0})


def test_a_worker_that_comes_later_follows_the_route(served: Served) -> None:
    assert put(served, "route", {"champion": "m@1"}, "PUT")[0] == 200
    (first, *_), before = served.workers().values(), set(served.workers().values())
    os.kill(first, signal.SIGKILL)
    until(lambda: len(set(served.workers().values()) - before) == 1 and not alive(first))
    assert answers(served, 24) == {1.0}


def test_a_route_is_read_before_anything_is_answered(folder: Path) -> None:
    (folder / "m" / "endpoint.toml").write_text('champion = "m@1"')
    with serving(folder, 2, "--poll", "0.05") as served:
        assert answers(served) == {1.0}
    (folder / "m" / "endpoint.toml").write_text("champion = [")
    with serving(folder, 2, "--poll", "0.05") as served:
        assert answers(served) == {404}
        status, said = served.ask("/v2/health/ready")
        assert (status, said["missing"]) == (503, ["m"])
        assert served.ask("/v2/models/m/versions/1/infer", None)[0] != 404
        (folder / "m" / "endpoint.toml").unlink()
        until(lambda: answers(served, 8) == {2.0})


def test_changes_at_the_same_time_take_turns(served: Served, folder: Path) -> None:
    """Each is accepted or told that it was overtaken; the history has those that were accepted."""
    assert put(served, "route", {"champion": "m@1"}, "PUT")[0] == 200
    found: list[int] = []

    def change(version: int) -> None:
        found.extend(put(served, "route", {"champion": f"m@{version}"}, "PUT")[0] for _ in range(8))

    threads = [threading.Thread(target=change, args=(number % 2 + 1,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 32
    assert set(found) <= {200, 409}
    history = from_toml((folder / "m" / "endpoint.toml").read_text(), "", 0.0)
    assert len(history) == 1 + found.count(200)
    assert answers(served) == {float(history[-1].route.champion[-1])}


class Hearing(Line):
    """A worker without a process that asks the fleet for its changes."""

    def __init__(self, runtime: Runtime, fleet: Fleet) -> None:
        super().__init__(runtime)
        self._fleet = fleet
        runtime.routes.on_route = self._changed

    def _changed(self, name: str, history: History) -> None:
        text = as_toml(name, history)
        self.replica.expect(name, text)
        self._fleet.follow(name, text)


class Waiting(Hearing):
    """One that follows what it is told only when it is asked to, as over a channel."""

    def __init__(self, runtime: Runtime, fleet: Fleet) -> None:
        super().__init__(runtime, fleet)
        self.told: list[tuple[str, Any]] = []

    def ask(self, kind: str, body: Any = None) -> Future[Any]:
        self.told.append((kind, json.loads(json.dumps(body))))
        return Future()

    def follow(self, count: int) -> None:
        for _ in range(min(count, len(self.told))):
            self._follow(*self.told.pop(0))


@pytest.mark.parametrize("seed", range(4))
def test_all_end_with_one_history(folder: Path, seed: int) -> None:
    """Workers that hear of changes late, in any interleaving, never go back or apart."""
    rng, fleet = random.Random(seed), Fleet()
    with Runtime(executors=1) as one, Runtime(executors=1) as two:
        lines = [Waiting(one, fleet), Waiting(two, fleet)]
        joined(fleet, *lines)
        for version in ("1", "2"):
            fleet._change(  # not tried first: nobody answers until asked to
                "m",
                lambda now, version=version: now.having(  # type: ignore[misc] # bound by default
                    version, _plan(folder, version), activate=True
                ),
            )
        for line in lines:
            line.follow(10)
        accepted, length = 0, [0, 0]
        for _ in range(60):
            number = rng.randrange(2)
            line = lines[number]
            if rng.random() < 0.5:
                line.follow(rng.randrange(3))
            else:
                try:
                    line.runtime.route("m", f"m@{rng.randrange(1, 3)}")
                    accepted += 1
                except Overtaken:
                    pass
            now = len(line.runtime.routes.history("m")) if line.runtime.routes.has_route("m") else 0
            assert now >= length[number]
            length[number] = now
        for line in lines:
            line.follow(1000)
            assert line.runtime.routes.history("m") == fleet.history("m")
        assert len(fleet.history("m")) == accepted > 5


def _plan(folder: Path, version: str) -> Any:
    from runtime.workers.desired import Version

    return Version(int(version), str(folder / "m" / version / "model.pretzel"))


def test_a_version_that_is_named_stays(folder: Path) -> None:
    fleet = Fleet()
    with Runtime(executors=1) as runtime:
        joined(fleet, Hearing(runtime, fleet))
        for version in ("1", "2", "3"):
            fleet.register("m", folder / "m" / "1" / "model.pretzel", version)
        runtime.routes.put_route("m", Route("m@1", {"m@2": 5.0}, header="user"))
        for version in ("1", "2"):
            with pytest.raises(InUse, match="names this version"):
                fleet.unregister("m", version)
        fleet.unregister("m", "3")
        with pytest.raises(UnknownEndpoint, match="names a version that is not there"):
            fleet.check_route("m", Route("m@3"))
        runtime.routes.put_route("m", Route("m@1"))
        fleet.unregister("m", "2")
        fleet.unregister("m", "1")
        assert not fleet.has_route("m")
        assert not runtime.endpoints
