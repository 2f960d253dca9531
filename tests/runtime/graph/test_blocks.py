"""Blocks through graphs that wait: `predict_batch` and the batch engine hold no executor."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import flour
import oven
from runtime import Runtime
from runtime import runtime as service
from runtime.cli import main
from runtime.errors import NodeFailed, RuntimeClosed
from runtime.http import Server, ServerSettings
from scheduler import DeadlineExceeded, Overloaded, QueueRules, is_executor
from tests.house import until
from tests.runtime.conftest import Hold
from tests.runtime.graph.waiting import (
    LIMIT,
    ROWS,
    begun,
    blocks,
    check,
    graph,
    hang,
    linear,
    load,
    refuse,
    serving,
    shape,
    slow,
    within,
)

EXECUTORS = pytest.mark.parametrize("executors", [1, 2])


def ask(runtime: Runtime, name: str, asked: Any, **options: Any) -> list[dict[str, Any]]:
    return within(lambda: list(runtime.predict_batch(name, asked, **options)))


def under_way(runtime: Runtime, name: str) -> int:
    plan: Any = runtime.endpoints.find(name).plan
    return sum(map(len, plan._loop.requests.values()))


@EXECUTORS
@pytest.mark.parametrize("count", [1, 2, 3, 13, 50])
def test_blocks_are_answered_in_their_order(executors: int, count: int) -> None:
    with serving(executors, live=load) as runtime:
        check(ask(runtime, "live", blocks(count)), blocks(count))
        check(ask(runtime, "live", blocks(count, 1)), blocks(count, 1))
        single = [{"key": float(number)} for number in range(count)]
        assert [each["v"].tolist() for each in ask(runtime, "live", single)] == [
            [number + 2.0] for number in range(count)
        ]


@EXECUTORS
def test_many_callers_of_several_models(executors: int) -> None:
    with serving(executors, live=load, other=load) as runtime:

        def call(number: int) -> None:
            name = ("live", "lin", "other")[number % 3]
            if name == "lin":
                answers = list(runtime.predict_batch("lin", [ROWS * n for n in range(12)]))
                assert [each["v"][0, 0] for each in answers] == [3.0 * n for n in range(12)]
            else:
                check(list(runtime.predict_batch(name, blocks(12))), blocks(12))

        for future in [begun(partial(call, number)) for number in range(24)]:
            future.result(LIMIT)


@EXECUTORS
def test_others_go_on_while_a_graph_waits(executors: int) -> None:
    with serving(executors, never=hang, live=load) as runtime:
        ended: list[str] = []

        def caller() -> None:
            try:
                list(runtime.predict_batch("never", blocks(50)))
            except RuntimeClosed:
                ended.append("closed")

        callers = [threading.Thread(target=caller, daemon=True) for _ in range(4)]
        for each in callers:
            each.start()
        until(lambda: under_way(runtime, "never") == 4 * 2 * executors)
        assert len(ask(runtime, "lin", [ROWS] * 50)) == 50
        check(ask(runtime, "live", blocks(50)), blocks(50))
        futures = [runtime.submit("lin", ROWS, engine="batch") for _ in range(6)]
        assert all(each.result(LIMIT)["v"][0, 0] == 3.0 for each in futures)
        assert runtime.predict("lin", ROWS, engine="batch", timeout=LIMIT)["v"][0, 0] == 3.0
        within(lambda: runtime.close(timeout=0.05))
        for each in callers:
            each.join(LIMIT)
        assert ended == ["closed"] * 4


@pytest.mark.parametrize("function", [refuse, shape])
@EXECUTORS
def test_what_fails_ends_its_call_alone(executors: int, function: Any) -> None:
    async def one_bad(key: float) -> Any:
        return await (function if key == 20 else load)(key)

    with serving(executors, bad=function, some=one_bad) as runtime:
        with pytest.raises(NodeFailed, match=function.__name__):
            ask(runtime, "bad", blocks(50))
        found: list[Any] = []

        def collect() -> None:
            for each in runtime.predict_batch("some", blocks(50)):
                found.append(each)  # noqa: PERF402 (extend would lose those before the error)

        with pytest.raises(NodeFailed, match="one_bad"):
            within(collect)
        check(found, blocks(18))  # keys 18 to 20 are the first with the bad one
        until(lambda: not under_way(runtime, "some"))
        check(ask(runtime, "some", blocks(15)), blocks(15))


def test_no_more_blocks_than_ahead_are_under_way() -> None:
    most, at_once = [0], [0]

    async def counted(key: float) -> list[float]:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        await asyncio.sleep(0.001)
        at_once[0] -= 1
        return [key, 1.0]

    with serving(2, counted=counted) as runtime:
        for ahead in (1, 3, None):
            most[0] = 0
            answers = runtime.predict_batch("counted", iter(blocks(30, 1)), ahead=ahead)
            for _ in range(30):
                within(partial(next, answers))
            assert 1 <= most[0] <= (ahead or 4)


def test_a_caller_that_stops_early_leaves_nothing() -> None:
    with serving(1, never=hang, live=load) as runtime:
        answers = runtime.predict_batch("live", blocks(40))
        within(lambda: next(answers))
        answers.close()  # type: ignore[attr-defined]  # it is a generator
        until(lambda: not under_way(runtime, "live"))
        coming = runtime.submit("never", blocks(1)[0], engine="batch")
        until(lambda: under_way(runtime, "never") == 1)
        assert coming.cancel()
        until(lambda: not under_way(runtime, "never"))


@EXECUTORS
def test_the_batch_engine_by_submit_and_predict(executors: int) -> None:
    with serving(executors, live=load, never=hang) as runtime:
        (block,) = blocks(1)
        futures = [runtime.submit("live", block, engine="batch") for _ in range(20)]
        check([each.result(LIMIT) for each in futures], [block] * 20)
        row = runtime.submit("live", {"key": 5.0}, engine="batch").result(LIMIT)
        assert row["v"].tolist() == [7.0]
        late = runtime.submit("never", block, engine="batch", timeout=0.05)
        with pytest.raises(DeadlineExceeded, match="fetch hang"):
            late.result(LIMIT)
        with pytest.raises(DeadlineExceeded):
            within(lambda: runtime.predict("never", block, engine="batch", timeout=0.05))
        counts = {each.name: each for each in runtime.stats().versions}["live"]
        assert (counts.batch_calls, counts.inline_calls) == (21, 0)
        runtime.predict("live", block)
        counts = {each.name: each for each in runtime.stats().versions}["live"]
        assert (counts.batch_calls, counts.inline_calls) == (21, 1)


def test_a_full_queue_refuses_blocks_of_graphs(hold: Hold) -> None:
    runtime = Runtime(executors=1, rules=QueueRules(jobs=0))
    try:
        runtime.register("lin", linear(), background=False)
        runtime.register("live", graph(), background=False)
        runtime.register("busy", hold.plan())
        busy = runtime.submit("busy", np.zeros((3, 4)), engine="batch")
        hold.wait()
        with pytest.raises(Overloaded):
            runtime.submit("live", blocks(1)[0], engine="batch")
        hold.go()
        busy.result(LIMIT)
        check(ask(runtime, "live", blocks(20)), blocks(20))
    finally:
        within(lambda: runtime.close(drain=False))


def test_a_reservation_is_for_the_plans_of_a_graph(hold: Hold) -> None:
    with serving(1) as runtime:
        runtime.register("live", graph(), reserve=1, background=False)
        slow(runtime, "live")
        plan: Any = runtime.endpoints.find("live").plan
        ran: list[bool] = []
        run = plan.step

        def step(*given: Any) -> Any:
            ran.append(is_executor())
            return run(*given)

        plan.step = step
        runtime.register("busy", hold.plan())
        busy = [runtime.submit("busy", np.zeros((3, 4)), engine="batch") for _ in range(2)]
        hold.wait()
        check(ask(runtime, "live", blocks(10)), blocks(10))
        assert ran, "the shared executor is busy all the time"
        assert all(ran)
        hold.go()
        for each in busy:
            each.result(LIMIT)


def test_versions_that_go_meanwhile_answer_to_the_end() -> None:
    async def negative(key: float) -> list[float]:
        return [-key, 1.0]

    with serving(1, live=load) as runtime:
        runtime.register("live", graph(negative), background=False, activate=False)
        slow(runtime, "live@2")
        answers = runtime.predict_batch("live", iter(blocks(30)))
        found = [within(lambda: next(answers))]
        runtime.switch("live", 2)
        found.append(within(lambda: next(answers)))
        runtime.unregister("live", 1)
        found += within(lambda: list(answers))
        check(found, blocks(30))
        assert runtime.predict("live", {"key": 1.0})["v"].tolist() == [1.0]
        answers = runtime.predict_batch("live", iter(blocks(30)))
        within(lambda: next(answers))
        runtime.register("live", graph(load), version="2", background=False, replace=True)
        rest = within(lambda: list(answers))
        assert [each["v"][0, 0] for each in rest] == [2.0 - number for number in range(1, 30)]


def test_a_route_may_be_asked_by_a_coroutine() -> None:
    """Its requests are not of that loop, which stands still meanwhile."""
    with serving(1, live=load) as runtime:
        runtime.register("live", graph(), background=False, activate=False)
        runtime.route("live", "live@1", split={"live@2": 0.5}, by="key")

        async def caller() -> list[dict[str, Any]]:
            return list(runtime.predict_batch("live", blocks(20)))

        check(within(lambda: asyncio.run(caller())), blocks(20))


def test_a_watch_sees_every_batch() -> None:
    class Seen(list[int]):
        def __call__(self, batch: Any, weight: int, _seconds: float) -> None:
            self.append(batch.rows * weight)

        def close(self) -> None:
            """Nothing is left."""

    with serving(1, live=load) as runtime:
        seen: Any = Seen()
        runtime.endpoints.find("live").watcher = seen
        runtime.predict("live", {"key": 1.0})
        runtime.submit("live", blocks(1)[0]).result(LIMIT)
        ask(runtime, "live", blocks(4))
        assert seen == [1, 3, 3, 3, 3, 3]


def test_a_baked_program_that_waits_is_a_graph() -> None:
    """Its coroutine would hold an executor else, and could wait for it."""
    with serving(1) as runtime:

        async def asks(key: float) -> float:
            made = await runtime.apredict("lin", np.full((4, 2), key), engine="batch")
            return float(made["v"][0, 0])

        row = flour.record(key=float)
        runtime.register(
            "baked", oven.bake(flour.outputs(v=flour.fetch(asks, row["key"], gives=float)))
        )
        assert runtime.endpoints.find("baked").waits
        answers = ask(runtime, "baked", blocks(20))
        assert answers[3]["v"].tolist() == [9.0, 12.0, 15.0]


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("drain", [True, False])
@EXECUTORS
def test_closing_ends_what_waits(executors: int, drain: bool) -> None:  # noqa: FBT001
    with serving(executors, never=hang) as runtime:
        futures = [
            runtime.submit("never", blocks(1)[0], engine=engine) for engine in (None, "batch")
        ]
        answers = runtime.predict_batch("never", iter(blocks(9)))
        caller = begun(lambda: next(answers))
        until(lambda: under_way(runtime, "never") == 2 + 2 * executors)
        within(lambda: runtime.close(drain=drain, timeout=0.1))
        for future in (*futures, caller):
            with pytest.raises(RuntimeClosed):
                future.result(LIMIT)
        with pytest.raises(RuntimeClosed):
            within(lambda: runtime.predict("never", {"key": 1.0}))


def test_closing_ends_what_waits_on_loops_of_others() -> None:
    with serving(1, never=hang) as runtime:

        async def caller() -> None:
            await asyncio.gather(*(runtime.apredict("never", {"key": 1.0}) for _ in range(3)))

        coming = begun(lambda: asyncio.run(caller()))
        until(lambda: under_way(runtime, "never") == 3)
        within(lambda: runtime.close(timeout=0.05))
        with pytest.raises(RuntimeClosed):
            coming.result(LIMIT)


def test_a_coroutine_may_close_its_runtime() -> None:
    with serving(1, never=hang) as runtime:

        async def caller() -> str:
            coming = asyncio.create_task(runtime.apredict("never", {"key": 1.0}))
            await asyncio.sleep(0)
            runtime.close(timeout=LIMIT)  # nothing on this loop is waited for
            with pytest.raises(RuntimeClosed):
                await coming
            return "closed"

        assert within(lambda: asyncio.run(caller()), LIMIT / 2) == "closed"


def test_blocks_that_are_left_when_the_runtime_closes_are_refused() -> None:
    with serving(1, live=load) as runtime:
        answers = runtime.predict_batch("live", iter(blocks(30)), ahead=1)
        within(lambda: next(answers))
        within(runtime.close)
        with pytest.raises(RuntimeClosed):
            within(lambda: list(answers))


# --- other doors ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with serving(1, live=load, never=hang, bad=refuse) as runtime:
        settings = ServerSettings(port=0, drain_seconds=0.1)
        with Server(runtime, settings) as server:
            yield server.url


def post(url: str, name: str, block: dict[str, list[float]], seconds: float = LIMIT) -> Any:
    """The answer of a server, or its status."""
    keys = block["key"]
    sent = {"inputs": [{"name": "key", "shape": [len(keys)], "datatype": "FP64", "data": keys}]}
    address = f"{url}/v2/models/{name}/infer"
    request = Request(address, json.dumps(sent).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=seconds) as answer:
            return json.load(answer)["outputs"][0]["data"]
    except HTTPError as problem:
        return problem.code


def test_blocks_over_http(served: str) -> None:
    def hung() -> None:
        with suppress(TimeoutError):
            post(served, "never", blocks(1)[0], 1.0)

    caller = threading.Thread(target=hung, daemon=True)
    caller.start()
    with ThreadPoolExecutor(8) as pool:
        asked = [block for rows in (1, 2, 50) for block in blocks(20, rows)]
        answers = [*pool.map(lambda block: post(served, "live", block), asked)]
    assert answers == [[key + 2.0 for key in block["key"]] for block in asked]
    assert post(served, "bad", blocks(1, 20)[0]) == 502
    caller.join(LIMIT)


def test_blocks_in_binary_over_http(served: str) -> None:
    """What gave an answer is told in its headers, by a graph as by a model."""
    head = json.dumps(
        {
            "inputs": [{"name": "key", "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    with urlopen(Request(f"{served}/v2/models/live/infer", head), timeout=LIMIT) as answer:
        size = int(answer.headers["inference-header-content-length"])
        assert len(answer.headers["x-model-plan"]) >= 16
        values = np.frombuffer(answer.read()[size:], np.float64)
    assert list(values) == [3.0, 4.0]


def test_files_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trusting(path: Any, **_: object) -> flour.Flow:
        return flour.load_graph(path, allow_python=True)

    monkeypatch.setattr(service, "load_graph", trusting)
    oven.bake(linear()).save(tmp_path / "lin.pretzel")
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "graph.toml").write_text(
        '[inputs]\nkey = "number"\n\n[nodes.features]\nfetch = "tests.runtime.graph.waiting:load"\n'
        'reads = "key"\ngives = "vector 2"\n\n[nodes.lin]\nmodel = "lin"\nreads = "features"\n\n'
        '[outputs]\nv = "lin.v"\n'
    )
    rows = tmp_path / "rows.csv"
    rows.write_text("key\n" + "".join(f"{number}\n" for number in range(500)))
    answers = tmp_path / "answers.jsonl"
    command = ["predict", str(tmp_path / "live"), str(rows), "--output", str(answers)]
    code = within(lambda: main([*command, "--chunk", "10"]))
    assert code == 0, capsys.readouterr().err
    made = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [each["v"] for each in made] == [[number + 2.0] for number in range(500)]
