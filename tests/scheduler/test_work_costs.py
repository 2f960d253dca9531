"""What a pool learns about the time that work takes, on clocks that the test moves."""

from __future__ import annotations

import pytest

from scheduler import CostModel, Job, Pool, SimulatedClock, Stages

LONG = 60.0


class Waiting(SimulatedClock):
    """Time passes, and no thread computes in it."""

    def work(self) -> float:
        return 0.0


def seconds_of(costs: CostModel, rows: int) -> float | None:
    curve = costs.curve("k")
    return None if curve is None else curve.seconds(rows)


class TestWhatWorkCosts:
    """Waiting is no cost of work that only computes, and does not make chunks smaller."""

    def test_the_cost_model_learns(self) -> None:
        costs, clock = CostModel(), SimulatedClock()
        with Pool(1, costs=costs, clock=clock) as pool:
            stages = Stages.chain(lambda _, __: clock.advance(0.002))
            pool.submit(Job.of(stages, range(5), key="k", rows=50)).result(LONG)
        (cell,) = costs.snapshot()["k"].values()
        assert cell.calls == 5
        assert seconds_of(costs, 10) == pytest.approx(0.002, rel=0.1)

    def observed(self, *, computes: bool = False, typical: bool = True) -> float | None:
        costs, clock = CostModel(), Waiting()
        with Pool(1, costs=costs, clock=clock) as pool:
            stages = Stages.chain(lambda _, __: clock.advance(8.0))
            job = Job.of(stages, [1], key="k", computes=computes, typical=typical)
            pool.submit(job).result(LONG)
            assert pool.stats().busy_seconds == pytest.approx(8.0)
        return seconds_of(costs, 1)

    def test_the_time_it_took(self) -> None:
        assert self.observed() == pytest.approx(8.0, rel=0.1)

    def test_the_time_it_has_worked(self) -> None:
        assert self.observed(computes=True) == pytest.approx(0.0, abs=1e-3)

    def test_work_costs_the_time_of_the_clock_that_counts_it(self) -> None:
        costs, clock = CostModel(), SimulatedClock()
        with Pool(1, costs=costs, clock=clock) as pool:
            stages = Stages.chain(lambda _, __: clock.advance(8.0))
            pool.submit(Job.of(stages, [1], key="k", computes=True)).result(LONG)
        assert seconds_of(costs, 1) == pytest.approx(8.0, rel=0.1)

    def test_what_is_not_typical_is_not_counted(self) -> None:
        assert self.observed(typical=False) is None
