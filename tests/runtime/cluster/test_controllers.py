"""Replicas and their number outlive controllers of any age, on a clock that the tests move."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from runtime.cluster.serving.autoscaling import Autoscaler, ReplicaLoad, Scale
from runtime.cluster.serving.link import Lease
from runtime.cluster.serving.state import ClusterState
from runtime.errors import ClusterError
from runtime.workers.slot import HUNG_SECONDS
from tests.house import until
from tests.runtime.cluster.stages import FILE, LEASE, Stage, stage


def acknowledged(on: Stage, change: Future[None], seconds: float) -> bool:
    """Whether a change is acknowledged within this time of the stage's clock."""
    end = on.clock.now + seconds
    while not change.done() and on.clock.now < end:
        on.advance(0.5, 0.5)
        time.sleep(0.03)  # for who waits for the acknowledgment to look
    return change.done() and change.exception() is None


@pytest.mark.parametrize(("age", "jump"), [(5.0, 0.0), (70.0, 1e7), (700.0, 0.0)])
def test_replicas_of_any_age_outlive_controllers_heads_and_each_other(
    tmp_path: Path, age: float, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = count()  # of the clock on the wall, which must not matter
    wall, wall_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: wall() + (-1) ** next(jumps) * jump)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + (-1) ** next(jumps) * int(jump * 1e9))
    with stage(tmp_path) as on:
        on.start()
        on.settled(3)
        first = dict(on.actors)
        for away in ("controller", "controller", "replica", "head", "controller", "replica"):
            assert on.advance(age, 4.0) == set()
            replicas = dict(on.actors)
            if away == "replica":
                on.kill(min(on.actors))
            else:
                # A head takes the controller along; it takes longer until there is another one.
                on.kill_controller()
                assert on.advance(8.0 * LEASE if away == "head" else 3.0) == set()
                assert on.ready() == []
                on.start()
            on.settled(3)
            assert on.controller is not None
            assert on.controller.wanted == 3
            kept = {number for number in replicas if on.actors[number] is replicas[number]}
            assert len(kept) == (2 if away == "replica" else 3)
            assert acknowledged(on, on.change(f"after-{away}"), 1.0)
            assert all(f"after-{away}" in each.names for each in on.actors.values())
        assert on.actors.keys() == first.keys()
        assert not any(each.gone or each.stopped for each in first.values())
        # Fronts were never told that there is nobody.
        assert all(on.published[on.published.index([0, 1, 2]) :])


def test_a_controller_that_is_away_for_longer_than_leases_is_waited_for(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.start()
        on.settled(3)
        for away in (LEASE, 20 * LEASE, 1000 * LEASE):
            on.kill_controller()
            assert on.advance(away, away / 500 + 1.0) == set()
            on.start()
            on.settled(3)


def test_the_next_controller_says_nothing_before_a_replica_has_come_back(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.start()
        on.settled(3)
        on.kill_controller()
        on.published.clear()
        for each in on.actors.values():
            each.apart = True  # they do not find it yet
        on.start()
        assert on.advance(200.0, 2.0) == set()
        assert on.published == []
        for each in on.actors.values():
            each.apart = False
        on.settled(3)
        until(lambda: on.published)
        assert all(on.published)
        assert set(on.actors) == {0, 1, 2}


def test_what_is_wanted_is_not_what_is_alive(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.start()
        on.settled(3)
        on.kill_controller()
        for number in (0, 2):
            on.kill(number, again=False)
        on.advance(3.0)
        assert on.start().wanted == 3
        on.settled(3)
        assert on.actors.keys() == {1, 3, 4}  # no number twice


@pytest.mark.parametrize("alive", [0, 1, 2])
def test_scale_outlives_controllers(tmp_path: Path, alive: int) -> None:
    with stage(tmp_path, Scale(2, 2)) as on:
        controller = on.start()
        on.settled(2)
        controller.scale_to(4)
        on.settled(4)
        for _ in range(2):
            on.kill_controller()
            for number in sorted(on.actors)[alive:]:
                on.kill(number, again=False)
            controller = on.start()
            assert controller.wanted == 4
            on.settled(4)
        controller.scale_to(1)
        on.until(lambda: len(on.actors) == 1)
        on.kill_controller()
        assert on.start().wanted == 1
        on.settled(1)


def test_what_load_wants_outlives_controllers_and_absent_replicas(tmp_path: Path) -> None:
    with stage(tmp_path, Scale(0, 6)) as on:
        controller = on.start()
        controller.wake()
        on.settled(1)
        on.actors[0].load = ReplicaLoad(waiting=15)
        on.until(lambda: controller.wanted == 4, 0.5)
        on.settled(4)
        for each in on.actors.values():
            each.load = ReplicaLoad(waiting=4)
        on.kill_controller()
        away = [each for each in on.actors.values() if each.number != 0]
        for each in away:
            each.apart = True
        controller = on.start()
        assert controller.wanted == 4
        on.advance(200.0, 2.0)
        assert controller.wanted == 4
        for each in away:
            each.apart = False
        on.settled(4)
        for each in on.actors.values():
            each.load = ReplicaLoad()
        on.until(lambda: controller.wanted == 0, 2.0)
        on.until(lambda: not on.actors)
        on.kill_controller()
        assert on.start().wanted == 0


def test_a_cluster_without_replicas_has_none_with_the_next_controller(tmp_path: Path) -> None:
    with stage(tmp_path, Scale(0, 2)) as on:
        for _ in range(3):
            controller = on.start(standby=1)
            on.until(lambda: [e.state for e in on.members()] == ["spare"], 2.0)
            controller.wake()
            on.until(lambda: {e.state for e in on.members()} == {"ready", "spare"})
            on.until(lambda: [e.state for e in on.members()] == ["spare"], 2.0)
            assert controller.wanted == 0
            on.kill_controller()


def test_autoscaling_does_not_take_those_that_are_away_for_idle_ones() -> None:
    scaler = Autoscaler(Scale(1, 8, down_seconds=10.0))
    for now in range(100):
        assert scaler.wanted(float(now), 4, [ReplicaLoad(waiting=1)], away=True) == 4
    assert scaler.wanted(100.0, 4, [ReplicaLoad(waiting=1)] * 4) == 4
    assert scaler.wanted(111.0, 4, [ReplicaLoad(waiting=1)] * 4) == 1


def test_a_cluster_that_is_started_anew_or_beside_has_its_own_state(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        old = on.start(identity="one")
        old.scale_to(5)
        on.settled(5)
        actors, on.actors = on.actors, {}
        new = on.start(identity="two")  # in the same staging directory
        assert (old.wanted, new.wanted) == (5, 3)
        on.settled(3)
        old.fleet.settle(1.0)
        on.actors |= {number + 100: each for number, each in actors.items()}


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_without_its_file_a_controller_has_no_fewer_than_there_are(
    tmp_path: Path, damage: str
) -> None:
    with stage(tmp_path, Scale(2, 2)) as on:
        on.start().scale_to(4)
        on.settled(4)
        on.kill_controller()
        file = on.staging / FILE
        file.unlink() if damage == "gone" else file.write_bytes(b'{"wanted": "many"')
        assert on.start().wanted == 4
        on.settled(4)
        assert set(on.actors) == {0, 1, 2, 3}


# --- changes, and replicas that cannot be reached -------------------------------------------------


def test_a_replica_apart_answers_until_a_change_is_acknowledged(tmp_path: Path) -> None:
    with stage(tmp_path, Scale(1, 1)) as on:
        on.start()
        on.settled(1)
        apart = on.actors[0]
        apart.part()
        assert on.advance(20.0) == set()  # nobody has changed anything
        change = on.change("a")
        while not change.done():
            on.advance(0.5, 0.5)
            time.sleep(0.03)
            assert not (change.done() and apart.answers())
        assert change.exception() is None
        assert not apart.answers()
        assert on.advance(20.0) == {0}
        assert "a" not in apart.names
        apart.apart = False
        on.settled(1)
        assert "a" in on.actors[0].names


def test_one_of_several_that_is_apart_is_not_waited_for_later(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.start()
        on.settled(3)
        apart = on.actors[1]
        apart.part()
        refused = on.advance(3 * LEASE)
        assert refused == {1}  # the others answer, and have the models
        assert acknowledged(on, on.change("a"), 0.5)
        assert not apart.answers()
        apart.apart = False
        on.settled(3)
        assert on.actors[1] is apart
        assert "a" in apart.names
        # It may answer without a controller again.
        on.kill_controller()
        assert on.advance(10 * LEASE) == set()


def test_one_that_was_given_up_ends_when_it_comes_back(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.start()
        on.settled(3)
        lost = on.actors[2]
        lost.paused = True  # its connection stays open, as of a process that is stopped
        on.advance(HUNG_SECONDS + 1.0)
        on.until(lambda: on.ready() == [0, 1])
        on.advance(61.0)
        on.settled(3)
        assert on.actors.keys() == {0, 1, 3}
        assert acknowledged(on, on.change("a"), 3 * LEASE)
        assert not lost.answers()
        lost.paused = False
        until(lost.ended)
        assert not lost.answers()
        assert on.ready() == [0, 1, 3]


def test_a_replica_that_a_controller_does_not_know_is_taken_in(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        on.start()
        on.settled(3)
        on.kill_controller()
        unseen = on.actors.pop(1)  # Ray does not list it for a moment
        on.start()
        on.actors[1] = unseen
        on.settled(3)
        on.until(lambda: on.actors.keys() == {0, 1, 2})  # the fourth one ends
        assert on.actors[1] is unseen


def test_the_controller_was_stopped_and_not_its_replicas(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        controller = on.start()
        on.settled(3)
        replicas = dict(on.actors)
        for noticed_first in (False, True):
            on.published.clear()
            on.clock.now += 1000.0  # nothing has run meanwhile
            if noticed_first:
                controller._step()
                assert on.ready() == [0, 1, 2]
            for each in replicas.values():
                each.part()
            for each in replicas.values():
                each.apart = False
            on.settled(3)
            assert on.advance(2 * LEASE) == set()
            assert on.published in ([], [[0, 1, 2]])  # nothing has changed for clients
        assert on.actors == replicas


def test_a_change_waits_for_who_is_taken_in_and_has_not_followed(tmp_path: Path) -> None:
    with stage(tmp_path, Scale(1, 1)) as on:
        on.start()
        on.settled(1)
        on.kill_controller()
        slow, held = on.actors[0], list[Callable[[], None]]()
        told = slow._asked

        def hold(kind: str, body: object) -> object:
            if kind not in {"begin", "change", "try"}:
                return told(kind, body)
            done = Future[object]()
            held.append(lambda: done.set_result(told(kind, body)))
            return done

        slow.link._handle = hold
        controller = on.start()
        on.until(lambda: controller._seats[0].state == "loading")
        change = on.change("a")
        assert not acknowledged(on, change, 3 * LEASE)
        assert slow.answers()  # as before, for which the acknowledgment waits
        slow.link._handle = told
        while held:
            held.pop(0)()
            time.sleep(0.05)
        on.settled(1)
        assert acknowledged(on, change, 2 * LEASE)
        assert "a" in slow.names


# --- two controllers ------------------------------------------------------------------------------


def test_a_controller_yields_to_the_next_one(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        old = on.start()
        on.settled(3)
        replicas = dict(on.actors)
        new = on.start()  # the old one is not dead, and has all connections
        for act in (partial(old.scale_to, 7), partial(old.fleet.settle, 5.0)):
            with pytest.raises(ClusterError, match="another controller has taken over"):
                act()
        assert on.advance(2.0) == set()
        old._step()
        on.settled(3)
        assert on.actors == replicas
        assert (old.wanted, new.wanted, old._seats) == (3, 3, {})
        old._step()
        assert on.advance(100.0, 4.0) == set()
        assert on.actors == replicas
        assert acknowledged(on, on.change("a"), 1.0)
        new.scale_to(4)
        on.settled(4)


def test_replicas_of_a_stopped_controller_are_not_acknowledged_for(tmp_path: Path) -> None:
    with stage(tmp_path, Scale(1, 1)) as on:
        old = on.start()
        on.settled(1)
        held = on.actors[0]
        on.start()
        old._checked = float("inf")  # it does not look, and renews the lease of its replica
        old_turns = held.link._channel
        change = on.change("a")
        assert not acknowledged(on, change, LEASE)
        assert held.link._channel is old_turns
        old._checked = 0.0
        old._step()
        on.settled(1)
        assert acknowledged(on, change, 3 * LEASE)
        assert "a" in held.names


# --- parts ---------------------------------------------------------------------------------------


def test_a_lease_is_its_holders_to_renew_only_while_that_is_allowed() -> None:
    now, allowed = [0.0], [True]
    lease = Lease(5.0, lambda: allowed[0], lambda: now[0])

    def held_at(moment: float) -> bool:
        now[0] = moment
        return lease.held

    lease.keep()
    assert not held_at(0.0)  # no controller has given it one yet
    lease.renew(0.0)
    assert held_at(1.9)
    lease.keep()
    assert not held_at(5.0)  # a controller was heard of: it was not kept
    lease.keep()
    lease.renew(1.0)  # an answer that was long on its way takes nothing away
    assert held_at(9.9)
    allowed[0] = False
    lease.keep()
    assert not held_at(10.0)
    assert not held_at(1e9)
    allowed[0] = True
    lease.keep()
    assert held_at(1e9 + 4.9)


def test_the_state_that_cannot_be_written_or_read_is_told(tmp_path: Path) -> None:
    state = ClusterState(tmp_path / "none" / FILE)
    with pytest.raises(ClusterError, match="cannot be written") as refused:
        state.take_over()
    assert str(tmp_path) in str(refused.value)
    (tmp_path / FILE).mkdir()
    damaged = ClusterState(tmp_path / FILE)
    assert not damaged.allows(0, "node/1/1")
    with pytest.raises(ClusterError, match="cannot be read"):
        damaged.take_over()


def test_one_process_for_each_number_may_answer_alone(tmp_path: Path) -> None:
    state, seen = ClusterState(tmp_path / FILE), ClusterState(tmp_path / FILE)
    assert not seen.allows(0, "a/1/1")
    state.take_over()
    state.allow(0, "a/1/1")
    state.allow(1, "b/2/2")
    assert seen.allows(0, "a/1/1")
    state.allow(0, "b/3/3")  # started again on another node
    assert not seen.allows(0, "a/1/1")
    state.forbid({"b/2/2", "a/1/1"})
    assert seen.allows(0, "b/3/3")
    assert not seen.allows(1, "b/2/2")
    state.note("m", away=True)
    later = ClusterState(tmp_path / FILE)
    assert later.take_over().withdrawn == ["m"]
    with pytest.raises(ClusterError, match="taken over"):
        state.note("m", away=False)
    later.note("m", away=False)
    assert ClusterState(tmp_path / FILE).take_over().withdrawn == []
