"""A folder that changes while it is served."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import flour
import oven
from objectstore import FileStore
from runtime import Runtime
from runtime.errors import UnknownEndpoint
from runtime.repository import FolderEvent, Repository, RepositoryError
from scheduler import SimulatedClock
from tests.runtime.repository.folders import WIDTH, X, age, fil, lgb, mlserver, save_plan, xgb

ROW = np.zeros(WIDTH)


def offset(runtime: Runtime, address: str = "a") -> float:
    return float(runtime.predict(address, ROW)["top"])


def kinds(events: tuple[FolderEvent, ...]) -> list[tuple[str, str, str]]:
    return [(event.kind, event.name, event.version) for event in events]


def test_a_file_from_the_future_is_quiet_by_our_clock(tmp_path: Path, runtime: Runtime) -> None:
    """Folders may be of another machine, whose clock is ahead."""
    now = SimulatedClock()
    repository = Repository(tmp_path, runtime, quiet_seconds=5.0, clock=now.now)
    for turn, found in enumerate(("loaded", "replaced")):
        save_plan(tmp_path / "a.pretzel", float(turn))
        age(tmp_path / "a.pretzel", seconds=-3600.0)
        assert repository.poll() == ()
        now.advance(4.9)
        assert repository.poll() == ()
        now.advance(0.2)
        assert kinds(repository.poll()) == [(found, "a", "1")]
        assert offset(runtime) == turn


def test_a_copy_that_keeps_its_time_is_followed(tmp_path: Path, runtime: Runtime) -> None:
    """`cp -p` and rsync write into a file and set its time; builds may all have one time."""
    repository, path = Repository(tmp_path, runtime, quiet_seconds=0), tmp_path / "a.pretzel"
    save_plan(path, 1.0)
    age(path)
    repository.poll()
    before = path.stat()
    save_plan(tmp_path / "b.other", 2.0)
    with path.open("r+b") as file:
        file.write((tmp_path / "b.other").read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert kinds(repository.poll()) == [("replaced", "a", "1")]
    assert offset(runtime) == 2.0


def test_new_changed_and_removed_versions(tmp_path: Path, runtime: Runtime) -> None:
    repository = Repository(tmp_path, runtime, quiet_seconds=5.0)
    save_plan(tmp_path / "a" / "1" / "m.pretzel", 1.0)
    assert repository.poll() == ()  # it may still be on its way
    age(tmp_path / "a" / "1" / "m.pretzel")
    assert kinds(repository.poll()) == [("loaded", "a", "1")]
    assert repository.poll() == ()
    save_plan(tmp_path / "a" / "2" / "m.pretzel", 2.0)
    age(tmp_path / "a" / "2" / "m.pretzel")
    assert kinds(repository.poll()) == [("loaded", "a", "2")]
    assert offset(runtime) == 2.0
    save_plan(tmp_path / "a" / "1" / "m.pretzel", 1.5)
    age(tmp_path / "a" / "1" / "m.pretzel")
    assert kinds(repository.poll()) == [("replaced", "a", "1")]
    assert (offset(runtime), offset(runtime, "a@1")) == (2.0, 1.5)
    shutil.rmtree(tmp_path / "a" / "2")
    assert kinds(repository.poll()) == [("unloaded", "a", "2")]
    assert offset(runtime) == 1.5
    shutil.rmtree(tmp_path / "a")
    assert kinds(repository.poll()) == [("unloaded", "a", "1")]
    assert not runtime.endpoints
    assert repository.index() == ()


def test_what_is_touched_is_not_loaded_again(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    repository = Repository(tmp_path, runtime)
    repository.load_all()
    before = runtime.stats().versions
    age(tmp_path / "a.pretzel", 100.0)
    assert repository.poll() == ()
    assert repository.load("a") == ()
    assert runtime.stats().versions == before


def test_a_plan_that_is_damaged_deep_inside_never_replaces_a_good_one(
    tmp_path: Path, runtime: Runtime
) -> None:
    """A row reads only some parameters; the others would be missed by blocks later."""
    save_plan(tmp_path / "a.pretzel", 1.0)
    repository = Repository(tmp_path, runtime, quiet_seconds=0.0)
    repository.load_all()
    rows = np.random.default_rng(0).normal(size=(300, 5))
    forest = RandomForestClassifier(20, random_state=0).fit(rows, rows[:, 0] > 0)
    oven.bake(flour.from_sklearn(forest)).save(tmp_path / "new")
    raw = bytearray((tmp_path / "new").read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 50] = bytes(50)
    (tmp_path / "new").unlink()
    (tmp_path / "a.pretzel").write_bytes(raw)
    (event,) = repository.poll()
    assert event.kind == "refused"
    assert offset(runtime) == 1.0


def test_removed_models_can_stay(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    repository = Repository(tmp_path, runtime, unload_removed=False)
    repository.load_all()
    (tmp_path / "a.pretzel").unlink()
    assert repository.poll() == ()
    assert offset(runtime) == 1.0


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "text", "another"])
def test_a_damaged_file_never_replaces_a_good_one(
    tmp_path: Path, runtime: Runtime, damage: str
) -> None:
    path = tmp_path / "a.pretzel"
    save_plan(path, 1.0)
    repository = Repository(tmp_path, runtime, quiet_seconds=0.0)
    repository.load_all()
    save_plan(tmp_path / "new" / "x", 2.0)
    raw = bytearray((tmp_path / "new" / "x").read_bytes())
    raw = {
        "cut": raw[:-40],
        "flipped": raw[:200] + bytes([raw[200] ^ 1]) + raw[201:],
        "emptied": bytearray(),
        "text": bytearray(b"tree\n"),
        "another": bytearray(b"PRETZEL\n" + bytes(100)),
    }[damage]
    path.write_bytes(raw)  # in place: the very file that was loaded
    (event,) = repository.poll()
    assert event.kind == "refused"
    assert offset(runtime) == 1.0
    (line,) = repository.index()
    assert line.state == "READY"
    assert line.reason.startswith("what is served is older")
    assert repository.poll() == (), "it is told once"
    with pytest.raises(RepositoryError, match="cannot be loaded"):
        repository.load("a")
    assert offset(runtime) == 1.0
    save_plan(path, 3.0)
    assert kinds(repository.poll()) == [("replaced", "a", "1")]
    assert (offset(runtime), repository.index()[0].reason) == (3.0, "")


def test_a_served_file_may_be_written_over_or_truncated(tmp_path: Path) -> None:
    path = tmp_path / "m" / "a.pretzel"
    save_plan(path, 1.0)
    with Runtime(FileStore(tmp_path / "store"), memory_budget=1) as runtime:
        repository = Repository(tmp_path / "m", runtime)
        repository.load_all()
        save_plan(tmp_path / "m" / "b.pretzel", 2.0)
        repository.load_all()  # with no room for both, plans go and come back
        os.truncate(path, 0)
        for _ in range(3):
            assert (offset(runtime), offset(runtime, "b")) == (1.0, 2.0)


def test_a_configuration_that_breaks_keeps_what_is_served(tmp_path: Path, runtime: Runtime) -> None:
    place = tmp_path / "m"
    fil(place, "xgboost_json", 1)
    (place / "3").mkdir()
    xgb("number").save_model(place / "3" / "xgboost.json")
    repository = Repository(tmp_path, runtime, quiet_seconds=0.0)
    repository.load_all()
    (place / "config.pbtxt").write_text("backend: {", encoding="utf-8")
    assert kinds(repository.poll()) == [("refused", "m", "")]
    assert np.array_equal(runtime.predict("m@3", X)["output__0"], xgb("number").predict(X))
    fil(place, "xgboost_json", 1)
    repository.poll()
    assert [line.state for line in repository.index()] == ["READY"]


def test_settings_that_break_keep_models_of_other_names(tmp_path: Path, runtime: Runtime) -> None:
    """Which model and which version it was is not known while they cannot be read."""
    facts: dict[str, Any] = {"name": "m", "parameters": {"version": "7", "uri": "./m.txt"}}
    mlserver(tmp_path / "place", "LightGBMModel", **facts)
    lgb("number").save_model(tmp_path / "place" / "m.txt")
    repository = Repository(tmp_path, runtime, quiet_seconds=0.0)
    repository.load_all()
    (tmp_path / "place" / "model-settings.json").write_text("{", encoding="utf-8")
    assert kinds(repository.poll()) == [("refused", "place", "")]
    assert kinds(repository.poll()) == []
    assert [(each.address, each.state) for each in repository.index()] == [
        *(("m@7", "READY"), ("place", "UNAVAILABLE"))
    ]
    mlserver(tmp_path / "place", "LightGBMModel", **facts)
    repository.poll()
    assert [(each.address, each.state) for each in repository.index()] == [("m@7", "READY")]


def test_each_model_answers_when_its_own_versions_are_there(
    tmp_path: Path, runtime: Runtime
) -> None:
    """By the latest one: none that came before it answers meanwhile."""
    for name, versions in {"a": (1,), "b": (9, 10), "c": (1,)}.items():
        for version in versions:
            save_plan(tmp_path / name / str(version) / "model.pretzel", float(version))
    (tmp_path / "c" / "endpoint.toml").write_text("no TOML")
    seen: list[tuple[str, dict[str, str], list[str]]] = []

    def see(event: FolderEvent) -> None:
        index = {each.address: each.state for each in repository.index()}
        seen.append((f"{event.name}@{event.version}", index, [*runtime.endpoints.routes]))

    repository = Repository(tmp_path, runtime, quiet_seconds=0.0, on_event=see)
    repository.expect()
    assert [(each.address, each.state) for each in repository.index()] == [("", "LOADING")]
    repository.load_all()
    names = ["", "a@1", "b@9", "b@10", "c@1"]
    at = {event: (index, bare) for event, index, bare in seen}
    assert all(sorted(index) == sorted(names) for index, _ in at.values())
    assert [name for name in names if at["b@9"][0][name] == "LOADING"] == ["", "b@10", "c@1"]
    assert {"a", "b", "c"}.intersection(at["b@10"][1]) == {"a"}
    assert {"a", "b", "c"}.intersection(at["c@1"][1]) >= {"a", "b"}
    assert runtime.endpoints.routes["b"].version == "10"
    assert "c" not in runtime.endpoints.routes
    assert {each.state for each in repository.index()} == {"READY"}


def test_a_folder_that_is_away_changes_nothing(tmp_path: Path, runtime: Runtime) -> None:
    folder = tmp_path / "models"
    save_plan(folder / "a.pretzel", 1.0)
    repository = Repository(folder, runtime)
    repository.load_all()
    folder.rename(tmp_path / "away")
    with pytest.raises(RepositoryError, match="cannot be read"):
        repository.poll()
    assert offset(runtime) == 1.0
    (tmp_path / "away").rename(folder)
    assert repository.poll() == ()


def test_models_go_and_come_by_name(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "a" / "1" / "m.pretzel", 1.0)
    save_plan(tmp_path / "a" / "2" / "m.pretzel", 2.0)
    repository = Repository(tmp_path, runtime, quiet_seconds=0.0)
    repository.load_all()
    assert len(repository.unload("a")) == 2
    with pytest.raises(UnknownEndpoint):
        offset(runtime)
    assert {(line.state, line.wanted) for line in repository.index()} == {("UNAVAILABLE", False)}
    assert repository.poll() == (), "who unloads a model by name means it"
    assert len(repository.load("a")) == 2
    assert offset(runtime) == 2.0
    for act in (repository.load, repository.unload):
        with pytest.raises(UnknownEndpoint):
            act("nobody")


def test_the_index_is_made_again_when_it_changes(tmp_path: Path, runtime: Runtime) -> None:
    """Who sends it on asks often, and it may be long."""
    repository = Repository(tmp_path, runtime)
    assert repository.index() == ()
    save_plan(tmp_path / "a.pretzel", 1.0)
    repository.load_all()
    first = repository.index()
    assert [(each.name, each.state, each.wanted) for each in first] == [("a", "READY", True)]
    repository.load_all()
    assert repository.index() is first
    repository.unload("a")
    assert [(each.state, each.wanted) for each in repository.index()] == [("UNAVAILABLE", False)]
    repository.load("a")
    assert repository.index() == first
    (tmp_path / "a.pretzel").write_bytes(b"damaged")
    repository.load_all()
    assert "older" in repository.index()[0].reason
    (tmp_path / "a.pretzel").unlink()
    repository.load_all()
    assert repository.index() == ()


def test_what_was_half_written_at_the_start_comes_later(tmp_path: Path, runtime: Runtime) -> None:
    lgb("number").save_model(tmp_path / "a.txt")
    whole = (tmp_path / "a.txt").read_bytes()
    (tmp_path / "a.txt").write_bytes(whole[: len(whole) // 2])
    repository = Repository(tmp_path, runtime, quiet_seconds=0.0)
    assert kinds(repository.load_all()) == [("refused", "a", "1")]
    (tmp_path / "a.txt").write_bytes(whole)
    assert kinds(repository.poll()) == [("loaded", "a", "1")]


def test_a_storm_of_changes_and_requests(tmp_path: Path, runtime: Runtime) -> None:
    """Files are replaced, damaged and polled by many at once: answers are of some good version."""
    path, offsets = tmp_path / "a.pretzel", range(12)
    for number in offsets:
        save_plan(tmp_path / "made" / f"{number}.x", float(number))
    shutil.copy(tmp_path / "made" / "0.x", path)
    repository = Repository(tmp_path, runtime, quiet_seconds=0.0)
    repository.load_all()
    stop, problems, seen = threading.Event(), list[BaseException](), set[float]()

    def keep(act: object) -> None:
        try:
            while not stop.is_set():
                act()  # type: ignore[operator]  # called with nothing
        except BaseException as problem:  # noqa: BLE001 (whatever it is, the test fails)
            problems.append(problem)

    def reload() -> None:
        try:
            repository.load("a")
        except RepositoryError:
            time.sleep(0.001)  # it was damaged just then

    acts = [repository.poll, repository.poll, reload, lambda: seen.add(offset(runtime))]
    threads = [threading.Thread(target=keep, args=(act,)) for act in (*acts, repository.index)]
    for thread in threads:
        thread.start()
    for number in offsets:
        raw = (tmp_path / "made" / f"{number}.x").read_bytes()
        path.write_bytes(raw[: len(raw) // 2])
        time.sleep(0.01)
        path.write_bytes(raw)
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert seen <= set(map(float, offsets))
    repository.poll()
    assert offset(runtime) == 11.0
    assert repository.index()[0].state == "READY"


def test_a_thread_follows_the_folder(tmp_path: Path, runtime: Runtime) -> None:
    came = threading.Event()
    with Repository(
        tmp_path, runtime, quiet_seconds=0.0, on_event=lambda _: came.set()
    ) as repository:
        repository.watch(0.02)
        save_plan(tmp_path / "a.pretzel", 1.0)
        assert came.wait(60)
        assert offset(runtime) == 1.0
        (watcher,) = [each for each in threading.enumerate() if each is repository._watcher]
    assert not watcher.is_alive()


def test_slow_looks_are_ten_times_as_far_apart(tmp_path: Path, runtime: Runtime) -> None:
    came, hours = threading.Event(), itertools.count(step=3600)
    with Repository(
        tmp_path,
        runtime,
        quiet_seconds=0.0,
        clock=lambda: next(hours),
        on_event=lambda _: came.set(),
    ) as repository:
        repository.watch(0.02)
        time.sleep(1.0)  # the first look has been
        save_plan(tmp_path / "a.pretzel", 1.0)
        assert not came.wait(1.0)


def test_following_goes_on_after_whatever_happens(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[FolderEvent] = []
    came = threading.Event()

    def tell(event: FolderEvent) -> None:
        told.append(event)
        came.set()

    whole, bad = Repository.poll, [RuntimeError("a bug")] * 3

    def poll(repository: Repository) -> tuple[FolderEvent, ...]:
        if bad:
            raise bad.pop()
        return whole(repository)

    monkeypatch.setattr(Repository, "poll", poll)
    with Repository(tmp_path, runtime, quiet_seconds=0.0, on_event=tell) as repository:
        repository.watch(0.02)
        assert came.wait(60)
        came.clear()
        save_plan(tmp_path / "a.pretzel", 1.0)
        assert came.wait(60)
    assert [event.kind for event in told] == ["refused", "loaded"]
    assert "a bug" in told[0].reason


def test_imported_plans_are_kept_for_other_processes(tmp_path: Path, runtime: Runtime) -> None:
    (tmp_path / "models").mkdir()
    xgb("number").save_model(tmp_path / "models" / "a.ubj")
    staging = tmp_path / "staging"
    with Repository(tmp_path / "models", runtime, staging=staging) as repository:
        repository.load_all()
    (plan,) = staging.glob("*.pretzel")
    before = plan.stat().st_mtime_ns
    with Runtime() as second, Repository(tmp_path / "models", second, staging=staging) as other:
        other.load_all()
        assert np.array_equal(second.predict("a", X)["value"], xgb("number").predict(X))
    assert plan.stat().st_mtime_ns == before
