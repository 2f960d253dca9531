"""A rollout is about the builds that it has counted: it ends where another one would answer."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import flour
from runtime import Runtime
from runtime.errors import BadCall, BadRegistration
from runtime.rollout import resume
from tests.runtime.conftest import Clock
from tests.runtime.rollout.conftest import register
from tests.runtime.rollout.test_endings import promoting
from tests.runtime.rollout.test_rollout import ask, begun


def flow(factor: float) -> flour.Flow:
    row = flour.record(user=float, amount=float)
    return flour.outputs(label=row["amount"] * factor)


def replaced(runtime: Runtime, version: int, factor: float = 7.0) -> None:
    source = flow(factor)
    runtime.register("m", source, version, activate=False, replace=True, background=False)


@pytest.mark.parametrize("state", ["running", "paused", "promoting"])
@pytest.mark.parametrize("version", [1, 2])
def test_it_ends_where_a_version_is_replaced(runtime: Runtime, state: str, version: int) -> None:
    clock = Clock()
    if state == "promoting":
        runtime.register("m", flow(1.0), 3, activate=False, background=False)
        made = promoting(runtime, clock)
    else:
        made = begun(runtime, clock)
        ask(runtime, 300)
        clock.now += 61
        made.look()
        assert made.step == 1
    if state == "paused":
        made.pause()
    replaced(runtime, version)
    made.look()
    assert (made.state, made.reason) == ("aborted", f"m@{version} was replaced meanwhile")
    assert runtime.routes.history("m")[-1].route == made.base
    assert made.events[-1].reason == made.reason
    again = begun(runtime, clock)  # which counts anew
    assert {each.number for each in again.counts()["m@2"].values()} <= {0}


def test_equal_content_under_the_number_is_no_other_build(runtime: Runtime) -> None:
    clock = Clock()
    made = begun(runtime, clock, steps=(100,), require="errors < 1 %")
    replaced(runtime, 2, 1.0)
    ask(runtime, 50)
    clock.now += 61
    made.look()
    assert made.state == "done"


@pytest.mark.parametrize("state", ["running", "paused", "promoting"])
def test_one_that_was_replaced_while_no_process_ran_is_not_gone_on_with(state: str) -> None:
    clock, written = Clock(), list[dict[str, Any]]()
    with Runtime() as runtime:
        register(runtime)
        begun(runtime, clock, steps=(50, 100))
        runtime.experiments.on_rollout = lambda _, data: written.append(
            json.loads(json.dumps(data))
        )
        ask(runtime, 200)
        clock.now += 61
        runtime.experiments.rollouts["m"].look()  # type: ignore[attr-defined]  # a Rollout
        history = runtime.routes.history("m")
    data = {**written[-1], "state": state}
    with Runtime() as again:
        register(again)
        replaced(again, 2)
        again.routes.restore("m", lambda: history)
        made = resume(again.experiments, "m", data, clock=clock, watch=False)
        assert (made.state, made.reason) == ("aborted", "m@2 was replaced meanwhile")
        assert again.routes.history("m")[-1].route == made.base
    del data["builds"]  # as it was written before there were any
    with Runtime() as again:
        register(again)
        again.routes.restore("m", lambda: history)
        made = resume(again.experiments, "m", data, clock=clock, watch=False)
        assert made.state in {state, "done"}


def test_a_route_of_others_is_left_alone_whatever_was_replaced(runtime: Runtime) -> None:
    made = begun(runtime, Clock())
    runtime.route("m", "m@2")
    replaced(runtime, 1)
    made.look()
    assert (made.state, made.reason) == (
        "aborted",
        "the route was changed by somebody without a name",
    )
    assert runtime.experiments.champion("m") == "m@2"


def test_an_abort_that_was_refused_leaves_a_later_route_alone(runtime: Runtime) -> None:
    runtime.register("m", flow(1.0), 3, activate=False, background=False)
    made, refusing = begun(runtime, Clock()), [True]

    def journal(_: str, __: object) -> None:
        if refusing:
            raise BadRegistration("no room")

    runtime.experiments.on_rollout = journal
    with pytest.raises(BadRegistration):
        made.abort("as a trial")
    runtime.promote("m", "m@3", who="eve")
    refusing.clear()
    made.look()
    assert made.state == "aborted"
    assert runtime.experiments.champion("m") == "m@3"


@pytest.mark.parametrize("refused", ["the rollout", "the route"])
def test_one_that_could_not_begin_is_in_nobodys_way(runtime: Runtime, refused: str) -> None:
    runtime.route("m", "m@1")

    def refuse(_: str, __: object) -> None:
        raise BadRegistration("no room")

    if refused == "the rollout":
        runtime.experiments.on_rollout = refuse
    else:
        runtime.routes.on_route = refuse
    with pytest.raises(BadRegistration, match="no room"):
        begun(runtime, Clock())
    assert "m" not in runtime.experiments.tallies
    assert runtime.routes.history("m")[-1].route.is_direct
    runtime.experiments.on_rollout = runtime.routes.on_route = None
    assert begun(runtime, Clock()).state == "running"


def test_a_challenger_that_is_lost_is_not_begun_with(runtime: Runtime) -> None:
    runtime.experiments.lost = lambda address: "its file is gone" if address == "m@2" else ""
    with pytest.raises(BadCall, match="cannot be rolled out") as refused:
        begun(runtime, Clock())
    assert "its file is gone" in str(refused.value.found)


def test_the_log_says_what_happened(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pretzel.rollout"):
        made = begun(runtime, Clock())
        made.pause("lunch")
        made.resume()
        made.abort()
    assert [each.getMessage() for each in caplog.records] == [
        "rollout of m to m@2 started: 20 %",
        "rollout of m to m@2 paused: lunch",
        "rollout of m to m@2 resumed: 20 %",
        "rollout of m to m@2 aborted: somebody said so",
    ]
