"""Endpoints with routes whose files break, vanish or cannot be written, and that are unloaded."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import flour
from flour.core.errors import FlourError
from flour.language.graph_file import save_graph
from runtime import Runtime
from runtime.errors import BadRegistration, InUse, UnknownEndpoint
from runtime.http.service import Service
from runtime.http.wire.settings import ServerSettings
from runtime.repository.repository import Repository
from runtime.rollout import Rollout, rollout
from runtime.routing import Route
from runtime.workers.fleet import Fleet
from tests.house import until
from tests.runtime.conftest import Clock
from tests.runtime.repository.folders import WIDTH, save_plan

ROW = [0.0] * WIDTH


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in (1, 2):
        save_plan(path(tmp_path, version), float(version))
    return tmp_path


def path(folder: Path, version: int) -> Path:
    return folder / "m" / str(version) / "model.pretzel"


@contextmanager
def served(folder: Path) -> Iterator[tuple[Runtime, Repository]]:
    with Runtime(executors=1) as runtime, Repository(folder, runtime, quiet_seconds=0) as made:
        made.load_all()
        yield runtime, made


def tops(runtime: Runtime, users: int = 40) -> set[float]:
    return {
        float(runtime.predict("m", ROW, headers={"user": f"u{each}"})["top"])
        for each in range(users)
    }


def begun(runtime: Runtime, clock: Clock | None = None, **terms: Any) -> Rollout:
    if not runtime.routes.has_route("m"):
        runtime.route("m", "m@1")
    given = {"steps": (50, 100), "header": "user", "least": 5, "dwell": 60.0, **terms}
    made: Rollout = runtime.rollout("m", "m@2", clock=clock or Clock(0.0), watch=False, **given)
    return made


def vanish(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-50])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def is_ready(runtime: Runtime, repository: Repository) -> tuple[bool, list[str]]:
    state = Service(runtime, ServerSettings(), repository=repository).ready()
    return state.ready, list(state.missing)


# --- challengers that could not be loaded again ------------------------------------------------


@pytest.mark.parametrize("harm", [vanish, cut, empty])
@pytest.mark.parametrize("polled", [True, False])
def test_it_is_never_promoted(folder: Path, harm: Any, *, polled: bool) -> None:
    clock = Clock(0.0)
    with served(folder) as (runtime, repository):
        made = begun(runtime, clock)
        harm(path(folder, 2))
        for _ in range(4):
            if polled:
                repository.poll()
            tops(runtime)
            clock.now += 61
            # Until it is read, what has changed is refused where it would be promoted.
            with nullcontext() if polled else suppress(BadRegistration):
                made.look()
        if polled or harm is vanish:
            assert made.state == "aborted"
            assert "m@2 cannot be loaded again" in made.reason
            assert tops(runtime) == {1.0}
        assert runtime.experiments.champion("m") == "m@1"
        with pytest.raises(FlourError):
            runtime.promote("m", "m@2")
    with served(folder) as (runtime, repository):
        assert tops(runtime) == {1.0}


@pytest.mark.parametrize("harm", [vanish, cut])
def test_a_challenger_that_is_gone_after_a_restart_ends_it(folder: Path, harm: Any) -> None:
    with served(folder) as (runtime, _):
        begun(runtime)
        assert tops(runtime) == {1.0, 2.0}
    harm(path(folder, 2))
    for _ in range(3):  # it is written down: a later start is the same
        with served(folder) as (runtime, repository):
            assert tops(runtime) == {1.0}
            assert repository.poll() == ()
            assert runtime.rollout("m").state == "aborted"
            assert runtime.rollout("m").reason == "m@2 is not loaded"
            assert runtime.routes.history("m")[-1].action == "abort"
    save_plan(path(folder, 2), 5.0)
    with served(folder) as (runtime, _):
        assert tops(runtime) == {1.0}


def test_a_route_to_a_version_that_is_gone_is_refused_and_the_way_back_is_not(folder: Path) -> None:
    with served(folder) as (runtime, repository):
        runtime.route("m", "m@1")
        runtime.promote("m", "m@2")
        vanish(path(folder, 1))
        repository.poll()
        before = runtime.routes.history("m")
        given: list[dict[str, Any]] = [{"split": {"m@1": 5}, "header": "user"}, {"shadow": "m@1"}]
        for parts in given:
            with pytest.raises(FlourError):
                runtime.route("m", "m@2", **parts)
        with pytest.raises(FlourError):
            runtime.promote("m", "m@1")
        assert runtime.routes.history("m") == before
    shutil.copytree(folder / "m" / "2", folder / "m" / "1", dirs_exist_ok=True)
    with served(folder) as (runtime, repository):
        cut(path(folder, 1))
        repository.poll()
        assert runtime.rollback("m").champion == "m@1"
        runtime.promote("m", "m@2")


def test_an_endpoint_whose_route_cannot_be_followed_is_not_ready(folder: Path) -> None:
    with served(folder) as (runtime, repository):
        runtime.route("m", "m@2")
        assert is_ready(runtime, repository) == (True, [])
    vanish(path(folder, 2))
    with served(folder) as (runtime, repository):
        with pytest.raises(UnknownEndpoint):
            tops(runtime)
        assert is_ready(runtime, repository) == (False, ["m"])
    save_plan(folder / "other.pretzel", 9.0)
    with served(folder) as (runtime, repository):  # one of several: it is named
        assert is_ready(runtime, repository) == (True, ["m"])
        needs_all = ServerSettings(ready_needs_all=True)
        assert not Service(runtime, needs_all, repository=repository).ready().ready
    service = Service(runtime, ServerSettings(), repository=repository)
    assert not service.ready().ready  # it is closed


# --- rollouts whose file is damaged -------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", '{"state": "running"}', "\x00", None])
def test_a_rollout_that_cannot_be_read_ends_at_the_route_before(
    folder: Path, text: str | None
) -> None:
    with served(folder) as (runtime, _):
        base = runtime.route("m", "m@1", tenants={"a": "m@2"})
        made = begun(runtime)
        made.pause()
        assert tops(runtime) == {1.0, 2.0}
    file = folder / "m" / "endpoint.rollout"
    vanish(file) if text is None else file.write_text(text)
    with (
        Runtime(executors=1) as runtime,
        Repository(folder, runtime, quiet_seconds=0) as repository,
    ):
        (refused,) = (each for each in repository.load_all() if each.kind == "refused")
        assert "endpoint.rollout" in refused.reason
        assert runtime.routes.history("m")[-1].route == base
        assert runtime.routes.history("m")[-1].action == "abort"
        assert tops(runtime) == {1.0}
        assert repository.poll() == ()
        assert begun(runtime).state == "running"


def test_it_ends_when_that_can_be_written_down(folder: Path) -> None:
    with served(folder) as (runtime, _):
        begun(runtime).pause()
    (folder / "m" / "endpoint.rollout").write_text("{")
    with Runtime(executors=1) as runtime, Repository(folder, runtime, quiet_seconds=0) as made:
        with full():
            told = [each.reason for each in made.load_all() if each.kind == "refused"]
            assert len(told) == 1
            assert "cannot be written down" in told[0]
            assert made.poll() == ()  # it is told once
            assert tops(runtime) == {1.0, 2.0}
        made.poll()
        assert tops(runtime) == {1.0}


# --- a full disk, a folder that is not ours ------------------------------------------------------


@contextmanager
def full(number: int = errno.ENOSPC) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "No space left on device" if number == errno.ENOSPC else "Read-only")

    with patch("runtime.repository.route_files.write_file", refuse):
        yield


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_folder_that_cannot_be_written_stops_no_answer(
    folder: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    with served(folder) as (runtime, _):
        runtime.route("m", "m@1")
        made: Rollout = runtime.rollout(
            "m", "m@2", steps=(50, 100), header="user", least=5, dwell=0.05
        )
        with full(number), caplog.at_level(logging.INFO, "pretzel.rollout"):
            tops(runtime)
            until(lambda: "cannot be written down" in made.reason, "it has not tried", 10)
            for _ in range(10):
                assert tops(runtime, 20) <= {1.0, 2.0}
                time.sleep(0.01)
            with pytest.raises(BadRegistration, match="cannot be written down"):
                runtime.promote("m", "m@2")
            # While a step is tried, it is seen until it could not be written down.
            until(lambda: (made.state, made.step) == ("running", 0), "it went on", 10)
            said = [each for each in caplog.records if "cannot go on for now" in each.getMessage()]
            assert len(said) <= 5  # the 1st, 2nd, 4th, 8th and 16th time
            assert said
        until(lambda: tops(runtime) and made.state == "done", "it does not go on", 20)
        assert tops(runtime) == {2.0}


def test_an_abort_outlives_a_full_disk_and_unloading(folder: Path) -> None:
    """A load does not go on with a rollout whose end could not be written down."""
    with served(folder) as (runtime, repository):
        made = begun(runtime)
        with full():
            with pytest.raises(BadRegistration, match="cannot be written down"):
                made.abort("by hand")
            repository.unload("m")
            with suppress(FlourError):
                repository.load("m")
            repository.poll()
        repository.poll()
        until(lambda: repository.poll() == () and runtime.rollout("m").state == "aborted", "", 10)
        assert runtime.rollout("m").reason == "by hand"
        assert tops(runtime) == {1.0}


# --- unloading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rolled_out", [True, False])
def test_unloaded_with_its_route_and_loaded_with_it(folder: Path, *, rolled_out: bool) -> None:
    with served(folder) as (runtime, repository):
        if rolled_out:
            begun(runtime).pause("as a trial")
        else:
            runtime.route("m", "m@1", split={"m@2": 50}, header="user")
        route = runtime.routes.routed("m")
        for number in (2, 3):
            events = repository.unload("m")
            assert [each.kind for each in events] == ["unloaded"] * number
            for address in ("m", "m@1", "m@2"):
                with pytest.raises(UnknownEndpoint):
                    runtime.predict(address, ROW)
            assert {each.state for each in repository.index()} == {"UNAVAILABLE"}
            assert not any(each.wanted for each in repository.index())
            save_plan(path(folder, 3), 3.0)  # it stays so, whatever comes
            assert repository.poll() == ()
            assert not runtime.endpoints
            assert {each.version for each in repository.index() if each.wanted} == set()
            repository.load("m")
            assert runtime.routes.routed("m") == route
            assert tops(runtime) == {1.0, 2.0}
            assert {each.state for each in repository.index()} == {"READY"}
        assert not rolled_out or runtime.rollout("m").state == "paused"


def test_no_other_version_answers_while_it_is_loaded(folder: Path) -> None:
    with served(folder) as (runtime, repository):
        runtime.route("m", "m@1")
        repository.unload("m")
        seen, register = list[object](), runtime.register

        def registered(*parts: Any, **options: Any) -> str:
            version = register(*parts, **options)
            try:
                seen.append(float(runtime.predict("m", ROW)["top"]))
            except UnknownEndpoint:
                seen.append(None)
            return version

        with patch.object(runtime, "register", registered):
            repository.load("m")
        assert seen == [None, None]
        assert tops(runtime) == {1.0}


def test_what_a_graph_needs_is_not_unloaded(folder: Path) -> None:
    graph = flour.model("m")(flour.vector("x", WIDTH))
    save_graph(flour.outputs(top=graph["top"]), folder / "g.graph")
    with served(folder) as (runtime, repository):
        runtime.route("m", "m@1")
        with pytest.raises(InUse, match="graph"):
            repository.unload("m")
        assert tops(runtime) == {1.0}
        assert runtime.routes.has_route("m")
        assert {each.state for each in repository.index()} == {"READY"}
        assert all(each.wanted and not each.reason for each in repository.index())
        repository.unload("g")
        assert len(repository.unload("m")) == 2


def test_an_endpoint_whose_files_are_all_gone_goes_with_its_route(folder: Path) -> None:
    with served(folder) as (runtime, repository):
        runtime.route("m", "m@1", split={"m@2": 50}, header="user")
        shutil.rmtree(folder / "m")
        assert [each.kind for each in repository.poll()] == ["unloaded", "unloaded"]
        assert not runtime.endpoints
        save_plan(path(folder, 4), 4.0)
        repository.poll()
        assert tops(runtime) == {4.0}


def test_workers_unload_an_endpoint_with_its_route(folder: Path) -> None:
    fleet = Fleet()
    with Repository(folder, fleet, quiet_seconds=0) as repository:
        repository.load_all()
        fleet.put_route("m", fleet_route("m@1"))
        repository.unload("m")
        assert fleet.table() == {}
        assert not fleet.has_route("m")
        repository.poll()
        assert fleet.table() == {}
        repository.load("m")
        assert fleet.history("m")[-1].route == fleet_route("m@1")
        assert not fleet.table()["m"].muted


def fleet_route(champion: str) -> Route:
    return Route(champion, {"m@2": 5}, header="user")


def test_a_supervisor_ends_a_rollout_of_another_build(folder: Path) -> None:
    fleet, clock = Fleet(), Clock(0.0)
    with Repository(folder, fleet, quiet_seconds=0) as repository:
        repository.load_all()
        fleet.put_route("m", Route("m@1"))
        made = rollout(fleet, "m", "m@2", header="user", clock=clock, watch=False)
        save_plan(path(folder, 2), 7.0)
        repository.poll()
        made.look()
        assert (made.state, made.reason) == ("aborted", "m@2 was replaced meanwhile")
        assert json.loads((folder / "m" / "endpoint.rollout").read_text())["state"] == "aborted"
        fleet.close()
