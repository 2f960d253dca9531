"""The common part of plans of one structure: all but the numbers.

`described` writes it as data, and `PlanSkeleton` is made of that data. The image of a plan (see
oven.plans.image) is a skeleton and a table of parameters.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Room
from flour.core.node import Node
from flour.core.op import Op
from flour.core.types import Category, Scalar, Type, from_data, to_data
from flour.language.flow import Flow
from flour.ops.structure import Take, TakeText
from objectstore import Blob
from oven.codegen.ports import Port
from oven.codegen.stages import Stage
from oven.compiler import cache
from oven.entry.usual import usual_code
from oven.run.native_run import NativeRun
from oven.run.run_signature import WORD, RunSignature, TableDraft, TableLayout

#: Labels are part of it up to this many.
MOST_LABELS = 4096
#: Structures whose skeletons are kept for the next plan.
MOST_SKELETONS = 1024


class _Made(Op, abstract=True):
    """Stands for the operator of a column that native code computes."""


class Facts(NamedTuple):
    """The facts that callers ask of a plan without looking at its program."""

    inputs: dict[str, Type]
    #: Each output: a column that the native code computes, or labels looked up by it.
    leaves: dict[str, Node]
    exact: bool
    mixes_rows: bool
    #: What stands for each column of the probabilities, where the plan looks labels up.
    classes: tuple[Any, ...] | None

    @staticmethod
    def of(flow: Flow, optimised: Flow, *, exact: bool) -> Facts:
        """The facts of a program as it was written and as it runs."""
        mixes_rows = any(item.op.mixes_rows() for item in optimised.nodes())
        label = classes(flow.outputs.get("label"))
        return Facts(flow.inputs(), dict(optimised.outputs), exact, mixes_rows, label)


class RestoredPlan(NamedTuple):
    """A plan made from an image: its native run, and what is known without its program."""

    skeleton: PlanSkeleton
    run: NativeRun
    #: The program's digest, and those of its nodes, inputs left out, one after the other.
    digest: str
    nodes: str


def one_run(stages: Sequence[Stage], roots: Sequence[Node], tile: int = 0) -> TableLayout | None:
    """The one native run that makes all outputs; None for a plan of more, or of other code.

    It takes `tile` rows through all stages before the next, or as many as stay in cache.
    Labels that are looked up in a table of texts are no part of it: their numbers are.
    """
    native = [stage for stage in stages if stage.source]
    labels = [item for stage in stages if not stage.source for item in stage.nodes]
    made = {item for stage in native for item in stage.outputs}
    read = {value for stage in native for value in stage.inputs}
    stored = any(stage.stores(item) for stage in native[:-1] for item in stage.outputs)
    if not native or stored:
        return None
    for item in labels:
        if not isinstance(item.op, TakeText) or item not in roots or item.inputs[0] not in made:
            return None
    if not read.isdisjoint(labels):
        return None
    return TableLayout(native, {*roots, *(item.inputs[0] for item in labels)}, tile)


def described(
    facts: Facts, stages: Sequence[Stage], layout: TableLayout, draft: TableDraft
) -> dict[str, Any] | None:
    """The common part of plans of one structure, as data; None for outputs of another kind.

    Parameters have no place yet: see oven.plans.image.
    """
    leaves = [_leaf(name, item, layout) for name, item in facts.leaves.items()]
    if any(leaf is None for leaf in leaves) or len(facts.classes or ()) > MOST_LABELS:
        return None
    return {
        "inputs": [[name, to_data(kind)] for name, kind in facts.inputs.items()],
        "leaves": leaves,
        "exact": facts.exact,
        "mixes_rows": facts.mixes_rows,
        "classes": facts.classes and list(facts.classes),
        "stages": [[*kind] for kind in stage_kinds(stages)],
        "codes": [[place, cache.key(source), name] for place, source, name in draft.codes],
        **_form_data(layout.form),
    }


def stage_kinds(stages: Sequence[Stage]) -> list[tuple[str, str | None]]:
    """The kind of each stage, and the name of its machine code."""
    return [(stage.kind, cache.key(stage.source) if stage.source else None) for stage in stages]


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


def _form_data(form: RunSignature) -> dict[str, Any]:
    read = []
    for value, stored in form.read:
        assert isinstance(value, Port), "one run reads nothing but the plan's inputs"
        read.append([[value.label, to_data(value.type), list(value.fields)], stored])
    return {
        "read": read,
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


K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A dict of at most `most` entries: a new one removes the oldest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self._lock = threading.Lock()

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            super().__setitem__(key, value)
            while len(self) > self.most:
                del self[next(iter(self))]

    def first(self, key: K, value: V) -> V:
        """The value of this key; this one if there is none. Equal keys get one value."""
        with self._lock:
            found = super().setdefault(key, value)
            while len(self) > self.most:
                del self[next(iter(self))]
        return found


class PlanSkeleton:
    """The common part of plans of one structure."""

    #: By the digest of their text: the text itself is as large as what is made of it.
    _all: Bounded[bytes, PlanSkeleton] = Bounded(MOST_SKELETONS)

    @staticmethod
    def of(text: bytes) -> PlanSkeleton:
        """The skeleton of this text; LookupError where its machine code is not in the cache."""
        name = blake2b(text, digest_size=16).digest()
        found = PlanSkeleton._all.get(name)
        return PlanSkeleton._all.first(name, PlanSkeleton(text)) if found is None else found

    def __init__(self, text: bytes) -> None:
        data = json.loads(text)
        self.form = _form(data)
        self.stages = tuple((kind, key) for kind, key in data["stages"])
        self._words: int = data["words"]
        #: Words that are addresses: of what is in the plan's own memory, of code, of parameters
        #: elsewhere, and of which.
        self._inner = np.array(data["inner"], np.intp)
        self._codes = list[tuple[int, int]]()
        for place, key, name in data["codes"]:
            found = cache.find(key, name)
            if found is None:
                raise LookupError(f"{name} {key} is not in the code cache")
            self._codes.append((place, found))
        self._outer, self._which = np.array(data["outer"], np.intp).reshape(-1, 2).T
        leaves = dict[str, Node]()
        for name, place, texts, kind in data["leaves"]:
            leaves[name] = column = self.form.outputs[place]
            if texts is not None:
                leaves[name] = Node.placeholder(TakeText(texts), (column,), from_data(kind))
        self.facts = Facts(
            inputs={name: from_data(kind) for name, kind in data["inputs"]},
            leaves=leaves,
            exact=data["exact"],
            mixes_rows=data["mixes_rows"],
            classes=None if data["classes"] is None else tuple(data["classes"]),
        )
        #: The code of the entries that calls of such a plan may take.
        self.entries = usual_code(self.facts.inputs.values(), alone=True)

    def run(
        self,
        memory: NDArray[np.uint8],
        addresses: Sequence[int],
        row_work: int,
        kept: tuple[Blob, ...],
    ) -> NativeRun:
        """The run of a plan: its table and what is behind it; `kept` is at these addresses."""
        table: NDArray[np.int64] = memory[: WORD * self._words].view(np.int64)
        table[self._inner] += memory.ctypes.data
        for place, address in self._codes:
            table[place] = address
        if addresses:
            table[self._outer] = np.array(addresses, np.int64)[self._which]
        return NativeRun(self.form, table, row_work, kept)


def _form(data: dict[str, Any]) -> RunSignature:
    outputs = [Node.placeholder(_Made(), (), from_data(kind)) for kind in data["outputs"]]
    read = [
        (Port(label, from_data(kind), tuple(fields)), stored)
        for (label, kind, fields), stored in data["read"]
    ]
    return RunSignature(
        read,
        outputs,
        {outputs[place]: Room(*room) for place, room in data["stored"]},
        [[Room(*room) for room in each] for each in data["rooms"]],
        data["tile"],
        data["scratch_bytes"],
    )


def classes(label: Node | None) -> tuple[Any, ...] | None:
    """The class labels, where this output looks them up in a table."""
    match label and label.op:
        case Take(table=numbers):
            return tuple(numbers.array.tolist())
        case TakeText(table=strings):
            return tuple(strings.to_list())
    return None


def digests_in(joined: str) -> Iterator[str]:
    """Digests that stand one after the other."""
    return (joined[start : start + 32] for start in range(0, len(joined), 32))
