"""Rows as entries lay them out: where each value goes, and what an entry's table says of it.

Entries for records and for arrays by name (oven.entry.columns_entry) read different things into the
same rows. In a row lie the columns of each port that the stages read, one port behind the other
from a multiple of 16 bytes on. What no stage reads is looked at all the same, and goes to the end
of the row.

A value is read in its own dtype. Ports that want it in another one (a vector of an int64 and a
float64 column is of float64) get it converted from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from flour.core.types import Category, Record, Scalar, Text, Type
from oven.codegen.ports import Port, dtype_of
from oven.codegen.stages import row_bytes
from oven.entry import tables
from oven.entry.builtin import Contents
from oven.entry.generator import Kind, Read, numbers_of
from oven.entry.tables import CallMemory, Output, PlanSteps, aligned
from oven.run.native_run import NativeRun

#: The bytes of a text, and what every port starts at a multiple of.
_CELL = 16


class Reading(NamedTuple):
    """An entry's reading of one value of a row, or of several of one name side by side."""

    #: A Read by its name.
    read: str
    #: What the entry's table says of it besides: see the fields in ROWS.
    more: Mapping[str, int]
    width: int = 1
    text: bool = False


class RowField(NamedTuple):
    """The reading of a value, its place in the row, and whether it is required."""

    reading: Reading
    offset: int
    needed: bool


class Conversion(NamedTuple):
    """A value that a port wants in another dtype than its own: where from, and where to."""

    offset: int
    dtype: str
    to_offset: int
    to_dtype: str


class RowLayout(NamedTuple):
    """The names of a plan's rows, and their layout for its stages."""

    run: NativeRun
    outputs: tuple[Output, ...]
    #: Every value of a row by name, and what was declared for it.
    fields: Mapping[str, RowField]
    kinds: Mapping[str, Type]
    conversions: tuple[Conversion, ...]
    #: Where the columns of each port are in a row.
    ports: tuple[int, ...]
    row_bytes: int
    #: Whether the values are the columns of one record, and may come by position.
    listed: bool

    @property
    def strings(self) -> list[int]:
        """Places of texts in a row."""
        return [
            offset + _CELL * place
            for reading, offset, _ in self.fields.values()
            for place in range(reading.width if reading.text else 0)
        ]

    @property
    def bare(self) -> bool:
        """True if there is one array, which may come without its name.

        A vector of numbers is a row, whatever the plan's one input is.
        """
        (kind, *more) = self.kinds.values()
        return not (self.listed or more or isinstance(kind, Scalar | Category))


Reads = Callable[[str, Type | None], Reading | None]
"""From a value's name and type, None if no stage reads it, to how it is read, if it can be."""


def rows_of(plan: PlanSteps, reads: Reads) -> RowLayout | None:
    """The rows of a plan that is native code from them to its answers, if each can be read."""
    inputs, steps, outputs = plan
    if not steps or not isinstance(steps[0], NativeRun) or steps[0].stored:
        return None
    run = steps[0]
    ports = [value for value in run.inputs if isinstance(value, Port)]
    made = tuple(tables.named_output(item) for item in outputs)
    if not ports or len(ports) != len(run.inputs) or not tables.leaves_all(run, made):
        return None
    kinds, unread, listed = dict(inputs), frozenset[str](), False
    match [*inputs.values()]:
        case [Record() as record]:
            kinds, unread, listed = dict(record.fields), frozenset(record.unread), True
    sizes = [-(-row_bytes(port.type) // _CELL) * _CELL for port in ports]
    *starts, size = accumulate(sizes, initial=0)
    places = _places(ports, starts, listed=listed)
    fields: dict[str, RowField] = {}
    conversions: list[Conversion] = []
    for name, kind in kinds.items():
        needed = name not in unread
        reading = reads(name, kind if needed else None)
        if reading is None:
            return None
        wanted = places.get(name, {})
        dtype = dtype_of(kind) if wanted else ""
        fields[name] = RowField(reading, wanted.get(dtype, size), needed)
        size += 0 if dtype in wanted else _CELL * reading.width
        for other, place in wanted.items():
            if other != dtype:
                conversions.append(Conversion(fields[name].offset, dtype, place, other))
    ends = tuple(starts), aligned(size + _CELL), listed
    return RowLayout(run, made, fields, kinds, tuple(conversions), *ends)


def _places(
    ports: Sequence[Port], starts: Sequence[int], *, listed: bool
) -> dict[str, dict[str, int]]:
    """The place in a row of each name's value, in each dtype that a port wants."""
    found: dict[str, dict[str, int]] = {}
    for port, start in zip(ports, starts, strict=True):
        names = port.fields if listed else (port.label,)
        step = row_bytes(port.type) // max(len(names), 1)
        for place, name in enumerate(names):
            found.setdefault(name, {})[dtype_of(port.type)] = start + place * step
    return found


def document_rows(run: NativeRun, outputs: tuple[Output, ...]) -> RowLayout:
    """The rows of a plan that reads one document: a cell of text each."""
    fields = {"": RowField(Reading("TEXT", {}, text=True), 0, needed=True)}
    return RowLayout(run, outputs, fields, {"": Text()}, (), (0,), _CELL, listed=False)


# --- the table ------------------------------------------------------------------------------------


def rows_contents(found: RowLayout, words: Mapping[str, int], *kept: object) -> Contents:
    """The table of an entry that lays out these rows: these words, and what it says of fields."""
    run, memory = found.run, CallMemory.of(found.run, len(found.outputs))
    rooms, sizes = tables.room_words(run, memory.size + 4 * found.row_bytes)
    scratch = tables.shared_scratch(rooms["SHARED_BYTES"])
    fields, more = _field_words(found)
    known = {**memory.words(), **rooms, **fields, **words, "ROW_BYTES": found.row_bytes}
    known["SCRATCH"] = scratch.ctypes.data
    return tables.plan_contents(run, found.outputs, known, found, scratch, sizes, *more, *kept)


def _field_words(found: RowLayout) -> tuple[dict[str, int], tuple[object, ...]]:
    """The table's words for fields, and the objects to keep for it."""
    labels = tuple(found.fields)
    index = {label: float(place) for place, label in enumerate(labels)}
    fields = list[list[int]]()
    for reading, offset, needed in found.fields.values():
        row = {"READ": Read[reading.read], "OFFSET": offset, "NEEDED": needed}
        fields.append(numbers_of({**row, **reading.more}, "field"))
    parts = {
        "KEYS": [id(label) for label in labels],
        "FIELD_TABLE": fields,
        "PORT_TABLE": found.ports,
        "STRING_TABLE": found.strings,
        "CONVERSION_TABLE": [
            [source, Kind[dtype.upper()], place, Kind[other.upper()]]
            for source, dtype, place, other in found.conversions
        ],
    }
    arrays = {name: np.array(rows, np.int64) for name, rows in parts.items()}
    words = {name: array.ctypes.data for name, array in arrays.items()}
    words |= {"FIELDS": len(labels), "PORTS": len(found.ports), "STRINGS": len(found.strings)}
    words |= {"INDEX": id(index), "CONVERSIONS": len(found.conversions)}
    words["REQUIRED"] = sum(field.needed for field in found.fields.values())
    return words, (labels, index, *arrays.values())
