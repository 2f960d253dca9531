"""Doors for arrays by name: what a plan's inputs have to be, and the tables of their machine code.

    call = plan.door()
    labels, probabilities = call({"age": ages, "city": cities})     # (n,) or (n, 1)
    labels, probabilities = call({"X": rows})                       # (n, k)

It is what callers have who think in columns, or serve ONNX models by their inputs' names. Numbers
come in the program's own dtype, strings as objects or as numpy's own characters; the machine code
(oven.door_columns_code) hands everything else on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.node import Node
from flour.types import Category, Record, Scalar, Text, Type, Vector
from oven import cache
from oven import door_columns_code as code
from oven.builtin import Table, made_of
from oven.door import (
    Call,
    Output,
    aligned,
    decoding,
    layout,
    named_output,
    open_door,
    output_words,
    room_words,
    shared_scratch,
)
from oven.door_later import Later
from oven.door_record import field_places, fields_of, leaves_all, open_record, port_starts
from oven.native_run import NativeRun
from oven.ports import Port
from oven.stages import Stage

Steps = Sequence[NativeRun | Stage]
#: Which dimensions an array may have: bits of the table's word RANKS.
FLAT, COLUMN = 2, 4


class Field(NamedTuple):
    """One array: how it is read, how many values it has a row, and where they go."""

    read: int
    offset: int
    needed: bool
    width: int = 1
    dtype: str = "object"
    ranks: int = FLAT | COLUMN


class Columns(NamedTuple):
    """What a plan's arrays are, and how their rows are laid out for its stages."""

    run: NativeRun
    outputs: tuple[Output, ...]
    fields: Mapping[str, Field]
    ports: tuple[int, ...]
    row_bytes: int
    #: Whether the one array may come without its name.
    bare: bool

    @property
    def strings(self) -> list[int]:
        """Where there are texts in a row."""
        reads = (code.STRING, code.TEXT)
        texts = [field for field in self.fields.values() if field.read in reads]
        return [field.offset + 16 * place for field in texts for place in range(field.width)]


def open_plan(
    inputs: Mapping[str, Type], steps: Steps, outputs: Sequence[Node], fallback: Call
) -> Call:
    """The door of a plan: whatever it is handed goes in by the shortest way there is for it."""
    opened = partial(_open_plan, inputs, steps, outputs)
    match [*inputs.values()]:
        case [Text(encoding) as kind] if encoding:
            return decoding(kind, fallback, opened)
    return opened(fallback)


def _open_plan(
    inputs: Mapping[str, Type], steps: Steps, outputs: Sequence[Node], fallback: Call
) -> Call:
    found = layout(inputs, steps, outputs)

    def arrays() -> Call:
        return open_columns(inputs, steps, outputs, fallback) or fallback

    if found is None:
        made = arrays()
        return open_record(inputs, steps, outputs, made) or made
    if not _at_hand(found.kind):
        return open_door(found, arrays()) or fallback
    later = Later(arrays)
    door = open_door(found, later)
    if door is None:
        return fallback
    later.behind(door)
    return door


def _at_hand(kind: Vector | Text) -> bool:
    """Whether the code of doors for arrays is in this process, so that making one takes no time."""
    sources = [code.SOURCE] if isinstance(kind, Text) else [code.SOURCE, code.NAMED_SOURCE]
    return all(cache.here(cache.key(source)) for source in sources)


def open_columns(
    inputs: Mapping[str, Type],
    steps: Steps,
    outputs: Sequence[Node],
    fallback: Callable[[object], Any],
    ranks: Mapping[str, int] | None = None,
) -> Call | None:
    """The door for arrays by name, if the plan can have one.

    `ranks` says, for who is strict, how many dimensions an input's array has, as FLAT or COLUMN.
    """
    columns = columns_of(inputs, steps, outputs, ranks or {})
    if columns is None:
        return None
    door = made_of(code.SOURCE, code.NAME, partial(columns_table, columns, fallback))
    found = layout(inputs, steps, outputs)
    if door is None or found is None or not isinstance(found.kind, Vector):
        return door
    # The one array is read where it lies, if its rows lie one behind another.
    straight = open_door(found, door)
    assert straight is not None, "there can be doors"
    table = partial(_named_table, next(iter(inputs)), straight, door)
    return made_of(code.NAMED_SOURCE, code.NAMED, table)


def columns_of(
    inputs: Mapping[str, Type], steps: Steps, outputs: Sequence[Node], ranks: Mapping[str, int]
) -> Columns | None:
    """What the arrays are, of a plan that is native code from them to its answers."""
    if not steps or not isinstance(steps[0], NativeRun) or steps[0].stored:
        return None
    run = steps[0]
    ports = [value for value in run.inputs if isinstance(value, Port)]
    made = tuple(named_output(item) for item in outputs)
    if not ports or len(ports) != len(run.inputs) or not leaves_all(run, made):
        return None
    record = any(isinstance(kind, Record) for kind in inputs.values())
    if record and len(inputs) > 1:
        return None
    kinds, unread, _ = fields_of(inputs) if record else (dict(inputs), frozenset[str](), False)
    starts, size = port_starts(ports)
    places = field_places(ports, starts, listed=record)
    fields: dict[str, Field] = {}
    for name, kind in kinds.items():
        # What no stage reads is looked at all the same, and goes to the end of the row.
        field = _field(kind, places.get(name, size), needed=name not in unread)
        if field is None:
            return None
        size += 0 if name in places else 16 * field.width
        fields[name] = field._replace(ranks=ranks.get(name, field.ranks))
    # A vector of numbers is a row, whatever the plan's one input is.
    bare = not record and len(fields) == 1 and not isinstance(kinds[name], Scalar | Category)
    return Columns(run, made, fields, tuple(starts), aligned(size + 16), bare)


def _field(kind: Type, offset: int, *, needed: bool) -> Field | None:  # noqa: PLR0911 (a table)
    """How an array for this type is read; None where there is more to it."""
    match kind:
        case _ if not needed:
            return Field(code.SKIP, offset, needed)
        case Text():
            return Field(code.TEXT, offset, needed)
        case Scalar("string") | Category("string"):
            return Field(code.STRING, offset, needed)
        case Scalar(dtype) | Category(dtype):
            return Field(code.NUMBER, offset, needed, 1, dtype)
        case Vector(width, "string", sparse=False) if width:
            return Field(code.STRING, offset, needed, width, ranks=COLUMN)
        case Vector(width, dtype, sparse=False) if width:
            return Field(code.NUMBER, offset, needed, width, dtype, COLUMN)
    return None


def _named_table(
    name: str, door: Call, fallback: Callable[[object], Any], known: Mapping[str, int]
) -> Table:
    words = {**known, "LABEL": id(name), "DOOR": id(door), "FALLBACK": id(fallback)}
    table = np.array([words[word] for word in code.NAMED_WORDS], np.int64).view(Table)
    table.kept = (name, door, fallback)
    return table


def columns_table(
    found: Columns, fallback: Callable[[object], Any], known: Mapping[str, int]
) -> Table:
    """The table of the machine code for arrays."""
    run = found.run
    stages = aligned(16 * (1 + len(run.inputs) + len(found.outputs)))
    size = stages + aligned(run.scratch_bytes)
    rooms, room_table = room_words(run, size + 4 * found.row_bytes)
    scratch = shared_scratch(rooms["SHARED_BYTES"])
    fields, kept = _field_words(found)
    # Words of doors that read single rows say nothing here.
    words = {**dict.fromkeys(code.COLUMN_WORDS, 0), **known, **rooms, **fields}
    words |= {"SCRATCH": scratch.ctypes.data, "SCRATCH_BYTES": size, "STAGES": stages}
    words |= {"RUN": run.entry[0], "PROGRAM": run.entry[1], "FALLBACK": id(fallback)}
    words |= {"OUTPUTS": len(found.outputs), "BARE": int(found.bare)}
    words["TEXTS"] = sum(item.names is not None for item in found.outputs)
    numbers = [words[name] for name in code.COLUMN_WORDS[:-1]]
    columns = {item: place for place, item in enumerate((*run.inputs, *run.outputs))}
    for item in found.outputs:
        numbers += output_words(item, columns[item.node])
    table = np.array(numbers, np.int64).view(Table)
    table.kept = (found, fallback, scratch, room_table, *kept)
    return table


def _field_words(found: Columns) -> tuple[dict[str, int], tuple[Any, ...]]:
    """What the table says of fields, and what has to be kept for it."""
    names = tuple(found.fields)
    index = {name: float(place) for place, name in enumerate(names)}
    keys = np.array([id(name) for name in names], np.int64)
    kinds = [np.dtype(field.dtype) for field in found.fields.values()]
    rows = [
        [field.read, field.offset, field.needed, field.width, kind.itemsize, id(kind), field.ranks]
        for field, kind in zip(found.fields.values(), kinds, strict=True)
    ]
    tables: list[NDArray[np.int64]] = [
        np.array(part, np.int64) for part in (rows, found.ports, found.strings)
    ]
    words = {"FIELDS": len(names), "KEYS": keys.ctypes.data, "INDEX": id(index)}
    words |= {"REQUIRED": sum(field.needed for field in found.fields.values())}
    words |= {"PORTS": len(found.ports), "STRINGS": len(found.strings)}
    where = [part.ctypes.data for part in tables]
    words |= dict(zip(("FIELD_TABLE", "PORT_TABLE", "STRING_TABLE"), where, strict=True))
    words["ROW_BYTES"] = found.row_bytes
    return words, (names, index, keys, kinds, *tables)
