"""Calls that must not wait, calls that must not take long, and what their callers are told."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

import oven
from flour import Flow
from oven.plans.execution import Execution
from runtime import Runtime
from runtime.service.call import Call
from runtime.service.engines import CORES, INSIDE
from runtime.service.sharing import SharedRun
from scheduler import DeadlineExceeded, Overloaded, QueueRules, Settings
from tests.house import until
from tests.runtime.conftest import Hold
from tests.runtime.plans import WIDTH, documents, offset_of, shift, shift_flow, text_flow

EXECUTORS = 2

ROW = np.arange(4.0)
BLOCK = np.arange(160.0).reshape(40, 4)


class Ovens:
    """Notes which threads bake."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        whole = oven.bake

        def bake(flow: Flow, **wishes: Any) -> oven.Plan:
            self.threads.append(threading.current_thread().name)
            return whole(flow, **wishes)

        monkeypatch.setattr("oven.plans.plan.bakers", [bake])


@pytest.mark.parametrize("data", [BLOCK, ROW], ids=["block", "row"])
def test_who_does_not_wait_does_not_bake(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, data: Any
) -> None:
    """float32 has a plan of its own, which is baked when it is first met."""
    runtime.register("a", shift(1.0))
    runtime.register("b", shift(2.0))
    for name in ("a", "b"):  # few rows have been measured and would stay on the caller's thread
        for _ in range(200):
            runtime.predict(name, data)
    ovens, narrow = Ovens(monkeypatch), data.astype(np.float32)
    made = runtime.submit("a", narrow).result(60)
    assert offset_of(made, narrow) == 1.0
    assert made["moved"].dtype == np.float32
    made = asyncio.run(runtime.apredict("b", narrow))
    assert offset_of(made, narrow) == 2.0
    assert len(ovens.threads) == 2
    assert all(name.startswith("pretzel-") for name in ovens.threads), "an executor's work"
    before = runtime.stats().batch.submitted  # type: ignore[union-attr]
    assert offset_of(runtime.submit("a", narrow).result(60), narrow) == 1.0
    if data.ndim == 1:
        after = runtime.stats().batch.submitted  # type: ignore[union-attr]
        assert after == before, "there is nothing to wait for any more"


def test_who_does_not_wait_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    with Runtime(executors=1, memory_budget=1) as runtime:
        runtime.register("a", shift(1.0))
        runtime.register("b", shift(2.0))  # for which the first one had to go
        whole = runtime._memory._load

        def load(served: Any) -> oven.Plan:
            threads.append(threading.current_thread().name)
            return whole(served)

        monkeypatch.setattr(runtime._memory, "_load", load)
        for name, offset in (("a", 1.0), ("b", 2.0), ("a", 1.0)):
            assert offset_of(runtime.submit(name, BLOCK).result(30), BLOCK) == offset
        assert offset_of(asyncio.run(runtime.apredict("b", ROW)), ROW) == 2.0
        assert len(threads) == 4
        assert all(name.startswith("pretzel-") for name in threads)
        assert "not here yet" in str(runtime.stats().versions[1].reason)


def test_a_call_here_ends_with_its_deadline(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has begun is given up between two chunks."""
    plan = shift(1.0)
    runtime.register("a", plan)
    whole = Execution.step
    begun: list[int] = []
    now = time.monotonic() + 1000.0  # a clock of the test's own, which other clocks do not reach

    def step(work: Execution, number: int, chunk: Any, memory: object = None) -> None:
        nonlocal now
        begun.append(chunk.start)
        now += 0.02
        whole(work, number, chunk, memory)

    data = np.zeros((100_000, 4))
    runtime.predict("a", data[:1000], engine="inline")
    monkeypatch.setattr(Execution, "step", step)
    monkeypatch.setattr("runtime.service.sharing.time.monotonic", lambda: now)

    def in_time(deadline: float) -> Any:
        return SharedRun(lambda: plan.begin(BLOCK), 1, 4, 4, deadline=deadline).run()

    with pytest.raises(DeadlineExceeded, match="8 of 40 rows were done"):
        in_time(now + 0.03)
    assert begun == [0, 4]
    assert offset_of(in_time(now + 60), BLOCK) == 1.0
    begun.clear()
    version = runtime.endpoints.find("a")
    version.learned.native = version.learned.inline_ok = False  # native code has a clock of its own
    version.open()
    for _ in range(8):
        runtime._costs.observe(version, 100_000, 1.0)
    with pytest.raises(DeadlineExceeded, match="of 100000 rows were done"):
        runtime.predict("a", data, engine="inline", timeout=0.01)
    assert begun == [0]


def test_a_call_that_is_not_divided_looks_at_the_clock_all_the_same() -> None:
    """As where nobody helps: a block of a second is given up after some milliseconds."""
    with Runtime(executors=1) as runtime:
        runtime.register("a", shift(1.0))
        served = runtime.endpoints.find("a")
        for _ in range(8):
            runtime._costs.observe(served, 100_000, 1.0)
        for engine in (None, "inline"):
            call = Call.of(served, None, 60.0, None, engine)
            batch = served.reader.read(np.zeros((100_000, 4)))
            decision = runtime._policy.weigh(batch, served, call).decision
            assert decision.chunk_rows <= 500
            assert decision.least_rows <= decision.chunk_rows


def test_time_runs_from_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bringing a plan back is part of it."""
    with Runtime(executors=1, memory_budget=1) as runtime:
        runtime.register("a", shift(1.0))
        runtime.register("b", shift(2.0))
        whole = runtime._memory._load

        def load(served: Any) -> oven.Plan:
            time.sleep(0.05)
            return whole(served)

        monkeypatch.setattr(runtime._memory, "_load", load)
        for engine in ("inline", "batch"):
            runtime.predict("b", BLOCK)
            assert runtime.endpoints.find("a").plan is None
            with pytest.raises(DeadlineExceeded):
                runtime.predict("a", BLOCK, engine=engine, timeout=0.04)


def test_what_work_costs_is_not_what_waiting_costs(runtime: Runtime) -> None:
    """A busy machine stretches the forecast of a call, not what its owner is charged."""
    runtime.register("a", shift(1.0))
    served = runtime.endpoints.find("a")
    engines, policy = runtime._engines, runtime._policy
    for _ in range(50):
        runtime.predict("a", BLOCK)
        runtime._costs.observe(served, len(BLOCK), 1e-3)
    idle = policy.decide(served, Call(), len(BLOCK))
    crowd = {object() for _ in range(10 * CORES)}
    INSIDE.update(crowd)
    busy = policy.decide(served, Call(), len(BLOCK))
    INSIDE.difference_update(crowd)
    assert idle.inline_seconds is not None
    assert busy.inline_seconds is not None
    assert busy.inline_seconds > 5 * idle.inline_seconds
    assert busy.seconds == idle.seconds is not None
    job = engines._job(served, served.plan, served.reader.read(BLOCK), busy, Call())  # type: ignore[arg-type]
    assert job.cost == pytest.approx(busy.seconds)


def test_a_reserved_version_is_called_here_for_what_is_over_at_once() -> None:
    """Handing it over would take longer, and its caller's thread is its caller's own."""
    for instant, batches in ((150e-6, 0), (10e-6, 1)):
        with Runtime(executors=1, settings=Settings(instant=instant)) as runtime:
            runtime.register("mine", shift_flow(1.0, 64), reserve=True)
            data = np.zeros((1000, 64))  # too many for the shortest way
            runtime._costs.observe(runtime.endpoints.find("mine"), 1000, 20e-6)
            assert offset_of(runtime.predict("mine", data), data) == 1.0
            assert runtime.stats().versions[0].batch_calls == 0
            assert offset_of(runtime.submit("mine", data).result(30), data) == 1.0
            assert runtime.stats().versions[0].batch_calls == batches


def test_a_crowded_queue_refuses_before_it_looks(
    hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is refused has not paid for what is never done; what is over at once is not refused."""
    with Runtime(executors=1, rules=QueueRules(jobs=1)) as runtime:
        runtime.register("held", hold.plan())
        runtime.register("a", shift(1.0))
        block = np.zeros((100_000, WIDTH))  # too many for the shortest way
        runtime._costs.observe(runtime.endpoints.find("a"), len(block), 1.0)
        futures = [runtime.submit("held", BLOCK, engine="batch")]
        hold.wait()
        futures.append(runtime.submit("a", block))
        with monkeypatch.context() as no:
            no.setattr("oven.Plan.begin", lambda *_: pytest.fail("it was looked at"))
            with pytest.raises(Overloaded, match="the queue is full") as caught:
                runtime.submit("a", block)
            assert caught.value.retry_after > 0
            with pytest.raises(Overloaded):
                asyncio.run(runtime.apredict("a", block))
        assert offset_of(runtime.submit("a", BLOCK).result(0), BLOCK) == 1.0
        assert offset_of(runtime.predict("a", block), block) == 1.0, "a caller that waits does it"
        hold.go()
        assert all(len(future.result(30)["moved"]) for future in futures)
    assert Runtime()._engines._rules.seconds == 0.25


def test_nothing_of_a_version_is_left_when_it_has_gone(runtime: Runtime) -> None:
    for n in range(20):
        runtime.register("a", shift(float(n)), "v")
        calls = [runtime.submit("a", BLOCK, engine="batch") for _ in range(4)]
        runtime.predict("a", BLOCK, engine="inline")
        runtime.unregister("a")
        assert all(offset_of(each.result(30), BLOCK) == n for each in calls)
        del calls
    until(lambda: gc.collect() >= 0 and not runtime.stats().catalog.versions)
    assert runtime._costs.model.snapshot() == {}
    assert runtime._costs._turns == {}


def test_what_cannot_be_registered_reserves_nothing(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runtime.service.version import ModelVersion

    def fail(_: ModelVersion) -> None:
        raise MemoryError

    monkeypatch.setattr(ModelVersion, "open", fail)
    with pytest.raises(MemoryError):
        runtime.register("a", shift(1.0), reserve=True)
    monkeypatch.undo()
    assert not runtime.endpoints
    assert [queues.key for queues in runtime._engines.pool.stats().queues] == ["shared"]
    runtime.register("a", shift(1.0), "1", reserve=True)
    assert offset_of(runtime.predict("a", BLOCK, engine="batch"), BLOCK) == 1.0


def test_what_blocks_cost_is_learned_from_blocks(runtime: Runtime) -> None:
    """Single rows by executors, mostly overhead, do not cut a block into many chunks."""
    runtime.register("a", shift(1.0))
    served, costs, policy = runtime.endpoints.find("a"), runtime._costs, runtime._policy
    for _ in range(20):
        costs.observe(served, 1, 76e-6)
    call = Call.of(served, engine="batch")
    assert policy.decide(served, call, 100).chunk_rows == 100
    for _ in range(20):
        costs.observe(served, 1000, 40e-3)
    assert policy.decide(served, call, 10_000).chunk_rows <= 25


def test_what_texts_cost_is_learned_from_texts(runtime: Runtime) -> None:
    """Nothing is known of them before one was measured; after that, one is as good as another."""
    runtime.register("t", text_flow(0))
    assert runtime.direct.expected(runtime.endpoints.find("t"), 100) is None
    runtime._costs.observe(runtime.endpoints.find("t"), 1, 5e-6)
    assert runtime.direct.expected(runtime.endpoints.find("t"), 100) == pytest.approx(500e-6)
    made = runtime.submit("t", documents(100)).result(60)
    assert len(made["score"]) == 100
