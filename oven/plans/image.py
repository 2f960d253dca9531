"""What is worth knowing of a plan that has been loaded before: how to have it again at once.

Loading a plan makes its program again, checks it, cuts it and writes code that is known already. A
recipe keeps what came of that: the finished table of the plan's one native run (see
oven.run.run_signature) with its small parameters behind it, where the large ones are in the plan's
file, and what callers ask of a plan. The program itself is made only when somebody wants to see it.

A recipe has two texts in JSON and the bytes of the table. The first text, its *shape*, is the same
for all plans of one structure, and what is made of it is shared by them.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from flour.core.op import Op
from objectstore import Archive, Blob
from objectstore.layout import ArrayRecord
from oven.plans.skeleton import INLINE_BYTES, PlanSkeleton, RestoredPlan, described, one_run
from oven.run.native_run import NativeRun
from oven.run.run_signature import WORD, TableDraft, aligned

if TYPE_CHECKING:
    from oven.plans.plan import Plan

#: Structures whose common part is kept.
SHAPES = 1024

_HEAD = struct.Struct("<III")
Find = Callable[[ArrayRecord], Blob]


# --- writing ------------------------------------------------------------------------------------


def write(plan: Plan, archive: Archive) -> bytes | None:
    """The recipe of a plan in this file; None where more than one native run of ours makes it."""
    roots = tuple(plan.optimised.outputs.values())
    every = [item for flow in (plan.flow, plan.optimised) for item in flow.nodes()]
    layout = one_run(plan.stages, roots)
    if layout is None or not all(_ours(item.op) for item in every):
        return None
    draft = layout.draft()
    shape = described(plan.flow, plan.optimised, plan.stages, layout, draft, exact=plan.exact)
    if shape is None:
        return None
    large, table, inner = _packed(draft, archive)
    places = [[place, large[one]] for place, one in draft.parameters if one in large]
    shape |= {"inner": inner, "large": places}
    own = {
        "digest": plan.digest,
        "nodes": plan.node_digests,
        "row_work": draft.row_work,
        "large": [archive.record(one.digest) for one in large],
    }
    texts = [json.dumps(part, separators=(",", ":")).encode("ascii") for part in (shape, own)]
    return b"".join([_HEAD.pack(*map(len, texts), len(table)), *texts, table])


def _ours(op: Op) -> bool:
    """Whether an operator, and those it has inside, belong to this release."""
    if not type(op).__module__.startswith("flour."):
        return False
    parts = [
        part
        for value in op.fields().values()
        for part in (value if isinstance(value, tuple) else (value,))
    ]
    return all(_ours(part) for part in parts if isinstance(part, Op))


def _packed(draft: TableDraft, archive: Archive) -> tuple[dict[Blob, int], bytes, list[int]]:
    """Large parameters with their numbers; the table with the small ones; its inner addresses."""
    words = np.array(draft.words, np.int64)
    inner, large = list(draft.inner), dict[Blob, int]()
    placed: dict[Blob, int] = {}
    parts: list[bytes] = []
    end = aligned(WORD * len(words))
    for place, one in draft.parameters:
        if one.nbytes >= INLINE_BYTES and archive.record(one.digest) is not None:
            large.setdefault(one, len(large))
            continue
        if one not in placed:
            placed[one] = end
            parts.append(one.array.tobytes().ljust(aligned(one.nbytes), b"\0"))
            end += aligned(one.nbytes)
        words[place] = placed[one]
        inner.append(place)
    head = words.tobytes().ljust(aligned(WORD * len(words)), b"\0")
    return large, b"".join([head, *parts]), inner


# --- reading ------------------------------------------------------------------------------------


#: By the digest of its text: the text itself is as large as what is made of it.
_shapes: dict[bytes, PlanSkeleton] = {}
_lock = threading.Lock()


def _shape(text: bytes) -> PlanSkeleton:
    name = blake2b(text, digest_size=16).digest()
    found = _shapes.get(name)
    if found is None:
        found = PlanSkeleton(text)
        with _lock:
            if len(_shapes) >= SHAPES:
                del _shapes[next(iter(_shapes))]  # the oldest
            _shapes[name] = found
    return found


def read(recipe: bytes, find: Find) -> RestoredPlan:
    """The plan of a recipe, its large parameters looked up with `find`.

    LookupError where the machine code is not in the cache any more.
    """
    sizes = _HEAD.unpack_from(recipe)
    first, second = _HEAD.size + sizes[0], _HEAD.size + sizes[0] + sizes[1]
    shape = _shape(recipe[_HEAD.size : first])
    own = json.loads(recipe[first:second])
    table, borrowed = shape.table(np.frombuffer(recipe, np.uint8, sizes[2], second))
    for place, address in shape.codes:
        table[place] = address
    kept = tuple(find(_record(data)) for data in own["large"])
    where = [one.array.ctypes.data for one in kept]
    if where:
        table[shape.large[:, 0]] = np.array(where, np.int64)[shape.large[:, 1]]
    run = NativeRun(shape.form, table, own["row_work"], kept, borrowed)
    return RestoredPlan(shape.facts, run, own["digest"], own["nodes"])


def _record(data: list[Any]) -> ArrayRecord:
    digest, dtype, named, offset, nbytes, shape = data
    return ArrayRecord(digest, dtype, named, offset, nbytes, tuple(shape))
