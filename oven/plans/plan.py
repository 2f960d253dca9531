"""Plan: a program baked into stages, frozen, ready to run any number of times from any thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from flour.core.errors import FlourError
from flour.core.node import Node
from flour.core.op import Columns
from flour.core.reference import public
from flour.core.source import Source
from flour.core.types import Type, Vector
from flour.data.batch import BatchReader, array_dtype, is_by_columns, row_count
from flour.data.coerce import coerce, native_types
from flour.data.nulls import has_nulls, known_missing_of
from flour.language.flow import Flow
from oven.codegen.stages import Stage, Value
from oven.entry.array_call import open_array_call
from oven.entry.array_entry import Call, around, weakly
from oven.entry.columns_entry import open_entry
from oven.plans.background import BY_DEFAULT, Background, Pending
from oven.plans.code import PlanCode
from oven.plans.execution import Execution
from oven.plans.manifest import save
from oven.plans.program import Compiler, PlanProgram
from oven.plans.skeleton import Facts
from oven.plans.values import by_definition, interpret, native_column, output_value
from oven.run.native_run import NativeRun, RowsRefused

#: Operators that hand numbers on as they are, by name: programs have few, and no other is imported.
CARRYING = frozenset({"AsFloat", "AsVector", "Concat", "Element", "RequireFinite", "Select"})
#: Operators that only compare the numbers they read, as trees do: float32 and the same numbers in
#: float64 have the same answers to the bit, so such rows need no plan of their own.
COMPARING = frozenset({"TreeLeaves", "Trees"})


def widens_exactly(flow: Flow, kinds: Mapping[str, Type]) -> bool:
    """True if a program gives the same bits for inputs of these types, made float64 or not."""
    own = flow.inputs()
    narrow = {name for name, kind in kinds.items() if kind != own[name]}
    for name in narrow:
        kind = own[name]
        if not isinstance(kind, Vector) or kinds[name] != kind.having(dtype="float32"):
            return False
        if kind.dtype != "float64":
            return False
    carried: set[Node] = set()
    for item in flow.nodes():
        if isinstance(item.op, Source):
            carried.update({item} if item.op.label in narrow else ())
        elif (
            carried.isdisjoint(item.inputs)
            or item.op.name in COMPARING
            or (item.op.name == "Cast" and item.op.fields()["dtype"] == "float64")
        ):
            continue
        elif item.op.name in CARRYING:
            carried.add(item)
        else:
            return False
    return carried.isdisjoint(flow.outputs.values())


if TYPE_CHECKING:
    from oven.optimise.rewrite import RewriteTrace
    from oven.plans.skeleton import RestoredPlan

#: Blocks of up to this many rows are not kept waiting for a variant that is being baked.
MEANWHILE = 64
#: Sets of outputs for which a plan has variants, at most.
_MOST_BY_OUTPUTS = 8


@runtime_checkable
class HasPlan(Protocol):
    """Anything with a plan inside, such as a `pretzel.Model`."""

    @property
    def plan(self) -> Plan:
        """The plan that answers for it."""


class Plan:
    """Native code for a program: a pure function from named columns to named columns."""

    #: Whether a request may have to wait for something else than a processor: a graph's may.
    waits = False
    #: What was known at its import, read from its file when asked for; see oven.plans.training.
    training: Callable[[], Mapping[str, Any]] = dict
    #: Where it was loaded from; see oven.plans.saved.
    source: object = None

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
        self._begin(program, Facts.of(flow, optimised, exact=exact), background, check)

    def _begin(
        self,
        program: PlanProgram,
        facts: Facts,
        background: Background,
        check: Callable[[Sequence[Stage]], None] | None,
    ) -> None:
        #: The program as it was written, as it runs, and in stages.
        self.program, self.facts = program, facts
        #: The named inputs and their types.
        self.inputs, self.exact = facts.inputs, facts.exact
        #: The node of each output, which code computes or looks labels up by.
        self.leaves: Mapping[str, Node] = facts.leaves
        #: The labels of the columns of probabilities, where the plan looks labels up.
        self.classes = facts.classes
        #: Whether answers depend on other rows: blocks are then neither cut nor put together.
        self.mixes_rows = facts.mixes_rows
        self._names = tuple(self.leaves)
        #: Its native code, there or still being compiled.
        self.code = PlanCode(program, self.inputs, [*self.leaves.values()], background)
        #: The plans for data of other float widths or sparsity.
        self.variants = PlanVariants(program, self.code, self.inputs, background, check)
        #: Tells what form the data of a call has.
        self.reader = BatchReader(self.inputs, known_missing_of(self))
        self._run_block: Callable[[object], dict[str, Any]] = weakly(self._first_run)
        self._call: Call | None = None

    @property
    def flow(self) -> Flow:
        """The program as it was written."""
        return self.program.flows[0]

    @property
    def digest(self) -> str:
        """Equal programs have equal digests."""
        return self.program.digest

    @property
    def outputs(self) -> dict[str, Type]:
        """The named outputs and their types."""
        return {name: item.type for name, item in self.leaves.items()}

    @property
    def ready(self) -> bool:
        """True once all code is there, so that no usual call compiles any; see `code`."""
        return self.code.ready

    def wait(self, timeout: float | None = None) -> Plan:
        """This plan, as soon as its native code is there; TimeoutError if that takes longer."""
        self.code.wait(timeout)
        return self

    # --- running -----------------------------------------------------------------------------

    def run(self, data: object) -> dict[str, Any]:
        """Every output for a block of rows.

        Data of another float width or sparsity than the program was made for runs on a plan of its
        own, as the training library would compute in that width. It is baked in the background when
        such data first comes; until then the definitions answer short blocks.
        """
        return self._run_block(data)

    def run_arrow(self, data: object) -> Any:
        """Every output as Arrow, for a batch, table or stream of it: see docs/reference/bulk.md."""
        from oven.plans.arrow import run_arrow

        return run_arrow(self, data)

    def _first_run(self, data: object) -> dict[str, Any]:
        """`run` until the plan's own entry is there."""
        batch = self.reader.read(data)
        if not batch.is_block:
            return self.answer(batch.block if has_nulls(data) else self.reader.nulls.of_rows(data))
        call = self._call or self._open()
        return dict(zip(self._names, call(batch.data)))  # noqa: B905 (checking would cost as much)

    def entry(self) -> Call:
        """From a row or a block to the outputs as a tuple: see oven.entry.array_entry.

        The fastest way in, machine code where all is native. It stays good without the plan.
        """
        self.wait()
        return self._opened()

    def _open(self) -> Call:
        """The plan's own entry, kept once the code is there; it must not keep the plan alive."""
        call = self._opened(weakly)
        if self.ready:
            self._call = call
            if self.code.native is None:
                return call
            self._run_block = open_array_call(call, self._run_block, self._names) or self._run_block
            vars(self)["run"] = self._run_block  # calls then need not look for the method
        return call

    def _opened(self, held: Callable[[Any], Any] = lambda method: method) -> Call:
        entry: weakref.ref[Call] | None = None  # the entry holds what is called here
        slow = around(
            *(held(self.answer), self.reader, held(self._entry_of_variant)),
            lambda: None if entry is None else entry(),
        )
        steps = self.code.here
        if not steps or self.code.native is None:
            return slow
        made = open_entry(self.code.table(steps), slow, self.reader.nulls)
        entry = weakref.ref(made)
        return made

    def _entry_of_variant(self, data: object) -> Call | None:
        """The entry for an array's own type, if that is another plan's and is there."""
        plan = self.variants.of_array(data)
        if plan is None:
            return None
        return plan._call or plan._open()  # noqa: SLF001 (this is the class)

    def begin(self, data: object) -> Execution:
        """A run over this data that can be done in chunks, by several threads."""
        self.wait()
        laid = self.code.pack_rows(data)
        plan = (None if laid else self.variants.of(data)) or self
        return Execution(plan.facts, plan.program, plan.code, data, laid)

    def answer(self, data: object) -> dict[str, Any]:
        """Every output for a row or a block, whatever its form: what entries hand on comes here."""
        if is_by_columns(data):  # a frame's own array; native code reads rows
            return self.run(np.ascontiguousarray(data))
        coming = self.variants.pending(data)
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

    def _run(self, data: object) -> dict[str, Any]:
        columns, rows = coerce(self.inputs, data)
        made = self.run_columns(columns, rows)
        return {name: public(value, self.leaves[name].type) for name, value in made.items()}

    def run_columns(self, columns: Columns, rows: int) -> dict[str, Columns]:
        """Every output for columns that already are what the inputs' types say."""
        steps = self.code.native
        if steps is None:  # still compiling, or there is no compiler
            self.code.check()
            return by_definition(self.program.optimised, columns)
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
            return by_definition(
                self.program.optimised, columns
            )  # which says what is wrong, and where

    # --- looking and keeping -------------------------------------------------------------------

    def save(
        self,
        path: str | Path,
        *,
        durable: bool = True,
        code: Sequence[str] = (),
        training: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the plan as data; `oven.plans.manifest.save` has the options."""
        known = self.training() if training is None else training
        save(self.program, self.code, path, durable=durable, levels=code, training=known)

    def __deepcopy__(self, _: object = None) -> Plan:
        """The plan itself, which does not change once it is made."""
        return self

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        kinds = ", ".join(kind for kind, _ in self.program.stage_kinds)
        return f"Plan({', '.join(self.outputs)}: {kinds})"


def restore(
    restored: RestoredPlan,
    read: Callable[[], tuple[Flow, Flow]],
    check: Callable[[Sequence[Stage]], None] | None = None,
    *,
    background: Background = None,
    held: Sequence[Node] = (),
) -> Plan:
    """A plan made from an image; `read` makes its program when it is first looked at."""
    plan, facts = Plan.__new__(Plan), restored.skeleton.facts
    program = PlanProgram(read, exact=facts.exact, restored=restored, held=held)
    plan._begin(program, facts, background, check)  # noqa: SLF001 (of this file)
    return plan


class PlanVariants:
    """Plans baked when data of their types first comes, or only some outputs are asked for."""

    __slots__ = (
        *("_background", "_by_dtype", "_by_outputs", "_by_types", "_check", "_code", "_inputs"),
        "_program",
    )

    def __init__(
        self,
        program: PlanProgram,
        code: PlanCode,
        inputs: Mapping[str, Type],
        background: Background,
        check: Callable[[Sequence[Stage]], None] | None,
    ) -> None:
        self._program, self._code, self._inputs = program, code, inputs
        self._background, self._check = background, check
        self._by_types: dict[tuple[Type, ...], Pending[Plan]] = {}
        self._by_dtype: dict[str | None, Pending[Plan] | None] = {}
        self._by_outputs: dict[frozenset[str], Pending[Plan | None]] = {}

    @property
    def here(self) -> tuple[Plan, ...]:
        """The plans made so far."""
        made = [each.here for each in self._by_types.values()]
        made += [each.here for each in self._by_outputs.values()]
        return tuple(plan for plan in made if plan is not None)

    def pending(self, data: object) -> Pending[Plan] | None:
        """The variant for the data's own types, perhaps still to come; None for the plan itself."""
        name = array_dtype(data)
        if name in self._by_dtype:
            return self._by_dtype[name]
        kinds = native_types(self._inputs, data)
        found = None if kinds == self._inputs else self._by_types.get(tuple(kinds.values()))
        if found is None and kinds != self._inputs:
            later = BY_DEFAULT[0] if self._background is None else self._background
            found = Pending(partial(self._baked, kinds), later, held=True)
            self._by_types[tuple(kinds.values())] = found
        if name is not None:
            self._by_dtype[name] = found
        return found

    def of(self, data: object) -> Plan | None:
        """The variant for the data's own types, baked by now; None for the plan itself."""
        coming = self.pending(data)
        return None if coming is None else coming.wait()

    def of_array(self, data: object) -> Plan | None:
        """The variant for an array's own type, if it is known, there and ready."""
        coming = self._by_dtype.get(array_dtype(data))
        plan = None if coming is None else coming.here
        return plan if plan is not None and plan.ready else None

    def of_outputs(self, names: Collection[str]) -> Plan | None:
        """The plan of these outputs alone, once its code is there; asking has it made.

        It does what the whole plan does for them, operator by operator, and refuses the same rows.
        """
        asked = frozenset(names)
        coming = self._by_outputs.get(asked)
        if coming is None:
            if len(self._by_outputs) >= _MOST_BY_OUTPUTS:
                return None
            later = BY_DEFAULT[0] if self._background is None else self._background
            coming = Pending(partial(self._alone, asked), later, held=True)
            self._by_outputs[asked] = coming
            if not coming.done:
                coming.begin()
        plan = coming.here
        return plan if plan is not None and plan.ready else None

    def is_settled(self, names: Collection[str]) -> bool:
        """True if `of_outputs` has answered what it will always answer for these."""
        coming = self._by_outputs.get(frozenset(names))
        if coming is None or not coming.done:
            return coming is None and len(self._by_outputs) >= _MOST_BY_OUTPUTS
        return coming.here is None or coming.here.ready

    def _alone(self, asked: frozenset[str]) -> Plan | None:
        """The plan of these outputs; None where it would take rows that the whole one refuses."""
        written, optimised = (
            Flow({name: item for name, item in flow.outputs.items() if name in asked})
            for flow in self._program.flows
        )
        whole = self._program.optimised
        same = [*optimised.inputs().items()] == [*whole.inputs().items()]
        fewer = 0 < len(optimised.outputs) < len(whole.outputs)
        if not (fewer and same) or _refusing(optimised) != _refusing(whole):
            return None
        return Plan(
            written,
            optimised,
            exact=self._program.exact,
            background=self._background,
            check=self._check,
            compiler=self._program.compiler,
        )

    def ready_for(self, data: object) -> bool:
        """True if the native code for the data's own types is there, without a wait."""
        if array_dtype(data) not in self._by_dtype:
            kinds = native_types(self._inputs, data)
            if kinds != self._inputs and tuple(kinds.values()) not in self._by_types:
                return False
        coming = self.pending(data)
        if coming is None:
            return self._code.ready
        return coming.here is not None and coming.here.ready

    def baked(self, kinds: Mapping[str, Type]) -> Plan:
        """The plan over these input types; baked here if it is not there."""
        coming = self._by_types.get(tuple(kinds.values()))
        plan = None if coming is None else coming.here
        if plan is None:
            made = plan = self._baked(kinds)
            self._by_types[tuple(kinds.values())] = Pending(lambda: made, background=False)
        return plan

    def _baked(self, kinds: Mapping[str, Type]) -> Plan:
        flow = self._program.flows[0].taking(kinds)
        bake = partial(bakers[-1], exact=self._program.exact, compiler=self._program.compiler)
        made = bake(flow, background=self._background)
        if self._check is not None:
            self._check(made.program.stages)
        return made


def _refusing(flow: Flow) -> set[Node]:
    """The nodes that refuse rows."""
    return {item for item in flow.nodes() if item.op.refuses_rows()}


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
