"""Consecutive native stages bound to their parameters: one native call over raw addresses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Room
from flour.core.node import Node
from flour.core.sparse import Sparse
from flour.core.types import Vector
from objectstore import Blob
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value, is_text
from oven.compiler import cache, driver, gil_yield, machine
from oven.run.columns import given, lengths, settled, unfilled, words
from oven.run.run_signature import RunSignature, TableLayout, aligned

_ALIGN = 64
#: Rooms up to this size stay with their thread; they are as large as the longest document could
#: need, and most of their pages are never touched.
KEPT_ROOM = 64 << 20
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

    def __init__(
        self,
        form: RunSignature,
        table: NDArray[np.int64],
        row_work: int,
        kept: tuple[Blob, ...],
        borrowed: object = None,
    ) -> None:
        """A run of this form; `table`, the parameters in `kept` and memory that is `borrowed` are
        where its code finds what it reads.

        See `of`, which makes one of stages.
        """
        self.form, self.row_work = form, row_work
        self.inputs, self.outputs, self.stored = form.inputs, form.outputs, form.stored
        self.scratch_bytes = form.scratch_bytes
        #: What native code reads, which has to live as long as this does.
        self.kept = kept
        self._table, self._borrowed = table, borrowed
        address, self._brief, self._call = _driver()
        self.addresses = (address, table.ctypes.data)

    @staticmethod
    def of(stages: Sequence[Stage], wanted: Iterable[Value]) -> NativeRun:
        """The run of these stages, of which some values are wanted by others; its code is found."""
        layout = TableLayout(stages, wanted)
        draft = layout.draft()
        table = np.array(draft.words, np.int64)
        table[draft.inner] += table.ctypes.data
        for place, source, name in draft.codes:
            table[place] = cache.address(source, name)
        for place, parameter in draft.parameters:
            table[place] = parameter.array.ctypes.data
        kept = tuple(dict.fromkeys(parameter for _, parameter in draft.parameters))
        return NativeRun(layout.form, table, draft.row_work, kept)

    @property
    def table_bytes(self) -> int:
        """What its table takes, small parameters of its own included."""
        table = self._table
        return int(table.nbytes if table.base is None else table.base.nbytes)

    @property
    def rooms(self) -> bool:
        """Whether some of its memory is as large as the data needs."""
        return any(self.form.rooms)

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
        if self.form.plain:
            return self._numbers(values, rows, into or {}, memory)
        kept = [given(values[value], value, stored=stored) for value, stored in self.form.read]
        lengths = self._lengths(kept)
        longest = int(lengths.max(initial=0))
        room, into = _room_memory(self._room_bytes(longest)), into or {}
        made = [
            into[item] if item in into else self._new(item, rows, lengths) for item in self.outputs
        ]
        io = [word for column in (*kept, *made) for word in words(column)]
        table = np.array([*io, aligned(room.ctypes.data), longest], np.int64)
        work = rows * (self.row_work + longest * TEXT_BYTES)
        self._invoke(work, table.ctypes.data, rows, memory)
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
        columns = [
            _number_column(values[value], value, dtype) for value, dtype in self.form.numeric
        ]
        made: dict[Value, Any] = {
            item: into[item] if item in into else _empty(item, rows) for item in self.outputs
        }
        for column in (*columns, *made.values()):
            io.append(column.ctypes.data)
            io.append(column.strides[0] if column.ndim else 0)
        table = self.form.io(*io)
        self._invoke(rows * self.row_work, ctypes.addressof(table), rows, memory)
        return made

    def practise(self) -> None:
        """Answer a row of zeros, for nobody, where the inputs are numbers.

        Code and parameters that single rows need are in memory then, and what is looked up once is
        known.
        """
        row = {value: _zeros(value, dtype) for value, dtype in self.form.numeric}
        with suppress(RowsRefused):
            self.run(row, 1)

    def bound(
        self, values: Mapping[Value, Any], into: Mapping[Value, NDArray[Any]]
    ) -> Callable[[int, int, Any], None] | None:
        """A way to run any rows of these columns into the same rows of these arrays.

        What `run` looks up for every call is looked up once; a chunk then costs a few
        microseconds. None where memory depends on the data, or a column has to be made first.
        """
        if self.rooms or self.stored:
            return None
        columns = [values[value] for value, _ in self.form.read]
        kept = [given(values[value], value, stored=stored) for value, stored in self.form.read]
        if any(one is not other for one, other in zip(columns, kept, strict=True)):
            return None
        made = [into[item] for item in self.outputs]
        io = [word for column in (*kept, *made) for word in words(column)]
        return partial(self._rows, np.array([*io, 0, 0], np.int64))

    def _rows(self, table: NDArray[np.int64], start: int, rows: int, memory: Any) -> None:
        """Run some rows, given where the first ones are and how far apart."""
        here = table.copy()
        here[:-2:2] += start * table[1:-2:2]
        self._invoke(rows * self.row_work, here.ctypes.data, rows, memory)

    def _lengths(self, columns: Sequence[NDArray[Any] | Sparse]) -> NDArray[np.int64]:
        """How long each row is; nothing where no memory depends on it."""
        if not self.rooms and not self.stored:
            return _NO_LENGTHS
        found = [
            lengths(column, value.type)
            for (value, _), column in zip(self.form.read, columns, strict=True)
            if isinstance(column, Sparse) or is_text(value.type)
        ]
        made = np.max(found, axis=0) if found else _NO_LENGTHS
        if made.max(initial=0) > LONGEST:
            raise RowsRefused("a document is too long for native code")
        return made

    def _room_bytes(self, longest: int) -> int:
        """How much memory rows of this length take, or of the next power of two."""
        longest = (1 << longest.bit_length()) - 1
        return max(room_bytes(rooms, longest) for rooms in self.form.rooms)

    def _new(self, item: Value, rows: int, lengths: NDArray[np.int64]) -> NDArray[Any] | Sparse:
        """Memory for an output."""
        room = self.stored.get(item) if isinstance(item, Node) else None
        if room is None:
            return _empty(item, rows)
        each = lengths if len(lengths) else np.zeros(rows, np.int64)
        most = int(np.minimum(each * room.each + room.fixed, room.most).sum())
        return unfilled(item.type, rows, most)

    def _invoke(self, work: int, io: int, rows: int, given: Any = None) -> None:
        """Run the code, which touches about so many bytes, with the lock or without."""
        # Holding the memory keeps it from a finalizer that runs a bigger plan in between.
        if given is None:
            memory, start = _scratch_memory(self.scratch_bytes)
        else:
            memory = np.frombuffer(given, np.uint8)
            start = aligned(memory.ctypes.data + 16)
            assert len(memory) >= self.memory_bytes, "whoever gives memory gives enough"
        assert memory.size
        if work < RELEASE_BYTES:
            self._brief(start - 16, start - 8, self.addresses[1], io, rows, start)
        else:
            self._let_go(io, rows, start)
        if ctypes.c_int64.from_address(start - 16).value:
            raise RowsRefused("the native code refuses these rows")

    def _let_go(self, io: int, rows: int, start: int) -> None:
        """Run the code without the lock, which whoever has it is told to give back."""
        place = gil_yield.PLACE.byte
        aside = _ASIDE(*self.addresses, gil_yield.WORD + place)
        self._call(start - 16, start - 8, ctypes.addressof(aside), io, rows, start)
        gil_yield.BYTES[place] = 0


#: What code that lets the lock go is handed: what to run, and where to leave word.
_ASIDE = ctypes.c_int64 * 3


class _Local(threading.local):
    """This thread's scratch memory, which all plans share: one runs at a time."""

    room: NDArray[np.uint8] = np.empty(0, np.uint8)
    memory: NDArray[np.uint8] = np.empty(0, np.uint8)
    start: int = 0
    size: int = 0


_local = _Local()


@lru_cache(1)
def _driver() -> tuple[int, Callable[..., int], Callable[..., int]]:
    """Where the code is that runs stages, a call of it that keeps the lock, one that does not."""
    address = cache.address(driver.SOURCE, driver.NAME)
    return address, machine.BRIEF(address), gil_yield.aside()


def _scratch_memory(size: int) -> tuple[NDArray[np.uint8], int]:
    """Scratch memory and its address, with two words for a call's result ahead of it."""
    if _local.size < size:
        _local.memory = _kept(np.empty(size + 2 * _ALIGN, np.uint8))
        _local.start = aligned(_local.memory.ctypes.data + 16)
        _local.size = size
    return _local.memory, _local.start


_NO_LENGTHS = np.empty(0, np.int64)


def room_bytes(rooms: Sequence[Room], most: int) -> int:
    """How much memory these rooms take for rows of up to so many bytes."""
    return sum(aligned(min(most * room.each + room.fixed, room.most)) for room in rooms)


def _room_memory(size: int) -> NDArray[np.uint8]:
    """Memory of at least this size; what is not used of it costs nothing."""
    size += _ALIGN if size else 0
    if len(_local.room) >= size:
        return _local.room
    made = np.empty(size, np.uint8)
    if size <= KEPT_ROOM:
        _local.room = _kept(made)
    return made


# What threads keep, by address: it goes when its thread does, or keeps something larger.
_KEPT: WeakValueDictionary[int, NDArray[np.uint8]] = WeakValueDictionary()
_KEPT_LOCK = threading.Lock()


def _kept(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same memory, on record as what a thread keeps."""
    with _KEPT_LOCK:
        _KEPT[memory.ctypes.data] = memory
    return memory


def thread_bytes() -> int:
    """The scratch memory that this process' threads keep, rooms for documents included."""
    with _KEPT_LOCK:
        return sum(memory.nbytes for memory in _KEPT.values())


def _empty(value: Value, rows: int) -> NDArray[Any]:
    kind = value.type
    assert not isinstance(value, Port)
    if isinstance(kind, Vector):
        return np.empty((rows, kind.width), kind.dtype)
    return np.empty(rows, kind.dtype)  # type: ignore[union-attr]  # native columns have a dtype


def _zeros(value: Value, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A row of zeros for an input."""
    kind = value.type
    return np.zeros((1, kind.width) if isinstance(kind, Vector) else 1, dtype)


def _number_column(column: Any, value: Value, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The column itself where native code can read it as it lies."""
    if type(column) is np.ndarray and column.dtype == dtype:
        strides = column.strides
        if len(strides) < 2 or strides[1] == dtype.itemsize:
            return column
    made = given(column, value, stored=False)
    assert isinstance(made, np.ndarray), "what is read with its zeros is an array"
    return made
