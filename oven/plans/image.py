"""The image of a plan: all that it takes to have the plan again without its program.

    image = image_of(plan.program, archive)
    image.restore(find)             # what `Plan.restore` takes

Baking or loading a plan makes its program, checks it, cuts it and writes code that is in the cache
already. An image keeps what came of that: a skeleton, which plans of one structure share, and the
table of the plan's one native run (see oven.run.run_signature). Each parameter of the table is

- behind the table, where it is small,
- an array of the plan's file, by its record, which has its digest, or
- a blob of the image's own.

Images are files in the code cache (see oven.plans.image_cache): `to_bytes`, `from_bytes`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.op import Op
from objectstore import Archive, Blob, aligned_room
from objectstore.archive import array_at
from objectstore.layout import ArrayRecord
from oven.plans.program import PlanProgram
from oven.plans.skeleton import Facts, PlanSkeleton, RestoredPlan, described, one_run
from oven.run.run_signature import TableDraft, aligned

#: Parameters of so many bytes or more are blobs, which plans share by content. Smaller ones are
#: behind the table: a blob takes as much memory itself.
SHARED_BYTES = 1024

_HEAD = struct.Struct("<III")


Source = ArrayRecord | Blob
Find = Callable[[ArrayRecord], Blob]


class PlanImage(NamedTuple):
    """A plan without its program."""

    #: What the skeleton is made of.
    text: bytes
    #: The table, and the small parameters.
    memory: NDArray[np.uint8]
    row_work: int
    #: Where the other parameters come from.
    sources: Sequence[Source]
    digest: str
    nodes: str

    def restore(self, find: Find | None = None) -> RestoredPlan:
        """The plan; `find` finds arrays by their records.

        LookupError where the machine code is gone.
        """
        skeleton = PlanSkeleton.of(self.text)
        memory = aligned_room(len(self.memory))
        memory[:] = self.memory
        parameters = [self._parameter(source, find) for source in self.sources]
        addresses = [one.array.ctypes.data for one in parameters]
        run = skeleton.run(memory, addresses, self.row_work, tuple(parameters))
        return RestoredPlan(skeleton, run, self.digest, self.nodes)

    @staticmethod
    def _parameter(source: Source, find: Find | None) -> Blob:
        if isinstance(source, Blob):
            return source
        assert find is not None, "an image with arrays of a file has that file"
        return find(source)

    # --- as a file -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Two texts in JSON, the table, and blobs of its own."""
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
            found = ArrayRecord._make((*fields[:-1], tuple(fields[-1])))
            sources.append(array_at(payloads, found, "a plan's image") if own else found)
        text, memory = data[_HEAD.size : first], payloads[: sizes[2]]
        return PlanImage(text, memory, row_work, sources, digest, nodes)


def image_of(program: PlanProgram, archive: Archive | None = None) -> PlanImage | None:
    """The image of a plan, in this file if there is one.

    None where more than one native run of ours makes it.
    """
    flow, optimised = program.flows
    if not all(_is_ours(item.op) for item in {*flow.nodes(), *optimised.nodes()}):
        return None
    layout = one_run(program.stages, tuple(optimised.outputs.values()))
    if layout is None:
        return None
    table = layout.draft()
    facts = Facts.of(flow, optimised, exact=program.exact)
    common = described(facts, program.stages, layout, table)
    if common is None:
        return None
    memory, links, outer = _laid_out(table)
    sources = [(archive and archive.record(one.digest)) or one for one in outer]
    text = _json(common | links)
    return PlanImage(text, memory, table.row_work, sources, program.digest, program.node_digests)


def _laid_out(table: TableDraft) -> tuple[NDArray[np.uint8], dict[str, Any], list[Blob]]:
    """The table with the small parameters behind it, its links, and the other parameters."""
    words, inner = np.array(table.words, np.int64), [*table.inner]
    every = dict.fromkeys(one for _, one in table.parameters)
    outer = {one: n for n, one in enumerate(one for one in every if one.nbytes >= SHARED_BYTES)}
    inside, end = dict[Blob, int](), aligned(words.nbytes)
    for one in every:
        if one not in outer:
            inside[one] = end
            end += aligned(one.nbytes)
    for place, one in table.parameters:
        if one in inside:
            words[place] = inside[one]
            inner.append(place)
    memory = np.zeros(end, np.uint8)
    memory[: words.nbytes] = words.view(np.uint8)
    for one, start in inside.items():
        memory[start : start + one.nbytes] = np.frombuffer(one.array.tobytes(), np.uint8)
    links = [(place, outer[one]) for place, one in table.parameters if one in outer]
    return memory, {"words": len(words), "inner": inner, "outer": links}, [*outer]


def _is_ours(op: Op) -> bool:
    """True if an operator, and those it has inside, belong to this release."""
    if not type(op).__module__.startswith("flour."):
        return False
    values = [value for value in op.fields().values() if isinstance(value, Op | tuple)]
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return all(_is_ours(part) for part in parts if isinstance(part, Op))


def _json(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode("ascii")
