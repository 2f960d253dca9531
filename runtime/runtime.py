"""The runtime: many plans in one process, by name.

with Runtime() as runtime:
    runtime.register("fraud", plan)
    runtime.predict("fraud", row)["probabilities"]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any
from weakref import ref

import oven
from flour.core.errors import FlourError, check_names
from flour.core.types import Vector
from flour.language.flow import Flow
from flour.language.graph_file import is_graph_file, load_graph
from objectstore import MemoryStore, Store
from oven import HasPlan, Plan
from oven.compiler import cache
from oven.run.helpers import desk
from oven.run.native_run import thread_bytes
from runtime.errors import BadRegistration, UnknownEndpoint
from runtime.routing.route import Route, addressed
from runtime.service import batches
from runtime.service.answerers import NOBODY, Asked, InferCall
from runtime.service.call import NONBLOCKING, PLAIN, Call, named_outputs
from runtime.service.catalog import Catalog
from runtime.service.costs import Costs
from runtime.service.direct import Direct
from runtime.service.endpoint import Endpoints
from runtime.service.engines import Answers, Engines, check_modules, check_options
from runtime.service.graphs import DRAIN_SECONDS, Graphs, is_graph, waits
from runtime.service.materialise import Materialiser
from runtime.service.memory import Residency
from runtime.service.native_predict import Predict, open_native_predict
from runtime.service.policy import Policy
from runtime.service.routes import Routes
from runtime.service.stacks import Stacks
from runtime.service.stats import RuntimeStats, explained, version_stats
from runtime.service.version import ModelVersion
from scheduler import Engine, QueueRules, Settings

if TYPE_CHECKING:
    from runtime.graph.links import Linked
    from runtime.provenance import AnswerKeeper
    from runtime.rollout import Rollout
    from runtime.watch import Tap, Watch

RESULT_BYTES = 32 << 20  # what materialisation may keep, unless told otherwise


class Runtime:
    """Registers plans as endpoints and answers requests on them, from any thread.

    endpoints    what is registered: find(name), versions(), ready; iterating gives each endpoint
    routes       which version answers: history(name), put_route, choose, shadow_stats
    experiments  what is compared: compare(name), observe(name, pairs), rollouts
    graphs       what graphs are linked with: facts(name)
    direct       computes what one version answers: the end of every stack of answerers
    """

    __slots__ = {  # noqa: RUF023 (the documentation of a slot)
        "predict": """The outputs by name: arrays for a block of rows, values for a single row.

        predict(name, data, *, outputs=None, timeout=None, priority=None, engine=None,
                headers=None, tenant="")

        `name` is an endpoint, or "endpoint@version". `outputs` picks some; after `timeout`
        seconds a call that waits is given up with DeadlineExceeded; a higher `priority` goes
        first among what waits for executors; `engine` is "inline" or "batch", just this once.
        `headers` (with names in lower case) and `tenant` are what a route may choose a version by.

        It is machine code where some version has an entry of that kind: that answers endpoints
        whose stack has a height of one, and leaves all others to `_predict`.
        """,
        "__dict__": "What a runtime holds.",
        "__weakref__": "Watches refer to a runtime weakly.",
    }

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
        check_options(executors, memory_budget, trust_code, allow_python, result_bytes)
        self._own_store, self._trust_code = store is None, trust_code
        self._allow_python = check_modules(allow_python)
        self.store = MemoryStore() if store is None else store
        self._costs = Costs()
        self._engines = Engines(executors, self._costs, rules=rules, inline_limit=inline_limit)
        self._policy = Policy(self._engines, self._costs, settings)
        self._catalog = Catalog(self.store, owner, gone=self._costs.forget)
        self._memory = Residency(memory_budget, self._catalog, Path(spill) if spill else None)
        self._materialiser = Materialiser(result_bytes)
        self._memory.on_drop = self._materialiser.part
        self.endpoints = Endpoints()
        #: What answers under an address; an endpoint whose stack is higher than one is missing.
        self._table = self.endpoints.routes
        self.graphs = Graphs(self.endpoints, self._memory.take, self.register, self._engines)
        self.routes = Routes(self.endpoints, self._engines, self._predict, self.graphs.changed)
        self.experiments = self.routes.experiments
        self.direct = Direct(
            *(self._engines, self._policy, self._costs, self._catalog),
            *(self._memory, self._materialiser, self.graphs, self.endpoints),
        )
        self._open = Stacks(self.direct, self.endpoints, self.routes).open
        self._has_native = False
        self._answer_by(self._predict)

    def register(  # noqa: PLR0913 (each has a default)
        self,
        name: str,
        source: Plan | Flow | HasPlan | str | Path,
        version: str | int | None = None,
        *,
        reserve: bool | int = False,
        activate: bool = True,
        exact: bool = False,
        background: bool | None = None,
        replace: bool = False,
        notes: Mapping[str, object] | None = None,
    ) -> str:
        """Serve a compiled model, a plan, a program, a graph or a plan's file; the version it got.

        It answers the endpoint's requests from now on. With `activate=False`, or where a route says
        what answers, only those that name its version. `reserve` gives it executors of its own;
        `exact` and `background` are those of `oven.bake`, for a program. With `replace`, a version
        of this name gives way in one step. `notes` are for front ends, such as `default_outputs`.
        """
        self.endpoints.check_open()
        self._catalog.sweep()
        number = self.endpoints.next_version(name) if version is None else str(version)
        self.endpoints.check(name, number, replace=replace)
        start, compiled = time.perf_counter(), cache.counters.compile_seconds
        owner = f"{name}@{number}"
        plan, path, linked = self._plan(source, exact, background, owner)
        compiled = cache.counters.compile_seconds - compiled
        if replace:
            self.graphs.check_fits(owner, plan)
        seconds = 0.0 if path is None else time.perf_counter() - start - compiled
        plan, written = (plan, None) if path else self._memory.mapped(plan, background=background)
        notes = self.graphs.notes(linked, plan, notes)
        model = ModelVersion(name, number, plan, reserved=reserve, notes=notes)
        model.residence.path, model.residence.booked = path, self._memory.budget is not None
        if written is not None:
            self._memory.own(model, written)
        former = self.endpoints.claim(model, replace=replace)
        try:
            if former is not None:  # what both are known by is the new one's
                self._part(former)
            self._admit(model, plan)
        except BaseException:
            self.endpoints.disclaim(model)
            raise
        self.endpoints.add(model, activate=activate and not self.routes.has_route(name))
        if former is not None or model.private:
            self.routes.registered(model)
        self._memory.admit(model, plan, seconds)
        if former is not None:
            former.residence.retired = True
            self._memory.forget(former)
        self.graphs.registered(model, linked)
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
                plan, linked = self.graphs.plan(owner, source, exact=exact, background=background)
                return plan, None, linked
            case Flow():
                return oven.bake(source, exact=exact, background=background), None, None
            case str() | Path():
                store = None if isinstance(self.store, MemoryStore) else self.store
                path, trust = Path(source).absolute(), self._trust_code
                plan = oven.load(path, store=store, background=background, trust_code=trust)
                return plan, path, None
            case HasPlan():
                return self._plan(source.plan, exact, background, owner)
        raise BadRegistration(
            "this is no plan, program or file of a plan",
            found=type(source).__name__,
            hint="an estimator is compiled first: pretzel.compile(estimator)",
        )

    def _admit(self, version: ModelVersion, plan: Plan) -> None:
        self._catalog.admit(version, plan)
        if any(isinstance(kind, Vector) and kind.sparse for kind in version.kinds.values()):
            with suppress(ImportError):  # an event loop would wait for it with the first answer
                import_module("scipy.sparse")
        version.open()  # where native code cannot be made, this says so
        plan.code.when_ready(partial(_settle, ref(self), ref(version)))
        if version.reserved:
            self._engines.reserve(version)
        self._materialiser.join(version, plan)

    def _open_native_predict(self, version: ModelVersion) -> None:
        """Let machine code stand in for `predict`, once there is an entry of that kind."""
        is_native = type(version.entry.function) is BuiltinFunctionType
        if self.endpoints.closed or self._has_native or not is_native:
            return
        self._has_native = True
        mirrors, note = self.routes.shadows.mirrors, self.routes.mirrors.note
        timed = self.direct.timed_natively
        native = open_native_predict(self._table, mirrors, self._predict, timed, note)
        if native is not None:
            self.direct.native = native
            self._answer_by(native)

    def _answer_by(self, predict: Predict) -> None:
        """Let this be `predict`; a subclass may have its own, and call this one."""
        vars(Runtime)["predict"].__set__(self, predict)

    def unregister(self, name: str, version: str | int | None = None) -> None:
        """Take out a version, or the endpoint with all its versions.

        Requests that were accepted get their answers; nothing is waited for.
        """
        self.endpoints.check_open()
        number = None if version is None else str(version)
        self.graphs.check_free(name, number)
        self._retire(self.routes.removed(name, number))
        self._catalog.sweep()

    def _retire(self, gone: list[ModelVersion]) -> None:
        for version in gone:
            version.residence.retired = True
            self._part(version)
            self._memory.forget(version)
            self.graphs.removed(version)

    def _part(self, version: ModelVersion) -> None:
        """A version gives up executors of its own, and what it has in common with others."""
        if version.reserved:
            self._engines.release(version)
        self._materialiser.leave(version)

    def _predict(  # noqa: PLR0913 (each has a default)
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
        """The meaning of `predict`, in Python: by the table, or by the endpoint's stack."""
        version = self._table.get(name)
        if version is None:
            options = (timeout, priority, engine)
            return self._by_stack(name, data, headers, tenant, outputs, options, wait=True).result()
        call = PLAIN
        if not (outputs is None is timeout and priority is None is engine):
            call = Call.of(version, outputs, timeout, priority, engine)
        return self.direct.predict(version, data, call)

    if TYPE_CHECKING:
        predict = _predict  # the slot; it has machine code once there is some

    def _by_stack(
        self,
        name: str,
        data: object,
        headers: Mapping[str, str] | None,
        tenant: str,
        outputs: str | Iterable[str] | None,
        options: tuple[float | None, int | None, str | None],
        *,
        wait: bool = False,
    ) -> Future[Answers]:
        """A future by the stack of an endpoint whose name is not in the table."""
        asked = NOBODY if headers is None and not tenant else Asked(headers or {}, tenant)
        version, stack, _ = self._open(name, data, asked.headers, tenant)
        names = named_outputs(outputs, version.outputs, version.owner)
        return stack.answer(InferCall(version, data, names, *options, wait, asked))

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
        version = name if isinstance(name, ModelVersion) else self._table.get(name)
        if version is None:
            options = timeout, priority, engine
            return self._by_stack(str(name), data, headers, tenant, outputs, options)
        if version is name:
            self.endpoints.check_open()
        call = NONBLOCKING
        if not (outputs is None is timeout and priority is None is engine):
            call = Call.of(version, outputs, timeout, priority, engine, blocking=False)
        return self.direct.submit(version, data, call)

    async def apredict(  # noqa: PLR0913 (each has a default)
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
        """`predict` for event loops, which are held up for a few microseconds only.

        Cancelling the task gives the call up.
        """
        import asyncio  # it takes 30 ms, and who awaits this has it

        more: Any = {"timeout": timeout, "priority": priority, "engine": engine, "tenant": tenant}
        coming = self.submit(name, data, outputs=outputs, headers=headers, **more)
        return coming.result() if coming.done() else await asyncio.wrap_future(coming)

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
        version, options = self.endpoints.find(name), (None, priority, Engine.BATCH.value)
        names = Call.of(version, outputs, *options).outputs
        asked = NOBODY if headers is None and not tenant else Asked(headers or {}, tenant)
        stack = None if self.routes.has_route(name) else self._open(version.owner, None)[1]

        def submit(data: object) -> Future[Answers]:
            nonlocal stack
            if stack is None:
                return self._by_stack(name, data, headers, tenant, names, options)
            with suppress(UnknownEndpoint):  # of its last moment, where it is unregistered
                found, now, _ = self._open(version.owner, None)
                stack = now if found is version else stack
            return stack.answer(InferCall(version, data, names, *options, False, asked))

        return batches.answers(submit, blocks, ahead or 2 * self._engines.executors)

    # --- routes and experiments ---------------------------------------------------------------

    def switch(self, name: str, version: str | int) -> None:
        """Let another version answer the endpoint's requests, from the next one on."""
        self.routes.switch(name, str(version))

    def route(  # noqa: PLR0913 (the parts of a route, each with a default)
        self,
        name: str,
        champion: str | None = None,
        *,
        split: Mapping[str, float] | None = None,
        by: str | None = None,
        header: str | None = None,
        salt: str | None = None,
        where: str | None = None,
        rules: Mapping[str, str] | None = None,
        otherwise: str | None = None,
        tenants: Mapping[str, str] | None = None,
        shadow: str | None = None,
        sample: float = 1.0,
        inline: bool | None = None,
        who: str = "",
    ) -> Route:
        """Give an endpoint a route, from the next request on; see runtime.routing.Route.

        Versions are given as "name@version", or by their number, and have to be registered.
        `otherwise` is another word for the champion; it is the version in service unless given.
        The `salt` is the endpoint's name unless given: keys fall differently in other splits.
        """
        if champion is not None and otherwise is not None:
            raise BadRegistration("`champion` and `otherwise` are the same", where=name)
        made = Route(
            champion or otherwise or self.endpoints.find(name).owner,
            *(split or {}, by, header, name if salt is None else salt, where),
            *(rules or {}, tenants or {}, shadow, sample, inline),
        )
        made = addressed(name, made)
        self.routes.put_route(name, made, who=who)
        return made

    def promote(self, name: str, version: str | int | None = None, *, who: str = "") -> Route:
        """Let a challenger answer as the champion, and end the split, the rules and the shadow.

        Without a `version` it is the one challenger, or the shadow. Tenants keep their own.
        """
        return self.routes.promote(name, version, who=who)

    def rollback(self, name: str, *, who: str = "") -> Route:
        """Return to the route before the last change; after a rollout, that is its last step."""
        return self.routes.rollback(name, who=who)

    def rollout(self, name: str, to: str | int | None = None, **terms: object) -> Rollout:
        """Give a challenger more of the requests, step by step; see runtime.rollout.rollout."""
        from runtime.rollout import rollout

        self._check(f"rollout({name!r})", rollout, terms)
        return rollout(self.experiments, name, to, **terms)  # type: ignore[arg-type]  # it checks them

    def report(self, name: str, request: str, **values: float) -> bool:
        """Count values of a request that are known later, by its id; False for unknown ids."""
        from runtime.rollout import report

        return report(self.experiments, name, request, values)

    # --- watching -------------------------------------------------------------------------------

    def watch(self, name: str, **options: object) -> Watch:
        """Compare rows in service with reference rows; see runtime.watch.Watch."""
        from runtime.watch import Watch

        self._check(f"watch({name!r})", Watch, options)
        return Watch(self, name, **options)  # type: ignore[arg-type]  # as above

    def tap(self, name: str, step: str, *, sample: float = 0.01, to: object = None) -> Tap:
        """Collect what a step computes for a share of the rows; see runtime.watch.Tap."""
        from runtime.watch import Tap

        self.endpoints.check_open()
        return Tap(self, name, step, sample=sample, to=to)  # type: ignore[arg-type]  # as above

    def keep(self, name: str, folder: str | Path, **options: object) -> AnswerKeeper:
        """Keep an endpoint's answers, for `why`; see runtime.provenance.AnswerKeeper."""
        from runtime.provenance import AnswerKeeper

        self._check(f"keep({name!r})", AnswerKeeper, options)
        return AnswerKeeper(self, name, folder, **options)  # type: ignore[arg-type]  # as above

    def _check(self, where: str, function: Callable[..., object], options: Iterable[str]) -> None:
        self.endpoints.check_open()
        check_names(where, function, options)

    def why(self, answer: str) -> Any:
        """The facts about a kept answer, by its id; see runtime.provenance.Why."""
        return self.routes.why(answer)

    def wait(self, timeout: float | None = None) -> Runtime:
        """This runtime, as soon as it is ready; TimeoutError if that takes longer."""
        end = None if timeout is None else time.monotonic() + timeout
        for version in self.endpoints.all():
            if not version.settled.wait(None if end is None else max(0.0, end - time.monotonic())):
                raise TimeoutError(f"the code of {version.owner} is still being compiled")
        return self

    def stats(self) -> RuntimeStats:
        """Figures of the work so far, and of the present state."""
        every = self.endpoints.all()
        inline, batch = self._engines.stats()
        return RuntimeStats(
            versions=tuple(
                version_stats(version, self._costs, in_service=self.routes.in_service(version))
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

    def explain(
        self, name: str, rows: int = 1, *, timeout: float | None = None, blocking: bool = True
    ) -> str:
        """The engine for a call with this many rows, and the reasons, in words."""
        version = self.endpoints.find(name)
        call = Call.of(version, timeout=timeout, blocking=blocking)
        text = explained(version, self._policy.decide(version, call, rows), rows)
        graph = self.graphs.facts(version.owner)
        return "\n".join([text, *graph.lines()]) if graph else text

    def close(self, *, drain: bool = True, timeout: float | None = None) -> bool:
        """Take no more calls, and end; whether the executors ended in time.

        With `drain`, what was accepted is answered first, for up to `timeout` seconds; without,
        or after that, it is cancelled. Either way every future is resolved.
        """
        if self.endpoints.closed:
            return True
        self.endpoints.closed = True
        self.direct.native = None  # machine code refers to this runtime
        self._answer_by(self._predict)
        self.routes.close()
        gone = self.endpoints.clear()
        self.graphs.close((DRAIN_SECONDS if timeout is None else timeout) * drain)
        ended = self._engines.close(drain=drain, timeout=timeout)
        for version in gone:
            version.close_watcher()
            self._materialiser.leave(version)
        self._memory.close()
        self._catalog.close()
        if self._own_store:
            self.store.close()
        return ended

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(drain=kind is None)

    def __repr__(self) -> str:
        return f"Runtime({len(self.endpoints)} endpoints)"


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
