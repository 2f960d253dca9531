"""The memory layout of the running interpreter and numpy, measured on live objects.

Machine code that reads objects needs offsets: at which byte an array has its data, a list its
items, a string its hash. They differ between versions of CPython (tuples have grown a word in
3.14) and of numpy. So none is written down here: for each field several live objects are looked at,
whose value of it is known, and the offset is where all of them have it. Where there is no such
offset, or more than one, there are no entries on this interpreter, and plans run through Python.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import BuiltinFunctionType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from objectstore import system

#: numpy 1, whose dtypes have sizes of 32 bits.
_FIRST = np.__version__.startswith("1.")


class Offset(NamedTuple):
    """The place of a field in an object: its dtype, and how many such numbers come before."""

    dtype: str
    place: int


class Layout(NamedTuple):
    """The measured layout: offsets of fields, and numbers of flags of arrays and dtypes."""

    offsets: Mapping[str, Offset]
    numbers: Mapping[str, int]


class _AmbiguousError(Exception):
    """A field was found in no place, or in several."""


@cache
def object_layout() -> Layout | None:
    """The layout of this interpreter's objects; None where there can be no entries.

    Without the GIL there are none: entries share scratch memory and hold borrowed references.
    """
    shared = "t" in getattr(sys, "abiflags", "")  # asking sysconfig takes a millisecond
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8 or shared:
        return None
    try:
        return measured()
    except Exception:  # noqa: BLE001 (any step may fail on objects laid out otherwise)
        return None


def measured() -> Layout:
    """The layout, looked up on live objects."""
    with _mapped() as readable:
        offsets = {**_of_headers(), **_of_sequences(readable), **_of_values(), **_of_strings()}
        offsets |= {**_of_arrays(readable), **_of_array_holders(), **_of_dtypes()}
    return Layout(offsets, _numbers(offsets))


# --- looking at objects ---------------------------------------------------------------------------

_CODES = {"int64": "q", "int32": "i", "float64": "d", "float32": "f", "uint8": "B"}
Samples = Sequence[tuple[Any, Any]]
Readable = Callable[[int, int], bool]


def _bytes_of(item: Any) -> bytes:
    """The memory of an object itself, without what it points to."""
    kind = type(item)
    size = kind.__basicsize__ + kind.__itemsize__ * (len(item) if kind.__itemsize__ else 0)
    return ctypes.string_at(id(item), min(size, sys.getsizeof(item)))


def _places(form: str, samples: Samples, step: int) -> set[int]:
    """Every multiple of `step` at which each of the objects has its value."""
    found: list[set[int]] = []
    for item, value in samples:
        raw, want = _bytes_of(item), struct.pack(form, *value)
        places = range(0, len(raw) - len(want) + 1, step)
        found.append({at // step for at in places if raw.startswith(want, at)})
    return set.intersection(*found)


def _only(name: str, places: Iterable[int]) -> int:
    found = [*places]
    if len(found) != 1:
        raise _AmbiguousError(name)
    return found[0]


def _field(name: str, dtype: str, samples: Samples) -> dict[str, Offset]:
    """The field whose value in each of these objects is this."""
    code = _CODES[dtype]
    pairs = [(item, (value,)) for item, value in samples]
    return {name: Offset(dtype, _only(name, _places(code, pairs, struct.calcsize(code))))}


def _pointer(name: str, samples: Samples, readable: Readable) -> dict[str, Offset]:
    """The field that points to these words, for each of the objects."""
    found: list[set[int]] = []
    for item, words in samples:
        raw, want = _bytes_of(item), struct.pack(f"{len(words)}q", *words)
        pointers = struct.unpack(f"{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])
        found.append(
            {
                at
                for at, address in enumerate(pointers)
                if readable(address, len(want)) and ctypes.string_at(address, len(want)) == want
            }
        )
    return {name: Offset("int64", _only(name, set.intersection(*found)))}


@contextmanager
def _mapped() -> Iterator[Readable]:
    """True if memory may be read: the kernel refuses to write what is not mapped into a pipe."""
    write = system.function("write")
    write.argtypes, write.restype = (
        (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
        ctypes.c_ssize_t,
    )
    taken, given = os.pipe()

    def readable(address: int, size: int) -> bool:
        good = write(given, address, size) == size
        return good and len(os.read(taken, size)) == size

    try:
        yield readable
    finally:
        os.close(taken)
        os.close(given)


def _changed(before: bytes, after: bytes, code: str) -> set[int]:
    """The numbers of an object's memory that have changed."""
    size = struct.calcsize(code)
    places = range(0, len(before) - size + 1, size)
    return {at // size for at in places if before[at : at + size] != after[at : at + size]}


# --- the fields -----------------------------------------------------------------------------------


def _of_headers() -> dict[str, Offset]:
    samples: list[Any] = [[], (1, 2), 1.5, "text", np.zeros(2), np.dtype("float64"), object()]
    found = _field("TYPE", "int64", [(item, id(type(item))) for item in samples])
    # Read at its address: whether a variable or an argument counts differs between versions.
    held, places = [object()], []
    for count in (1, 2, 3):
        raw = ctypes.string_at(id(held[0]), object.__basicsize__)
        words = enumerate(struct.iter_unpack("i", raw))
        places.append({at for at, (word,) in words if word == count})
        held.append(held[0])
    place = _only("REFERENCES", set.intersection(*places))
    return found | {"REFERENCES": Offset("int32", place)}


def _of_sequences(readable: Readable) -> dict[str, Offset]:
    parts = [object() for _ in range(9)]
    lists = [parts[:2], parts[:5], parts[:9]]
    for item in lists:  # so that more is allocated than there is
        item.append(item.pop())
        item.append(parts[0])
    tuples = [tuple(parts[:2]), tuple(parts[:7])]
    found = _field("SIZE", "int64", [(item, len(item)) for item in (*lists, *tuples)])
    found |= _pointer("LIST_ITEMS", [(item, [*map(id, item)]) for item in lists], readable)
    pairs = [(item, tuple(map(id, item[:2]))) for item in tuples]
    return found | {"TUPLE_ITEMS": Offset("int64", _only("TUPLE_ITEMS", _places("2q", pairs, 8)))}


def _of_values() -> dict[str, Offset]:
    """Python's floats and numpy's scalars, whose value follows their type."""
    floats = [(kind(value), value) for kind in (float, np.float64) for value in (-1.25e-7, 3e300)]
    found = _field("FLOAT_VALUE", "float64", floats)
    found |= _field("SINGLE_VALUE", "float32", [(np.float32(v), v) for v in (0.75, -2.5e7)])
    found |= _field("LONG_VALUE", "int64", [(np.int64(v), v) for v in (1 - 2**62, 2**61 + 3)])
    # A flag is one byte: it is where the two flags differ, and the number behind their type.
    no, yes = _bytes_of(np.bool_(False)), _bytes_of(np.bool_(True))
    differing = {at for at in _changed(no, yes, "B") if (no[at], yes[at]) == (0, 1)}
    behind = 8 * (found["LONG_VALUE"].place)
    return found | {"FLAG_VALUE": Offset("uint8", _only("FLAG_VALUE", differing & {behind}))}


def _of_strings() -> dict[str, Offset]:
    # The hash is asked for first: strings that come from byte code have none until then.
    texts = ["age", "Łódź" * 3, "𝄞" * 40, "x" * 1234]
    hashes = [(text, hash(text)) for text in texts]
    found = _field("STRING_LENGTH", "int64", [(text, len(text)) for text in texts])
    return found | _field("STRING_HASH", "int64", hashes)


def _of_arrays(readable: Readable) -> dict[str, Offset]:
    base = np.zeros((7, 6, 5, 4))
    arrays = [base[1], base[2:5, ::2, 1, ::-1], base[3, 4], np.zeros(90, np.float32)[3:50:2]]
    arrays += [np.zeros((4, 8), np.int16)[1:, 2:], base]
    found = _field("ARRAY_DATA", "int64", [(each, each.ctypes.data) for each in arrays])
    found |= _field("ARRAY_RANK", "int32", [(each, each.ndim) for each in arrays])
    found |= _pointer("ARRAY_SHAPE", [(each, each.shape) for each in arrays], readable)
    found |= _pointer("ARRAY_STRIDES", [(each, each.strides) for each in arrays], readable)
    found |= _field("ARRAY_DTYPE", "int64", [(each, id(each.dtype)) for each in arrays])
    found |= _field("ARRAY_FLAGS", "int32", [(each, each.flags.num) for each in arrays])
    return found


def _of_array_holders() -> dict[str, Offset]:
    """Whose view an array is, and who refers to it weakly or has read it as a buffer."""
    owners: list[Any] = [np.zeros(8), np.zeros((2, 3), np.float32)]
    found = _field("ARRAY_BASE", "int64", [*((own[1:], id(own)) for own in owners), (owners[0], 0)])
    weakly = [(own, ref(own)) for own in owners]
    found |= _field("ARRAY_WEAKREFS", "int64", [(own, id(weak)) for own, weak in weakly])
    fresh: Any = np.zeros(3)
    before = _bytes_of(fresh)
    read = memoryview(fresh)
    changed = {
        at
        for at in _changed(before, _bytes_of(fresh), "q")
        if before[8 * at : 8 * at + 8] == bytes(8)
    }
    assert read.nbytes == fresh.nbytes
    return found | {"ARRAY_BUFFERS": Offset("int64", _only("ARRAY_BUFFERS", changed))}


def _of_dtypes() -> dict[str, Offset]:
    """Kind, letter and byte order of a dtype are in one word with its number in numpy's table."""
    kinds = [np.dtype(name) for name in ("f8", "f4", "i8", "u2", "?", "O", "U7", ">U7", ">i4")]
    letters = [(each, (f"{each.kind}{each.char}{each.byteorder}".encode(),)) for each in kinds]
    place = _only("DTYPE_KIND", _places("3s", letters, 8))
    if 2 * place + 1 not in _places("i", [(each, (each.num,)) for each in kinds], 4):
        raise _AmbiguousError("DTYPE_KIND")
    sizes = [(np.dtype(f"U{n}"), 4 * n) for n in (7, 1234, 99)]
    size = _field("DTYPE_SIZE", "int32" if _FIRST else "int64", sizes)
    return {"DTYPE_KIND": Offset("int64", place)} | size


def _numbers(offsets: Mapping[str, Offset]) -> dict[str, int]:
    """Flags of an array that numpy has just made of one row, and that of aligned ones."""
    fresh, raw = np.zeros((1, 2)), np.zeros(17, np.uint8)
    aligned = fresh.flags.num & ~raw[1:].view(np.float64)[None].flags.num & ~0x5
    place = 8 * offsets["DTYPE_KIND"].place
    (letters,) = struct.unpack_from("q", _bytes_of(np.dtype("U7")), place)
    if aligned.bit_count() != 1 or np.zeros(1).flags.num != fresh.flags.num:
        raise _AmbiguousError("ALIGNED")
    by_columns = fresh.flags.num & ~np.zeros((2, 2)).flags.num  # arrays of one row are that, too
    words = {"UNTOUCHED": fresh.flags.num, "BY_COLUMNS": by_columns}
    return words | {"ALIGNED": aligned, "CHARACTERS": letters}


# --- addresses ------------------------------------------------------------------------------------

_TYPES: dict[str, type] = {
    "PyArray_Type": np.ndarray,
    "PyList_Type": list,
    "PyTuple_Type": tuple,
    "PyDict_Type": dict,
    "PyUnicode_Type": str,
    "PyFloat_Type": float,
    "PyLong_Type": int,
    "PyCFunction_Type": BuiltinFunctionType,
    "PyDoubleArrType_Type": np.float64,
    "PyFloatArrType_Type": np.float32,
    "PyLongArrType_Type": np.int64,
    "PyBoolArrType_Type": np.bool_,
}
_ADDRESSES = {name: id(kind) for name, kind in _TYPES.items()}
_ADDRESSES |= {"Py_None": id(None), "Py_True": id(True), "Py_False": id(False)}
# Places in numpy's table of functions, which never change: extension modules are built on them.
_ARRAY_TYPE, _ARRAY_EMPTY = 2, 184


@cache
def address(name: str) -> int:
    """The address of what has this name in C: a type, an object, a function; 0 if unknown."""
    if name == "PyArray_Empty":
        # From the table that numpy hands to extension modules, if it is where it should be.
        core = getattr(np, "core" if _FIRST else "_core", None)
        capsule = getattr(core, "_multiarray_umath", None)
        table = getattr(capsule, "_ARRAY_API", None)
        if table is None:
            return 0
        words = ctypes.cast(_pointer_in(table, None), ctypes.POINTER(ctypes.c_void_p))
        return words[_ARRAY_EMPTY] or 0 if words[_ARRAY_TYPE] == id(np.ndarray) else 0
    if name in _ADDRESSES:
        return _ADDRESSES[name]
    function = getattr(ctypes.pythonapi, name, None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function is not None else 0


_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def slots(kind: type, names: Sequence[str]) -> list[int] | None:
    """The word of an object of this class that holds each of these slots."""
    blank: Any = object.__new__(kind)
    marks = [object() for _ in names]
    for name, mark in zip(names, marks, strict=True):
        setattr(blank, name, mark)
    try:
        found = [
            _field(name, "int64", [(blank, id(mark))])
            for name, mark in zip(names, marks, strict=True)
        ]
    except _AmbiguousError:
        return None
    return [offset.place for each in found for offset in each.values()]


def list_items(items: list[Any]) -> int:
    """The address of a list's items, which stay where they are while it keeps its length."""
    layout = object_layout()
    assert layout is not None, "there are entries"
    place = 8 * layout.offsets["LIST_ITEMS"].place
    (found,) = struct.unpack_from("q", _bytes_of(items), place)
    return int(found)
