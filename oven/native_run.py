"""Consecutive native stages bound to their parameters: one native call over raw addresses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.emission import Room
from flour.types import Tokens, Vector
from objectstore import Blob
from oven import cache, cells, driver, machine
from oven.emitter import Slot
from oven.ports import Port
from oven.stages import Stage, Value, is_text, row_bytes

#: Rows a tile: enough to amortise a stage's call, few enough that its columns stay in cache.
#: Between 24 and 960 rows it makes a few per cent of difference (measured on a CPU with 48 KiB of
#: first-level and 1 MiB of second-level cache a core).
TILE_BYTES = 128 * 1024
MAX_TILE = 240
#: Matrix products work on 4, 6 or 8 rows at once; a tile should leave none over.
_TILE_STEP = 24
#: Rows wider than this would not stay in any cache.
_WIDE = 64 * 1024
_ALIGN = 64
#: Rooms up to this size stay with their thread; they are as large as the longest document could
#: need, and most of their pages are never touched.
KEPT_ROOM = 64 << 20
#: Documents longer than this are left to Python.
LONGEST = 64 << 20


class RowsRefused(Exception):
    """Native code met a row that its operator refuses; it cannot say which, or why."""


class NativeRun:
    """Native stages that follow each other, ready to be called."""

    def __init__(self, stages: Sequence[Stage], wanted: Iterable[Value]) -> None:
        self.stages = tuple(stages)
        made = {item for stage in stages for item in stage.outputs}
        read = dict.fromkeys(value for stage in stages for value in stage.inputs)
        #: What the caller provides and receives, in the order of the io table.
        self.inputs = tuple(value for value in read if value not in made)
        outside = set(wanted)
        self.outputs = tuple(item for stage in stages for item in stage.outputs if item in outside)
        self._externals: dict[Value, int] = {
            value: place for place, value in enumerate((*self.inputs, *self.outputs))
        }
        self._lay_out()
        self._bind()

    # --- memory ------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Decide the tile's rows and where its buffers are in scratch memory."""
        inner = [n for s in self.stages for n in s.outputs if n not in self._externals]
        row = sum(row_bytes(value.type) for value in (*inner, *self._externals))
        self.tile = _tile_rows(row)
        columns = 1 + max(len(stage.inputs) + len(stage.outputs) for stage in self.stages)
        self._wires: dict[Value, driver.Wire] = {
            value: driver.Wire(0, place, 0) for value, place in self._externals.items()
        }
        size = _aligned(16 * columns)
        for item in inner:
            self._wires[item] = driver.Wire(1, size, row_bytes(item.type))
            size += _aligned(self.tile * row_bytes(item.type))
        #: About how many bytes a row makes the code touch, which says how long a row takes.
        self.row_work = row
        self._row_scratch = size
        self.scratch_bytes = size + max(_scratch(stage.slots) for stage in self.stages)

    @property
    def rooms(self) -> bool:
        """Whether some of its memory is as large as the data needs."""
        return any(stage.rooms for stage in self.stages)

    def _bind(self) -> None:
        """Find the code and write the tables that lead it to this plan's parameters."""
        self._kept: list[Any] = []
        table: list[int] = [len(self.stages), self.tile]
        for stage in self.stages:
            columns = [self._wires[value] for value in (*stage.inputs, *stage.outputs)]
            if stage.rooms:
                columns.append(driver.Wire(2, len(self._externals), 0))
            table += [cache.address(stage.source, stage.name), self._parameters(stage.slots)]
            table += [len(columns), *(number for wire in columns for number in wire)]
        self._table = np.array(table, np.int64)
        address = cache.address(driver.SOURCE, driver.NAME)
        self._call = machine.STAGE(address)
        self.entry = (address, self._table.ctypes.data)

    def _parameters(self, slots: Sequence[Slot]) -> int:
        """The address of a stage's parameter table."""
        table = np.zeros(max(len(slots), 1), np.int64)
        offset = self._row_scratch
        for place, slot in enumerate(slots):
            if slot.parameter is not None:
                assert isinstance(slot.parameter, Blob), "code reads arrays, never string tables"
                self._kept.append(slot.parameter)
                self.row_work += slot.parameter.nbytes
                table[place] = slot.parameter.array.ctypes.data
            elif slot.number is not None:
                table[place] = np.float64(slot.number).view(np.int64)
            elif slot.scratch is not None:
                table[place] = offset
                offset += _aligned(slot.scratch)
            elif slot.size is not None:
                table[place] = slot.size
        self._kept.append(table)
        return int(table.ctypes.data)

    # --- running -----------------------------------------------------------------------------

    def blank(self, item: Value, rows: int) -> NDArray[Any]:
        """An array for one of the outputs, not filled."""
        return _empty(item, rows)

    @property
    def memory_bytes(self) -> int:
        """What `run` needs where it is given memory to work in."""
        return self.scratch_bytes + 2 * _ALIGN

    def run(
        self,
        values: Mapping[Value, Any],
        rows: int,
        into: Mapping[Value, NDArray[Any]] | None = None,
        memory: Any = None,
    ) -> dict[Value, NDArray[Any]]:
        """Every output for these columns, in the arrays given or in new ones.

        `memory` is a buffer of `memory_bytes` to work in; without, it is this thread's.
        """
        kept = [_contiguous(values[value], value) for value in self.inputs]
        room = into or {}
        made = [room[item] if item in room else _empty(item, rows) for item in self.outputs]
        io: list[int] = []
        for array in (*kept, *made):
            io += [array.ctypes.data, array.strides[0] if array.ndim else 0]
        memory_of_rooms, most = self._room(kept)
        table = np.array([*io, _aligned(memory_of_rooms.ctypes.data), most], np.int64)
        self._invoke(table.ctypes.data, rows, memory)
        return dict(zip(self.outputs, made, strict=True))

    def _room(self, columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.uint8], int]:
        """Memory whose size depends on these columns, and the length of their longest row."""
        if not self.rooms:
            return _NO_ROOM, 0
        lengths = [
            cells.longest(column, words=isinstance(value.type, Tokens))
            for value, column in zip(self.inputs, columns, strict=True)
            if is_text(value.type)
        ]
        most = max(lengths, default=0)
        if most > LONGEST:
            raise RowsRefused("a document is too long for native code")
        return _room_memory(max(room_bytes(stage.rooms, most) for stage in self.stages)), most

    def _invoke(self, io: int, rows: int, given: Any = None) -> None:
        # Holding the memory keeps it from a finalizer that runs a bigger plan in between.
        if given is None:
            memory, start = _scratch_memory(self.scratch_bytes)
        else:
            memory = np.frombuffer(given, np.uint8)
            start = _aligned(memory.ctypes.data + 16)
            assert len(memory) >= self.memory_bytes, "whoever gives memory gives enough"
        assert memory.size
        self._call(start - 16, start - 8, self.entry[1], io, rows, start)
        if ctypes.c_int64.from_address(start - 16).value:
            raise RowsRefused("the native code refuses these rows")


class _Local(threading.local):
    """This thread's scratch memory, which all plans share: one runs at a time."""

    room: NDArray[np.uint8] = np.empty(0, np.uint8)
    memory: NDArray[np.uint8] = np.empty(0, np.uint8)
    start: int = 0
    size: int = 0


_local = _Local()


def _scratch_memory(size: int) -> tuple[NDArray[np.uint8], int]:
    """Scratch memory and its address, with two words for a call's result ahead of it."""
    if _local.size < size:
        _local.memory = np.empty(size + 2 * _ALIGN, np.uint8)
        _local.start = _aligned(_local.memory.ctypes.data + 16)
        _local.size = size
    return _local.memory, _local.start


_NO_ROOM = np.empty(0, np.uint8)


def room_bytes(rooms: Sequence[Room], most: int) -> int:
    """How much memory these rooms take for rows of up to so many bytes."""
    return sum(_aligned(min(most * room.each + room.fixed, room.most)) for room in rooms)


def _room_memory(size: int) -> NDArray[np.uint8]:
    """Memory of at least this size; what is not used of it costs nothing."""
    size += _ALIGN
    if len(_local.room) >= size:
        return _local.room
    made = np.empty(size, np.uint8)
    if size <= KEPT_ROOM:
        _local.room = made
    return made


def _tile_rows(row_bytes: int) -> int:
    rows = min(MAX_TILE, TILE_BYTES // max(row_bytes, 1))
    if rows >= _TILE_STEP:
        return rows - rows % _TILE_STEP
    return _TILE_STEP if row_bytes <= _WIDE else 4


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _scratch(slots: Sequence[Slot]) -> int:
    return sum(_aligned(slot.scratch) for slot in slots if slot.scratch is not None)


def _empty(value: Value, rows: int) -> NDArray[Any]:
    kind = value.type
    assert not isinstance(value, Port)
    if isinstance(kind, Vector):
        return np.empty((rows, kind.width), kind.dtype)
    return np.empty(rows, kind.dtype)  # type: ignore[union-attr]  # native columns have a dtype


def _contiguous(array: Any, value: Value) -> NDArray[Any]:
    """Rows may be apart, but the columns of a row lie side by side."""
    if isinstance(value.type, Tokens):
        return cells.word_cells(array)
    if is_text(value.type):
        return cells.cells(array)
    dtype = value.type.dtype  # type: ignore[union-attr]  # native columns have a dtype
    made: NDArray[Any] = array
    if made.dtype != dtype or (made.ndim == 2 and made.strides[1] != made.itemsize):
        return np.ascontiguousarray(made, dtype)
    return made
