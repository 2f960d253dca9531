"""Graphs that leave branches out, and graphs that wait."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from functools import partial, wraps
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest
from scipy.sparse import random as random_matrix
from sklearn.linear_model import LinearRegression

import flour
from flour.core.errors import InputError
from flour.core.rows import cut_rows, stacked, take_rows
from flour.core.sparse import Sparse
from runtime import Runtime
from runtime.errors import NodeFailed, RuntimeClosed
from scheduler import DeadlineExceeded
from tests.house import until
from tests.runtime.graph.models import CITIES, columns, people, row, text_model

FRAME = people(64, seed=7)
ROWS = columns(FRAME)
NOTES = FRAME["note"].tolist()
ONE = {name: values[3] for name, values in ROWS.items()}


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=2) as made:
        for seed in range(4):
            made.register(f"text{seed}", text_model(seed, seed), background=False)
        yield made


def scored(name: str) -> flour.Flow:
    return flour.model(name)(row()["note"])["scores"]


def alone(runtime: Runtime, seed: int) -> Any:
    return runtime.predict(f"text{seed}", NOTES)["scores"]


def steps(runtime: Runtime, name: str) -> Any:
    plan: Any = runtime.endpoints.versions()[f"{name}@1"].plan
    return plan.graph.steps


# --- choices -------------------------------------------------------------------------------------


def test_only_the_branch_that_is_taken_runs(runtime: Runtime) -> None:
    sides = {city: scored(f"text{n}") * 1.0 for n, city in enumerate(CITIES[:3])}
    city = row()["city"]
    graph = flour.switch(city, sides, otherwise=scored("text3"))
    runtime.register("switch", flour.outputs(score=graph, city=city), background=False)
    every = np.stack([alone(runtime, n) for n in range(4)])
    taken = np.array([CITIES.index(name) for name in FRAME["city"]])
    answers = runtime.predict("switch", ROWS)
    assert np.array_equal(answers["score"], every[taken, np.arange(len(taken))])
    assert answers["city"].tolist() == FRAME["city"].tolist()
    branches = [step for step in steps(runtime, "switch") if step.path]
    assert sorted(step.rows for step in branches) == sorted(np.bincount(taken).tolist())
    before = [step.calls for step in branches]
    single = runtime.predict("switch", ONE)
    assert single == {"score": answers["score"][3], "city": ONE["city"]}
    ran = [step.calls - calls for step, calls in zip(branches, before, strict=True)]
    assert sum(ran) == 1


def test_rows_of_a_sparse_vector_stay_sparse(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = random_matrix(40, 900, 0.02, "csr", random_state=0)
    held, rows = Sparse.from_scipy(matrix), np.array([3, 3, 0, 39])
    with monkeypatch.context() as patch:
        patch.setattr(Sparse, "toarray", None)
        pairs = (
            (take_rows({"x": held}, rows)["x"], matrix[rows]),
            (take_rows(held, rows[:0]), matrix[:0]),
            (cut_rows(held, 5, 9), matrix[5:9]),
            (stacked([held, cut_rows(held, 2, 2), held]), matrix[[*range(40), *range(40)]]),
        )
    for made, expected in pairs:
        assert (made.to_scipy() != expected).nnz == 0
    x, sign = flour.vector("x", 900, sparse=True), flour.scalar("sign", "float64")
    linear = flour.plan(x.linear([np.arange(900.0)], [0.0]))(x)[0]
    graph = flour.outputs(y=flour.where(sign > 0, linear, 0.0))
    runtime.register("sparse", graph, background=False)
    signs = np.resize([1.0, -1.0, -1.0], 40)
    made = runtime.predict("sparse", {"x": matrix, "sign": signs})["y"]
    assert np.allclose(made, np.where(signs > 0, matrix @ np.arange(900.0), 0.0))


def test_a_branch_that_refuses_rows_sees_only_its_own_without_a_model(runtime: Runtime) -> None:
    x = flour.vector("x", 2)
    fit = LinearRegression().fit([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.0, 1.0, 2.0])
    value = flour.from_sklearn(fit).on(x)["value"]
    runtime.register("sides", flour.outputs(y=flour.where(x[0] > 0, 9.0, value)), background=False)
    made = runtime.predict("sides", [[1.0, np.nan], [-1.0, 2.0]])["y"]
    assert np.allclose(made, [9.0, 3.0])
    with pytest.raises(InputError, match="NaN"):
        runtime.predict("sides", [[-1.0, np.nan], [-1.0, 2.0]])


def test_a_cascade_asks_the_second_model_where_the_first_is_not_sure(runtime: Runtime) -> None:
    first = scored("text0")
    final = flour.where(abs(first) > 0.5, first, (first + scored("text1")) / 2.0)
    runtime.register("cascade", flour.outputs(score=final), background=False)
    one, two = alone(runtime, 0), alone(runtime, 1)
    expected = np.where(abs(one) > 0.5, one, (one + two) / 2.0)
    assert 0 < (abs(one) > 0.5).sum() < len(one)
    assert np.array_equal(runtime.predict("cascade", ROWS)["score"], expected)
    for place in range(8):
        single = {name: values[place] for name, values in ROWS.items()}
        assert runtime.predict("cascade", single)["score"] == expected[place]


def test_whole_models_are_chosen_with_the_outputs_that_they_share(runtime: Runtime) -> None:
    note, city = row()["note"], row()["city"]
    first, second = flour.model("text0")(note), flour.model("text1")(note)
    runtime.register("whole", flour.switch(city, {"Oslo": first}, second), background=False)
    answers = runtime.predict("whole", ROWS)
    oslo = (FRAME["city"] == "Oslo").to_numpy()
    for output in ("label", "probabilities", "scores"):
        one, two = (runtime.predict(f"text{n}", NOTES)[output] for n in (0, 1))
        mask = oslo if one.ndim == 1 else oslo[:, None]
        assert np.array_equal(answers[output], np.where(mask, one, two))
    branches = [step for step in steps(runtime, "whole") if step.path]
    assert sorted(step.rows for step in branches) == sorted([oslo.sum(), (~oslo).sum()])
    before = [step.rows for step in branches]
    for place, (city, note) in enumerate(zip(FRAME["city"], NOTES, strict=True)):
        single = runtime.predict("whole", {"city": city, "note": note})
        for output, value in single.items():
            assert np.array_equal(value, answers[output][place])
    assert [step.rows for step in branches] == [2 * rows for rows in before]


def test_a_branch_may_refuse_only_the_rows_that_go_there(runtime: Runtime) -> None:
    x = flour.vector("x", 2)
    strict = x[1].as_vector().categorise([3.0, 4.0], [3, 4], [0, 2], [-1], [-1], strict=True)[0]
    graph = flour.first_match([(x[0] > 0, strict * 2)], otherwise=-1)
    runtime.register("strict", flour.outputs(y=graph), background=False)
    rows = np.array([[1.0, 3.0], [-1.0, 9.0], [2.0, 4.0]])
    assert runtime.predict("strict", rows)["y"].tolist() == [6.0, -1.0, 8.0]
    with pytest.raises(InputError):
        runtime.predict("strict", np.array([[1.0, 9.0]]))


def test_nested_choices_and_empty_blocks(runtime: Runtime) -> None:
    city, first = row()["city"], scored("text0")
    inner = flour.first_match([(first > 0, scored("text1"))], otherwise=scored("text2"))
    graph = flour.switch(city, {"Oslo": inner}, otherwise=0.5)
    runtime.register("nested", flour.outputs(score=graph), background=False)
    one, two, three = (alone(runtime, n) for n in range(3))
    oslo = (FRAME["city"] == "Oslo").to_numpy()
    expected = np.where(oslo, np.where(one > 0, two, three), 0.5)
    assert np.array_equal(runtime.predict("nested", ROWS)["score"], expected)
    nothing = {name: values[:0] for name, values in ROWS.items()}
    assert len(runtime.predict("nested", nothing)["score"]) == 0


def test_a_graph_of_several_steps_answers_arrow_like_a_plan(runtime: Runtime) -> None:
    pa = pytest.importorskip("pyarrow")
    graph = flour.switch(row()["city"], {"Oslo": scored("text0")}, otherwise=scored("text1"))
    waits = flour.fetch(soon, row()["age"], gives=flour.Vector(2))
    runtime.register("arrow", flour.outputs(score=graph, pair=waits), background=False)
    plan: Any = runtime.endpoints.versions()["arrow@1"].plan
    expected = plan.run(ROWS)
    table = pa.Table.from_pandas(FRAME)
    for data in (table, table.to_batches()[0], table.to_reader(max_chunksize=10)):
        made = plan.run_arrow(data)
        made = made.read_all() if isinstance(made, pa.RecordBatchReader) else made
        assert made["score"].to_pylist() == expected["score"].tolist()
        pairs = np.array(made["pair"].to_pylist())
        assert np.array_equal(pairs, expected["pair"], equal_nan=True)


# --- waiting -------------------------------------------------------------------------------------


async def soon(age: float) -> list[float]:
    await asyncio.sleep(0.02)
    return [age, 1.0]


def fetched(function: Any = soon, **policy: Any) -> flour.Flow:
    policy.setdefault("gives", flour.Vector(2))
    return flour.fetch(function, row()["age"], **policy)


def test_a_fetched_value_is_read_like_any_other(runtime: Runtime) -> None:
    pair = fetched()
    graph = flour.outputs(sum=pair[0] + pair[1], score=scored("text0"))
    runtime.register("waits", graph, background=False)
    answers = runtime.predict("waits", ROWS)
    assert np.array_equal(answers["sum"], FRAME["age"] + 1.0, equal_nan=True)
    assert np.array_equal(answers["score"], alone(runtime, 0))
    assert runtime.predict("waits", ONE, outputs="sum") == {"sum": ONE["age"] + 1.0}
    assert runtime.submit("waits", ONE).result(10)["sum"] == ONE["age"] + 1.0


def test_a_fetch_may_read_what_every_reader_computes_for_itself(runtime: Runtime) -> None:
    async def length(note: str) -> float:
        return float(len(note) + note.startswith("abc"))

    note = row()["note"].lower()
    flow = flour.fetch(length, note, gives=float)
    runtime.register("computed", flour.outputs(x=flow, note=note), background=False)
    rows = {**ROWS, "note": ["ABC D"] * len(NOTES)}
    assert runtime.predict("computed", rows)["x"].tolist() == [6.0] * len(NOTES)
    assert runtime.predict("computed", {**ONE, "note": "ABC D"}) == {"x": 6.0, "note": "abc d"}


def test_independent_fetches_wait_together(runtime: Runtime) -> None:
    async def slow(age: float) -> float:
        await asyncio.sleep(0.15)
        return age

    both = [flour.fetch(slow, row()["age"], gives=float, name=f"slow{n}") for n in (1, 2)]
    runtime.register("both", flour.outputs(x=both[0] + both[1]), background=False)
    start = time.monotonic()
    assert runtime.predict("both", ONE)["x"] == 2 * ONE["age"]
    assert time.monotonic() - start < 0.28


def test_a_thousand_requests_wait_without_a_thread_each(runtime: Runtime) -> None:
    runtime.register("waits", flour.outputs(x=fetched()[0]), background=False)

    async def all_of_them() -> list[Any]:
        coming = [runtime.apredict("waits", {**ONE, "age": float(n)}) for n in range(1000)]
        return list(await asyncio.gather(*coming))

    before = threading.active_count()
    answers = asyncio.run(all_of_them())
    assert [answer["x"] for answer in answers] == [float(n) for n in range(1000)]
    assert threading.active_count() <= before + 1


def test_requests_that_meet_go_through_a_plan_together(runtime: Runtime) -> None:
    total = fetched()[0] + scored("text1")
    runtime.register("meet", flour.outputs(x=total), background=False)
    futures = [runtime.submit("meet", {**ONE, "age": float(n)}) for n in range(64)]
    answers = [future.result(20)["x"] for future in futures]
    assert answers == [float(n) + alone(runtime, 1)[3] for n in range(64)]
    last = steps(runtime, "meet")[-1]
    assert last.rows == 64
    assert last.calls < 48


def test_what_is_not_asked_for_is_not_computed(runtime: Runtime) -> None:
    asked = []

    async def counted(age: float) -> float:
        asked.append(age)
        return age

    number = flour.fetch(counted, row()["age"], gives=float)
    runtime.register("pruned", flour.outputs(a=number, b=row()["income"] * 2), background=False)
    assert runtime.predict("pruned", ONE, outputs=["b"]) == {"b": ONE["income"] * 2}
    assert asked == []
    chosen = flour.first_match([(row()["income"] > 1e9, number)], otherwise=0.0)
    runtime.register("never", flour.outputs(x=chosen), background=False)
    assert not runtime.predict("never", ROWS)["x"].any()
    assert asked == []


def test_retries_fallbacks_and_what_is_kept(runtime: Runtime) -> None:
    asked: list[float] = []

    async def moody(age: float) -> float:
        asked.append(age)
        if len(asked) % 3:
            raise ConnectionError("gone")
        return 7.0

    def register(name: str, **policy: Any) -> None:
        flow = flour.fetch(moody, row()["age"], gives=float, backoff=0.001, **policy)
        runtime.register(name, flour.outputs(x=flow), background=False)

    register("retried", retries=2)
    assert runtime.predict("retried", ONE)["x"] == 7.0
    assert len(asked) == 3
    register("spared", otherwise=0.5)
    assert runtime.predict("spared", ONE)["x"] == 0.5
    register("instead", otherwise=row()["income"])
    assert runtime.predict("instead", ONE)["x"] == ONE["income"]
    asked.clear()
    register("kept", retries=2, keep=60.0)
    assert [runtime.predict("kept", ONE)["x"] for _ in range(5)] == [7.0] * 5
    assert len(asked) == 3


def test_a_failed_node_is_named(runtime: Runtime) -> None:
    async def broken(_: float) -> float:
        raise ValueError("no such customer")

    async def late(_: float) -> float:
        await asyncio.sleep(30)
        return 0.0

    async def wrong(_: float) -> list[float]:
        return [1.0, 2.0, 3.0]

    for function, said in ((broken, "ValueError"), (wrong, "column"), (late, "0.01 s")):
        name = function.__name__
        flow = flour.fetch(function, row()["age"], gives=flour.Vector(2), timeout=0.01, name=name)
        runtime.register(name, flour.outputs(x=flow), background=False)
        with pytest.raises(NodeFailed, match=said) as caught:
            runtime.predict(name, ONE)
        assert f"{name}.{name}" in str(caught.value)
        assert caught.value.late is (name == "late")


def test_a_late_node_says_which_limit_passed_and_how_often_it_was_asked(runtime: Runtime) -> None:
    async def hangs(age: float) -> list[float]:
        await asyncio.sleep(60)
        return [age, 1.0]

    async def own(_: float) -> list[float]:
        raise TimeoutError("the store is busy")

    cases: list[tuple[Any, dict[str, float], str]] = [
        (hangs, {"timeout": 0.01}, r"nothing within timeout=0\.01 s, in 1 try"),
        (hangs, {"timeout": 0.01, "retries": 2}, r"timeout=0\.01 s, in 3 of 3 tries"),
        (hangs, {"deadline": 0.05}, r"nothing within deadline=0\.05 s, in 1 try"),
        (
            hangs,
            {"timeout": 0.01, "deadline": 0.3, "retries": 9, "backoff": 1.0},
            r"deadline=0\.3 s, in 1 of 10 tries",
        ),
        (own, {"timeout": 5.0}, "found  TimeoutError"),
    ]
    for number, (function, policy, said) in enumerate(cases):
        graph = flour.outputs(x=fetched(function, **policy)[0])
        runtime.register(f"late{number}", graph, background=False)
        for data in (ONE, ROWS):
            with pytest.raises(NodeFailed, match=said) as caught:
                runtime.predict(f"late{number}", data)
            assert caught.value.late


def test_a_function_that_is_no_coroutine_is_refused_at_the_authors_line() -> None:
    def blocks(age: float) -> list[float]:
        return [age, 1.0]

    class Store:
        def load(self, age: float) -> list[float]:
            return [age, 1.0]

        async def __call__(self, age: float) -> list[float]:
            return [age, 1.0]

    builtins: tuple[Any, ...] = (
        os.system,
        time.sleep,
        partial(time.sleep),
        len,
        dict,
        {}.get,
        str.upper,
    )
    for wrong in (
        blocks,
        Store,
        Store().load,
        partial(blocks, 1.0),
        [soon, blocks],
        None,
        *builtins,
    ):
        with pytest.raises(flour.FlourError, match="not written with async def") as caught:
            fetched(wrong)
        assert "test_routed.py" in str(caught.value)

    @wraps(soon)
    def traced(*given: float) -> Any:
        return soon(*given)

    for fine in (Store(), Store().__call__, partial(soon), traced, AsyncMock()):
        fetched(fine, name="fine")


def test_a_failure_cancels_what_still_waits_at_once(runtime: Runtime) -> None:
    cancelled: list[float] = []
    failed: list[float] = []

    async def waits(_: float) -> float:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(time.perf_counter())
            raise
        return 0.0

    async def breaks(_: float) -> float:
        await asyncio.sleep(0.01)
        failed.append(time.perf_counter())
        raise ValueError("now")

    flows = [flour.fetch(f, row()["age"], gives=float, name=f.__name__) for f in (waits, breaks)]
    runtime.register("fails", flour.outputs(x=flows[0] + flows[1]), background=False)
    with pytest.raises(NodeFailed, match="breaks"):
        runtime.predict("fails", ONE)
    until(lambda: cancelled)
    assert cancelled[0] - failed[0] < 0.02


def test_deadlines_and_callers_that_leave(runtime: Runtime) -> None:
    open_: list[int] = []

    async def slow(_: float) -> float:
        open_.append(1)
        try:
            await asyncio.sleep(60)
        finally:
            open_.pop()
        return 0.0

    flow = flour.fetch(slow, row()["age"], gives=float)
    runtime.register("slow", flour.outputs(x=flow), background=False)
    with pytest.raises(DeadlineExceeded, match="fetch slow"):
        runtime.predict("slow", ONE, timeout=0.05)
    until(lambda: not open_)
    future = runtime.submit("slow", ONE)
    until(lambda: open_)
    assert future.cancel()
    until(lambda: not open_)

    async def leaves() -> None:
        task = asyncio.create_task(runtime.apredict("slow", ONE))
        await asyncio.sleep(0.05)
        assert open_
        task.cancel()
        await asyncio.sleep(0.05)
        assert not open_

    asyncio.run(leaves())


def test_so_many_calls_at_a_time_and_no_more(runtime: Runtime) -> None:
    now, most = [0], [0]

    async def counted(age: float) -> float:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.002)
        now[0] -= 1
        return age

    flow = flour.fetch(counted, row()["age"], gives=float, limit=3)
    runtime.register("capped", flour.outputs(x=flow), background=False)
    assert np.array_equal(runtime.predict("capped", ROWS)["x"], FRAME["age"], equal_nan=True)
    assert most == [3]


def test_one_call_for_all_rows(runtime: Runtime) -> None:
    async def whole(age: Any, city: Any) -> Any:
        return np.asarray(age) * 2 + np.array([len(name) for name in city])

    flow = flour.fetch(whole, row()["age"], row()["city"], gives=float, together=True)
    runtime.register("whole", flour.outputs(x=flow), background=False)
    expected = FRAME["age"] * 2 + FRAME["city"].str.len()
    assert np.array_equal(runtime.predict("whole", ROWS)["x"], expected, equal_nan=True)
    assert runtime.predict("whole", ONE)["x"] == expected[3]


def test_the_reference_interpreter_waits_too() -> None:
    pair = fetched()
    graph = flour.outputs(sum=pair[0] + pair[1])
    assert np.array_equal(graph.reference(ROWS)["sum"], FRAME["age"] + 1.0, equal_nan=True)


def test_a_closed_runtime_leaves_nobody_waiting() -> None:
    async def never(_: float) -> float:
        await asyncio.sleep(600)
        return 0.0

    with Runtime() as runtime:
        flow = flour.fetch(never, row()["age"], gives=float)
        runtime.register("never", flour.outputs(x=flow), background=False)
        future = runtime.submit("never", ONE)
        time.sleep(0.05)
    with pytest.raises(RuntimeClosed):
        future.result(10)
