"""The answerer at the end of every stack: one version, computed by an engine or by its graph."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from flour.data.batch import Batch
from oven import Plan
from oven.compiler.gil_yield import WAITING, yield_gil
from oven.entry.builtin import learn_release
from runtime.service.answerers import NOBODY, Asked, InferCall
from runtime.service.call import NONBLOCKING, PLAIN, Call
from runtime.service.catalog import Catalog
from runtime.service.costs import Costs
from runtime.service.done_future import DoneFuture, done
from runtime.service.endpoint import HELD, Endpoints
from runtime.service.engines import Answers, Engines, shaped
from runtime.service.entry import (
    INLINE_SAMPLE,
    RELEASE_SECONDS,
    SAMPLE,
    UNTIMED,
    Outputs,
    OutputsEntry,
)
from runtime.service.graphs import Graphs
from runtime.service.materialise import Materialiser
from runtime.service.memory import Residency
from runtime.service.policy import BY_ENTRY, Choice, Policy, Way
from runtime.service.version import ModelVersion
from scheduler import is_executor


class Direct:
    """Answers calls of versions, and learns from some what they take."""

    def __init__(  # noqa: PLR0913, PLR0917 (what a runtime holds)
        self,
        engines: Engines,
        policy: Policy,
        costs: Costs,
        catalog: Catalog,
        memory: Residency,
        materialiser: Materialiser,
        graphs: Graphs,
        endpoints: Endpoints,
    ) -> None:
        self._engines, self._policy, self._costs = engines, policy, costs
        self._catalog, self._memory, self._materialiser = catalog, memory, materialiser
        self._graphs, self._endpoints = graphs, endpoints
        #: Machine code that answers plain calls by address, once there is some.
        self.native: Callable[[str, object], Answers] | None = None

    def quick(self, version: ModelVersion, batch: Batch, _asked: Asked = NOBODY) -> Outputs | None:
        """The outputs by the plan's entry, in their order; None where another way has to be taken.

        For a row, or a block of few rows, as `predict` takes them; on the thread of an event loop.
        """
        if WAITING[0]:
            yield_gil()
        entry = version.entry
        if entry.function is None or not entry.takes(batch):
            return None
        return self._by_entry(version, batch, entry)

    def answer(self, call: InferCall) -> Future[Answers]:
        """A future of the answers; it is done where the caller waits."""
        version, data, outputs, timeout, priority, engine, waits, _ = call
        options = PLAIN if waits else NONBLOCKING
        if not (outputs is None is timeout and priority is None is engine):
            options = Call.of(version, outputs, timeout, priority, engine, blocking=waits)
        elif waits and self.native is not None:
            table, address = self._endpoints.routes, version.owner
            if table.get(address) is not version:
                address = HELD + address
            if table.get(address) is version:
                return DoneFuture(self.native(address, data))
        if waits:
            return DoneFuture(self.predict(version, data, options))
        return self.submit(version, data, options)

    def predict(self, version: ModelVersion, data: object, call: Call) -> Answers:
        """The answers, for a caller that waits."""
        if version.waits:
            return self._graphs.submit(version, data, call, apart=True).result()
        batch = data if isinstance(data, Batch) else version.read(data)
        choice = self._policy.choose(batch, version, call)
        if choice is BY_ENTRY:
            part = version.entry if call.outputs is None else version.part(call.outputs)
            values = self._by_entry(version, batch, part)
            if values is not None:
                named = zip(part.outputs, values)  # noqa: B905 (checking costs as much)
                return dict(named) if call.outputs is None else part.answers(values)
            # It was closed meanwhile: the usual way says what there is to say.
        return self._answer(version, batch, choice, call)

    def submit(self, version: ModelVersion, data: object, call: Call) -> Future[Answers]:
        """A future of the answers; what is over at once has been done when this returns.

        Data that the entry refuses takes another way, where the error says what is wrong.
        """
        if WAITING[0]:
            yield_gil()
        if self._catalog.departed:
            self._catalog.sweep()
        if version.waits:
            return self._graphs.submit(version, data, call)
        batch = data if isinstance(data, Batch) else version.read(data)
        choice = self._policy.choose(batch, version, call)
        if choice is BY_ENTRY:
            try:
                part = version.entry if call.outputs is None else version.part(call.outputs)
                values = self._by_entry(version, batch, part)
            except Exception:  # noqa: BLE001 (it is raised again)
                values = None
            if values is not None:
                return DoneFuture(part.answers(values))
            choice = self._policy.weigh(batch, version, call)
        return self._submit(version, batch, choice, call)

    def expected(self, version: ModelVersion, rows: int) -> float | None:
        """The seconds that a call with this many rows should take; None if nothing is known."""
        return self._costs.seconds(version, rows)

    def timed_natively(
        self, version: ModelVersion, data: object, number: int, part: OutputsEntry
    ) -> Answers:
        """A call by the entry that machine code has counted, and that is looked at."""
        batch = version.read(data)
        try:
            values = self._timed(version, batch, part, number)
        except Exception:
            version.refused(batch)
            raise
        if values is None:  # closed meanwhile; the version may have gone, too, but has the call
            call = Call.of(version, part.outputs)
            return self._answer(version, batch, self._policy.weigh(batch, version, call), call)
        return part.answers(values)

    def _by_entry(self, version: ModelVersion, batch: Batch, part: OutputsEntry) -> Outputs | None:
        """The outputs by the plan's entry; None where it has been closed meanwhile."""
        entry = version.entry
        function = part.function
        if function is None or entry.function is None:
            return None
        number = entry.tick()
        try:
            looked = not number & entry.rest & UNTIMED
            return self._timed(version, batch, part, number) if looked else function(batch.data)
        except Exception:
            version.refused(batch)
            raise

    def _timed(
        self, version: ModelVersion, batch: Batch, part: OutputsEntry, number: int = 0
    ) -> Outputs | None:
        """A call by the entry that is looked at; of some, with a look at what is due."""
        function = part.function
        if function is None or version.entry.function is None:
            return None
        start = version.clock()
        values = function(batch.data)
        seconds = version.clock() - start
        version.timed(batch, seconds)
        if not number & UNTIMED:
            learn_release(function, batch.rows or 1, long=seconds >= RELEASE_SECONDS)
            whole = function is version.entry.function
            if not whole:  # some outputs take less: the whole takes that long at least
                least = self.expected(version, batch.rows or 1) or self._policy.settings.instant
                whole = seconds > least
            (self._learn if whole else self._do_due)(version, batch, seconds)
        return values

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
            run = partial(self._load_and_run, version, call)
            return self._engines.submit_whole(version, run, batch, choice.decision, call)
        plan, end = _part(self._memory.take(version, pin=True), call), version.unpin
        return self._engines.submit(version, plan, batch, choice.decision, call, done=end)

    def _load_and_run(self, version: ModelVersion, call: Call, block: object) -> Answers:
        """Bring back the plan that the caller could not wait for, and answer the call."""
        return _part(self._memory.take(version), call).run(block)

    def _shared(self, version: ModelVersion, batch: Batch, choice: Choice, call: Call) -> Answers:
        """The answers of the caller's thread and of executors; the plan stays until it is done."""
        plan = _part(self._memory.take(version, pin=True), call)
        try:
            answers = self._engines.shared(version, plan, batch.block, choice.decision, call)
        finally:
            version.unpin()
        return shaped(answers, call.outputs, single=batch.single)

    def _inline(self, version: ModelVersion, batch: Batch, choice: Choice, call: Call) -> Answers:
        whole, shared = self._memory.take(version), version.shared
        rows, decision, plan = batch.rows or 1, choice.decision, _part(whole, call)
        run = plan.run
        if shared is not None and plan is whole:
            run = partial(shared.run, plan, version.residence.opened, rows)
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
        self._do_due(version, batch, seconds, calls)

    def _do_due(
        self, version: ModelVersion, batch: Batch, seconds: float, calls: int = SAMPLE
    ) -> None:
        """Do what is due after so many calls that took about as long as this one."""
        self._costs.spend(version, seconds * (calls - 1))
        if self._catalog.departed:
            self._catalog.sweep()
        self._materialiser.consider(version, seconds, batch.rows or 1, calls)
        self._memory.rebook(version)
        if version.learned.inline_ok is not (version.entry.function is not None):
            version.open()


def _part(plan: Plan, call: Call) -> Plan:
    """The plan that computes what is asked for and no more, once it is there."""
    return plan if call.outputs is None else plan.variants.of_outputs(call.outputs) or plan
