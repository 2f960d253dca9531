"""Long work beside the event loop: others get their turn, and the collector is as it was."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from runtime import Runtime
from runtime.http.wire.loop_fairness import gently, uncollected
from tests.runtime.plans import WIDTH, shift


def test_items_come_as_they_are() -> None:
    assert list(gently(range(200), 64)) == list(range(200))
    assert list(gently([], 1)) == []


def test_another_thread_need_not_wait_for_the_end() -> None:
    """Without a rest, a thread that wakes up waits up to five milliseconds for each turn."""
    waits: list[float] = []
    ended = threading.Event()

    def wake() -> None:
        while not ended.is_set():
            begun = time.perf_counter()
            time.sleep(0.0002)
            waits.append(time.perf_counter() - begun)

    def work(every: int) -> float:
        waits.clear()
        for _ in gently(range(60_000), every):
            sum(range(50))
        return sorted(waits)[len(waits) // 2]

    waker = threading.Thread(target=wake)
    waker.start()
    try:
        pairs = [(work(64), work(1 << 30)) for _ in range(3)]
    finally:
        ended.set()
        waker.join()
    assert any(kind < rough for kind, rough in pairs), pairs


def test_the_collector_is_as_it_was() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()  # somebody else has stopped it
    finally:
        gc.enable()
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_plans_go_without_the_collector() -> None:
    """What is frozen is looked at no more, so a plan that goes must be in no cycle."""
    with Runtime(executors=1) as runtime:
        runtime.register("first", shift(0.0))  # what is made once is made
        runtime.predict("first", [[0.0] * WIDTH] * 3)
        gc.collect()
        gc.disable()
        try:
            plan = shift(1.0)
            runtime.register("m", plan)
            runtime.predict("m", [0.0] * WIDTH)
            runtime.predict("m", [[0.0] * WIDTH] * 3)
            known, served = weakref.ref(plan), weakref.ref(runtime.endpoints.find("m"))
            del plan
            runtime.unregister("m")
            assert (known(), served()) == (None, None)
        finally:
            gc.enable()
