"""The two engines over plans: inline on the caller's thread, and in chunks by executors."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from flour.core.errors import ParameterError, check_values, is_count, is_number
from flour.core.sparse import Sparse
from flour.data.batch import Batch
from objectstore.system import at_fork
from oven import Plan
from oven.compiler.gil_yield import BYTES, WOKEN
from oven.plans.execution import Chunk, Execution, are_shared_natively
from oven.run.helpers import Division, desk
from oven.run.native_run import OutOfTime
from runtime.errors import RuntimeClosed
from runtime.service.call import Call
from runtime.service.costs import Costs
from runtime.service.sharing import SharedRun, Tasks, late
from runtime.service.version import ModelVersion
from scheduler import (
    Decision,
    InlineEngine,
    InlineStats,
    Job,
    Load,
    Overloaded,
    Pool,
    PoolStats,
    QueueRules,
    SchedulerClosed,
    Stage,
    Stages,
    Ticket,
    cores,
    is_executor,
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
    BYTES[WOKEN] = 0  # the executor that was woken for this has got the GIL
    piece.work.step(number, piece.chunk, memory)


def _last(number: int, piece: Piece, memory: object) -> Answers:
    """The last step of a chunk that is alone, and the answers."""
    _step(number, piece, memory)
    return shaped(piece.work.finish(), piece.call.outputs, single=piece.single)


#: Of this machine: callers and executors share them, however many executors there are.
CORES = cores()
#: Inline calls on their way, of all runtimes of this process, and their number for helpers.
INSIDE: set[object] = set()
_CALLERS = desk.callers
#: What waits for executors, unless told otherwise: answers that come later than this help few, and
#: each call that waits in vain has cost its caller as much as several that are refused.
RULES = QueueRules(seconds=0.25)

WHOLE = Stages.chain(_whole)
#: A helper takes ranges of rows until there is none left.
HELP = Stages.chain(lambda run, _buffer: run.help())


@cache
def _steps(count: int, *, alone: bool) -> Stages:
    """The stages of a plan of so many steps; the first one waits in the low queue."""
    steps: list[Stage] = [partial(_step, number) for number in range(count)]
    if alone:
        steps[-1] = partial(_last, count - 1)
    return Stages.chain(*steps)


def shaped(answers: Mapping[str, Any], outputs: Iterable[str] | None, *, single: bool) -> Answers:
    """The answers as the caller wants them: all or some outputs, of a block or of one row."""
    wanted = _first_row(answers) if single else dict(answers)
    return wanted if outputs is None else {name: wanted[name] for name in outputs}


def _first_row(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers for a block of one row as those for the row."""
    return {name: _only(value) for name, value in answers.items()}


def _only(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _first_row(value)
    if isinstance(value, Sparse):  # where there is no scipy
        return value.toarray()[0]
    first = value[0]
    return first.item() if isinstance(first, np.generic) else first


def _scheduling(version: ModelVersion, decision: Decision, call: Call) -> dict[str, Any]:
    """The scheduler's options for a call."""
    return {
        "key": version.owner,
        "priority": call.priority,
        "deadline": call.deadline,
        "cost": decision.seconds,
        "computes": version.learned.row_work is not None,
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


def are_modules(names: object) -> bool:
    """Return whether this is a list of names of modules."""
    return isinstance(names, list | tuple) and all(isinstance(n, str) and n for n in names)


def check_modules(names: Sequence[str]) -> tuple[str, ...]:
    """The names, if their modules are here; none is imported, except the packages above it."""
    for name in names:
        try:
            missing = "" if name in sys.modules or find_spec(name) else "it is not found"
        except Exception as problem:  # noqa: BLE001 (the code of a package above it)
            missing = f"{type(problem).__name__}: {problem}"[:160]
        if missing:
            raise ParameterError(
                "there is no such module to take coroutines from",
                where=f"allow_python={name}"[:100],
                found=missing,
                hint="install it, or name its directory in PYTHONPATH",
            )
    return tuple(names)


def check_options(
    executors: object,
    memory_budget: object,
    trust_code: object,
    allow_python: object,
    result_bytes: object = 0,
) -> None:
    """Raise for an option of a runtime that does not fit; workers and replicas have them, too."""
    bounded = memory_budget is None or is_number(memory_budget)
    options = (
        ("executors", executors, executors is None or is_count(executors, 1), "threads, or None"),
        ("memory_budget", memory_budget, bounded, "bytes, or None"),
        ("result_bytes", result_bytes, is_number(result_bytes), "bytes"),
        ("trust_code", trust_code, isinstance(trust_code, bool), "True or False"),
        ("allow_python", allow_python, are_modules(allow_python), "a list of names of modules"),
    )
    check_values(options, "a runtime cannot have such an option", "Runtime")


class Engines:
    """Inline and batch. The executors are started when they are first needed."""

    def __init__(
        self,
        executors: int | None,
        costs: Costs,
        *,
        rules: QueueRules | None = None,
        inline_limit: int | None = None,
    ) -> None:
        fits = inline_limit is None or is_count(inline_limit)
        told = [("inline_limit", inline_limit, fits, "callers, or None")]
        check_values(told, "a runtime cannot have such an option", "Runtime")
        self._costs = costs
        self.executors = cores() if executors is None else executors
        self._rules = rules or RULES
        self._inline = InlineEngine(limit=inline_limit, sample=1 << 62)
        self.limited = inline_limit is not None
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
                    pool = Pool(self.executors, rules=self._rules, costs=self._costs.model)
                    for owner, executors in self._reserved.items():
                        pool.reserve(owner, executors)
                    self._pool = pool
        return pool

    @property
    def calm(self) -> bool:
        """True if no more callers compute on their own threads than there are cores for."""
        return len(INSIDE) < CORES

    def after_fork(self) -> None:
        """A child process has none of our threads; it gets its own when it needs some."""
        self._lock = threading.Lock()
        self._pool = None

    @property
    def inline_callers(self) -> int:
        """The number of callers that compute on their own threads now."""
        return len(INSIDE)

    def load(self, owner: str) -> Load:
        """The load of the executors that would serve a version."""
        pool = self._pool
        return Load(self.executors, self.executors) if pool is None else pool.load(owner)

    def is_full(self, version: ModelVersion, priority: int) -> bool:
        """True if the queue has no room for a call of this version."""
        return self._pool is not None and self._pool.is_full(version.owner, priority)

    # --- inline ------------------------------------------------------------------------------

    def inline(self, run: Run, block: object, rows: int, deadline: float | None) -> Answers:
        """Every output, computed here and now; others see that a caller computes."""
        token = object()
        INSIDE.add(token)
        _CALLERS[0] = len(INSIDE)
        try:
            answers: Any = self._inline.run(WHOLE, (run, block), rows=rows, deadline=deadline)
        finally:
            INSIDE.discard(token)
            _CALLERS[0] = len(INSIDE)
        outputs: Answers = answers
        return outputs

    def shared(
        self, version: ModelVersion, plan: Plan, block: object, decision: Decision, call: Call
    ) -> Answers:
        """Every output, computed here and by threads that have nothing else to do."""
        if not plan.ready:  # it answers from the definitions until it is
            return self.inline(plan.run, block, 1, call.deadline)
        counts = version.counts
        number = (counts.batch if decision.helpers else counts.inline).tick()
        run = partial(self._divided, version, plan, decision, call, number)
        return self.inline(run, block, 1, call.deadline)

    def _divided(
        self,
        version: ModelVersion,
        plan: Plan,
        decision: Decision,
        call: Call,
        number: int,
        block: object,
    ) -> Answers:
        """Every output, in ranges of rows: those of native code, or of Python."""
        if not (version.learned.native and are_shared_natively()):
            return self._by_executors(version, partial(plan.begin, block), decision, call)
        began, work = perf_counter(), plan.begin(block)
        try:
            helpers = decision.helpers
            if helpers > desk.helpers:
                helpers = min(helpers, desk.start(helpers, CORES, self))
            told = work.together(
                Division(helpers, decision.least_rows, decision.chunk_rows, call.deadline)
            )
        except OutOfTime as problem:
            raise late(f"{problem.rows} of {work.rows} rows were done") from None
        version.learned.native = told is not None
        if told is None:
            return self._by_executors(version, lambda: work, decision, call)
        answers = work.finish()
        elapsed = perf_counter() - began
        measured = told._replace(work=told.work + max(elapsed - told.elapsed, 0.0), elapsed=elapsed)
        sampled = decision.explores or not number & 7
        self._costs.learn_together(version, work.rows, measured, sampled=sampled)
        return answers

    def _by_executors(
        self, version: ModelVersion, begin: Callable[[], Execution], decision: Decision, call: Call
    ) -> Answers:
        """Every output, in ranges of rows that Python hands out, here and by executors."""
        began = perf_counter()
        run = SharedRun(
            begin,
            1 + decision.helpers,
            decision.least_rows,
            decision.chunk_rows,
            deadline=call.deadline,
            clock=version.clock,
            learn=partial(self._costs.observe, version),
        )
        try:
            if decision.helpers:
                # Let executors take part in a run; where they will not, the caller does all of it.
                pieces, seconds = [run] * decision.helpers, decision.seconds
                options = _scheduling(version, decision, call)
                if seconds is not None:
                    options["cost"] = seconds * len(pieces) / (1 + len(pieces))
                with suppress(Overloaded, SchedulerClosed):
                    self.pool.submit(Job.of(HELP, pieces, typical=False, **options))
            answers = run.run()
        finally:
            run.close()
        if decision.helpers:
            gain = run.work_seconds / (perf_counter() - began)
            self._costs.learn_gain(version, gain, 1 + decision.helpers)
        return answers

    # --- batch -------------------------------------------------------------------------------

    def submit(
        self,
        version: ModelVersion,
        plan: Plan,
        batch: Batch,
        decision: Decision,
        call: Call,
        *,
        done: Callable[[], None],
    ) -> Ticket:
        """A ticket for the answers; `done` is called once, when the plan is not needed any more.

        The data is checked here; an error in it is the caller's at once.
        """
        try:
            load = self.check_room(version, call.priority)
            if plan.ready:
                job = self._job(version, plan, batch, decision, call)
            else:  # it answers from the definitions until it is
                job = self._whole_job(version, plan.run, batch, decision, call)
            ticket = self.pool.submit(job)
        except BaseException:
            done()
            raise
        if load.idle:
            BYTES[WOKEN] = 1  # an executor was woken and waits for the GIL
        version.counts.batch.tick()
        ticket.add_done_callback(_Once(done))
        return ticket

    def submit_whole(
        self, version: ModelVersion, run: Run, batch: Batch, decision: Decision, call: Call
    ) -> Ticket:
        """A ticket for what `run` makes of the data, all at once, by an executor."""
        self.check_room(version, call.priority)
        job = self._whole_job(version, run, batch, decision, call)
        ticket = self.pool.submit(job)
        version.counts.batch.tick()
        return ticket

    def check_room(self, version: ModelVersion, priority: int = 0) -> Load:
        """Raise Overloaded before any work is done for a call that would be refused anyway."""
        pool = self.pool
        load = pool.load(version.owner)
        if not load.idle and pool.is_full(version.owner, priority) and not is_executor():
            wait = load.queued_seconds / max(1, load.executors)
            raise Overloaded(
                "the queue is full",
                where=version.owner,
                found=f"{load.queued_jobs} jobs and {load.queued_rows} rows wait, for {wait:.3f} s",
                hint="send the call again when it has drained, or elsewhere",
                retry_after=wait,
            )
        return load

    def _job(
        self, version: ModelVersion, plan: Plan, batch: Batch, decision: Decision, call: Call
    ) -> Job:
        work, single = plan.begin(batch.block), batch.single
        room, rows = work.memory_bytes, max(work.rows, 1)
        whole = work.uncut or not work.rows
        pieces = [
            Piece(work, work.chunk(part.start, part.stop), call, single)
            for part in ([slice(0, work.rows)] if whole else split(work.rows, decision.chunk_rows))
        ]
        alone, options = len(pieces) == 1, _scheduling(version, decision, call)
        stages = _steps(work.steps, alone=alone)
        if alone:
            return Job.of(stages, pieces, rows=rows, room=room, alone=True, **options)

        def join(_: list[Any]) -> Answers:
            return shaped(work.finish(), call.outputs, single=single)

        return Job.of(stages, pieces, rows=rows, room=room, join=join, **options)

    def _whole_job(
        self, version: ModelVersion, run: Run, batch: Batch, decision: Decision, call: Call
    ) -> Job:
        single = batch.single

        def join(answers: list[Any]) -> Answers:
            return shaped(answers[0], call.outputs, single=single)

        options = _scheduling(version, decision, call)
        # It waits for a file or a compiler, or does without: other calls will take another time.
        return Job.of(WHOLE, [(run, batch.block)], rows=1, join=join, typical=False, **options)

    # --- tasks of graphs -------------------------------------------------------------------------

    def side_by_side(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Do tasks that need nothing of one another: here, and by executors that are free."""
        run = SharedRun(partial(Tasks, tasks), len(tasks), 1, 1)
        helpers = min(len(tasks), CORES, 1 + self.executors) - 1
        if helpers:
            with suppress(Overloaded, SchedulerClosed, RuntimeClosed):
                self.pool.submit(Job.of(HELP, [run] * helpers, typical=False))
        run.run()

    def elsewhere(
        self, task: Callable[[], Any], priority: int = 0, *, key: str | None = None
    ) -> Ticket:
        """The result of a task on another executor; raises Overloaded if the queue is full."""
        if is_executor():
            raise Overloaded("an executor may wait for this task, so it does it itself")
        whole = (lambda _: task(), None)
        job = Job.of(WHOLE, [whole], key=key, typical=False, alone=True, priority=priority)
        return self.pool.submit(job)

    # --- reservations ------------------------------------------------------------------------

    def reserve(self, version: ModelVersion) -> None:
        """Give a version executors of its own."""
        self.pool.reserve(version.owner, version.reserved)
        with self._lock:
            self._reserved[version.owner] = version.reserved

    def release(self, version: ModelVersion) -> None:
        """Take a version's executors back, once what they have accepted is done."""
        with self._lock:
            self._reserved.pop(version.owner, None)
        if self._pool is not None:
            self._pool.release(version.owner)

    # --- the end -----------------------------------------------------------------------------

    def stats(self) -> tuple[InlineStats, PoolStats | None]:
        """Figures of both engines; None if no executor was ever needed."""
        return self._inline.stats(), None if self._pool is None else self._pool.stats()

    def close(self, *, drain: bool, timeout: float | None) -> bool:
        """End the executors; whether they ended in time."""
        with self._lock:
            self._closed = True
        desk.stop(self)
        return self._pool is None or self._pool.shutdown(drain=drain, timeout=timeout)


_all: weakref.WeakSet[Engines] = weakref.WeakSet()


def _after_fork() -> None:
    INSIDE.clear()
    for engines in tuple(_all):
        engines.after_fork()


at_fork(after_in_child=_after_fork)
