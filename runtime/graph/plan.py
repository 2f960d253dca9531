"""A graph as a plan: what the runtime registers, and answers requests with."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import oven
from flour.core.errors import FlourError
from flour.core.op import Columns, Parameter
from flour.core.reference import public
from flour.core.source import Source
from flour.core.types import Type
from flour.data.batch import BatchReader, Form
from flour.data.coerce import coerce
from flour.data.nulls import known_missing_of
from flour.language.flow import Flow
from oven import Plan
from oven.plans.skeleton import classes
from runtime.graph.cutting import GraphCut, Step, cut
from runtime.graph.form import name_of
from runtime.graph.loop_thread import LoopThread
from runtime.graph.request import Values
from runtime.graph.router import GraphRouter, gathered
from runtime.graph.rows import Known, NotARow, RowGraph
from runtime.graph.threads import Threads
from scheduler import Awaited, is_executor

_SINGLE = (Form.ROW, Form.DOCUMENT)


class GraphPlan:
    """A linked graph of more than one step. It has what the runtime asks of a plan."""

    #: Rows of a request stay together: the router has blocks of its own.
    mixes_rows: ClassVar[bool] = True
    #: Nothing of it is one piece of machine code.
    row_work = entry_work = None
    steps: ClassVar[tuple[()]] = ()
    here: ClassVar[tuple[()]] = ()
    memory_bytes = 0
    in_memory = True

    def __init__(
        self,
        flow: Flow,
        graph: GraphCut,
        owner: str,
        loop: LoopThread,
        threads: Threads,
        *,
        exact: bool = False,
        background: bool | None = None,
    ) -> None:
        self._threads = threads
        self.flow = self.optimised = flow
        self.exact, self.graph, self.owner = exact, graph, owner
        self.name = owner.partition("@")[0]
        self.inputs: dict[str, Type] = flow.inputs()
        self.outputs: dict[str, Type] = flow.types
        self.reader = BatchReader(self.inputs, known_missing_of(self))
        self.digest = flow.digest
        self.classes = classes(flow.outputs.get("label"))
        self.waits = graph.waits
        self._loop = loop
        #: The plan of each step that has one.
        self.by_step: dict[int, Plan] = {
            step.number: oven.link(step.program, step.program, exact=exact, background=background)
            for step in graph.steps
            if step.program is not None
        }
        rows = RowGraph(graph, self.by_step, self.inputs, threads)
        #: The way of single rows; None where a value of one is no value of Python's.
        self.by_row = rows if rows.possible else None
        self._routers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, GraphRouter] = (
            weakref.WeakKeyDictionary()
        )

    # --- what plans say of themselves --------------------------------------------------------

    @property
    def program(self) -> GraphPlan:
        """This plan: it answers for the programs, the code and the variants of its steps."""
        return self

    code = variants = program

    @property
    def plans(self) -> Sequence[Plan]:
        """The plans of its steps."""
        return tuple(self.by_step.values())

    @property
    def ready(self) -> bool:
        """True if the native code of all steps is there."""
        return all(plan.ready for plan in self.by_step.values())

    @property
    def tier(self) -> int:
        """1 where native code answers, 0 while it is compiled."""
        return int(self.ready)

    def wait(self, timeout: float | None = None) -> GraphPlan:
        """This plan, as soon as its native code is there."""
        for plan in self.by_step.values():
            plan.wait(timeout)
        return self

    @property
    def seconds_left(self) -> float:
        """About how long compiling the steps will still take; 0 once all are ready."""
        return max((plan.code.seconds_left for plan in self.plans if not plan.ready), default=0.0)

    def when_ready(self, call: Callable[[], object]) -> None:
        """Have this called once all steps are ready, or cannot be."""
        waiting = iter(self.plans)

        def following() -> None:
            plan = next(waiting, None)
            if plan is None:
                call()
            else:
                plan.code.when_ready(following)

        following()

    @property
    def stages(self) -> tuple[Any, ...]:
        """The stages of all steps."""
        return tuple(stage for plan in self.by_step.values() for stage in plan.program.stages)

    @property
    def stage_kinds(self) -> list[tuple[str, str | None]]:
        """The kind of each stage, and the name of its machine code."""
        return [kind for plan in self.by_step.values() for kind in plan.program.stage_kinds]

    @property
    def node_digests(self) -> str:
        """The digests of the program's nodes, its inputs left out."""
        inside = self.flow.nodes()
        return "".join(item.digest for item in inside if not isinstance(item.op, Source))

    def parameters(self) -> frozenset[Parameter]:
        """Every array and table that its steps read."""
        return frozenset[Parameter]().union(*(plan.program.parameters() for plan in self.plans))

    resident = parameters

    def ready_for(self, _: object) -> bool:
        """True if the native code is there."""
        return self.ready

    def of(self, _: object) -> None:
        """No variant: data is converted to the types that the graph was written for."""

    def release(self) -> None:
        """Give back memory that operators hold only to run faster."""
        for plan in self.plans:
            plan.program.release()

    def save(self, path: object, *, durable: bool = True) -> None:
        """Refuse: a graph of several steps is kept as its graph, not as a plan."""
        raise FlourError(
            "a graph that waits, or leaves branches out, is no plan that could be saved",
            where=f"{path}",
            found=f"{len(self.graph.steps)} steps; durable={durable}",
            hint="save the graph itself: flour.save_graph(graph, path)",
        )

    def whole(self) -> Plan:
        """One plan for all steps, which computes every branch for all rows."""
        guarded = (item for item, path in self.graph.paths.items() if path)
        refusing = [item for item in guarded if item.op.refuses_rows()]
        if self.waits or refusing:
            found, places, hint = "it waits for values", [self.name], "serve it"
            if not self.waits:
                found = "rows that are for another branch would be refused, too"
                places += map(str, self.flow.origins().get(refusing[0], ()))
                hint = 'import the model of the branch with on_missing="answer", or serve the graph'
            raise FlourError(
                "this graph cannot be one plan", where=", ".join(places), found=found, hint=hint
            )
        return oven.link(self.flow, self.flow, exact=True, background=False)

    # --- running -----------------------------------------------------------------------------

    def run(self, data: object) -> dict[str, Any]:
        """Every output for a block of rows; a graph that waits is waited for."""
        columns, rows = coerce(self.inputs, data)
        if self.waits:
            return self.submit(columns, rows, apart=True).result()
        return self._public(self._run_here(columns, rows, tuple(self.outputs)))

    def run_arrow(self, data: object) -> Any:
        """Every output as Arrow, for a batch, table or stream: see docs/reference/bulk.md."""
        from oven.plans.arrow import run_arrow

        return run_arrow(self, data)

    def _run_here(self, columns: Mapping[str, Columns], rows: int, outputs: tuple[str, ...]) -> Any:
        """The outputs of a graph that never waits, on this thread."""
        values = Values(self.graph, columns, rows)
        for wave in self.graph.waves:
            here = [step for step in wave if values.count(step.path)]
            slow = [step for step in here if step.is_slow(values.count(step.path))]
            if len(slow) > 1:
                self._threads.side_by_side([partial(self._take, step, values) for step in slow])
                here = [step for step in here if step not in slow]
            for step in here:
                self._take(step, values)
        return {name: values.at(self.graph.outputs[name], ()) for name in outputs}

    def _take(self, step: Step, values: Values) -> None:
        """Take a block through a step that does not wait."""
        if step.kind == "choice":
            values.give(step.nodes[0], values.choose(step))
            return
        made = self.step(step, gathered(step, values), values.count(step.path))
        for item in step.gives:
            values.give(item, made[name_of(item)])

    def step(self, step: Step, columns: Mapping[str, Columns], rows: int) -> Mapping[str, Columns]:
        """Run the plan of a step, counted and timed."""
        start = time.perf_counter()
        plan, form = self.by_step[step.number], step.form
        if form is not None and form.is_row and plan.ready:
            made: Mapping[str, Columns] = plan.run(form.block(columns))
        else:
            made = plan.run_columns(columns, rows)
        step.took(time.perf_counter() - start, rows)
        step.calls += 1
        step.rows += rows
        return made

    def _public(self, values: Mapping[str, Columns]) -> dict[str, Any]:
        return {name: public(value, self.outputs[name]) for name, value in values.items()}

    def submit(
        self,
        columns: Mapping[str, Columns],
        rows: int,
        outputs: tuple[str, ...] | None = None,
        timeout: float | None = None,
        *,
        apart: bool = False,
    ) -> Future[dict[str, Any]]:
        """A future of the outputs: on this thread's event loop, or on one `apart`."""
        values = Values(self.graph, columns, rows)
        return self._started(values, outputs, timeout, apart=apart)

    def submit_row(
        self,
        data: object,
        outputs: tuple[str, ...] | None = None,
        timeout: float | None = None,
        *,
        apart: bool = False,
    ) -> Future[dict[str, Any]] | None:
        """Answer a single row with values; None if it has to be a block."""
        if self.by_row is None:
            return None
        try:
            known = self.by_row.checked(data)
        except (NotARow, LookupError, TypeError):
            return None
        return self._started(known, outputs, timeout, apart=apart)

    def _started(
        self,
        values: Values | Known,
        outputs: tuple[str, ...] | None,
        timeout: float | None,
        *,
        apart: bool,
    ) -> Future[dict[str, Any]]:
        here = asyncio._get_running_loop()  # noqa: SLF001 (the one that raises nothing)
        if is_executor():  # the loop apart may wait for it
            apart = False
            if here is None:
                return asyncio.run(_awaited(partial(self._started, values, outputs, timeout)))
        loop = self._loop.loop(apart=apart)
        answer = Awaited(lambda: asyncio._get_running_loop() is loop)  # noqa: SLF001 (as above)
        wanted = outputs or tuple(self.outputs)
        if apart or loop is not here:
            loop.call_soon_threadsafe(self._begin, values, wanted, answer, timeout)
        else:
            self._begin(values, wanted, answer, timeout)
        return answer

    def _begin(
        self,
        values: Values | Known,
        outputs: tuple[str, ...],
        answer: Future[dict[str, Any]],
        timeout: float | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        router = self._routers.get(loop)
        if router is None:
            elsewhere = partial(self._threads.elsewhere, key=self.owner)
            known = (self.name, self.graph, self.step, elsewhere, self.by_row)
            router = self._routers[loop] = GraphRouter(*known, self._loop.requests[loop])
        router.begin(values, outputs, answer, timeout)

    def entry(self, look: Callable[[object], None] | None = None) -> Callable[[object], Any]:
        """A function from a row, or a block of rows, to the outputs as a tuple."""

        def call(data: object) -> tuple[Any, ...]:
            batch = self.reader.read(data)
            if batch.kind in _SINGLE and self.by_row is not None:
                try:
                    return self.by_row.run(batch.data)
                except Exception:  # noqa: BLE001, S110 (the way of blocks says what is wrong)
                    pass
            if look is not None:
                look(batch.block)
            columns, rows = coerce(self.inputs, batch.block)
            made = self._public(self._run_here(columns, rows, tuple(self.outputs)))
            if not batch.single:
                return tuple(made.values())
            return tuple(_first_row(value) for value in made.values())

        return call

    def begin(self, data: object) -> WholeRun:
        """A run over this data, in one piece; requests that wait go to an event loop instead."""
        assert not self.waits, "an executor does not wait"
        return WholeRun(self, data)

    def __repr__(self) -> str:
        return f"GraphPlan({', '.join(self.outputs)}: {len(self.graph.steps)} steps)"


async def _awaited(begin: Callable[..., Future[dict[str, Any]]]) -> Future[dict[str, Any]]:
    """A request on a loop of an executor's own: it waits for coroutines, not for threads."""
    answer = begin(apart=False)
    with suppress(Exception, asyncio.CancelledError):
        await asyncio.wrap_future(answer)
    return answer


def _first_row(value: Any) -> Any:
    first = value[0]
    return first.item() if hasattr(first, "item") and not getattr(first, "ndim", 1) else first


class WholeRun:
    """A run of a graph that is not divided, in the form that the engines know."""

    steps, memory_bytes, uncut = 1, 0, True

    def __init__(self, plan: GraphPlan, data: object) -> None:
        self._plan, self._answers = plan, dict[str, Any]()
        self._columns, self.rows = coerce(plan.inputs, data)

    def chunk(self, start: int, stop: int) -> tuple[int, int]:
        """All rows."""
        return start, stop

    def step(self, _number: int, _chunk: object, _memory: object = None) -> None:
        """Compute the answers."""
        plan, names = self._plan, tuple(self._plan.outputs)
        self._answers = plan._public(plan._run_here(self._columns, self.rows, names))  # noqa: SLF001 (its own run)

    def finish(self) -> dict[str, Any]:
        """Every output."""
        return self._answers


def graph_plan(
    written: Flow,
    optimised: Flow,
    owner: str,
    loop: LoopThread,
    threads: Threads,
    *,
    exact: bool = False,
    background: bool | None = None,
) -> Plan | GraphPlan:
    """The plan of a linked graph: an ordinary one where it is a single step."""
    flow = oven.rewritten(optimised)
    steps = cut(flow)
    if len(steps.steps) == 1 and steps.steps[0].kind == "plan":
        return oven.link(written, flow, exact=exact, background=background)
    return GraphPlan(flow, steps, owner, loop, threads, exact=exact, background=background)
