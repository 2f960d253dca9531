"""What workers should have, and how they get there when something was missed or went wrong."""

from __future__ import annotations

import json
import random
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime import Runtime
from runtime.errors import ChannelClosed, NotInStep, Rejected, UnknownEndpoint
from runtime.http.wire.interfaces import ModelState
from runtime.workers.channel import RemoteError
from runtime.workers.desired import NOTHING, Version
from runtime.workers.fleet import Fleet
from runtime.workers.judging import Member
from runtime.workers.replica import ChangeFollower
from tests.runtime.plans import offset_of
from tests.runtime.repository.folders import save_plan

EXECUTORS = 1

ROWS = np.arange(8.0).reshape(2, 4)


class Line:
    """A worker without a process: follows at once, unless it is told to lose a message."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.replica = runtime, ChangeFollower(runtime)
        self.deaf = self.dead = False
        self.asked: list[str] = []

    def start(self, name: str) -> None:
        """There is no process to talk to."""

    def ask(self, kind: str, body: Any = None) -> Future[Any]:
        self.asked.append(kind)
        made: Future[Any] = Future()
        if self.dead:
            made.set_exception(ChannelClosed("gone"))
        elif not self.deaf or kind == "open":
            try:
                self._follow(kind, json.loads(json.dumps(body)))  # as it comes through a channel
                made.set_result(None)
            except Exception as problem:  # noqa: BLE001 (it is the asker's answer)
                made.set_exception(RemoteError(type(problem).__name__, {"what": str(problem)}))
        return made

    def _follow(self, kind: str, body: Any) -> None:
        if kind in {"begin", "whole"}:
            self.replica.whole(body["generation"], body["names"])
        elif kind == "change":
            self.replica.change(body["generation"], body["name"], body["wanted"])
        elif kind == "try":
            self.replica.attempt(body["name"], body["version"], body["wanted"])

    def has(self) -> dict[str, tuple[str, dict[str, float]]]:
        """For each endpoint the version that answers, and what each version adds."""
        return {
            each.name: (
                each.current,
                {
                    version: offset_of(self.runtime.predict(f"{each.name}@{version}", ROWS), ROWS)
                    for version in each.versions
                },
            )
            for each in self.runtime.endpoints
        }


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("plans")
    for number in range(6):
        save_plan(place / f"{number}.pretzel", float(number))
    return [place / f"{number}.pretzel" for number in range(6)]


def joined(fleet: Fleet, *lines: Line) -> list[Member]:
    members = [Member(number, line) for number, line in enumerate(lines)]
    for member in members:
        fleet.join(member, {})
        fleet.open(member)
    return members


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_missed_is_made_up_for(plans: list[Path], seed: int) -> None:
    """Random changes, with a worker that loses some of them, and one that comes late."""
    rng = random.Random(seed)
    fleet = Fleet()
    with Runtime(executors=1) as one, Runtime(executors=1) as two, Runtime(executors=1) as three:
        good, bad, late = Line(one), Line(two), Line(three)
        _, missing = joined(fleet, good, bad)
        for step in range(30):
            bad.deaf = rng.random() < 0.3
            _random_change(fleet, rng, plans)
            if step == 20:
                joined(fleet, late)
        bad.deaf = False
        fleet.again(missing)
        assert missing.last is not None
        assert missing.last.exception() is None
        assert good.has() == bad.has() == late.has()
        assert good.replica.generation == bad.replica.generation == fleet.generation
        assert not bad.replica.failed
        fleet.settle(1.0)


def test_an_index_is_sent_when_it_has_changed(runtime: Runtime) -> None:
    fleet = Fleet()
    line = Line(runtime)
    joined(fleet, line)
    first = (ModelState("a", "1"),)
    fleet.show(first)
    fleet.show(first)
    fleet.show((ModelState("a", "1"),))
    assert line.asked.count("index") == 1
    fleet.show((ModelState("a", "1", "UNAVAILABLE"),))
    assert line.asked.count("index") == 2
    fleet.settle(0.01)
    line.deaf = True
    fleet.show(first)  # a model that is gone would still be told to come
    with pytest.raises(NotInStep, match="behind: 0"):
        fleet.settle(0.01)


def _random_change(fleet: Fleet, rng: random.Random, plans: list[Path]) -> None:
    name, version = rng.choice("ab"), rng.choice("123")
    try:
        match rng.randrange(4):
            case 0:
                fleet.unregister(name, version)
            case 1:
                fleet.switch(name, version)
            case _:
                fleet.register(name, rng.choice(plans), version, activate=rng.random() < 0.5)
    except (UnknownEndpoint, NotInStep):
        pass


def test_a_gap_is_noticed(plans: list[Path], runtime: Runtime) -> None:
    fleet = Fleet()
    line = Line(runtime)
    (member,) = joined(fleet, line)
    fleet.register("a", plans[1], "1")
    line.deaf = True
    fleet.switch("a", "1")  # nothing changes, so nothing is said
    fleet.unregister("a", "1")
    with pytest.raises(NotInStep, match="behind: 0"):
        fleet.settle(0.01)
    line.deaf = False
    fleet.register("b", plans[2], "1")
    assert isinstance(member.last and member.last.exception(), RemoteError)
    assert set(line.has()) == {"a", "b"}  # what was tried is there, what was missed is not
    fleet.again(member)
    assert set(line.has()) == {"b"}
    fleet.settle(0.01)


def test_a_plan_that_cannot_be_loaded_reaches_nobody(plans: list[Path], tmp_path: Path) -> None:
    fleet = Fleet()
    with Runtime(executors=1) as one, Runtime(executors=1) as two:
        first, second = Line(one), Line(two)
        joined(fleet, first, second)
        fleet.register("a", plans[1], "1")
        with pytest.raises(RemoteError, match="cannot load this"):
            fleet.register("a", tmp_path / "nothing.pretzel", "1", replace=True)
        assert first.has() == second.has() == {"a": ("1", {"1": 1.0})}
        assert second.asked.count("change") == 1


def test_a_plan_that_ends_workers_is_refused_by_the_second(
    plans: list[Path], runtime: Runtime
) -> None:
    fleet = Fleet()
    lines = [Line(runtime) for _ in range(3)]
    joined(fleet, *lines)
    for line in lines:
        line.dead = True
    with pytest.raises(Rejected, match="workers end while they load this"):
        fleet.register("a", plans[1], "1")
    assert ["try" in line.asked for line in lines] == [True, True, False]
    assert not fleet.count


def test_one_worker_that_cannot_load_serves_the_rest(plans: list[Path], tmp_path: Path) -> None:
    fleet = Fleet()
    gone = tmp_path / "gone.pretzel"
    save_plan(gone, 9.0)
    fleet.register("a", plans[1], "1")
    fleet.register("b", gone, "1")
    content = gone.read_bytes()
    gone.unlink()
    with Runtime(executors=1) as runtime:
        line = Line(runtime)
        (member,) = joined(fleet, line)
        assert line.has() == {"a": ("1", {"1": 1.0})}
        assert set(line.replica.failed) == {"b@1"}
        gone.write_bytes(content)
        fleet.again(member)
        assert line.has() == {"a": ("1", {"1": 1.0}), "b": ("1", {"1": 9.0})}
        assert not line.replica.failed


def test_a_worker_that_is_behind_says_which_models_are_to_come(plans: list[Path]) -> None:
    with Runtime(executors=1) as runtime:
        replica = ChangeFollower(runtime)
        replica.whole(
            0, {"a": NOTHING.having("1", Version(1, str(plans[1])), activate=True).to_json()}
        )
        replica.failed["b@1"] = "damaged"
        states = [replica.seen(ModelState(name, "1")) for name in "abc"]
    assert [(each.state, each.reason) for each in states] == [
        *(("READY", ""), ("UNAVAILABLE", "damaged"), ("LOADING", ""))
    ]
