"""The signature of a native run, and the layout of the table by which its code finds parameters.

A `RunSignature` says which columns a run reads and writes and how much memory it needs. Plans of
one structure have equal signatures. `TableDraft` is a run's table before it has an address:

    [program (see oven.compiler.driver) | a parameter table for each stage]

in which some words are addresses: of code, of other words, of parameters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flour.core.emission import Room
from flour.core.node import Node
from objectstore import Blob
from oven.codegen.stages import Stage, Value, is_text, is_wide, row_bytes
from oven.compiler import driver

#: Bytes of a tile: enough rows to amortise a stage's call, few enough to stay in cache.
#: Between 24 and 960 rows it makes a few per cent of difference (measured on a CPU with 48 KiB of
#: first-level and 1 MiB of second-level cache a core).
TILE_BYTES = 128 * 1024
#: Trees are passed 64 rows at a time, matrix products take 4, 6 or 8.
MAX_TILE = 192
#: If parameters fill the near cache, a tile may be as large as they are: each tile reads them once.
_FAR_BYTES = 1 << 20
#: Matrix products work on 4, 6 or 8 rows at once; a tile should leave none over.
_TILE_STEP = 24
#: Rows wider than this would not stay in any cache.
_WIDE = 64 * 1024
_ALIGN = 64
#: Assumed bytes of the stored numbers in a row of a wide sparse vector.
_STORED_BYTES = 1024
WORD = 8


class RunSignature:
    """Columns and memory of a run."""

    def __init__(
        self,
        read: Sequence[tuple[Value, bool]],
        outputs: Sequence[Node],
        stored: Mapping[Value, Room],
        rooms: Sequence[Sequence[Room]],
        tile: int,
        scratch_bytes: int,
    ) -> None:
        #: Columns that the stages read from outside, and whether as stored numbers only.
        self.read = tuple(read)
        #: Columns that the caller provides and receives.
        self.inputs = tuple(dict.fromkeys(value for value, _ in read))
        self.outputs = tuple(outputs)
        #: Outputs written as stored numbers only, with the bound of numbers in a row.
        self.stored = dict(stored)
        #: For each stage, the memory whose size depends on the data.
        self.rooms = tuple(map(tuple, rooms))
        self.tile, self.scratch_bytes = tile, scratch_bytes
        texts = any(is_text(value.type) for value, _ in self.read)
        sparse = any(is_stored for _, is_stored in self.read)
        #: True if no memory depends on the data.
        self.plain = not (any(self.rooms) or self.stored or texts or sparse)
        self.numeric: tuple[tuple[Value, np.dtype[np.generic]], ...] = ()
        if self.plain:
            self.numeric = tuple(
                (value, np.dtype(value.type.dtype))  # type: ignore[union-attr]  # numbers have one
                for value, _ in self.read
            )
        self.io: type[ctypes.Array[ctypes.c_int64]] = ctypes.c_int64 * (
            2 * (len(self.numeric) + len(self.outputs)) + 2
        )


class TableDraft(NamedTuple):
    """A run's table, and the indices of the words in it that are addresses."""

    words: list[int]
    #: Words that are addresses of functions: index, source and name.
    codes: list[tuple[int, str, str]]
    #: Words that are addresses of other words, given by their distance from the first in bytes.
    inner: list[int]
    #: Words that are addresses of parameters.
    parameters: list[tuple[int, Blob]]
    #: About how many bytes the code touches per row: an estimate of its time.
    row_work: int


class TableLayout:
    """Decides a run's signature, places its buffers in scratch memory and writes its table."""

    def __init__(self, stages: Sequence[Stage], wanted: Iterable[Value], tile: int = 0) -> None:
        self.stages = tuple(stages)
        produced = {item for stage in stages for item in stage.outputs}
        read = dict.fromkeys(
            (value, stage.stores(value))
            for stage in stages
            for value in stage.inputs
            if value not in produced
        )
        outside = set(wanted)
        outputs = [item for stage in stages for item in stage.outputs if item in outside]
        stored: dict[Value, Room] = {
            item: stage.most[item]
            for stage in stages
            for item in stage.outputs
            if stage.stores(item)
        }
        #: Where each external column is in the io table; values that stay inside come later.
        self._wires: dict[tuple[Value, bool], list[driver.Wire]] = {}
        self._entries = 0
        for value, is_stored in read:
            self._wire(value, stored=is_stored)
        for item in outputs:
            self._wire(item, stored=item in stored)
        outer = dict.fromkeys((*(value for value, _ in read), *outputs))
        inner = [item for stage in self.stages for item in stage.outputs if item not in outer]
        kinds = [value.type for value in (*inner, *dict.fromkeys(v for v, _ in read), *outputs)]
        #: About how many bytes of columns are touched per row.
        self._row = sum(_STORED_BYTES if is_wide(kind) else row_bytes(kind) for kind in kinds)
        # Look-ups in dictionaries read little of their tables.
        read_often = [stage for stage in self.stages if not stage.rooms]
        tables = sum(each.nbytes for stage in read_often for each in {*stage.parameters()})
        tile = tile or self._tile_rows(min(max(TILE_BYTES, tables), _FAR_BYTES))
        self._row_scratch = self._place(inner, tile, stored)
        sizes = [sum(aligned(slot.scratch or 0) for slot in stage.slots) for stage in stages]
        scratch = self._row_scratch + max(sizes)
        rooms = [stage.rooms for stage in stages]
        self.form = RunSignature(tuple(read), outputs, stored, rooms, tile, scratch)

    def _tile_rows(self, budget: int) -> int:
        rows = min(MAX_TILE, budget // max(self._row, 1))
        if rows >= _TILE_STEP:
            return rows - rows % _TILE_STEP
        return _TILE_STEP if self._row <= _WIDE else 4

    def _wire(self, value: Value, *, stored: bool) -> None:
        wires = [driver.Wire(0, self._entries, 0)]
        if stored:
            wires.append(driver.Wire(2, self._entries + 1, 0))
        self._wires[value, stored] = wires
        self._entries += len(wires)

    def _place(self, inner: Sequence[Node], tile: int, stored: Mapping[Value, Room]) -> int:
        """Place a tile's buffers behind a stage's io table; returns the offset of their end."""
        columns = 1 + max(
            sum(1 + stage.stores(value) for value in (*stage.inputs, *stage.outputs))
            for stage in self.stages
        )
        size = aligned(16 * columns)
        for item in inner:
            assert item not in stored, "what is stored is read by another run"
            self._wires[item, False] = [driver.Wire(1, size, row_bytes(item.type))]
            size += aligned(tile * row_bytes(item.type))
        return size

    def draft(self) -> TableDraft:
        """The run's table."""
        table = TableDraft([len(self.stages), self.form.tile], [], [], [], self._row)
        parameter_words = [self._program(table, stage) for stage in self.stages]
        work = self._row
        for index, stage in zip(parameter_words, self.stages, strict=True):
            table.words[index] = WORD * len(table.words)
            work += self._parameters(table, stage)
        return table._replace(row_work=work)

    def _program(self, table: TableDraft, stage: Stage) -> int:
        """Write a stage's part of the program; returns the index of its parameters' address."""
        values = (*stage.inputs, *stage.outputs)
        columns = [wire for v in values for wire in self._wires[v, stage.stores(v)]]
        if stage.rooms:
            columns.append(driver.Wire(2, self._entries, 0))
        index = len(table.words)
        table.codes.append((index, stage.source, stage.name))
        table.inner.append(index + 1)
        table.words.extend([0, 0, len(columns)])
        table.words.extend(number for wire in columns for number in wire)
        return index + 1

    def _parameters(self, table: TableDraft, stage: Stage) -> int:
        """Write a stage's parameter table; returns the bytes of parameters that a row touches."""
        offset, work = self._row_scratch, 0
        for slot in stage.slots:
            word = slot.size or 0
            if slot.parameter is not None:
                assert isinstance(slot.parameter, Blob), "code reads arrays, never string tables"
                table.parameters.append((len(table.words), slot.parameter))
                # A document does a few look-ups in large tables, which TEXT_BYTES accounts for.
                work += 0 if stage.rooms else slot.parameter.nbytes
            elif slot.number is not None:
                word = int(np.float64(slot.number).view(np.int64))
            elif slot.scratch is not None:
                word = offset
                offset += aligned(slot.scratch)
            table.words.append(word)
        return work


def aligned(size: int) -> int:
    """The size rounded up to a multiple of a cache line."""
    return -(-size // _ALIGN) * _ALIGN
