"""Executors wait for nobody's work: a wait that may never end is an error at once."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from scheduler import Awaited, Job, Pool, Stages, State, Ticket, WaitsForItself, is_executor

LIMIT = 20.0


def job(call: Any) -> Job:
    return Job.of(Stages.chain(lambda _chunk, _buffer: call()), [None], alone=True)


def test_an_executor_does_not_wait_for_its_own_pool() -> None:
    with Pool(1) as pool:
        inner: list[Ticket] = []

        def waits() -> object:
            inner.append(pool.submit(job(lambda: "inner")))
            return inner[0].result()

        with pytest.raises(WaitsForItself, match="waiting for it"):
            pool.submit(job(waits)).result(LIMIT)
        assert inner[0].cancelled(), "nobody will ask for it any more"
        assert pool.submit(job(lambda: "goes on")).result(LIMIT) == "goes on"


def test_nor_for_another_pool_that_may_wait_for_it() -> None:
    with Pool(1) as one, Pool(1) as other:
        outer = one.submit(job(lambda: other.submit(job(lambda: 1)).result()))
        with pytest.raises(WaitsForItself):
            outer.result(LIMIT)


def test_a_wait_with_an_end_is_allowed() -> None:
    with Pool(1) as pool:

        def waits() -> object:
            return pool.submit(job(lambda: 1)).result(0.01)

        with pytest.raises(TimeoutError):
            pool.submit(job(waits)).result(LIMIT)
    with Pool(2) as pool:
        assert (
            pool.submit(job(lambda: pool.submit(job(lambda: 1)).result(LIMIT))).result(LIMIT) == 1
        )


def test_what_is_done_is_no_wait() -> None:
    with Pool(1) as pool:
        done = pool.submit(job(lambda: 7))
        assert done.result(LIMIT) == 7
        assert pool.submit(job(done.result)).result(LIMIT) == 7
        failed = pool.submit(job(lambda: 1 // 0))
        with pytest.raises(ZeroDivisionError):
            failed.result(LIMIT)
        with pytest.raises(ZeroDivisionError):
            pool.submit(job(failed.result)).result(LIMIT)


def test_callbacks_run_on_executors_and_see_the_result() -> None:
    seen: Future[object] = Future()
    with Pool(1) as pool:
        go = threading.Event()
        ticket = pool.submit(job(lambda: go.wait(LIMIT)))
        ticket.add_done_callback(lambda done: seen.set_result((done.result(), is_executor())))
        go.set()
        assert seen.result(LIMIT) == (True, True)


def test_other_threads_wait() -> None:
    assert not is_executor()
    with Pool(1) as pool:
        go = threading.Event()
        ticket = pool.submit(job(lambda: go.wait(LIMIT)))
        threading.Timer(0.02, go.set).start()
        assert ticket.result() is True
        assert ticket.status is State.DONE


def test_a_thread_that_is_needed_does_not_wait() -> None:
    mine = threading.get_ident()

    def is_needed() -> bool:
        return threading.get_ident() == mine

    for future in (Awaited(is_needed), Awaited(lambda: False, is_needed)):
        with pytest.raises(WaitsForItself, match=r"await runtime\.apredict"):
            future.result()
        assert future.cancelled()
    with pytest.raises(TimeoutError):
        Awaited(is_needed).result(0.01)
    done = Awaited(is_needed)
    done.set_result(3)
    assert done.result() == 3
    other = Awaited(is_needed)
    found: Future[object] = Future()
    thread = threading.Thread(target=lambda: found.set_result(other.result()), daemon=True)
    thread.start()
    other.set_result(4)
    assert found.result(LIMIT) == 4
