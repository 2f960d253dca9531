"""Functions of a model, or of a graph's node, that call the runtime they run in: none hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import flour
from runtime import Runtime
from runtime.errors import NodeFailed
from runtime.routing.shadows import ShadowStats
from runtime.service.answerers import after, together
from runtime.service.sharing import SharedRun
from scheduler import Awaited, WaitsForItself, is_executor
from tests.house import until
from tests.runtime.graph.waiting import LIMIT, ROWS, begun, blocks, hang, load, serving, within

EXECUTORS = pytest.mark.parametrize("executors", [1, 2])
X = np.arange(20.0).reshape(10, 2)
LARGE = np.ones((200_000, 2))
(BLOCK,) = blocks(1)

Way = Callable[[Runtime], Any]
#: Calls of a model, in every way that there is.
MODEL: Mapping[str, Way] = {
    "predict": lambda r: r.predict("lin", ROWS),
    "predict, large": lambda r: r.predict("lin", LARGE),
    "predict, batch": lambda r: r.predict("lin", ROWS, engine="batch"),
    "predict, timeout": lambda r: r.predict("lin", LARGE, engine="batch", timeout=LIMIT),
    "submit": lambda r: r.submit("lin", ROWS).result(),
    "submit, large": lambda r: r.submit("lin", LARGE).result(),
    "submit, batch": lambda r: r.submit("lin", ROWS, engine="batch").result(),
    "predict_batch": lambda r: list(r.predict_batch("lin", [ROWS] * 5)),
    "another": lambda r: list(r.predict_batch("other", [ROWS] * 5)),
}
#: Calls of a graph that waits.
GRAPH: Mapping[str, Way] = {
    "predict": lambda r: r.predict("live", {"key": 1.0}),
    "predict, block": lambda r: r.predict("live", BLOCK),
    "predict, batch": lambda r: r.predict("live", BLOCK, engine="batch"),
    "submit": lambda r: r.submit("live", BLOCK).result(),
    "submit, batch": lambda r: r.submit("live", BLOCK, engine="batch").result(),
    "predict_batch": lambda r: list(r.predict_batch("live", [BLOCK] * 5)),
    "a route": lambda r: list(r.predict_batch("routed", [BLOCK] * 5)),
    "its plan": lambda r: r.endpoints.find("live").plan.run(BLOCK),  # type: ignore[union-attr]  # it has one
}
#: Calls that only a thread without an event loop can make.
AWAITED: Mapping[str, Way] = {
    "await": lambda r: asyncio.run(r.apredict("lin", ROWS, engine="batch")),
    "await a graph": lambda r: asyncio.run(r.apredict("live", BLOCK)),
    "await a graph, batch": lambda r: asyncio.run(r.apredict("live", BLOCK, engine="batch")),
}


def black(call: Callable[[], object]) -> flour.Flow:
    """A pipeline with a function of Python's, which makes a call."""
    imported = False

    def step(values: Any) -> Any:
        if imported:
            call()
        return values * 2.0

    fitted = make_pipeline(FunctionTransformer(step), LinearRegression()).fit(X, X[:, 0])
    flow = flour.from_sklearn(fitted, allow_python=True, sample=X[:3])
    imported = True
    return flow


def open_doors(runtime: Runtime) -> None:
    """Another model, and a route to a graph that waits."""
    runtime.register("other", flour.vector("x", 2).add([1.0, 2.0]).named("v"), background=False)
    for _ in range(2):
        runtime.register("routed", flour.outputs(v=fetched()), background=False)
    runtime.route("routed", "routed@1", split={"routed@2": 0.5}, by="key")


def fetched(function: Any = load) -> Any:
    return flour.fetch(function, flour.record(key=float)["key"], gives=flour.Vector(2))


@EXECUTORS
def test_a_step_in_python(executors: int) -> None:
    with serving(executors, live=load) as runtime:
        open_doors(runtime)
        ways: list[Way] = []
        inside: list[bool] = []

        def call() -> None:
            inside.append(is_executor())
            assert ways[-1](runtime)

        def ask() -> None:
            answers = list(runtime.predict_batch("black", [X] * 3))
            assert all(np.allclose(each["value"], X[:, 0]) for each in answers)

        runtime.register("black", black(call), background=False)
        for way in (*MODEL.values(), *GRAPH.values(), *AWAITED.values()):
            ways.append(way)
            for future in [begun(ask) for _ in range(3)]:
                future.result(LIMIT)
            assert all(inside), "executors run it"
            within(lambda: runtime.predict("black", X))
            inside.clear()
        assert runtime.submit("lin", ROWS, engine="batch").result(LIMIT)["v"][0, 0] == 3.0


def test_a_step_that_awaits_and_blocks_is_told() -> None:
    """Its thread is an executor and an event loop at once: only what is awaited goes on."""
    with serving(1, live=load) as runtime:

        async def main() -> Any:
            return runtime.predict("live", BLOCK)

        runtime.register("black", black(lambda: asyncio.run(main())), background=False)
        with pytest.raises(flour.FlourError, match="WaitsForItself"):
            within(lambda: list(runtime.predict_batch("black", [X])))


@EXECUTORS
def test_a_coroutine_that_asks_models(executors: int) -> None:
    with serving(executors) as runtime:
        open_doors(runtime)
        ways: list[Way] = []

        async def asks(key: float) -> list[float]:
            assert ways[-1](runtime)
            return [key, 1.0]

        runtime.register("asks", flour.outputs(v=fetched(asks)), background=False)
        for way in MODEL.values():
            ways.append(way)
            assert len(within(lambda: list(runtime.predict_batch("asks", [BLOCK] * 3)))) == 3
            assert within(lambda: runtime.predict("asks", {"key": 4.0}))["v"].tolist() == [4.0, 1.0]


@EXECUTORS
def test_a_coroutine_that_blocks_on_a_graph_is_told_to_await(executors: int) -> None:
    with serving(executors, live=load) as runtime:
        open_doors(runtime)
        ways: list[Way] = []

        async def asks(key: float) -> list[float]:
            ways[-1](runtime)
            return [key, 1.0]

        runtime.register("asks", flour.outputs(v=fetched(asks)), background=False)
        for way in GRAPH.values():
            ways.append(way)
            for call in (
                lambda: list(runtime.predict_batch("asks", [BLOCK] * 3)),
                lambda: [runtime.predict("asks", {"key": 4.0})],
            ):
                with pytest.raises(NodeFailed, match=r"await runtime\.apredict") as told:
                    within(call)
                assert isinstance(told.value.__cause__, WaitsForItself)
        assert within(lambda: runtime.predict("live", {"key": 4.0}))["v"].tolist() == [6.0]


@EXECUTORS
def test_a_coroutine_that_awaits_a_graph(executors: int) -> None:
    with serving(executors, live=load) as runtime:

        async def asks(key: float) -> list[float]:
            options = {"engine": "batch"} if key % 2 else {}
            made = await runtime.apredict("live", {"key": key}, **options)  # type: ignore[arg-type]  # they fit
            also = await asyncio.wrap_future(runtime.submit("live", {"key": [key]}))
            return [float(made["v"][0]), float(also["v"][0, 0])]

        runtime.register("asks", flour.outputs(v=fetched(asks)), background=False)
        answers = within(lambda: list(runtime.predict_batch("asks", blocks(20))))
        assert answers[3]["v"].tolist() == [[key + 2.0] * 2 for key in (3.0, 4.0, 5.0)]


def test_private_columns_do_not_hide_a_wait() -> None:
    with serving(1) as runtime:
        notes = {"private": ["key"]}
        runtime.register("live", flour.outputs(v=fetched()), background=False, notes=notes)

        async def asks(key: float) -> list[float]:
            runtime.submit("live", BLOCK).result()
            return [key, 1.0]

        runtime.register("asks", flour.outputs(v=fetched(asks)), background=False)
        with pytest.raises(NodeFailed, match=r"await runtime\.apredict"):
            within(lambda: runtime.predict("asks", BLOCK))


# --- what follows an answer ----------------------------------------------------------------------


def test_joined_futures_wait_for_the_same_loops() -> None:
    inner, other = Awaited(lambda: False), Awaited(lambda: True)
    outer: Any = together([([0], inner), ([1], other)])
    assert outer.needs == (*inner.needs, *other.needs)


def test_what_cannot_be_kept_is_an_error_and_no_hang() -> None:
    with serving(1):

        def full(*_: object) -> Any:
            raise OSError("no space left")

        inner = Awaited()
        outer = after(inner, full)
        inner.set_result({})
        with pytest.raises(OSError, match="no space"):
            outer.result(LIMIT)
        inner = Awaited()
        outer = after(inner, told=ValueError)
        inner.set_exception(SystemExit(3))
        with pytest.raises(SystemExit):
            outer.result(LIMIT)


def test_a_helper_does_not_wait_for_a_caller_that_never_begins() -> None:
    never: Any = None
    within(SharedRun(lambda: never, 2, 1, 1).help)


# --- shadows -------------------------------------------------------------------------------------


@EXECUTORS
def test_a_shadow_that_never_answers_holds_no_executor(executors: int) -> None:
    with serving(executors) as runtime:
        runtime.register("m", flour.outputs(v=fetched()), background=False)
        runtime.register("m", flour.outputs(v=fetched(hang)), background=False, activate=False)
        runtime.route("m", "m@1", shadow="m@2")
        for _ in range(3):
            within(lambda: list(runtime.predict_batch("m", [BLOCK] * 8)))
            until(lambda: not runtime.routes.shadows.waiting)
        (found,) = runtime.routes.shadow_stats()
        assert found.shed > 0
        assert len(within(lambda: list(runtime.predict_batch("lin", [ROWS] * 20)))) == 20


def test_shadows_of_others_are_asked_while_one_waits() -> None:
    with serving(1) as runtime:
        for name, function in (("m", hang), ("n", load)):
            runtime.register(name, flour.outputs(v=fetched()), background=False)
            other = flour.outputs(v=fetched(function))
            if name == "n":
                other = flour.outputs(v=flour.record(key=float)["key"] * 2.0)
                runtime.register("n", other, background=False)
            runtime.register(name, other, background=False, activate=False)
        runtime.route("m", "m@1", shadow="m@2")
        runtime.route("n", "n@2", shadow="n@3")
        within(lambda: [runtime.predict(name, BLOCK) for name in "mnmn"])

        def asked() -> dict[str, ShadowStats]:
            return {each.challenger: each for each in runtime.routes.shadow_stats()}

        until(lambda: "n@3" in asked() and asked()["n@3"].asked > 0)
        assert asked()["n@3"].failed == 0


def test_a_shadow_that_waits_is_compared() -> None:
    with serving(1) as runtime:
        runtime.register("m", flour.outputs(v=fetched()), background=False)
        runtime.register("m", flour.outputs(v=fetched()), background=False, activate=False)
        pairs: list[Any] = []
        ended = threading.Event()

        class Pairs:
            def add(self, pair: Any) -> None:
                pairs.append(pair)
                ended.set()

        runtime.experiments.observe("m", Pairs())
        runtime.route("m", "m@1", shadow="m@2")
        within(lambda: list(runtime.predict_batch("m", [BLOCK])))
        assert ended.wait(LIMIT)
        assert pairs[0].found["v"].tolist() == pairs[0].expected["v"].tolist()
