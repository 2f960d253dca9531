"""The entry of a plan: one call from a row, or a block of rows, to the answers.

    call = plan.entry()
    label, probabilities = call(row)         # numbers (or str), and an array for a vector
    labels, probabilities = call(block)      # arrays

The outputs come as a tuple, in the order of `plan.outputs`. A row is a numpy vector, a list or a
tuple of numbers; of a plan that reads documents it is a `str` (or bytes, where the input has an
encoding), and a list of them is a block. Where the plan is all native code and reads one vector of
floats or one document, its entry is a function of machine code (vectors_entry, documents_entry of
oven.entry.forms), and costs a fifth of a microsecond besides the plan's own work. Everything else
(data of another type or layout, frames, plans with Python stages) goes through `Plan.run` and gives
the same answers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from flour.core.sparse import Sparse
from flour.core.types import FLOATS, Record, Text, Vector
from flour.data.batch import BatchReader, Form
from flour.data.coerce_values import document
from oven.codegen.ports import Port
from oven.entry.builtin import Contents, hand_on, native_function
from oven.entry.forms import documents_entry, vectors_entry
from oven.entry.row_layout import document_rows, rows_contents
from oven.entry.tables import (
    CallMemory,
    Output,
    PlanSteps,
    leaves_all,
    named_output,
    plan_contents,
    shared_scratch,
)
from oven.run.native_run import RELEASE_BYTES, NativeRun

Answers = tuple[Any, ...]
Call = Callable[[object], Answers]


class EntryLayout(NamedTuple):
    """The facts about a plan that an entry needs."""

    run: NativeRun
    kind: Vector | Text
    outputs: tuple[Output, ...]
    #: The name under which documents come, and whether they may come without it.
    label: str = ""
    bare: bool = True


def layout(plan: PlanSteps) -> EntryLayout | None:
    """The entry a plan can have: one native call over floats or documents, labels looked up."""
    inputs, steps, outputs = plan
    run = steps[0] if len(inputs) == 1 and steps else None
    if not isinstance(run, NativeRun) or len(run.inputs) != 1 or run.stored:
        return None
    found = tuple(named_output(item) for item in outputs)
    if not isinstance(run.inputs[0], Port) or not leaves_all(run, found):
        return None
    port, ((name, kind),) = run.inputs[0], inputs.items()
    match kind:
        case Vector(dtype=dtype, sparse=False) if dtype in FLOATS and not run.rooms:
            return EntryLayout(run, kind, found)
        case Text():
            return EntryLayout(run, kind, found, name)
        case Record() if len(port.fields) == 1 and port.type == Vector(1, "string"):
            return EntryLayout(run, Text(), found, port.fields[0], bare=False)
    return None


def open_array_entry(found: EntryLayout, fallback: Call) -> Call | None:
    """The entry as a built-in function, or None where this interpreter can have none."""
    run, kind = found.run, found.kind

    def documents() -> Contents:
        words = {"FALLBACK": id(fallback), "BARE": int(found.bare), "LABEL": id(found.label)}
        words["OBJECT"] = id(np.dtype(object))
        return rows_contents(document_rows(run, found.outputs), words, found, fallback)

    if isinstance(kind, Text):
        return native_function(documents_entry, documents)
    dtype, width = np.dtype(kind.dtype), kind.width

    def vectors() -> Contents:
        memory = CallMemory.of(run, len(found.outputs), width * dtype.itemsize)
        scratch = shared_scratch(memory.size)
        words = {**memory.words(), "SCRATCH": scratch.ctypes.data, "FALLBACK": id(fallback)}
        words |= {"DTYPE": id(dtype), "ITEM_BYTES": dtype.itemsize, "WIDTH": width}
        words |= {"OTHER": 0, "OTHER_DTYPE": 0}
        words["RELEASE_ROWS"] = max(1, RELEASE_BYTES // max(run.row_work, 1))
        return plan_contents(run, found.outputs, words, dtype, fallback, scratch)

    return native_function(vectors_entry, vectors)


#: The types of what batches have: of data of most others a batch has something else.
_PLAIN: frozenset[type] = frozenset((bytes, dict, list, np.ndarray, str, tuple))


# --- the way around -------------------------------------------------------------------------------


def around(
    run: Callable[[object], Mapping[str, Any]],
    reader: BatchReader,
    variant: Callable[[object], Call | None] = lambda _: None,
    entry: Callable[[], Call | None] = lambda: None,
) -> Call:
    """An entry through `Plan.run`, for whatever the machine code does not take.

    Arrays of another type go to the entry of their own `variant`, once it is there; those of other
    floats from then on without coming here. A frame is read as arrays, and a row of one as values,
    which the machine code of `entry` takes, as it does columns of whole numbers made floats.
    """

    def call(data: object) -> Answers:
        if type(data) is np.ndarray and (other := variant(data)) is not None:
            hand_on(entry(), data.dtype, other)
            return other(data)
        data = reader.nulls.of_rows(data)
        batch = reader.read(data)
        found = reader.widened(batch.data) if batch.kind is Form.ARRAYS else batch.data
        plain = type(data) in _PLAIN and found is batch.data
        if not plain and batch.kind is not Form.GENERAL:
            own = entry()
            if own is not None and found is not data:
                return own(found)
        if batch.single:
            return tuple(map(_only, run(batch.block).values()))
        return tuple(run(data).values())

    return call


def weakly(method: Callable[[object], Any]) -> Callable[[object], Any]:
    """A plan's method for its own code, which must not keep the plan alive."""
    known = weakref.WeakMethod(method)

    def call(data: object) -> Any:
        found = known()
        assert found is not None, "only the plan calls its own code"
        return found(data)

    return call


def decoding(kind: Text, slow: Call, opened: Callable[[Call], Call]) -> Call:
    """The entry that `opened` makes; one row of bytes is decoded, and then takes it as a str."""
    entry: weakref.ref[Call] | None = None  # the entry holds what is called here

    def call(data: object) -> Answers:
        made = entry() if entry is not None and type(data) is bytes else None
        return slow(data) if made is None else made(document(data, kind, "$"))

    found = opened(call)
    entry = weakref.ref(found)
    return found


def _only(value: Any) -> Any:
    """The first row of an output, a scalar as Python's own number; a sparse row is a matrix."""
    if isinstance(value, Sparse):
        return value
    first = value[0]
    return first.item() if isinstance(first, np.generic) else first
