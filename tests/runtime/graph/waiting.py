"""Graphs that wait, and calls that may not take for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

import flour
from runtime import Runtime

T = TypeVar("T")
#: What takes longer hangs.
LIMIT = 20.0


def within(call: Callable[[], T], seconds: float = LIMIT) -> T:
    """What a call gives, on a thread of its own; TimeoutError where it hangs."""
    return begun(call).result(seconds)


def begun(call: Callable[[], T]) -> Future[T]:
    """A future of what a call gives, on a thread that ends with the process."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as problem:  # noqa: BLE001 (it is raised below)
            done.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()
    return done


async def load(key: float) -> list[float]:
    """Features of a key, sometimes later."""
    await asyncio.sleep(0.001 * (key % 3))
    return [key, 1.0]


async def twice(key: float) -> float:
    """A number of a key, a moment later."""
    await asyncio.sleep(0.001)
    return 2.0 * key


async def hang(key: float) -> list[float]:
    """No answer, ever."""
    await asyncio.Event().wait()
    return [key, 1.0]


async def refuse(key: float) -> list[float]:
    """An error."""
    raise ConnectionError(f"no route to {key:g}")


async def shape(key: float) -> list[float]:
    """An answer of another width than was promised."""
    return [key]


def graph(function: Any = load, **options: Any) -> flour.Flow:
    """A fetch, and a model on it."""
    features = flour.fetch(
        function, flour.record(key=float)["key"], gives=flour.Vector(2), **options
    )
    return flour.outputs(v=flour.model("lin")(features)["v"])


def linear() -> flour.Flow:
    """A sum, of the first column and twice the second."""
    return flour.vector("x", 2).linear([[1.0, 2.0]], [0.0]).named("v")


def blocks(count: int, rows: int = 3) -> list[dict[str, list[float]]]:
    """Keys that differ from block to block and from row to row."""
    return [{"key": [float(number + row) for row in range(rows)]} for number in range(count)]


def check(answers: list[dict[str, Any]], asked: list[dict[str, list[float]]]) -> None:
    """Every block has its own answer, in its place."""
    assert len(answers) == len(asked)
    for answer, block in zip(answers, asked, strict=True):
        assert answer["v"][:, 0].tolist() == [key + 2.0 for key in block["key"]]


@contextmanager
def serving(executors: int, **functions: Any) -> Iterator[Runtime]:
    """A runtime with a linear model and graphs of these coroutines, whose plans count as slow."""
    runtime = Runtime(executors=executors)
    try:
        runtime.register("lin", linear(), background=False)
        for name, function in functions.items():
            runtime.register(name, graph(function), background=False)
            slow(runtime, name)
        yield runtime
    finally:
        within(lambda: runtime.close(drain=False))


def slow(runtime: Runtime, name: str) -> None:
    """Let the plans of a graph be handed to executors."""
    plan: Any = runtime.endpoints.find(name).plan
    for step in plan.graph.steps:
        step.alone = step.each = 1.0


ROWS = np.ones((3, 2))
