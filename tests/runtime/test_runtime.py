"""Registering, switching, answering: what callers see of a runtime."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oven
from flour.core.errors import InputError, ParameterError
from objectstore import FileStore, MemoryStore
from runtime import Runtime
from runtime.errors import (
    AlreadyTaken,
    BadCall,
    BadRegistration,
    InService,
    RuntimeClosed,
    UnknownEndpoint,
)
from runtime.service.call import Call
from scheduler import DeadlineExceeded, Engine, Overloaded, QueueRules
from tests.house import until
from tests.runtime.conftest import Hold
from tests.runtime.plans import WIDTH, documents, offset_of, shift, shift_flow, text_flow

EXECUTORS = 2

ROW = np.arange(float(WIDTH))
BLOCK = np.arange(40.0 * WIDTH).reshape(40, WIDTH)
MANY = np.zeros((50_000, WIDTH))


# --- names and versions -------------------------------------------------------------------------


def test_plans_programs_and_files_are_served(runtime: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "plan.pretzel"
    shift(3.0).save(path)
    assert runtime.register("plan", shift(1.0)) == "1"
    assert runtime.register("flow", shift_flow(2.0)) == "1"
    assert runtime.register("file", path) == "1"
    found = [offset_of(runtime.predict(n, BLOCK), BLOCK) for n in ("plan", "flow", "file")]
    assert found == [1.0, 2.0, 3.0]


def test_versions_count_up_and_the_newest_answers(runtime: Runtime) -> None:
    assert [runtime.register("a", shift(n)) for n in (1.0, 2.0)] == ["1", "2"]
    assert runtime.register("a", shift(3.0), "blue", activate=False) == "blue"
    assert offset_of(runtime.predict("a", ROW), ROW) == 2.0
    assert offset_of(runtime.predict("a@1", ROW), ROW) == 1.0
    assert offset_of(runtime.predict("a@blue", ROW), ROW) == 3.0
    runtime.switch("a", "blue")
    assert offset_of(runtime.predict("a", ROW), ROW) == 3.0
    (endpoint,) = runtime.endpoints
    assert (endpoint.name, endpoint.current, endpoint.versions) == ("a", "blue", ("1", "2", "blue"))


def test_numbers_that_were_given_are_not_given_again(runtime: Runtime) -> None:
    runtime.register("a", shift(1.0), 2)
    assert runtime.register("a", shift(2.0)) == "1"
    assert runtime.register("a", shift(3.0)) == "3"
    runtime.unregister("a", "1")
    assert runtime.register("a", shift(3.0)) == "4"


def test_what_cannot_be_registered(runtime: Runtime) -> None:
    runtime.register("a", shift(1.0), "1")
    with pytest.raises(AlreadyTaken, match="registered already"):
        runtime.register("a", shift(2.0), "1")
    for name in ("a@1", "", "two words"):
        with pytest.raises(BadRegistration, match="no name"):
            runtime.register(name, shift(1.0))
    with pytest.raises(BadRegistration, match=r"pretzel\.compile"):
        runtime.register("b", object())  # type: ignore[arg-type]
    assert [each.name for each in runtime.endpoints] == ["a"]
    assert offset_of(runtime.predict("a", ROW), ROW) == 1.0


def test_what_is_not_there(runtime: Runtime) -> None:
    runtime.register("fraud", shift(1.0))
    with pytest.raises(UnknownEndpoint, match="did you mean 'fraud'"):
        runtime.predict("frued", ROW)
    with pytest.raises(UnknownEndpoint, match="endpoint 'fraud' has no version '7'"):
        runtime.predict("fraud@7", ROW)
    with pytest.raises(UnknownEndpoint, match="there are: fraud"):
        runtime.predict("something else", ROW)
    with pytest.raises(UnknownEndpoint, match="versions: 1"):
        runtime.switch("fraud", 7)
    with pytest.raises(UnknownEndpoint):
        runtime.unregister("other")


def test_the_version_in_service_stays(runtime: Runtime) -> None:
    runtime.register("a", shift(1.0))
    runtime.register("a", shift(2.0))
    with pytest.raises(InService, match="switch"):
        runtime.unregister("a", 2)
    runtime.unregister("a", 1)
    runtime.unregister("a", 2)
    assert not runtime.endpoints


def test_a_closed_runtime_says_so() -> None:
    runtime = Runtime(executors=1)
    runtime.register("a", shift(1.0))
    assert runtime.close()
    assert runtime.close()
    for call in (
        lambda: runtime.predict("a", ROW),
        lambda: runtime.submit("a", BLOCK),
        lambda: runtime.register("b", shift(1.0)),
    ):
        with pytest.raises(RuntimeClosed):
            call()


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, "inline", "batch"])
def test_every_engine_gives_the_answers_of_the_plan(runtime: Runtime, engine: str | None) -> None:
    plan = shift(5.0)
    runtime.register("a", plan)
    for data in (BLOCK, BLOCK[:1], BLOCK[:0], BLOCK.astype(np.float32), BLOCK.tolist()):
        got, want = runtime.predict("a", data, engine=engine), plan.run(data)
        assert list(got) == list(want)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)
            assert got[name].dtype == value.dtype
    for row in (ROW, ROW.tolist(), tuple(ROW), ROW.astype(int)):
        got = runtime.predict("a", row, engine=engine)
        assert got["top"] == ROW[-1] + 5.0
        assert isinstance(got["top"], float)
        np.testing.assert_array_equal(got["moved"], ROW + 5.0)


def test_some_outputs(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0))
    assert list(runtime.predict("a", ROW, outputs="top")) == ["top"]
    assert list(runtime.predict("a", BLOCK, outputs=["top", "moved"])) == ["top", "moved"]
    assert list(runtime.submit("a", BLOCK, outputs=["top"], engine="batch").result()) == ["top"]


def test_calls_that_cannot_be(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0))
    with pytest.raises(BadCall, match="no output 'bottom'"):
        runtime.predict("a", ROW, outputs=["bottom"])
    with pytest.raises(BadCall, match="inline or batch"):
        runtime.predict("a", ROW, engine="gpu")
    wrong: list[Any] = [-1.0, float("nan"), "1", 10**400, [1.0]]
    for timeout in wrong:
        with pytest.raises(BadCall, match="number of seconds"):
            runtime.predict("a", ROW, timeout=timeout)
    fraction: Any = 1.5
    with pytest.raises(BadCall, match="a priority is an integer"):
        runtime.predict("a", ROW, priority=fraction)
    with pytest.raises(BadCall, match="ahead is a number of blocks"):
        list(runtime.predict_batch("a", [BLOCK], ahead=fraction))
    wrong = [{"reserve": 1.5}, {"notes": {"batch_rows": 1.5}}, {"notes": {"cache_bytes": 1.5}}]
    for given in wrong:
        with pytest.raises(BadRegistration, match=r"=1\.5"):
            runtime.register("b", shift(5.0), **given)
    with pytest.raises(ParameterError, match="inline_limit: callers"):
        Runtime(inline_limit=fraction)


@pytest.mark.parametrize("engine", [None, "inline", "batch"])
def test_wrong_data_is_the_callers_error_and_nobody_elses(
    runtime: Runtime, engine: str | None
) -> None:
    runtime.register("a", shift(5.0))
    for data in (np.zeros(WIDTH + 1), np.zeros((2, WIDTH - 1)), "text", [["x"] * WIDTH], None):
        with pytest.raises(InputError):
            runtime.predict("a", data, engine=engine)
    assert offset_of(runtime.predict("a", BLOCK, engine=engine), BLOCK) == 5.0


def test_futures(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0))
    futures = [runtime.submit("a", BLOCK + n, engine=e) for n in range(20) for e in (None, "batch")]
    wait(futures, 30)
    for n, future in enumerate(futures):
        assert offset_of(future.result(), BLOCK + n // 2) == 5.0


def test_event_loops(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0))

    async def ask() -> list[dict[str, Any]]:
        calls = [runtime.apredict("a", BLOCK + n, engine="batch") for n in range(9)]
        one = await runtime.apredict("a", ROW)
        return [one, *await asyncio.gather(*calls)]

    one, *answers = asyncio.run(ask())
    assert offset_of(one, ROW) == 5.0
    assert [offset_of(each, BLOCK + n) for n, each in enumerate(answers)] == [5.0] * 9


def test_blocks_of_data_larger_than_memory(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0))
    alive: list[int] = []
    count = 0

    def blocks() -> Iterator[Any]:
        for n in range(50):
            block = BLOCK + n
            alive.append(1)
            weakref.finalize(block, alive.pop)
            yield block

    for n, answers in enumerate(runtime.predict_batch("a", blocks(), ahead=3)):
        assert offset_of(answers, BLOCK + n) == 5.0
        assert len(alive) <= 8
        count += 1
    assert count == 50


def test_whoever_stops_asking_leaves_nothing_behind(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0))
    answers = runtime.predict_batch("a", (BLOCK for _ in range(1000)))
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    until(lambda: not runtime.stats().batch.buffers.in_use)  # type: ignore[union-attr]
    (version,) = runtime.stats().versions
    assert version.batch_calls < 10


def test_a_full_queue_says_so_at_once(hold: Hold) -> None:
    with Runtime(executors=1, rules=QueueRules(jobs=2)) as runtime:
        runtime.register("a", hold.plan())
        futures = [runtime.submit("a", BLOCK, engine="batch")]
        hold.wait()
        futures += [runtime.submit("a", BLOCK, engine="batch") for _ in range(2)]
        with pytest.raises(Overloaded):
            runtime.submit("a", BLOCK, engine="batch")
        with pytest.raises(Overloaded):
            runtime.predict("a", BLOCK, engine="batch")
        hold.go()
        assert all(len(future.result(30)["moved"]) for future in futures)


def test_what_is_late_is_given_up_before_it_runs(hold: Hold) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("a", hold.plan())
        runtime.register("b", shift(1.0))
        first = runtime.submit("a", BLOCK, engine="batch")
        hold.wait()
        with pytest.raises(DeadlineExceeded):
            runtime.predict("b", BLOCK, engine="batch", timeout=0.02)
        with pytest.raises(DeadlineExceeded):
            runtime.predict("b", BLOCK, engine="inline", timeout=0.0)
        hold.go()
        assert first.result(30)
        stats = runtime.stats()
        assert stats.batch is not None
        assert (stats.batch.expired, stats.batch.done) == (1, 1)


def test_priority_goes_first(hold: Hold) -> None:
    order: list[str] = []
    with Runtime(executors=1) as runtime:
        runtime.register("hold", hold.plan())
        runtime.register("a", shift(1.0))
        first = runtime.submit("hold", BLOCK, engine="batch")
        hold.wait()
        futures: list[Future[Any]] = []
        for name, priority in (("low", 0), ("high", 5)):
            futures.append(runtime.submit("a", BLOCK, engine="batch", priority=priority))
            futures[-1].add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
        hold.go()
        wait([first, *futures], 30)
    assert order == ["high", "low"]


# --- the policy ----------------------------------------------------------------------------------


def test_the_choice_can_be_looked_at(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0))
    runtime.predict("a", BLOCK, engine="batch")
    (version,) = runtime.stats().versions
    assert (version.engine, version.reason) == ("batch", "the caller asked for it")
    assert "a@1: 1 rows go inline" in runtime.explain("a")
    assert "goes to the plan's entry" in runtime.explain("a")
    many = runtime.explain("a", 10_000_000)
    assert "go batch" in many
    assert "in chunks of" in many
    assert runtime.stats().versions == (version,), "explaining is not calling"


def test_work_for_many_rows_goes_to_executors_and_few_stay_here(runtime: Runtime) -> None:
    runtime.register("a", shift(5.0, 64))
    for _ in range(20):
        runtime.predict("a", np.zeros((100, 64)))
    (version,) = runtime.stats().versions
    assert version.batch_calls == 0
    served = runtime.endpoints.find("a")
    assert runtime._policy.decide(served, Call(), 4_000_000).engine is Engine.BATCH


def test_a_reserved_version_has_executors_of_its_own(hold: Hold) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("busy", hold.plan())
        runtime.register("mine", shift(2.0), reserve=True)
        blocked = runtime.submit("busy", BLOCK, engine="batch")
        hold.wait()
        assert offset_of(runtime.predict("mine", ROW), ROW) == 2.0
        assert offset_of(runtime.submit("mine", BLOCK, engine="batch").result(30), BLOCK) == 2.0
        runtime._costs.observe(runtime.endpoints.find("mine"), len(MANY), 1.0)
        assert offset_of(runtime.submit("mine", MANY).result(30), MANY) == 2.0
        stats = runtime.stats()
        assert stats.batch is not None
        executors = {queues.key: queues.executors for queues in stats.batch.queues}
        assert executors == {"shared": 1, "mine@1": 1}
        assert stats.versions[1].reason == "the plan has executors reserved for itself"
        hold.go()
        assert blocked.result(30)
        runtime.unregister("mine")
        queues_left = runtime.stats().batch.queues  # type: ignore[union-attr]
        assert "mine@1" not in {queues.key for queues in queues_left}


# --- parameters and references -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_parameters_are_held_while_a_version_lives(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else FileStore(tmp_path, grace_seconds=0.0)
    with Runtime(store, executors=1, owner="host/") as runtime:
        runtime.register("a", shift(1.0))
        runtime.register("b", shift(1.0))
        held = store.holdings()
        assert set(held) == {"host/a@1", "host/b@1"}
        assert held["host/a@1"] == held["host/b@1"] != frozenset()
        stats = runtime.stats().catalog
        assert (stats.versions, stats.stages, stats.stage_uses) == (2, 1, 2)
        runtime.unregister("a")
        assert set(store.holdings()) == {"host/b@1"}
        runtime.unregister("b")
        assert store.holdings() == {}
        assert store.digests() == []
        assert runtime.stats().catalog.versions == 0


def test_a_version_in_flight_is_freed_with_its_last_answer(hold: Hold) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("a", hold.plan())
        future = runtime.submit("a", BLOCK, engine="batch")
        hold.wait()
        plan = weakref.ref(runtime.endpoints.find("a").plan)
        runtime.unregister("a")
        assert set(runtime.store.holdings()) == {"a@1"}, "the call still needs its parameters"
        hold.go()
        assert future.result(30)
        until(lambda: gc.collect() >= 0 and plan() is None)
        assert runtime.stats().catalog.versions == 0
        assert runtime.store.digests() == []


def test_a_name_can_be_taken_again_while_the_former_one_answers(
    hold: Hold, runtime: Runtime
) -> None:
    runtime.register("a", hold.plan(), "1")
    future = runtime.submit("a", BLOCK, engine="batch")
    hold.wait()
    runtime.unregister("a")
    runtime.register("a", shift(7.0), "1")
    assert offset_of(runtime.predict("a", BLOCK), BLOCK) == 7.0
    hold.go()
    assert future.result(30)
    del future
    gc.collect()
    runtime.stats()
    assert set(runtime.store.holdings()) == {"a@1"}, "held for the new one"
    assert runtime.stats().catalog.owners == 1


def test_dropping_a_runtime_leaves_no_threads() -> None:
    before = threading.active_count()
    with Runtime(executors=2) as runtime:
        runtime.register("a", shift(1.0), reserve=True)
        runtime.predict("a", BLOCK)
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_closing_drains_or_cancels(hold: Hold) -> None:
    runtime = Runtime(executors=1)
    runtime.register("a", hold.plan())
    futures = [runtime.submit("a", BLOCK, engine="batch") for _ in range(5)]
    hold.wait()
    threading.Timer(0.05, hold.go).start()
    assert runtime.close(drain=True, timeout=90)
    assert all(len(future.result(0)["moved"]) == len(BLOCK) for future in futures)


def test_closing_without_draining_cancels_what_waits(hold: Hold) -> None:
    runtime = Runtime(executors=1)
    runtime.register("a", hold.plan())
    futures = [runtime.submit("a", BLOCK, engine="batch") for _ in range(5)]
    hold.wait()
    threading.Timer(0.05, hold.go).start()
    runtime.close(drain=False, timeout=90)
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) >= 4


def test_plans_that_are_still_being_compiled_answer(runtime: Runtime) -> None:
    runtime.register("a", shift_flow(4.0, 13), background=True)
    data = np.zeros((3, 13))
    for engine in (None, "inline", "batch"):
        assert offset_of(runtime.predict("a", data, engine=engine), data) == 4.0
    served = runtime.endpoints.find("a")
    assert served.plan is not None
    served.plan.wait(60)
    for _ in range(200):
        assert offset_of(runtime.predict("a", data[0]), data[0]) == 4.0
    assert served.entry.function is not None, "the shortest way opens once the code is there"


def test_texts_are_rows(runtime: Runtime) -> None:
    plan = oven.bake(text_flow(1))
    runtime.register("t", plan)
    texts = documents(5, 10)
    want = plan.run(texts)["score"]
    np.testing.assert_array_equal(runtime.predict("t", texts)["score"], want)
    np.testing.assert_array_equal(runtime.predict("t", texts, engine="batch")["score"], want)
    np.testing.assert_array_equal(runtime.predict("t", texts[2])["score"], want[2])
