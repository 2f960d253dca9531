"""The native code of a plan, and of the entries that calls of it may take."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import Type
from flour.ops.structure import TakeText
from oven.codegen.stages import LABELS, PYTHON, Stage
from oven.compiler import driver, gil_yield
from oven.entry.array_entry import Call
from oven.entry.builtin import compiled
from oven.entry.columns_entry import open_columns_entry
from oven.entry.generator import EntryCode
from oven.entry.row_packing import PackedRows, PackRows, open_row_packing
from oven.entry.tables import PlanSteps
from oven.entry.usual import usual_code
from oven.errors import NoCompiler
from oven.plans.background import Background, Needed, Pending, at_hand
from oven.plans.program import PlanProgram
from oven.plans.skeleton import one_run
from oven.run.native_run import NativeRun

Steps = tuple[NativeRun | Stage, ...]
#: Putting a label into an array takes as long as touching so many bytes.
LABEL_WORK = 1 << 10


class PlanCode:
    """Native code, compiled when the plan is made or on another thread.

    A restored plan has that of its stages from its image, and does without its program.
    """

    __slots__ = ("_bound", "_entries", "_inputs", "_pack", "_program", "_roots", "native")

    def __init__(
        self,
        program: PlanProgram,
        inputs: Mapping[str, Type],
        roots: Sequence[Node],
        background: Background,
    ) -> None:
        self._program, self._inputs, self._roots = program, inputs, tuple(roots)
        self._entries: tuple[EntryCode, ...] | None = None
        self._pack: PackRows | None = None
        restored = program.restored
        #: The steps, from when their code is there; that of entries may come after it.
        self.native: Steps | None = None if restored is None else (restored.run,)
        if restored is not None and at_hand(self._needed()):
            background = False
        self._bound: Pending[Steps] = Pending(self._compiled, background, self._needed)

    @property
    def ready(self) -> bool:
        """True once all code is there, that of entries included: no usual call compiles any.

        An error in compiling it is raised here.
        """
        return self._bound.here is not None

    @property
    def here(self) -> Steps | None:
        """The steps, once all code is there; an error in compiling it is raised here."""
        return self._bound.here

    def check(self) -> None:
        """Raise the error that there was in compiling it, if any."""
        self._bound.check()

    @property
    def tier(self) -> int:
        """1 where native code answers, 0 where operators' definitions do."""
        return int(self.native is not None)

    @property
    def seconds_left(self) -> float:
        """About how long it will take until it is ready, as measured on this machine so far."""
        return self._bound.seconds_left

    def when_ready(self, call: Callable[[], object]) -> None:
        """Have this called once it is ready, or cannot be: now, or on the thread that compiles."""
        self._bound.when_done(call)

    def wait(self, timeout: float | None = None) -> Steps:
        """The steps, as soon as all code is there; TimeoutError if that takes longer."""
        return self._bound.wait(timeout)

    @property
    def steps(self) -> Steps:
        """The steps in order: native calls, and operators without native code."""
        return self._bound.wait() if self.native is None else self.native

    # --- the code that is needed ---------------------------------------------------------------

    def _needed(self) -> list[Needed]:
        """The code that has to be compiled or found before it is ready."""
        stages = self._program.stages if self.native is None else ()
        native = [Needed.of(stage.source, stage.name) for stage in stages if stage.source]
        if native:
            native += [
                Needed.of_function(each) for each in (driver.run_stages, gil_yield.run_aside)
            ]
        return native + [
            Needed(c.key, c.name, partial(getattr, c, "text")) for c in self._entry_code()
        ]

    def _entry_code(self) -> tuple[EntryCode, ...]:
        """The code of the entries that calls of it may take."""
        program = self._program
        if program.restored is not None:
            return program.restored.skeleton.entries
        if self._entries is None:
            alone = one_run(program.stages, self._roots) is not None
            self._entries = usual_code(self._inputs.values(), alone=alone)
        return self._entries

    def _compiled(self) -> Steps:
        """The steps, with all code they need; definitions where there is no compiler."""
        try:
            if self.native is None:
                self.native = self._joined()
            for code in self._entry_code():
                compiled(code)
        except NoCompiler as problem:
            found = f" ({problem.found})" if problem.found else ""
            said = f"{problem.what}{found}: {problem.hint}"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
        if self.native is not None:
            return self.native
        # Every operator by itself, in Python.
        nodes = self._program.optimised.nodes()
        inside = [item for item in nodes if not isinstance(item.op, Source)]
        return tuple(Stage(PYTHON, (item,), item.inputs, (item,)) for item in inside)

    def _joined(self) -> Steps:
        """Native stages that follow each other become one native call."""
        steps: list[NativeRun | Stage] = []
        pending: list[Stage] = []
        stages = self._program.stages
        for place, stage in enumerate(stages):
            if not stage.source:
                self._close(pending, place, steps)
                steps.append(stage)
            else:
                if any(made.stores(item) for made in pending for item in made.outputs):
                    self._close(pending, place, steps)
                pending.append(stage)
        self._close(pending, len(stages), steps)
        return tuple(steps)

    def _close(self, pending: list[Stage], end: int, steps: list[NativeRun | Stage]) -> None:
        if pending:
            later = {value for stage in self._program.stages[end:] for value in stage.inputs}
            steps.append(NativeRun.of(pending, later | set(self._roots)))
            pending.clear()

    # --- entries other than the plan's own, and what a row costs -------------------------------

    def table(self, steps: Steps) -> PlanSteps:
        """The table that an entry opens."""
        return PlanSteps(self._inputs, steps, self._roots)

    def column_entry(
        self, ranks: Mapping[str, int], otherwise: Callable[[object], Any]
    ) -> Call | None:
        """An entry that only takes a dict of arrays with these dimensions; None if there is none.

        `ranks` says, by name, whether an array is FLAT or a COLUMN (see oven.entry.columns_entry).
        What it does not take, it hands to `otherwise`, whose answer it gives back.
        """
        self.wait()
        return open_columns_entry(self.table(self.steps), otherwise, ranks)

    def pack_rows(self, data: object) -> PackedRows | None:
        """Arrays by name, or documents, as rows for native code; None for all other data."""
        if self._pack is None:
            self._pack = open_row_packing(self.table(self.steps))
        return self._pack(data)

    @property
    def row_work(self) -> int | None:
        """About how many bytes a row makes native code touch; None where there is other code."""
        runs = [step for step in self.steps if isinstance(step, NativeRun)]
        native = all(kind != PYTHON for kind, _ in self._program.stage_kinds)
        return sum(run.row_work for run in runs) if native else None

    @property
    def entry_work(self) -> int | None:
        """The cost of a row by the entry, in bytes; None unless it is machine code alone.

        Labels are looked up by the entry itself.
        """
        runs = [step for step in self.steps if isinstance(step, NativeRun)]
        rest = [item for step in self.steps if isinstance(step, Stage) for item in step.nodes]
        if len(runs) != 1 or not all(isinstance(item.op, TakeText) for item in rest):
            return None
        labels = sum(kind == LABELS for kind, _ in self._program.stage_kinds)
        return runs[0].row_work + LABEL_WORK * labels
