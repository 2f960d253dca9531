"""A server watches models and keeps their answers as their notes say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

import flour
import oven
from runtime import Runtime
from runtime.http import Server, ServerSettings, service
from runtime.http.answer.noted import NoteFollower
from runtime.repository import Repository
from runtime.service.endpoint import Endpoint, Endpoints
from runtime.watch import training_of
from runtime.watch.watching import watches_of
from tests.house import until

ROW = flour.record(age=float, ssn=float)
PROGRAM = flour.outputs(score=ROW["age"] * 0.5 + ROW["ssn"] * 0.0)
ROWS = {"age": np.arange(100.0), "ssn": np.arange(100.0)}
ONE = {"age": 4.0, "ssn": 1.0}


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        yield made


@pytest.fixture
def noted(runtime: Runtime, tmp_path: Path) -> Iterator[NoteFollower]:
    made = NoteFollower(runtime, str(tmp_path))
    yield made
    made.close()
    assert not [each for each in runtime.endpoints.versions().values() if each.watcher is not None]


@pytest.mark.usefixtures("noted")
def test_a_version_is_watched_while_it_is_in_service(runtime: Runtime) -> None:
    training = training_of(oven.bake(PROGRAM), ROWS)
    wanted = {"segments": ["age // 10"], "outliers": [], "drift": True}
    runtime.register("m", PROGRAM, notes={"watch": wanted, "training": training})
    first = runtime.endpoints.find("m@1")
    until(lambda: watches_of(first))
    (watch,) = watches_of(first)
    runtime.predict("m", ROWS, engine="inline")
    watch.fold()
    assert sum(cell.rows for cell in watch.cells()) == 100
    assert {each.column for each in watch.drift()} == {"age", "ssn"}
    runtime.register("m", flour.outputs(score=ROW["age"] * 0.25))
    until(lambda: not watches_of(first) and not watches_of(runtime.endpoints.find("m")))
    runtime.switch("m", "1")
    until(lambda: watches_of(first))
    runtime.unregister("m")
    until(lambda: not watches_of(first))


def test_the_first_answer_is_noted(runtime: Runtime, tmp_path: Path) -> None:
    """A server takes its first request as soon as it follows the notes."""
    runtime.register("m", PROGRAM, notes={"watch": {"outliers": []}, "keep": {}})
    with closing(NoteFollower(runtime, str(tmp_path))):
        assert watches_of(runtime.endpoints.find("m@1"))
        answer: Any = runtime.predict("m", ONE)
        assert runtime.why(answer.id).agrees()


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_a_server_is_ready_once_the_notes_of_its_folder_are_followed(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """It waits for them no longer than these seconds, and says what it waits for."""
    monkeypatch.setattr(service, "SETTLE_SECONDS", seconds)
    opens, watch = Event(), NoteFollower._watch

    def later(noted: NoteFollower, *given: Any) -> Any:
        assert opens.wait(60.0)
        return watch(noted, *given)

    monkeypatch.setattr(NoteFollower, "_watch", later)
    (tmp_path / "m").mkdir()
    oven.bake(PROGRAM).save(tmp_path / "m" / "m.pretzel")
    (tmp_path / "m" / "notes.toml").write_text("[watch]\noutliers = []\n")
    with (
        Repository(tmp_path, runtime, quiet_seconds=0.0) as repository,
        Server(runtime, ServerSettings(port=0), repository=repository) as server,
    ):
        assert [event.kind for event in repository.load_all()] == ["loaded"]
        until(lambda: runtime.endpoints.find("m").ready)
        state = server.service.ready()
        awaited = "watches and kept answers are to begin" if seconds else ""
        assert (state.ready, state.loading) == (not seconds, awaited)
        opens.set()
        assert runtime.endpoints.settle(60.0)
        until(lambda: server.service.ready().ready)
        assert watches_of(runtime.endpoints.find("m"))
    assert runtime.endpoints.settle(0.0)  # nobody follows any more


@pytest.mark.usefixtures("noted")
def test_answers_are_kept_as_long_as_notes_say_so(runtime: Runtime, tmp_path: Path) -> None:
    runtime.register("m", PROGRAM, notes={"keep": {"subject": "ssn"}})
    until(lambda: runtime.routes.keeper("m") is not None)
    answer: Any = runtime.predict("m", ONE)
    assert runtime.why(answer.id).agrees()
    assert (tmp_path / "m-0" / "plans").is_dir()
    runtime.register("m", PROGRAM, "1", replace=True)
    until(lambda: runtime.routes.keeper("m") is None)
    assert not hasattr(runtime.predict("m", ONE), "id")


def test_notes_that_cannot_be_followed_are_said_once(
    runtime: Runtime, noted: NoteFollower, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.register("m", PROGRAM, notes={"watch": {"segments": ["nobody"]}, "keep": {"a": 1}})
    until(lambda: len(caplog.records) == 2)
    runtime.register("other", PROGRAM)
    noted.look()
    watch, keep = (record.getMessage() for record in caplog.records)
    assert "m@1: watch is not done: there is no column 'nobody'" in watch
    assert "m@1: keep is not done: there is no option 'a'" in keep
    assert "options are inputs, sample" in keep
    assert runtime.predict("m", ONE)["score"] == 2.0


def test_without_a_folder_it_says_that_answers_are_not_kept(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.register("m", PROGRAM, notes={"keep": {}})
    noted = NoteFollower(runtime, "")
    until(lambda: "--set answers=DIR" in caplog.text)
    noted.close()


def test_a_follower_ends_those_who_wait_for_it_and_may_be_closed_again(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, opens = NoteFollower(runtime, ""), Event()
    monkeypatch.setattr(noted, "look", lambda: opens.wait(60.0))
    runtime.register("m", PROGRAM)
    waiting = Thread(target=noted.settle, args=(60.0,))
    waiting.start()
    closer = Thread(target=noted.close)
    closer.start()
    waiting.join(5.0)
    assert not waiting.is_alive()
    opens.set()
    closer.join(60.0)
    noted.close()


def test_nothing_is_looked_at_while_nothing_changes(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.register("m", PROGRAM)
    noted = NoteFollower(runtime, "")
    noted.close()
    seen: list[str] = []

    def endpoints(_: Endpoints) -> Iterator[Endpoint]:
        seen.append("looked")
        return iter(())

    monkeypatch.setattr(Endpoints, "__iter__", endpoints)
    noted.look()
    assert not seen
    runtime.register("n", PROGRAM)
    noted.look()
    assert seen
