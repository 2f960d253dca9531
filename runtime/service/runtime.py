"""The runtime: many plans in one process, by name.

with Runtime() as runtime:
    runtime.register("fraud", plan)
    runtime.predict("fraud", row)["probabilities"]
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Self
from weakref import ref

import oven
from flour.core.errors import FlourError
from flour.data.batch import Batch
from flour.language.flow import Flow
from flour.language.graph_file import is_graph_file, load_graph
from objectstore import MemoryStore, Store
from oven import Plan
from oven.compiler import cache
from oven.compiler.gil_yield import WAITING, yield_gil
from oven.entry.builtin import learn_release
from oven.run.helpers import desk
from oven.run.native_run import thread_bytes
from runtime.errors import BadRegistration, RuntimeClosed
from runtime.service import batches
from runtime.service.call import NONBLOCKING, PLAIN, Call
from runtime.service.catalog import Catalog
from runtime.service.costs import Costs
from runtime.service.done_future import DoneFuture, done
from runtime.service.engines import Answers, Engines, check_modules, check_options, shaped
from runtime.service.entry import INLINE_SAMPLE, RELEASE_SECONDS, SAMPLE, UNTIMED, Outputs
from runtime.service.graphs import DRAIN_SECONDS, Graphs, is_graph, waits
from runtime.service.materialise import Materialiser
from runtime.service.memory import Residency
from runtime.service.native_predict import open_native_predict
from runtime.service.policy import BY_ENTRY, Choice, Policy, Way
from runtime.service.routed import RoutedEndpoints, options_of
from runtime.service.stats import RuntimeStats, explained, version_stats
from runtime.service.version import ModelVersion
from scheduler import Engine, QueueRules, Settings, is_executor

if TYPE_CHECKING:
    from runtime.graph.facts import GraphFacts
    from runtime.graph.links import Linked

RESULT_BYTES = 32 << 20  # what materialisation may keep, unless told otherwise


class Runtime(RoutedEndpoints):
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
        trust_code: bool = False,
        allow_python: Sequence[str] = (),
    ) -> None:
        """Make a runtime; threads are started when they are first needed.

        Parameters live in `store` (in this process, if none is given), under owners called `owner`
        + "name@version". Plans beyond `memory_budget` bytes are dropped and brought back; those
        from no file are written to the directory `spill`. `result_bytes` bounds what is kept of
        common parts of plans. At most `inline_limit` callers compute at once. Files of graphs may
        name coroutines of the modules `allow_python`.
        """
        check_options(executors, memory_budget, trust_code, allow_python)
        self._own_store, self._trust_code = store is None, trust_code
        self._allow_python = check_modules(allow_python)
        self.store = MemoryStore() if store is None else store
        self._costs = Costs()
        self._engines = Engines(executors, self._costs, rules=rules, inline_limit=inline_limit)
        super().__init__(self._engines)
        self._policy = Policy(self._engines, self._costs, settings)
        self._catalog = Catalog(self.store, owner, gone=self._costs.forget)
        self._memory = Residency(memory_budget, self._catalog, Path(spill) if spill else None)
        self._materialiser = Materialiser(result_bytes)
        self._memory.on_drop = self._materialiser.part
        self._graphs = Graphs(self._endpoints, self._memory.take, self.register, self._engines)
        self._switched = self._graphs.changed
        self._closed = self._has_native = False

    def register(  # noqa: PLR0913 (each has a default)
        self,
        name: str,
        source: Plan | Flow | str | Path,
        version: str | int | None = None,
        *,
        reserve: bool | int = False,
        activate: bool = True,
        exact: bool = False,
        background: bool | None = None,
        replace: bool = False,
        notes: Mapping[str, object] | None = None,
    ) -> str:
        """Serve a plan, a program, a graph or the file of a plan; the version it got.

        It answers the endpoint's requests from now on. With `activate=False`, or where a route says
        what answers, only those that name its version. `reserve` gives it executors of its own;
        `exact` and `background` are those of `oven.bake`, for a program. With `replace`, a version
        of this name gives way in one step. `notes` are for front ends, such as `default_outputs`.
        """
        self._check_open()
        self._catalog.sweep()
        number = self._endpoints.next_version(name) if version is None else str(version)
        self._endpoints.check(name, number, replace=replace)
        start, compiled = time.perf_counter(), cache.counters.compile_seconds
        owner = f"{name}@{number}"
        plan, path, linked = self._plan(source, exact, background, owner)
        compiled = cache.counters.compile_seconds - compiled
        if replace:
            self._graphs.check_fits(owner, plan)
        seconds = 0.0 if path is None else time.perf_counter() - start - compiled
        plan, written = (plan, None) if path else self._memory.mapped(plan, background=background)
        notes = self._graphs.notes(linked, plan, notes)
        model = ModelVersion(name, number, plan, reserved=reserve, notes=notes)
        model.residence.path = path
        if written is not None:
            self._memory.own(model, written)
        former = self._endpoints.claim(model, replace=replace)
        try:
            if former is not None:  # what both are known by is the new one's
                self._part(former)
            self._admit(model, plan)
        except BaseException:
            self._endpoints.disclaim(model)
            raise
        self._endpoints.add(model, activate=activate and not self.has_route(name))
        if former is not None or model.private:
            self.mirrors.refresh(name)
            self._conceal(name)
        self._memory.admit(model, plan, seconds)
        if former is not None:
            former.residence.retired = True
            self._memory.forget(former)
        self._graphs.registered(model, linked)
        return number

    def _plan(
        self,
        source: object,
        exact: bool,  # noqa: FBT001 (an option of every function about a bake)
        background: bool | None,  # noqa: FBT001 (as above)
        owner: str,
    ) -> tuple[Plan, Path | None, Linked | None]:
        """The plan to be served, the file it is in, and the models that a graph uses."""
        if isinstance(source, Plan) and waits(source):
            exact, source = source.exact, source.flow
        if isinstance(source, str | Path) and is_graph_file(source):
            source = load_graph(source, allow_python=self._allow_python)
        match source:
            case Plan():
                return source, None, None
            case Flow() if is_graph(source):
                plan, linked = self._graphs.plan(owner, source, exact=exact, background=background)
                return plan, None, linked
            case Flow():
                return oven.bake(source, exact=exact, background=background), None, None
            case str() | Path():
                store = None if isinstance(self.store, MemoryStore) else self.store
                path, trust = Path(source).absolute(), self._trust_code
                plan = oven.load(path, store=store, background=background, trust_code=trust)
                return plan, path, None
        raise BadRegistration(
            "this is no plan, program or file of a plan",
            found=type(source).__name__,
            hint="an estimator is imported first: flour.from_sklearn(estimator)",
        )

    def _admit(self, version: ModelVersion, plan: Plan) -> None:
        self._catalog.admit(version, plan)
        version.open()  # where native code cannot be made, this says so
        plan.when_ready(partial(_settle, ref(self), ref(version)))
        if version.reserved:
            self._engines.reserve(version)
        self._materialiser.join(version, plan)

    def _open_native_predict(self, version: ModelVersion) -> None:
        """Let machine code stand in for `predict`, once there is an entry of that kind."""
        is_native = type(version.entry.function) is BuiltinFunctionType
        if self._closed or self._has_native or not is_native:
            return
        self._has_native = True
        if type(self).predict is Runtime.predict:  # a subclass may answer with something else
            general = partial(Runtime.predict, self)
            timed, mirrors = self._timed_natively, self._shadows.mirrors
            native = open_native_predict(self._routes, mirrors, general, timed, self.mirrors.note)
            if native is not None:
                vars(self)["predict"] = native

    def unregister(self, name: str, version: str | int | None = None) -> None:
        """Take out a version, or the endpoint with all its versions.

        Requests that were accepted get their answers; nothing is waited for.
        """
        self._check_open()
        number = None if version is None else str(version)
        self._graphs.check_free(name, number)
        self._retire(self._removed(name, number))
        self._catalog.sweep()

    def _retire(self, gone: list[ModelVersion]) -> None:
        for version in gone:
            version.residence.retired = True
            self._part(version)
            self._memory.forget(version)
            self._graphs.removed(version)

    def _part(self, version: ModelVersion) -> None:
        """A version gives up executors of its own, and what it has in common with others."""
        if version.reserved:
            self._engines.release(version)
        self._materialiser.leave(version)

    def graph(self, owner: str) -> GraphFacts | None:
        """The models and steps of a graph, by its address, and why it has not followed a model."""
        return self._graphs.facts(owner)

    def predict(  # noqa: PLR0913 (each has a default)
        self,
        name: str,
        data: object,
        *,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        engine: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str = "",
    ) -> Answers:
        """The outputs by name: arrays for a block of rows, values for a single row.

        `name` is an endpoint, or "endpoint@version". `outputs` picks some; after `timeout`
        seconds a call that waits is given up with DeadlineExceeded; a higher `priority` goes
        first among what waits for executors; `engine` is "inline" or "batch", just this once.
        `headers` (with names in lower case) and `tenant` are what a route may choose a version by.
        """
        version = self._routes.get(name)
        if version is None:
            options = options_of(outputs, timeout, priority, engine)
            return self._predict_by_route(name, data, headers, tenant, options)
        call = PLAIN
        if not (outputs is None is timeout and priority is None is engine):
            call = Call.of(version, outputs, timeout, priority, engine)
        if version.waits:
            return self._graphs.submit(version, data, call, apart=True).result()
        batch = version.read(data)
        choice = self._policy.choose(batch, version, call)
        if choice is BY_ENTRY:
            values = self._by_entry(version, batch)
            if values is not None:
                return dict(zip(version.outputs, values))  # noqa: B905 (checking costs as much)
        return self._answer(version, batch, choice, call)

    def find(self, name: str) -> ModelVersion:
        """What answers under this address now (of a route, the champion); `submit` takes it.

        A call of it ends on this version, whatever is switched meanwhile.
        """
        return self._routes.get(name) or self._find(name)

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs by the plan's entry, in their order; None where another way has to be taken.

        For a row, or a block of few rows, as `predict` takes them; on the thread of an event loop.
        """
        if WAITING[0]:
            yield_gil()
        entry = version.entry
        if entry.function is None or not entry.takes(batch):
            return None
        return self._by_entry(version, batch)

    def submit(  # noqa: PLR0913 (each has a default)
        self,
        name: str | ModelVersion,
        data: object,
        *,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        engine: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str = "",
    ) -> Future[Answers]:
        """A future for what `predict` would answer; this call waits for nothing.

        What is over at once has been done when it returns. Data that the plan cannot take, and a
        full queue, are errors of this call.
        """
        if WAITING[0]:
            yield_gil()
        version = self._routes.get(name) if type(name) is str else None
        if version is None:
            if type(name) is str:
                options = options_of(outputs, timeout, priority, engine)
                return self._submit_by_route(name, data, headers, tenant, options)
            version = self._find(name)
        call = NONBLOCKING
        if not (outputs is None is timeout and priority is None is engine):
            call = Call.of(version, outputs, timeout, priority, engine, blocking=False)
        if version.waits:
            return self._graphs.submit(version, data, call)
        batch, choice, values = self._at_once(version, data, call)
        if values is not None:
            return DoneFuture(dict(zip(version.outputs, values)))  # noqa: B905 (as in predict)
        return self._submit(version, batch, choice, call)

    async def apredict(  # noqa: PLR0913 (each has a default)
        self,
        name: str,
        data: object,
        *,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 (a deadline for the executors)
        priority: int | None = None,
        engine: str | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str = "",
    ) -> Answers:
        """What `predict` answers, for event loops: they are held up for some microseconds only.

        Cancelling the task gives the call up.
        """
        import asyncio  # it takes 30 ms, and who awaits this has it

        if WAITING[0]:
            yield_gil()
        if name not in self._routes:
            options = options_of(outputs, timeout, priority, engine)
            coming = self._submit_by_route(name, data, headers, tenant, options)
            return await asyncio.wrap_future(coming)
        version = self._find(name)
        call = NONBLOCKING
        if not (outputs is None is timeout and priority is None is engine):
            call = Call.of(version, outputs, timeout, priority, engine, blocking=False)
        if version.waits:
            return await asyncio.wrap_future(self._graphs.submit(version, data, call))
        batch, choice, values = self._at_once(version, data, call)
        if values is not None:
            return dict(zip(version.outputs, values, strict=True))
        if choice.way is Way.INLINE:
            return self._inline(version, batch, choice, call)
        return await asyncio.wrap_future(self._submit(version, batch, choice, call))

    def predict_batch(
        self,
        name: str,
        blocks: Iterable[object],
        *,
        outputs: str | Iterable[str] | None = None,
        priority: int | None = None,
        ahead: int | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str = "",
    ) -> Iterator[Answers]:
        """The answers for blocks of rows, one by one and in order, by the executors.

        For data larger than memory: at most `ahead` blocks (two for each executor) are on their
        way, and a version that is switched or unregistered meanwhile answers to the end. With a
        route, each block is answered by the version that the route chooses for it.
        """
        version = self._find(name)
        call = Call.of(version, outputs, None, priority, Engine.BATCH.value)
        options = options_of(outputs, None, priority, Engine.BATCH.value)

        def submit(data: object) -> Future[Answers]:
            if name not in self._routes:
                return self._submit_by_route(name, data, headers, tenant, options)
            if version.waits:
                return self._graphs.submit(version, data, call)
            batch = version.read(data)
            choice = self._policy.choose(batch, version, call)
            return self._submit(version, batch, choice, call)

        return batches.answers(submit, blocks, ahead or 2 * self._engines.executors)

    def _find(self, name: str | ModelVersion) -> ModelVersion:
        self._check_open()
        if self._catalog.departed:
            self._catalog.sweep()
        return name if isinstance(name, ModelVersion) else self._endpoints.find(name)

    def _by_entry(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs by the plan's entry; None where it has been closed meanwhile."""
        entry = version.entry
        function = entry.function
        if function is None:
            return None
        number = entry.tick()
        try:
            looked = not number & entry.rest & UNTIMED
            return self._timed(version, batch, number) if looked else function(batch.data)
        except Exception:
            version.refused(batch)
            raise

    def _timed(self, version: ModelVersion, batch: Batch, number: int = 0) -> Outputs | None:
        """A call by the entry that is looked at; of some, with a look at what is due."""
        function = version.entry.function
        if function is None:
            return None
        start = version.clock()
        values = function(batch.data)
        seconds = version.clock() - start
        version.timed(batch, seconds)
        if not number & UNTIMED:
            learn_release(function, batch.rows or 1, long=seconds >= RELEASE_SECONDS)
            self._learn(version, batch, seconds)
        return values

    def _timed_natively(self, version: ModelVersion, data: object, number: int) -> Answers:
        """The same for machine code, which has counted the call."""
        batch = version.read(data)
        try:
            values = self._timed(version, batch, number)
        except Exception:
            version.refused(batch)
            raise
        if values is None:  # closed meanwhile; the version may have gone, too, but has the call
            choice = self._policy.weigh(batch, version, PLAIN)
            return self._answer(version, batch, choice, PLAIN)
        return dict(zip(version.outputs, values, strict=True))

    def _at_once(
        self, version: ModelVersion, data: object, call: Call
    ) -> tuple[Batch, Choice, Outputs | None]:
        """The batch, where it runs, and its outputs if the entry has answered it at once.

        Data that the entry refuses takes another way, where the error says what is wrong.
        """
        batch = data if isinstance(data, Batch) else version.read(data)
        choice = self._policy.choose(batch, version, call)
        if choice is BY_ENTRY:
            try:
                values = self._by_entry(version, batch)
            except Exception:  # noqa: BLE001 (it is raised again)
                values = None
            if values is not None:
                return batch, choice, values
            choice = self._policy.weigh(batch, version, call)
        return batch, choice, None

    def _answer(self, version: ModelVersion, batch: Batch, choice: Choice, call: Call) -> Answers:
        if choice.way is Way.CHUNKS or choice.way is Way.WHOLE:
            return self._submit(version, batch, choice, call).result()
        if choice.way is Way.SHARED:
            return self._shared(version, batch, choice, call)
        return self._inline(version, batch, choice, call)

    def _submit(
        self, version: ModelVersion, batch: Batch, choice: Choice, call: Call
    ) -> Future[Answers]:
        """A future of the answers, by executors; done already where this thread computes them."""
        if choice.way is Way.INLINE or is_executor():  # which might wait for itself
            return done(lambda: self._inline(version, batch, choice, call))
        if choice.way is Way.WHOLE:
            run = partial(self._load_and_run, version)
            return self._engines.submit_whole(version, run, batch, choice.decision, call)
        plan, end = self._memory.take(version, pin=True), version.unpin
        return self._engines.submit(version, plan, batch, choice.decision, call, done=end)

    def _load_and_run(self, version: ModelVersion, block: object) -> Answers:
        """Bring back the plan that the caller could not wait for, and answer the call."""
        return self._memory.take(version).run(block)

    def _shared(self, version: ModelVersion, batch: Batch, choice: Choice, call: Call) -> Answers:
        """The answers of the caller's thread and of executors; the plan stays until it is done."""
        plan = self._memory.take(version, pin=True)
        try:
            answers = self._engines.shared(version, plan, batch.block, choice.decision, call)
        finally:
            version.unpin()
        return shaped(answers, call.outputs, single=batch.single)

    def _inline(self, version: ModelVersion, batch: Batch, choice: Choice, call: Call) -> Answers:
        plan, shared = self._memory.take(version), version.shared
        rows, decision = batch.rows or 1, choice.decision
        opened = version.residence.opened
        run = plan.run if shared is None else partial(shared.run, plan, opened, rows)
        if call.deadline is not None and rows > decision.chunk_rows and plan.ready:
            alone = choice._replace(decision=decision._replace(helpers=0))
            return self._shared(version, batch, alone, call)
        sampled = not version.entry.tick() & (INLINE_SAMPLE - 1) or decision.explores
        start = version.clock() if sampled else 0.0
        answers = self._engines.inline(run, batch.block, rows, call.deadline)
        if sampled:
            self._learn(version, batch, version.clock() - start, INLINE_SAMPLE)
        return shaped(answers, call.outputs, single=batch.single)

    def _learn(
        self, version: ModelVersion, batch: Batch, seconds: float, calls: int = SAMPLE
    ) -> None:
        """Learn from one call in so many what they take, and do what is due."""
        self._policy.learn(version, batch, seconds)
        self._costs.spend(version, seconds * (calls - 1))
        if self._catalog.departed:
            self._catalog.sweep()
        self._materialiser.consider(version, seconds, batch.rows or 1, calls)
        self._memory.rebook(version)
        if version.learned.inline_ok is not (version.entry.function is not None):
            version.open()

    def stats(self) -> RuntimeStats:
        """What was done so far, and what is there now."""
        every = self._endpoints.all()
        inline, batch = self._engines.stats()
        return RuntimeStats(
            versions=tuple(
                version_stats(version, self._costs, in_service=self._endpoints.serves(version))
                for version in every
            ),
            inline=inline,
            batch=batch,
            catalog=self._catalog.stats(),
            memory=self._memory.stats(len(every)),
            groups=self._materialiser.stats(),
            result_bytes=self._materialiser.results.used,
            thread_bytes=thread_bytes() + desk.memory_bytes,
        )

    def expected(self, version: ModelVersion, rows: int) -> float | None:
        """The seconds that a call with this many rows should take; None if nothing is known."""
        return self._costs.seconds(version, rows)

    def explain(
        self, name: str, rows: int = 1, *, timeout: float | None = None, blocking: bool = True
    ) -> str:
        """Which engine a call with this many rows would go to now, and why, in words."""
        version = self._find(name)
        call = Call.of(version, timeout=timeout, blocking=blocking)
        text = explained(version, self._policy.decide(version, call, rows), rows)
        graph = self._graphs.facts(version.owner)
        return "\n".join([text, *graph.lines()]) if graph else text

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
        self._shadows.close()
        self._end_keepers()
        gone = self._endpoints.clear()
        self._graphs.close((DRAIN_SECONDS if timeout is None else timeout) * drain)
        ended = self._engines.close(drain=drain, timeout=timeout)
        for version in gone:
            version.close_watcher()
            self._materialiser.leave(version)
        self._memory.close()
        self._catalog.close()
        if self._own_store:
            self.store.close()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(drain=kind is None)

    def __repr__(self) -> str:
        return f"Runtime({len(self._endpoints.list())} endpoints)"


def _settle(known: ref[Runtime], registered: ref[ModelVersion]) -> None:
    """The code of a version's plan is there: have opened what calls of it go through."""
    runtime, version = known(), registered()
    if runtime is None or version is None:
        return
    try:
        with suppress(FlourError):  # calls of the version raise it
            version.open()
            runtime._open_native_predict(version)  # noqa: SLF001 (a part of the class)
    finally:
        version.settled.set()
