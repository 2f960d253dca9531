"""Consecutive native stages bound to their parameters: one native call over raw addresses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from flour.core.emission import Room
from flour.core.node import Node
from flour.core.sparse import Sparse
from flour.core.types import Pairs, Tokens, Type, Vector
from objectstore import Blob
from oven.codegen import string_cells
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value, is_text
from oven.compiler import cache, driver, gil_yield, machine, shared_rows
from oven.run.helpers import Division, SharedCall, Told, desk
from oven.run.run_signature import RunSignature, TableLayout, aligned


def given(column: Any, value: Value, *, stored: bool) -> NDArray[Any] | Sparse:
    """A column for native code: its rows, or their stored numbers (`stored`).

    There may be gaps between rows, but not within a row.
    """
    kind = value.type
    if isinstance(kind, Tokens):
        return string_cells.word_cells(column)
    if isinstance(kind, Pairs):
        return string_cells.pair_cells(column)
    if is_text(kind):
        return column if isinstance(column, string_cells.TextCells) else string_cells.cells(column)
    dtype = kind.dtype  # type: ignore[union-attr]  # native columns have a dtype
    if stored:
        sparse = column if isinstance(column, Sparse) else Sparse.of(column)
        indices = np.ascontiguousarray(sparse.indices, np.int64)
        indptr = np.ascontiguousarray(sparse.indptr, np.int64)
        return Sparse(np.ascontiguousarray(sparse.data, dtype), indices, indptr, sparse.shape)
    dense: NDArray[Any] = column.toarray() if isinstance(column, Sparse) else column
    if dense.dtype != dtype or (dense.ndim == 2 and dense.strides[1] != dense.itemsize):
        return np.ascontiguousarray(dense, dtype)
    return dense


def words(column: NDArray[Any] | Sparse) -> list[int]:
    """A column's entries in the table of columns: addresses and strides."""
    if isinstance(column, Sparse):
        parts = (column.indices.ctypes.data, column.data.ctypes.data)
        return [column.indptr.ctypes.data, 8, *parts]
    return [column.ctypes.data, column.strides[0] if column.ndim else 0]


def row_steps(column: NDArray[Any] | Sparse) -> list[int]:
    """By how much these entries grow with each row."""
    if isinstance(column, Sparse):
        return [8, 0, 0, 0]
    return [column.strides[0] if column.ndim else 0, 0]


def lengths(column: NDArray[Any] | Sparse, kind: Type) -> NDArray[np.int64]:
    """The length of each row: bytes of text, or the number of stored numbers."""
    if isinstance(column, Sparse):
        return np.diff(column.indptr)
    return string_cells.lengths(column, words=isinstance(kind, Tokens | Pairs))


def unfilled(kind: Type, rows: int, most: int) -> Sparse:
    """A sparse column for native code to fill: `rows` rows, at most `most` numbers in all."""
    assert isinstance(kind, Vector)
    data, indices = np.empty(most, kind.dtype), np.empty(most, np.int64)
    return Sparse(data, indices, np.zeros(rows + 1, np.int64), (rows, kind.width))


def settled(column: Sparse) -> Sparse:
    """The rows in arrays cut to the numbers that were written."""
    count = int(column.indptr[-1])
    data, indices = column.data[:count].copy(), column.indices[:count].copy()
    return Sparse(data, indices, column.indptr, column.shape)


_ALIGN = 64
#: Memory blocks up to this size are kept by their thread. They are sized for the longest possible
#: document, and most of their pages are never touched.
KEPT_ROOM = 64 << 20
#: Native code refuses longer documents; Python handles them.
LONGEST = 64 << 20
#: A call that touches this many bytes or more (about 20 µs) releases the GIL. Taking the GIL back
#: can take thousands of microseconds, so shorter calls keep it.
RELEASE_BYTES = 1 << 20
#: A byte of text, or a stored number of a sparse row, takes about as long as touching this many
#: bytes.
TEXT_BYTES = 256


class RowsRefused(Exception):
    """Native code met a row that its operator refuses; it cannot tell which row, or why."""


class OutOfTime(Exception):
    """The deadline has passed before all rows were done."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        #: How many were begun before.
        self.rows = rows


class NativeRun:
    """Consecutive native stages, ready to be called."""

    def __init__(
        self, form: RunSignature, table: NDArray[np.int64], row_work: int, kept: tuple[Blob, ...]
    ) -> None:
        """A run of this signature; `table` holds the addresses of the parameters in `kept`.

        `of` makes a run from stages.
        """
        self.form, self.row_work = form, row_work
        self.inputs, self.outputs, self.stored = form.inputs, form.outputs, form.stored
        self.scratch_bytes = form.scratch_bytes
        #: Parameters that native code reads: referenced, so that they live as long as the run.
        self.kept = kept
        self._table = table
        #: Bytes of the table, small parameters stored in it included.
        self.table_bytes = int(table.nbytes if table.base is None else table.base.nbytes)
        #: True if the size of some of its memory depends on the data.
        self.rooms = any(form.rooms)
        #: The size of the buffer that `run` takes as `memory`.
        self.memory_bytes = form.scratch_bytes + 2 * _ALIGN
        address, self._brief, self._call = _driver()
        self.addresses = (address, table.ctypes.data)

    @staticmethod
    def of(stages: Sequence[Stage], wanted: Iterable[Value]) -> NativeRun:
        """The run of these stages; its outputs are the values in `wanted`."""
        layout = TableLayout(stages, wanted)
        draft = layout.draft()
        table = np.array(draft.words, np.int64)
        table[draft.inner] += table.ctypes.data
        for index, source, name in draft.codes:
            table[index] = cache.address(source, name)
        for index, parameter in draft.parameters:
            table[index] = parameter.array.ctypes.data
        kept = tuple(dict.fromkeys(parameter for _, parameter in draft.parameters))
        return NativeRun(layout.form, table, draft.row_work, kept)

    # --- running -----------------------------------------------------------------------------

    def blank(self, item: Value, rows: int) -> NDArray[Any]:
        """An uninitialised array for one of the outputs."""
        return _empty(item, rows)

    def run(
        self,
        values: Mapping[Value, Any],
        rows: int,
        into: Mapping[Value, NDArray[Any]] | None = None,
        memory: object = None,
    ) -> dict[Value, Any]:
        """Every output for these columns, in the arrays of `into` or in new ones.

        `memory` is a scratch buffer of `memory_bytes`; without it, this thread's is used.
        """
        if self.form.plain:
            return self._numbers(values, rows, into or {}, memory)
        table, _, results, longest = self._laid(values, rows, into or {})
        work = rows * (self.row_work + longest * TEXT_BYTES)
        self._invoke(work, table.ctypes.data, rows, memory)
        finished = [settled(column) if isinstance(column, Sparse) else column for column in results]
        return dict(zip(self.outputs, finished, strict=True))

    def together(
        self,
        values: Mapping[Value, Any],
        rows: int,
        into: Mapping[Value, NDArray[Any]],
        division: Division,
    ) -> Told | None:
        """Run by this thread and by helpers: what it took, or None where it cannot be shared.

        It raises OutOfTime where the deadline passes before all rows are done.
        """
        if self.stored or not desk.works:
            return None
        table, columns, _, longest = self._laid(values, rows, into)
        room = self._room_bytes(longest)
        if room > KEPT_ROOM or len(table) > shared_rows.MOST_WORDS:
            return None
        steps = [step for column in columns[:-1] for step in row_steps(column)]
        grow, sizes = np.array([*steps, 0, 0], np.int64), (self.scratch_bytes, room)
        shared = SharedCall(self.addresses, grow, sizes, division)
        memory, start = _scratch_memory(self.scratch_bytes)
        assert memory.size
        outcome = self._invoke_without_gil(table.ctypes.data, rows, start, shared.addresses)
        if outcome == shared_rows.LATE:
            raise OutOfTime(shared.reached)
        if outcome:
            raise RowsRefused("the native code refuses these rows")
        return shared.told()

    def _laid(
        self, values: Mapping[Value, Any], rows: int, into: Mapping[Value, NDArray[Any]]
    ) -> tuple[NDArray[np.int64], list[Any], list[Any], int]:
        """The table of columns; all of them, those among them for outputs, and the longest text."""
        columns = [given(values[value], value, stored=stored) for value, stored in self.form.read]
        lengths = self._lengths(columns)
        longest = int(lengths.max(initial=0))
        room = _room_memory(self._room_bytes(longest))
        results = [
            into[item] if item in into else self._new(item, rows, lengths) for item in self.outputs
        ]
        columns += results
        io = [word for column in columns for word in words(column)]
        table = np.array([*io, aligned(room.ctypes.data), longest], np.int64)
        return table, [*columns, room], results, longest

    def _numbers(
        self,
        values: Mapping[Value, Any],
        rows: int,
        into: Mapping[Value, NDArray[Any]],
        memory: object,
    ) -> dict[Value, Any]:
        """`run` if no memory depends on the data: a few microseconds of Python, not twenty."""
        io: list[int] = []
        columns = [
            _number_column(values[value], value, dtype) for value, dtype in self.form.numeric
        ]
        results: dict[Value, Any] = {
            item: into[item] if item in into else _empty(item, rows) for item in self.outputs
        }
        for column in (*columns, *results.values()):
            io.append(column.ctypes.data)
            io.append(column.strides[0] if column.ndim else 0)
        table = self.form.io(*io)
        self._invoke(rows * self.row_work, ctypes.addressof(table), rows, memory)
        return results

    def practise(self) -> None:
        """Run a row of zeros and drop the answer, if all inputs are numbers.

        This brings code and parameters for single rows into memory, and fills caches.
        """
        widths = {v: (v.type.width,) if isinstance(v.type, Vector) else () for v in self.inputs}
        row = {value: np.zeros((1, *widths[value]), dtype) for value, dtype in self.form.numeric}
        with suppress(RowsRefused):
            self.run(row, 1)

    def bound(
        self, values: Mapping[Value, Any], into: Mapping[Value, NDArray[Any]]
    ) -> Callable[[int, int, Any], None] | None:
        """A function that runs any rows of these columns into the same rows of these arrays.

        The look-ups of `run` are done once, so a chunk costs a few microseconds. None if memory
        depends on the data, or a column has to be converted first.
        """
        if self.rooms or self.stored:
            return None
        columns = [values[value] for value, _ in self.form.read]
        ready = [given(values[value], value, stored=stored) for value, stored in self.form.read]
        if any(one is not converted for one, converted in zip(columns, ready, strict=True)):
            return None
        results = [into[item] for item in self.outputs]
        io = [word for column in (*ready, *results) for word in words(column)]
        table = np.array([*io, 0, 0], np.int64)  # addresses of the first row, and strides

        def run(start: int, rows: int, memory: object) -> None:
            shifted = table.copy()
            shifted[:-2:2] += start * table[1:-2:2]
            self._invoke(rows * self.row_work, shifted.ctypes.data, rows, memory)

        return run

    def _lengths(self, columns: Sequence[NDArray[Any] | Sparse]) -> NDArray[np.int64]:
        """The length of each row; empty if no memory depends on it."""
        if not self.rooms and not self.stored:
            return _NO_LENGTHS
        by_column = [
            lengths(column, value.type)
            for (value, _), column in zip(self.form.read, columns, strict=True)
            if isinstance(column, Sparse) or is_text(value.type)
        ]
        longest = np.max(by_column, axis=0) if by_column else _NO_LENGTHS
        if longest.max(initial=0) > LONGEST:
            raise RowsRefused("a document is too long for native code")
        return longest

    def _room_bytes(self, longest: int) -> int:
        """Bytes of memory for rows of this length, rounded up to a power of two."""
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
        """Run the code, which touches about `work` bytes; much work is done without the GIL."""
        # A reference to the memory, as a finalizer may run a bigger plan in between and replace it.
        if given is None:
            memory, start = _scratch_memory(self.scratch_bytes)
        else:
            memory = np.frombuffer(given, np.uint8)
            start = aligned(memory.ctypes.data)
            assert len(memory) >= self.memory_bytes, "the memory that is passed in is large enough"
        assert memory.size
        if work < RELEASE_BYTES:
            refused = self._brief(self.addresses[1], io, rows, start)
        else:
            refused = self._invoke_without_gil(io, rows, start)
        if refused:
            raise RowsRefused("the native code refuses these rows")

    def _invoke_without_gil(
        self, io: int, rows: int, start: int, code: tuple[int, int] | None = None
    ) -> int:
        """Run the code without the GIL; the thread that has it afterwards is asked to yield."""
        slot = gil_yield.PLACE.byte
        arguments = _ASIDE(*(code or self.addresses), gil_yield.WORD + slot)
        refused = self._call(ctypes.addressof(arguments), io, rows, start)
        gil_yield.BYTES[slot] = 0
        return refused


#: Arguments of code that releases the GIL: what to run, and the byte by which it asks for the GIL.
_ASIDE = ctypes.c_int64 * 3


class _Local(threading.local):
    """This thread's scratch memory. All plans share it, as a thread runs one at a time."""

    room: NDArray[np.uint8] = np.empty(0, np.uint8)
    memory: NDArray[np.uint8] = np.empty(0, np.uint8)
    start: int = 0
    size: int = 0


_local = _Local()


@lru_cache(1)
def _driver() -> tuple[int, Callable[..., int], Callable[..., int]]:
    """The address of the driver code, a call of it that keeps the GIL, one that releases it."""
    address = cache.function_address(driver.run_stages)
    return address, machine.BRIEF(address), gil_yield.aside()


def _scratch_memory(size: int) -> tuple[NDArray[np.uint8], int]:
    """Scratch memory and its address."""
    if _local.size < size:
        _local.memory = _kept(np.empty(size + _ALIGN, np.uint8))
        _local.start, _local.size = aligned(_local.memory.ctypes.data), size
    return _local.memory, _local.start


_NO_LENGTHS = np.empty(0, np.int64)


def room_bytes(rooms: Sequence[Room], most: int) -> int:
    """Bytes that these rooms take for rows of up to `most` bytes."""
    return sum(aligned(min(most * room.each + room.fixed, room.most)) for room in rooms)


def _room_memory(size: int) -> NDArray[np.uint8]:
    """Memory of at least this size; pages that are not touched cost nothing."""
    size += _ALIGN if size else 0
    if len(_local.room) >= size:
        return _local.room
    memory = np.empty(size, np.uint8)
    if size <= KEPT_ROOM:
        _local.room = _kept(memory)
    return memory


# Memory that threads keep, by address: freed when its thread ends or takes a larger block.
_KEPT: WeakValueDictionary[int, NDArray[np.uint8]] = WeakValueDictionary()
_KEPT_LOCK = threading.Lock()


def _kept(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Record memory as kept by a thread, and return it."""
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


def _number_column(column: object, value: Value, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The column itself if native code can read it in place, else a copy in the right form."""
    if type(column) is np.ndarray and column.dtype == dtype:
        strides = column.strides
        if len(strides) < 2 or strides[1] == dtype.itemsize:
            return column
    converted = given(column, value, stored=False)
    assert isinstance(converted, np.ndarray), "what is read with its zeros is an array"
    return converted
