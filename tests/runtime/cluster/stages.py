"""Controllers and replicas in one process, whose clock stands unless a test moves it.

The controllers, leases, connections and the state of the cluster are the real ones; a replica has
no models and no server, and takes each turn when the test says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from runtime.cluster.serving.autoscaling import ReplicaLoad, Scale
from runtime.cluster.serving.bodies import MemberState, Roster
from runtime.cluster.serving.controller import Controller
from runtime.cluster.serving.link import Address, Lease, Link
from runtime.cluster.serving.settings import ClusterSettings
from runtime.cluster.serving.state import ClusterState
from tests.house import until
from tests.runtime.conftest import Clock

LEASE = 5.0
FILE = "cluster.json"


class Actor:
    """A replica without models."""

    _serials = count()

    def __init__(self, stage: Stage, number: int) -> None:
        self.stage, self.number, self.born = stage, number, stage.clock.now
        self.key = f"node{number % 2}/{os.getpid()}/{next(self._serials)}"
        self.load = ReplicaLoad()
        self.names: dict[str, Any] = {}
        self.told: Roster | None = None
        self.generation, self.running = -1, False
        self.stopped = self.gone = self.paused = self.apart = False
        state = ClusterState(stage.staging / FILE)
        self.lease = Lease(LEASE, lambda: state.allows(number, self.key), stage.clock)
        said = (self._introduced, self._reported)
        self.link = Link(self._find, self.lease, said, self._asked, self._given_up)

    def _find(self) -> Address:
        if self.stage.controller is None or self.apart:
            raise ConnectionError("there is no controller")
        return self.stage.controller.address()

    def _given_up(self) -> None:
        self.gone = True

    def _introduced(self) -> object:
        url = f"http://127.0.0.1:{20_000 + self.number}"
        about = {"number": self.number, "url": url, "process": os.getpid()}
        return {**about, "key": self.key, "running": self.running}

    def _reported(self) -> object:
        return {**asdict(self.load), "generation": self.generation}

    def _asked(self, kind: str, body: Any) -> object:
        match kind:
            case "begin" | "whole":
                self.names, self.generation = dict(body["names"]), body["generation"]
            case "change":
                self.names[body["name"]], self.generation = body["wanted"], body["generation"]
            case "open":
                return self.stage.pool.submit(self._open)
            case "members":
                self.told = msgspec.convert(body, Roster)
            case "stop":
                self.stopped = True
                self.link.close()
        return None

    def _open(self) -> None:
        self.link.beat()
        self.running = True

    def turn(self) -> None:
        """Do what its threads would do now, unless it is stopped."""
        if not self.paused and not self.stopped and not self.gone:
            self.lease.keep()
            self.link.turn("replica")

    def ended(self) -> bool:
        """Whether it has been told to end, after one more turn."""
        self.turn()
        return self.gone

    def part(self) -> None:
        """Lose the connection, and find no controller until `apart` is unset."""
        self.apart, channel = True, self.link._channel
        assert channel is not None
        channel.close()
        until(lambda: self.number not in self.stage.ready())

    def answers(self) -> bool:
        """Whether a request would be answered now."""
        return self.running and not self.stopped and self.lease.held


class Stage:
    """The launcher of these replicas, which starts killed ones again; and the controllers."""

    def __init__(self, place: Path, scale: Scale) -> None:
        self.clock, self.pool = Clock(), ThreadPoolExecutor(8)
        self.folder, self.staging, self.scale = place / "models", place / "staging", scale
        self.folder.mkdir()
        self.staging.mkdir()
        self.actors: dict[int, Actor] = {}
        self.controller: Controller | None = None
        self.published: list[list[int]] = []
        """The replicas that were ready, each time that fronts were told."""
        self._all: list[Controller] = []

    # --- the launcher ------------------------------------------------------------------------

    def launch(self, number: int) -> None:
        self.actors.setdefault(number, Actor(self, number))

    def end(self, number: int) -> None:
        actor = self.actors.pop(number, None)
        if actor is not None and not actor.paused:
            actor.link.close()

    def existing(self) -> list[int]:
        return list(self.actors)

    # --- what happens ------------------------------------------------------------------------

    def start(self, identity: str = "cluster", standby: int = 0) -> Controller:
        """Start a controller, which from now on is the one that replicas find."""
        made = ClusterSettings(
            str(self.folder),
            str(self.staging),
            scale=self.scale,
            lease=LEASE,
            poll=0.0,
            identity=identity,
            standby=standby,
        )
        controller = Controller(made, self, on_members=self._told, clock=self.clock)
        controller.front.start = lambda: None  # type: ignore[method-assign] # it ends slowly
        self._all.append(controller)
        self.controller = controller.start()
        return controller

    def _told(self, members: Roster) -> None:
        self.published.append([each.number for each in members.ready()])

    def kill_controller(self) -> None:
        """End the controller as SIGKILL does: it says nothing, and all connections break."""
        controller, self.controller = self.controller, None
        assert controller is not None
        self.pool.submit(controller._let_go)  # at its end it waits for the front
        until(lambda: controller._listener.fileno() < 0 and not controller._seats)

    def kill(self, number: int, *, again: bool = True) -> None:
        """Kill a replica; Ray starts another process with its number, or cannot."""
        self.actors.pop(number).link.close()
        if again:
            self.actors[number] = Actor(self, number)

    def turn(self) -> None:
        """One turn of everything that lives; time stands."""
        for actor in list(self.actors.values()):
            actor.turn()
        if self.controller is not None:
            self.controller._step()

    def until(self, true: Callable[[], object], step: float = 0.0) -> None:
        """Let everything take turns, and this time pass with each, until something is true."""

        def is_true() -> object:
            self.advance(step, step) if step else self.turn()
            return true()

        until(is_true, seconds=30.0)

    def ready(self) -> list[int]:
        """The replicas that the controller takes for ready."""
        return [] if self.controller is None else [e.number for e in self.controller._ready()]

    def members(self) -> list[MemberState]:
        """The replicas, as clients are told."""
        return [] if self.controller is None else self.controller.members().replicas

    def settled(self, count: int) -> None:
        """Return when so many replicas are ready and answer, without time that passes."""

        def there() -> bool:
            self.turn()
            answering = [each for each in self.actors.values() if each.answers()]
            return len(self.ready()) == count == len(answering)

        until(there, f"{count} replicas are ready", seconds=30.0)

    def advance(self, seconds: float, step: float = 1.0) -> set[int]:
        """Let time pass, with a turn of everything after each step.

        Returns the replicas that would have refused a request at some moment.
        """
        end, refused = self.clock.now + seconds, set[int]()
        while self.clock.now < end:
            self.clock.now += min(step, end - self.clock.now)
            self.turn()
            there = self.actors.values()
            refused |= {each.number for each in there if each.running and not each.answers()}
        return refused

    def change(self, name: str) -> Future[None]:
        """Register a model; the future is that of its acknowledgment."""
        controller = self.controller
        assert controller is not None
        return self.pool.submit(self._change, controller, name)

    def _change(self, controller: Controller, name: str) -> None:
        controller.fleet.register(name, Path(f"/{name}.pretzel"), "1")
        controller.fleet.settle(60.0)

    def close(self) -> None:
        for controller in self._all:
            self.pool.submit(controller._let_go)
        for actor in list(self.actors.values()):
            actor.link.close()
        self.pool.shutdown()
        for controller in self._all:
            controller._seats.clear()
            controller.stop()


@contextmanager
def stage(place: Path, scale: Scale | None = None) -> Iterator[Stage]:
    """Three replicas, or so many as `scale` says, and no controller yet."""
    made = Stage(place, scale or Scale(3, 3))
    try:
        yield made
    finally:
        made.close()
