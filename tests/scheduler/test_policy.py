"""Which engine: each sentence of the policy, and the curves it rests on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import Ask, CostModel, Curve, Decision, Engine, Load, Settings, choose
from scheduler.costs import Cell

IDLE = Load(executors=2, idle=2)
BUSY = Load(executors=2, idle=0, queued_jobs=9, queued_rows=9000, queued_seconds=0.1)


def takes(per_row: float) -> Curve:
    return Curve.line(0.0, per_row)


def curve(**points: float) -> Curve:
    """A curve through these points: rows as `r100`, seconds for all of them."""
    return Curve(Cell(seconds, float(name[1:]), 10, 0.0) for name, seconds in points.items())


class TestChoice:
    def test_one_quick_row_runs_here(self) -> None:
        decision = choose(Ask(1, takes(5e-6)), IDLE)
        assert decision.engine is Engine.INLINE
        assert decision.reason == "here 5 us, in chunks 5 us"

    @given(st.floats(1e-9, 1e-4), st.floats(0, 1e-3))
    def test_what_is_not_divided_runs_here_whatever_the_figures_round_to(
        self, per_row: float, fixed: float
    ) -> None:
        for callers in (0, 3, 6):
            ask = Ask(1, Curve.line(fixed, per_row), inline_callers=callers, cores=2)
            assert choose(ask, IDLE).engine is Engine.INLINE

    def test_executors_help_with_a_large_batch(self) -> None:
        decision = choose(Ask(10_000, takes(1e-6)), IDLE)
        assert (decision.engine, decision.helpers) == (Engine.BATCH, 1)
        assert decision.reason.startswith("in chunks 5,")
        assert 500 <= decision.chunk_rows <= 1000

    def test_a_queue_makes_the_caller_do_it(self) -> None:
        assert choose(Ask(2_000, takes(1e-6)), IDLE).engine is Engine.BATCH
        assert choose(Ask(2_000, takes(1e-6)), BUSY).engine is Engine.INLINE

    @pytest.mark.parametrize("callers", [1, 2, 3, 50])
    @pytest.mark.parametrize("rows", [1, 400, 100_000])
    def test_callers_that_fill_the_cores_run_here(self, rows: int, callers: int) -> None:
        decision = choose(Ask(rows, takes(1e-6), inline_callers=callers), IDLE)
        assert (decision.engine, decision.helpers) == (Engine.INLINE, 0)

    def test_helpers_are_as_many_as_cores_without_a_caller(self) -> None:
        ask = Ask(100_000, takes(1e-6), cores=4)
        for callers, executors, helpers in ((0, 4, 3), (1, 4, 2), (0, 2, 2), (3, 4, 0)):
            found = choose(ask._replace(inline_callers=callers), Load(executors, executors))
            assert found.helpers == helpers

    def test_a_helper_that_is_just_getting_idle_is_asked(self) -> None:
        """The one of the call before reports a moment after the call is over."""
        assert choose(Ask(2_000, takes(1e-6)), Load(2, 1)).helpers == 1
        assert choose(Ask(2_000, takes(1e-6)), Load(2, 0, queued_jobs=1)).helpers == 0

    def test_help_that_gains_nothing_is_not_asked_for(self) -> None:
        """Code that keeps the GIL is no faster on two threads."""
        ask = Ask(10_000, takes(1e-6), gain=0.9)
        assert choose(ask, IDLE).engine is Engine.INLINE
        assert choose(ask._replace(gain=1.8), IDLE).engine is Engine.BATCH

    @pytest.mark.parametrize("callers", [0, 1, 2, 3])
    def test_what_is_not_cut_runs_here(self, callers: int) -> None:
        """An executor would take as long, and had to be woken first."""
        ask = Ask(1000, takes(1e-4), inline_callers=callers, whole=True)
        decision = choose(ask, IDLE)
        assert (decision.engine, decision.chunk_rows) == (Engine.INLINE, 1000)
        one = Ask(1000, takes(1e-4), inline_callers=callers, cores=2)
        assert choose(one, Load(executors=1, idle=1)).engine is (
            Engine.BATCH if callers == 0 else Engine.INLINE
        )

    def test_cores_are_shared_by_callers_and_executors(self) -> None:
        """The forecast for executors is stretched where others compute on all cores."""
        ask = Ask(2_000, takes(1e-6), cores=4, engine=Engine.BATCH)
        load = Load(executors=3, idle=3)
        idle, busy = choose(ask, load), choose(ask._replace(inline_callers=4), load)
        assert idle.batch_seconds is not None
        assert busy.batch_seconds is not None
        assert busy.batch_seconds > 1.4 * idle.batch_seconds

    def test_an_event_loop_is_not_held_up(self) -> None:
        assert choose(Ask(1, takes(5e-6), blocking=False), IDLE).engine is Engine.INLINE
        slow = choose(Ask(100, takes(5e-6), blocking=False), BUSY)
        assert slow.engine is Engine.BATCH
        assert "hold up" in slow.reason

    def test_a_deadline_overrules_speed(self) -> None:
        """Here it takes 2 ms, with a helper 1 ms; neither is 0.1 ms."""
        ask = Ask(2_000, takes(1e-6), remaining=0.0015)
        decision = choose(ask, IDLE)
        assert decision.engine is Engine.BATCH
        assert decision.reason.endswith("would not")
        assert not decision.late
        hopeless = choose(Ask(2_000, takes(1e-6), remaining=1e-4), BUSY)
        assert hopeless.late
        slow = choose(Ask(2_000, takes(1e-6), remaining=0.00201, gain=0.8), IDLE)
        assert (slow.engine, slow.late) == (Engine.INLINE, False)
        assert slow.reason.startswith("2,000 us keeps the deadline")

    @pytest.mark.parametrize("engine", list(Engine))
    def test_the_caller_may_choose(self, engine: Engine) -> None:
        for known in (None, takes(1e-3)):
            decision = choose(Ask(10, known, engine=engine), IDLE)
            assert (decision.engine, decision.reason) == (engine, "the caller asked for it")
        late = choose(Ask(10, takes(1e-3), engine=engine, remaining=1e-3), IDLE)
        assert late.late

    def test_a_reservation_is_used(self) -> None:
        for ask in (
            Ask(1000, takes(1e-6), reserved=True, blocking=False),
            Ask(10_000, takes(1e-6), reserved=True),
            Ask(1, None, reserved=True),
            Ask(1, None, reserved=True, blocking=False),
        ):
            assert choose(ask, IDLE).engine is Engine.BATCH

    @pytest.mark.parametrize("blocking", [True, False])
    @pytest.mark.parametrize("rows", [1, 10, 100, 150, 151, 1000, 100_000])
    def test_a_reservation_is_no_worse_than_none(self, rows: int, *, blocking: bool) -> None:
        """Where a call of others stays with its caller, executors would only have to be woken."""
        for load in (IDLE, Load(1, 1)):
            ask = Ask(rows, takes(1e-6), blocking=blocking)
            assert choose(ask._replace(reserved=True), load).engine is choose(ask, load).engine

    @pytest.mark.parametrize(
        ("rows", "blocking", "engine"),
        [(1, True, Engine.INLINE), (65, True, Engine.BATCH), (1, False, Engine.BATCH)],
    )
    def test_before_it_was_measured(self, rows: int, engine: Engine, *, blocking: bool) -> None:
        decision = choose(Ask(rows, None, blocking=blocking), IDLE)
        assert decision.engine is engine
        assert decision.reason.startswith("never measured")

    @given(
        rows=st.integers(0, 10**7),
        per_row=st.none() | st.floats(0, 10),
        blocking=st.booleans(),
        remaining=st.floats(-1, 100),
        gain=st.floats(0.01, 64),
        explore=st.none() | st.floats(0, 100),
        executors=st.integers(0, 64),
        idle=st.integers(0, 64),
        queued=st.floats(0, 100),
    )
    def test_there_is_always_an_answer(
        self,
        *,
        rows: int,
        per_row: float | None,
        blocking: bool,
        remaining: float,
        gain: float,
        explore: float | None,
        executors: int,
        idle: int,
        queued: float,
    ) -> None:
        known = None if per_row is None else takes(per_row)
        ask = Ask(rows, known, blocking, remaining, gain=gain, explore=explore)
        load = Load(executors, min(idle, executors), queued_seconds=queued)
        decision = choose(ask, load)
        assert isinstance(decision, Decision)
        assert 1 <= decision.chunk_rows <= max(rows, 1)
        assert decision.reason


def chunk(rows: int, known: Curve, load: Load = IDLE, **facts: Any) -> int:
    """The size of chunks by executors."""
    return choose(Ask(rows, known, engine=Engine.BATCH, **facts), load).chunk_rows


class TestChunks:
    def test_they_are_short_for_the_sake_of_others(self) -> None:
        assert 500 < chunk(10**6, takes(1e-6)) <= 1000
        assert 5000 < chunk(10**6, takes(1e-6), whole=False) * 10 <= 10_000
        settings = Settings(target=0.01)
        ask = Ask(10**6, takes(1e-6), engine=Engine.BATCH)
        assert 5_000 < choose(ask, IDLE, settings).chunk_rows <= 10_000

    def test_they_are_long_where_short_ones_cost_more(self) -> None:
        """Each walks all trees again, whatever `target` says."""
        assert chunk(1000, curve(r10=1e-3, r1000=27e-3)) > 300

    def test_they_are_as_small_as_a_cache(self) -> None:
        known = curve(r100=50e-6, r1000=500e-6, r2000=4e-3, r100000=200e-3)
        assert 500 < chunk(100_000, known) <= 1000

    def test_hand_overs_cost_little(self) -> None:
        assert chunk(10**6, Curve.line(0.0, 1e-9)) >= 100_000

    def test_in_multiples_of_the_executors(self) -> None:
        assert chunk(1_100, takes(1e-6), Load(4, 4)) == 275

    def test_short_work_is_split_when_it_pays(self) -> None:
        assert chunk(400, takes(1e-6)) == 200
        assert chunk(10, takes(1e-6)) == 10
        assert chunk(400, takes(1e-6), BUSY) == 400

    def test_exploring_tries_what_was_not_measured(self) -> None:
        """Sizes with neither a measurement nor one of half as many rows, one call after another."""
        cells = [Cell(rows * 1e-5, rows, 5, when) for rows, when in ((64, 90.0), (512, 10.0))]
        sizes = set()
        for _ in range(12):
            size = chunk(1024, Curve(cells), explore=5.0)
            sizes.add(size)
            cells.append(Cell(size * 1e-5, size, 5, 99.0))
        assert 256 in sizes
        assert chunk(1024, Curve(cells), explore=50.0) in {512, 1024}, "measured long ago"
        assert chunk(1024, Curve(cells), explore=1.0) == chunk(1024, Curve(cells))


def seconds(costs: CostModel, rows: int) -> float:
    known = costs.curve("k")
    assert known is not None
    return known.seconds(rows)


class TestCosts:
    def test_unknown(self) -> None:
        assert CostModel().curve("k") is None

    def test_sizes_are_told_apart(self) -> None:
        costs = CostModel(lambda: 0.0)
        for _ in range(50):
            costs.observe("k", 1, 10e-6)
            costs.observe("k", 1000, 1e-3)
        assert seconds(costs, 1) == pytest.approx(10e-6)
        assert seconds(costs, 1000) == pytest.approx(1e-3)
        assert seconds(costs, 500) == pytest.approx(10e-6 + 499 / 999 * 0.99e-3)

    def test_beyond_what_was_measured_the_slope_goes_on(self) -> None:
        known = curve(r100=2e-3, r200=3e-3)
        assert known.seconds(400) == pytest.approx(5e-3)
        assert known.seconds(50) == pytest.approx(1.5e-3), "the fixed part stays"
        assert curve(r100=1e-3).seconds(10_000) == pytest.approx(0.1)
        assert curve(r100=2e-3, r200=1e-3).seconds(400) == pytest.approx(1e-3), "never less"

    def test_a_line(self) -> None:
        known = Curve.line(1e-6, 1e-3)
        assert known.seconds(0) == known.seconds(1) == pytest.approx(1.001e-3)
        assert known.seconds(10**6) == pytest.approx(1000.0, rel=1e-6)
        assert known.measured(1) == -math.inf

    def test_a_slow_first_call_is_soon_forgotten(self) -> None:
        costs = CostModel(lambda: 0.0)
        for each in [1.0, 1e-3, 1e-3, 1e-3]:
            costs.observe("k", 1, each)
        assert seconds(costs, 1) < 0.2

    def test_it_follows_a_change(self) -> None:
        costs = CostModel(lambda: 0.0)
        for each in [1e-3] * 30 + [5e-3] * 30:
            costs.observe("k", 1, each)
        assert seconds(costs, 1) == pytest.approx(5e-3, rel=0.1)

    def test_a_hiccup_is_forgotten(self) -> None:
        costs = CostModel(lambda: 0.0)
        for each in [1e-3] * 30 + [1.0] + [1e-3] * 5:
            costs.observe("k", 1, each)
        assert seconds(costs, 1) < 1.25e-3

    def test_old_measurements_fade(self) -> None:
        now = [0.0]
        costs = CostModel(lambda: now[0])
        for _ in range(30):
            costs.observe("k", 1, 3e-3)
        now[0] = 600.0
        costs.observe("k", 1, 1e-3)
        assert seconds(costs, 1) == pytest.approx(1e-3, rel=0.01)

    def test_forgetting(self) -> None:
        costs = CostModel()
        costs.observe("k", 1, 1.0)
        assert set(costs.snapshot()) == {"k"}
        costs.forget("k")
        assert costs.curve("k") is None

    @given(
        st.lists(st.tuples(st.integers(0, 10**6), st.floats(1e-9, 10)), min_size=1),
        st.integers(0, 10**7),
    )
    def test_estimates_stay_within_what_was_measured(
        self, calls: list[tuple[int, float]], rows: int
    ) -> None:
        costs = CostModel(lambda: 0.0)
        for count, taken in calls:
            costs.observe("k", count, taken)
        per_row = [taken / max(count, 1) for count, taken in calls]
        most = [each * max(rows, 1) for each in per_row] + [taken for _, taken in calls]
        least = min(taken for _, taken in calls) / max(count for count, _ in [*calls, (1, 0.0)])
        # Means of times over means of rows within a factor of two of one another.
        assert least / 2.01 <= seconds(costs, rows)
        if rows <= max(count for count, _ in calls):
            assert seconds(costs, rows) <= 2.01 * max(most)
