"""Rows as entries lay them out: where each value goes, and what an entry's table says of it.

Entries for records (oven.entry.record_entry) and for arrays by name (oven.entry.columns_entry) read
different things into the same rows. In a row lie the columns of each port that the stages read, one
port behind the other from a multiple of 16 bytes on. What no stage reads is looked at all the same,
and goes to the end of the row.

A value is read in its own dtype. Ports that want it in another one (a vector of an int64 and a
float64 column is of float64) get it converted from there: see `CONVERT`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.types import Category, Record, Scalar, Type
from oven.codegen.ports import Port, dtype_of
from oven.codegen.stages import Stage, row_bytes
from oven.entry.array_code import KINDS
from oven.entry.array_entry import (
    Output,
    aligned,
    leaves_all,
    named_output,
    room_words,
    shared_scratch,
    table_of,
)
from oven.entry.builtin import NativeTable
from oven.run.native_run import NativeRun

#: The bytes of a text, and what every port starts at a multiple of.
_CELL = 16


class Reading(NamedTuple):
    """How an entry reads one value of a row, or several of one name side by side."""

    read: int
    #: What the entry's table says of it besides.
    more: tuple[int, ...]
    width: int = 1
    text: bool = False


class Field(NamedTuple):
    """How a value is read, where in the row it goes, and whether it has to be there."""

    reading: Reading
    offset: int
    needed: bool


class Conversion(NamedTuple):
    """A value that a port wants in another dtype than its own: where from, and where to."""

    offset: int
    dtype: str
    to_offset: int
    to_dtype: str


class Rows(NamedTuple):
    """How a plan's rows come in by name, and how they are laid out for its stages."""

    run: NativeRun
    outputs: tuple[Output, ...]
    #: Every value of a row by name, and what was declared for it.
    fields: Mapping[str, Field]
    kinds: Mapping[str, Type]
    conversions: tuple[Conversion, ...]
    #: Where the columns of each port are in a row.
    ports: tuple[int, ...]
    row_bytes: int
    #: Whether the values are the columns of one record, and may come by position.
    listed: bool

    @property
    def strings(self) -> list[int]:
        """Where there are texts in a row."""
        return [
            offset + _CELL * place
            for reading, offset, _ in self.fields.values()
            for place in range(reading.width if reading.text else 0)
        ]

    @property
    def bare(self) -> bool:
        """Whether there is one array, which may come without its name.

        A vector of numbers is a row, whatever the plan's one input is.
        """
        (kind, *more) = self.kinds.values()
        return not (self.listed or more or isinstance(kind, Scalar | Category))


Reads = Callable[[str, Type | None], Reading | None]
"""From a value's name and type to how it is read, if it can be; the type is None if nobody asks."""


def rows_of(
    inputs: Mapping[str, Type],
    steps: Sequence[NativeRun | Stage],
    outputs: Sequence[Node],
    reads: Reads,
) -> Rows | None:
    """The rows of a plan that is native code from them to its answers, if each can be read."""
    if not steps or not isinstance(steps[0], NativeRun) or steps[0].stored:
        return None
    run = steps[0]
    ports = [value for value in run.inputs if isinstance(value, Port)]
    made = tuple(named_output(item) for item in outputs)
    if not ports or len(ports) != len(run.inputs) or not leaves_all(run, made):
        return None
    kinds, unread, listed = _values(inputs)
    starts, size = _starts(ports)
    places = _places(ports, starts, listed=listed)
    fields: dict[str, Field] = {}
    conversions: list[Conversion] = []
    for name, kind in kinds.items():
        needed = name not in unread
        reading = reads(name, kind if needed else None)
        if reading is None:
            return None
        wanted = places.get(name, {})
        dtype = dtype_of(kind) if wanted else ""
        fields[name] = Field(reading, wanted.get(dtype, size), needed)
        size += 0 if dtype in wanted else _CELL * reading.width
        for other, place in wanted.items():
            if other != dtype:
                conversions.append(Conversion(fields[name].offset, dtype, place, other))
    ends = tuple(starts), aligned(size + _CELL), listed
    return Rows(run, made, fields, kinds, tuple(conversions), *ends)


def _values(inputs: Mapping[str, Type]) -> tuple[dict[str, Type], frozenset[str], bool]:
    """Every value of a row by name, those that nobody reads, and whether they come in a record."""
    match [*inputs.values()]:
        case [Record() as kind]:
            return dict(kind.fields), frozenset(kind.unread), True
    return dict(inputs), frozenset(), False


def _starts(ports: Sequence[Port]) -> tuple[list[int], int]:
    """Where each port's columns start in a row, and where the last one's end."""
    starts, size = [], 0
    for port in ports:
        starts.append(size)
        size += -(-row_bytes(port.type) // _CELL) * _CELL
    return starts, size


def _places(
    ports: Sequence[Port], starts: Sequence[int], *, listed: bool
) -> dict[str, dict[str, int]]:
    """Where in a row the value of each name goes, in each dtype that a port wants it in."""
    found: dict[str, dict[str, int]] = {}
    for port, start in zip(ports, starts, strict=True):
        names = port.fields if listed else (port.label,)
        step = row_bytes(port.type) // max(len(names), 1)
        for place, name in enumerate(names):
            found.setdefault(name, {})[dtype_of(port.type)] = start + place * step
    return found


# --- the table ------------------------------------------------------------------------------------


def rows_table(
    found: Rows, names: Sequence[str], words: Mapping[str, int], kept: tuple[Any, ...] = ()
) -> NativeTable:
    """The table of an entry for these rows; words of other entries say nothing in it."""
    run = found.run
    cells = aligned(16 * (1 + len(run.inputs) + len(found.outputs)))
    stages = cells + aligned(8 * len(found.outputs))
    size = stages + aligned(run.scratch_bytes)
    rooms, sizes = room_words(run, size + 4 * found.row_bytes)
    scratch = shared_scratch(rooms["SHARED_BYTES"])
    fields, tables = _field_words(found)
    words = {**dict.fromkeys(names, 0), **rooms, **fields, **words}
    words |= {"SCRATCH": scratch.ctypes.data, "SCRATCH_BYTES": size}
    words |= {"CELLS": cells, "STAGES": stages, "ROW_BYTES": found.row_bytes}
    return table_of(names, words, run, found.outputs, (found, scratch, sizes, *tables, *kept))


def _field_words(found: Rows) -> tuple[dict[str, int], tuple[Any, ...]]:
    """What the table says of fields, and what has to be kept for it."""
    labels, fields = tuple(found.fields), tuple(found.fields.values())
    index = {label: float(place) for place, label in enumerate(labels)}
    keys = np.array([id(label) for label in labels], np.int64)
    rows = [[how.read, offset, needed, *how.more] for how, offset, needed in fields]
    converted = [
        [source, KINDS.index(dtype), place, KINDS.index(other)]
        for source, dtype, place, other in found.conversions
    ]
    tables: list[NDArray[np.int64]] = [
        np.array(part, np.int64) for part in (rows, found.ports, found.strings, converted)
    ]
    words = {"FIELDS": len(fields), "KEYS": keys.ctypes.data, "INDEX": id(index)}
    words["REQUIRED"] = sum(field.needed for field in fields)
    words |= {"PORTS": len(found.ports), "STRINGS": len(found.strings)}
    words["CONVERSIONS"] = len(found.conversions)
    where = [part.ctypes.data for part in tables]
    words |= dict(zip(_TABLES, where, strict=True))
    return words, (labels, index, keys, *tables)


_TABLES = ("FIELD_TABLE", "PORT_TABLE", "STRING_TABLE", "CONVERSION_TABLE")
