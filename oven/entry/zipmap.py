"""Rows of numbers as dicts by name: what ONNX's ZipMap answers, built by machine code.

    rows = zipped(["no", "yes"])
    rows(np.array([[0.25, 0.75]], np.float32))     # [{"no": 0.25, "yes": 0.75}]

A dict for each of thousands of rows takes Python longer than the model behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from oven.compiler.words import *
from oven.entry.builtin import Contents, native_function
from oven.entry.generator import NULL, Pointer, c

Rows = Callable[[Any], list[dict[Any, float]]]


def zipped(self: Pointer, argument: Pointer) -> Pointer:
    """A dict for each row of a block.

    A list that is not full yet has no addresses in it, which the collector knows how to pass over.
    """
    table = self.ARRAY_DATA
    width, fits = table.WIDTH, False
    if argument.TYPE == c.PyArray_Type and argument.ARRAY_RANK == 2:
        fits = argument.ARRAY_DTYPE == table.DTYPE and argument.ARRAY_FLAGS & c.ALIGNED != 0
        fits = fits and ld_int64(argument.ARRAY_SHAPE, 1) == width
    if not fits:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    rows, keys = ld_int64(argument.ARRAY_SHAPE, 0), table.KEYS
    made = c.PyList_New(rows)
    if made == 0:
        return NULL
    for i in range(rows):
        item, wrong = c.PyDict_New(), 0
        if item == 0:
            c.Py_DecRef(made)
            return NULL
        strides = argument.ARRAY_STRIDES
        place = argument.ARRAY_DATA + i * ld_int64(strides, 0)
        for j in range(width):
            number = float64(ld_float32(place + j * ld_int64(strides, 1), 0))
            value = c.PyFloat_FromDouble(number)
            if value == 0:
                wrong = 1
                break
            wrong |= c.PyDict_SetItem(item, ldc_int64(keys, j), value)
            c.Py_DecRef(value)
        c.PyList_SetItem(made, i, item)
        if wrong != 0:
            c.Py_DecRef(made)
            return NULL
    return made


def zipmap(labels: Sequence[Hashable]) -> Rows:
    """A function that turns a block of float32 into a list of dicts with these keys, one a row.

    Keys come in their order, as from onnxruntime, so that tables made of the dicts are the same.
    """
    keys = tuple(labels)
    if len(set(map(type, keys))) == 1:
        # The last place of each key, smallest key first: what onnxruntime's maps are.
        order = [len(keys) - 1 - keys[::-1].index(key) for key in sorted(set(keys))]  # type: ignore[type-var]  # of one type
        if order != [*range(len(keys))]:
            arranged = zipmap([keys[place] for place in order])
            return lambda block: arranged(np.asarray(block)[:, order])

    def rows(block: object) -> list[dict[Any, float]]:
        return [dict(zip(keys, row, strict=True)) for row in np.asarray(block).tolist()]

    def contents() -> Contents:
        dtype, places = np.dtype(np.float32), np.array([id(key) for key in keys], np.int64)
        words = {"DTYPE": id(dtype), "WIDTH": len(keys), "KEYS": places.ctypes.data}
        words["FALLBACK"] = id(rows)
        return Contents(words, (keys, rows, dtype, places))

    return native_function(zipped, contents) or rows
