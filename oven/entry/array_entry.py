"""The entry of a plan: one call from a row, or a block of rows, to the answers.

    call = plan.entry()
    label, probabilities = call(row)         # numbers (or str), and an array for a vector
    labels, probabilities = call(block)      # arrays

The outputs come as a tuple, in the order of `plan.outputs`. A row is a numpy vector, a list or a
tuple of numbers; of a plan that reads documents it is a `str` (or bytes, where the input has an
encoding), and a list of them is a block. Where
the plan is all native code and reads one vector of floats (oven.entry.array_code) or one document
(oven.entry.text_code), its entry is a function of machine code, and costs a fifth of a microsecond
besides the plan's own work. Everything else (data of another type or layout, frames, plans with
Python stages) goes through `Plan.run` and gives the same answers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.types import FLOATS, Category, Record, Scalar, Text, Type, Vector
from flour.data.coerce_texts import document
from flour.ops.structure import TakeText
from oven.codegen.ports import Port
from oven.codegen.stages import Stage
from oven.entry import array_code, text_code
from oven.entry.builtin import NativeTable, made_of
from oven.entry.interpreter import words_of
from oven.run.native_run import LONGEST, RELEASE_BYTES, TEXT_BYTES, NativeRun, room_bytes

Answers = tuple[Any, ...]
Call = Callable[[object], Answers]


class Output(NamedTuple):
    """One output: the node that the native code computes, and the strings that it numbers."""

    node: Node
    names: NDArray[np.object_] | None = None


class EntryLayout(NamedTuple):
    """What an entry needs to know of a plan."""

    run: NativeRun
    kind: Vector | Text
    outputs: tuple[Output, ...]
    #: The name under which documents come, and whether they may come without it.
    label: str = ""
    bare: bool = True


def layout(
    inputs: Mapping[str, Type], steps: Sequence[NativeRun | Stage], outputs: Sequence[Node]
) -> EntryLayout | None:
    """The entry a plan can have: one native call over floats or documents, labels looked up."""
    if len(inputs) != 1 or not steps or not isinstance(steps[0], NativeRun):
        return None
    run = steps[0]
    if len(run.inputs) != 1 or not isinstance(run.inputs[0], Port) or run.stored:
        return None
    found = tuple(named_output(item) for item in outputs)
    if not leaves_all(run, found):
        return None
    ((name, kind),) = inputs.items()
    return _entrance(run, run.inputs[0], name, kind, found)


def _entrance(
    run: NativeRun, port: Port, name: str, kind: Type, outputs: tuple[Output, ...]
) -> EntryLayout | None:
    """How a plan's one input comes in."""
    match kind:
        case Vector(dtype=dtype, sparse=False) if dtype in FLOATS and not run.rooms:
            return EntryLayout(run, kind, outputs)
        case Text():
            return EntryLayout(run, kind, outputs, name)
        case Record() if len(port.fields) == 1 and port.type == Vector(1, "string"):
            return EntryLayout(run, Text(), outputs, port.fields[0], bare=False)
    return None


def named_output(item: Node) -> Output:
    """An output as native code computes it."""
    if isinstance(item.op, TakeText) and isinstance(item.type, Scalar | Category):
        names = np.array([*item.op.table.to_list(), None], dtype=object)[:-1]
        return Output(item.inputs[0], names.copy())
    return Output(item)


def leaves_all(run: NativeRun, outputs: Sequence[Output]) -> bool:
    """Whether each column that the native code leaves is one dense output, and each output one.

    Answers stored sparsely are made by `Plan.run`.
    """
    if any(isinstance(item.node.type, Vector) and item.node.type.sparse for item in outputs):
        return False
    return len(outputs) == len(run.outputs) and {item.node for item in outputs} == set(run.outputs)


# --- the table ------------------------------------------------------------------------------------


def open_array_entry(found: EntryLayout, fallback: Call) -> Call | None:
    """The entry as a built-in function, or None where this interpreter can have none."""
    code = text_code if isinstance(found.kind, Text) else array_code
    return made_of(code.SOURCE, code.NAME, partial(_table, found, fallback))


def _table(found: EntryLayout, fallback: Call, known: Mapping[str, int]) -> NativeTable:
    run, kind = found.run, found.kind
    dtype = np.dtype(kind.dtype if isinstance(kind, Vector) else object)
    width = kind.width if isinstance(kind, Vector) else 0
    cells = aligned(16 * (2 + len(found.outputs)))
    row = cells + aligned(8 * len(found.outputs))
    stages = row + aligned(width * dtype.itemsize)
    size = stages + aligned(run.scratch_bytes)
    text, rooms = _text_words(found, size) if isinstance(kind, Text) else ({}, None)
    scratch = shared_scratch(text.get("SHARED_BYTES", size))
    words = {**known, **text, "SCRATCH": scratch.ctypes.data, "SCRATCH_BYTES": size}
    words |= {"DTYPE": id(dtype), "ITEM_BYTES": dtype.itemsize, "WIDTH": width}
    words |= {"CELLS": cells, "ROW": row, "STAGES": stages, "FALLBACK": id(fallback)}
    words["RELEASE_ROWS"] = max(1, RELEASE_BYTES // max(run.row_work, 1))
    names = text_code.TEXT_WORDS if text else array_code.WORDS
    return table_of(names, words, run, found.outputs, (dtype, fallback, scratch, found, rooms))


def table_of(
    names: Sequence[str],
    words: Mapping[str, int],
    run: NativeRun,
    outputs: Sequence[Output],
    kept: tuple[Any, ...],
) -> NativeTable:
    """An entry's table: its words in order, all but the last, then what is to be said of outputs.

    It holds on to `kept`, which is what the words speak of.
    """
    texts = sum(item.names is not None for item in outputs)
    words = {**words, "RUN": run.addresses[0], "PROGRAM": run.addresses[1]}
    words |= {"OUTPUTS": len(outputs), "TEXTS": texts}
    numbers = [words[name] for name in names[:-1]]
    columns = {item: place for place, item in enumerate((*run.inputs, *run.outputs))}
    shelf: list[None] = [None] * len(outputs)
    (where,) = words_of(shelf, 3, 1)
    for place, item in enumerate(outputs):
        numbers += [*output_words(item, columns[item.node]), where + 8 * place]
    table = np.array(numbers, np.int64).view(NativeTable)
    table.kept = (run, outputs, shelf, *kept)
    return table


#: Longer documents take memory of their own.
_SHORT = 4096


def _text_words(found: EntryLayout, size: int) -> tuple[dict[str, int], NDArray[np.int64]]:
    """What the table of an entry for documents has besides, and the sizes of its rooms."""
    words, rooms = room_words(found.run, size)
    return words | {"LABEL": id(found.label), "BARE": int(found.bare)}, rooms


def room_words(run: NativeRun, size: int) -> tuple[dict[str, int], NDArray[np.int64]]:
    """What an entry's table says of memory that depends on documents, `size` bytes aside."""
    sizes = [
        [*room, place == len(each) - 1]
        for each in run.form.rooms
        for place, room in enumerate(each)
    ]
    rooms = np.array(sizes, np.int64).reshape(-1, 4)
    most = max((room_bytes(each, _SHORT) for each in run.form.rooms), default=0)
    words = {"SHARED_BYTES": aligned(size + _SHORT + 1024 + most), "ROOM_COUNT": len(rooms)}
    words |= {"ROOMS": rooms.ctypes.data, "ROOM_COLUMN": len(run.inputs) + len(run.outputs)}
    words |= {"ROW_WORK": run.row_work, "LONGEST": LONGEST, "RELEASE_WORK": RELEASE_BYTES}
    return words | {"BYTE_WORK": TEXT_BYTES if run.rooms else 0}, rooms


def output_words(item: Output, column: int) -> list[int]:
    """What an entry's table says of an output that is this column, all but where its shelf is."""
    kind = item.node.type
    assert isinstance(kind, Scalar | Category | Vector)
    dtype = np.dtype(object if item.names is not None else kind.dtype)
    name = "string" if item.names is not None else kind.dtype
    width = kind.width if isinstance(kind, Vector) else array_code.SCALAR
    across = max(width, 1) if width != array_code.SCALAR else 1
    size = (np.dtype(kind.dtype).itemsize if item.names is None else 8) * across
    names = item.names
    where, last = (names.ctypes.data, len(names) - 1) if names is not None else (0, 0)
    return [array_code.KINDS.index(name), column, id(dtype), width, size, where, last]


def aligned(size: int) -> int:
    """The next multiple of 64."""
    return -(-size // 64) * 64


_scratch: list[NDArray[np.uint8]] = []
#: How much of it has been written to: pages come when they are.
_written = [0]
#: Entries keep the scratch memory they were made with, so it begins larger than most need, and
#: grows to twice as much: what nobody writes to costs nothing.
_LEAST_SCRATCH = 1 << 20
#: So much of it is there before the first call, which would wait for it otherwise.
_SCRATCH_AT_ONCE = 256 << 10


def shared_scratch(size: int) -> NDArray[np.uint8]:
    """Memory for calls that keep the interpreter's lock: one for all, as big as any needs."""
    if not _scratch or len(_scratch[-1]) < size:
        most = max(aligned(size), _LEAST_SCRATCH, *(2 * len(known) for known in _scratch))
        raw = np.empty(most + 64, np.uint8)
        start = -raw.ctypes.data % 64
        _scratch[:], _written[:] = [raw[start : most + start]], [0]
    found, there = _scratch[-1], min(size, _SCRATCH_AT_ONCE)
    if there > _written[0]:
        found[_written[0] : there] = 0
        _written[0] = there
    return found


# --- the way around -------------------------------------------------------------------------------


def around(run: Callable[[object], Mapping[str, Any]], kinds: Iterable[Type] = ()) -> Call:
    """The same answers through `Plan.run`, for whatever the machine code does not take."""
    documents = [*map(type, kinds)] == [Text]

    def call(data: object) -> Answers:
        block = _as_block(data, documents=documents)
        if block is None:
            return tuple(run(data).values())
        return tuple(_only(value) for value in run(block).values())

    return call


def decoding(kind: Text, slow: Call, opened: Callable[[Call], Call]) -> Call:
    """The entry that `opened` makes; one row of bytes is decoded, and then takes it as a str."""
    entry: weakref.ref[Call] | None = None  # the entry holds what is called here

    def call(data: object) -> Answers:
        made = entry() if entry is not None and type(data) is bytes else None
        if made is None:
            return slow(data)
        return made(document(data, kind, "$"))

    found = opened(call)
    entry = weakref.ref(found)
    return found


def _as_block(data: Any, *, documents: bool = False) -> Any:
    """A row as a block of one row; None for what already is a block.

    Where rows are documents, a list of strings is a block, and a string a row.
    """
    if documents and not isinstance(data, Mapping):
        return [data] if isinstance(data, str | bytes) else None
    if isinstance(data, np.ndarray):
        return data[None] if data.ndim == 1 and data.dtype.names is None else None
    if isinstance(data, Mapping):
        alone = {name: [value] for name, value in data.items() if _is_value(value)}
        return alone if len(alone) == len(data) else None
    if isinstance(data, list | tuple) and data and all(map(_is_value, data)):
        return [list(data)]
    return None


def _is_value(value: object) -> bool:
    return value is None or isinstance(value, str | bytes | bool | int | float | np.generic)


def _only(value: Any) -> Any:
    """The first row of an output, a scalar as Python's own number."""
    first = value[0]
    return first.item() if isinstance(first, np.generic) else first
