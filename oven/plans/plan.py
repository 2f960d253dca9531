"""Plan: a program baked into stages, frozen, ready to run any number of times from any thread."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from flour.core.errors import FlourError
from flour.core.node import Node
from flour.core.op import Columns, Parameter
from flour.core.reference import public
from flour.core.source import Source
from flour.core.types import Type
from flour.data.batch import BatchReader, array_dtype, is_by_columns, row_count
from flour.data.coerce import coerce, native_types
from flour.data.nulls import has_nulls, known_missing_of
from flour.language.flow import Flow
from flour.ops.structure import TakeText
from oven.codegen.stages import LABELS, PYTHON, Stage, Value
from oven.compiler import driver, gil_yield
from oven.entry.array_call import open_array_call
from oven.entry.array_entry import Call, around, weakly
from oven.entry.builtin import compiled
from oven.entry.columns_entry import open_columns_entry, open_entry
from oven.entry.generator import EntryCode
from oven.entry.row_packing import PackedRows, PackRows, open_row_packing
from oven.entry.tables import PlanSteps
from oven.entry.usual import usual_code
from oven.errors import NoCompiler
from oven.plans.background import BY_DEFAULT, Background, Needed, Pending, at_hand
from oven.plans.program import Compiler, PlanProgram
from oven.plans.skeleton import Facts, one_run, stage_kinds
from oven.plans.values import by_definition, interpret, native_column, output_value
from oven.plans.widening import widens_exactly
from oven.run.native_run import NativeRun, RowsRefused

if TYPE_CHECKING:
    from oven.optimise.rewrite import RewriteTrace
    from oven.plans.execution import Execution
    from oven.plans.skeleton import RestoredPlan

Steps = tuple[NativeRun | Stage, ...]
#: Putting a label into an array takes as long as touching so many bytes.
LABEL_WORK = 1 << 10
#: Blocks of up to this many rows are not kept waiting for a variant that is being baked.
MEANWHILE = 64


class Plan:
    """Native code for a program: a pure function from named columns to named columns."""

    #: Whether a request may have to wait for something else than a processor: a graph's may.
    waits = False
    #: The nodes of the program as written, where they are in memory without the rewritten ones.
    held: Sequence[Node] = ()
    #: What was known at its import, read from its file when asked for; see oven.plans.training.
    training: Callable[[], Mapping[str, Any]] = dict

    def __init__(
        self,
        flow: Flow,
        optimised: Flow,
        *,
        exact: bool = False,
        background: Background = None,
        check: Callable[[Sequence[Stage]], None] | None = None,
        compiler: Compiler = "pretzel",
    ) -> None:
        program = PlanProgram(lambda: (flow, optimised), exact=exact, compiler=compiler)
        if check is not None:  # before anything is compiled for them
            check(program.stages)
        self._begin(program, Facts.of(flow, optimised, exact=exact), None, background, check)
        self._bound: Pending[Steps] = Pending(self._compiled, background, self._needed)

    @staticmethod
    def restore(
        restored: RestoredPlan,
        read: Callable[[], tuple[Flow, Flow]],
        check: Callable[[Sequence[Stage]], None] | None = None,
        *,
        background: Background = None,
    ) -> Plan:
        """A plan made from an image; `read` makes its program when it is first looked at."""
        plan, facts = Plan.__new__(Plan), restored.skeleton.facts
        program = PlanProgram(read, exact=facts.exact)
        plan._begin(program, facts, restored, background, check)  # noqa: SLF001 (this is the class)
        plan._native = (restored.run,)  # noqa: SLF001 (as above)
        if at_hand(plan._needed()):  # noqa: SLF001 (as above)
            plan._bound = Pending(lambda: (restored.run,), background=False)  # noqa: SLF001 (as above)
        else:
            plan._bound = Pending(plan._compiled, background, plan._needed)  # noqa: SLF001 (as above)
        return plan

    def _begin(
        self,
        program: PlanProgram,
        facts: Facts,
        restored: RestoredPlan | None,
        background: Background,
        check: Callable[[Sequence[Stage]], None] | None,
    ) -> None:
        self._program, self._facts, self._restored = program, facts, restored
        self._background, self._check = background, check
        #: The named inputs and their types.
        self.inputs, self.exact = facts.inputs, facts.exact
        #: The compiler of its stages.
        self.compiler = program.compiler
        #: The node of each output, which code computes or looks labels up by.
        self.leaves: Mapping[str, Node] = facts.leaves
        #: The labels of the columns of probabilities, where the plan looks labels up.
        self.classes = facts.classes
        #: Whether answers depend on other rows: blocks are then neither cut nor put together.
        self.mixes_rows = facts.mixes_rows
        self._roots, self._names = tuple(self.leaves.values()), tuple(self.leaves)
        #: Tells what form the data of a call has.
        self.reader = BatchReader(self.inputs, known_missing_of(self))
        self._run_block: Callable[[object], dict[str, Any]] = weakly(self._first_run)
        self._variants: dict[tuple[Type, ...], Pending[Plan]] = {}
        self._by_dtype: dict[str | None, Pending[Plan] | None] = {}
        self._call: Call | None = None
        self._pack: PackRows | None = None
        #: The native code, from when that of the stages is there; entries may come after it.
        self._native: Steps | None = None
        self._entries: tuple[EntryCode, ...] | None = None

    @property
    def unfolded(self) -> bool:
        """Whether its program is in memory: that of a restored plan is made when looked at."""
        return self._program.in_memory

    @property
    def flow(self) -> Flow:
        """The program as it was written."""
        return self._program.flows[0]

    @property
    def optimised(self) -> Flow:
        """The program that runs."""
        return self._program.flows[1]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What runs together."""
        return self._program.stages

    @property
    def digest(self) -> str:
        """Equal programs have equal digests."""
        return self._restored.digest if self._restored else self.flow.digest

    @property
    def node_digests(self) -> str:
        """The digests of the program's nodes, its inputs left out: see `digests_in`.

        One after the other, as many texts of their own would take three times as much.
        """
        if self._restored is not None:
            return self._restored.nodes
        inside = self.flow.nodes()
        return "".join(item.digest for item in inside if not isinstance(item.op, Source))

    @property
    def stage_kinds(self) -> list[tuple[str, str | None]]:
        """The kind of each stage, and the name of its machine code."""
        restored = self._restored
        return stage_kinds(self.stages) if restored is None else [*restored.skeleton.stages]

    def resident(self) -> frozenset[Parameter]:
        """The parameters that are in memory for it, small ones of its own table apart."""
        restored = self._restored
        if restored is not None and not self.unfolded:
            held = (each for item in self.held for each in item.op.parameters())
            return frozenset((*restored.run.kept, *held))
        return self.parameters()

    @property
    def outputs(self) -> dict[str, Type]:
        """The named outputs and their types."""
        return {name: item.type for name, item in self.leaves.items()}

    @property
    def ready(self) -> bool:
        """Whether all code is there, that of entries included, so that no usual call compiles any.

        An error in compiling it is raised here.
        """
        return self._bound.here is not None

    @property
    def seconds_left(self) -> float:
        """About how long it will take until it is ready, as measured on this machine so far."""
        return self._bound.seconds_left

    def when_ready(self, call: Callable[[], object]) -> None:
        """Have this called once it is ready, or cannot be: now, or on the thread that compiles."""
        self._bound.when_done(call)

    def release(self) -> None:
        """Give back memory that operators hold only to run faster; they take it again."""
        for item in self.optimised.nodes() if self.unfolded else ():
            item.op.release()

    @property
    def tier(self) -> int:
        """What answers: 1 is native code, 0 operators' definitions where there is none (yet)."""
        return int(self._native is not None)

    def _needed(self) -> list[Needed]:
        """The code that has to be compiled or found before it is ready."""
        # A restored plan has that of its stages, and does without its program.
        stages = self.stages if self._native is None else ()
        native = [Needed.of(stage.source, stage.name) for stage in stages if stage.source]
        if native:
            native += [Needed.of(each.SOURCE, each.NAME) for each in (driver, gil_yield)]
        return native + [
            Needed(c.key, c.name, partial(getattr, c, "text")) for c in self._entry_code()
        ]

    def _entry_code(self) -> tuple[EntryCode, ...]:
        """The code of the entries that calls of it may take."""
        if self._restored is not None:
            return self._restored.skeleton.entries
        if self._entries is None:
            alone = one_run(self.stages, self._roots) is not None
            self._entries = usual_code(self.inputs.values(), alone=alone)
        return self._entries

    def _compiled(self) -> Steps:
        """What runs, with all code it needs; definitions where there is no compiler."""
        try:
            if self._native is None:
                self._native = self._steps()
            for code in self._entry_code():
                compiled(code)
        except NoCompiler as problem:
            found = f" ({problem.found})" if problem.found else ""
            said = f"{problem.what}{found}: {problem.hint}"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
        if self._native is not None:
            return self._native
        # Every operator by itself, in Python.
        inside = [item for item in self.optimised.nodes() if not isinstance(item.op, Source)]
        return tuple(Stage(PYTHON, (item,), item.inputs, (item,)) for item in inside)

    @property
    def steps(self) -> Steps:
        """What runs, in order: native calls, and operators without native code."""
        return self._bound.wait() if self._native is None else self._native

    def wait(self, timeout: float | None = None) -> Plan:
        """This plan, as soon as its native code is there; TimeoutError if that takes longer."""
        self._bound.wait(timeout)
        return self

    def _steps(self) -> Steps:
        """Native stages that follow each other become one native call."""
        steps: list[NativeRun | Stage] = []
        pending: list[Stage] = []
        for place, stage in enumerate(self.stages):
            if not stage.source:
                self._close(pending, place, steps)
                steps.append(stage)
            else:
                if any(made.stores(item) for made in pending for item in made.outputs):
                    self._close(pending, place, steps)
                pending.append(stage)
        self._close(pending, len(self.stages), steps)
        return tuple(steps)

    def _close(self, pending: list[Stage], end: int, steps: list[NativeRun | Stage]) -> None:
        if pending:
            later = {value for stage in self.stages[end:] for value in stage.inputs}
            steps.append(NativeRun.of(pending, later | set(self._roots)))
            pending.clear()

    # --- running -----------------------------------------------------------------------------

    def run(self, data: object) -> dict[str, Any]:
        """Every output for a block of rows.

        Data of another float width or sparsity than the program was made for runs on a plan of its
        own, as the training library would compute in that width. It is baked in the background when
        such data first comes; until then the definitions answer short blocks.
        """
        return self._run_block(data)

    def run_arrow(self, data: object) -> Any:
        """Every output as Arrow, for a batch, table or stream of it: see docs/68-bulk.md."""
        from oven.plans.arrow import run_arrow

        return run_arrow(self, data)

    def _first_run(self, data: object) -> dict[str, Any]:
        """`run` until the plan's own entry is there."""
        data = self.reader.nulls.of_rows(data)
        batch = self.reader.read(data)
        if not batch.is_block:
            return self.answer(batch.block if has_nulls(data) else data)
        call = self._call or self._open()
        return dict(zip(self._names, call(batch.data)))  # noqa: B905 (checking would cost as much)

    def entry(self) -> Call:
        """From a row or a block to the outputs as a tuple: see oven.entry.array_entry.

        The fastest way in, machine code where all is native. It stays good without the plan.
        """
        self.wait()
        return self._opened()

    def column_entry(
        self, ranks: Mapping[str, int], otherwise: Callable[[object], Any]
    ) -> Call | None:
        """An entry that only takes a dict of arrays with these dimensions; None if there is none.

        `ranks` says, by name, whether an array is FLAT or a COLUMN (see oven.entry.columns_entry).
        What it does not take, it hands to `otherwise`, whose answer it gives back.
        """
        steps = PlanSteps(self.inputs, self.wait().steps, self._roots)
        return open_columns_entry(steps, otherwise, ranks)

    def pack_rows(self, data: object) -> PackedRows | None:
        """Arrays by name, or documents, as rows for native code; None for all other data."""
        if self._pack is None:
            self._pack = open_row_packing(PlanSteps(self.inputs, self.steps, self._roots))
        return self._pack(data)

    def _open(self) -> Call:
        """The plan's own entry, kept once the code is there; it must not keep the plan alive."""
        call = self._opened(weakly)
        if self.ready:
            self._call = call
            if self._native is None:
                return call
            self._run_block = open_array_call(call, self._run_block, self._names) or self._run_block
            vars(self)["run"] = self._run_block  # calls then need not look for the method
        return call

    def _opened(self, held: Callable[[Any], Any] = lambda method: method) -> Call:
        slow = around(held(self.answer), self.reader, held(self.entry_of_variant))
        steps = self._bound.here
        if not steps or self._native is None:
            return slow
        return open_entry(PlanSteps(self.inputs, steps, self._roots), slow, self.reader.nulls)

    def entry_of_variant(self, data: object) -> Call | None:
        """The entry for an array's own type, if that is another plan's and is there."""
        coming = self._by_dtype.get(array_dtype(data))
        plan = None if coming is None else coming.here
        if plan is None or not plan.ready:
            return None
        return plan._call or plan._open()  # noqa: SLF001 (this is the class)

    def begin(self, data: object) -> Execution:
        """A run over this data that can be done in chunks, by several threads."""
        from oven.plans.execution import Execution

        self.wait()
        return Execution(self, data)

    @property
    def row_work(self) -> int | None:
        """About how many bytes a row makes native code touch; None where there is other code."""
        runs = [step for step in self.steps if isinstance(step, NativeRun)]
        native = all(kind != PYTHON for kind, _ in self.stage_kinds)
        return sum(run.row_work for run in runs) if native else None

    @property
    def entry_work(self) -> int | None:
        """What a row costs by the entry, in bytes; None where it is not machine code alone.

        Labels are looked up by the entry itself.
        """
        runs = [step for step in self.steps if isinstance(step, NativeRun)]
        rest = [item for step in self.steps if isinstance(step, Stage) for item in step.nodes]
        if len(runs) != 1 or not all(isinstance(item.op, TakeText) for item in rest):
            return None
        labels = sum(kind == LABELS for kind, _ in self.stage_kinds)
        return runs[0].row_work + LABEL_WORK * labels

    def is_compiled_for(self, data: object) -> bool:
        """Whether the native code for the data's own types is there, without a wait."""
        if array_dtype(data) not in self._by_dtype:
            kinds = native_types(self.inputs, data)
            if kinds != self.inputs and tuple(kinds.values()) not in self._variants:
                return False
        coming = self._for_dtypes(data)
        plan = self if coming is None else coming.here
        return plan is not None and plan.ready

    def for_dtypes(self, data: object) -> Plan:
        """The plan for the data's own types: this one or a variant."""
        coming = self._for_dtypes(data)
        return self if coming is None else coming.wait()

    def answer(self, data: object) -> dict[str, Any]:
        """Every output for a row or a block, whatever its form: what entries hand on comes here."""
        if is_by_columns(data):  # a frame's own array; native code reads rows
            return self.run(np.ascontiguousarray(data))
        coming = self._for_dtypes(data)
        if coming is None:
            return self._run(data)
        plan = coming.here
        if plan is None and row_count(data) <= MEANWHILE:
            try:
                return self._meanwhile(data)
            finally:
                coming.begin()  # after the answer, which would wait for it
        return (plan or coming.wait()).run(data)

    def _meanwhile(self, data: object) -> dict[str, Any]:
        """Every output while the variant for the data's types is being baked."""
        if widens_exactly(self.flow, native_types(self.inputs, data)):
            try:
                return self._run(data)
            except FlourError:
                pass  # the definitions say what is wrong with the data as it is
        return self.flow.reference(data)

    def _for_dtypes(self, data: object) -> Pending[Plan] | None:
        """The variant for the data's own types, perhaps still to come; None for this plan."""
        name = array_dtype(data)
        if name in self._by_dtype:
            return self._by_dtype[name]
        kinds = native_types(self.inputs, data)
        found = None if kinds == self.inputs else self._variants.get(tuple(kinds.values()))
        if found is None and kinds != self.inputs:
            later = BY_DEFAULT[0] if self._background is None else self._background
            found = Pending(partial(self._baked_for, kinds), later, held=True)
            self._variants[tuple(kinds.values())] = found
        if name is not None:
            self._by_dtype[name] = found
        return found

    @property
    def variants(self) -> tuple[Plan, ...]:
        """The plans made so far for data of other float widths or sparsity."""
        coming = (each.here for each in self._variants.values())
        return tuple(plan for plan in coming if plan is not None)

    def variant(self, kinds: Mapping[str, Type]) -> Plan:
        """The plan of the same program over other input types; baked here if it is not there."""
        coming = self._variants.get(tuple(kinds.values()))
        plan = None if coming is None else coming.here
        if plan is None:
            made = plan = self._baked_for(kinds)
            self._variants[tuple(kinds.values())] = Pending(lambda: made, background=False)
        return plan

    def _baked_for(self, kinds: Mapping[str, Type]) -> Plan:
        flow = self.flow.retype(**kinds)
        bake = partial(bakers[-1], exact=self.exact, compiler=self.compiler)
        made = bake(flow, background=self._background)
        if self._check is not None:
            self._check(made.stages)
        return made

    def _run(self, data: object) -> dict[str, Any]:
        columns, rows = coerce(self.inputs, data)
        made = self.run_columns(columns, rows)
        return {name: public(value, self.leaves[name].type) for name, value in made.items()}

    def run_columns(self, columns: Columns, rows: int) -> dict[str, Columns]:
        """Every output for columns that already are what the inputs' types say."""
        steps = self._native
        if steps is None:  # still compiling, or there is no compiler
            self._bound.check()
            return by_definition(self.optimised, columns)
        try:
            values: dict[Value, Any] = {}
            for step in steps:
                if isinstance(step, NativeRun):
                    given = {v: native_column(v, values, columns) for v in step.inputs}
                    values |= step.run(given, rows)
                else:
                    values |= interpret(step.nodes[0], values, columns)
            return {name: output_value(item, values, columns) for name, item in self.leaves.items()}
        except RowsRefused:
            return by_definition(self.optimised, columns)  # which says what is wrong, and where

    # --- looking and keeping -------------------------------------------------------------------

    def save(
        self,
        path: str | Path,
        *,
        durable: bool = True,
        code: Sequence[str] = (),
        training: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the plan as data, a manifest and blobs; `oven.plans.saved.save` has the options."""
        from oven.plans.saved import save

        save(self, path, durable=durable, code=code, training=training)

    def parameters(self) -> frozenset[Parameter]:
        """Every array and table the plan refers to: as written, optimised, and derived for code."""
        nodes = (item for flow in (self.optimised, self.flow) for item in flow.nodes())
        named = {parameter for item in nodes for parameter in item.op.parameters()}
        return frozenset(named.union(*(stage.parameters() for stage in self.stages)))

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        """The function that reads the plan's file with all checks, and the file."""
        from oven.plans import saved

        return saved.from_bytes, (saved.to_bytes(self),)

    def __deepcopy__(self, _: object = None) -> Self:
        """The plan itself, which does not change once it is made."""
        return self

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        return f"Plan({', '.join(self.outputs)}: {', '.join(kind for kind, _ in self.stage_kinds)})"


# --- what the rooms above do for plans: importing `oven` attaches it ---------------------------


class Bake(Protocol):
    """`oven.bake`: the plan of a program."""

    def __call__(
        self,
        flow: Flow,
        *,
        exact: bool = False,
        background: Background = None,
        compiler: Compiler = "pretzel",
    ) -> Plan:
        """Bake a program."""


#: The last one bakes what plans need: variants of themselves, programs of one output.
bakers: list[Bake] = []
#: Called with each new plan where PRETZEL_DEBUG or PRETZEL_DUMP ask for a report.
reporters: list[Callable[[Plan, RewriteTrace | None], object]] = []
