"""Where the running interpreter keeps things: the addresses that machine code needs of it.

The layouts are those of CPython 3.11 to 3.13 and of numpy's C interface, both of which every
compiled extension module relies on. They are looked at on live objects before they are trusted:
on an interpreter that differs (free-threaded, debugging, another implementation) there are no
entries, and plans run through Python.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import cache
from types import BuiltinFunctionType
from typing import Any
from weakref import ref

import numpy as np

_PYTHON = {
    "TUPLE_NEW": "PyTuple_New",
    "TUPLE_SET": "PyTuple_SetItem",
    "FLOAT_NEW": "PyFloat_FromDouble",
    "INT_NEW": "PyLong_FromLongLong",
    "UNSIGNED_NEW": "PyLong_FromUnsignedLongLong",
    "BOOL_NEW": "PyBool_FromLong",
    "INT_AS_FLOAT": "PyLong_AsDouble",
    "ERROR_SET": "PyErr_Occurred",
    "ERROR_CLEAR": "PyErr_Clear",
    "NO_MEMORY": "PyErr_NoMemory",
    "INCREASE": "Py_IncRef",
    "DECREASE": "Py_DecRef",
    "CALL": "PyObject_CallOneArg",
    "SAVE_THREAD": "PyEval_SaveThread",
    "RESTORE_THREAD": "PyEval_RestoreThread",
    "MALLOC": "PyMem_RawMalloc",
    "FREE": "PyMem_RawFree",
    "DICT_SIZE": "PyDict_Size",
    "DICT_GET": "PyDict_GetItemWithError",
    "DICT_NEXT": "PyDict_Next",
    "INT_AS_WORD": "PyLong_AsLongLongAndOverflow",
    "AS_UTF8": "PyUnicode_AsUTF8AndSize",
    "COMPARE": "PyUnicode_Compare",
    "COPY": "memcpy",
    "CALL_ANY": "PyObject_Vectorcall",
    "NEXT": "PyIter_Next",
    "AS_LONG": "PyLong_AsLong",
    "DICT_NEW": "PyDict_New",
    "DICT_SET": "PyDict_SetItem",
    "LIST_NEW": "PyList_New",
    "AS_LIST": "PySequence_List",
    "LIST_SET": "PyList_SetItem",
}
# Places in numpy's table of functions, which never change: extension modules are built on them.
_ARRAY_TYPE, _NEW_ARRAY = 2, 184


@cache
def addresses() -> Mapping[str, int] | None:
    """The words of an entry's table that all plans share; None where there can be no entries."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED") or object.__basicsize__ != 16:
        return None
    found = {word: _function(name) for word, name in _PYTHON.items()}
    found["NEW_ARRAY"] = _numpy_function(_NEW_ARRAY)
    types: dict[str, type] = {"ARRAY_TYPE": np.ndarray, "LIST_TYPE": list, "TUPLE_TYPE": tuple}
    types["FUNCTION_TYPE"] = BuiltinFunctionType
    types |= {"FLOAT_TYPE": float, "INT_TYPE": int, "STR_TYPE": str, "DICT_TYPE": dict}
    found |= {word: id(kind) for word, kind in types.items()} | {"NONE": id(None)}
    scalars = {"DOUBLE_TYPE": np.float64, "SINGLE_TYPE": np.float32, "FLAG_TYPE": np.bool_}
    found |= {word: id(kind) for word, kind in scalars.items()} | {"LONG_TYPE": id(np.int64)}
    found |= {"OBJECT": id(np.dtype(object)), "TRUE": id(True), "FALSE": id(False)}
    found["CHARACTERS"] = _words(np.dtype("U7"), 4)[3]
    return found if all(found.values()) and _as_expected() else None


def _function(name: str) -> int:
    function = getattr(ctypes.pythonapi, name, None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function is not None else 0


def _numpy_function(place: int) -> int:
    """An entry of the table that numpy hands to extension modules, if it is where it should be."""
    capsule = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
    table = getattr(capsule, "_ARRAY_API", None)
    if table is None:
        return 0
    words = ctypes.cast(_pointer_in(table, None), ctypes.POINTER(ctypes.c_void_p))
    return words[place] or 0 if words[_ARRAY_TYPE] == id(np.ndarray) else 0


_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def slots(kind: type, names: Sequence[str]) -> list[int] | None:
    """Which word of an object of this class holds each of these slots."""
    blank: Any = object.__new__(kind)
    marks = [object() for _ in names]
    for name, mark in zip(names, marks, strict=True):
        setattr(blank, name, mark)
    words = _words(blank, kind.__basicsize__ // 8)
    found = [words.index(id(mark)) for mark in marks if words.count(id(mark)) == 1]
    return found if len(found) == len(marks) else None


def _as_expected() -> bool:
    """Whether live objects look as the entry's code reads them."""
    arrays = _array_as_expected() and _characters_as_expected()
    return arrays and _list_as_expected() and _numbers_as_expected() and _texts_as_expected()


def words_of(item: Any, first: int, count: int) -> list[int]:
    """So many words of an object, from the first on."""
    return list((ctypes.c_int64 * count).from_address(id(item) + 8 * first))


def _words(item: Any, count: int) -> list[int]:
    return words_of(item, 0, count)


def _array_as_expected() -> bool:
    for array in (np.zeros((3, 4))[:2, ::2], np.zeros(5, np.float32)):
        words = _words(array, 9)
        count, dims = words[3] & 0xFFFFFFFF, (ctypes.c_int64 * array.ndim)
        seen = (words[1], words[2], count, words[7], words[8] & 0xFFFFFFFF)
        there = (id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype), array.flags.num)
        if seen != there or tuple(dims.from_address(words[4])) != array.shape:
            return False
        if tuple(dims.from_address(words[5])) != array.strides:
            return False
    return np.zeros(1).flags.num & 256 != 0 and _holders_as_expected()


def _holders_as_expected() -> bool:
    """An array says whether it is a view, is referred to weakly, and was read as a buffer."""
    fresh: Any = np.zeros(1)
    if any(words_of(fresh, place, 1) != [0] for place in (6, 9, 10)):
        return False
    view, seen, read = fresh[:], ref(fresh), memoryview(fresh)
    held = words_of(view, 6, 1)[0] == id(fresh) and read.nbytes == 8 and seen() is fresh
    return held and all(words_of(fresh, place, 1) != [0] for place in (9, 10))


def _characters_as_expected() -> bool:
    """Dtypes of characters have one word in common, and behind others their bytes."""
    short, long, other = (_words(np.dtype(name), 6) for name in ("U7", "U1234", ">U7"))
    return short[3] == long[3] != other[3] and (short[5], long[5]) == (4 * 7, 4 * 1234)


def _list_as_expected() -> bool:
    first, second = object(), object()
    items, pair = [first, second], (first, second)
    many, one = _words(items, 4), _words(pair, 5)
    there = [id(first), id(second)]
    found = list((ctypes.c_int64 * 2).from_address(many[3]))
    return many[1:3] == [id(list), 2] and found == there and one[1:] == [id(tuple), 2, *there]


def _texts_as_expected() -> bool:
    """Strings keep their hash, once it was asked for, behind their length.

    It is asked for first: strings that come from byte code have none until somebody does.
    """
    return all([len(text), hash(text)] == _words(text, 4)[2:] for text in ("age", "Łódź", "𝄞"))


def _numbers_as_expected() -> bool:
    """Python's floats, and numpy's scalars, keep their value behind their type."""
    kept: tuple[tuple[Any, Any], ...] = (
        (-1.25e-7, ctypes.c_double),
        (np.float64(-1.25e-7), ctypes.c_double),
        (np.float32(0.75), ctypes.c_float),
        (np.int64(-(2**62) + 1), ctypes.c_int64),
        (np.bool_(True), ctypes.c_uint8),
    )
    return all(kind.from_address(id(value) + 16).value == value for value, kind in kept)
