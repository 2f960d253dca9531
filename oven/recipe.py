"""What is worth knowing of a plan that has been loaded before: how to have it again at once.

Loading a plan makes its program again, checks it, cuts it and writes code that is known already. A
recipe keeps what came of that: the finished table of the plan's one native run (see
oven.native_form) with its small parameters behind it, where the large ones are in the plan's file,
and what callers ask of a plan. The program itself is made only when somebody wants to see it.

A recipe has two texts in JSON and the bytes of the table. The first text, its *shape*, is the same
for all plans of one structure, and what is made of it is shared by them.
"""

from __future__ import annotations

import json
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flour.emission import Room
from flour.flow import Flow
from flour.node import Node
from flour.op import Op
from flour.ops.structure import Take, TakeText
from flour.types import Category, Scalar, Type, from_data, to_data
from objectstore import Archive, Blob
from objectstore.blob import aligned_room
from objectstore.layout import ArrayRecord
from oven import cache
from oven.native_form import WORD, Draft, Form, Layout, aligned
from oven.native_run import NativeRun
from oven.ports import Port
from oven.stages import Stage, Value

if TYPE_CHECKING:
    from oven.plan import Plan

#: Parameters of fewer bytes stand behind the table; larger ones stay in the plan's file.
INLINE_BYTES = 4096
#: Small parameters of so many bytes or more may be another plan's of the same structure, and are
#: where they come to so many together: what languages have in common, like tables of characters.
LEAST_SHARED = 512
WORTH_SHARING = 2048
#: Labels are part of a recipe up to this many.
MOST_LABELS = 4096
#: Structures whose common part is kept.
SHAPES = 1024

_HEAD = struct.Struct("<III")
Find = Callable[[ArrayRecord], Blob]


class _Made(Op, abstract=True):
    """Stands for whatever operator made a column that native code leaves."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What callers ask of a plan without looking at its program."""

    inputs: dict[str, Type]
    #: Each output: a column that the native code leaves, or labels looked up by it.
    leaves: dict[str, Node]
    exact: bool
    mixes_rows: bool
    #: Of each stage, its kind, and the name of its machine code.
    stages: tuple[tuple[str, str], ...]
    classes: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class Recalled:
    """A plan that is there again: its run, what is asked of it, and what it was made of."""

    facts: Facts
    run: NativeRun
    digest: str
    #: The digests of the program's nodes, its inputs left out, one after the other.
    nodes: str


# --- writing ------------------------------------------------------------------------------------


def write(plan: Plan, archive: Archive) -> bytes | None:
    """The recipe of a plan in this file; None where more than one native run of ours makes it."""
    roots = tuple(plan.optimised.outputs.values())
    every = [item for flow in (plan.flow, plan.optimised) for item in flow.nodes()]
    if not all(stage.native for stage in plan.stages) or not all(_ours(item.op) for item in every):
        return None
    steps = plan.steps
    if len(steps) != 1:
        return None
    layout = Layout(plan.stages, roots)
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


def described(
    flow: Flow,
    optimised: Flow,
    stages: Sequence[Stage],
    layout: Layout,
    draft: Draft,
    *,
    exact: bool = False,
) -> dict[str, Any] | None:
    """What plans of one structure have in common, as data; None for outputs that are not known.

    No parameter is placed: all that leads elsewhere are the words that the draft says.
    """
    leaves = [_leaf(name, item, layout) for name, item in optimised.outputs.items()]
    if any(leaf is None for leaf in leaves):
        return None
    return {
        "inputs": [[name, to_data(kind)] for name, kind in flow.inputs().items()],
        "leaves": leaves,
        "exact": exact,
        "mixes_rows": any(item.op.mixes_rows() for item in optimised.nodes()),
        "stages": [[stage.kind, cache.key(stage.source)] for stage in stages],
        "classes": _labels(flow),
        "codes": [[place, cache.key(source), name] for place, source, name in draft.codes],
        "inner": draft.inner,
        "words": len(draft.words),
        "large": [],
        **_form_data(layout.form),
    }


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


def _leaf(name: str, item: Node, layout: Layout) -> list[Any] | None:
    """An output: which column it is, and the labels that the column numbers."""
    outputs = layout.form.outputs
    if item in outputs:
        return [name, outputs.index(item), None, to_data(item.type)]
    if isinstance(item.op, TakeText) and item.inputs[0] in outputs:
        texts = item.op.table.to_list()
        if len(texts) <= MOST_LABELS and isinstance(item.type, Scalar | Category):
            return [name, outputs.index(item.inputs[0]), texts, to_data(item.type)]
    return None


def _labels(flow: Flow) -> list[Any] | None:
    found = classes(flow.outputs.get("label"))
    return None if found is None or len(found) > MOST_LABELS else list(found)


def _packed(draft: Draft, archive: Archive) -> tuple[dict[Blob, int], bytes, list[int]]:
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


def _form_data(form: Form) -> dict[str, Any]:
    return {
        "read": [[_port_data(value), stored] for value, stored in form.read],
        "outputs": [to_data(item.type) for item in form.outputs],
        "stored": [
            [place, list(form.stored[item])]
            for place, item in enumerate(form.outputs)
            if item in form.stored
        ],
        "rooms": [[list(room) for room in each] for each in form.rooms],
        "tile": form.tile,
        "scratch_bytes": form.scratch_bytes,
    }


def _port_data(value: Value) -> list[Any]:
    assert isinstance(value, Port), "one run reads nothing but the plan's inputs"
    return [value.label, to_data(value.type), list(value.fields)]


# --- reading ------------------------------------------------------------------------------------


class Shape:
    """What plans of one structure have in common."""

    def __init__(self, text: bytes) -> None:
        data = json.loads(text)
        self.form = _form(data)
        self.words: int = data["words"]
        self.inner = np.array(data["inner"], np.intp)
        self.codes = [(place, _code(key, name)) for place, key, name in data["codes"]]
        #: Words that lead to large parameters, and to which.
        self.large = np.array(data["large"], np.int64).reshape(-1, 2)
        made = self.form.outputs
        self.facts = Facts(
            inputs={name: _type(kind) for name, kind in data["inputs"]},
            leaves={
                name: _output(made[place], texts, kind)
                for name, place, texts, kind in data["leaves"]
            },
            exact=data["exact"],
            mixes_rows=data["mixes_rows"],
            stages=tuple((kind, key) for kind, key in data["stages"]),
            classes=None if data["classes"] is None else tuple(data["classes"]),
        )
        #: The memory of a plan's table, where it is all there, and its address.
        self._earlier: tuple[weakref.ref[NDArray[np.uint8]], int] | None = None

    def table(self, data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], object]:
        """A table in memory of its own, and the memory of another that it leads to, if any."""
        head = aligned(WORD * self.words)
        # All behind the table is parameters, and small ones alone are not worth a look.
        large = len(data) >= head + WORTH_SHARING
        if large and (earlier := self._alive(len(data))) is not None:
            found = self._borrowing(data, earlier, head)
            if found is not None:
                return found, earlier.base
        room = aligned_room(len(data))
        room[:] = data
        table: NDArray[np.int64] = room[: WORD * self.words].view(np.int64)
        table[self.inner] += room.ctypes.data
        if large and room.base is not None:
            self._earlier = weakref.ref(room.base), room.ctypes.data
        return table, None

    def _alive(self, size: int) -> NDArray[np.uint8] | None:
        """The table of an earlier plan and what is behind it, if it is still there."""
        raw = None if self._earlier is None else self._earlier[0]()
        if raw is None or self._earlier is None:
            return None
        start = self._earlier[1] - raw.ctypes.data
        room = raw[start : start + size]
        return room if len(room) == size else None

    def _borrowing(
        self, data: NDArray[np.uint8], earlier: NDArray[np.uint8], head: int
    ) -> NDArray[np.int64] | None:
        """The table, without the parameters that are the same there; None where they are few."""
        words = data[: WORD * self.words].copy().view(np.int64)
        theirs = earlier[: WORD * self.words].view(np.int64)
        places, base = words[self.inner], earlier.ctypes.data
        if not np.array_equal(theirs[self.inner] - base, places):
            return None  # parameters of other sizes
        starts = np.unique(places[places >= head])
        if starts[0] != head:
            return None
        ends = np.append(starts[1:], len(data))
        same = ends - starts >= LEAST_SHARED
        for one in np.flatnonzero(same):
            part = slice(starts[one], ends[one])
            same[one] = np.array_equal(data[part], earlier[part])
        if (ends - starts)[same].sum() < WORTH_SHARING:
            return None
        kept = np.where(same, 0, ends - starts)
        room = aligned_room(head + int(kept.sum()))
        room[:head] = data[:head]
        room[head:] = data[head:][np.repeat(~same, ends - starts)]
        here = room.ctypes.data
        moved = np.where(same, base + starts, here + head + np.cumsum(kept) - kept)
        inside = places < head
        places[inside] += here
        places[~inside] = moved[np.searchsorted(starts, places[~inside])]
        words[self.inner] = places
        table: NDArray[np.int64] = room[: WORD * self.words].view(np.int64)
        table[:] = words
        return table


#: By the digest of its text: the text itself is as large as what is made of it.
_shapes: dict[bytes, Shape] = {}
_lock = threading.Lock()


def _shape(text: bytes) -> Shape:
    name = blake2b(text, digest_size=16).digest()
    found = _shapes.get(name)
    if found is None:
        found = Shape(text)
        with _lock:
            if len(_shapes) >= SHAPES:
                del _shapes[next(iter(_shapes))]  # the oldest
            _shapes[name] = found
    return found


def read(recipe: bytes, find: Find) -> Recalled:
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
    return Recalled(shape.facts, run, own["digest"], own["nodes"])


def _record(data: list[Any]) -> ArrayRecord:
    digest, dtype, named, offset, nbytes, shape = data
    return ArrayRecord(digest, dtype, named, offset, nbytes, tuple(shape))


def _form(data: dict[str, Any]) -> Form:
    outputs = [_column(_type(kind)) for kind in data["outputs"]]
    return Form(
        [(_port(port), stored) for port, stored in data["read"]],
        outputs,
        {outputs[place]: Room(*room) for place, room in data["stored"]},
        [[Room(*room) for room in each] for each in data["rooms"]],
        data["tile"],
        data["scratch_bytes"],
    )


def _port(data: Sequence[Any]) -> Port:
    label, kind, fields = data
    return Port(label, _type(kind), tuple(fields))


def _type(data: object) -> Type:
    return from_data(data)


def _code(key: str, name: str) -> int:
    found = cache.find(key, name)
    if found is None:
        raise LookupError(f"{name} {key} is not in the code cache")
    return found


def _column(kind: Type) -> Node:
    return Node.standing(_Made(), (), kind)


def _output(column: Node, texts: Sequence[str] | None, kind: object) -> Node:
    return column if texts is None else Node.standing(TakeText(texts), (column,), _type(kind))


def classes(label: Node | None) -> tuple[Any, ...] | None:
    """The class labels, where this output looks them up in a table."""
    match label and label.op:
        case Take(table=numbers):
            return tuple(numbers.array.tolist())
        case TakeText(table=strings):
            return tuple(strings.to_list())
    return None
