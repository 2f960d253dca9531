"""The image of a plan: all that it takes to have the plan again without its program.

    draft = PlanDraft.of(flow, optimised, stages, exact=False)
    image = draft.image(source)             # `source` says where each parameter comes from
    image.restore(find, numbers)            # what `Plan.restore` takes

Baking or loading a plan makes its program, checks it, cuts it and writes code that is in the cache
already. An image keeps what came of that: a skeleton, which plans of one structure share, and the
table of the plan's one native run (see oven.run.run_signature). Each parameter of the table is

- behind the table, where it is small: its content, or room for a result of the computation,
- an array of the plan's file, by its record, which has its digest,
- a blob that all plans of the image share, or
- a result of a computation of a model's numbers (see flour.tracing.traced_array).

The image of a saved plan is a file in the code cache (see oven.plans.image_cache): `to_bytes`,
`from_bytes`. The image of a structure of models is in memory (see oven.plans.template_lookup).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.bounded import Bounded
from flour.core.op import Op
from objectstore import Archive, Blob, aligned_room
from objectstore.archive import array_at
from objectstore.layout import ArrayRecord
from oven.plans.skeleton import Facts, PlanSkeleton, RestoredPlan, described, one_run
from oven.run.run_signature import TableDraft, aligned

if TYPE_CHECKING:
    from flour.language.flow import Flow
    from flour.tracing.replay import Recorded
    from flour.tracing.traced_digests import TracedDigests
    from oven.codegen.stages import Stage
    from oven.plans.plan import Plan

#: Parameters of so many bytes or more are blobs, which plans share by content. Smaller ones are
#: behind the table: a blob takes as much memory itself.
SHARED_BYTES = 1024
#: Results of a computation seldom have the content of others, and its digest takes time.
SHARED_RESULT_BYTES = 4096

_HEAD = struct.Struct("<III")


class Computed(NamedTuple):
    """A parameter that is a result of the image's computation."""

    result: int
    #: Whether it is small, and behind the table.
    inside: bool
    #: Whether models often have it in common.
    common: bool


Source = ArrayRecord | Blob | Computed
Find = Callable[[ArrayRecord], Blob]


class PlanDraft(NamedTuple):
    """A plan as data: what it has in common with others, and its table without addresses."""

    common: dict[str, Any]
    table: TableDraft

    @staticmethod
    def of(
        flow: Flow, optimised: Flow, stages: Sequence[Stage], *, exact: bool
    ) -> PlanDraft | None:
        """The draft of a plan; None where more than one native run makes its outputs."""
        layout = one_run(stages, tuple(optimised.outputs.values()))
        if layout is None:
            return None
        table = layout.draft()
        common = described(Facts.of(flow, optimised, exact=exact), stages, layout, table)
        return None if common is None else PlanDraft(common, table)

    def image(self, source: Callable[[Blob], Source | None]) -> PlanImage:
        """The image; `source` says where a parameter comes from, None for content of the image."""
        sources = {one: source(one) for _, one in self.table.parameters}
        words, inner = np.array(self.table.words, np.int64), [*self.table.inner]
        inside, end = dict[Blob, int](), aligned(words.nbytes)
        for one, found in sources.items():
            if found is None or (isinstance(found, Computed) and found.inside):
                inside[one] = end
                end += aligned(one.nbytes)
        outer = {one: n for n, one in enumerate(one for one in sources if one not in inside)}
        for place, one in self.table.parameters:
            if one in inside:
                words[place] = inside[one]
                inner.append(place)
        links = [(place, outer[one]) for place, one in self.table.parameters if one in outer]
        memory = np.zeros(end, np.uint8)
        memory[: words.nbytes] = words.view(np.uint8)
        for one, start in inside.items():
            if sources[one] is None:
                memory[start : start + one.nbytes] = _content(one.array)
        text = _json(self.common | {"words": len(words), "inner": inner, "outer": links})
        others = [found for one in outer if (found := sources[one]) is not None]
        each = ((start, sources[one]) for one, start in inside.items())
        written = [(start, one.result) for start, one in each if isinstance(one, Computed)]
        return PlanImage(text, memory, self.table.row_work, others, written=written)


@dataclass(slots=True)
class PlanImage:
    """A plan, or all plans of a structure, without their programs."""

    #: What the skeleton is made of.
    text: bytes
    #: The table, and the small parameters.
    memory: NDArray[np.uint8]
    row_work: int
    #: Where the other parameters come from.
    sources: Sequence[Source]
    digest: str = ""
    nodes: str = ""
    #: Which results are put where into the memory.
    written: Sequence[tuple[int, int]] = ()
    recorded: Recorded | None = None
    digests: TracedDigests | None = None
    skeleton: PlanSkeleton | None = None
    #: Of each source that is a blob: where it is; else 0.
    addresses: Sequence[int] = field(init=False)
    #: Results that models had in common, such as hash tables of the same words, as blobs; by the
    #: `id` of the array, which is kept, so that no other one has it.
    common: Bounded[int, tuple[NDArray[Any], Blob]] | None = None

    def __post_init__(self) -> None:
        blobs = [one if isinstance(one, Blob) else None for one in self.sources]
        self.addresses = [0 if one is None else one.array.ctypes.data for one in blobs]

    def restore(
        self, find: Find | None = None, numbers: Sequence[NDArray[Any]] = ()
    ) -> RestoredPlan | None:
        """The plan; None where these numbers would lead to another one.

        `find` finds arrays by their records. LookupError where the machine code is gone.
        """
        if self.skeleton is None:
            self.skeleton = PlanSkeleton.of(self.text)
        results = [] if self.recorded is None else self.recorded(numbers)
        if results is None:
            return None
        memory = aligned_room(len(self.memory))
        memory[:] = self.memory
        for start, result in self.written:
            memory[start : start + results[result].nbytes] = _content(results[result])
        parameters = [self._parameter(source, find, results) for source in self.sources]
        both = zip(self.addresses, parameters, strict=True)
        addresses = [address or one.array.ctypes.data for address, one in both]
        run = self.skeleton.run(memory, addresses, self.row_work, tuple(parameters))
        found = self.digests.of(results) if self.digests else (self.digest, self.nodes)
        return RestoredPlan(self.skeleton, run, *found)

    def _parameter(
        self, source: Source, find: Find | None, results: Sequence[NDArray[Any]]
    ) -> Blob:
        if isinstance(source, Blob):
            return source
        if isinstance(source, ArrayRecord):
            assert find is not None, "an image with arrays of a file has that file"
            return find(source)
        array = results[source.result]
        if self.common is None or not source.common:
            return Blob.of(array)
        there = self.common.get(id(array))
        if there is None:
            self.common[id(array)] = there = array, Blob.of(array)
        return there[1]

    # --- as a file -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The image without a computation: two texts in JSON, the table, and blobs of its own."""
        own, end = dict[Blob, ArrayRecord](), len(self.memory)
        for one in self.sources:
            if isinstance(one, Blob):
                own[one] = ArrayRecord(one.digest, one.dtype.str, True, end, one.nbytes, one.shape)
                end += aligned(one.nbytes)
        sources = [
            (True, own[one]) if isinstance(one, Blob) else (False, one) for one in self.sources
        ]
        rest = _json([self.row_work, sources, self.digest, self.nodes])
        sizes = _HEAD.pack(len(self.text), len(rest), len(self.memory))
        payloads = [one.array.tobytes().ljust(aligned(one.nbytes), b"\0") for one in own]
        return b"".join([sizes, self.text, rest, self.memory.tobytes(), *payloads])

    @staticmethod
    def from_bytes(data: bytes) -> PlanImage:
        """The image that these bytes are."""
        sizes = _HEAD.unpack_from(data)
        first, second = _HEAD.size + sizes[0], _HEAD.size + sizes[0] + sizes[1]
        row_work, records, digest, nodes = json.loads(data[first:second])
        payloads = np.frombuffer(data, np.uint8, -1, second)
        sources = list[Source]()
        for own, fields in records:
            found = ArrayRecord(*fields)
            found = found._replace(shape=tuple(found.shape))
            sources.append(array_at(payloads, found, "a plan's image") if own else found)
        text, memory = data[_HEAD.size : first], payloads[: sizes[2]]
        return PlanImage(text, memory, row_work, sources, digest, nodes)


def image_of(plan: Plan, archive: Archive | None = None) -> PlanImage | None:
    """The image of a plan, in this file if there is one.

    None where more than one native run of ours makes it.
    """
    every = [item for flow in (plan.flow, plan.optimised) for item in flow.nodes()]
    if not all(_is_ours(item.op) for item in every):
        return None
    draft = PlanDraft.of(plan.flow, plan.optimised, plan.stages, exact=plan.exact)
    if draft is None:
        return None

    def source(one: Blob) -> Source | None:
        if one.nbytes < SHARED_BYTES:
            return None
        return one if archive is None else archive.record(one.digest) or one

    return replace(draft.image(source), digest=plan.digest, nodes=plan.node_digests)


def _is_ours(op: Op) -> bool:
    """Whether an operator, and those it has inside, belong to this release."""
    if not type(op).__module__.startswith("flour."):
        return False
    parts = [
        part
        for value in op.fields().values()
        for part in (value if isinstance(value, tuple) else (value,))
    ]
    return all(_is_ours(part) for part in parts if isinstance(part, Op))


def _content(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(array.tobytes(), np.uint8)


def _json(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode("ascii")
