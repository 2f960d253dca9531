"""Requests on their way through a graph that waits, on one event loop: no thread waits for one.

A step begins when what it reads is there. Requests that are ready for the same plan in one turn of
the loop go through it as one block. What one of them cannot do ends that request alone: it is
asked again by itself where a block fails.

How many calls of a fetch are under way at a time, altogether or for each client.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from flour.core.errors import CoroutineEnded, FlourError, WrongAnswer
from flour.core.node import Node
from flour.core.op import Columns
from flour.core.reference import public, row_count
from flour.core.rows import cut_rows, stacked
from flour.core.time_limit import GROUP, all_of, time_limit
from flour.core.types import Scalar
from runtime.errors import NodeFailed
from runtime.graph.cutting import GraphCut, Step
from runtime.graph.form import name_of
from runtime.graph.request import Values
from runtime.graph.rows import Known, RowGraph, taken
from runtime.graph.unquoted import unquoted
from scheduler import DeadlineExceeded, SchedulerError


class Limits:
    """The limits of a fetch: one for all calls, or one for each client that has calls under way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._limits: dict[Hashable, Limit] = {}

    def at(self, client: Hashable) -> Limit:
        """The limit of a client, to be entered at once."""
        for key in [key for key, one in self._limits.items() if one.idle and key != client][:2]:
            del self._limits[key]
        return self._limits.setdefault(client, Limit(self._limit))


class Limit:
    """Lets so many in at a time, in the order in which they came; 0 for all."""

    __slots__ = ("_free", "_limit", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit, self._free = limit, limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def idle(self) -> bool:
        """True if all are out again."""
        return self._free == self._limit and not self._waiting

    async def __aenter__(self) -> None:
        if not self._limit:
            return
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        if self._limit:
            self._leave()

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


Answers = dict[str, Columns]
Run = Callable[[Step, Mapping[str, Columns], int], Mapping[str, Columns]]
#: Rows that meet at a plan go through it in blocks of at most so many.
MOST_TOGETHER = 4096
#: From so many single rows on, a block is faster than one row after the other.
MANY_ROWS = 8
#: Answers of one fetch that are kept at most.
MOST_KEPT = 4096


class GraphRequest:
    """One request: what it has so far, and how many steps each step still waits for.

    A single row has values of Python's in `known`, a block has columns in `values`.
    """

    __slots__ = (
        *("chosen", "future", "known", "left", "open", "outputs", "problem", "tasks", "timer"),
        *("values", "waiting"),
    )

    def __init__(
        self,
        values: Values | Known,
        outputs: tuple[str, ...],
        steps: Mapping[int, int],
        future: Future[Answers],
    ) -> None:
        self.known = values if isinstance(values, dict) else None
        self.values: Any = values
        self.chosen: dict[Node, int] = {}
        self.outputs = outputs
        #: None once it is answered: the future's callbacks refer to the request.
        self.future: Future[Answers] | None = future
        #: For each step that is wanted: how many of those before it are not done.
        self.waiting = dict(steps)
        self.left = len(steps)
        self.tasks: set[asyncio.Task[None]] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.open = True
        #: How a try of one of its fetches ended last, if it failed.
        self.problem: Exception | None = None


class LimitPassed(TimeoutError):
    """A limit of a fetch has passed, and which."""


class Tries:
    """The tries of a fetch for one row: how many have begun, and how the last failed one ended."""

    __slots__ = ("asking", "begun", "problem")

    def __init__(self) -> None:
        self.begun, self.asking = 0, False
        self.problem: Exception | None = None

    def passed(self, step: Step, *, whole: bool = False) -> LimitPassed:
        """The limit of a fetch that has passed, how often it was asked, and with what outcome."""
        op, begun = step.op, self.begun
        tries = f"{begun} of {op.retries + 1} tries" if op.retries else "1 try"
        limit = f"deadline={op.deadline:g}" if whole else f"timeout={op.timeout:g}"
        text = f"nothing within {limit} s, in {tries if begun else 'no try'}"
        return LimitPassed(text + _before(self.problem))


class GraphRouter:
    """The requests of one graph on one event loop."""

    def __init__(
        self,
        name: str,
        graph: GraphCut,
        run: Run,
        elsewhere: Callable[[Callable[[], Any]], Future[Any]],
        by_row: RowGraph | None,
        requests: dict[GraphRequest, GraphRouter],
    ) -> None:
        self.name, self._graph, self._run, self._by_row = name, graph, run, by_row
        self._elsewhere = elsewhere
        self._readers: dict[int, list[int]] = {step.number: [] for step in graph.steps}
        for step in graph.steps:
            for before in step.after:
                self._readers[before].append(step.number)
        #: The steps that a fetched value may have reached.
        self._fetched: set[int] = set()
        for step in graph.steps:
            if step.kind == "fetch" or not self._fetched.isdisjoint(step.after):
                self._fetched.add(step.number)
        self._meeting: dict[int, list[GraphRequest]] = {}
        self._limits = {s.number: Limits(s.op.limit) for s in graph.steps if s.kind == "fetch"}
        #: Answers of this type need no look: they are what was promised.
        self._plain = {s.number: _plain(s.op) for s in graph.steps if s.kind == "fetch"}
        self._kept: OrderedDict[Any, tuple[float, Any]] = OrderedDict()
        self._plans: dict[tuple[str, ...], dict[int, int]] = {}
        #: Requests under way, of all routers of the loop.
        self.requests = requests

    # --- a request ---------------------------------------------------------------------------

    def begin(
        self,
        values: Values | Known,
        outputs: tuple[str, ...],
        future: Future[Answers],
        timeout: float | None = None,
    ) -> None:
        """Take a request in for these outputs; called on the loop's thread."""
        if future.cancelled():
            return
        loop = asyncio.get_running_loop()
        # The steps that outputs need, each with the number of steps before it.
        if outputs not in self._plans:
            wanted = self._graph.wanted(outputs)
            steps = self._graph.steps
            self._plans[outputs] = {
                number: sum(before in wanted for before in steps[number].after)
                for number in sorted(wanted)
            }
        request = GraphRequest(values, outputs, self._plans[outputs], future)
        self.requests[request] = self
        future.add_done_callback(partial(self._given_up, loop, request))
        if timeout is not None:
            request.timer = loop.call_later(timeout, self._late, request)
        for number, before in list(request.waiting.items()):
            if not before:
                self._ready(request, number)
        if not request.left:
            self._finish(request)

    def _given_up(
        self, loop: asyncio.AbstractEventLoop, request: GraphRequest, future: Future[Answers]
    ) -> None:
        """The caller wants no answer any more; called on whichever thread says so."""
        if future.cancelled() and request.open:
            loop.call_soon_threadsafe(self._close, request)

    def _late(self, request: GraphRequest) -> None:
        waits = [self._graph.steps[n].title for n, before in request.waiting.items() if not before]
        found = "it waited for " + ", ".join(waits or ["its turn"])[:160]
        late = DeadlineExceeded(
            "the deadline passed before the graph had answered",
            where=self.name,
            found=found + _before(request.problem),
            hint="allow more time, or give the fetch a shorter timeout= and otherwise=",
        )
        late.__cause__ = request.problem
        self.fail(request, late)

    def fail(self, request: GraphRequest, problem: BaseException) -> None:
        """End a request with an error, and what is still waiting for it."""
        future = self._close(request)
        if future is not None:
            with suppress(InvalidStateError):  # it was cancelled meanwhile
                future.set_exception(problem)

    def _finish(self, request: GraphRequest) -> None:
        if not request.open:
            return
        try:
            answers = self._answers(request)
        except Exception as problem:  # noqa: BLE001 (it is the request's)
            self.fail(request, problem)
            return
        future = self._close(request)
        if future is not None:
            with suppress(InvalidStateError):  # as above
                future.set_result(answers)

    def _answers(self, request: GraphRequest) -> Answers:
        if request.known is not None:
            assert self._by_row is not None, "rows are taken where they can be"
            return self._by_row.answers(request.known, request.outputs)
        outputs, values = self._graph.outputs, request.values
        return {
            name: public(values.at(outputs[name], ()), outputs[name].type)
            for name in request.outputs
        }

    def _close(self, request: GraphRequest) -> Future[Answers] | None:
        """End a request; its future, if it had not ended before."""
        future, request.future = request.future, None
        request.open, request.problem = False, None
        self.requests.pop(request, None)
        if request.timer is not None:
            request.timer.cancel()
        for task in request.tasks:
            task.cancel()
        request.tasks.clear()
        return future

    # --- steps -------------------------------------------------------------------------------

    def _ready(self, request: GraphRequest, number: int) -> None:
        """A step has all that it reads."""
        step = self._graph.steps[number]
        try:
            count = _count(request, step)
            if step.kind == "fetch":
                step.spared += (1 if request.known is not None else request.values.rows) - count
            if not count:
                self._done(request, step)
            elif step.kind == "fetch":
                (item,) = step.nodes
                if request.known is not None and self._by_row is not None:
                    values = self._by_row.read(item, request.known)
                    coming = self._one(request, step, values)
                else:
                    inputs = [request.values.at(source, step.path) for source in item.inputs]
                    coming = self._rows(request, step, inputs)
                task = asyncio.get_running_loop().create_task(coming)
                request.tasks.add(task)
                task.add_done_callback(request.tasks.discard)
            elif step.kind == "choice":
                if request.known is not None and self._by_row is not None:
                    self._by_row.step(step)(request.known, request.chosen)
                else:
                    request.values.give(step.nodes[0], request.values.choose(step))
                self._done(request, step)
            else:
                # Wait for the end of this turn of the loop for others that go the same way.
                waiting = self._meeting.get(number)
                if waiting is None:
                    waiting = self._meeting[number] = []
                    asyncio.get_running_loop().call_soon(self._go, number)
                waiting.append(request)
        except Exception as problem:  # noqa: BLE001 (it is the request's)
            self.fail(request, self._explained(step, problem))

    def _done(self, request: GraphRequest, step: Step) -> None:
        """A step is over: those that waited for it may be ready."""
        if not request.open:
            return
        request.waiting[step.number] = -1
        request.left -= 1
        for number in self._readers[step.number]:
            if number in request.waiting:
                request.waiting[number] -= 1
                if not request.waiting[number]:
                    self._ready(request, number)
        if not request.left:
            self._finish(request)

    def _go(self, number: int) -> None:
        step = self._graph.steps[number]
        ready = [request for request in self._meeting.pop(number) if request.open]
        rows = [request for request in ready if request.known is not None]
        if rows:
            self._rows_together(step, rows)
        blocks = [request for request in ready if request.known is None]
        while blocks:
            block, count = list[GraphRequest](), 0
            while blocks and count < MOST_TOGETHER:
                block.append(blocks.pop(0))
                count += _count(block[-1], step)
            self._together(step, block)

    def _rows_together(self, step: Step, rows: list[GraphRequest]) -> None:
        """Single rows: few by the plan's entry one by one, many as a block."""
        assert self._by_row is not None, "rows are taken where they can be"
        run: Any = self._by_row.step(step)
        if len(rows) >= MANY_ROWS:
            with suppress(Exception):  # below, each is told what is wrong with its own row
                run.together([request.known for request in rows])
                for request in rows:
                    self._done(request, step)
                return
        for request in rows:
            self._off_or_here(
                [request], step, partial(run, request.known, request.chosen), slow=step.is_slow()
            )

    def _together(self, step: Step, block: list[GraphRequest]) -> None:
        counts = [_count(request, step) for request in block]
        rows = sum(counts)

        def work() -> list[Answers]:
            given = [gathered(step, request.values) for request in block]
            columns = {name: stacked([one[name] for one in given]) for name in given[0]}
            made = self._run(step, columns, rows)
            if len(block) == 1:
                return [dict(made)]
            ends = np.cumsum(counts).tolist()
            return [
                {name: cut_rows(value, end - count, end) for name, value in made.items()}
                for count, end in zip(counts, ends, strict=True)
            ]

        self._off_or_here(block, step, work, slow=step.is_slow(rows))

    def _off_or_here(
        self, block: list[GraphRequest], step: Step, work: Callable[[], Any], *, slow: bool
    ) -> None:
        """Do work for requests: on an executor if it is slow, so that the loop goes on."""
        if slow:
            with suppress(Exception):  # whatever hinders executors, the requests are answered
                there = self._elsewhere(work)
                soon = asyncio.get_running_loop().call_soon_threadsafe
                there.add_done_callback(
                    lambda done: _unless_closed(soon, self._landed, block, step, done.result)
                )
                return
        self._landed(block, step, work)

    def _landed(self, block: list[GraphRequest], step: Step, result: Callable[[], Any]) -> None:
        """Give requests what came out of a step; where a block fails, each by itself."""
        try:
            made = result()
        except (Exception, SystemExit) as problem:  # noqa: BLE001 (it is told to whom it belongs)
            if len(block) == 1:
                self.fail(block[0], self._explained(step, problem))
                return
            for request in block:
                if request.open:
                    self._together(step, [request])
            return
        for request, answers in zip(block, made or (), strict=False):
            for item in step.gives:
                request.values.give(item, answers[name_of(item)])
        for request in block:
            self._done(request, step)

    # --- fetches -----------------------------------------------------------------------------

    async def _one(self, request: GraphRequest, step: Step, values: list[Any]) -> None:
        """The fetch of a single row."""
        assert request.known is not None, "it is one"
        assert self._by_row is not None, "rows are taken where they can be"
        op, start = step.op, time.monotonic()
        step.calls += 1
        step.rows += 1
        try:
            if op.together:
                values = [np.asarray([value]) for value in values]
            read = tuple(values[: len(values) - op.spare])
            answer = await self._row(request, step, read, [[values[-1]]], 0)
            if op.together:
                answer = op.column(answer)[0]
            value = self._by_row.answer(step.nodes[0], answer)
            step.took(time.monotonic() - start)
        except BaseException as problem:  # noqa: BLE001 (it is the request's)
            self.fail(request, self._explained(step, problem))
            return
        request.known[step.nodes[0]] = value
        self._done(request, step)

    async def _rows(self, request: GraphRequest, step: Step, inputs: list[Columns]) -> None:
        """Every row of a fetch, at the same time."""
        op, calls, start = step.op, step.op.rows_of(inputs), time.monotonic()
        step.calls += 1
        step.rows += (rows := row_count(inputs[0]))
        try:
            if len(calls) == 1:
                answers = [await self._row(request, step, calls[0], inputs, 0)]
            else:
                answers = await all_of(
                    self._row(request, step, values, inputs, row)
                    for row, values in enumerate(calls)
                )
            value = op.column(answers[0] if op.together else answers)
            step.took(time.monotonic() - start, rows if op.together else None)
        except BaseException as problem:  # noqa: BLE001 (it is the request's)
            while isinstance(problem, GROUP):
                problem = problem.exceptions[0]
            self.fail(request, self._explained(step, problem))
            return
        request.values.give(step.nodes[0], value)
        self._done(request, step)

    async def _row(
        self,
        request: GraphRequest,
        step: Step,
        values: tuple[Any, ...],
        inputs: list[Columns],
        row: int,
    ) -> Any:
        """A fetch's answer for one row, or its substitute."""
        op = step.op
        key = (step.number, _key(values)) if op.keep else None
        if key is not None:
            until, known = self._kept.get(key, (0.0, None))
            if until > time.monotonic():
                return known
        tries = Tries()
        try:
            async with time_limit(op.deadline or None) as whole:
                answer = await self._tried(request, step, values, tries)
        except Exception as problem:
            if op.spare:
                return inputs[-1] if op.together else inputs[-1][row]
            if not op.otherwise:
                if not (isinstance(problem, TimeoutError) and whole.expired()):
                    raise
                if tries.problem is not None and not tries.asking:  # it did answer: with errors
                    raise tries.problem from tries.problem.__cause__
                raise tries.passed(step, whole=True) from (tries.problem or problem)
            return [op.fallback] * len(inputs[0]) if op.together else op.fallback
        if key is not None:
            self._kept[key] = (time.monotonic() + op.keep, answer)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return answer

    async def _tried(
        self, request: GraphRequest, step: Step, values: tuple[Any, ...], tries: Tries
    ) -> Any:
        """One answer after as many tries as are allowed; it has the type that was promised."""
        op, pause = step.op, step.op.backoff
        limits, client = self._limits[step.number], _key(values[-1:]) if step.op.per else None
        for left in reversed(range(op.retries + 1)):
            limit = time_limit(op.timeout or None)
            try:
                async with limits.at(client), limit:
                    tries.begun += 1
                    tries.asking = True
                    answer = await op.ask(*values)
                if type(answer) is not self._plain[step.number]:
                    answer = op.checked(answer, values)
            except Exception as problem:
                tries.asking = False
                is_late = isinstance(problem, TimeoutError) and limit.expired()
                if not left and is_late:
                    raise tries.passed(step) from (tries.problem or problem)
                if not left:
                    raise
                if not is_late:
                    tries.problem = request.problem = problem
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)
            else:
                if request.problem is tries.problem:  # it is overcome
                    request.problem = None
                return answer
        raise AssertionError("the last try has answered or raised")

    def _explained(self, step: Step, problem: BaseException) -> BaseException:
        """An error that says in which node of which graph it happened."""
        if step.kind != "fetch" and isinstance(problem, FlourError):
            return unquoted(problem) if step.number in self._fetched else problem
        problem = _meant(problem)
        name = step.op.label if step.kind == "fetch" else step.title
        late = isinstance(problem, TimeoutError)
        # Texts of others' errors stay here: they may tell addresses, and what stands in stores.
        said = str(problem) if isinstance(problem, LimitPassed) else type(problem).__name__
        said = str(problem.found) if isinstance(problem, WrongAnswer) else said
        failed = NodeFailed(
            f"node {name!r} {'did not answer in time' if late else 'failed'}",
            where=f"{self.name}.{name}",
            found=said[:200],
            hint=(problem.hint if isinstance(problem, SchedulerError) else None)
            or "otherwise= names a value to go on with; retries= asks again",
        )
        failed.__cause__ = problem
        failed.late = late
        return failed


def _before(problem: Exception | None) -> str:
    """The outcome of the previous try, for a text that clients read."""
    return "" if problem is None else f"; a try before ended with {type(_meant(problem)).__name__}"


def _meant(problem: BaseException) -> BaseException:
    """The error that a coroutine has raised."""
    return (isinstance(problem, CoroutineEnded) and problem.__cause__) or problem


def _unless_closed(soon: Callable[..., object], *call: object) -> None:
    """Tell a loop, unless it has been closed: then nothing waits there."""
    with suppress(RuntimeError):
        soon(*call)


def _count(request: GraphRequest, step: Step) -> int:
    """The number of rows of a request that go through a step."""
    if request.known is not None:
        return int(taken(step, request.known, request.chosen))
    count: int = request.values.count(step.path)
    return count


def gathered(step: Step, values: Values) -> dict[str, Columns]:
    """Inputs of a plan's step, for the rows that it runs for."""
    assert step.form is not None, "a plan has one"
    return step.form.given({item: values.at(item, step.path) for item in step.reads})


def _plain(op: Any) -> type | None:
    """The type of answers that are right as they are."""
    if op.together or len(op.within) or not isinstance(op.gives, Scalar):
        return None
    return {"float64": float, "string": str}.get(op.gives.dtype)


def _key(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(
        (each.dtype.str, each.tobytes()) if hasattr(each, "tobytes") else (type(each), repr(each))
        for each in values
    )
