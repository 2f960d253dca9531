"""The parts that other parts are made of: heap, stages, jobs, buffers, clocks, histograms."""

from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import (
    BadJob,
    BufferPool,
    Histogram,
    Job,
    Overloaded,
    Pool,
    RealClock,
    SchedulerError,
    SimulatedClock,
    Stages,
    size_class,
    split,
)
from scheduler.clock import Clock, Signal
from scheduler.queues import Heap
from tests.house import until


def nothing(_: object, __: object) -> None:
    return None


class TestHeap:
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["push", "pop", "discard"]), st.integers(0, 9), st.floats(0, 9)
            )
        )
    )
    def test_as_a_sorted_dictionary(self, events: list[tuple[str, int, float]]) -> None:
        heap: Heap[tuple[float, int]] = Heap()
        model: dict[int, float] = {}
        for what, number, rank in events:
            if what == "push" and number not in model:
                heap.push((rank, number), number, (rank, number))
                model[number] = rank
            elif what == "pop" and model:
                first = min(model, key=lambda each: (model[each], each))
                assert heap.pop() == (model.pop(first), first)
            elif what == "discard":
                assert heap.discard(number) == (model.pop(number, None) is not None)
            assert len(heap) == len(model)
            assert heap.rank()[0] == min(model.values(), default=inf)

    def test_what_is_taken_out_does_not_pile_up(self) -> None:
        heap: Heap[int] = Heap()
        for number in range(10_000):
            heap.push((1.0, number), number, number)
            if number >= 10:
                heap.discard(number - 5)
        assert len(heap._entries) < 200


class TestStages:
    def test_chains_and_graphs(self) -> None:
        chain = Stages.chain(nothing, nothing, nothing)
        assert (chain.linear, chain.first, chain.waits) == (True, (0,), (0, 1, 1))
        graph = Stages.graph((nothing, ()), (nothing, ()), (nothing, [0, 1]))
        assert (graph.linear, graph.first, graph.then) == (False, (0, 1), ((2,), (2,), ()))
        assert Stages.graph((nothing, ()), (nothing, [0])).linear
        assert not Stages.graph((nothing, ()), (nothing, ())).linear

    @pytest.mark.parametrize(
        "after", [((0,),), ((), (1,)), ((), (0, 0)), ((), (-1,)), ((), (), ())]
    )
    def test_graphs_that_cannot_run(self, after: tuple[tuple[int, ...], ...]) -> None:
        with pytest.raises(BadJob):
            Stages((nothing,) * min(2, len(after)), after)

    def test_no_stage(self) -> None:
        with pytest.raises(BadJob):
            Stages.chain()


class TestJob:
    @given(rows=st.integers(0, 10_000), chunk=st.integers(1, 500))
    def test_splitting_covers_all_rows_once(self, rows: int, chunk: int) -> None:
        parts = split(rows, chunk)
        assert [n for part in parts for n in range(rows)[part]] == list(range(rows))
        sizes = [part.stop - part.start for part in parts]
        assert max(sizes) <= chunk
        assert max(sizes) - min(sizes) <= 1
        job = Job.of(Stages.chain(nothing), parts, rows=rows)
        assert [job.rows_of(n) for n in range(len(parts))] == sizes

    @pytest.mark.parametrize(
        "wrong", [{"rows": -1}, {"cost": -1.0}, {"cost": inf}, {"cost": float("nan")}, {"room": -1}]
    )
    def test_figures_that_mean_nothing(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(BadJob):
            Job.of(Stages.chain(nothing), [1], **wrong)

    def test_no_chunk_no_deadline_no_rows(self) -> None:
        with pytest.raises(BadJob, match="at least one chunk"):
            Job.of(Stages.chain(nothing), [])
        with pytest.raises(BadJob, match="deadline"):
            Job.of(Stages.chain(nothing), [1], deadline=float("nan"))
        with pytest.raises(BadJob, match="at least one row"):
            split(10, 0)


class TestErrors:
    def test_four_parts(self) -> None:
        error = Overloaded("what", where="here", found="this", hint="do that", retry_after=1.5)
        assert str(error) == "what\n  at     here\n  found  this\n  hint   do that"
        assert isinstance(error, SchedulerError)
        assert error.retry_after == 1.5


class TestBuffers:
    @given(st.integers(0, 1 << 40))
    def test_size_classes_are_close_and_few(self, nbytes: int) -> None:
        size = size_class(nbytes)
        assert nbytes <= size
        assert size <= max(64, nbytes * 1.25)
        assert size_class(size) == size

    def test_the_same_one_comes_back(self) -> None:
        pool = BufferPool()
        first = pool.acquire(1000)
        second = pool.acquire(1000)
        assert isinstance(first, bytearray)
        assert len(first) == 1024
        pool.give_back(first, 1000)
        pool.give_back(second, 1000)
        assert pool.acquire(900) is second
        assert pool.stats().created == 2
        assert (pool.stats().in_use, pool.stats().idle, pool.stats().idle_bytes) == (1, 1, 1024)

    def test_what_idles_is_bounded(self) -> None:
        pool = BufferPool(keep=2048)
        buffers = [pool.acquire(1024) for _ in range(5)]
        for each in buffers:
            pool.give_back(each, 1024)
        assert pool.stats().idle_bytes == 2048
        assert pool.trim() == 2048
        assert (pool.stats().idle, pool.stats().in_use) == (0, 0)

    def test_giving_back_twice(self) -> None:
        pool = BufferPool()
        buffer = pool.acquire(1)
        pool.give_back(buffer, 1)
        with pytest.raises(BadJob, match="had not handed out"):
            pool.give_back(buffer, 1)

    def test_a_closed_pool_keeps_nothing(self) -> None:
        pool = BufferPool()
        buffer = pool.acquire(10)
        pool.close()
        pool.give_back(buffer, 10)
        assert (pool.stats().idle, pool.stats().in_use) == (0, 0)


class TestClocks:
    @pytest.mark.parametrize("clock", [RealClock(), SimulatedClock()], ids=["real", "simulated"])
    def test_a_signal_ends_a_sleep(self, clock: Clock) -> None:
        signal = Signal()
        signal.set()
        signal.set()
        assert clock.wait(signal, 60)
        assert not clock.wait(signal, 0)
        signal.set()
        assert clock.wait(signal, None)
        assert not clock.wait(signal, -1.0)

    def test_real_time_passes(self) -> None:
        clock = RealClock()
        before = clock.now()
        assert not clock.wait(Signal(), 0.01)
        assert clock.now() - before >= 0.009

    def test_simulated_time_passes_when_told(self) -> None:
        clock, woken = SimulatedClock(5.0), []
        sleeper = threading.Thread(target=lambda: woken.append(clock.wait(Signal(), 10.0)))
        sleeper.start()
        until(lambda: clock.sleepers)
        clock.advance(9.0)
        assert (clock.sleepers, woken) == (1, [])
        clock.advance(1.0)
        sleeper.join(10)
        assert (clock.now(), woken) == (15.0, [False])


class TestHistogram:
    @given(st.lists(st.floats(0, 1e4), min_size=1), st.floats(0.01, 1.0))
    def test_quantiles_are_close(self, durations: list[float], share: float) -> None:
        histogram = Histogram.of(durations)
        rank = -(-share * len(durations) // 1)
        exact = sorted(durations)[max(0, min(int(rank), len(durations)) - 1)]
        assert histogram.quantile(share) == pytest.approx(exact, rel=1 / 31, abs=1.1e-9)
        assert histogram.largest == max(durations)

    def test_summaries_and_sums(self) -> None:
        low, high = Histogram.of([0.001] * 99), Histogram.of([1.0])
        low.add(high)
        summary = low.summary()
        assert (summary.count, summary.largest) == (100, 1.0)
        assert summary.p50 == pytest.approx(0.001, rel=1 / 32)
        assert summary.p99 == pytest.approx(0.001, rel=1 / 32)
        assert summary.p999 == pytest.approx(1.0, rel=1 / 32)
        assert summary.mean == pytest.approx(0.01099)
        assert Histogram().summary().p99 == 0.0

    def test_it_takes_anything(self) -> None:
        assert Histogram.of([-1.0, 1e12, 0.0]).count == 3


def test_a_chunk_that_is_alone_has_the_answer_of_its_job() -> None:
    echo = Stages.chain(lambda chunk, _: chunk)
    with Pool(1) as pool:
        assert pool.submit(Job.of(echo, ["all of it"], alone=True)).result(10) == "all of it"
        assert pool.submit(Job.of(echo, ["all of it"])).result(10) == ["all of it"]
    for chunks, join in (([1, 2], None), ([1], sum)):
        with pytest.raises(BadJob, match="alone"):
            Job.of(echo, chunks, alone=True, join=join)
