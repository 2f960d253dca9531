"""What runs when: order, shares, deadlines, bounds, faults and ends, on a simulated clock."""

from __future__ import annotations

from contextlib import suppress

import pytest

from scheduler import BadJob, DeadlineExceeded, ExecutorDied, Overloaded, SchedulerClosed, State
from scheduler.job import Stages
from scheduler.queues import QueueRules
from tests.scheduler.simulation import Broken, Play, Simulation, _never

#: Sums of it are exact.
TICK = 1 / 1024
NO_AGEING = QueueRules(patience=1e9)


def busy(simulation: Simulation, seconds: float = 1.0) -> None:
    """Occupy every shared executor."""
    for _ in range(len(simulation.core.shared.slots)):
        simulation.submit("busy", seconds)
    assert not simulation.core.shared.idle


class TestOrder:
    def test_first_come_first_served(self) -> None:
        simulation = Simulation()
        busy(simulation)
        for name in "abc":
            simulation.submit(name)
        simulation.run()
        assert simulation.order == ["busy", *"abc"]

    def test_priority_before_deadline_before_arrival(self) -> None:
        simulation = Simulation(rules=QueueRules(patience=1e9, burst=1e9))
        busy(simulation)
        simulation.submit("late", within=90)
        simulation.submit("none")
        simulation.submit("early", within=50)
        simulation.submit("high, none", priority=1)
        simulation.submit("high, early", priority=1, within=70)
        simulation.submit("low", priority=-1, within=20)
        simulation.run()
        assert simulation.order[1:] == ["high, early", "high, none", "early", "late", "none", "low"]

    def test_deadlines_decide_between_keys_too(self) -> None:
        simulation = Simulation(rules=QueueRules(patience=1e9, burst=1e9))
        busy(simulation)
        simulation.submit("a none", key="a")
        simulation.submit("b late", key="b", within=90)
        simulation.submit("a early", key="a", within=50)
        simulation.run()
        assert simulation.order[1:] == ["a early", "b late", "a none"]

    def test_started_work_goes_before_new_work_of_any_priority(self) -> None:
        simulation = Simulation(rules=NO_AGEING)
        simulation.submit("started", [1.0, 1.0, 1.0])
        urgent = simulation.submit("urgent", priority=9, within=100)
        simulation.run()
        assert urgent.started_at == 3.0

    def test_stages_that_do_not_wait_for_each_other_run_together(self) -> None:
        simulation = Simulation(executors=2)
        diamond = Stages.graph((_never, ()), (_never, (0,)), (_never, (0,)), (_never, (1, 2)))
        play = simulation.submit("diamond", [1.0, 2.0, 2.0, 1.0], stages=diamond)
        simulation.run()
        assert play.ended_at == 4.0
        assert play.value == [("diamond", 0, 3)]
        assert simulation.most_held == 1

    def test_several_first_stages_count_as_one_start(self) -> None:
        simulation = Simulation(executors=2)
        roots = Stages.graph((_never, ()), (_never, ()), (_never, (0, 1)))
        one = simulation.submit("one", [2.0, 2.0, 1.0], stages=roots)
        two = simulation.submit("two", [2.0, 2.0, 1.0], stages=roots)
        simulation.run()
        assert (one.ended_at, two.started_at) == (3.0, 2.0)

    def test_chunks_run_on_all_executors_and_are_joined_in_order(self) -> None:
        simulation = Simulation(executors=3, rules=QueueRules(burst=1e9))
        play = simulation.submit("job", [1.0, 1.0], chunks=6)
        joined = simulation.submit("joined", chunks=4, join=len)
        simulation.run()
        assert play.ended_at == 4.0
        assert play.value == [("job", n, 1) for n in range(6)]
        assert joined.value == 4
        assert simulation.most_held <= 3


class TestSharing:
    def test_an_urgent_job_waits_for_started_chunks_only(self) -> None:
        """Priority inversion: a queue of unimportant jobs never stands before an important one."""
        simulation = Simulation(executors=2, rules=NO_AGEING)
        for n in range(50):
            simulation.submit(n, [0.1, 0.1, 0.1], chunks=3, priority=-1)
        simulation.run(1.05)
        urgent = simulation.submit("urgent", priority=1)
        simulation.run()
        assert urgent.started_at is not None
        assert urgent.started_at - 1.05 <= 0.3

    def test_a_busy_key_does_not_hold_up_a_quiet_one(self) -> None:
        simulation = Simulation(rules=QueueRules(patience=1e9, burst=0.002))
        for n in range(1000):
            simulation.submit(("flood", n), 0.001, key="flood")
        simulation.run(0.1)
        quiet = simulation.submit("quiet", 0.001, key="quiet")
        simulation.run()
        assert quiet.started_at is not None
        # The chunk that runs and what the burst lets the flood have first.
        assert quiet.started_at - 0.1 <= 0.001 + 0.002 + 0.001 + 1e-9

    @pytest.mark.parametrize(
        "estimates", [(1.0, 1.0, 1.0), (10.0, 0.1, 1.0)], ids=["exact estimates", "wrong estimates"]
    )
    def test_keys_get_equal_time_whatever_they_ask_for(self, estimates: tuple[float, ...]) -> None:
        """Three keys want 8:4:1 jobs, of which one key's take three times as long."""
        simulation = Simulation(executors=2, rules=QueueRules(patience=1e9, jobs=10_000))
        seconds = {"a": 0.001, "b": 0.001, "c": 0.003}
        factors = dict(zip(seconds, estimates, strict=True))
        for n in range(500):
            for key, count in {"a": 8, "b": 4, "c": 1}.items():
                for each in range(count):
                    name = (key, n, each)
                    cost = seconds[key] * factors[key]
                    simulation.submit(name, seconds[key], key=key, cost=cost)
        simulation.run(1.5)
        used = dict.fromkeys(seconds, 0.0)
        for play in simulation.settled:
            assert isinstance(play.name, tuple)
            used[play.name[0]] += seconds[play.name[0]]
        assert sum(used.values()) == pytest.approx(3.0, abs=0.01)
        assert used == pytest.approx(dict.fromkeys(used, 1.0), abs=0.04)

    def test_early_deadlines_do_not_buy_a_larger_share(self) -> None:
        simulation = Simulation(rules=QueueRules(patience=1e9, burst=0.002))
        for n in range(200):
            simulation.submit(("heavy", n), 0.05, key="heavy", within=50)
            simulation.submit(("light", n), 0.005, key="light", within=99)
        simulation.run(1.0)
        used = {"heavy": 0.0, "light": 0.0}
        for play in simulation.settled:
            assert isinstance(play.name, tuple)
            used[play.name[0]] += sum(play.seconds)
        assert used["heavy"] == pytest.approx(0.5, abs=0.06)

    def test_expired_work_is_passed_over_without_a_charge(self) -> None:
        simulation = Simulation(rules=QueueRules(patience=1e9, burst=0.0))
        busy(simulation)
        for n in range(200):
            simulation.submit(("other", n), 0.001, key="other")
        late = [simulation.submit(n, 0.001, key="unlucky", within=0.5) for n in range(50)]
        simulation.run(1.01)
        assert {play.end for play in late} == {State.EXPIRED}
        play = simulation.submit("fresh", 0.001, key="unlucky")
        simulation.run()
        assert play.started_at is not None
        assert play.started_at < 1.013

    @pytest.mark.parametrize("how", ["cancelled", "expired"])
    def test_what_did_not_run_is_not_held_against_a_key(self, how: str) -> None:
        """One key drops 200 jobs; then it and another one want as much as each other."""
        rules = QueueRules(patience=1e9, burst=0.0)
        simulation = Simulation(rules=rules)
        busy(simulation, 1.0)
        simulation.submit("stays", 0.001, key="other", within=99)
        dropped = [simulation.submit(n, 0.001, key="unlucky", within=0.5) for n in range(200)]
        if how == "cancelled":
            for play in dropped:
                simulation.cancel(play)
        simulation.run(0.6)
        if how == "expired":
            simulation.tick()
        names = [(key, n) for n in range(50) for key in ("unlucky", "other")]
        for key, n in names:
            simulation.submit((key, n), 0.001, key=key)
        simulation.run()
        first = [each for each in simulation.order if each in names][:20]
        assert sum(1 for each in first if each in names and each[0] == "unlucky") in range(9, 12)

    def test_a_large_job_does_not_hold_up_small_ones(self) -> None:
        simulation = Simulation(rules=QueueRules(patience=1e9, burst=0.0))
        simulation.submit("large", 0.001, chunks=1000, key="k")
        simulation.run(0.01)
        small = simulation.submit("small", 0.001, key="k")
        simulation.run()
        assert small.started_at is not None
        assert small.started_at < 0.015

    def test_nothing_starves(self) -> None:
        """A flood of important jobs, twice what can be served, and one that is not important."""
        rules = QueueRules(patience=0.05, one_in=8, jobs=40)
        simulation = Simulation(rules=rules)
        simulation.submit(0, 0.001, priority=5)
        last = simulation.submit("last", 0.001, priority=-5)
        important = 0
        for n in range(1, 400):
            try:
                simulation.submit(n, 0.001, priority=5)
                important += 1
            except Overloaded:
                pass
            simulation.run(0.0005)
        assert last.end is State.DONE
        assert last.started_at is not None
        assert 0.05 < last.started_at < 0.05 + 0.001 * 8 * 2
        assert important > 150

    def test_ageing_leaves_most_starts_to_the_important(self) -> None:
        simulation = Simulation(rules=QueueRules(patience=0.0, one_in=8))
        busy(simulation, 0.001)
        for n in range(400):
            simulation.submit(("low", n), 0.001, priority=0)
        for n in range(400):
            simulation.submit(("high", n), 0.001, priority=1)
        simulation.run(0.4)
        # The oldest of all are the unimportant ones, and they get one start in eight.
        low = sum(1 for name in simulation.order if isinstance(name, tuple) and name[0] == "low")
        assert low == pytest.approx(50, abs=2)


class TestDeadlines:
    def test_expired_work_never_runs(self) -> None:
        simulation = Simulation()
        busy(simulation, 1.0)
        late = simulation.submit("late", within=0.5)
        simulation.run()
        assert late.end is State.EXPIRED
        assert late.ran == []
        assert isinstance(late.value, DeadlineExceeded)
        assert "before its first stage" in str(late.value)

    def test_a_deadline_is_noticed_while_executors_are_busy(self) -> None:
        simulation = Simulation()
        busy(simulation, 10.0)
        late = simulation.submit("late", within=0.5)
        simulation.run(0.5)
        assert simulation.core.next_deadline == 0.5
        simulation.tick()
        assert late.end is State.EXPIRED
        assert late.ended_at == 0.5

    def test_a_started_job_is_dropped_between_stages(self) -> None:
        simulation = Simulation()
        late = simulation.submit("late", [1.0, 1.0, 1.0], chunks=2, within=1.5)
        simulation.run()
        assert late.end is State.EXPIRED
        assert late.ran == [(0, 0), (0, 1)]
        assert "between stages" in str(late.value)
        assert not simulation.held

    def test_a_job_that_is_late_when_it_comes(self) -> None:
        simulation = Simulation()
        assert simulation.submit("late", within=0.0).end is State.EXPIRED
        assert simulation.core.unfinished == 0

    def test_expired_work_makes_room(self) -> None:
        simulation = Simulation(rules=QueueRules(jobs=1))
        busy(simulation)
        late = simulation.submit("late", within=0.1)
        simulation.run(0.2)
        fresh = simulation.submit("fresh")
        assert late.end is State.EXPIRED
        simulation.run()
        assert fresh.end is State.DONE


class TestBounds:
    def test_too_many_jobs(self) -> None:
        simulation = Simulation(rules=QueueRules(jobs=2))
        busy(simulation)
        simulation.submit("a")
        simulation.submit("b", 3.0)
        with pytest.raises(Overloaded) as caught:
            simulation.submit("c")
        assert caught.value.retry_after == 4.0
        assert "2 of 2 jobs" in str(caught.value)
        assert simulation.core.counts.refused == 1
        simulation.run()
        assert simulation.order == ["busy", "a", "b"]

    def test_too_much_time(self) -> None:
        """A tenth of a second for each executor, beyond a few jobs of whatever length."""
        simulation = Simulation(2, QueueRules(seconds=100 * TICK))
        busy(simulation)
        for n in range(64):
            simulation.submit(n, 1.0)
        with pytest.raises(Overloaded):
            simulation.submit("more")
        simulation.run(3.5)  # six of them have started
        simulation.submit("again")
        simulation.run()
        assert simulation.core.counts.refused == 1
        simulation = Simulation(2, QueueRules(seconds=100 * TICK))
        busy(simulation)
        for n in range(201):
            simulation.submit(n, TICK)
        with pytest.raises(Overloaded):
            simulation.submit("more", TICK)
        simulation.run()
        assert len(simulation.order) == 203

    def test_what_one_key_has_waiting_refuses_no_other(self) -> None:
        simulation = Simulation(rules=QueueRules(seconds=100 * TICK))
        busy(simulation)
        for n in range(101):
            simulation.submit(n, TICK, key="greedy")
        for n in range(51):
            simulation.submit(n, TICK, key="modest")
            with pytest.raises(Overloaded):
                simulation.submit(n, TICK, key="greedy")
        with pytest.raises(Overloaded):
            simulation.submit(0, TICK, key="modest")
        simulation.submit(0, TICK, key="new")
        simulation.run()
        assert simulation.core.shared.fresh.cost == 0.0

    def test_who_waits_longer_than_its_place_says_is_refused_sooner(self) -> None:
        """Its jobs wait for those of others that come later, too: a third of the time is left."""
        simulation = Simulation(rules=QueueRules(seconds=400 * TICK, patience=1e9))
        busy(simulation, TICK)
        asked: list[tuple[float, Play]] = []
        for n in range(2400):
            for _ in range(2):
                with suppress(Overloaded):
                    play = simulation.submit("greedy", TICK, key="greedy")
                    asked.append((simulation.now, play))
            if n % 3:
                simulation.submit("modest", TICK, key=f"modest {n % 7}")
            simulation.run(TICK)
        simulation.run()
        waits = [(play.started_at or 0.0) - arrival for arrival, play in asked]
        assert 350 * TICK < max(waits) < 450 * TICK
        assert len(asked) > 790  # what is left for it, it gets
        assert simulation.core.counts.refused == 4800 - len(asked)

    def test_who_was_held_up_once_is_let_in_again(self) -> None:
        """What a stall made of a key's pace is forgotten, though it never has much before it."""
        simulation = Simulation(rules=QueueRules(seconds=250 * TICK, patience=1e9))
        simulation.submit("a stall", 700 * TICK)
        for _ in range(4):
            simulation.submit("modest", TICK, key="modest")
        refused: list[int] = []
        for n in range(6000):
            for k in range(100 if n == 0 else 2):
                with suppress(Overloaded):
                    simulation.submit("other", TICK, key=f"other {(2 * n + k) % 50}")
            if n == 0:
                simulation.run(700 * TICK)
            if n % 400 == 0:
                for _ in range(4):
                    try:
                        simulation.submit("modest", TICK, key="modest")
                    except Overloaded:
                        refused.append(n)
            simulation.run(TICK)
        assert simulation.core.counts.refused > 4000, "others fill the queue all the time"
        assert max(refused, default=0) < 2000

    def test_what_goes_later_refuses_nothing(self) -> None:
        simulation = Simulation(rules=QueueRules(seconds=100 * TICK))
        busy(simulation)
        for n in range(101):
            simulation.submit(n, TICK)
        with pytest.raises(Overloaded):
            simulation.submit("no less important", TICK)
        for n in range(101):
            simulation.submit(n, TICK, priority=1)
        for priority in (0, 1):
            with pytest.raises(Overloaded):
                simulation.submit("more", TICK, priority=priority)

    def test_too_many_rows(self) -> None:
        simulation = Simulation(rules=QueueRules(rows=100, burst=1e9))
        busy(simulation)
        simulation.submit("a", chunks=4, rows=60)
        with pytest.raises(Overloaded):
            simulation.submit("b", rows=41)
        simulation.submit("c", rows=40)
        simulation.run(2.0)  # two chunks of `a` have started
        assert simulation.core.shared.fresh.rows == 70
        simulation.submit("d", rows=30)
        simulation.run()

    def test_a_job_larger_than_the_bound_may_wait_alone(self) -> None:
        simulation = Simulation(rules=QueueRules(rows=10))
        busy(simulation)
        huge = simulation.submit("huge", rows=1000)
        with pytest.raises(Overloaded):
            simulation.submit("more")
        simulation.run()
        assert huge.end is State.DONE

    def test_no_room_at_all_means_run_at_once_or_not(self) -> None:
        simulation = Simulation(executors=2, rules=QueueRules(jobs=0))
        busy(simulation)
        with pytest.raises(Overloaded):
            simulation.submit("more")

    @pytest.mark.parametrize(
        "wrong", [{"jobs": -1}, {"one_in": 0}, {"patience": float("nan")}, {"burst": -1.0}]
    )
    def test_rules_that_mean_nothing(self, wrong: dict[str, float]) -> None:
        with pytest.raises(BadJob):
            QueueRules(**wrong)  # type: ignore[arg-type]  # wrong on purpose


class TestFaults:
    def test_a_failure_ends_its_job_and_only_that(self) -> None:
        simulation = Simulation(executors=2)
        bad = simulation.submit("bad", [1.0, 1.0], chunks=9, fate={(1, 0): "raise"})
        good = simulation.submit("good", chunks=2)
        simulation.run()
        assert bad.end is State.FAILED
        assert isinstance(bad.value, Broken)
        assert good.end is State.DONE
        assert max(chunk for chunk, _ in bad.ran) == 1
        assert not simulation.held

    def test_an_executor_that_dies_is_replaced(self) -> None:
        simulation = Simulation(executors=1)
        first = set(simulation.threads)
        bad = simulation.submit("bad", fate={(0, 0): "die"})
        good = simulation.submit("good")
        simulation.run()
        assert bad.end is State.FAILED
        assert isinstance(bad.value, ExecutorDied)
        assert "stage 0 of chunk 0" in str(bad.value)
        assert isinstance(bad.value.__cause__, BaseException)
        assert good.end is State.DONE
        assert len(simulation.threads) == 1
        assert simulation.threads.isdisjoint(first)
        assert simulation.core.counts.deaths == 1

    def test_an_idle_executor_may_die_too(self) -> None:
        simulation = Simulation(executors=2)
        slot = simulation.core.shared.idle[0]
        simulation.threads.discard(slot)
        simulation.core.died(slot, SystemExit(), 0.0)
        simulation._apply(None)
        assert len(simulation.core.shared.idle) == 2
        assert simulation.submit("job").started_at == 0.0

    def test_cancelling_queued_started_and_finished_jobs(self) -> None:
        simulation = Simulation()
        started = simulation.submit("started", [1.0, 1.0], chunks=2)
        queued = simulation.submit("queued")
        assert simulation.cancel(queued)
        assert simulation.cancel(started)
        assert started.end is queued.end is State.CANCELLED
        assert len(simulation.held) == 1, "a stage that runs keeps its buffer"
        done = simulation.submit("done")
        simulation.run()
        assert started.ran == [(0, 0)]
        assert not simulation.held
        assert not simulation.cancel(done)
        assert done.end is State.DONE

    def test_a_cancelled_flood_leaves_nothing_behind(self) -> None:
        simulation = Simulation(rules=QueueRules(jobs=10_000))
        busy(simulation)
        for _ in range(3):
            plays = [simulation.submit(n, within=9, key=n % 7) for n in range(300)]
            for play in plays:
                simulation.cancel(play)
        fresh = simulation.core.shared.fresh
        assert (len(fresh), fresh.rows, fresh.cost) == (0, 0, 0.0)
        assert len(simulation.core._deadlines._entries) < 100
        assert not fresh._levels


class TestReservations:
    def test_a_reserved_executor_is_idle_rather_than_shared(self) -> None:
        simulation = Simulation(executors=1)
        simulation.reserve("vip")
        flood = [simulation.submit(n, key="other") for n in range(5)]
        vip = simulation.submit("vip", key="vip")
        assert vip.started_at == 0.0
        second = simulation.submit("vip 2", key="vip")
        simulation.run()
        assert second.started_at == 1.0
        assert flood[-1].ended_at == 5.0

    def test_what_was_accepted_before_the_end_of_a_reservation_still_runs(self) -> None:
        simulation = Simulation(executors=1)
        simulation.reserve("vip", 2)
        plays = [simulation.submit(n, key="vip") for n in range(6)]
        simulation.release("vip")
        shared = simulation.submit("shared", key="vip")
        assert shared.started_at == 0.0
        simulation.run()
        assert {play.end for play in plays} == {State.DONE}
        assert len(simulation.core.pairs) == len(simulation.threads) == 1

    def test_reservations_that_make_no_sense(self) -> None:
        simulation = Simulation()
        simulation.reserve("vip")
        with pytest.raises(BadJob, match="already"):
            simulation.reserve("vip")
        with pytest.raises(BadJob, match="no reservation"):
            simulation.release("other")
        with pytest.raises(BadJob, match="at least one executor"):
            simulation.reserve("none", 0)

    def test_a_reservation_has_bounds_of_its_own(self) -> None:
        simulation = Simulation()
        simulation.reserve("vip", rules=QueueRules(jobs=1))
        simulation.submit("a", key="vip")
        simulation.submit("b", key="vip")
        with pytest.raises(Overloaded, match="'vip'"):
            simulation.submit("c", key="vip")


class TestEnds:
    @pytest.mark.parametrize("drain", [True, False])
    def test_closing(self, *, drain: bool) -> None:
        simulation = Simulation(executors=2)
        simulation.reserve("vip")
        plays = [simulation.submit(n, [1.0, 1.0], chunks=2, key="vip") for n in range(3)]
        plays += [simulation.submit(n, [1.0, 1.0], chunks=2) for n in range(3)]
        simulation.close(drain=drain)
        with pytest.raises(SchedulerClosed):
            simulation.submit("more")
        with pytest.raises(SchedulerClosed):
            simulation.reserve("more")
        simulation.run()
        assert {play.end for play in plays} == {State.DONE if drain else State.CANCELLED}
        assert not simulation.threads
        assert not simulation.held
        assert not simulation.core.pairs

    def test_closing_with_nothing_to_do_ends_at_once(self) -> None:
        simulation = Simulation(executors=2)
        simulation.close(drain=True)
        assert not simulation.threads

    def test_an_executor_that_dies_while_draining_is_replaced(self) -> None:
        simulation = Simulation()
        simulation.submit("bad", fate={(0, 0): "die"})
        good = simulation.submit("good")
        simulation.close(drain=True)
        simulation.run()
        assert good.end is State.DONE
        assert not simulation.threads

    def test_draining_can_turn_into_dropping(self) -> None:
        simulation = Simulation()
        plays = [simulation.submit(n) for n in range(3)]
        simulation.close(drain=True)
        simulation.run(1.0)
        simulation.close(drain=False)
        assert [play.end for play in plays] == [State.DONE, State.CANCELLED, State.CANCELLED]
        simulation.run()
        assert not simulation.threads
