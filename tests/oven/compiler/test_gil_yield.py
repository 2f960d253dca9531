"""Whoever has the interpreter's lock can give it to one who is done with native code."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flour
import oven
from oven.compiler import gil_yield
from oven.compiler.gil_yield import BYTES, WAITING, yield_gil

#: So long that nobody gets the lock who is not given it.
NEVER = 1000.0


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    """Nobody asks for the lock by himself."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(NEVER)
    yield
    sys.setswitchinterval(usual)


def _wait_for_word(seconds: float = 30.0) -> bool:
    """Hold the lock until somebody waits for it; whether anybody did."""
    end = time.perf_counter() + seconds
    while not WAITING[0]:
        if time.perf_counter() > end:
            return False
    return True


def _started() -> tuple[threading.Thread, list[dict[str, Any]]]:
    """A thread that is in native code, or done with it and waiting, and where its answer goes."""
    plan = oven.bake(flour.outputs(y=flour.vector("x", 8).add([1.0] * 8)))
    block, made = np.zeros((400_000, 8)), list[dict[str, Any]]()
    work = plan.begin(block)
    begun = threading.Event()

    def compute() -> None:
        begun.set()
        work.step(0, work.chunk(0, work.rows))
        made.append(work.finish())

    thread = threading.Thread(target=compute)
    thread.start()
    begun.wait()  # it has the lock from there until it enters native code
    return thread, made


def _waiting() -> tuple[threading.Thread, list[dict[str, Any]]]:
    """A thread that is done with native code and waits for the lock, which this one has."""
    for _ in range(30):
        thread, made = _started()
        if not made and _wait_for_word():
            return thread, made
        thread.join()  # it was over before the system let this thread go on
    pytest.fail("no thread ever waited for the lock")


def test_who_is_done_gets_the_lock_when_it_is_given_way() -> None:
    thread, made = _waiting()
    for _ in range(1000):  # as a rule once is enough; the system may run others first
        WAITING[0] = 1
        yield_gil()
        if made:
            break
    thread.join(30.0)
    assert made[0]["y"].sum() == 400_000 * 8


def test_a_word_that_nobody_takes_away_is_given_up() -> None:
    """One call is held up for a moment, and no further one."""
    WAITING[0] = 1
    yield_gil()
    assert not WAITING[0]


def test_who_has_the_lock_takes_back_only_its_own_word() -> None:
    plan = oven.bake(flour.outputs(y=flour.vector("x", 8).add([1.0] * 8)))
    other = gil_yield.PLACE.byte % 7 + 1
    BYTES[other] = 1
    plan.run(np.zeros((400_000, 8)))
    said = tuple(BYTES)
    BYTES[other] = 0
    assert said == tuple(place == other for place in range(8))


def test_what_is_said_while_others_are_given_way_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who waited all the time is given up, not who has come in the end."""
    BYTES[1] = 1
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        BYTES[2] = len(slept) == gil_yield.TURNS

    monkeypatch.setattr(time, "sleep", sleep)
    yield_gil()
    assert (BYTES[1], BYTES[2]) == (0, 1)
    BYTES[2] = 0
