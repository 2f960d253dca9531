"""Consecutive native stages bound to their parameters: one native call over raw addresses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.emission import Room
from flour.node import Node
from flour.sparse import Sparse
from flour.types import Vector
from objectstore import Blob
from oven import cache, driver, machine
from oven.columns import given, lengths, settled, unfilled, words
from oven.emitter import Slot
from oven.ports import Port
from oven.stages import Stage, Value, is_text, is_wide, row_bytes

#: Rows a tile: enough to amortise a stage's call, few enough that its columns stay in cache.
#: Between 24 and 960 rows it makes a few per cent of difference (measured on a CPU with 48 KiB of
#: first-level and 1 MiB of second-level cache a core).
TILE_BYTES = 128 * 1024
#: Trees are passed 64 rows at a time, matrix products take 4, 6 or 8.
MAX_TILE = 192
#: Where parameters fill the near cache, a tile may be as large: they are read once for each.
_FAR_BYTES = 1 << 20
#: Matrix products work on 4, 6 or 8 rows at once; a tile should leave none over.
_TILE_STEP = 24
#: Rows wider than this would not stay in any cache.
_WIDE = 64 * 1024
_ALIGN = 64
#: Rooms up to this size stay with their thread; they are as large as the longest document could
#: need, and most of their pages are never touched.
KEPT_ROOM = 64 << 20
#: What a row of a wide sparse vector is taken to store.
_STORED_BYTES = 1024
#: Documents longer than this are left to Python.
LONGEST = 64 << 20
#: A call that touches this many bytes or more lets other threads run meanwhile: some 20 us. Taking
#: the interpreter's lock back can take thousands, so short calls keep it.
RELEASE_BYTES = 1 << 20
#: A byte of text, or a stored number of a sparse row, takes about as long as touching so many.
TEXT_BYTES = 256


class RowsRefused(Exception):
    """Native code met a row that its operator refuses; it cannot say which, or why."""


class NativeRun:
    """Native stages that follow each other, ready to be called."""

    def __init__(self, stages: Sequence[Stage], wanted: Iterable[Value]) -> None:
        self.stages = tuple(stages)
        made = {item for stage in stages for item in stage.outputs}
        read = dict.fromkeys(value for stage in stages for value in stage.inputs)
        #: What the caller provides and receives.
        self.inputs = tuple(value for value in read if value not in made)
        #: What the stages read of that: columns, or what is stored of them.
        self._read = tuple(
            dict.fromkeys(
                (value, stage.stores(value))
                for stage in stages
                for value in stage.inputs
                if value not in made
            )
        )
        outside = set(wanted)
        self.outputs = tuple(item for stage in stages for item in stage.outputs if item in outside)
        #: Outputs of which only what is stored leaves, and how much that is at most in a row.
        self.stored = {
            item: stage.most[item]
            for stage in stages
            for item in stage.outputs
            if stage.stores(item)
        }
        self._room_steps: dict[int, int] = {}
        self._lay_out()
        self._bind()
        self._prepare()

    # --- memory ------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Decide the tile's rows and where its buffers are in scratch memory."""
        read = [value for value, _ in self._read]
        outer = {*read, *self.outputs}
        inner = [n for s in self.stages for n in s.outputs if n not in outer]
        row = sum(_row_work(value) for value in (*inner, *read, *self.outputs))
        self.tile = _tile_rows(row, sum(map(_table_bytes, self.stages)))
        self._wires: dict[tuple[Value, bool], list[driver.Wire]] = {}
        self._entries = 0
        for value, stored in self._read:
            self._wire(value, stored=stored)
        for item in self.outputs:
            self._wire(item, stored=item in self.stored)
        columns = 1 + max(
            sum(1 + stage.stores(value) for value in (*stage.inputs, *stage.outputs))
            for stage in self.stages
        )
        size = _aligned(16 * columns)
        for item in inner:
            assert item not in self.stored, "what is stored is read by another run"
            self._wires[item, False] = [driver.Wire(1, size, row_bytes(item.type))]
            size += _aligned(self.tile * row_bytes(item.type))
        #: About how many bytes a row makes the code touch, which says how long a row takes.
        self.row_work = row
        self._row_scratch = size
        self.scratch_bytes = size + max(_scratch(stage.slots) for stage in self.stages)

    def _wire(self, value: Value, *, stored: bool) -> None:
        """Give an external column its entries in the io table."""
        wires = [driver.Wire(0, self._entries, 0)]
        if stored:
            wires.append(driver.Wire(2, self._entries + 1, 0))
        self._wires[value, stored] = wires
        self._entries += len(wires)

    @property
    def rooms(self) -> bool:
        """Whether some of its memory is as large as the data needs."""
        return any(stage.rooms for stage in self.stages)

    def _bind(self) -> None:
        """Find the code and write the tables that lead it to this plan's parameters."""
        self._kept: list[Any] = []
        table: list[int] = [len(self.stages), self.tile]
        for stage in self.stages:
            values = (*stage.inputs, *stage.outputs)
            columns = [wire for v in values for wire in self._wires[v, stage.stores(v)]]
            if stage.rooms:
                columns.append(driver.Wire(2, self._entries, 0))
            table += [
                cache.address(stage.source, stage.name),
                self._parameters(stage.slots, rooms=bool(stage.rooms)),
            ]
            table += [len(columns), *(number for wire in columns for number in wire)]
        self._table = np.array(table, np.int64)
        address = cache.address(driver.SOURCE, driver.NAME)
        self._call, self._brief = machine.STAGE(address), machine.BRIEF(address)
        self.entry = (address, self._table.ctypes.data)

    def _parameters(self, slots: Sequence[Slot], *, rooms: bool) -> int:
        """The address of a stage's parameter table."""
        table = np.zeros(max(len(slots), 1), np.int64)
        offset = self._row_scratch
        for place, slot in enumerate(slots):
            if slot.parameter is not None:
                assert isinstance(slot.parameter, Blob), "code reads arrays, never string tables"
                self._kept.append(slot.parameter)
                # A document looks a few things up in large tables, and that is in TEXT_BYTES.
                self.row_work += 0 if rooms else slot.parameter.nbytes
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
    ) -> dict[Value, Any]:
        """Every output for these columns, in the arrays given or in new ones.

        `memory` is a buffer of `memory_bytes` to work in; without, it is this thread's.
        """
        if self._plain:
            return self._numbers(values, rows, into or {}, memory)
        kept = [given(values[value], value, stored=stored) for value, stored in self._read]
        lengths = self._lengths(kept)
        longest = int(lengths.max(initial=0))
        room, into = _room_memory(self._room_bytes(longest)), into or {}
        made = [
            into[item] if item in into else self._new(item, rows, lengths) for item in self.outputs
        ]
        io = [word for column in (*kept, *made) for word in words(column)]
        table = np.array([*io, _aligned(room.ctypes.data), longest], np.int64)
        brief = rows * (self.row_work + longest * TEXT_BYTES) < RELEASE_BYTES
        self._invoke(self._brief if brief else self._call, table.ctypes.data, rows, memory)
        done = [settled(column) if isinstance(column, Sparse) else column for column in made]
        return dict(zip(self.outputs, done, strict=True))

    def _numbers(
        self,
        values: Mapping[Value, Any],
        rows: int,
        into: Mapping[Value, NDArray[Any]],
        memory: Any,
    ) -> dict[Value, Any]:
        """`run` where no memory depends on the data: a few microseconds of Python, not twenty."""
        io: list[int] = []
        columns = [_number_column(values[value], value, dtype) for value, dtype in self._numeric]
        made: dict[Value, Any] = {
            item: into[item] if item in into else _empty(item, rows) for item in self.outputs
        }
        for column in (*columns, *made.values()):
            io.append(column.ctypes.data)
            io.append(column.strides[0] if column.ndim else 0)
        table = self._io(*io)
        call = self._brief if rows * self.row_work < RELEASE_BYTES else self._call
        self._invoke(call, ctypes.addressof(table), rows, memory)
        return made

    def _prepare(self) -> None:
        """What `_numbers` wants to know of columns, looked up once."""
        texts = any(is_text(value.type) for value, _ in self._read)
        stored = any(is_stored for _, is_stored in self._read)
        self._plain = not (self.rooms or self.stored or texts or stored)
        if self._plain:
            self._numeric = [
                (value, np.dtype(value.type.dtype))  # type: ignore[union-attr]  # numbers have one
                for value, _ in self._read
            ]
            self._io = ctypes.c_int64 * (2 * (len(self._numeric) + len(self.outputs)) + 2)

    def bound(
        self, values: Mapping[Value, Any], into: Mapping[Value, NDArray[Any]]
    ) -> Callable[[int, int, Any], None] | None:
        """A way to run any rows of these columns into the same rows of these arrays.

        What `run` looks up for every call is looked up once; a chunk then costs a few
        microseconds. None where memory depends on the data, or a column has to be made first.
        """
        if self.rooms or self.stored:
            return None
        columns = [values[value] for value, _ in self._read]
        kept = [given(values[value], value, stored=stored) for value, stored in self._read]
        if any(one is not other for one, other in zip(columns, kept, strict=True)):
            return None
        made = [into[item] for item in self.outputs]
        io = [word for column in (*kept, *made) for word in words(column)]
        return partial(self._rows, np.array([*io, 0, 0], np.int64))

    def _rows(self, table: NDArray[np.int64], start: int, rows: int, memory: Any) -> None:
        """Run some rows, given where the first ones are and how far apart."""
        here = table.copy()
        here[:-2:2] += start * table[1:-2:2]
        brief = rows * self.row_work < RELEASE_BYTES
        self._invoke(self._brief if brief else self._call, here.ctypes.data, rows, memory)

    def _lengths(self, columns: Sequence[NDArray[Any] | Sparse]) -> NDArray[np.int64]:
        """How long each row is; nothing where no memory depends on it."""
        if not self.rooms and not self.stored:
            return _NO_LENGTHS
        found = [
            lengths(column, value.type)
            for (value, _), column in zip(self._read, columns, strict=True)
            if isinstance(column, Sparse) or is_text(value.type)
        ]
        made = np.max(found, axis=0) if found else _NO_LENGTHS
        if made.max(initial=0) > LONGEST:
            raise RowsRefused("a document is too long for native code")
        return made

    def _room_bytes(self, longest: int) -> int:
        """How much memory rows of this length take, or of the next power of two."""
        step = longest.bit_length()
        found = self._room_steps.get(step)
        if found is None:
            found = max(room_bytes(stage.rooms, (1 << step) - 1) for stage in self.stages)
            self._room_steps[step] = found
        return found

    def _new(self, item: Value, rows: int, lengths: NDArray[np.int64]) -> NDArray[Any] | Sparse:
        """Memory for an output."""
        room = self.stored.get(item) if isinstance(item, Node) else None
        if room is None:
            return _empty(item, rows)
        each = lengths if len(lengths) else np.zeros(rows, np.int64)
        most = int(np.minimum(each * room.each + room.fixed, room.most).sum())
        return unfilled(item.type, rows, most)

    def _invoke(self, call: Callable[..., int], io: int, rows: int, given: Any = None) -> None:
        # Holding the memory keeps it from a finalizer that runs a bigger plan in between.
        if given is None:
            memory, start = _scratch_memory(self.scratch_bytes)
        else:
            memory = np.frombuffer(given, np.uint8)
            start = _aligned(memory.ctypes.data + 16)
            assert len(memory) >= self.memory_bytes, "whoever gives memory gives enough"
        assert memory.size
        call(start - 16, start - 8, self.entry[1], io, rows, start)
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


_NO_LENGTHS = np.empty(0, np.int64)


def room_bytes(rooms: Sequence[Room], most: int) -> int:
    """How much memory these rooms take for rows of up to so many bytes."""
    return sum(_aligned(min(most * room.each + room.fixed, room.most)) for room in rooms)


def _room_memory(size: int) -> NDArray[np.uint8]:
    """Memory of at least this size; what is not used of it costs nothing."""
    size += _ALIGN if size else 0
    if len(_local.room) >= size:
        return _local.room
    made = np.empty(size, np.uint8)
    if size <= KEPT_ROOM:
        _local.room = made
    return made


def _table_bytes(stage: Stage) -> int:
    """How many bytes of parameters a stage goes through for its rows: of dictionaries it is few."""
    return 0 if stage.rooms else sum(item.nbytes for item in {*stage.parameters()})


def _tile_rows(row_bytes: int, table_bytes: int) -> int:
    budget = min(max(TILE_BYTES, table_bytes), _FAR_BYTES)
    rows = min(MAX_TILE, budget // max(row_bytes, 1))
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


def _number_column(column: Any, value: Value, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The column itself where native code can read it as it lies."""
    if type(column) is np.ndarray and column.dtype == dtype:
        strides = column.strides
        if len(strides) < 2 or strides[1] == dtype.itemsize:
            return column
    made = given(column, value, stored=False)
    assert isinstance(made, np.ndarray), "what is read with its zeros is an array"
    return made


def _row_work(value: Value) -> int:
    """About how many bytes of a column a row touches."""
    return _STORED_BYTES if is_wide(value.type) else row_bytes(value.type)
