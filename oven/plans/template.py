"""Plans of which only numbers differ: one is baked with formulas for its numbers, others are made.

    template = Template(flow, trace)    # a program of formulas: see flour.tracing.traced_array
    found = template.make(weights)      # what `Plan.restore` takes; None where it does not hold

A template is a shape (see oven.plans.skeleton) with a computation for each parameter that
depends on the numbers. The computation asks again whatever was asked of numbers while the program
was imported, rewritten and written as code; numbers that answer otherwise have a plan of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from flour.language.flow import Flow
from flour.ops.opaque import Opaque
from flour.tracing.replay import MOST_LATELY
from flour.tracing.traced_array import ArrayTrace, TracedArray
from flour.tracing.traced_digests import Names
from objectstore import Blob
from objectstore.blob import aligned_room
from oven.codegen.ports import find_ports
from oven.codegen.stages import cut
from oven.compiler import cache
from oven.optimise.rewrite import optimise
from oven.plans.skeleton import INLINE_BYTES, PlanSkeleton, RestoredPlan, described, one_run
from oven.run.native_run import NativeRun
from oven.run.run_signature import WORD, TableDraft, aligned

if TYPE_CHECKING:
    from oven.plans.plan import Plan


class NoTemplateError(Exception):
    """The program is not one native run of known code."""


class Template:
    """A plan without its numbers."""

    def __init__(self, flow: Flow, trace: ArrayTrace, *, named: bool = False) -> None:
        """Bake a program of formulas; where plans are `named`, they have digests, too."""
        optimised = optimise(flow, exact=False)
        roots = tuple(optimised.outputs.values())
        stages = tuple(cut(roots, find_ports(roots)))
        layout = one_run(stages, roots)
        if layout is None:
            raise NoTemplateError("not one native run")
        if any(isinstance(item.op, Opaque) for item in flow.nodes()):
            raise NoTemplateError("a part on onnxruntime")
        draft = layout.draft()
        text = described(flow, optimised, stages, layout, draft)
        if text is None:
            raise NoTemplateError("outputs that no recipe has")
        for _, source, name in draft.codes:
            cache.address(source, name)
        self.shape = PlanSkeleton(json.dumps(text).encode("ascii"))
        self._draft: TableDraft | None = draft
        self._row_work = draft.row_work
        self._names = Names(flow) if named else None
        self._place(draft, trace)

    def equals(self, plan: Plan) -> bool:
        """Whether the plan of the numbers in the trace is this one, made the usual way."""
        mine, self._draft = self._draft, None
        layout = one_run(plan.stages, tuple(plan.optimised.outputs.values()))
        theirs = None if layout is None else layout.draft()
        return (
            mine is not None
            and theirs is not None
            and (mine.words, mine.codes, mine.inner) == (theirs.words, theirs.codes, theirs.inner)
            and [*map(_content, mine.parameters)] == [*map(_content, theirs.parameters)]
        )

    def _place(self, draft: TableDraft, trace: ArrayTrace) -> None:
        """Where everything is in a plan's own memory."""
        words = np.array(draft.words, np.int64)
        for place, address in self.shape.codes:
            words[place] = address
        made: dict[Blob, list[int]] = {}
        constant: dict[Blob, None] = {}
        for place, blob in draft.parameters:
            if _is_formula(blob.array):
                made.setdefault(blob, []).append(place)
            else:
                constant[blob] = None
                words[place] = blob.array.ctypes.data
        self._kept = tuple(constant)
        named = [] if self._names is None else self._names.blobs
        self._recorded = trace.recorded([_formula(blob) for blob in (*made, *named)])
        #: Of each parameter that is made: the words that lead to it, and where it is, unless it
        #: is large and may be another plan's, too; and its size, where that is one.
        self._made: list[tuple[list[int], int | None, int]] = []
        end = aligned(WORD * len(words))
        for blob, places in made.items():
            free = _formula(blob).free  # as large as its numbers say
            if free or blob.nbytes >= INLINE_BYTES:
                self._made.append((places, None, 0 if free else blob.nbytes))
                continue
            self._made.append((places, end, blob.nbytes))
            end += aligned(blob.nbytes)
        self._words, self._size = words, end
        #: Parameters of no one size that were made lately, of arrays that came again.
        self._lately: list[tuple[NDArray[Any], Blob]] = []

    def make(self, numbers: Sequence[NDArray[Any]]) -> RestoredPlan | None:
        """The plan for these numbers; None where a question is answered otherwise."""
        found = self._recorded(numbers)
        if found is None:
            return None
        room = aligned_room(self._size)
        table: NDArray[np.int64] = room[: WORD * len(self._words)].view(np.int64)
        table[:] = self._words
        here = room.ctypes.data
        table[self.shape.inner] += here
        kept = [*self._kept]
        for (places, start, nbytes), array in zip(self._made, found, strict=False):
            if start is None:
                blob = Blob.of(array) if nbytes else self._common(array)
                kept.append(blob)
                table[places] = blob.array.ctypes.data
            else:
                room[start : start + nbytes] = np.frombuffer(array.tobytes(), np.uint8)
                table[places] = here + start
        run = NativeRun(self.shape.form, table, self._row_work, tuple(kept))
        digests = ("", "") if self._names is None else self._names.of(found[len(self._made) :])
        return RestoredPlan(self.shape.facts, run, *digests)

    def _common(self, array: NDArray[Any]) -> Blob:
        """An array as a parameter; one that was so lately is looked at no more."""
        for known, blob in self._lately:
            if known is array:
                return blob
        made = Blob.of(array)
        self._lately = [(array, made), *self._lately[: MOST_LATELY - 1]]
        return made


def _formula(blob: Blob) -> TracedArray:
    found: Any = blob.array
    assert isinstance(found, TracedArray), "it was looked for"
    return found


def _content(parameter: tuple[int, Blob]) -> tuple[int, str, bytes]:
    """Which word leads to a parameter, and what that is."""
    place, blob = parameter
    array: Any = blob.array
    return place, array.dtype.str, (array.here() if _is_formula(array) else array).tobytes()


def _is_formula(array: object) -> TypeGuard[TracedArray]:
    return isinstance(array, TracedArray)
