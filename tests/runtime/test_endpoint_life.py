"""The life of an endpoint against a model: every answer is of a build that may give it.

A folder with up to three versions of one model is served, and everything happens to it: builds are
registered, replaced, damaged and taken away, routes and rollouts come and go, the process is
started again, the disk is full, clocks jump. Each build adds a number of its own.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import oven
from flour.core.errors import FlourError
from objectstore import Archive
from objectstore.archive import write
from runtime import Runtime
from runtime.errors import UnknownEndpoint
from runtime.repository.repository import Repository
from runtime.rollout import OVER, Rollout, resume
from runtime.routing import Route
from tests.runtime.life_world import Way, World
from tests.runtime.plans import shift_flow

NAME, WIDTH, STEPS = "m", 2, (30.0, 100.0)
ROW = [0.0] * WIDTH
KEYS = [{"user": f"u{number}"} for number in range(40)]
versions = st.sampled_from(["1", "2", "3"])
_time = time.time


@cache
def build(number: int) -> bytes:
    """The file of a plan that adds this number."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.pretzel"
        oven.bake(shift_flow(float(number), WIDTH)).save(path, durable=False)
        return path.read_bytes()


@cache
def of_another_release() -> bytes:
    """The file of a plan in a format that is not ours."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.pretzel"
        path.write_bytes(build(1))
        with Archive.open(path) as archive:
            parameters = {each: archive.get(each) for each in archive.digests()}
            write(path, {**archive.manifest, "format": 99}, parameters, durable=False)
        return path.read_bytes()


def owner(version: str) -> str:
    return f"{NAME}@{version}"


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class EndpointMachine(RuleBasedStateMachine):
    """Histories of one endpoint, whose clocks are ours."""

    @initialize(begun=st.sampled_from(["", "route", "rollout", "rollout"]))
    def start(self, begun: str) -> None:
        self.end = ExitStack()
        self.folder = Path(self.end.enter_context(TemporaryDirectory()))
        self.now, self.jump, self.number = 0.0, 0.0, 0
        self.end.enter_context(patch.object(time, "time", lambda: _time() + self.jump))
        self.world = World()
        self.handle: tuple[Any, float] | None = None
        self.serving, self.disk = ExitStack(), ExitStack()
        self.full = self.aborting = False
        self.serve()
        for version in ("1", "2"):
            self.put(version)
        if begun:
            self.give(Way("1"))
        if begun == "rollout":
            self.roll_out("2")

    def serve(self) -> None:
        """A process that serves the folder."""
        self.runtime = self.serving.enter_context(Runtime(executors=1))
        ours = partial(resume, clock=lambda: self.now, watch=False)
        self.serving.enter_context(patch("runtime.repository.route_files.resume", ours))
        self.repository = self.serving.enter_context(
            Repository(self.folder, self.runtime, quiet_seconds=0)
        )
        self.repository.load_all()

    def path(self, version: str) -> Path:
        return self.folder / NAME / version / "m.pretzel"

    def look(self) -> None:
        """The folder is looked at, and then the rollout."""
        events = self.repository.poll()
        self.world.follow(latest=bool(events))
        self.judge()

    @contextmanager
    def changing(self, *, possible: bool = True) -> Iterator[None]:
        """A change that is refused where it is not possible, or cannot be written down."""
        if possible and not self.full:
            yield
            return
        with pytest.raises(FlourError):
            yield

    def answer(self, headers: dict[str, str]) -> float | None:
        try:
            return float(self.runtime.predict(NAME, ROW, headers=headers)["top"])
        except UnknownEndpoint:
            return None

    @property
    def running(self) -> Rollout:
        made = self.runtime.experiments.rollouts[NAME]
        assert isinstance(made, Rollout)
        return made

    # --- files -------------------------------------------------------------------------------

    @rule(version=versions)
    @precondition(lambda self: not self.full)
    def put(self, version: str) -> None:
        """A new version, or another build under the number of one."""
        self.number = self.number % 30 + 1
        path = self.path(version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(build(self.number))
        self.world.files[version] = float(self.number)
        self.look()

    @rule(version=versions, keep=st.sampled_from([0, 0.5, 0.99]))
    def damage(self, version: str, keep: float) -> None:
        """The writer of a model is killed in the middle."""
        if self.path(version).exists():
            data = self.path(version).read_bytes()
            self.path(version).write_bytes(data[: int(len(data) * keep)])
            self.world.files[version] = None
            self.look()

    @rule(version=versions)
    @precondition(lambda self: not self.full)
    def put_one_of_another_release(self, version: str) -> None:
        path = self.path(version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(of_another_release())
        self.world.files[version] = None
        self.look()
        reasons = [each.reason for each in self.repository.index() if each.version == version]
        assert self.world.unloaded or "format 99" in reasons[0]

    @rule(version=versions)
    def take_away(self, version: str) -> None:
        if len(self.world.files) > 1 and self.world.files.pop(version, 0.0) != 0.0:
            self.path(version).unlink()
            self.look()

    # --- routes ------------------------------------------------------------------------------

    def is_up(self) -> bool:
        return self.world.may_answer() != {None}

    @rule(version=versions)
    @precondition(is_up)
    def switch(self, version: str) -> None:
        there = version in self.world.live and not self.world.ways
        if not there:
            with pytest.raises(FlourError):
                self.runtime.switch(NAME, version)
            return
        self.runtime.switch(NAME, version)
        self.world.current = version

    @rule(champion=versions, other=versions, share=st.sampled_from([0.0, 30.0, 100.0]))
    @precondition(is_up)
    def route(self, champion: str, other: str, share: float) -> None:
        self.give(Way(champion, other if share else "", share if other != champion else 0.0))

    @rule(champion=versions, shadow=versions)
    @precondition(is_up)
    def shadow(self, champion: str, shadow: str) -> None:
        self.give(Way(champion, shadow=shadow))

    def give(self, way: Way) -> None:
        """Give a route, which ends a rollout; it has to name versions that are there."""
        world = self.world
        given = Route(
            owner(way.champion),
            {owner(way.challenger): way.share} if way.share else {},
            header="user" if way.share else None,
            shadow=owner(way.shadow) if way.shadow and way.shadow != way.champion else None,
        )
        way = Way(way.champion, way.challenger if way.share else "", way.share, way.shadow)
        with self.changing(possible=way.named <= set(world.live) and not world.refuses(way)):
            self.runtime.routes.put_route(NAME, given)
            world.ways.append(way)
            world.is_by_hand = True
        self.look()

    @rule(version=versions)
    @precondition(is_up)
    def promote(self, version: str) -> None:
        world, way = self.world, Way(version)
        possible = bool(world.ways) and version in world.live and not world.refuses(way)
        with self.changing(possible=possible):
            self.runtime.promote(NAME, owner(version))
            world.ways.append(way)
        self.look()

    @rule()
    @precondition(is_up)
    def rollback(self) -> None:
        world = self.world
        possible = len(world.ways) > 1 and world.ways[-2].named <= set(world.live)
        with self.changing(possible=possible):
            self.runtime.rollback(NAME)
            world.ways.pop()
        self.look()

    # --- rollouts ----------------------------------------------------------------------------

    @rule(to=versions)
    @precondition(is_up)
    def roll_out(self, to: str) -> None:
        world = self.world
        if world.rollout:
            possible = False
        else:
            base = world.ways[-1] if world.ways else Way(world.current)
            step = Way(base.champion, to, STEPS[0], base.shadow)
            named = {base.champion, to}
            possible = not base.share and to != base.champion and to in world.live
            possible = possible and not world.is_lost(to)
            if possible and not world.ways and not self.full and not world.refuses(base):
                world.ways.append(base)  # it is given a route before anything else
            possible = possible and bool(world.ways)
        with self.changing(possible=possible):
            terms: dict[str, Any] = {"steps": STEPS, "dwell": 60.0, "header": "user", "least": 3}
            ours: dict[str, Any] = {"clock": lambda: self.now, "watch": False}
            self.runtime.rollout(NAME, owner(to), **terms, **ours)
            world.ways.append(step)
            world.is_by_hand = False
            world.rollout = to, 0, base, {each: world.live[each] for each in named}

    @rule(enough=st.booleans())
    def time_passes(self, *, enough: bool) -> None:
        """The dwell is over, and the challenger has answered; or one of the two is not so."""
        enough = enough and not self.full
        self.now += 61.0 if enough else 0.01
        for headers in KEYS:
            self.answer(headers)
        self.look()
        world = self.world
        if enough and world.rollout and self.is_up():
            to, step, base, builds = world.rollout
            world.is_by_hand = False
            if step + 1 < len(STEPS):
                world.ways.append(Way(base.champion, to, STEPS[step + 1], base.shadow))
                world.rollout = to, step + 1, base, builds
            else:
                world.ways.append(Way(to))
                world.rollout = None

    def judge(self) -> None:
        """The rollout looks; it ends where what it judges is not what would answer."""
        world = self.world
        if world.rollout is None or not self.is_up():
            self.aborting = False
            return
        try:
            self.running.look()
        except FlourError:
            assert self.full
            return
        aborting, self.aborting = self.aborting, False
        to, step, base, builds = world.rollout
        if aborting:
            world.end_rollout()
        elif world.ways[-1] != Way(base.champion, to, STEPS[step], base.shadow):
            world.rollout = None  # others have given another route
        elif world.is_lost(to) or any(world.live.get(v) != made for v, made in builds.items()):
            world.end_rollout()

    @rule()
    @precondition(lambda self: self.world.rollout and self.is_up())
    def abort(self) -> None:
        self.aborting = True  # where this cannot be written down, it is done later
        with self.changing():
            self.running.abort("as a trial")
        self.judge()

    # --- the process, the disk, the clock -----------------------------------------------------

    @rule()
    @precondition(lambda self: self.world.live)
    def unload(self) -> None:
        self.repository.unload(NAME)
        self.world.live, self.world.unloaded = {}, True

    @rule()
    @precondition(lambda self: self.world.unloaded and not self.full)
    def load(self) -> None:
        self.world.come_up()
        try:
            self.repository.load(NAME)
        except FlourError:
            assert self.world.muted or None in self.world.files.values()

    @rule()
    @precondition(lambda self: not self.full)
    def restart(self) -> None:
        self.serving.close()
        self.serve()
        self.world.come_up()

    @rule()
    @precondition(lambda self: self.world.rollout and not self.full)
    def restart_with_a_damaged_rollout(self) -> None:
        """The file that says how far it is cannot be read: the champion answers everything."""
        self.serving.close()
        path = self.folder / NAME / "endpoint.rollout"
        text = path.read_bytes()
        path.write_bytes(text[: len(text) // 2])
        self.serve()
        self.world.come_up()
        if self.world.rollout and not self.world.muted:
            if self.world.is_by_hand:  # a route that was the rollout's step, and stays
                self.world.rollout = None
            else:
                self.world.end_rollout()

    @rule()
    @precondition(lambda self: self.world.ways and not self.full)
    def restart_with_a_damaged_route(self) -> None:
        """Nothing answers under the name until the file is mended."""
        self.serving.close()
        path = self.folder / NAME / "endpoint.toml"
        text = path.read_bytes()
        path.write_bytes(text[: text.rindex(b"route = {") + 9])
        self.serve()
        assert {self.answer(headers) for headers in KEYS[:3]} == {None}
        path.write_bytes(text)
        self.repository.poll()
        self.world.come_up()

    @rule()
    @precondition(lambda self: not self.full)
    def fill_the_disk(self) -> None:
        self.full = True
        for place in ("route_files.write_file", "staging.NamedTemporaryFile"):
            self.disk.enter_context(patch(f"runtime.repository.{place}", no_room))

    @rule()
    @precondition(lambda self: self.full)
    def make_room(self) -> None:
        self.full = False
        self.disk.close()
        self.look()

    @rule(seconds=st.sampled_from([-3600.0, 86400.0]))
    def set_the_clock(self, seconds: float) -> None:
        self.jump += seconds

    # --- holders ------------------------------------------------------------------------------

    @rule(version=versions)
    @precondition(is_up)
    def hold(self, version: str) -> None:
        if version in self.world.live:
            self.handle = self.runtime.endpoints.find(owner(version)), self.world.live[version]

    @rule()
    def ask_what_is_held(self) -> None:
        """A version that was found before answers as itself, or not at all."""
        if self.handle is not None:
            version, number = self.handle
            try:
                found = float(self.runtime.submit(version, ROW).result(30)["top"])
            except FlourError:
                return
            assert found == number

    # --- what holds at any time ---------------------------------------------------------------

    @invariant()
    def answers_are_those_that_may_be(self) -> None:
        if not hasattr(self, "world"):
            return
        may = self.world.may_answer()
        found = {self.answer(headers) for headers in KEYS[:8]}
        assert found <= may, (found, may, self.world)
        assert bool(self.runtime.routes.muted) is (self.world.muted and bool(self.world.live))
        for version, number in self.world.live.items():
            assert float(self.runtime.predict(owner(version), ROW)["top"]) == number
        running = self.runtime.experiments.rollouts.get(NAME)
        if self.is_up() and self.world.rollout is not None:
            assert isinstance(running, Rollout)
            assert running.state not in OVER

    def teardown(self) -> None:
        if hasattr(self, "world"):
            for each in (self.disk, self.serving, self.end):
                each.close()


EndpointMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=25)
TestEndpoint = EndpointMachine.TestCase


class Longer(EndpointMachine):
    """The same with many more histories."""


Longer.TestCase.settings = settings(max_examples=1500, stateful_step_count=40)
TestEndpointLonger = pytest.mark.soak(Longer.TestCase)
