"""The request/response engine: the caller's thread, its buffers, and nothing else."""

from __future__ import annotations

import gc
import threading

import pytest

from scheduler import CostModel, DeadlineExceeded, InlineEngine, Overloaded, SimulatedClock, Stages


def fill(chunk: int, buffer: bytearray) -> None:
    buffer[0] = chunk


def read(chunk: int, buffer: bytearray) -> int:
    return buffer[0] + chunk


STAGES = Stages.chain(fill, read)


def fail(chunk: object, _: object) -> None:
    raise KeyError(chunk)


def in_thread(call: object) -> None:
    assert callable(call)
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_stages_run_in_order_with_one_buffer() -> None:
    engine = InlineEngine()
    assert [engine.run(STAGES, n, room=1) for n in range(5)] == [0, 2, 4, 6, 8]
    stats = engine.stats()
    assert (stats.calls, stats.failed, stats.threads) == (5, 0, 1)
    assert (stats.buffers.created, stats.buffers.in_use) == (1, 0)


def test_without_a_buffer() -> None:
    engine = InlineEngine()
    assert engine.run(Stages.chain(lambda chunk, buffer: (chunk, buffer)), 3) == (3, None)


def test_what_a_stage_raises_and_the_buffer_comes_back() -> None:
    engine = InlineEngine()
    with pytest.raises(KeyError):
        engine.run(Stages.chain(fail), 3, room=9)
    assert engine.stats().failed == 1
    assert engine.stats().buffers.in_use == 0


def test_a_call_within_a_call_gets_a_buffer_of_its_own() -> None:
    engine = InlineEngine()

    def outer(chunk: int, buffer: bytearray) -> int:
        buffer[0] = 7
        assert engine.run(STAGES, chunk, room=1) == 2 * chunk
        return buffer[0]

    assert engine.run(Stages.chain(outer), 1, room=1) == 7
    assert engine.stats().buffers.created == 2


def test_threads_have_buffers_of_their_own_and_are_counted_when_gone() -> None:
    engine = InlineEngine()
    for n in range(5):
        in_thread(lambda n=n: engine.run(STAGES, n, room=1))
    gc.collect()
    stats = engine.stats()
    assert (stats.calls, stats.threads) == (5, 0)
    assert (stats.buffers.created, stats.buffers.idle, stats.buffers.in_use) == (5, 0, 0)


def test_a_deadline_that_has_passed() -> None:
    clock = SimulatedClock(10.0)
    engine = InlineEngine(clock=clock)
    assert engine.run(STAGES, 1, room=1, deadline=10.1) == 2
    with pytest.raises(DeadlineExceeded):
        engine.run(STAGES, 1, room=1, deadline=10.0)
    assert engine.stats().calls == 1


def test_no_more_calls_at_once_than_allowed() -> None:
    engine = InlineEngine(limit=2)

    def nest(chunk: int, _: object) -> int:
        return chunk if chunk <= 1 else 1 + int(str(engine.run(Stages.chain(nest), chunk - 1)))

    assert engine.run(Stages.chain(nest), 2) == 2
    with pytest.raises(Overloaded, match="limit=2"):
        engine.run(Stages.chain(nest), 3)
    assert engine.run(Stages.chain(nest), 2) == 2
    assert engine.stats().refused == 1


def test_some_calls_are_measured() -> None:
    clock, costs = SimulatedClock(), CostModel()
    engine = InlineEngine(costs=costs, sample=4, clock=clock)
    slow = Stages.chain(lambda _, __: clock.advance(0.5))
    for _ in range(9):
        engine.run(slow, 0, rows=10, key="k")
    (cell,) = costs.snapshot()["k"].values()
    assert (cell.calls, cell.seconds) == (3, 0.5)
