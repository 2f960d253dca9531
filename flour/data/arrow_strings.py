"""Columns of strings in Arrow's memory as addresses and lengths, without an object for each value.

A column is asked for its memory over Arrow's C data interface, which pyarrow and polars have and
for which no package is needed. The array that is made of it has the dtype CELLS: for each row where
its UTF-8 is and how many bytes there are. Machine code reads that, and `as_texts` makes strings of
it for all else. The array keeps the column's memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Text
from flour.data.coerce_values import document

#: Native code that fills views, if it can; what stands above attaches it.
fillers: list[Callable[[NDArray[np.int64], Sequence[int], NDArray[np.int64] | None], bool]] = []

#: Known by being this object: an array of an equal dtype may hold any numbers.
CELLS = np.dtype([("address", np.int64), ("bytes", np.int64)])
#: The lengths that stand for missing values: None, which Arrow and polars have, and NaN.
NONE, NAN = -1, -2
#: Fewer rows of Arrow or polars are read as objects in less time.
LEAST_ROWS = 256
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
#: The types as the interface writes them: strings with offsets of 32 or 64 bits, and views.
_OFFSETS = {b"u": np.int32, b"U": np.int64}
_VIEWS = b"vu"
#: Strings of up to so many bytes stand in their view, after its length.
_INLINE = 12


class _ArrowSchema(ctypes.Structure):
    """ArrowSchema, up to its release."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("others", ctypes.c_int64 * 6),
        ("release", _RELEASE),
        ("own", ctypes.c_void_p),
    )


class _ArrowArray(ctypes.Structure):
    """ArrowArray."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers")),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("others", ctypes.c_int64 * 2),
        ("release", _RELEASE),
        ("own", ctypes.c_void_p),
    )


class _Owned(_ArrowArray):
    """One that came out of a stream, and is given back with this object."""

    def __del__(self) -> None:
        if self.release:
            self.release(ctypes.addressof(self))


class _ArrowStream(ctypes.Structure):
    """ArrowArrayStream."""

    _fields_ = (("get_schema", _NEXT), ("get_next", _NEXT), ("others", ctypes.c_int64 * 3))


class _ViewedArray(np.ndarray[Any, Any]):
    """The array that others are views of; it keeps what its addresses point to."""

    __slots__ = ("kept",)
    kept: object


def text_cells(column: object) -> NDArray[Any] | None:
    """A column of strings as CELLS; None where it is none, or has no memory of Arrow's."""
    if (stream := getattr(column, "__arrow_c_stream__", None)) is not None:
        kind, chunks, owners = _of_stream(stream())
    elif (array := getattr(column, "__arrow_c_array__", None)) is not None:
        kind, chunks, owners = _of_array(array())
    else:
        return None
    if kind != _VIEWS and kind not in _OFFSETS:
        return None
    made = np.ndarray.__new__(_ViewedArray, (sum(chunk.length for chunk in chunks),), CELLS)
    made.kept, at = owners, 0
    for chunk in filter(lambda each: each.length, chunks):
        part = made.view(np.int64).reshape(-1, 2)[at : at + chunk.length]
        rows, first = chunk.length, chunk.offset
        if kind == _VIEWS:
            texts = chunk.n_buffers - 3
            bases = np.array([chunk.buffers[2 + n] or 0 for n in range(texts)], np.int64)
            fill_views(part, [chunk.buffers[1] + 16 * chunk.offset], bases)
        else:
            dtype = np.dtype(_OFFSETS[kind])
            size = dtype.itemsize
            ends = memory(chunk.buffers[1] + first * size, (rows + 1) * size).view(dtype)
            np.add(ends[:-1], np.int64(chunk.buffers[2] or 0), out=part[:, 0])
            np.subtract(ends[1:], ends[:-1], out=part[:, 1])
        if chunk.null_count:
            part[~bits(chunk.buffers[0], first, rows)] = 0, NONE
        at += chunk.length
    return made.view(np.ndarray)


def as_texts(cells: NDArray[Any], path: str = "$") -> NDArray[np.object_]:
    """The strings that CELLS point to, and None or NaN where they are missing."""
    made = np.empty(len(cells), object)
    for row, (where, size) in enumerate(cells.tolist()):
        if size >= 0:
            raw = ctypes.string_at(where, size) if size else b""
            try:
                made[row] = raw.decode()
            except UnicodeDecodeError:
                document(raw, Text("utf-8"), f"{path}[{row}]")  # says which bytes are not
        elif size == NAN:
            made[row] = np.nan
    return made


def with_texts(data: Any) -> Any:
    """Columns, or one, with strings in place of CELLS: they outlive what they were read of."""
    if type(data) is dict:
        return {name: with_texts(part) for name, part in data.items()}
    return as_texts(data) if getattr(data, "dtype", None) is CELLS else data


def _of_stream(capsule: object) -> tuple[bytes, Sequence[_ArrowArray], object]:
    """The type of a column that comes in chunks, these, and what they belong to: themselves."""
    where = _pointer(capsule, b"arrow_array_stream")
    stream, schema = _ArrowStream.from_address(where), _ArrowSchema()
    _check(stream.get_schema(where, ctypes.addressof(schema)))
    kind = bytes(schema.format)
    schema.release(ctypes.addressof(schema))
    chunks = [*_chunks(stream, where)]
    return kind, chunks, chunks


def _chunks(stream: _ArrowStream, where: int) -> Iterator[_Owned]:
    while True:
        chunk = _Owned()
        _check(stream.get_next(where, ctypes.addressof(chunk)))
        if not chunk.release:
            return
        yield chunk


def _of_array(capsules: tuple[object, object]) -> tuple[bytes, Sequence[_ArrowArray], object]:
    """The type, the only chunk and the owner, a capsule of Python's, of a column."""
    schema = _ArrowSchema.from_address(_pointer(capsules[0], b"arrow_schema"))
    chunk = _ArrowArray.from_address(_pointer(capsules[1], b"arrow_array"))
    return bytes(schema.format), [chunk], capsules


def _check(code: int) -> None:
    if code:
        raise OSError(code, "a column of strings could not be read over Arrow's C data interface")


def fill_views(
    cells: NDArray[np.int64], begins: Sequence[int], bases: NDArray[np.int64] | None
) -> None:
    """Addresses and lengths of the strings of columns of views, one column after another.

    Each column's first view is at one of these addresses, and all have as many rows. `bases` are
    the buffers of Arrow's views; DuckDB's, which have addresses, have none.
    """
    if any(fill(cells, begins, bases) for fill in fillers):
        return
    rows = len(cells) // len(begins)
    for place, begin in enumerate(begins):
        _fill_column(cells[place * rows :][:rows], begin, bases)


def _fill_column(part: NDArray[np.int64], begin: int, bases: NDArray[np.int64] | None) -> None:
    views = memory(begin, 16 * len(part))
    part[:, 1] = views.view(np.int32)[::4]
    if bases is None:
        part[:, 0] = views.view(np.int64)[1::2]
    elif len(bases):  # of short strings, what would be the number of a buffer is text
        number, place = views.view(np.int32)[2::4], views.view(np.int32)[3::4]
        np.add(bases.take(number, mode="clip"), place, out=part[:, 0])
    inside = np.arange(begin + 4, begin + 4 + 16 * len(part), 16)
    np.copyto(part[:, 0], inside, where=part[:, 1] <= _INLINE)


def bits(where: int, first: int, rows: int) -> NDArray[np.bool_]:
    """Bits of a bitmap from one on."""
    held = memory(where, (first + rows + 7) // 8)
    return np.unpackbits(held, bitorder="little")[first : first + rows].view(bool)


def memory(where: int, size: int) -> NDArray[np.uint8]:
    """The bytes at an address, without a copy."""
    return np.frombuffer(_view(where, size, 0x100), np.uint8)  # PyBUF_READ


_view: Callable[[int, int, int], memoryview] = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int
)(("PyMemoryView_FromMemory", ctypes.pythonapi))
_pointer: Callable[[object, bytes], int] = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))
