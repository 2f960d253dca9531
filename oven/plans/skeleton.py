"""What plans of one structure have in common: all but the numbers.

It is data, made of a plan with `described`, and read again as a `PlanSkeleton`. A recipe
(oven.plans.image) is a shape's text with the words of one plan, on disk; a template
(oven.plans.template) is a shape with a way to make the words of plans that have not been made.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Room
from flour.core.node import Node
from flour.core.op import Op
from flour.core.types import Category, Scalar, Type, from_data, to_data
from flour.language.flow import Flow
from flour.ops.structure import Take, TakeText
from objectstore.blob import aligned_room
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value
from oven.compiler import cache
from oven.run.native_run import NativeRun
from oven.run.run_signature import WORD, RunSignature, TableDraft, TableLayout, aligned

#: Parameters of fewer bytes stand behind a plan's table; larger ones may be others', too.
INLINE_BYTES = 4096
#: Small parameters of so many bytes or more may be another plan's of the same structure, and are
#: where they come to so many together: what languages have in common, like tables of characters.
LEAST_SHARED = 512
WORTH_SHARING = 2048
#: Labels are part of it up to this many.
MOST_LABELS = 4096


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
    #: Of each stage, its kind, and the name of its machine code, if it is that.
    stages: tuple[tuple[str, str | None], ...]
    classes: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class RestoredPlan:
    """A plan that is there again: its run, what is asked of it, and what it was made of."""

    facts: Facts
    run: NativeRun
    digest: str
    #: The digests of the program's nodes, its inputs left out, one after the other.
    nodes: str


def one_run(stages: Sequence[Stage], roots: Sequence[Node]) -> TableLayout | None:
    """The one native run that makes all outputs; None for a plan of more, or of other code.

    Labels that are looked up in a table of texts are no part of it: their numbers are.
    """
    native = [stage for stage in stages if stage.native]
    labels = [item for stage in stages if not stage.native for item in stage.nodes]
    made = {item for stage in native for item in stage.outputs}
    read = {value for stage in native for value in stage.inputs}
    stored = any(stage.stores(item) for stage in native[:-1] for item in stage.outputs)
    if not native or stored or not all(_is_label(item, made, roots) for item in labels):
        return None
    if not read.isdisjoint(labels):
        return None
    return TableLayout(native, {*roots, *(item.inputs[0] for item in labels)})


def _is_label(item: Node, made: Collection[Node], roots: Sequence[Node]) -> bool:
    return isinstance(item.op, TakeText) and item in roots and item.inputs[0] in made


def described(
    flow: Flow,
    optimised: Flow,
    stages: Sequence[Stage],
    layout: TableLayout,
    draft: TableDraft,
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
        "stages": [
            [stage.kind, cache.key(stage.source) if stage.native else None] for stage in stages
        ],
        "classes": _labels(flow),
        "codes": [[place, cache.key(source), name] for place, source, name in draft.codes],
        "inner": draft.inner,
        "words": len(draft.words),
        "large": [],
        **_form_data(layout.form),
    }


def _leaf(name: str, item: Node, layout: TableLayout) -> list[Any] | None:
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


def _form_data(form: RunSignature) -> dict[str, Any]:
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


class PlanSkeleton:
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


def _form(data: dict[str, Any]) -> RunSignature:
    outputs = [_column(_type(kind)) for kind in data["outputs"]]
    return RunSignature(
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
    return Node.placeholder(_Made(), (), kind)


def _output(column: Node, texts: Sequence[str] | None, kind: object) -> Node:
    return column if texts is None else Node.placeholder(TakeText(texts), (column,), _type(kind))


def classes(label: Node | None) -> tuple[Any, ...] | None:
    """The class labels, where this output looks them up in a table."""
    match label and label.op:
        case Take(table=numbers):
            return tuple(numbers.array.tolist())
        case TakeText(table=strings):
            return tuple(strings.to_list())
    return None
