"""A block that its caller and executors compute together: each row once, whoever comes when."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oven.plans.execution import Execution
from runtime import Runtime
from runtime.service.call import PLAIN
from runtime.service.costs import Costs
from runtime.service.engines import INSIDE
from runtime.service.policy import SIZES, Way
from runtime.service.sharing import SharedRun, range_rows
from scheduler import Overloaded, Pool
from tests.runtime.plans import WIDTH, offset_of, shift

MANY = np.arange(1000.0 * WIDTH).reshape(1000, WIDTH)


@given(*[st.integers(1, 10**6)] * 4)
def test_ranges_are_within_their_bounds(left: int, threads: int, least: int, most: int) -> None:
    rows = range_rows(left, threads, min(least, most), most)
    assert 1 <= rows <= min(most, left)
    assert rows == left or rows >= min(least, most)


@pytest.mark.parametrize("helpers", [0, 1, 3])
@pytest.mark.parametrize(("least", "most"), [(1, 1), (7, 100), (1000, 1000), (1, 10**6)])
def test_each_row_is_computed_once(helpers: int, least: int, most: int) -> None:
    taken: list[int] = []
    plan = shift(3.0)
    run = SharedRun(
        lambda: plan.begin(MANY), 1 + helpers, least, most, learn=lambda rows, _: taken.append(rows)
    )
    threads = [threading.Thread(target=run.help) for _ in range(helpers)]
    for each in threads:
        each.start()
    answers = run.run()
    for each in threads:
        each.join()
    assert offset_of(answers, MANY) == 3.0
    assert sum(taken) == len(MANY)
    assert run.work_seconds > 0


def test_a_helper_is_let_go_where_the_caller_cannot_begin() -> None:
    def begin() -> Execution:
        raise ValueError("as a wrong column")

    run = SharedRun(begin, 2, 1, 100)
    helper = threading.Thread(target=run.help)
    helper.start()
    with pytest.raises(ValueError, match="as a wrong column"):
        run.run()
    helper.join(30)
    assert not helper.is_alive()


def test_a_helper_that_comes_too_late_finds_nothing() -> None:
    run = SharedRun(lambda: shift(3.0).begin(MANY), 2, 1, 100)
    assert offset_of(run.run(), MANY) == 3.0
    run.help()


def test_the_caller_waits_for_the_last_range_of_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper has begun the first half and is held until the caller has done the other."""
    run = SharedRun(lambda: shift(3.0).begin(MANY), 2, 500, 500)
    begun, caller_done = threading.Event(), threading.Event()
    whole = Execution.step

    def step(work: Execution, number: int, chunk: Any, memory: object = None) -> None:
        if threading.current_thread() is helper:
            begun.set()
            assert caller_done.wait(30)
        else:
            assert begun.wait(30)
        whole(work, number, chunk, memory)
        if threading.current_thread() is not helper:
            caller_done.set()

    monkeypatch.setattr(Execution, "step", step)
    helper = threading.Thread(target=run.help)
    helper.start()
    assert offset_of(run.run(), MANY) == 3.0
    helper.join()


def test_an_error_of_a_helper_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SharedRun(lambda: shift(3.0).begin(MANY), 2, 10, 10)
    whole = Execution.step

    def step(work: Execution, number: int, chunk: Any, memory: object = None) -> None:
        if threading.current_thread() is helper:
            raise ArithmeticError("as in a stage")
        helper.join(30)
        whole(work, number, chunk, memory)

    monkeypatch.setattr(Execution, "step", step)
    helper = threading.Thread(target=run.help)
    helper.start()
    with pytest.raises(ArithmeticError, match="as in a stage"):
        run.run()


@pytest.fixture
def busy_runtime() -> Any:
    """A runtime of two executors with a version whose blocks are known to take long."""
    with Runtime(executors=2) as runtime:
        runtime.register("a", shift(5.0))
        version = runtime.endpoints.find("a")
        for rows in (10_000, 100_000):
            for _ in range(4):
                runtime._costs.observe(version, rows, rows * 1e-6)
        yield runtime


BLOCK = np.zeros((100_000, WIDTH))


def test_executors_help_a_caller_where_a_core_is_free(
    busy_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = busy_runtime
    monkeypatch.setattr("runtime.service.policy.CORES", 2)
    version = runtime.endpoints.find("a")
    batch = version.reader.read(BLOCK)
    assert runtime._policy.weigh(batch, version, PLAIN).way is Way.SHARED
    assert offset_of(runtime.predict("a", BLOCK), BLOCK) == 5.0
    (stats,) = runtime.stats().versions
    assert stats.batch_calls == 1
    assert version.learned.native
    token = object()
    INSIDE.add(token)
    assert runtime._policy.weigh(batch, version, PLAIN).decision.helpers == 0
    INSIDE.discard(token)


def test_calls_of_sizes_that_take_turns_are_decided_once(
    busy_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, decided = busy_runtime._policy, list[int]()
    version, decide = busy_runtime.endpoints.find("a"), policy.decide

    def count(version: Any, call: Any, rows: int, explore: float | None = None) -> Any:
        decided.append(rows)
        return decide(version, call, rows, explore)

    monkeypatch.setattr(policy, "decide", count)
    monkeypatch.setattr(Costs, "explore", lambda *_: None)
    for rows in (20_000, 40_000) * 5:
        policy.weigh(version.reader.read(BLOCK[:rows]), version, PLAIN)
    assert decided == [20_000, 40_000]
    for rows in range(1000, 1000 + 2 * SIZES):
        policy.weigh(version.reader.read(BLOCK[:rows]), version, PLAIN)
    assert len(version.learned.decided) <= SIZES


def test_where_executors_refuse_the_caller_does_it_all(
    busy_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_pool: Pool, _job: object) -> None:
        raise Overloaded("the queue is full")

    monkeypatch.setattr("runtime.service.policy.CORES", 2)
    monkeypatch.setattr(Pool, "submit", refuse)
    busy_runtime.endpoints.find("a").learned.native = False
    assert offset_of(busy_runtime.predict("a", BLOCK), BLOCK) == 5.0


def test_where_callers_are_limited_executors_take_whole_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.service.policy.CORES", 2)
    with Runtime(executors=2, inline_limit=1) as runtime:
        runtime.register("a", shift(5.0))
        version = runtime.endpoints.find("a")
        for _ in range(4):
            runtime._costs.observe(version, len(BLOCK), 0.1)
        choice = runtime._policy.weigh(version.reader.read(BLOCK), version, PLAIN)
        assert choice.way is Way.CHUNKS
        assert offset_of(runtime.predict("a", BLOCK), BLOCK) == 5.0


def test_timed_calls_move_the_bound_for_releasing_the_gil(
    busy_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, version = busy_runtime, busy_runtime.endpoints.find("a")
    table = version.entry.function.__self__  # type: ignore[union-attr]
    at = table.code.words.index("RELEASE_ROWS")
    batch = version.reader.read(MANY[0])
    assert table[at] > 1
    for seconds, bound in ((0.0, 1), (60.0, 2)):
        monkeypatch.setattr("runtime.service.direct.RELEASE_SECONDS", seconds)
        assert runtime.direct._timed(version, batch, version.entry) is not None
        assert table[at] == bound
