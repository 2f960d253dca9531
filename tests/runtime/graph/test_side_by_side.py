"""Steps that take long and need nothing of one another run at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.graph.plan import GraphPlan

WIDTH, SIDES = 8192, 8


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=2) as made:
        rng = np.random.default_rng(0)
        x = flour.vector("x", WIDTH)
        for number in range(SIDES):
            # Each has 4 MiB of its own, which a row reads.
            weights = rng.normal(size=(64, WIDTH))
            made.register(f"m{number}", x.linear(weights, np.zeros(64)).sum(), background=False)
        sums = [flour.model(f"m{number}")(x) for number in range(SIDES)]
        total = flour.outputs(total=flour.ensemble(sums).mean())
        made.register("total", total, background=False)

        async def factor(value: float) -> float:
            await asyncio.sleep(0)
            return 2.0 * value

        one = flour.fetch(factor, x[0], gives=float)
        scaled = [each * one for each in sums]
        made.register("scaled", flour.outputs(y=flour.ensemble(scaled).mean()), background=False)
        yield made


def plan_of(runtime: Runtime, name: str) -> GraphPlan:
    plan: Any = runtime.endpoints.versions()[f"{name}@1"].plan
    assert isinstance(plan, GraphPlan)
    return plan


class Meeting:
    """Two calls of steps wait here for one another: they get on only side by side."""

    def __init__(self, plan: GraphPlan) -> None:
        self._barrier, self._lock, self._left = threading.Barrier(2), threading.Lock(), 2
        self.threads: set[int] = set()
        for step in plan.graph.steps:
            step.alone = step.each = 1e-3 if len(step.reads) == 1 else 0.0

    def around(self, call: Any) -> Any:
        def met(*given: Any) -> Any:
            with self._lock:
                waits, self._left = self._left > 0, self._left - 1
            if waits:
                self._barrier.wait(30)
                self.threads.add(threading.get_ident())
            return call(*given)

        return met


def by_hand(runtime: Runtime, rows: Any, factor: Any = 1.0) -> Any:
    sums = [runtime.predict(f"m{n}", rows)["output"] * factor for n in range(SIDES)]
    return sum(sums) / float(SIDES)


def test_heavy_models_are_steps_of_their_own_and_a_row_runs_them_side_by_side(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, row = plan_of(runtime, "total"), np.random.default_rng(1).normal(size=WIDTH)
    assert len(plan.graph.steps) == SIDES + 1
    assert [len(wave) for wave in plan.graph.waves] == [SIDES, 1]
    expected = by_hand(runtime, row)
    assert runtime.predict("total", row)["total"] == expected
    assert plan.by_row is not None
    meeting = Meeting(plan)
    runs: list[Any] = [run for wave in plan.by_row._waves for _, run in wave]
    for run in runs:
        monkeypatch.setattr(run, "_function", meeting.around(run._function))
    assert runtime.predict("total", row)["total"] == expected
    assert len(meeting.threads) == 2


@pytest.mark.parametrize("name", ["total", "scaled"])
def test_a_block_takes_heavy_steps_side_by_side(
    runtime: Runtime, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the caller's thread, and on an event loop."""
    plan, rows = plan_of(runtime, name), np.random.default_rng(2).normal(size=(3, WIDTH))
    expected = by_hand(runtime, rows, 1.0 if name == "total" else 2.0 * rows[:, 0])
    meeting = Meeting(plan)
    monkeypatch.setattr(plan, "step", meeting.around(plan.step))
    (answer,) = runtime.predict(name, rows).values()
    assert np.array_equal(answer, expected)
    assert len(meeting.threads) == 2


def test_an_error_beside_others_is_the_callers(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(runtime, "total")
    Meeting(plan)

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("in a step")

    monkeypatch.setattr(plan, "step", broken)
    with pytest.raises(ZeroDivisionError):
        runtime.predict("total", np.zeros((3, WIDTH)))
