"""How a rollout ends while it is promoting, and without its endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runtime import Runtime
from runtime.errors import UnknownEndpoint
from runtime.rollout import Rollout
from tests.house import until
from tests.runtime.conftest import Clock
from tests.runtime.rollout.conftest import register
from tests.runtime.rollout.test_rollout import ROW, ask, begun


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        register(made)
        plan = made.endpoints.find("m@1").plan
        assert plan is not None
        made.register("m", plan, 3, activate=False, background=False)
        yield made


def promoting(runtime: Runtime, clock: Clock) -> Rollout:
    """A rollout at its end, whose promotion the journal has refused so far."""
    made = begun(runtime, clock, steps=(100,), require="errors < 1 %")
    refusing = [True]

    def journal(_: str, data: object) -> None:
        if refusing and isinstance(data, dict) and data["state"] == "promoting":
            refusing.pop()
            raise OSError("no room")

    runtime.experiments.on_rollout = journal
    ask(runtime, 50)
    clock.now += 61
    with pytest.raises(OSError, match="no room"):
        made.look()
    assert made.state == "promoting"
    return made


@pytest.mark.parametrize("how", ["promote", "route"])
def test_a_route_that_others_change_is_left_alone_while_it_is_promoting(
    runtime: Runtime, how: str
) -> None:
    made = promoting(runtime, Clock())
    if how == "promote":
        runtime.promote("m", "m@3", who="operator")
    else:
        runtime.route("m", champion="m@3", who="operator")
    made.look()
    assert (made.state, made.reason) == ("aborted", "the route was changed by 'operator'")
    assert runtime.routes.history("m")[-1].route.champion == "m@3"


def test_a_route_that_others_change_ends_a_pause(runtime: Runtime) -> None:
    made = begun(runtime, Clock())
    made.pause()
    made.look()
    assert made.state == "paused"
    runtime.promote("m", "m@3", who="operator")
    made.look()
    assert (made.state, made.reason) == ("aborted", "the route was changed by 'operator'")


def test_it_is_promoted_at_the_next_look(runtime: Runtime) -> None:
    made = promoting(runtime, Clock())
    made.look()
    assert made.state == "done"
    assert runtime.experiments.champion("m") == "m@2"
    assert [each.action for each in runtime.routes.history("m")][-1] == "promote"


def test_somebody_who_promoted_the_challenger_is_followed(runtime: Runtime) -> None:
    made = promoting(runtime, Clock())
    runtime.promote("m", "m@2", who="operator")
    made.look()
    assert made.state == "done"
    assert runtime.routes.history("m")[-1].who == "operator"


def test_it_can_be_aborted_while_it_is_promoting(runtime: Runtime) -> None:
    made = promoting(runtime, Clock())
    made.abort("as a trial")
    assert made.state == "aborted"
    assert runtime.routes.history("m")[-1].route == made.base


def test_it_is_judged_until_it_is_promoted(runtime: Runtime) -> None:
    made = promoting(runtime, Clock())
    tally = runtime.experiments.tallies["m"]
    for _ in range(300):
        tally.note("m@2", 0.001, ValueError("broken since"), None)
    made.look()
    assert made.state == "aborted"
    assert "not errors" in made.reason
    assert runtime.experiments.champion("m") == "m@1"


@pytest.mark.parametrize("watch", [True, False])
def test_it_says_that_its_endpoint_is_gone(runtime: Runtime, *, watch: bool) -> None:
    made = runtime.rollout("m", "m@2", dwell=60.0, by="user", watch=watch)
    runtime.unregister("m")
    until(lambda: made.state == "aborted", "it still runs", 10)
    assert made.reason == "the endpoint was unregistered"
    assert made.events[-1].event == "aborted"
    register(runtime)
    assert made.is_over()
    assert "m" not in runtime.experiments.rollouts
    with pytest.raises(UnknownEndpoint):
        runtime.rollout("m")
    again = runtime.rollout("m", "m@2", dwell=60.0, by="user", watch=False)
    assert again.state == "running"
    runtime.predict("m", ROW)


def test_a_closed_runtime_leaves_it_for_another_process() -> None:
    with Runtime() as runtime:
        register(runtime)
        made = runtime.rollout("m", "m@2", dwell=60.0, by="user")
    assert made.state == "running"
