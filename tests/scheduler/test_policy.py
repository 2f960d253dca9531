"""Which engine: each sentence of the policy, and the estimates it rests on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import Ask, CostModel, Decision, Engine, Estimate, Load, Settings, choose
from scheduler.policy import chunk_rows

IDLE = Load(executors=2, idle=2)
BUSY = Load(executors=2, idle=0, queued_jobs=9, queued_rows=9000, queued_seconds=0.1)


def takes(per_row: float, rows: int) -> Estimate:
    return Estimate(per_row * rows, per_row, 10)


class TestChoice:
    def test_one_quick_row_runs_here(self) -> None:
        decision = choose(Ask(1, takes(5e-6, 1)), IDLE)
        assert decision.engine is Engine.INLINE
        assert decision.reason == "here 5 us, by executors 50 us"

    def test_a_large_batch_is_shared_out(self) -> None:
        decision = choose(Ask(10_000, takes(1e-6, 10_000)), IDLE)
        assert decision.engine is Engine.BATCH
        assert decision.reason.startswith("by executors 5,")
        assert decision.chunk_rows == 1000

    def test_a_queue_makes_the_caller_do_it(self) -> None:
        assert choose(Ask(2_000, takes(1e-6, 2_000)), IDLE).engine is Engine.BATCH
        assert choose(Ask(2_000, takes(1e-6, 2_000)), BUSY).engine is Engine.INLINE

    def test_many_inline_callers_make_the_queue_better(self) -> None:
        ask = Ask(400, takes(1e-6, 400), inline_callers=50)
        assert choose(ask, Load(2, 0)).engine is Engine.BATCH
        assert choose(Ask(400, takes(1e-6, 400)), Load(2, 0)).engine is Engine.INLINE

    @pytest.mark.parametrize("callers", [0, 1, 2, 3])
    def test_what_is_not_cut_runs_here(self, callers: int) -> None:
        """An executor would take as long, and had to be woken first."""
        ask = Ask(1000, takes(1e-4, 1000), inline_callers=callers, whole=True)
        decision = choose(ask, IDLE)
        assert (decision.engine, decision.chunk_rows) == (Engine.INLINE, 1000)
        one = Ask(1000, takes(1e-4, 1000), inline_callers=callers, cores=2)
        assert choose(one, Load(executors=1, idle=1)).engine is Engine.INLINE

    def test_cores_are_shared_by_callers_and_executors(self) -> None:
        """Three executors of four idle cores; with others on all cores nothing is gained."""
        ask = Ask(2_000, takes(1e-6, 2_000), cores=4)
        load = Load(executors=3, idle=3)
        idle, busy = choose(ask, load), choose(ask._replace(inline_callers=4), load)
        assert idle.batch_seconds is not None
        assert busy.batch_seconds is not None
        assert busy.batch_seconds > 1.5 * idle.batch_seconds
        crowd = choose(ask._replace(inline_callers=8), load)
        assert crowd.batch_seconds == idle.batch_seconds

    def test_an_event_loop_is_not_held_up(self) -> None:
        assert choose(Ask(1, takes(5e-6, 1), blocking=False), IDLE).engine is Engine.INLINE
        slow = choose(Ask(100, takes(5e-6, 100), blocking=False), BUSY)
        assert slow.engine is Engine.BATCH
        assert "hold up" in slow.reason

    def test_a_deadline_overrules_speed(self) -> None:
        """Here it takes 2 ms and batch 1 ms; after a queue of 0.1 s only here is in time."""
        ask = Ask(2_000, takes(1e-6, 2_000), remaining=0.0015)
        assert choose(ask, IDLE).engine is Engine.BATCH
        crowded = Ask(30_000, takes(1e-6, 30_000), remaining=0.05, inline_callers=7)
        decision = choose(crowded, Load(8, 8))
        assert decision.engine is Engine.BATCH
        assert not decision.late
        hopeless = choose(Ask(2_000, takes(1e-6, 2_000), remaining=1e-4), BUSY)
        assert hopeless.late

    def test_only_one_engine_in_time(self) -> None:
        decision = choose(Ask(2_000, takes(1e-6, 2_000), remaining=0.0019), IDLE)
        assert decision.reason.endswith("would not")
        other = choose(Ask(2_000, takes(1e-6, 2_000), remaining=0.01), BUSY)
        assert (other.engine, other.late) == (Engine.INLINE, False)
        assert other.reason.startswith("3,000 us keeps the deadline")

    @pytest.mark.parametrize("engine", list(Engine))
    def test_the_caller_may_choose(self, engine: Engine) -> None:
        for estimate in (None, takes(1e-3, 10)):
            decision = choose(Ask(10, estimate, engine=engine), IDLE)
            assert (decision.engine, decision.reason) == (engine, "the caller asked for it")
        late = choose(Ask(10, takes(1e-3, 10), engine=engine, remaining=1e-3), IDLE)
        assert late.late

    def test_a_reservation_is_used(self) -> None:
        for ask in (
            Ask(1000, takes(1e-6, 1000), reserved=True, blocking=False),
            Ask(10_000, takes(1e-6, 10_000), reserved=True),
            Ask(1, None, reserved=True),
            Ask(1, None, reserved=True, blocking=False),
        ):
            assert choose(ask, IDLE).engine is Engine.BATCH

    @pytest.mark.parametrize("blocking", [True, False])
    @pytest.mark.parametrize("rows", [1, 10, 100, 150, 151, 1000, 100_000])
    def test_a_reservation_is_no_worse_than_none(self, rows: int, *, blocking: bool) -> None:
        """Where a call of others stays with its caller, executors would only have to be woken."""
        for load in (IDLE, Load(1, 1)):
            ask = Ask(rows, takes(1e-6, rows), blocking=blocking)
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
        row_bytes=st.integers(0, 10**6),
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
        row_bytes: int,
        executors: int,
        idle: int,
        queued: float,
    ) -> None:
        estimate = None if per_row is None else takes(per_row, max(rows, 1))
        ask = Ask(rows, estimate, blocking, remaining, row_bytes)
        load = Load(executors, min(idle, executors), queued_seconds=queued)
        decision = choose(ask, load)
        assert isinstance(decision, Decision)
        assert 1 <= decision.chunk_rows <= max(rows, 1)
        assert decision.reason


class TestChunks:
    def test_by_time(self) -> None:
        assert chunk_rows(Ask(10**6, takes(1e-6, 10**6)), IDLE) == 1000

    def test_by_cache(self) -> None:
        size = chunk_rows(Ask(10**6, takes(3e-7, 10**6), row_bytes=1024), IDLE)
        assert size <= 512
        # But never so small that the hand-over dominates.
        size = chunk_rows(Ask(10**6, takes(1e-7, 10**6), row_bytes=1 << 20), IDLE)
        assert size == pytest.approx(1500, abs=2)

    def test_in_multiples_of_the_executors(self) -> None:
        ask = Ask(1_100, takes(1e-6, 1_100))
        assert chunk_rows(ask, Load(4, 4)) == 275

    def test_short_work_is_split_when_it_pays(self) -> None:
        assert chunk_rows(Ask(400, takes(1e-6, 400)), IDLE) == 200
        assert chunk_rows(Ask(40, takes(1e-6, 40)), IDLE) == 40
        assert chunk_rows(Ask(400, takes(1e-6, 400)), BUSY) == 400

    def test_settings_are_settings(self) -> None:
        settings = Settings(target=0.01)
        assert chunk_rows(Ask(10**6, takes(1e-6, 10**6)), IDLE, settings) == 10_000


class TestCosts:
    def test_unknown(self) -> None:
        assert CostModel().estimate("k", 1) is None

    def test_sizes_are_told_apart(self) -> None:
        costs = CostModel(lambda: 0.0)
        for _ in range(50):
            costs.observe("k", 1, 10e-6)
            costs.observe("k", 1000, 1e-3)
        one = costs.estimate("k", 1)
        assert one is not None
        assert one == pytest.approx((10e-6, 10e-6, 50))
        thousand, more = costs.estimate("k", 1000), costs.estimate("k", 10_000)
        between = costs.estimate("k", 500)
        assert thousand is not None
        assert more is not None
        assert between is not None
        assert thousand.per_row == pytest.approx(1e-6)
        assert more.seconds == pytest.approx(10e-3)
        assert between.seconds == pytest.approx(10e-6 + 499 / 999 * 0.99e-3)

    def test_it_follows_a_change(self) -> None:
        costs = CostModel(lambda: 0.0)
        for seconds in [1e-3] * 30 + [5e-3] * 30:
            costs.observe("k", 1, seconds)
        estimate = costs.estimate("k", 1)
        assert estimate is not None
        assert estimate.seconds == pytest.approx(5e-3, rel=0.1)

    def test_a_hiccup_is_forgotten(self) -> None:
        costs = CostModel(lambda: 0.0)
        for seconds in [1e-3] * 30 + [1.0] + [1e-3] * 5:
            costs.observe("k", 1, seconds)
        estimate = costs.estimate("k", 1)
        assert estimate is not None
        assert estimate.seconds < 1.25e-3

    def test_old_measurements_fade(self) -> None:
        now = [0.0]
        costs = CostModel(lambda: now[0])
        for _ in range(30):
            costs.observe("k", 1, 3e-3)
        now[0] = 600.0
        costs.observe("k", 1, 1e-3)
        estimate = costs.estimate("k", 1)
        assert estimate is not None
        assert estimate.seconds == pytest.approx(1e-3, rel=0.01)

    def test_forgetting(self) -> None:
        costs = CostModel()
        costs.observe("k", 1, 1.0)
        assert set(costs.snapshot()) == {"k"}
        costs.forget("k")
        assert costs.estimate("k", 1) is None

    @given(
        st.lists(st.tuples(st.integers(0, 10**6), st.floats(1e-9, 10)), min_size=1),
        st.integers(0, 10**7),
    )
    def test_estimates_stay_within_what_was_measured(
        self, calls: list[tuple[int, float]], rows: int
    ) -> None:
        costs = CostModel(lambda: 0.0)
        for count, seconds in calls:
            costs.observe("k", count, seconds)
        estimate = costs.estimate("k", rows)
        assert estimate is not None
        per_row = [seconds / max(count, 1) for count, seconds in calls]
        assert estimate.per_row > 0
        most = [each * max(rows, 1) for each in per_row] + [seconds for _, seconds in calls]
        # Means of times over means of rows within a factor of two of one another.
        assert estimate.seconds <= 2.01 * max(most)


def test_what_was_measured_says_nothing_of_many_more_rows() -> None:
    """A call of one row is mostly overhead: a hundred do not take a hundred times as long."""
    costs = CostModel()
    costs.observe("k", 1, 76e-6)
    assert costs.estimate("k", 100) is not None
    assert costs.estimate("k", 100, farther=16) is None
    assert costs.estimate("k", 15, farther=16) is not None
    costs.observe("k", 100, 300e-6)
    found = costs.estimate("k", 100, farther=16)
    assert found is not None
    assert found.per_row == pytest.approx(3e-6)
