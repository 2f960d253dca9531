"""Requests that go together: the same answers, each its own errors, nobody waits too long."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flour
from flour.core.errors import InputError
from runtime import Runtime
from runtime.http.answer.batching import Batched, BatchSettings
from runtime.service.answerers import InferCall
from runtime.service.version import ModelVersion
from scheduler import DeadlineExceeded
from tests.runtime.http.answering import Passing
from tests.runtime.plans import record_flow, shift, text_flow

SLOW = BatchSettings(wait=0.02, rows=64)


def call(version: ModelVersion, data: object, **options: Any) -> InferCall:
    """A call with this data."""
    return InferCall(version, version.reader.read(data), **options)


class Counting(Passing):
    """Answers, and notes the blocks it was asked for."""

    def __init__(self, runtime: Runtime, fail_above: int = 1 << 30) -> None:
        super().__init__(runtime)
        self.asked: list[InferCall] = []
        self._fail_above = fail_above

    def answer(self, ask: InferCall) -> Future[dict[str, Any]]:
        self.asked.append(ask)
        if len(ask.batch.data) > self._fail_above:
            raise InputError("too many")
        return super().answer(ask)


@pytest.fixture
def served(runtime: Runtime) -> ModelVersion:
    return runtime.endpoints.find("shift")


async def gathered(batched: Batched, asks: list[InferCall]) -> list[Any]:
    futures = [asyncio.wrap_future(batched.answer(ask)) for ask in asks]
    return await asyncio.gather(*futures, return_exceptions=True)


def runtime_with(flow: Any, name: str = "m") -> Runtime:
    runtime = Runtime(executors=1)
    runtime.register(name, flow)
    return runtime


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_each_request_gets_its_own_rows(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(size, 4)) for size in sizes]
    with runtime_with(shift(1.0, 4)) as runtime:
        inner = Counting(runtime)
        served = runtime.endpoints.find("m")
        batched = Batched(inner, SLOW)
        found = asyncio.run(gathered(batched, [call(served, block) for block in blocks]))
        expected = [runtime.predict("m", block) for block in blocks]
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    assert len(inner.asked) <= 1 + sum(sizes) // 2
    stats = batched.stats()
    assert (stats.requests, stats.rows) == (len(sizes), sum(sizes))


@pytest.mark.parametrize("kind", ["record", "text"])
def test_columns_and_documents_go_together(kind: str) -> None:
    flow: Any = record_flow() if kind == "record" else text_flow(0)
    with runtime_with(flow) as runtime:
        served = runtime.endpoints.find("m")
        blocks: list[Any] = [["one word"], ["two words", "and more"]]
        if kind == "record":
            names = next(iter(served.inputs.values())).names  # type: ignore[union-attr]
            fields = next(iter(served.inputs.values()))
            blocks = [
                {
                    name: ["a"] * n if "string" in str(fields[name]) else np.arange(float(n))  # type: ignore[index]
                    for name in names
                }
                for n in (1, 2)
            ]
        inner = Counting(runtime)
        found = asyncio.run(gathered(Batched(inner, SLOW), [call(served, b) for b in blocks]))
        assert len(inner.asked) == 1
        for one, block in zip(found, blocks, strict=True):
            for name, value in runtime.predict("m", block).items():
                np.testing.assert_array_equal(one[name], value)


def test_a_bad_request_fails_alone(runtime: Runtime, served: ModelVersion) -> None:
    """A block with a row that is refused is answered request by request."""
    good = np.ones((1, 4))
    inner = Counting(runtime, fail_above=2)
    batched = Batched(inner, SLOW)
    asks = [call(served, good), call(served, np.ones((3, 4))), call(served, good)]
    first, second, third = asyncio.run(gathered(batched, asks))
    assert isinstance(second, InputError)
    for one in (first, third):
        for name, value in runtime.predict("shift", good).items():
            np.testing.assert_array_equal(one[name], value)
    assert batched.stats().alone == 3


def test_a_full_block_does_not_wait(runtime: Runtime, served: ModelVersion) -> None:
    batched = Batched(runtime.direct, BatchSettings(wait=60.0, rows=8))
    asks = [call(served, np.ones((2, 4))) for _ in range(8)]
    found = asyncio.run(asyncio.wait_for(gathered(batched, asks), 30))
    assert not [each for each in found if isinstance(each, Exception)]
    assert batched.stats().blocks == 2


def test_deadlines_count_from_the_request(runtime: Runtime, served: ModelVersion) -> None:
    row = np.ones((1, 4))
    batched = Batched(runtime.direct, BatchSettings(wait=0.05))
    asks = [call(served, row, timeout=0.001), call(served, row), call(served, row, timeout=30.0)]
    late, *others = asyncio.run(gathered(batched, asks))
    assert isinstance(late, DeadlineExceeded)
    assert not [each for each in others if isinstance(each, Exception)]


def test_who_gives_up_is_left_out(runtime: Runtime, served: ModelVersion) -> None:
    async def run(batched: Batched, inner: Counting) -> None:
        first, second = (batched.answer(call(served, np.ones((1, 4)))) for _ in range(2))
        assert first.cancel()
        await asyncio.wrap_future(second)
        assert [len(ask.batch.data) for ask in inner.asked] == [1]

    inner = Counting(runtime)
    asyncio.run(run(Batched(inner, SLOW), inner))


def test_the_objective_shortens_the_wait(runtime: Runtime, served: ModelVersion) -> None:
    """A block that has taken as long as the answer may take goes at once."""
    batched = Batched(runtime.direct, BatchSettings(wait=60.0, objective=0.5))
    batched._learn(served.owner, 1.0)
    ask = call(served, np.ones((1, 4)))
    (found,) = asyncio.run(asyncio.wait_for(gathered(batched, [ask]), 30))
    assert not isinstance(found, Exception)


def test_off_by_default_and_on_by_note(runtime: Runtime) -> None:
    runtime.register("off", shift(1.0, 4))
    runtime.register("on", shift(1.0, 4), notes={"batch_wait": 0.01})
    inner = Counting(runtime)
    batched = Batched(inner)
    row = np.ones((1, 4))
    asks = [call(runtime.endpoints.find(name), row) for name in ("off", "off", "on", "on")]
    asyncio.run(gathered(batched, asks))
    assert [len(ask.batch.data) for ask in inner.asked] == [1, 1, 2]


def test_what_is_instant_waits_for_nobody(runtime: Runtime, served: ModelVersion) -> None:
    batched = Batched(runtime.direct, BatchSettings(wait=60.0), cost=lambda _s, _r: 1e-6)
    ask = call(served, np.ones((1, 4)))
    assert len(asyncio.run(asyncio.wait_for(gathered(batched, [ask]), 30))) == 1
    assert batched.stats().blocks == 0


def test_programs_that_look_across_rows_go_alone(runtime: Runtime, served: ModelVersion) -> None:
    """Their answers would depend on who else asks."""
    served.mixes_rows = True
    inner = Counting(runtime)
    asks = [call(served, np.ones((1, 4))) for _ in range(3)]
    asyncio.run(gathered(Batched(inner, SLOW), asks))
    assert len(inner.asked) == 3


def test_requests_of_different_forms_do_not_mix() -> None:
    with runtime_with(flour.vector("x", 4).subtract([1.0])) as runtime:
        served, inner = runtime.endpoints.find("m"), Counting(runtime)
        batched = Batched(inner, SLOW)
        blocks = [np.ones((1, 4)), np.ones((1, 4), np.float32), [[1.0, 2.0, 3.0, None]]]
        found = asyncio.run(gathered(batched, [call(served, block) for block in blocks]))
        assert len(inner.asked) == 3
        assert [next(iter(one.values())).dtype.name for one in found][:2] == ["float64", "float32"]
