"""A plan at work on one block of rows, chunk by chunk: what the batch engine runs.

    work = plan.begin(data)                 the columns are checked here
    chunk = work.chunk(start, stop)
    for step in range(work.steps):          in this order for a chunk, chunks in any
        work.step(step, chunk, memory)
    answers = work.finish()

Outputs that native code makes are whole arrays from the start, and each chunk fills its rows of
them; nothing is copied when the last one is done. Chunks share nothing else, so threads may work
on different ones at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from flour.core.op import Columns
from flour.core.reference import public
from flour.core.rows import cut_rows, stacked
from flour.data.coerce import coerce
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value
from oven.compiler import shared_rows
from oven.plans.background import Needed, Pending
from oven.plans.values import by_definition, interpret, native_column, output_value
from oven.run.helpers import Division, Told
from oven.run.native_run import NativeRun, RowsRefused

if TYPE_CHECKING:
    from oven.entry.row_packing import PackedRows
    from oven.plans.code import PlanCode
    from oven.plans.program import PlanProgram
    from oven.plans.skeleton import Facts


class Chunk:
    """Some rows of an execution, and what its steps have made of them so far."""

    __slots__ = ("columns", "start", "stop", "values")

    def __init__(self, start: int, stop: int, columns: Columns) -> None:
        self.start, self.stop, self.columns = start, stop, columns
        self.values: dict[Value, Any] = {}


class Execution:
    """One block of rows on its way through a plan."""

    def __init__(
        self,
        facts: Facts,
        program: PlanProgram,
        code: PlanCode,
        data: object,
        laid: PackedRows | None,
    ) -> None:
        #: The rows as native code reads them, where machine code could lay them out.
        self._laid, self._data = laid, data
        self._inputs, self._program, self.code = facts.inputs, program, code
        self._columns: dict[str, Columns] | None = None
        self.rows = self._laid.rows if self._laid else self._coerced()
        #: Whether all rows have to go in one chunk, as their answers depend on each other.
        self.uncut = facts.mixes_rows
        self._outputs = facts.leaves
        self._steps: Sequence[NativeRun | Stage] = code.steps
        runs = [step for step in self._steps if isinstance(step, NativeRun)]
        #: The memory that a chunk's steps have to be given to work in.
        self.memory_bytes = max((run.memory_bytes for run in runs), default=0)
        wanted = set(self._outputs.values())
        self._made: dict[Value, NDArray[Any]] = {
            item: step.blank(item, self.rows)
            for step in runs
            for item in step.outputs
            if item in wanted and item not in step.stored
        }
        self._parts: dict[str, list[tuple[int, Columns]]] = {
            name: [] for name, item in self._outputs.items() if item not in self._made
        }
        self._refused: dict[str, Columns] | None = None

    @property
    def columns(self) -> dict[str, Columns]:
        """The input columns; made when they are first asked for, which packed rows seldom are."""
        if self._columns is None:
            self._coerced()
        assert self._columns is not None, "they have just been made"
        return self._columns

    def _coerced(self) -> int:
        """Make the input columns; how many rows they have."""
        self._columns, rows = coerce(self._inputs, self._data)
        return rows

    @property
    def steps(self) -> int:
        """The number of steps a chunk goes through; one at least."""
        return max(1, len(self._steps))

    @cached_property
    def _bound(self) -> Callable[[int, int, Any], None] | None:
        """The short way of a plan that is one native run from its input to its answers."""
        if len(self._steps) != 1 or self._parts or not self.rows:
            return None
        step = self._steps[0]
        if not isinstance(step, NativeRun):
            return None
        if self._laid is not None:
            return step.bound(self._laid.columns, self._made)
        # Ports of several columns are put together, better by the executors than by callers.
        if not all(isinstance(each, Port) and not each.fields for each in step.inputs):
            return None
        columns = self.columns
        given = {value: native_column(value, {}, columns) for value in step.inputs}
        return step.bound(given, self._made)

    def chunk(self, start: int, stop: int) -> Chunk:
        """These rows, to be taken through the steps."""
        whole = start == 0 and stop == self.rows
        assert whole or not self.uncut, "these rows depend on each other"
        if self._laid is not None:
            return Chunk(start, stop, {})
        return Chunk(start, stop, self.columns if whole else cut_rows(self.columns, start, stop))

    def step(self, number: int, chunk: Chunk, memory: object = None) -> None:
        """Take a chunk through one step; the last one leaves its rows of the answer.

        `memory` is a writable buffer of `memory_bytes` for native code.
        """
        if number < len(self._steps):
            step = self._steps[number]
            if isinstance(step, NativeRun):
                self._native(step, chunk, memory)
            else:
                chunk.values |= interpret(step.nodes[0], chunk.values, chunk.columns)
        if number == self.steps - 1:
            self._leave(chunk)

    def together(self, division: Division) -> Told | None:
        """Take all rows through all steps, by this thread and by helpers in native code.

        What that took, or None where it cannot be shared: nothing was done then. Ask
        `are_shared_natively` before.
        """
        if self.code.entry_work is None or not self.rows or self.uncut:
            return None
        step, *rest = self._steps
        assert isinstance(step, NativeRun), "labels alone come after one native run"
        chunk = self.chunk(0, self.rows)
        into: dict[Value, NDArray[Any]] = {
            item: self._made[item] if item in self._made else step.blank(item, self.rows)
            for item in step.outputs
        }
        try:
            told = step.together(self._given(step, chunk), self.rows, into, division)
        except RowsRefused:
            self._refused = by_definition(self._program.optimised, self.columns)
            return Told(0.0, 0.0, 1, 0)
        if told is None:
            return None
        chunk.values |= into
        for number in range(1, 1 + len(rest)):
            self.step(number, chunk)
        if not rest:
            self._leave(chunk)
        return told

    def _given(self, step: NativeRun, chunk: Chunk) -> dict[Value, Any]:
        """The columns that a step reads, for the rows of a chunk."""
        if self._laid is not None:
            return {v: self._laid.columns[v][chunk.start : chunk.stop] for v in step.inputs}
        return {v: native_column(v, chunk.values, chunk.columns) for v in step.inputs}

    def _native(self, step: NativeRun, chunk: Chunk, memory: object) -> None:
        values = chunk.values
        if self._bound is not None:
            try:
                self._bound(chunk.start, chunk.stop - chunk.start, memory)
            except RowsRefused:
                self._refused = by_definition(self._program.optimised, self.columns)
            return
        into: dict[Value, NDArray[Any]] = {
            item: self._made[item][chunk.start : chunk.stop]
            for item in step.outputs
            if item in self._made
        }
        try:
            values |= step.run(self._given(step, chunk), chunk.stop - chunk.start, into, memory)
        except RowsRefused:
            # The definition says what is wrong with which row, or knows an answer after all.
            self._refused = by_definition(self._program.optimised, self.columns)
            values |= dict.fromkeys(step.outputs)

    def _leave(self, chunk: Chunk) -> None:
        """Keep the outputs that are not in their place yet."""
        if self._refused is None:
            for name, parts in self._parts.items():
                value = output_value(self._outputs[name], chunk.values, chunk.columns)
                parts.append((chunk.start, value))

    def finish(self) -> dict[str, Any]:
        """Every output, once all chunks have been through all steps."""
        return {name: public(self._value(name), item.type) for name, item in self._outputs.items()}

    def _value(self, name: str) -> Columns:
        if self._refused is not None:
            return self._refused[name]
        item = self._outputs[name]
        if item in self._made:
            columns = {} if self._laid is not None else self.columns
            return output_value(item, self._made, columns)
        return stacked([part for _, part in sorted(self._parts[name], key=itemgetter(0))])


def are_shared_natively() -> bool:
    """True if blocks can be shared in native code: not before that code is there."""
    return bool(_shared_code().here)


@cache
def _shared_code() -> Pending[bool]:
    needed = [Needed.of_function(each) for each in shared_rows.FUNCTIONS.values()]
    return Pending(shared_rows.compiled, None, lambda: needed)
