"""Routes in the folder: written before they count, followed when they are edited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime import Runtime
from runtime.errors import BadRegistration, EditedFile, UnknownEndpoint
from runtime.repository.errors import NotLoaded
from runtime.repository.repository import FolderEvent, Repository
from runtime.routing.history import extended
from runtime.routing.route import Route
from runtime.routing.written import as_toml, from_toml
from tests.runtime.repository.folders import save_plan

KILLED = """
import sys
from pathlib import Path
from runtime import Runtime
from runtime.repository.repository import Repository

with Runtime() as runtime, Repository(Path(sys.argv[1]), runtime) as repository:
    repository.load_all()
    if not runtime.routes.has_route("m"):
        runtime.route("m", "m@1", split={"m@2": 5}, header="x")
    print("ready", flush=True)
    while True:
        runtime.promote("m", "m@2")
        runtime.rollback("m")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in (1, 2):
        save_plan(tmp_path / "m" / str(version) / "model.pretzel", float(version))
    return tmp_path


def loaded(folder: Path, runtime: Runtime) -> tuple[Repository, tuple[FolderEvent, ...]]:
    repository = Repository(folder, runtime, quiet_seconds=0)
    return repository, repository.load_all()


def test_a_route_outlives_its_server(folder: Path, runtime: Runtime) -> None:
    repository, _ = loaded(folder, runtime)
    with repository:
        route = runtime.route("m", "m@1", split={"m@2": 5}, header="x", who="ann")
        runtime.promote("m", who="bob")
        runtime.rollback("m", who="eve")
        history = runtime.routes.history("m")
    with Runtime() as again:
        repository, events = loaded(folder, again)
        with repository:
            assert [each.kind for each in events if each.name == "m"].count("routed") == 1
            assert again.routes.history("m") == history
            assert again.routes.routed("m") == route
            # A new version waits until the route names it; the route's versions stay.
            save_plan(folder / "m" / "3" / "model.pretzel", 3.0)
            repository.poll()
            assert again.endpoints.find("m").owner == "m@1"
            (folder / "m" / "2" / "model.pretzel").unlink()
            repository.poll()
            assert again.routes.routed("m") == route
            assert again.routes.choose("m", [0.0] * 4, {"x": "1"}).name == "m"


def test_edits_are_followed(folder: Path, runtime: Runtime) -> None:
    repository, _ = loaded(folder, runtime)
    file = folder / "m" / "endpoint.toml"
    with repository:
        file.write_text('champion = "m@1"\nrules = {"headers[\'x\'] == \'1\'" = "m@2"}\n')
        events = repository.poll()
        assert [each.kind for each in events] == ["routed"]
        assert runtime.routes.choose("m", None, {"x": "1"}).owner == "m@2"
        assert runtime.routes.history("m")[-1].who == "endpoint.toml"
        before = runtime.routes.history("m")
        for text, reason in (
            ('champion = "m@7"', "no version '7'"),
            ('champion = "1"', "names its versions: the one in service may change; '1'; for"),
            ("champion", "no TOML"),
            ('champion = "m@1"\nweight = 5', "no part 'weight'"),
            ('champion = "m@1"\nsplit = 5', "not of its type"),
            ('champion = "m@1"\n[[history]]\nnumber = "x"', "damaged"),
            ('champion = "m@1"\n[[history]]\nnumber = 1.5', "damaged"),
            ("", "names its champion"),
        ):
            file.write_text(text)
            (event,) = repository.poll()
            assert event.kind == "refused"
            assert reason in event.reason
            assert repository.poll() == ()  # it is told once
            assert runtime.routes.history("m") == before
            index = repository.index()
            assert [each.state for each in index] == ["READY"] * len(index)
            assert all(
                f"m/endpoint.toml is not followed: {event.reason}" == e.reason for e in index
            )
        file.rename(file.with_suffix(".away"))
        assert repository.poll() == ()
        assert not any(each.reason for each in repository.index())
        file.with_suffix(".away").rename(file)
        assert [each.kind for each in repository.poll()] == ["refused"]
        with pytest.raises(EditedFile, match="cannot be followed") as refused:
            runtime.promote("m", "m@2")
        assert "names its champion" in str(refused.value.found)
        assert "mend the file, or delete it" in str(refused.value.hint)
        file.unlink()
        assert runtime.promote("m", "m@2").champion == "m@2"
        assert runtime.rollback("m") == before[-1].route
        assert repository.poll() == ()
        assert not any(each.reason for each in repository.index())
        file.write_text('champion = "m@1"')
        with pytest.raises(EditedFile, match="not read yet"):
            runtime.promote("m", "m@2")
        file.write_text('champion = "m@2"')
        assert [each.kind for each in repository.poll()] == ["routed"]
        assert not any(each.reason for each in repository.index())
        assert runtime.endpoints.find("m").owner == "m@2"
        assert runtime.rollback("m").champion == "m@1"


def test_what_cannot_be_written_does_not_count(folder: Path, runtime: Runtime) -> None:
    repository, _ = loaded(folder, runtime)
    with repository:
        (folder / "away").mkdir()
        (folder / "n").symlink_to("/")
        for name in ("n", ".hidden", "../n"):
            runtime.register(name, folder / "m" / "1" / "model.pretzel", version=1)
            with pytest.raises(Exception, match=r"outside|no file for this name"):
                runtime.route(name, f"{name}@1")
            with pytest.raises(UnknownEndpoint, match="has no route"):
                runtime.routes.history(name)


def test_any_route_is_read_as_it_was_written() -> None:
    odd = 'a\\b"c\n\t\x7f\u00e9\U0001f600'
    route = Route(
        "m@1",
        {"m@2": 5, "m@3": 1e-9},
        header="x",
        salt=odd,
        where="headers['a'] == 'b'",
        rules={"headers['a\\\"'] != '\u00e9'": "m@2"},
        tenants={odd: "m@3"},
        shadow="m@4",
        sample=0.1,
    )
    history = extended(extended((), "route", Route("m@1"), odd, 1.5), "route", route, "", 2e9)
    assert from_toml(as_toml(odd, history), "here", 0.0) == history
    with pytest.raises(BadRegistration, match="gap"):
        from_toml(as_toml("m", (history[0], history[0])), "here", 0.0)


def test_killed_at_any_time(folder: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    last = 0
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.05 + 0.031 * turn)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with Runtime() as runtime:
            repository, events = loaded(folder, runtime)
            with repository:
                assert [each for each in events if each.kind == "refused"] == []
                history = runtime.routes.history("m")
                numbers = [each.number for each in history]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                assert numbers[-1] > last
                assert runtime.endpoints.find("m").owner == history[-1].route.champion
                last = numbers[-1]


def test_an_endpoint_whose_route_is_broken_answers_nothing_after_a_restart(
    folder: Path, runtime: Runtime
) -> None:
    """Any version might be one that was never to answer: it is named, or the file is mended."""
    repository, _ = loaded(folder, runtime)
    with repository:
        runtime.route("m", "m@1", who="ann")
    path = folder / "m" / "endpoint.toml"
    good = path.read_text()
    for bad in ('champion == "m@1"', 'champion = "m@9"'):
        path.write_text(good.replace('champion = "m@1"', bad, 1))
        with Runtime() as again:
            repository, events = loaded(folder, again)
            with repository:
                assert [each.kind for each in events if not each.version] == ["refused"]
                with pytest.raises(UnknownEndpoint, match="route of this endpoint is not known"):
                    again.predict("m", [0.0] * 4)
                assert again.predict("m@2", [0.0] * 4)["moved"][0] == 2
                path.write_text(good)
                repository.poll()
                assert again.endpoints.find("m").owner == "m@1"
    path.write_text("no TOML")
    with Runtime() as again:
        repository, _ = loaded(folder, again)
        with repository:
            path.unlink()  # there is no route any more
            repository.poll()
            assert again.endpoints.find("m").owner == "m@2"


def test_a_broken_file_does_not_stop_what_answers(folder: Path, runtime: Runtime) -> None:
    """It is written by hand for a model that has answered without a route so far."""
    repository, _ = loaded(folder, runtime)
    path = folder / "m" / "endpoint.toml"
    with repository:
        for bad in ("no TOML", 'champion = "m@9"'):
            path.write_text(bad)
            (event,) = repository.poll()
            assert (event.kind, event.name, event.version) == ("refused", "m", "")
            assert runtime.predict("m", [0.0] * 4)["moved"][0] == 2
            told = {each.reason for each in repository.index()}
            assert all(why.startswith("m/endpoint.toml is not followed: ") for why in told)
            assert not any(str(folder) in why for why in told)
        save_plan(folder / "m" / "3" / "model.pretzel", 3.0)
        repository.poll()
        assert runtime.predict("m", [0.0] * 4)["moved"][0] == 3
        path.unlink()
        repository.poll()
        assert {each.reason for each in repository.index()} == {""}
        repository.unload("m")
        path.write_text("no TOML")
        with pytest.raises(NotLoaded, match="no TOML"):
            repository.load("m")  # nothing has answered any more
        with pytest.raises(UnknownEndpoint, match="route of this endpoint is not known"):
            runtime.predict("m", [0.0] * 4)


def test_a_version_that_a_route_names_stays_and_can_come_back(
    folder: Path, runtime: Runtime
) -> None:
    repository, _ = loaded(folder, runtime)
    with repository:
        runtime.route("m", "m@1", tenants={"a": "m@2"})
        path = folder / "m" / "2" / "model.pretzel"
        path.unlink()
        (event,) = [each for each in repository.poll() if each.version == "2"]
        assert event.kind == "refused"
        assert "still served" in event.reason
        assert not [each for each in repository.poll() if each.version == "2"]
        assert runtime.predict("m", [0.0] * 4, tenant="a")["moved"][0] == 2
        save_plan(path, 333.0)
        assert [each.kind for each in repository.poll() if each.version == "2"] == ["replaced"]
        assert runtime.predict("m", [0.0] * 4, tenant="a")["moved"][0] == 333
