"""The door of a plan that reads records: what of them it takes, and its table.

    call = plan.door()
    label, probabilities = call({"age": 31, "city": "Graz"})        # a row, by name
    label, probabilities = call([31, "Graz"])                       # by position
    labels, probabilities = call([{"age": 31, "city": "Graz"}])     # a block; also a dict of lists

The machine code (oven.door_record_code) checks and converts every value as flour.coerce does, into
the rows that the stages read, and runs them. What it would have to think about goes to Python, with
the same answers and the errors. Arrays go through the door for vectors, where the plan has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.node import Node
from flour.types import INTS, Category, Record, Scalar, Text, Type, Vector
from oven import door_record_code as code
from oven.builtin import Table, made_of
from oven.door import (
    Call,
    Layout,
    Output,
    aligned,
    named_output,
    open_door,
    output_words,
    room_words,
    shared_scratch,
)
from oven.native_run import NativeRun
from oven.ports import Port
from oven.stages import Stage, row_bytes


class Field(NamedTuple):
    """One value of a row: how it is read, and where it goes."""

    read: int
    offset: int
    needed: bool
    size: int = 0
    low: int = 0
    high: int = 0


class Fields(NamedTuple):
    """How a plan's rows come in, and how they are laid out for its stages."""

    run: NativeRun
    outputs: tuple[Output, ...]
    fields: Mapping[str, Field]
    #: Where the columns of each port are in a row, and where its texts are.
    ports: tuple[int, ...]
    row_bytes: int
    #: Whether values may come by position.
    listed: bool

    @property
    def strings(self) -> list[int]:
        """Where there are texts in a row."""
        reads = (code.STRING, code.TEXT)
        return [field.offset for field in self.fields.values() if field.read in reads]


def open_record(
    inputs: Mapping[str, Type],
    steps: Sequence[NativeRun | Stage],
    outputs: Sequence[Node],
    fallback: Call,
) -> Call | None:
    """The door of a plan over records, or over several single columns, if it can have one."""
    found = _fields(inputs, steps, outputs)
    if found is None:
        return None
    arrays = _arrays(inputs, found, fallback) or fallback
    return made_of(code.SOURCE, code.NAME, partial(_table, found, fallback, arrays))


def _fields(
    inputs: Mapping[str, Type], steps: Sequence[NativeRun | Stage], outputs: Sequence[Node]
) -> Fields | None:
    if not steps or not isinstance(steps[0], NativeRun) or steps[0].stored:
        return None
    run = steps[0]
    ports = [value for value in run.inputs if isinstance(value, Port)]
    made = tuple(named_output(item) for item in outputs)
    if not ports or len(ports) != len(run.inputs) or not leaves_all(run, made):
        return None
    kinds, unread, listed = fields_of(inputs)
    if any(_field(kinds[name], 0, needed=name not in unread) is None for name in kinds):
        return None
    starts, size = port_starts(ports)
    places = field_places(ports, starts, listed=listed)
    fields: dict[str, Field] = {}
    for name, kind in kinds.items():
        # What no stage reads is looked at all the same, and goes to the end of the row.
        field = _field(kind, places.get(name, size), needed=name not in unread)
        assert field is not None, "this has been asked"
        fields[name] = field
    return Fields(run, made, fields, tuple(starts), aligned(size + 16), listed)


def leaves_all(run: NativeRun, outputs: Sequence[Output]) -> bool:
    """Whether each column that the native code leaves is one dense output, and each output one."""
    if any(isinstance(item.node.type, Vector) and item.node.type.sparse for item in outputs):
        return False
    return len(outputs) == len(run.outputs) and {item.node for item in outputs} == set(run.outputs)


def fields_of(inputs: Mapping[str, Type]) -> tuple[dict[str, Type], frozenset[str], bool]:
    """Every value of a row by name, those that nobody reads, and whether they come in a record."""
    kinds = list(inputs.values())
    if len(kinds) == 1 and isinstance(kinds[0], Record):
        return dict(kinds[0].fields), frozenset(kinds[0].unread), True
    return dict(inputs) if len(kinds) > 1 else {"": Vector(0)}, frozenset(), False


def port_starts(ports: Sequence[Port]) -> tuple[list[int], int]:
    """Where each port's columns start in a row, and where the last one's end."""
    starts, size = [], 0
    for port in ports:
        starts.append(size)
        size += -(-_bytes(port) // 16) * 16
    return starts, size


def _bytes(port: Port) -> int:
    return row_bytes(port.type)


def field_places(ports: Sequence[Port], starts: Sequence[int], *, listed: bool) -> dict[str, int]:
    """Where in a row the value of each name goes."""
    found: dict[str, int] = {}
    for port, start in zip(ports, starts, strict=True):
        names = port.fields if listed else (port.label,)
        step = _bytes(port) // max(len(names), 1)
        found |= {name: start + place * step for place, name in enumerate(names)}
    return found


def _field(kind: Type, offset: int, *, needed: bool) -> Field | None:
    """How a value of this type is read; None where there is more to it."""
    if not needed:
        return Field(code.SKIP, offset, needed)
    match kind:
        case Text():
            return Field(code.TEXT, offset, needed)
        case Scalar(dtype) | Category(dtype) if dtype in _READS:
            return Field(_READS[dtype], offset, needed)
        case Scalar("bool") | Category("bool"):
            return Field(code.WHOLE, offset, needed, 1, 0, 1)
        case Scalar(dtype) | Category(dtype) if dtype in INTS:
            info = np.iinfo(dtype)
            high = min(int(info.max), 2**63 - 1)
            return Field(code.WHOLE, offset, needed, info.bits // 8, int(info.min), high)
    return None


_READS = {"string": code.STRING, "float64": code.FLOAT64, "float32": code.FLOAT32}


def _arrays(inputs: Mapping[str, Type], found: Fields, fallback: Call) -> Call | None:
    """The door for rows of float64, where a record's columns are just that."""
    (port, *more), fields = found.run.inputs, tuple(found.fields.values())
    if more or not found.listed or found.run.rooms or not isinstance(port, Port):
        return None
    plain = all(field.read == code.FLOAT64 for field in fields)
    if not plain or port.fields != tuple(found.fields):
        return None
    assert len(inputs) == 1, "a record is the only input"
    return open_door(Layout(found.run, Vector(len(fields)), found.outputs), fallback)


def _table(found: Fields, fallback: Call, arrays: Call, known: Mapping[str, int]) -> Table:
    run = found.run
    cells = aligned(16 * (1 + len(run.inputs) + len(found.outputs)))
    stages = cells + aligned(8 * len(found.outputs))
    size = stages + aligned(run.scratch_bytes)
    rooms, room_table = room_words(run, size + 4 * found.row_bytes)
    scratch = shared_scratch(rooms["SHARED_BYTES"])
    fields, kept = _field_words(found)
    words = {**known, **rooms, **fields, "SCRATCH": scratch.ctypes.data, "SCRATCH_BYTES": size}
    words |= {"DTYPE": 0, "ITEM_BYTES": 0, "WIDTH": 0, "RELEASE_ROWS": 0, "ROW": 0}
    words |= {"RUN": run.entry[0], "PROGRAM": run.entry[1], "FALLBACK": id(fallback)}
    words |= {"ARRAYS": id(arrays), "CELLS": cells, "STAGES": stages}
    words["OUTPUTS"] = len(found.outputs)
    words["TEXTS"] = sum(item.names is not None for item in found.outputs)
    numbers = [words[name] for name in code.RECORD_WORDS[:-1]]
    columns = {item: place for place, item in enumerate((*run.inputs, *run.outputs))}
    for item in found.outputs:
        numbers += output_words(item, columns[item.node])
    table = np.array(numbers, np.int64).view(Table)
    table.kept = (found, fallback, arrays, scratch, room_table, *kept)
    return table


def _field_words(found: Fields) -> tuple[dict[str, int], tuple[Any, ...]]:
    """What the table says of fields, and what has to be kept for it."""
    names = tuple(found.fields)
    index = {name: float(place) for place, name in enumerate(names)}
    keys = np.array([id(name) for name in names], np.int64)
    rows = [
        [field.read, field.offset, field.needed, field.size, field.low, field.high]
        for field in found.fields.values()
    ]
    tables: list[NDArray[np.int64]] = [
        np.array(part, np.int64) for part in (rows, found.ports, found.strings)
    ]
    words = {"FIELDS": len(names), "KEYS": keys.ctypes.data, "INDEX": id(index)}
    words |= {"REQUIRED": sum(field.needed for field in found.fields.values())}
    words |= {"PORTS": len(found.ports), "STRINGS": len(found.strings)}
    where = [part.ctypes.data for part in tables]
    words |= dict(zip(("FIELD_TABLE", "PORT_TABLE", "STRING_TABLE"), where, strict=True))
    words |= {"ROW_BYTES": found.row_bytes, "BY_POSITION": int(found.listed)}
    return words, (names, index, keys, *tables)
