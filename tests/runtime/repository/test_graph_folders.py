"""Graphs in a folder, whatever their names: before their models, nested, and when models change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import flour
import oven
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.repository.repository import Repository
from runtime.workers.fleet import Fleet
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.workers.test_fleet import Line, joined

GRAPH = """
[inputs]
x = "number"

[nodes.inner]
model = "{model}"
reads = "x"

[outputs]
value = "inner.value + {more}"
"""
ROW = {"x": [0.0]}


def graph(folder: Path, name: str, model: str, more: float) -> None:
    path = folder / name / "graph.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(GRAPH.format(model=model, more=more))


def model(path: Path, offset: float, *more: str) -> None:
    """It adds `offset` to x, and what stands in `more` columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    row = flour.record(**dict.fromkeys(["x", *more], float))
    flow = flour.outputs(value=sum((row[name] for name in more), row["x"] + offset))
    oven.bake(flow, background=False).save(path, durable=False)


class Place:
    """A folder, what it is registered in, and a runtime that answers its requests."""

    def __init__(self, folder: Path, kind: str, stack: ExitStack) -> None:
        self.runtime = stack.enter_context(Runtime(executors=1))
        self.fleet, self._line = Fleet(), Line(self.runtime)
        self.folder = folder
        registry: Any = self.runtime if kind == "runtime" else self.fleet
        if kind == "workers":
            joined(self.fleet, self._line)
        self.repository = stack.enter_context(Repository(folder, registry, quiet_seconds=0.0))
        self._late = kind == "late worker"

    def load(self) -> set[tuple[str, str]]:
        return self._told(self.repository.load_all)

    def poll(self) -> set[tuple[str, str]]:
        return self._told(self.repository.poll) | self._told(self.repository.poll)

    def _told(self, act: Callable[[], Any]) -> set[tuple[str, str]]:
        events = {(each.name, each.kind) for each in act()}
        if self._late:  # it begins with the whole table, as after a kill
            names = {name: each.to_json() for name, each in self.fleet.table().items()}
            self._line.replica.whole(self.fleet.generation, names)
        return events

    def value(self, name: str) -> float:
        assert not self._line.replica.failed
        return float(self.runtime.predict(name, ROW)["value"][0])


@pytest.fixture(params=["runtime", "workers", "late worker"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, request.param, stack)


def test_graphs_come_after_what_they_need(place: Place) -> None:
    """Also graphs of graphs, in any order of their names."""
    graph(place.folder, "a", "b", 1)
    graph(place.folder, "b", "d", 10)
    graph(place.folder, "d", "c", 100)
    model(place.folder / "c.pretzel", 1000)
    assert place.load() == {(name, "loaded") for name in "abcd"}
    assert place.value("a") == 1111


def test_a_graph_waits_for_its_model(place: Place) -> None:
    graph(place.folder, "a", "b", 1)
    graph(place.folder, "b", "c@1", 10)
    assert place.load() == {("a", "refused"), ("b", "refused")}
    (place.folder / "c.pretzel").write_bytes(b"PRETZEL0 and nothing more")
    assert place.poll() == {("c", "refused")}
    model(place.folder / "c.pretzel", 1000)
    assert place.poll() == {(name, "loaded") for name in "abc"}
    assert place.value("a") == 1011


def test_a_graph_comes_when_its_model_fits(place: Place) -> None:
    """It was refused for the model's signature; its own file has not changed."""
    graph(place.folder, "a", "c", 1)
    model(place.folder / "c" / "1" / "m.pretzel", 1000, "y")
    assert ("a", "refused") in place.load() or place.runtime.endpoints
    model(place.folder / "c" / "2" / "m.pretzel", 1000)
    assert {("c", "loaded")} <= place.poll()
    assert place.value("a") == 1001


def test_what_goes_together_goes_in_order(place: Place) -> None:
    graph(place.folder, "b", "c", 1)
    graph(place.folder, "z", "b", 1)
    model(place.folder / "c.pretzel", 1000)
    place.load()
    (place.folder / "c.pretzel").unlink()
    kept = place.poll()
    assert kept == {("c", "refused")}, "a model that a graph uses stays"
    assert place.value("z") == 1002
    for name in "bz":
        (place.folder / name / "graph.toml").unlink()
    assert {(name, "unloaded") for name in "bcz"} <= place.poll()
    assert not place.runtime.endpoints


def test_a_model_is_damaged_and_mended_under_its_graph(place: Place) -> None:
    graph(place.folder, "a", "c", 1)
    model(place.folder / "c.pretzel", 1000)
    place.load()
    (place.folder / "c.pretzel").write_bytes(b"PRETZEL0 and nothing more")
    assert place.poll() == {("c", "refused")}
    assert place.value("a") == 1001, "what was loaded goes on"
    model(place.folder / "c.pretzel", 2000)
    assert place.poll() == {("c", "replaced")}
    assert place.value("c") == 2000


@pytest.mark.parametrize("place", ["runtime", "workers"], indirect=True)
def test_a_model_that_does_not_fit_its_graph_does_not_take_its_place(place: Place) -> None:
    graph(place.folder, "a", "b", 1)
    model(place.folder / "b.pretzel", 1000)
    place.load()
    model(place.folder / "b.pretzel", 2000, "y")
    assert place.poll() == {("b", "refused")}
    reasons = {each.name: each.reason for each in place.repository.index()}
    assert "a graph uses this version" in reasons["b"]
    assert "a@1: model 'b' needs x, y" in reasons["b"]
    with Runtime(executors=1) as runtime:  # as a worker that comes now
        line = Line(runtime)
        joined(place.fleet, line)
        for each in (runtime, place.runtime) if place.fleet.table() else (place.runtime,):
            assert each.predict("a", ROW)["value"] == [1001.0]
            assert each.predict("b", ROW)["value"] == [1000.0]
    model(place.folder / "b.pretzel", 3000)
    assert place.poll() == {("b", "replaced")}
    assert place.value("b") == 3000


def test_a_graph_keeps_the_last_version_that_fits_in_every_process(place: Place) -> None:
    """Also in one that starts when the newest version does not fit; it says so."""
    graph(place.folder, "a", "b", 1)
    for version, more in ((1, ""), (2, ""), (3, "y"), (4, "z")):
        model(place.folder / "b" / str(version) / "m.pretzel", 1000.0 * version, *more)
    place.load()
    with Runtime(executors=1) as other, Repository(place.folder, other) as restarted:
        restarted.load_all()
        for runtime in (place.runtime, other):
            until(partial(_problem, runtime))
            assert runtime.predict("a", ROW)["value"] == [2001.0]
            assert _problem(runtime).endswith("; it goes on with b@2")
        with Server(other, ServerSettings(port=0), repository=restarted) as server:
            (line, *_) = Client(server.port).post("/v2/repository/index", {}).json
        assert line["state"] == "READY"
        assert "needs x, z" in line["reason"]
    model(place.folder / "b" / "2" / "m.pretzel", 5000.0)
    place.poll()
    until(lambda: place.value("a") == 5001)
    model(place.folder / "b" / "5" / "m.pretzel", 6000.0)
    place.poll()
    until(lambda: place.value("a") == 6001)
    assert not _problem(place.runtime)


def _problem(runtime: Runtime) -> str:
    facts = runtime.graphs.facts("a")
    assert facts is not None
    return facts.problem


def test_a_worker_that_comes_has_all_before_it_takes_requests(tmp_path: Path) -> None:
    """As after a kill: its first answer to the supervisor says that all is there."""
    graph(tmp_path, "a", "z", 1)
    model(tmp_path / "z.pretzel", 1000)
    fleet = Fleet()
    with Runtime(executors=1) as runtime, Repository(tmp_path, fleet) as repository:
        repository.load_all()
        line = Line(runtime)
        (member,) = joined(fleet, line)
        begun: Future[Any] | None = member.last
        assert begun is not None
        assert begun.exception() is None
        assert line.asked == ["begin", "open"]
        assert not line.replica.failed
        assert runtime.predict("a", ROW)["value"] == [1001.0]


def test_the_reason_has_what_to_write_instead(place: Place) -> None:
    graph(place.folder, "a", "b", 1)
    text = (place.folder / "a" / "graph.toml").read_text()
    (place.folder / "a" / "graph.toml").write_text(text.replace('"number"', '"nomber"'))
    place.load()
    (reason,) = (each.reason for each in place.repository.index())
    assert "there is no such type" in reason
    assert "number, whole, bool, category, text, vector 12" in reason


def test_a_worker_tells_once_and_in_a_line_that_it_cannot_load_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graph(tmp_path, "a", "b", 1)
    model(tmp_path / "b.pretzel", 1000, "y")
    fleet = Fleet()
    with Runtime(executors=1) as runtime, Repository(tmp_path, fleet) as repository:
        repository.load_all()
        line = Line(runtime)
        joined(fleet, line)
        for _ in range(3):  # as the supervisor does every second
            line.replica.whole(1, {name: each.to_json() for name, each in fleet.table().items()})
        assert line.replica.failed
    told = [each for each in caplog.records if "a@1 cannot be loaded" in each.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info is None
    assert "needs x, y, and was given 1 columns without names" in told[0].getMessage()
