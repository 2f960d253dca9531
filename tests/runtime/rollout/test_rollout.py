"""Rollouts: steps, criteria, what ends them, and what they leave behind."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import flour
from runtime import Runtime
from runtime.errors import BadCall, UnknownEndpoint
from runtime.repository.repository import Repository
from runtime.rollout import Rollout, resume
from tests.house import until
from tests.runtime.conftest import Clock
from tests.runtime.repository.folders import save_plan
from tests.runtime.rollout.conftest import register

ROW = {"user": 0.0, "amount": 1.0}


def begun(runtime: Runtime, clock: Clock, **terms: Any) -> Rollout:
    given = {"steps": (20, 50, 100), "dwell": "1 min", "by": "user", "least": 10, **terms}
    to = given.pop("to", "m@2")
    made: Rollout = runtime.rollout("m", to, clock=clock, watch=False, **given)
    return made


def ask(runtime: Runtime, count: int, first: int = 0) -> None:
    for user in range(first, first + count):
        headers = {"x-request-id": f"r{user}"}
        runtime.predict("m", {"user": float(user), "amount": 1.0}, headers=headers)


def test_steps_are_taken_and_the_challenger_promoted(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock)
    for step, weight in enumerate((20.0, 50.0, 100.0)):
        assert (made.state, made.step, made.weight) == ("running", step, weight)
        assert dict(runtime.routes.history("m")[-1].route.split) == {"m@2": weight}
        ask(runtime, 200)
        made.look()
        assert made.step == step
        clock.now += 61
        made.look()
    assert (made.state, made.weight) == ("done", 100.0)
    assert runtime.endpoints.find("m").owner == "m@2"
    assert [each.event for each in made.events] == ["started", "advanced", "advanced", "promoted"]
    assert [each.action for each in runtime.routes.history("m")] == [
        *("route", "rollout", "rollout", "rollout", "promote")
    ]
    runtime.rollback("m")  # as docs/reference/experiments.md says: to the last step, not to before
    assert dict(runtime.routes.history("m")[-1].route.split) == {"m@2": 100.0}
    runtime.promote("m", "m@1")
    assert runtime.routes.history("m")[-1].route.is_direct
    assert runtime.rollout("m") is made
    assert "done" in str(made)


@pytest.mark.parametrize("jump", [1e7, -1e7])
def test_a_clock_on_the_wall_that_is_set_moves_no_step(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    written: list[object] = []
    runtime.experiments.on_rollout = lambda _name, data: written.append(data)
    made = runtime.rollout("m", "m@2", steps=(20, 100), dwell="1 min", watch=False, by="user")
    monkeypatch.setattr(made, "_clock", lambda: time.time() + jump)
    monkeypatch.setattr(sys.modules["runtime.rollout.rollout"], "JOURNAL_SECONDS", 0.0)
    ask(runtime, 200)
    before = len(written)
    for _ in range(3):
        made.look()
    assert (made.state, made.step) == ("running", 0)
    assert made.to_data()["elapsed"] < 50.0
    assert len(written) == before + 3
    made.abort()


def test_events_are_written_down_with_what_they_are_about(runtime: Runtime, clock: Clock) -> None:
    """A process may be killed before the route is changed: the next one knows what happened."""
    written: list[dict[str, Any]] = []
    runtime.experiments.on_rollout = lambda _, data: written.append(json.loads(json.dumps(data)))
    made = begun(runtime, clock, steps=(20, 100))
    for _ in range(2):
        ask(runtime, 200)
        clock.now += 61
        made.look()
    told = [([one[0] for one in each["events"]], each["state"], each["step"]) for each in written]
    first, second = ["started"], ["started", "advanced"]
    assert told == [
        (first, "running", 0),
        (second, "running", 1),
        (second, "promoting", 1),
        ([*second, "promoted"], "done", 1),
    ]


def test_the_next_one_begins_when_the_last_one_is_written_down(
    runtime: Runtime, clock: Clock
) -> None:
    made, ending, go_on = begun(runtime, clock), threading.Event(), threading.Event()

    def written(_: str, data: Any) -> None:
        if data["state"] == "aborted":
            ending.set()
            assert go_on.wait(20)

    runtime.experiments.on_rollout = written
    threads = [threading.Thread(target=made.abort)]
    threads[0].start()
    assert ending.wait(20)
    assert made.state == "aborted"  # and about to be written down
    found: list[object] = []

    def begin() -> None:
        try:
            found.append(begun(runtime, clock))
        except BadCall as problem:
            found.append(problem)

    threads += [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.1)
    go_on.set()
    for thread in threads:
        thread.join(20)
    (one,) = [each for each in found if isinstance(each, Rollout)]
    assert len(found) == 4
    assert runtime.rollout("m") is one
    assert runtime.experiments.tallies["m"].id == one.counted["id"]


def test_it_waits_for_answers(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock, require=("conversion > 0.5x champion",))
    clock.now += 1000
    made.look()
    assert made.reason == "0 of 10 answers of m@2 in this step"
    ask(runtime, 200)
    made.look()
    assert made.reason == "nothing is known for 'conversion > 0.5x champion'"
    for user in range(200):
        assert runtime.report("m", f"r{user}", conversion=user % 2)
    made.look()
    assert (made.step, made.reason) == (1, "")
    assert [each.event for each in made.events] == ["started", "holding", "advanced"]


def test_errors_of_a_challenger_end_it(runtime: Runtime, clock: Clock) -> None:
    class Broken(Exception):
        pass

    made = begun(runtime, clock)
    base = made.base
    ask(runtime, 300)
    tally = runtime.experiments.tallies["m"]
    for _ in range(40):
        tally.note("m@2", 0.001, Broken(), None)
        made.look()
    assert made.state == "aborted"
    assert made.reason.startswith("not errors < 1x champion")
    assert runtime.routes.history("m")[-1].route == base
    assert runtime.routes.history("m")[-1].action == "abort"
    assert "m" not in runtime.experiments.tallies
    before, found = tally.report()[2], made.counts()
    assert before["m@2"]["errors"] == list(found["m@2"]["errors"])
    tally.note("m@2", 0.001, Broken(), None)
    assert (tally.report()[2], made.counts()) == (before, found)


def test_rows_that_are_refused_count_for_who_refused_them(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock)
    for user in range(200):
        with pytest.raises(Exception, match="amount"):
            runtime.predict("m", {"user": float(user), "amount": "?"})
        future = runtime.submit("m", {"user": float(user), "amount": 1.0})
        assert future.result()["label"] == 1.0
    made.look()
    counts = made.counts()
    for owner in ("m@1", "m@2"):
        assert counts[owner]["errors"].total * 2 == counts[owner]["errors"].number > 40
    assert made.state == "running"  # the champion refuses as many


def test_slow_answers_end_it(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock, require=("p99 < 5 ms",))
    tally = runtime.experiments.tallies["m"]
    for number in range(1000):
        tally.note("m@2", 0.006 if number % 20 == 0 else 0.001, None, None)
        made.look()
    assert made.state == "aborted"
    assert "p99 < 5 ms" in made.reason


def _has_pairs(made: Rollout, number: int) -> bool:
    return made.counts()["m@2"]["agreement"].number > number


def test_agreement_is_that_of_a_shadow(clock: Clock) -> None:
    for same in (True, False):
        with Runtime() as runtime:
            register(runtime, same=same)
            made = begun(runtime, clock, require=("agreement > 90 %",))
            assert runtime.routes.history("m")[-1].route.shadow == "m@2"
            ask(runtime, 300)
            until(partial(_has_pairs, made, 100))
            made.look()
            assert made.state == ("running" if same else "aborted")
            assert runtime.routes.history("m")[-1].route.shadow == ("m@2" if same else None)


def test_a_worse_metric_ends_it_and_a_better_one_does_not(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock, require=("conversion > 1x champion",), steps=(50, 100))
    ask(runtime, 4000)
    rng = random.Random(0)
    for user in range(4000):
        chosen = runtime.routes.choose("m", {"user": float(user), "amount": 1.0}).owner
        better = rng.random() < (0.3 if chosen == "m@2" else 0.2)
        assert runtime.report("m", f"r{user}", conversion=better)
        assert runtime.report("m", f"r{user}", conversion=better)  # twice counts once
    made.look()
    assert made.state == "running"
    assert made.evidence.unknown == 4000
    made.abort("that was a trial")
    worse = begun(runtime, clock, require=("conversion > 1x champion",), steps=(50, 100))
    ask(runtime, 4000)
    for user in range(4000):
        chosen = runtime.routes.choose("m", {"user": float(user), "amount": 1.0}).owner
        runtime.report("m", f"r{user}", conversion=rng.random() < (0.1 if chosen == "m@2" else 0.2))
    worse.look()
    assert worse.state == "aborted"
    assert not runtime.report("m", "nobody", conversion=1)


def test_what_is_reported_is_a_share(runtime: Runtime, clock: Clock) -> None:
    begun(runtime, clock)
    ask(runtime, 3)
    for values in (
        {"c": 2.0},
        {"c": -1},
        {"c": float("nan")},
        {"c": "1"},
        {"errors": 1},
        {"p99": 1},
    ):
        with pytest.raises(BadCall):
            runtime.report("m", "r1", **values)
    with pytest.raises(UnknownEndpoint):
        runtime.report("n", "r1", c=1)


def test_pauses_do_not_count(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock)
    ask(runtime, 200)
    clock.now += 30
    made.pause("lunch")
    assert (made.state, made.reason) == ("paused", "lunch")
    clock.now += 1000
    made.look()
    made.resume()
    made.look()
    assert made.step == 0
    clock.now += 31
    made.look()
    assert made.step == 1
    with pytest.raises(BadCall, match="this rollout is running"):
        made.resume()
    made.abort()
    assert runtime.endpoints.find("m").owner == "m@1"
    with pytest.raises(BadCall, match="this rollout is aborted"):
        made.abort()


def test_a_route_that_others_change_is_left_alone(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock)
    runtime.route("m", "m@2", who="eve")
    made.look()
    assert (made.state, made.reason) == ("aborted", "the route was changed by 'eve'")
    assert runtime.endpoints.find("m").owner == "m@2"


def test_endpoints_that_cannot_have_one(runtime: Runtime, clock: Clock) -> None:
    with pytest.raises(UnknownEndpoint, match="has no rollout"):
        runtime.rollout("m")
    with pytest.raises(UnknownEndpoint):
        runtime.rollout("n", "n@2")
    with pytest.raises(BadCall, match="champion already"):
        runtime.rollout("m", "m@1", by="user")
    made = begun(runtime, clock)
    with pytest.raises(BadCall, match="has a rollout already"):
        begun(runtime, clock)
    made.abort()
    runtime.route("m", split={"m@2": 5}, by="user")
    with pytest.raises(BadCall, match="has a split already"):
        begun(runtime, clock)


def test_a_graph_is_rolled_out_as_a_model_is(runtime: Runtime, clock: Clock) -> None:
    for version, factor in ((1, 1.0), (2, 10.0)):
        row = flour.record(user=float, amount=float)
        found = flour.model("m")(row)
        graph = flour.outputs(score=found["label"] * factor)
        runtime.register("g", graph, activate=version == 1, background=False)
    made = runtime.rollout(
        "g", "g@2", steps=(50,), dwell=1, by="user", least=10, clock=clock, watch=False
    )
    scores = {runtime.predict("g", {"user": float(n), "amount": 1.0})["score"] for n in range(100)}
    assert scores == {1.0, 10.0}
    clock.now += 2
    made.look()
    assert made.state == "done"
    assert runtime.predict("g", ROW)["score"] == 10.0


def test_a_thread_looks_at_it(runtime: Runtime) -> None:
    made = runtime.rollout("m", "m@2", steps=(50, 100), dwell=0.05, by="user", least=10)
    end = threading.Event()

    def traffic() -> None:
        while not end.is_set():
            ask(runtime, 20)

    thread = threading.Thread(target=traffic)
    thread.start()
    until(lambda: made.state == "done")
    end.set()
    thread.join()
    assert runtime.endpoints.find("m").owner == "m@2"


def test_it_goes_on_where_it_was_written_down(clock: Clock) -> None:
    """At every write a copy of what another process would find, which goes on from there."""
    found: list[tuple[dict[str, Any], Any]] = []
    with Runtime() as runtime:
        register(runtime)
        runtime.experiments.on_rollout = lambda _, data: found.append(
            (json.loads(json.dumps(data)), runtime.routes.history("m"))
        )
        made = begun(runtime, clock)
        for _ in range(3):
            ask(runtime, 200)
            clock.now += 61
            made.look()
        assert made.state == "done"
        assert made.base == runtime.routes.history("m")[0].route
    assert len(found) == 5
    for data, history in found:
        with Runtime() as other:
            register(other)
            other.routes.restore("m", lambda history=history: history)  # type: ignore[misc] # bound by default
            again = resume(other.experiments, "m", data, clock=clock, watch=False)
            assert again.state in {"running", "done"}
            if again.state == "running":
                assert other.routes.history("m")[-1].route == again.route
                assert again.step == data["step"]
                for _ in range(4):
                    ask(other, 200)
                    clock.now += 61
                    again.look()
            assert again.state == "done"
            assert other.endpoints.find("m").owner == "m@2"


def test_what_was_about_to_be_aborted_is(clock: Clock) -> None:
    found: list[tuple[dict[str, Any], Any]] = []
    with Runtime() as runtime:
        register(runtime)
        made = begun(runtime, clock)
        runtime.experiments.on_rollout = lambda _, data: found.append(
            (json.loads(json.dumps(data)), runtime.routes.history("m"))
        )
        made.abort("as a trial")
    assert [data["state"] for data, _ in found] == ["aborting", "aborted"]
    for data, history in found:
        with Runtime() as other:
            register(other)
            other.routes.restore("m", lambda history=history: history)  # type: ignore[misc] # bound by default
            again = resume(other.experiments, "m", data, clock=clock, watch=False)
            assert (again.state, again.reason) == ("aborted", "as a trial")
            assert other.routes.history("m")[-1].route == made.base


@pytest.mark.parametrize(
    "change",
    [
        {"state": "?"},
        {"step": 9},
        {"terms": {}},
        {"counts": {"m@1": {"a": [2, 1]}}},
        {"events": [1]},
    ],
)
def test_what_was_written_down_is_checked(
    runtime: Runtime, clock: Clock, change: dict[str, Any]
) -> None:
    data = begun(runtime, clock).to_data()
    with Runtime() as other:
        register(other)
        with pytest.raises(BadCall, match="cannot be read"):
            resume(other.experiments, "m", {**data, **change})
        assert other.predict("m", ROW)["label"] == 1.0


def test_an_endpoint_may_go_while_it_is_rolled_out(runtime: Runtime) -> None:
    """Also just when a step is taken: neither waits for the other for ever."""
    for _ in range(30):
        made = runtime.rollout("m", "m@2", steps=(20, 50, 100), dwell=0.0, by="user", least=1)
        ask(runtime, 20)
        looking = threading.Thread(target=_look, args=(made,))
        looking.start()
        runtime.unregister("m")
        looking.join(60)
        assert not looking.is_alive()
        assert "m" not in runtime.experiments.rollouts
        register(runtime)


def _look(made: Rollout) -> None:
    for _ in range(20):
        with suppress(UnknownEndpoint):  # it is gone by then
            made.look()


@pytest.mark.parametrize("again", [True, False], ids=["replaced", "gone"])
def test_a_rollout_that_ends_late_takes_no_place(
    runtime: Runtime, clock: Clock, *, again: bool
) -> None:
    """Its endpoint went while it was judged, and may be back with another rollout."""
    late = begun(runtime, clock)
    runtime.unregister("m")
    if again:
        register(runtime)
        new = begun(runtime, clock)
        counts = runtime.experiments.tallies["m"]
    late._progress.state = "done"
    runtime.experiments.put_rollout("m", late)
    assert "m" in runtime.experiments.rollouts if again else "m" not in runtime.experiments.rollouts
    if again:
        assert runtime.experiments.rollouts["m"] is new
        assert runtime.experiments.tallies["m"] is counts
        runtime.unregister("m")
        assert new._over.is_set()


def test_a_rollout_ends_with_its_endpoint(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when nobody tells it, which would leave a thread that fails for ever."""
    made = runtime.rollout("m", "m@2", dwell=0.0, by="user", least=10**6)
    runtime.experiments.rollouts.pop("m")  # as if another one stood there
    runtime.unregister("m")
    until(made._over.is_set, "the rollout goes on without its endpoint", 10)
    assert len(caplog.records) <= 1


def test_a_rollout_that_cannot_go_on_does_not_fill_the_log(
    runtime: Runtime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runtime.rollout("m", "m@2", dwell=0.0, by="user", least=10**6)
    looks = itertools.count(1)

    def broken() -> None:
        raise OSError(f"failed {next(looks)} times")

    monkeypatch.setattr(made, "look", broken)
    until(lambda: "failed 40 times" in made.reason, "it no longer looks")
    made.end()
    failed = [each for each in caplog.records if "cannot go on" in each.message]
    assert 1 <= len(failed) <= 7


def test_a_folder_that_was_removed_stays_so(tmp_path: Path) -> None:
    for version in (1, 2):
        save_plan(tmp_path / "m" / str(version) / "model.pretzel", float(version))
    (tmp_path / "m" / "endpoint.toml").write_text('champion = "m@1"')
    with Runtime() as other, Repository(tmp_path, other, quiet_seconds=0) as repository:
        repository.load_all()
        made = other.rollout("m", "m@2", header="user", dwell=60)
        shutil.rmtree(tmp_path / "m")
        repository.poll()
        made.end()
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("how", ["aborting", "promoting", "advancing"])
def test_what_cannot_be_written_down_is_tried_again(
    runtime: Runtime, clock: Clock, how: str
) -> None:
    made = begun(runtime, clock, steps=(50, 100) if how == "advancing" else (50,))
    ask(runtime, 200)
    refused = [True]

    def journal(*_: object) -> None:
        if refused:
            refused.pop()
            raise BadCall("the disk is full")

    runtime.experiments.on_rollout = journal
    clock.now += 61
    change = partial(made.abort, "as a trial") if how == "aborting" else made.look
    with pytest.raises(BadCall, match="full"):
        change()
    made.look()
    state = {"aborting": "aborted", "promoting": "done", "advancing": "running"}[how]
    assert (made.state, made.step) == (state, int(how == "advancing"))
    weight = {"aborting": {}, "promoting": {}, "advancing": {"m@2": 100.0}}[how]
    assert dict(runtime.routes.history("m")[-1].route.split) == weight


def test_without_a_champion_beside_it_nothing_is_promoted(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock, steps=(100,))
    ask(runtime, 200)
    clock.now += 61
    made.look()
    assert (made.state, made.reason) == ("running", "nothing is known for 'errors < 1x champion'")


def test_a_challenger_that_fails_always_ends_it(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock)
    runtime.experiments.tallies["m"].note("m@1", 0.001, None, None)
    for _ in range(20):
        runtime.experiments.tallies["m"].note("m@2", 0.001, ValueError(), None)
    made.look()
    assert (made.state, made.reason) == ("aborted", "all 20 answers of m@2 failed")


def test_agreement_goes_on_after_a_restart(clock: Clock) -> None:
    with Runtime() as runtime:
        register(runtime)
        made = begun(runtime, clock, require=("agreement > 90 %",))
        ask(runtime, 300)
        until(partial(_has_pairs, made, 100))
        agreed, history = made.counts()["m@2"]["agreement"], runtime.routes.history("m")
        data = json.loads(json.dumps(made.to_data()))
    with Runtime() as other:
        register(other)
        other.routes.restore("m", lambda: history)
        again = resume(other.experiments, "m", data, clock=clock, watch=False)
        assert again.counts()["m@2"]["agreement"] == agreed
