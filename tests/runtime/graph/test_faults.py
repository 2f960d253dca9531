"""Requests through a graph whose nodes fail in every way: each gets its answer or an error."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.errors import InService, NodeFailed, UnknownEndpoint
from runtime.graph.router import GraphRequest
from runtime.http import Server, ServerSettings
from scheduler import DeadlineExceeded, Overloaded
from tests.house import until
from tests.runtime.plans import shift_flow

WAYS = ("answer", "answer", "answer", "raise", "hang", "shape", "type", "slow", "nothing")


#: What versions of the model add, which take turns under traffic.
SHIFTS = (1.0, 2.0)


class Store:
    """Features of a store that is not to be relied on: what happens depends on the key."""

    def __init__(self) -> None:
        self.open = 0

    async def load(self, key: float) -> Any:
        """Answer, or fail as this key does."""
        way = WAYS[int(key) % len(WAYS)]
        self.open += 1
        try:
            await asyncio.sleep(0.0005 * (int(key) % 3))
            if way == "raise":
                raise ConnectionError("no route")
            if way in ("hang", "slow"):
                await asyncio.sleep(3600 if way == "hang" else 0.004)
            wrong = {"shape": [1.0], "type": ["a"] * 4, "nothing": None}
            return wrong.get(way, [key, 1.0, 2.0, 3.0])
        finally:
            self.open -= 1


def graph(store: Store, **policy: Any) -> flour.Flow:
    """A fetch, a model on it, and a choice."""
    row = flour.record(key=float, other=float)
    features = flour.fetch(store.load, row["key"], gives=flour.Vector(4), timeout=0.2, **policy)
    top = flour.model("shift")(features)["top"]
    chosen = flour.first_match([(row["other"] > 0, top)], otherwise=row["other"])
    return flour.outputs(top=chosen, key=row["key"])


async def ask(runtime: Runtime, name: str, number: int) -> str:
    """What became of a request; it is right, or an error that says where."""
    other = 1.0 if number % 5 else -2.0
    row = {"key": float(number), "other": other}
    timeout = 0.001 if number % 97 == 0 else None
    try:
        answer = await runtime.apredict(name, row, timeout=timeout)
    except NodeFailed as problem:
        if problem.where != f"{name}.load" or other <= 0:
            return "wrong"
        return "late" if problem.late else "failed"
    except DeadlineExceeded:
        assert timeout is not None
        return "deadline"
    assert answer["key"] == float(number)
    tops = {max(float(number), 3.0) + shift for shift in SHIFTS} if other > 0 else {other}
    assert answer["top"] in tops
    return "answered"


async def traffic(runtime: Runtime, name: str, requests: int) -> list[str]:
    """So many requests, some hundreds at a time."""
    limit = asyncio.Semaphore(400)

    async def one(number: int) -> str:
        async with limit:
            return await ask(runtime, name, number)

    return list(await asyncio.gather(*(one(number) for number in range(requests))))


@contextmanager
def versions_changing(runtime: Runtime) -> Iterator[None]:
    """Meanwhile, new versions of the model come into service, and former ones are taken out."""
    stop = threading.Event()
    taken_out = list[str]()

    def change() -> None:
        for number in count(2):
            if stop.wait(0.02):
                return
            runtime.register("shift", shift_flow(SHIFTS[number % 2]), background=False)
            for owner in [
                each for each in runtime.endpoints.versions() if each.startswith("shift@")
            ][:-1]:
                with suppress(InService):
                    runtime.unregister("shift", owner.partition("@")[2])
                    taken_out.append(owner)

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            yield
        finally:
            stop.set()
            changing.result(60)
    assert taken_out


def run_traffic(requests: int) -> None:
    store = Store()
    with Runtime(executors=2) as runtime:
        runtime.register("shift", shift_flow(SHIFTS[0]), background=False)
        runtime.register("faulty", graph(store), background=False)
        with versions_changing(runtime):
            seen = asyncio.run(traffic(runtime, "faulty", requests))
        for number, what in enumerate(seen):
            expected = {"hang": "late", "answer": "answered", "slow": "answered"}
            if number % 97 and number % 5:
                usual = expected.get(WAYS[number % len(WAYS)], "failed")
                assert what in (usual, "late")  # the machine may be busy
        assert (
            {"answered", "failed", "late"}
            <= set(seen)
            <= {"answered", "failed", "late", "deadline"}
        )
        assert store.open == 0
        gc.collect()
        # By type: isinstance would ask what proxies of objects that are gone stand for.
        assert not [each for each in gc.get_objects() if type(each) is GraphRequest]
        spared = graph(store, otherwise=[9.0] * 4)
        runtime.register("spared", spared, background=False)
        answers = [runtime.predict("spared", {"key": n, "other": 1.0})["top"] for n in (3, 4, 5)]
        assert {*answers} <= {9.0 + shift for shift in SHIFTS}


def test_every_request_is_answered_or_told_why() -> None:
    run_traffic(2_000)


@pytest.mark.soak
def test_a_hundred_thousand_requests_are_answered_or_told_why() -> None:
    run_traffic(100_000)


def test_a_model_that_switches_under_traffic_is_never_half_there() -> None:
    """Each answer is of one version, and the newest is seen in the end."""
    with Runtime(executors=2) as runtime:
        runtime.register("shift", shift_flow(0.0), background=False)
        x = flour.vector("x", 4)
        both = flour.model("shift")(x)
        runtime.register("twice", flour.outputs(a=both["top"], b=both["moved"]), background=False)
        stop, wrong, seen = threading.Event(), list[Any](), set[float]()

        def call() -> None:
            rows = np.zeros((3, 4))
            while not stop.is_set():
                answer = runtime.predict("twice", rows)
                seen.add(float(answer["a"][0]))
                if not (answer["b"] == answer["a"][0]).all():
                    wrong.append(answer)

        threads = [threading.Thread(target=call) for _ in range(2)]
        for each in threads:
            each.start()
        for number in range(1, 6):
            runtime.register("shift", shift_flow(float(number)), background=False)
        until(lambda: 5.0 in seen)
        stop.set()
        for each in threads:
            each.join()
        assert wrong == []


def waiting_graph(gate: asyncio.Event) -> flour.Flow:
    """A model of what is fetched, and of what is known before."""

    async def load(key: float) -> float:
        await gate.wait()
        return key

    row = flour.record(key=float)
    key = flour.fetch(load, row["key"], gives=float)
    before, after = (
        flour.model("shift")(each, each, each, each)["top"] for each in (row["key"], key)
    )
    return flour.outputs(before=before, after=after)


def test_a_request_that_waits_ends_on_the_models_that_it_began_with() -> None:
    """While it waits, the model switches, and then the graph is unregistered."""

    async def run(runtime: Runtime) -> None:
        gate = asyncio.Event()
        runtime.register("shift", shift_flow(1.0), background=False)
        runtime.register("live", waiting_graph(gate), background=False)
        old = [asyncio.ensure_future(runtime.apredict("live", {"key": float(n)})) for n in range(9)]
        await asyncio.sleep(0.01)
        runtime.register("shift", shift_flow(5.0), background=False)
        await asyncio.to_thread(until, lambda: uses(runtime, "live@1") == "shift@2")
        new = [asyncio.ensure_future(runtime.apredict("live", {"key": float(n)})) for n in range(9)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in (*old, *new))
        runtime.unregister("live")
        with pytest.raises(UnknownEndpoint):
            await runtime.apredict("live", {"key": 0.0})
        gate.set()
        for offset, tasks in ((1.0, old), (5.0, new)):
            for number, answer in enumerate(await asyncio.gather(*tasks)):
                assert answer == {"before": number + offset, "after": number + offset}
        runtime.unregister("shift")  # no graph uses it any more

    with Runtime(executors=2) as runtime:
        asyncio.run(run(runtime))


def uses(runtime: Runtime, owner: str) -> str:
    """The version of `shift` that a graph is linked with."""
    return next((v for v in ("shift@1", "shift@2") if f"({v})" in runtime.explain(owner)), "")


def test_a_fetch_that_never_comes_is_told_with_its_node(runtime: Runtime) -> None:
    """By the deadline of the call, or of the node; the caller may leave, too."""
    gate = asyncio.Event()
    runtime.register("shift", shift_flow(1.0), background=False)
    runtime.register("never", waiting_graph(gate), background=False)
    with pytest.raises(DeadlineExceeded, match="fetch load"):
        runtime.predict("never", {"key": 1.0}, timeout=0.05)
    future = runtime.submit("never", {"key": 1.0})
    assert future.cancel()
    plan: Any = runtime.endpoints.versions()["never@1"].plan
    until(lambda: not any(plan._loop.requests.values()))


ENDINGS: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "cancelled": asyncio.CancelledError,
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("how", ["rows", "together"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_coroutine_that_would_end_its_loop_ends_its_request(
    ending: str, how: str, count: int
) -> None:
    async def leaves(_: Any) -> Any:
        problem = ENDINGS[ending]()
        raise problem

    async def answers(keys: Any) -> Any:
        return [1.0] * len(keys) if how == "together" else 1.0

    row = flour.record(key=float)
    policy: dict[str, Any] = {"gives": float, "together": how == "together"}
    left: Any = leaves if count == 1 else [leaves] * count
    spare: dict[str, Any] = {"otherwise": 9.0, "timeout": 5.0, "retries": 1, "backoff": 0.0}
    with Runtime() as runtime:
        for name, function, more in (
            ("left", left, {}),
            ("spared", left, spare),
            ("fine", answers, {}),
        ):
            value = flour.fetch(function, row["key"], **policy, **more)
            runtime.register(name, flour.outputs(value=value))
        for rows in ({"key": [1.0, 2.0]}, {"key": [1.0]}):
            with pytest.raises(NodeFailed, match=type(ENDINGS[ending]()).__name__):
                runtime.predict("left", rows)
            assert set(runtime.predict("spared", rows)["value"]) == {9.0}
            assert set(runtime.predict("fine", rows)["value"]) == {1.0}


@pytest.mark.parametrize("kind", [list, tuple, lambda values: np.array(values, object)])
def test_none_among_the_answers_of_all_rows_is_no_answer(kind: Any) -> None:
    async def some(keys: Any) -> Any:
        return kind([None if key == 2 else key for key in keys.tolist()])

    row = flour.record(key=float)
    policies: dict[str, dict[str, Any]] = {"bare": {}, "spared": {"otherwise": 9.0}}
    with Runtime() as runtime:
        for name, policy in policies.items():
            value = flour.fetch(some, row["key"], gives=float, together=True, **policy)
            runtime.register(name, flour.outputs(value=value))
        with pytest.raises(NodeFailed, match="None for row 1"):
            runtime.predict("bare", {"key": [1.0, 2.0, 3.0]})
        answers = runtime.predict("spared", {"key": [1.0, 2.0, 3.0]})["value"]
        assert answers.tolist() == [1.0, 9.0, 3.0]
        assert runtime.predict("bare", {"key": [1.0, 3.0]})["value"].tolist() == [1.0, 3.0]


def test_a_row_that_a_slow_step_refuses_is_the_only_one_that_fails() -> None:
    """On an executor, where rows of several requests went together."""

    async def same(key: float) -> float:
        await asyncio.sleep(0.005)
        return key

    row = flour.record(key=float)
    key = flour.fetch(same, row["key"], gives=float)
    known = key.as_vector().categorise([3.0, 4.0], [3, 4], [0, 2], [-1], [-1], strict=True)[0]

    async def run(runtime: Runtime) -> list[Any]:
        asked = (runtime.apredict("strict", {"key": [3.0 + n % 3]}) for n in range(12))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    with Runtime(executors=2) as runtime:
        runtime.register("strict", flour.outputs(y=known * 2), background=False)
        plan: Any = runtime.endpoints.versions()["strict@1"].plan
        for step in plan.graph.steps:
            step.alone = step.each = 1.0
        answers = asyncio.run(run(runtime))
        pool = runtime.stats().batch
        assert pool is not None
        assert pool.submitted > 0
    for number, answer in enumerate(answers):
        if number % 3 == 2:
            assert isinstance(answer, flour.FlourError)
        else:
            assert answer["y"].tolist() == [6.0 + 2 * (number % 3)]


def test_a_slow_step_is_done_here_where_executors_have_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    with Runtime(executors=1) as runtime:
        runtime.register("shift", shift_flow(1.0), background=False)
        runtime.register("full", graph(store), background=False)
        plan: Any = runtime.endpoints.versions()["full@1"].plan

        def full(_: object, **_key: object) -> Any:
            raise Overloaded("the queue is full")

        monkeypatch.setattr(plan._threads, "elsewhere", full)
        for step in plan.graph.steps:
            step.alone = step.each = 1.0
        assert runtime.predict("full", {"key": 9.0, "other": 1.0}) == {"top": 10.0, "key": 9.0}
        assert runtime.predict("full", {"key": [9.0], "other": [1.0]})["top"].tolist() == [10.0]


def test_nothing_of_a_request_is_left_behind() -> None:
    class Token:
        pass

    held: list[weakref.ref[Token]] = []

    async def load(key: float) -> float:
        token = Token()
        held.append(weakref.ref(token))
        await asyncio.sleep(0.001)
        if random.random() < 0.5:
            raise ValueError("at random")
        return key

    with Runtime() as runtime:
        row = flour.record(key=float)
        flow = flour.fetch(load, row["key"], gives=float)
        runtime.register("leaks", flour.outputs(x=flow + 1.0), background=False)
        futures = [runtime.submit("leaks", {"key": float(n)}) for n in range(200)]
        for future in futures:
            future.exception(20)
        del future, futures
        gc.collect()
        assert sum(ref() is not None for ref in held) == 0


def test_http_says_which_node_failed_and_never_200() -> None:
    store = Store()
    with Runtime() as runtime, Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        runtime.register("shift", shift_flow(1.0), background=False)
        runtime.register("faulty", graph(store), background=False)
        statuses = {"answer": 200, "raise": 502, "hang": 504, "shape": 502, "type": 502}
        for number, way in enumerate(WAYS):
            if way not in statuses:
                continue
            body = json.dumps({"key": number, "other": 1.0}).encode()
            status, text = _posted(f"{server.url}/predict/faulty", body)
            assert status == statuses[way], (way, text)
            assert status == 200 or b"faulty.load" in text
        block = json.dumps([{"key": n, "other": 1.0} for n in range(3)]).encode()
        status, text = _posted(f"{server.url}/predict/faulty", block)
        assert status == 200
        assert [each["top"] for each in json.loads(text)] == [4.0, 4.0, 4.0]


def _posted(url: str, body: bytes) -> tuple[int, bytes]:
    try:
        with urlopen(Request(url, data=body), timeout=20) as response:
            return response.status, response.read()
    except HTTPError as problem:
        return problem.code, problem.read()


def test_a_model_of_another_server_is_a_node() -> None:
    with (
        Runtime() as far,
        Server(far, ServerSettings(port=0, max_unread=0.0)) as server,
        Runtime() as runtime,
    ):
        far.register("shift", shift_flow(1.0), background=False)
        row = flour.record(key=float, other=float)
        x = flour.concat(row["key"], row["other"], row["key"], row["other"])
        model = f"{server.url}/v2/models/shift"
        top = flour.call(model, inputs={"x": x}, output="top", gives=float, timeout=5.0)
        moved = flour.call(model, inputs={"x": x}, output="moved", gives=flour.Vector(4))
        graph = flour.outputs(top=top * 2, moved=moved)
        runtime.register("near", graph, background=False)
        answer = runtime.predict("near", {"key": 3.0, "other": 4.0})
        assert answer["top"] == 10.0
        assert answer["moved"].tolist() == [4.0, 5.0, 4.0, 5.0]
        gone = flour.call(f"{model}s", inputs={"x": x}, output="top", gives=float)
        runtime.register("gone", flour.outputs(x=gone), background=False)
        with pytest.raises(NodeFailed, match="node 'shifts' failed") as caught:
            runtime.predict("gone", {"key": 3.0, "other": 4.0})
        assert "404" in str(caught.value.__cause__)
        assert "127.0.0.1" not in str(caught.value)
    with pytest.raises(flour.FlourError, match="address of a model"):
        flour.call("models/fraud", inputs={"x": x}, output="y", gives=float)


def test_a_process_that_forks_waits_on_a_loop_of_its_own(runtime: Runtime) -> None:
    store = Store()
    runtime.register("shift", shift_flow(1.0), background=False)
    runtime.register("faulty", graph(store), background=False)
    row = {"key": 0.0, "other": 1.0}
    assert runtime.predict("faulty", row)["top"] == 4.0
    child = os.fork()
    if not child:
        fine = runtime.submit("faulty", row).result(10)["top"] == 4.0
        os._exit(0 if fine else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
