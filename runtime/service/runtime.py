"""The runtime: many plans in one process, by name.

with Runtime() as runtime:
    runtime.register("fraud", plan)
    runtime.predict("fraud", row)["probabilities"]
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, TracebackType
from typing import Any, Self

import numpy as np

import oven
from flour.language.flow import Flow
from objectstore import MemoryStore, Store
from oven import Plan
from oven.compiler import cache
from oven.compiler.gil_yield import WAITING, yield_gil
from oven.entry.array_entry import Call as Entry
from oven.run.native_run import thread_bytes
from runtime.errors import BadRegistration, RuntimeClosed
from runtime.service import batches
from runtime.service.catalog import Catalog
from runtime.service.choice import ANY, DIRECT_SECONDS, Call
from runtime.service.done_future import DoneFuture
from runtime.service.endpoint import Endpoint, Endpoints
from runtime.service.engines import Answers, Engines, in_time, shaped
from runtime.service.inputs import as_block, refuse_extra, row_count
from runtime.service.materialise import Materialiser
from runtime.service.memory import Residency
from runtime.service.native_predict import open_native_predict
from runtime.service.stats import RuntimeStats, explained, version_stats
from runtime.service.unwrap import unwrapped
from runtime.service.version import INLINE_SAMPLE, SAMPLE, SHORT_CHARACTERS, VALUES, ModelVersion
from scheduler import Decision, Engine, QueueRules, Settings

#: What sub-plan materialisation may keep, unless told otherwise.
RESULT_BYTES = 32 << 20
#: A look at the clock, and at what is due, is a fifth of such a call.
SLOW_SECONDS = 20e-6
_REST = SAMPLE - 1


def _is_short(data: Any, served: ModelVersion) -> bool:
    """Whether this is a document, a row of values, or few rows in arrays, as the plan reads."""
    kind = type(data)
    if kind is dict:  # which has to be a row, with the right names, or a few rows in arrays
        first = next(iter(data.values()), None)
        if type(first) is np.ndarray:
            return 0 < first.ndim <= 2 and len(first) <= max(served.few, 1)
        return bool(data) and data.keys() == served.columns and type(first) in VALUES
    if not served.vector:
        return (kind is str or kind is bytes) and served.text
    if kind is np.ndarray:
        dimensions = data.ndim
        return dimensions == 1 or (dimensions == 2 and len(data) <= served.few)
    return (kind is list or kind is tuple) and bool(data) and type(data[0]) in served.first


def _is_long(data: Any) -> bool:
    """Whether this is a document that takes longer than others do."""
    return type(data) is str and len(data) > SHORT_CHARACTERS


def _rows(data: Any, served: ModelVersion) -> int:
    """How many rows that is, which is short."""
    if served.text and type(data) is list:
        return len(data)
    if type(data) is dict:
        data = next(iter(data.values()))
        return len(data) if isinstance(data, np.ndarray) else 1
    return len(data) if isinstance(data, np.ndarray) and data.ndim == 2 else 1


def _shortened(data: Any, served: ModelVersion) -> Any:
    """What is short in what a caller wrapped, or None."""
    if served.is_few(data):
        return data
    found = unwrapped(served.inputs, data)
    if (type(found) is list and served.text) or _is_short(found, served):
        return found
    return None


NOT_HERE = "its code or its parameters are not here yet, and the caller must not be held up"


def _has_width(data: Any) -> bool:
    """Whether what is short comes in arrays; numbers of another width have code of their own."""
    if type(data) is dict:
        data = next(iter(data.values()))
    return isinstance(data, np.ndarray)


def _is_here(served: ModelVersion, block: Any) -> bool:
    """Whether a call need wait for no file and no compiler."""
    plan = served.plan
    return plan is not None and plan.is_compiled_for(block)


class Runtime:
    """Registers plans as endpoints and answers requests on them, from any thread."""

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        store: Store | None = None,
        executors: int | None = None,
        memory_budget: int | None = None,
        *,
        result_bytes: int = RESULT_BYTES,
        spill: str | Path | None = None,
        rules: QueueRules | None = None,
        settings: Settings | None = None,
        inline_limit: int | None = None,
        owner: str = "",
    ) -> None:
        """Make a runtime; threads are started when they are first needed.

        Parameters live in `store` (in this process, if none is given), under owners called
        `owner` + "name@version". Plans beyond `memory_budget` bytes are dropped and brought back;
        those that came from no file are written to the directory `spill`. `result_bytes` bounds
        what is kept of common parts of plans. At most `inline_limit` callers compute at once on
        their own threads, apart from single rows by the shortest way.
        """
        self._own_store = store is None
        self.store = MemoryStore() if store is None else store
        self._endpoints = Endpoints()
        self._routes = self._endpoints.routes
        self._engines = Engines(
            executors, rules=rules, settings=settings, inline_limit=inline_limit
        )
        self._catalog = Catalog(self.store, owner, gone=self._engines.forget)
        self._memory = Residency(memory_budget, self._catalog, Path(spill) if spill else None)
        self._materialiser = Materialiser(result_bytes)
        self._memory.on_drop = self._materialiser.part
        self._closed = self._gated = False

    # --- registering -------------------------------------------------------------------------

    def register(  # noqa: PLR0913 (each has a default)
        self,
        name: str,
        source: Plan | Flow | str | Path,
        version: str | int | None = None,
        *,
        reserve: bool | int = False,
        activate: bool = True,
        exact: bool = False,
        background: bool = False,
        replace: bool = False,
        notes: Mapping[str, object] | None = None,
    ) -> str:
        """Serve a plan, a program or the file of a plan; the version it got.

        It answers the endpoint's requests from now on, or with `activate=False` only those that
        name its version, until `switch`. `reserve` gives it as many executors of its own. `exact`
        and `background` are those of `oven.bake`, for a program. With `replace`, a version of this
        name gives way in one step: a request is answered by the one or by the other. `notes` are
        for front ends, as `platform` and `default_outputs` are for the one of runtime.http.
        """
        self._check_open()
        self._catalog.sweep()
        number = self._endpoints.next_version(name) if version is None else str(version)
        self._endpoints.check(name, number, replace=replace)
        start, compiled = time.perf_counter(), cache.counters.compile_seconds
        plan, path = self._plan(source, exact=exact, background=background)
        # What bringing it back would take: its code stays, so compiling is no part of that.
        compiled = cache.counters.compile_seconds - compiled
        seconds = 0.0 if path is None else time.perf_counter() - start - compiled
        written = None
        if path is None:
            plan, written = self._memory.mapped(plan, background=background)
        served = ModelVersion(name, number, plan, reserved=int(reserve))
        served.path = path
        if written is not None:
            self._memory.own(served, written)
        served.notes = dict(notes or {})
        former = self._endpoints.claim(served, replace=replace)
        try:
            if former is not None:  # what both are known by is the new one's
                self._part(former)
            self._admit(served, plan)
        except BaseException:
            self._endpoints.disclaim(served)
            raise
        self._endpoints.add(served, activate=activate)
        self._memory.admit(served, plan, seconds)
        if former is not None:
            former.retired = True
            self._memory.forget(former)
        return number

    def _plan(self, source: object, *, exact: bool, background: bool) -> tuple[Plan, Path | None]:
        match source:
            case Plan():
                return source, None
            case Flow():
                return oven.bake(source, exact=exact, background=background), None
            case str() | Path():
                store = None if isinstance(self.store, MemoryStore) else self.store
                path = Path(source).absolute()
                return oven.load(path, store=store, background=background), path
        raise BadRegistration(
            "this is no plan, program or file of a plan",
            found=type(source).__name__,
            hint="an estimator is imported first: flour.from_sklearn(estimator)",
        )

    def _admit(self, served: ModelVersion, plan: Plan) -> None:
        self._catalog.admit(served, plan)
        served.open()  # where native code cannot be made, this says so
        self._open_gate(served)
        if served.reserved:
            self._engines.reserve(served)
        self._materialiser.join(served, plan)

    def _open_gate(self, served: ModelVersion) -> None:
        """Let machine code stand in for `predict`, once there is an entry of that kind."""
        if self._gated or type(served.call) is not BuiltinFunctionType:
            return
        self._gated = True
        if type(self).predict is Runtime.predict:  # somebody else's means something else
            made = open_native_predict(self._routes, partial(Runtime.predict, self), self._timed)
            if made is not None:
                vars(self)["predict"] = made

    def unregister(self, name: str, version: str | int | None = None) -> None:
        """Take out a version, or the endpoint with all its versions.

        Requests that were accepted get their answers; nothing is waited for.
        """
        self._check_open()
        self._retire(self._endpoints.remove(name, None if version is None else str(version)))
        self._catalog.sweep()

    def _retire(self, gone: list[ModelVersion]) -> None:
        for served in gone:
            served.retired = True
            self._part(served)
            self._memory.forget(served)

    def _part(self, served: ModelVersion) -> None:
        """A version gives up executors of its own, and what it has in common with others."""
        if served.reserved:
            self._engines.release(served)
        self._materialiser.leave(served)

    def switch(self, name: str, version: str | int) -> None:
        """Let another version answer the endpoint's requests, from the next one on."""
        self._check_open()
        self._endpoints.switch(name, str(version))

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint with its versions."""
        return self._endpoints.list()

    def versions(self) -> dict[str, ModelVersion]:
        """Every registered version, by "name@version"; for those who look, as `find` is."""
        return {each.owner: each for each in self._endpoints.all()}

    # --- answering ---------------------------------------------------------------------------

    def predict(
        self,
        name: str,
        data: Any,
        *,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        engine: str | None = None,
    ) -> Answers:
        """The outputs by name: arrays for a block of rows, values for a single row.

        `name` is an endpoint, or "endpoint@version". `outputs` picks some; after `timeout`
        seconds a call that waits is given up with DeadlineExceeded; a higher `priority` goes
        first among what waits for executors; `engine` is "inline" or "batch", just this once.
        """
        served = self._routes.get(name) or self._find(name)
        if outputs is None and timeout is None and priority is None and engine is None:
            call = served.call
            if call is not None:
                short = data if _is_short(data, served) else _shortened(data, served)
                if short is not None:
                    if served.tick() & _REST:
                        return dict(zip(served.outputs, call(short)))  # noqa: B905 (costs as much)
                    return self._timed(served, call, short)
            return self._answer(served, data, ANY)
        return self._answer(served, data, Call.of(served, outputs, timeout, priority, engine))

    def _timed(self, served: ModelVersion, call: Entry, data: Any) -> Answers:
        """A call by the shortest way, with a look at the clock and at what is due."""
        start = served.clock()
        answers = dict(zip(served.outputs, call(data), strict=True))
        seconds = served.clock() - start
        rows = _rows(data, served)
        served.slow = seconds > SLOW_SECONDS
        self._look(served, seconds, rows)
        served.read(data, seconds)
        return answers

    def find(self, name: str) -> ModelVersion:
        """What answers under this address now; a front end may call it in its name's place.

        A call that was looked up so ends on this version, whatever is switched meanwhile.
        """
        return self._routes.get(name) or self._find(name)

    def quick(self, served: ModelVersion, data: Any) -> tuple[Any, ...] | None:
        """The outputs by the shortest way, in their order; None where another way has to be taken.

        For a row of numbers, or a block of few rows, as `predict` takes them.
        """
        if WAITING[0]:
            yield_gil()
        call = served.call
        if call is None or not _is_short(data, served):
            return None
        if served.tick() & _REST:
            return call(data)
        return tuple(self._timed(served, call, data).values())

    def submit(
        self,
        name: str | ModelVersion,
        data: Any,
        *,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        engine: str | None = None,
    ) -> Future[Answers]:
        """A future for what `predict` would answer; this call waits for nothing.

        What is over at once has been done when it returns. Data that the plan cannot take, and a
        full queue, are errors of this call.
        """
        if WAITING[0]:
            yield_gil()
        served = self._find(name)
        if outputs is None and timeout is None and priority is None and engine is None:
            at_once = self._at_once(served, data)
            if at_once is not None:
                return DoneFuture(at_once)
        call = Call.of(served, outputs, timeout, priority, engine, blocking=False)
        self._engines.check_early(served, call, data)
        block, single, decision = self._decided(served, data, call)
        if decision.engine is Engine.BATCH:
            return self._submit(served, block, decision, call, single=single)
        made: Future[Answers] = Future()
        try:
            made.set_result(
                self._inline(served, block, call, single=single, few=decision.chunk_rows)
            )
        except Exception as error:  # noqa: BLE001 (it is the future's)
            made.set_exception(error)
        return made

    async def apredict(
        self,
        name: str,
        data: Any,
        *,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (a deadline for the executors)
        priority: int | None = None,
        engine: str | None = None,
    ) -> Answers:
        """What `predict` answers, for event loops: they are held up for some microseconds only.

        Cancelling the task gives the call up.
        """
        import asyncio  # it takes 30 ms, and who awaits this has it

        if WAITING[0]:
            yield_gil()
        served = self._find(name)
        if outputs is None and timeout is None and priority is None and engine is None:
            at_once = self._at_once(served, data)
            if at_once is not None:
                return at_once
        call = Call.of(served, outputs, timeout, priority, engine, blocking=False)
        self._engines.check_early(served, call, data)
        block, single, decision = self._decided(served, data, call)
        if decision.engine is Engine.INLINE:
            return self._inline(served, block, call, single=single, few=decision.chunk_rows)
        return await asyncio.wrap_future(self._submit(served, block, decision, call, single=single))

    def predict_batch(
        self,
        name: str,
        blocks: Iterable[Any],
        *,
        outputs: str | Iterable[str] | None = None,
        priority: int | None = None,
        ahead: int | None = None,
    ) -> Iterator[Answers]:
        """The answers for blocks of rows, one by one and in order, by the executors.

        For data larger than memory: at most `ahead` blocks (two for each executor) are on their
        way, and a version that is switched or unregistered meanwhile answers to the end.
        """
        served = self._find(name)
        call = Call.of(served, outputs, None, priority, Engine.BATCH.value)

        def submit(data: Any) -> Future[Answers]:
            block, single, decision = self._decided(served, data, call)
            return self._submit(served, block, decision, call, single=single)

        return batches.answers(submit, blocks, ahead or 2 * self._engines.executors)

    # --- the way of a call -------------------------------------------------------------------

    def _at_once(self, served: ModelVersion, data: Any) -> Answers | None:
        """The answers by the shortest way for callers that must not be held up, or None.

        Data that the entry refuses is None, too: it takes the long way, which says what is wrong.
        """
        call = served.call
        if call is None or not served.soon:
            return None
        if _is_long(data) or not (_is_short(data, served) or served.is_few(data)):
            return None
        if _has_width(data) and not _is_here(served, data):
            return None
        try:
            if served.tick() & _REST:
                return dict(zip(served.outputs, call(data)))  # noqa: B905 (costs as much)
            return self._timed(served, call, data)
        except Exception:  # noqa: BLE001 (it is raised again)
            return None

    def _find(self, name: str | ModelVersion) -> ModelVersion:
        self._check_open()
        if self._catalog.departed:
            self._catalog.sweep()
        return name if isinstance(name, ModelVersion) else self._endpoints.find(name)

    def _answer(self, served: ModelVersion, data: Any, call: Call) -> Answers:
        if call is ANY and (served.call is not None or (served.shared and served.direct)):
            block, single = as_block(served.inputs, data)
            # There is nothing to decide: what is not cut gains nothing from executors.
            if single or (served.mixes_rows and self._engines.calm):
                if type(block) is not dict or not block.keys() <= served.columns:
                    refuse_extra(served.inputs, block)
                return self._inline(served, block, call, single=single)
        block, single, decision = self._decided(served, data, call)
        if decision.engine is Engine.INLINE:
            return self._inline(served, block, call, single=single, few=decision.chunk_rows)
        return self._submit(served, block, decision, call, single=single).result()

    def _decided(self, served: ModelVersion, data: Any, call: Call) -> tuple[Any, bool, Decision]:
        if call.engine is Engine.BATCH:
            self._engines.check_room(served, call.priority)
        block, single = as_block(served.inputs, data)
        refuse_extra(served.inputs, block)
        rows = 1 if single else row_count(block)
        decision = self._engines.choose(served, call, rows)
        if not call.blocking and call.engine is None:
            here = decision.engine is Engine.INLINE
            if here or single:  # a row is over no later than a block of them
                served.soon = here
        if decision.engine is Engine.INLINE and not (call.blocking or _is_here(served, block)):
            decision = decision._replace(engine=Engine.BATCH, why=NOT_HERE)
            served.decision = decision
        return block, single, decision

    def _submit(
        self, served: ModelVersion, block: Any, decision: Decision, call: Call, *, single: bool
    ) -> Future[Answers]:
        if not (call.blocking or _is_here(served, block)):
            run = partial(self._late, served)
            return self._engines.submit_whole(served, run, block, decision, call, single=single)
        plan = self._memory.take(served, pin=True)
        return self._engines.submit(
            served, plan, block, decision, call, single=single, done=served.unpin
        )

    def _late(self, served: ModelVersion, block: Any) -> Answers:
        """Bring back what a call needs and nobody could wait for, and answer it."""
        return self._memory.take(served).run(block)

    def _inline(
        self, served: ModelVersion, block: Any, call: Call, *, single: bool, few: int = 1
    ) -> Answers:
        plan, shared = self._memory.take(served), served.shared
        rows = 1 if single else max(row_count(block), 1)
        run = plan.run if shared is None else partial(shared.run, plan, served.entry, rows)
        if call.deadline is not None and rows > few and plan.ready:
            run = partial(in_time, plan, few, call.deadline)
        sampled = not served.tick() & (INLINE_SAMPLE - 1)
        start = served.clock() if sampled else 0.0
        answers = self._engines.inline(run, block, rows, call.deadline)
        if sampled:
            seconds = served.clock() - start
            self._look(served, seconds, rows, INLINE_SAMPLE)
            served.read(block, seconds)
        return shaped(answers, call, single=single)

    def _look(self, served: ModelVersion, seconds: float, rows: int, calls: int = SAMPLE) -> None:
        """Now and then: learn what a call takes, and do what is due."""
        self._engines.observe(served, rows, seconds)
        served.took(rows, seconds)
        if self._catalog.departed:
            self._catalog.sweep()
        self._materialiser.consider(served, seconds, rows, calls)
        self._memory.rebook(served)
        if rows == 1:
            served.direct = seconds < DIRECT_SECONDS
            served.soon = seconds <= self._engines.settings.instant
        if served.direct is not (served.call is not None):
            served.open()

    # --- looking ------------------------------------------------------------------------------

    def stats(self) -> RuntimeStats:
        """What was done so far, and what is there now."""
        every = self._endpoints.all()
        inline, batch = self._engines.stats()
        return RuntimeStats(
            versions=tuple(
                version_stats(
                    served, self._engines, in_service=self._routes.get(served.name) is served
                )
                for served in every
            ),
            inline=inline,
            batch=batch,
            catalog=self._catalog.stats(),
            memory=self._memory.stats(len(every)),
            groups=self._materialiser.stats(),
            result_bytes=self._materialiser.results.used,
            thread_bytes=thread_bytes(),
        )

    def expected(self, served: ModelVersion, rows: int) -> float | None:
        """The seconds that a call with this many rows should take; None if nothing is known."""
        found = self._engines.estimate(served, rows)
        return None if found is None else found.seconds

    def explain(
        self, name: str, rows: int = 1, *, timeout: float | None = None, blocking: bool = True
    ) -> str:
        """Which engine a call with this many rows would go to now, and why, in words."""
        served = self._find(name)
        call = Call.of(served, timeout=timeout, blocking=blocking)
        return explained(served, self._engines.choose(served, call, rows, note=False), rows)

    # --- the end ------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeClosed("this runtime was closed", hint="it takes no more calls")

    def close(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Take no more calls, and end; whether the executors ended in time.

        With `drain`, what was accepted is answered first, for up to `timeout` seconds; without,
        or after that, it is cancelled. Either way every future is resolved.
        """
        if self._closed:
            return True
        self._closed = True
        vars(self).pop("predict", None)  # it refers to this runtime, as this does to it
        gone = self._endpoints.clear()
        ended = self._engines.close(drain=drain, timeout=timeout)
        for served in gone:
            self._materialiser.leave(served)
        self._memory.close()
        self._catalog.close()
        if self._own_store:
            self.store.close()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(drain=error is None)

    def __repr__(self) -> str:
        return f"Runtime({len(self._endpoints.list())} endpoints)"
