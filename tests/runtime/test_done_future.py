"""Rows that are answered by the time `submit` returns, and the futures they come in."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError, as_completed, wait

import numpy as np
import pytest

from oven.compiler import gil_yield
from runtime import Runtime
from runtime.service.done_future import DoneFuture
from scheduler import DeadlineExceeded, Ticket
from tests.runtime.plans import documents, offset_of, shift, text_flow

ROW = np.arange(4.0)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """One plan that is measured: its rows are known to be over at once."""
    with Runtime(executors=1) as made:
        made.register("a", shift(1.0))
        for _ in range(200):
            made.predict("a", ROW)
        made.submit("a", ROW).result(30)
        yield made


def test_a_row_is_answered_when_submit_returns(runtime: Runtime) -> None:
    future = runtime.submit("a", ROW)
    assert type(future) is DoneFuture
    assert offset_of(future.result(), ROW) == 1.0
    assert runtime.stats().batch is None  # no executor was ever needed


def test_a_row_that_is_awaited_is_answered_at_once(runtime: Runtime) -> None:
    answers = asyncio.run(runtime.apredict("a", ROW))
    assert offset_of(answers, ROW) == 1.0


def test_rows_answered_at_once_are_counted_and_timed(runtime: Runtime) -> None:
    def counted() -> int:
        return runtime.stats().versions[0].inline_calls

    before = counted()
    for _ in range(100):
        runtime.submit("a", ROW)
    assert counted() - before == 100


def test_wishes_take_the_long_way_and_reservations_do_not(runtime: Runtime) -> None:
    assert list(runtime.submit("a", ROW, outputs="top").result(30)) == ["top"]
    with pytest.raises(DeadlineExceeded):
        runtime.submit("a", ROW, timeout=0.0).result(30)
    assert isinstance(runtime.submit("a", ROW, engine="batch"), Ticket)
    runtime.register("mine", shift(2.0), reserve=True)
    for _ in range(200):
        runtime.predict("mine", ROW)
    assert not isinstance(runtime.submit("mine", ROW), Ticket)


def test_the_first_row_of_all_is_answered_at_once(runtime: Runtime) -> None:
    """Code says how much it touches; of documents that are long it cannot know."""
    runtime.register("new", shift(2.0))
    assert type(runtime.submit("new", ROW)) is DoneFuture
    runtime.register("t", text_flow(0))
    document = documents(1)[0]
    assert type(runtime.submit("t", document)) is DoneFuture
    assert type(runtime.submit("t", document * (5000 // len(document) + 1))) is not DoneFuture


@pytest.mark.parametrize("reserve", [False, True])
def test_blocks_of_few_rows_are_answered_at_once_too(runtime: Runtime, *, reserve: bool) -> None:
    """Nobody has to have asked for a single row before."""
    runtime.register("b", shift(2.0), reserve=reserve)
    block = np.ones((10, 4))
    runtime.submit("b", block).result(30)
    future = runtime.submit("b", block)
    assert type(future) is DoneFuture
    assert offset_of(future.result(), block) == 2.0


def test_a_row_with_a_fault_gets_the_error_of_the_long_way(runtime: Runtime) -> None:
    served = runtime.endpoints.find("a")
    for row in (np.arange(3.0), np.array(["x"] * 4, object)):
        served.learned.nonblocking = True
        quick = runtime.submit("a", row).exception(30)
        served.learned.nonblocking = False
        slow = runtime.submit("a", row).exception(30)
        assert (type(quick), str(quick)) == (type(slow), str(slow))


def test_documents_are_answered_when_submit_returns() -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("t", text_flow(0))
        document = documents(1)[0]
        for _ in range(200):
            expected = runtime.predict("t", document)
        runtime.submit("t", document).result(30)
        future = runtime.submit("t", document)
        assert type(future) is DoneFuture
        assert future.result() == expected


def test_an_answered_future_is_a_future() -> None:
    """Whatever waits for futures takes it, beside others that are not done."""
    done, other = DoneFuture("a"), Future[str]()
    assert done.done()
    assert [done.running(), done.cancelled(), done.cancel()] == [False] * 3
    assert (done.result(), done.exception()) == ("a", None)
    assert wait([done, other], 0.0) == ({done}, {other})
    other.set_result("b")
    assert wait([done, other]).not_done == set()
    assert {each.result() for each in as_completed([done, other])} == {"a", "b"}
    with pytest.raises(InvalidStateError):
        done.set_result("c")
    assert "finished" in repr(done)


def test_an_answered_future_can_be_awaited_and_calls_back(caplog: pytest.LogCaptureFixture) -> None:
    async def awaited() -> object:
        return await asyncio.wrap_future(DoneFuture("a"))

    assert asyncio.run(awaited()) == "a"
    called: list[Future[str]] = []
    done = DoneFuture("a")
    done.add_done_callback(called.append)
    assert called == [done]
    with caplog.at_level(logging.ERROR):
        done.add_done_callback(lambda _: 1 / 0)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.bench
def test_an_answered_row_costs_little_more_than_predict(runtime: Runtime) -> None:
    """Some microseconds over `predict`: no job, no lock, no condition."""

    def least(call: object) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(500):
                call("a", ROW)  # type: ignore[operator]
            times.append((time.perf_counter() - start) / 500)
        return min(times)

    assert least(runtime.submit) - least(runtime.predict) < 4e-6


def test_who_submits_rows_gives_way_to_executors(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that does nothing but submit rows does not keep a block's answer from coming."""
    # On a busy machine who was woken may come later than anybody should be held up for it.
    monkeypatch.setattr(gil_yield, "TURNS", 10_000)
    usual = sys.getswitchinterval()
    block = np.ones((400_000, 4))
    sys.setswitchinterval(1000.0)  # nobody takes the lock who is not given it
    try:
        future, end = runtime.submit("a", block, engine="batch"), time.perf_counter() + 30.0
        while not future.done() and time.perf_counter() < end:
            runtime.submit("a", ROW)
        assert future.done()
    finally:
        sys.setswitchinterval(usual)
    assert offset_of(future.result(), block) == 1.0
