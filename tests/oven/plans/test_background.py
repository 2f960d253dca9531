"""Compiling later: the definition answers until the code is there; errors are not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour import Flow
from oven.compiler import cache
from oven.errors import CompileError
from oven.plans import background
from oven.plans.plan import Plan
from tests.house import until
from tests.oven.plans.test_saved import dense, same
from tests.oven.programs import PROGRAMS


class ByHand(Executor):
    """Does its work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: call(*args, **named)))
        return future

    def work(self) -> None:
        """Everything that waits, now."""
        while self.waiting:
            future, call = self.waiting.pop(0)
            try:
                future.set_result(call())
            except BaseException as problem:  # noqa: BLE001 (as executors do)
                future.set_exception(problem)


def program() -> Flow:
    return flour.vector("x", 3).subtract([1.0, 2.0, 3.0]).sum().named("total")


def test_the_definition_answers_until_the_code_is_there() -> None:
    hand = ByHand()
    plan = oven.bake(program(), background=hand)
    rows = np.arange(6.0).reshape(2, 3)
    assert not plan.ready
    np.testing.assert_array_equal(plan.run(rows)["total"], [-3.0, 6.0])
    hand.work()
    assert plan.wait(0).ready
    np.testing.assert_array_equal(plan.run(rows)["total"], [-3.0, 6.0])
    assert plan.code.steps, "native code is there"


@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_before_and_after_are_those_of_the_program(name: str) -> None:
    flow, data = PROGRAMS[name]()
    hand = ByHand()
    plan = oven.bake(flow, background=hand)
    before = plan.run(data)
    hand.work()
    after = plan.run(data)
    assert list(before) == list(after)
    for output, value in after.items():
        left, right = (np.asarray(dense(side)) for side in (before[output], value))
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        if left.dtype.kind == "f":
            loose = 1e-12 if left.dtype == np.float64 else 1e-5
            np.testing.assert_allclose(left, right, rtol=loose, atol=loose)
        else:
            np.testing.assert_array_equal(left, right)


def test_data_of_another_width_compiles_in_the_background_too() -> None:
    hand = ByHand()
    plan = oven.bake(program(), background=hand)
    narrow = np.ones((2, 3), np.float32)
    assert plan.run(narrow)["total"].dtype == np.float32
    assert len(hand.waiting) == 2
    hand.work()
    assert plan.run(narrow)["total"].dtype == np.float32


def test_data_of_another_width_is_answered_before_its_plan_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand = ByHand()
    plan = oven.bake(program(), background=hand)
    hand.work()
    answer = Plan._meanwhile
    begun: list[int] = []

    def looked(self: Plan, data: object) -> dict[str, Any]:
        begun.append(len(hand.waiting))
        return answer(self, data)

    monkeypatch.setattr(Plan, "_meanwhile", looked)
    narrow = np.ones((2, 3), np.float32)
    plan.run(narrow)
    plan.run(narrow)
    assert (begun, len(hand.waiting)) == ([0, 1], 1)


def test_the_shared_thread_bakes_for_another_width() -> None:
    plan = oven.bake(program(), background=True).wait()
    plan.run(np.ones((2, 3), np.float32))
    until(lambda: plan.variants.here, "the plan for float32 is there")


def test_nothing_is_compiled_by_asking_whether_it_is_ready() -> None:
    before = cache.counters.compiled, cache.counters.from_disk, cache.counters.from_memory
    plan = oven.bake(program(), background=ByHand())
    assert not plan.ready
    plan.run(np.ones((1, 3)))
    after = cache.counters.compiled, cache.counters.from_disk, cache.counters.from_memory
    assert after == before


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(source: str, name: str) -> int:
        raise CompileError.of(name, source, "no luck")

    monkeypatch.setattr(cache, "address", address)


def test_an_error_in_the_background_is_raised_to_whoever_runs_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand = ByHand()
    plan = oven.bake(program(), background=hand)
    rows = np.ones((1, 3))
    plan.run(rows)
    failing(monkeypatch)
    hand.work()
    for use in (lambda: plan.run(rows), lambda: plan.ready, plan.wait, lambda: plan.code.steps):
        with pytest.raises(CompileError, match="did not compile"):
            use()


def test_waiting_ends_when_told_to() -> None:
    plan = oven.bake(program(), background=ByHand())
    with pytest.raises(TimeoutError):
        plan.wait(0.01)


def test_the_shared_thread_compiles() -> None:
    plan = oven.bake(program(), background=True)
    assert plan.wait(60).ready
    np.testing.assert_array_equal(plan.run(np.zeros((1, 3)))["total"], [-6.0])
    assert background.shared() is background.shared()


def test_threads_may_wait_and_run_at_once() -> None:
    hand = ByHand()
    plan = oven.bake(program(), background=hand)
    found: list[float] = []

    def use() -> None:
        found.extend(float(plan.run(np.zeros((1, 3)))["total"][0]) for _ in range(200))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    hand.work()
    for thread in threads:
        thread.join()
    assert found == [-6.0] * 800


def test_a_loaded_plan_can_compile_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow, data = PROGRAMS["scaled_logistic"]()
    plan = oven.bake(flow)
    plan.save(tmp_path / "a.plan")
    hand = ByHand()
    assert oven.load(tmp_path / "a.plan", background=hand).ready, "it is known already"
    monkeypatch.setattr("oven.plans.image_cache.find", lambda _: None)
    loaded = oven.load(tmp_path / "a.plan", background=hand)
    assert not loaded.ready
    assert set(loaded.run(data)) == set(flow.outputs)
    hand.work()
    same(loaded.run(data), plan.run(data))
    assert isinstance(loaded, Plan)


def unseen(number: int) -> Flow:
    """A program with code of its own, which no other test has."""
    flow = flour.vector("x", 3)
    for step in range(number):
        flow = flow.exp().log1p() if step % 2 else flow.sqrt().sigmoid()
    return flow.sum().named("total")


@pytest.fixture
def automatic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As users have it, with an empty cache."""
    monkeypatch.setattr(background, "BY_DEFAULT", [True])
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))


@pytest.mark.usefixtures("automatic")
def test_what_is_in_no_cache_is_compiled_while_definitions_answer() -> None:
    rows = np.arange(1.0, 7.0).reshape(2, 3)
    plan = oven.bake(unseen(7))
    expected = plan.flow.reference(rows)["total"]
    before = plan.run(rows)["total"]
    assert plan.wait(30).code.tier == 1
    np.testing.assert_allclose([before, plan.run(rows)["total"]], [expected] * 2, rtol=1e-12)


@pytest.mark.usefixtures("automatic")
def test_what_is_cached_is_there_at_once() -> None:
    oven.bake(unseen(8), background=False)
    assert oven.bake(unseen(8)).code.tier == 1


@pytest.mark.usefixtures("automatic")
def test_a_compiled_estimator_answers_before_its_code_is_there() -> None:
    from pretzel import Model

    rows = np.arange(1.0, 7.0).reshape(2, 3)
    flow = unseen(9)
    compiled = Model(oven.bake(Flow({"value": flow.node})))
    answers = [compiled.predict(rows)]
    compiled.plan.wait(30)
    answers += [compiled.predict(rows), compiled.predict(rows)]
    np.testing.assert_allclose(answers, [flow.reference(rows)["total"]] * 3, rtol=1e-12)
