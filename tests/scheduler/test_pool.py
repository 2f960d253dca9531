"""The pool with real threads: answers, faults, cancellation, deadlines, ends. Bounded in time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import gc
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from scheduler import (
    BadJob,
    DeadlineExceeded,
    ExecutorDied,
    Job,
    NoThread,
    Overloaded,
    Pool,
    QueueRules,
    SchedulerClosed,
    SimulatedClock,
    Stages,
    State,
    Ticket,
)
from scheduler.ticket import ExecutorThread
from tests.house import run_python, until

LONG = 60.0  # for what must happen; never waited for when all is well


class Gate:
    """A stage that says when it has started and waits until it may end."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, chunk: object, _: object) -> object:
        self.entered.release()
        assert self.opened.wait(LONG)
        return chunk

    def started(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=LONG)


def identity(chunk: object, _: object) -> object:
    return chunk


def fail(chunk: object, _: object) -> object:
    raise ValueError(f"bad chunk {chunk}")


def die(chunk: object, _: object) -> object:
    raise SystemExit(f"killed by chunk {chunk}")


ECHO = Stages.chain(identity)


def threads() -> int:
    return sum(isinstance(each, ExecutorThread) for each in threading.enumerate())


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(2) as made:
        yield made
    assert made.stats().buffers.in_use == 0


@pytest.fixture
def gate(pool: Pool) -> Iterator[Gate]:
    """Both executors of the pool wait at this gate."""
    made = Gate()
    tickets = [pool.submit(Job.of(Stages.chain(made), [n])) for n in range(2)]
    made.started(2)
    yield made
    made.opened.set()
    concurrent.futures.wait(tickets, LONG)


class TestAnswers:
    def test_chunks_and_stages(self, pool: Pool) -> None:
        def double(chunk: list[int], buffer: bytearray) -> None:
            buffer[: len(chunk)] = bytes(2 * each for each in chunk)

        def total(chunk: list[int], buffer: bytearray) -> int:
            return sum(buffer[: len(chunk)])

        chunks = [[1, 2], [3], [4, 5, 6]]
        ticket = pool.submit(Job.of(Stages.chain(double, total), chunks, room=8, join=sum))
        assert ticket.result(LONG) == 42
        assert ticket.status is State.DONE
        assert ticket.timing is not None
        assert ticket.timing.submitted <= (ticket.timing.started or 0.0) <= ticket.timing.ended

    def test_a_graph_shares_one_buffer(self, pool: Pool) -> None:
        def put(place: int) -> Callable[[int, bytearray], None]:
            def stage(chunk: int, buffer: bytearray) -> None:
                buffer[place] = chunk + place

            return stage

        graph = Stages.graph(
            (put(0), ()), (put(1), ()), (put(2), ()), (lambda _, b: b[0] + b[1] + b[2], (0, 1, 2))
        )
        tickets = [pool.submit(Job.of(graph, [n, n + 1], room=3)) for n in range(60)]
        assert [t.result(LONG) for t in tickets] == [[3 * n + 3, 3 * n + 6] for n in range(60)]
        assert pool.stats().buffers.acquired == 120

    def test_with_the_tools_for_futures(self, pool: Pool) -> None:
        tickets = [pool.submit(Job.of(ECHO, [n])) for n in range(20)]
        done, rest = concurrent.futures.wait(tickets, LONG)
        assert (len(done), len(rest)) == (20, 0)
        again = [pool.submit(Job.of(ECHO, [n])) for n in range(20)]
        assert {t.result()[0] for t in concurrent.futures.as_completed(again, LONG)} == set(
            range(20)
        )

    def test_with_asyncio(self, pool: Pool) -> None:
        async def ask(n: int) -> list[object]:
            return await asyncio.wrap_future(pool.submit(Job.of(ECHO, [n])))

        async def main() -> list[list[object]]:
            return await asyncio.gather(*[ask(n) for n in range(50)])

        assert asyncio.run(main()) == [[n] for n in range(50)]

    def test_callbacks_run_once_and_may_raise(self, pool: Pool) -> None:
        called: list[object] = []

        def callback(future: concurrent.futures.Future[object]) -> None:
            called.append(future.result())
            raise SystemExit

        release = threading.Event()
        stages = Stages.chain(lambda _, __: release.wait(LONG))
        ticket = pool.submit(Job.of(stages, [0]))
        ticket.add_done_callback(callback)
        release.set()
        until(lambda: pool.stats().callback_errors == 1)
        assert called == [[True]]
        assert pool.stats().deaths == 0

    def test_a_kept_ticket_keeps_the_answer_and_not_the_question(self, pool: Pool) -> None:
        class Question:
            pass

        question = Question()
        asked = weakref.ref(question)
        job = Job.of(Stages.chain(lambda _, __: 1), [question])
        ticket = pool.submit(job)
        assert ticket.result(LONG) == [1]
        del question, job
        until(lambda: asked() is None)


class TestFaults:
    def test_what_a_stage_raises_reaches_the_caller_alone(self, pool: Pool) -> None:
        bad = pool.submit(Job.of(Stages.chain(identity, fail), [7], room=9))
        good = pool.submit(Job.of(ECHO, [8]))
        with pytest.raises(ValueError, match="bad chunk 7") as caught:
            bad.result(LONG)
        assert good.result(LONG) == [8]
        assert bad.status is State.FAILED
        # The traceback begins at the stage: our frames would keep buffers alive.
        trace = caught.value.__traceback__
        files = []
        while trace is not None:
            files.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
        assert not [each for each in files if each.endswith("executor.py")]

    def test_a_join_that_raises(self, pool: Pool) -> None:
        ticket = pool.submit(Job.of(ECHO, [1], join=lambda parts: parts[3]))
        with pytest.raises(IndexError):
            ticket.result(LONG)

    def test_executors_that_die_are_replaced(self, pool: Pool) -> None:
        before = set(pool._group.executors)
        tickets: list[Ticket] = [
            pool.submit(Job.of(Stages.chain(identity, die), [n], room=5)) for n in range(6)
        ]
        for ticket in tickets:
            with pytest.raises(ExecutorDied, match="SystemExit: killed by chunk"):
                ticket.result(LONG)
        assert pool.submit(Job.of(ECHO, [1])).result(LONG) == [1]
        until(lambda: len(pool._group.executors) == 2)
        assert before.isdisjoint(pool._group.executors)
        assert pool.stats().deaths == 6
        assert pool.stats().buffers.in_use == 0

    def test_an_executor_killed_from_outside(self) -> None:
        inside = threading.Event()
        ident: list[int] = []

        def spin(_: object, __: object) -> None:
            ident.append(threading.get_ident())
            inside.set()
            end = time.monotonic() + LONG
            while time.monotonic() < end:
                pass

        with Pool(1) as pool:
            ticket = pool.submit(Job.of(Stages.chain(spin), [0], room=5))
            assert inside.wait(LONG)
            raised = ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident[0]), raised)
            with pytest.raises(ExecutorDied):
                ticket.result(LONG)
            assert pool.submit(Job.of(ECHO, [1])).result(LONG) == [1]

    def test_no_thread_for_a_successor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Pool(1) as pool:

            def refuse(_: ExecutorThread) -> None:
                raise RuntimeError("can't start new thread")

            monkeypatch.setattr(ExecutorThread, "start", refuse)
            for n in range(5):
                ticket = pool.submit(Job.of(Stages.chain(die), [n]))
                with pytest.raises(ExecutorDied):
                    ticket.result(LONG)
            assert pool.submit(Job.of(ECHO, [1])).result(LONG) == [1]
            with pytest.raises(NoThread):
                pool.reserve("key")
            assert pool.submit(Job.of(ECHO, [1], key="key")).result(LONG) == [1]
            with pytest.raises(NoThread):
                Pool(1)

    def test_no_memory_for_a_buffer(self) -> None:
        def none(nbytes: int) -> object:
            raise MemoryError(nbytes)

        with Pool(1, buffers=none) as pool:
            ticket = pool.submit(Job.of(ECHO, [1], room=1000))
            with pytest.raises(MemoryError):
                ticket.result(LONG)
            assert pool.submit(Job.of(ECHO, [1])).result(LONG) == [1]
            assert pool.stats().buffers.acquired == 0


class TestGivingUp:
    def test_queued(self, pool: Pool, gate: Gate) -> None:
        ticket = pool.submit(Job.of(ECHO, [1]))
        assert ticket.status.value == "queued"
        assert ticket.cancel()
        assert ticket.cancelled()
        assert ticket.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            ticket.result(0)
        assert ticket.status == State.CANCELLED

    def test_started(self, pool: Pool) -> None:
        gate, ran = Gate(), threading.Event()
        stages = Stages.chain(gate, lambda _, __: ran.set())
        ticket = pool.submit(Job.of(stages, [1], room=7))
        gate.started()
        assert ticket.running()
        assert ticket.cancel()
        assert concurrent.futures.wait([ticket], 0).done
        assert pool.stats().buffers.in_use == 1
        gate.opened.set()
        until(lambda: pool.stats().buffers.in_use == 0)
        assert not ran.is_set()

    def test_finished(self, pool: Pool) -> None:
        ticket = pool.submit(Job.of(ECHO, [1]))
        ticket.result(LONG)
        assert not ticket.cancel()
        assert ticket.result() == [1]

    def test_from_asyncio(self, pool: Pool, gate: Gate) -> None:
        ticket = pool.submit(Job.of(ECHO, [1]))

        async def main() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(ticket), 0.01)

        asyncio.run(main())
        assert ticket.status == State.CANCELLED


class TestDeadlines:
    def test_one_that_passes_while_all_executors_are_busy(self, pool: Pool, gate: Gate) -> None:
        ticket = pool.submit(Job.of(ECHO, [1], deadline=pool.now() + 0.02))
        with pytest.raises(DeadlineExceeded):
            ticket.result(LONG)
        assert not gate.opened.is_set()
        assert ticket.status is State.EXPIRED

    def test_an_earlier_one_that_comes_later(self) -> None:
        clock, gate = SimulatedClock(), Gate()
        with Pool(1, clock=clock) as pool:
            pool.submit(Job.of(Stages.chain(gate), [1]))
            gate.started()
            late = pool.submit(Job.of(ECHO, [1], deadline=600.0))
            until(lambda: clock.next_wake == 600.0)  # the timekeeper sleeps for the long one
            soon = pool.submit(Job.of(ECHO, [1], deadline=10.0))
            until(lambda: clock.next_wake == 10.0)
            clock.advance(10.0)
            with pytest.raises(DeadlineExceeded):
                soon.result(LONG)
            assert not late.done()
            gate.opened.set()

    def test_on_a_simulated_clock(self) -> None:
        clock = SimulatedClock()
        gate = Gate()
        with Pool(1, clock=clock) as pool:
            pool.submit(Job.of(Stages.chain(gate), [1]))
            gate.started()
            ticket = pool.submit(Job.of(ECHO, [1], deadline=3600.0))
            until(lambda: clock.next_wake == 3600.0)
            assert not ticket.done()
            clock.advance(3600.0)
            with pytest.raises(DeadlineExceeded):
                ticket.result(LONG)
            gate.opened.set()

    def test_one_that_is_kept(self, pool: Pool) -> None:
        ticket = pool.submit(Job.of(ECHO, [1], deadline=pool.now() + LONG))
        assert ticket.result(LONG) == [1]


class TestReservations:
    def test_private_executors_and_buffers(self, pool: Pool, gate: Gate) -> None:
        pool.reserve("vip")
        assert pool.submit(Job.of(ECHO, [1], key="vip", room=5)).result(LONG) == [1]
        assert (pool.load("vip").executors, pool.load().idle) == (1, 0)
        pool.release("vip")
        until(lambda: len(pool._group.executors) == 2)
        blocked = pool.submit(Job.of(ECHO, [1], key="vip"))
        assert blocked.status is State.QUEUED


class TestBounds:
    def test_over_the_bound_is_an_error_at_once(self) -> None:
        gate = Gate()
        with Pool(1, rules=QueueRules(jobs=3)) as pool:
            tickets: list[Ticket] = [pool.submit(Job.of(Stages.chain(gate), [0]))]
            gate.started()
            tickets += [pool.submit(Job.of(ECHO, [n])) for n in range(3)]
            with pytest.raises(Overloaded):
                pool.submit(Job.of(ECHO, [9]))
            assert pool.load().queued_jobs == 3
            gate.opened.set()
            assert [t.result(LONG) for t in tickets[1:]] == [[0], [1], [2]]
        assert pool.stats().refused == 1

    def test_jobs_that_mean_nothing(self) -> None:
        with pytest.raises(BadJob, match="at least one executor"):
            Pool(0)


class TestEnds:
    def test_draining(self) -> None:
        gate = Gate()
        pool = Pool(2)
        tickets = [pool.submit(Job.of(Stages.chain(gate), range(3))) for _ in range(20)]
        gate.opened.set()
        assert pool.shutdown(drain=True, timeout=LONG)
        assert all(ticket.status is State.DONE for ticket in tickets)
        assert pool.shutdown()
        with pytest.raises(SchedulerClosed):
            pool.submit(Job.of(ECHO, [1]))

    def test_dropping(self) -> None:
        gate = Gate()
        pool = Pool(1)
        tickets = [pool.submit(Job.of(Stages.chain(gate, identity), [n])) for n in range(5)]
        gate.started()
        threading.Timer(0.05, gate.opened.set).start()
        assert pool.shutdown(drain=False, timeout=LONG)
        assert all(ticket.cancelled() for ticket in tickets)
        assert pool.stats().buffers.in_use == 0

    def test_draining_takes_too_long(self) -> None:
        gate = Gate()
        pool = Pool(1)
        tickets = [pool.submit(Job.of(Stages.chain(gate), [n])) for n in range(3)]
        gate.started()
        assert not pool.shutdown(drain=True, timeout=0.02)
        assert all(ticket.cancelled() for ticket in tickets)
        gate.opened.set()
        assert pool.shutdown(timeout=LONG)

    def test_from_an_executor(self) -> None:
        pool = Pool(1)
        ticket = pool.submit(Job.of(Stages.chain(lambda _, __: pool.shutdown(timeout=LONG)), [0]))
        assert ticket.result(LONG) == [True]

    def test_a_pool_that_is_dropped_ends_its_threads(self) -> None:
        before = threads()
        pool = Pool(3)
        ticket = pool.submit(Job.of(ECHO, [1]))
        del pool
        gc.collect()
        assert ticket.result(LONG) == [1]
        until(lambda: threads() == before)

    def test_the_block_of_a_pool_raises(self) -> None:
        gate = Gate()
        pool = Pool(1)
        ticket = pool.submit(Job.of(Stages.chain(gate, identity), [0]))
        queued = pool.submit(Job.of(ECHO, [0]))
        gate.started()
        threading.Timer(0.05, gate.opened.set).start()
        pool.__exit__(KeyError, KeyError(), None)
        assert ticket.cancelled()
        assert queued.cancelled()

    def test_a_child_process_gets_a_closed_pool(self) -> None:
        code = """
import os, warnings
from scheduler import Job, Pool, SchedulerClosed, Stages
warnings.simplefilter("ignore")
pool = Pool(1)
stages = Stages.chain(lambda chunk, buffer: chunk)
pool.submit(Job.of(stages, [1])).result(10)
child = os.fork()
if not child:
    try:
        pool.submit(Job.of(stages, [1]))
    except SchedulerClosed:
        pool.shutdown()
        with Pool(1) as own:
            own.submit(Job.of(stages, [1])).result(10)
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
pool.submit(Job.of(stages, [1])).result(10)
pool.shutdown()
"""
        assert run_python(code, timeout=60) == "7\n"

    def test_a_process_can_end_with_a_pool_open(self) -> None:
        code = """
import time
from scheduler import Job, Pool, Stages
pool = Pool(2)
pool.submit(Job.of(Stages.chain(lambda chunk, buffer: time.sleep(60)), [1, 2, 3]))
"""
        assert run_python(code, timeout=50) == ""


class Caller(threading.Thread):
    """Asks for all kinds of things and checks what it gets."""

    KINDS: ClassVar = ("fine",) * 12 + ("fail", "cancel", "late")
    ERRORS: ClassVar = {"fail": ValueError, "die": ExecutorDied, "late": DeadlineExceeded}

    def __init__(self, pool: Pool, number: int, count: int) -> None:
        super().__init__(daemon=True)
        self.pool, self.number, self.count = pool, number, count
        self.problems: list[str] = []

    @staticmethod
    def answer(chunk: tuple[str, int, int], _: object) -> object:
        kind, *rest = chunk
        if kind == "fail":
            raise ValueError(str(rest))
        if kind == "die":
            raise SystemExit
        return rest

    def run(self) -> None:
        chance = random.Random(self.number)
        for first in range(0, self.count, 10):
            asked = []
            for n in range(first, first + 10):
                kind = "die" if chance.random() < 0.002 else chance.choice(self.KINDS)
                asked.append((kind, n, self.ask(kind, n)))
            for kind, n, ticket in asked:
                if not self.right(kind, n, ticket):
                    self.problems.append(f"{kind} {n}: {ticket!r}")

    def ask(self, kind: str, n: int) -> Ticket:
        job = Job.of(
            Stages.chain(identity, self.answer),
            [(kind, self.number, n)] * (n % 3 + 1),
            key=self.number,
            priority=n % 2,
            room=100 * (n % 4),
            deadline=self.pool.now() if kind == "late" else None,
        )
        ticket = self.pool.submit(job)
        if kind == "cancel":
            ticket.cancel()
        return ticket

    def right(self, kind: str, n: int, ticket: Ticket) -> bool:
        try:
            error = ticket.exception(LONG)
        except concurrent.futures.CancelledError:
            return kind == "cancel"
        if kind in self.ERRORS:
            mine = kind != "fail" or str(error) == str([self.number, n])
            return isinstance(error, self.ERRORS[kind]) and mine
        return bool(ticket.result() == [[self.number, n]] * (n % 3 + 1))


class TestManyThreads:
    def test_every_ticket_gets_its_own_answer(self) -> None:
        """Eight callers, thousands of small jobs, and everything that can go wrong."""
        with Pool(2, rules=QueueRules(jobs=100_000)) as pool:
            callers = [Caller(pool, n, 1500) for n in range(8)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join(60)
            assert not any(caller.is_alive() for caller in callers)
        stats = pool.stats()
        assert [problem for caller in callers for problem in caller.problems] == []
        assert stats.submitted == 8 * 1500
        assert stats.done + stats.failed + stats.expired + stats.cancelled == 8 * 1500
        assert stats.deaths > 0
        assert stats.buffers.in_use == 0
        assert stats.queues == ()

    @pytest.mark.parametrize("drain", [True, False])
    def test_shutting_down_under_fire(self, *, drain: bool) -> None:
        tickets: list[Ticket] = []
        pool = Pool(2, rules=QueueRules(jobs=50))

        def call() -> None:
            while True:
                try:
                    tickets.append(pool.submit(Job.of(ECHO, [1, 2], room=10)))
                except Overloaded:
                    time.sleep(0.0005)
                except SchedulerClosed:
                    return

        callers = [threading.Thread(target=call, daemon=True) for _ in range(4)]
        for thread in callers:
            thread.start()
        time.sleep(0.1)
        assert pool.shutdown(drain=drain, timeout=LONG)
        for thread in callers:
            thread.join(LONG)
        assert all(ticket.done() for ticket in tickets)
        assert pool.stats().buffers.in_use == 0
        if drain:
            assert all(ticket.result() == [1, 2] for ticket in tickets)
