"""Faults: the request that meets one gets its error, all others get their answers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from oven.plans.execution import Execution
from oven.run.native_run import RowsRefused
from runtime import Runtime
from scheduler import ExecutorDied
from tests.house import until
from tests.runtime.conftest import Hold
from tests.runtime.plans import offset_of, shift

BLOCK = np.arange(160.0).reshape(40, 4)
POISON = np.full((40, 4), -1.0)


class Broken(Exception):
    """What a stage raises in these tests."""


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=2) as made:
        made.register("a", shift(1.0))
        yield made


def poisoned(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let executors raise over a block that begins with -1."""
    whole = Execution.step

    def step(work: Execution, number: int, chunk: Any, memory: object = None) -> None:
        if work.rows and work.columns["x"][0, 0] == -1.0:
            raise error
        whole(work, number, chunk, memory)

    monkeypatch.setattr(Execution, "step", step)


def storm(runtime: Runtime, expected: type[BaseException]) -> None:
    """Good and bad calls at the same time, from several threads."""

    def ask(seed: int) -> None:
        for n in range(40):
            if (n + seed) % 4 == 0:
                with pytest.raises(expected):
                    runtime.predict("a", POISON, engine="batch")
            else:
                data = BLOCK + n
                assert offset_of(runtime.predict("a", data, engine="batch"), data) == 1.0

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))


def check_idle(runtime: Runtime) -> None:
    """No buffer is out, nothing is pinned, every job has come to its end."""

    def idle() -> bool:
        batch = runtime.stats().batch
        assert batch is not None
        ends = batch.done + batch.failed + batch.expired + batch.cancelled
        pins = sum(each.residence.pins for each in runtime.endpoints.all())
        return ends == batch.submitted and not batch.buffers.in_use and not pins

    until(idle)


def test_a_stage_that_raises(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(monkeypatch, Broken("on purpose"))
    storm(runtime, Broken)
    check_idle(runtime)
    batch = runtime.stats().batch
    assert batch is not None
    assert (batch.failed, batch.done) == (40, 120)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_executor_that_dies(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(monkeypatch, SystemExit("torn down"))
    storm(runtime, ExecutorDied)
    check_idle(runtime)
    batch = runtime.stats().batch
    assert batch is not None
    assert batch.deaths > 0
    assert batch.done == 120


def test_rows_that_native_code_refuses(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition has the last word: here it knows an answer."""
    from oven.run.native_run import NativeRun

    def refuse(*_: object) -> None:
        raise RowsRefused("not these")

    monkeypatch.setattr(NativeRun, "run", refuse)
    assert offset_of(runtime.predict("a", BLOCK, engine="batch"), BLOCK) == 1.0
    check_idle(runtime)


def test_memory_pressure(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned(monkeypatch, MemoryError())
    storm(runtime, MemoryError)
    check_idle(runtime)


def test_no_memory_for_the_answers(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    from oven.run.native_run import NativeRun

    def blank(*_: object) -> None:
        raise MemoryError

    runtime.predict("a", BLOCK, engine="batch")
    monkeypatch.setattr(NativeRun, "blank", blank)
    with pytest.raises(MemoryError):
        runtime.submit("a", BLOCK, engine="batch")
    monkeypatch.undo()
    assert offset_of(runtime.predict("a", BLOCK, engine="batch"), BLOCK) == 1.0
    check_idle(runtime)


def test_a_caller_that_gives_up(hold: Hold) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("hold", hold.plan())
        runtime.register("a", shift(1.0))
        first = runtime.submit("hold", BLOCK, engine="batch")
        hold.wait()
        given_up = runtime.submit("a", POISON, engine="batch")
        kept = runtime.submit("a", BLOCK, engine="batch")
        assert given_up.cancel()
        hold.go()
        assert offset_of(kept.result(30), BLOCK) == 1.0
        assert first.result(30)
        with pytest.raises(CancelledError):
            given_up.result(0)
        check_idle(runtime)
        assert runtime.stats().batch.cancelled == 1  # type: ignore[union-attr]


def test_a_caller_that_gives_up_work_that_has_begun(hold: Hold) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("hold", hold.plan())
        future = runtime.submit("hold", BLOCK, engine="batch")
        hold.wait()
        assert future.cancel()
        hold.go()
        check_idle(runtime)


def test_kept_futures_keep_no_plans(runtime: Runtime) -> None:
    import weakref

    futures = [runtime.submit("a", BLOCK, engine="batch") for _ in range(5)]
    answers = [each.result(30) for each in futures]
    plan = weakref.ref(runtime.endpoints.find("a").plan)
    check_idle(runtime)
    runtime.unregister("a")
    until(lambda: gc.collect() >= 0 and plan() is None)
    assert len(answers) == 5


def test_threads_that_come_and_go(runtime: Runtime) -> None:
    def ask() -> None:
        for engine in ("inline", "batch", None):
            assert offset_of(runtime.predict("a", BLOCK, engine=engine), BLOCK) == 1.0

    for _ in range(30):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(30)
    check_idle(runtime)
    assert runtime.endpoints.find("a").counts.inline.value >= 30
