"""The two engines over plans: inline on the caller's thread, and in chunks by executors."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from oven import Plan
from oven.compiler.gil_yield import BYTES, WOKEN
from oven.plans.execution import Chunk, Execution
from runtime.errors import RuntimeClosed
from runtime.service.choice import CORES, Call, decide
from runtime.service.inputs import block_rows, first_row
from runtime.service.version import ModelVersion
from scheduler import (
    CostModel,
    DeadlineExceeded,
    Decision,
    Estimate,
    InlineEngine,
    InlineStats,
    Job,
    Load,
    Overloaded,
    Pool,
    PoolStats,
    QueueRules,
    Settings,
    Stage,
    Stages,
    Ticket,
    cores,
    split,
)

Answers = dict[str, Any]


Run = Callable[[Any], Answers]


def _whole(chunk: tuple[Run, object], _buffer: object) -> Answers:
    run, block = chunk
    return run(block)


class Piece(NamedTuple):
    """A chunk on its way, and what its caller wants of it if there is no other."""

    work: Execution
    chunk: Chunk
    call: Call
    single: bool


def _step(number: int, piece: Piece, memory: object) -> None:
    BYTES[WOKEN] = 0  # whoever was woken for this has got the interpreter's lock
    piece.work.step(number, piece.chunk, memory)


def _last(number: int, piece: Piece, memory: object) -> Answers:
    """The last step of a chunk that is alone, and the answers."""
    _step(number, piece, memory)
    return shaped(piece.work.finish(), piece.call, single=piece.single)


#: What a call takes that was never measured: for itself, and for the bytes that it touches.
BASE_SECONDS = 3e-6
BYTES_A_SECOND = 2e10
_SIZES = 16
#: What waits for executors, unless told otherwise: answers that come later than this help few, and
#: each call that waits in vain has cost its caller as much as several that are refused.
RULES = QueueRules(seconds=0.25)
#: From what executors took nothing is concluded about more than so many times as many rows.
_FARTHER = 16


def _key(served: ModelVersion, rows: int) -> tuple[str, int]:
    """Calls of about the same size have the same key: within a factor of four."""
    return served.owner, min(rows.bit_length() // 2, _SIZES - 1)


WHOLE = Stages.chain(_whole)


@cache
def _steps(count: int, *, alone: bool) -> Stages:
    """The stages of a plan of so many steps; the first one waits in the low queue."""
    steps: list[Stage] = [partial(_step, number) for number in range(count)]
    if alone:
        steps[-1] = partial(_last, count - 1)
    return Stages.chain(*steps)


def in_time(plan: Plan, chunk_rows: int, deadline: float, block: object) -> Answers:
    """Every output, computed here in chunks for as long as there is time."""
    work = plan.begin(block)
    for part in _parts(work, chunk_rows):
        chunk = work.chunk(part.start, part.stop)
        for number in range(work.steps):
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    "the deadline passed before the call was done",
                    found=f"{part.start} of {work.rows} rows were done",
                    hint="allow more time, or send fewer rows at once",
                )
            work.step(number, chunk)
    return work.finish()


def _parts(work: Execution, chunk_rows: int) -> list[slice]:
    whole = work.uncut or not work.rows
    return [slice(0, work.rows)] if whole else split(work.rows, chunk_rows)


def shaped(answers: Mapping[str, Any], call: Call, *, single: bool) -> Answers:
    """The answers as the caller wants them: all or some outputs, of a block or of one row."""
    made = first_row(answers) if single else dict(answers)
    return made if call.outputs is None else {name: made[name] for name in call.outputs}


def _wishes(served: ModelVersion, decision: Decision, call: Call) -> dict[str, Any]:
    """What the scheduler should know about a call."""
    return {
        "key": served.owner,
        "priority": call.priority,
        "deadline": call.deadline,
        "cost": decision.seconds,
        "computes": served.row_work is not None,
    }


class _Once:
    """A callback that forgets what it calls, so that a kept ticket does not keep a plan."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def __call__(self, _ticket: object) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


class Engines:
    """Inline and batch. The executors are started when they are first needed."""

    def __init__(
        self,
        executors: int | None = None,
        *,
        rules: QueueRules | None = None,
        settings: Settings | None = None,
        inline_limit: int | None = None,
    ) -> None:
        # What the same work takes on a caller's thread and on an executor: the latter is measured
        # while others run too.
        self.costs, self._batch_costs = CostModel(), CostModel()
        self.settings = settings or Settings()
        self.executors = cores() if executors is None else executors
        self._rules = rules or RULES
        self._inline = InlineEngine(limit=inline_limit, sample=1 << 62)
        self._inside: set[object] = set()  # inline calls on their way; of no order
        self._pool: Pool | None = None
        self._reserved: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closed = False
        _all.add(self)

    @property
    def pool(self) -> Pool:
        """The executors."""
        pool = self._pool
        if pool is None:
            with self._lock:
                if self._closed:
                    raise RuntimeClosed("this runtime was closed")
                pool = self._pool
                if pool is None:
                    pool = Pool(self.executors, rules=self._rules, costs=self._batch_costs)
                    for owner, executors in self._reserved.items():
                        pool.reserve(owner, executors)
                    self._pool = pool
        return pool

    @property
    def calm(self) -> bool:
        """Whether no more callers compute on their own threads than there are cores for."""
        return len(self._inside) < CORES

    def after_fork(self) -> None:
        """A child process has none of our threads; it gets its own when it needs some."""
        self._lock = threading.Lock()
        self._pool = None
        self._inside.clear()

    def choose(self, served: ModelVersion, call: Call, rows: int, *, note: bool = True) -> Decision:
        """The engine for a call, and why."""
        pool = self._pool
        idle = Load(self.executors, self.executors)
        made = decide(
            served,
            call,
            rows,
            idle if pool is None else pool.load(served.owner),
            estimate=self.estimate(served, rows),
            inline_callers=len(self._inside),
            settings=self.settings,
        )
        if note:
            served.decision = made
        return made

    def observe(self, served: ModelVersion, rows: int, seconds: float) -> None:
        """A call has taken so long on its caller's thread."""
        self.costs.observe(_key(served, rows), rows, seconds)

    def estimate(self, served: ModelVersion, rows: int) -> Estimate | None:
        """What a call should take: measured near its size, else worked out, else far from it.

        A call of one row is mostly overhead and says nothing of a thousand rows: what executors
        took counts for up to so many times as many rows. What was measured once may have been slow
        for reasons that have gone: so the least counts.
        """
        near = self.costs.estimate(_key(served, rows), rows)
        batch = self._batch_costs.estimate(served.owner, rows, farther=_FARTHER)
        if near is not None:
            return near if batch is None else min(near, batch)
        if batch is not None:
            return batch
        if served.row_work is None:
            return None
        if served.grows:  # its code says nothing of texts; one is about as good as another
            return self.costs.estimate(_key(served, 1), rows)
        seconds = BASE_SECONDS + rows * served.row_work / BYTES_A_SECOND
        return Estimate(seconds, seconds / max(rows, 1), 0)

    def forget(self, owner: str) -> None:
        """A version is gone, and so is the last call of it."""
        self._batch_costs.forget(owner)
        for size in range(_SIZES):
            self.costs.forget((owner, size))

    # --- inline ------------------------------------------------------------------------------

    def inline(self, run: Run, block: object, rows: int, deadline: float | None) -> Answers:
        """Every output, computed here and now."""
        token = object()
        self._inside.add(token)
        try:
            answers: Any = self._inline.run(WHOLE, (run, block), rows=rows, deadline=deadline)
        finally:
            self._inside.discard(token)
        made: Answers = answers
        return made

    # --- batch -------------------------------------------------------------------------------

    def submit(
        self,
        served: ModelVersion,
        plan: Plan,
        block: object,
        decision: Decision,
        call: Call,
        *,
        single: bool,
        done: Callable[[], None],
    ) -> Ticket:
        """A ticket for the answers; `done` is called once, when the plan is not needed any more.

        The data is checked here; an error in it is the caller's at once.
        """
        try:
            load = self.check_room(served, call.priority)
            if plan.ready:
                job = self._job(served, plan, block, decision, call, single=single)
            else:  # it answers from the definitions until it is
                job = self._whole_job(served, plan.run, block, decision, call, single=single)
            ticket = self.pool.submit(job)
        except BaseException:
            done()
            raise
        if load.idle:
            BYTES[WOKEN] = 1  # an executor was woken and wants the interpreter's lock
        served.batch.tick()
        ticket.add_done_callback(_Once(done))
        return ticket

    def submit_whole(
        self,
        served: ModelVersion,
        run: Run,
        block: object,
        decision: Decision,
        call: Call,
        *,
        single: bool,
    ) -> Ticket:
        """A ticket for what `run` makes of the data, all at once, by an executor."""
        self.check_room(served, call.priority)
        job = self._whole_job(served, run, block, decision, call, single=single)
        ticket = self.pool.submit(job)
        served.batch.tick()
        return ticket

    def check_room(self, served: ModelVersion, priority: int = 0) -> Load:
        """Raise Overloaded before any work is done for a call that would be refused anyway."""
        pool = self.pool
        load = pool.load(served.owner)
        if not load.idle and pool.is_full(served.owner, priority):
            wait = load.queued_seconds / max(1, load.executors)
            raise Overloaded(
                "the queue is full",
                where=served.owner,
                found=f"{load.queued_jobs} jobs and {load.queued_rows} rows wait, for {wait:.3f} s",
                hint="send the call again when it has drained, or elsewhere",
                retry_after=wait,
            )
        return load

    def check_early(self, served: ModelVersion, call: Call, data: Any) -> None:
        """The same for a caller that must not be held up, before even its data is looked at.

        Only for what certainly is a block, and longer than such a caller makes here and now.
        """
        pool = self._pool
        if pool is None or not pool.is_full(served.owner, call.priority):
            return
        rows = block_rows(data, documents=served.text)
        expected = self.estimate(served, rows) if rows else None
        if expected is not None and expected.seconds > self.settings.instant:
            self.check_room(served, call.priority)

    def _job(
        self,
        served: ModelVersion,
        plan: Plan,
        block: object,
        decision: Decision,
        call: Call,
        *,
        single: bool,
    ) -> Job:
        work = plan.begin(block)
        room, rows = work.memory_bytes, max(work.rows, 1)
        pieces = [
            Piece(work, work.chunk(part.start, part.stop), call, single)
            for part in _parts(work, decision.chunk_rows)
        ]
        alone, known = len(pieces) == 1, _wishes(served, decision, call)
        stages = _steps(work.steps, alone=alone)
        if alone:
            return Job.of(stages, pieces, rows=rows, room=room, alone=True, **known)

        def join(_: list[Any]) -> Answers:
            return shaped(work.finish(), call, single=single)

        return Job.of(stages, pieces, rows=rows, room=room, join=join, **known)

    def _whole_job(
        self,
        served: ModelVersion,
        run: Run,
        block: object,
        decision: Decision,
        call: Call,
        *,
        single: bool,
    ) -> Job:
        def join(answers: list[Any]) -> Answers:
            return shaped(answers[0], call, single=single)

        known = _wishes(served, decision, call)
        # It waits for a file or a compiler, or does without: other calls will take another time.
        return Job.of(WHOLE, [(run, block)], rows=1, join=join, typical=False, **known)

    # --- reservations ------------------------------------------------------------------------

    def reserve(self, served: ModelVersion) -> None:
        """Give a version executors of its own."""
        self.pool.reserve(served.owner, served.reserved)
        with self._lock:
            self._reserved[served.owner] = served.reserved

    def release(self, served: ModelVersion) -> None:
        """Take a version's executors back, once what they have accepted is done."""
        with self._lock:
            self._reserved.pop(served.owner, None)
        if self._pool is not None:
            self._pool.release(served.owner)

    # --- the end -----------------------------------------------------------------------------

    def stats(self) -> tuple[InlineStats, PoolStats | None]:
        """What both engines did; None where no executor was ever needed."""
        return self._inline.stats(), None if self._pool is None else self._pool.stats()

    def close(self, *, drain: bool, timeout: float | None) -> bool:
        """End the executors; whether they ended in time."""
        with self._lock:
            self._closed = True
        return self._pool is None or self._pool.shutdown(drain=drain, timeout=timeout)


_all: weakref.WeakSet[Engines] = weakref.WeakSet()


def _after_fork() -> None:
    for engines in tuple(_all):
        engines.after_fork()


os.register_at_fork(after_in_child=_after_fork)
