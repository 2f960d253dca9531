"""A plan's answers for a block, as its callers want them: all by name, or one alone.

An entry answers with a tuple. To make a dict of it in Python takes longer than the entry itself;
machine code around the entry takes a tenth of it. What is no array of two dimensions goes to a
Python function that means the same.

One alone can be converted: numbers of labels to an array of fixed width, for which objects of
Python would have to be read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from oven.compiler.words import *
from oven.entry.array_entry import Call
from oven.entry.builtin import Contents, NativeTable, code_address, native_function
from oven.entry.generator import NULL, SCALAR, Kind, Pointer, c, ld_address, numbers_of
from oven.entry.interpreter import address, list_items
from oven.entry.parts import answer_array, named_answers
from oven.entry.tables import named_output


def array_call(self: Pointer, argument: Pointer) -> Pointer:
    """The answers for a block of two dimensions."""
    table = self.ARRAY_DATA
    fits = argument.TYPE == c.PyArray_Type and argument.ARRAY_RANK == 2
    if fits:
        fits = ld_int64(argument.ARRAY_SHAPE, 0) > 0
    if not fits:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    answers = Pointer(c_call_2(table.CODE, table.OWN, argument))
    if answers == 0:
        return NULL
    if table.NAMES != 0:
        return named_answers(table, answers, table.NAMES, 0)
    made = ld_address(answers, c.TUPLE_ITEMS)
    if table.OUTPUT == 0:
        c.Py_IncRef(made)
    elif not is_convertible(table, made):
        c.Py_DecRef(answers)
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    else:
        made = converted_labels(table, made, table.OUTPUT)
    c.Py_DecRef(answers)
    return made


def is_convertible(table: Pointer, made: Pointer) -> bool:
    """True if an answer is an array of numbers of labels."""
    fits = made.TYPE == c.PyArray_Type
    if fits:
        fits = made.ARRAY_DTYPE == table.GIVEN and made.ARRAY_FLAGS & c.ALIGNED != 0
        fits = fits and made.ARRAY_RANK == 1
    return fits and ld_int64(made.ARRAY_STRIDES, 0) == 8


def converted_labels(table: Pointer, made: Pointer, output: Pointer) -> Pointer:
    """The answer in an array of its own: it may be somebody else's memory where Python answered."""
    rows = ld_int64(made.ARRAY_SHAPE, 0)
    item = answer_array(table, output, rows, 2)
    if item == 0:
        return NULL
    source, into, letters = made.ARRAY_DATA, int64(item.ARRAY_DATA), output.BYTES // 4
    for i in range(rows):
        label = output.NAMES + 4 * letters * min(max(ld_int64(source, i), 0), output.LAST)
        for j in range(letters):
            st_int32(into, j, ldc_int32(label, j))
        into += 4 * letters
    return item


def open_array_call(
    entry: Call,
    fallback: Callable[[Any], Any],
    names: tuple[str, ...] | None = None,
    converted: FixedLabels | None = None,
) -> Callable[[Any], Any] | None:
    """The call for a block, by these names or with the first output, if it can be made.

    With a conversion the first output is converted, and the fallback has to answer with that, too.
    """

    def fill() -> Contents:
        # An entry of machine code is called as such: having Python find it takes as long as a dict.
        own = getattr(entry, "__self__", None)
        native = isinstance(own, NativeTable)
        code = code_address(entry) if native else address("PyObject_CallOneArg")
        words = {"CODE": code, "OWN": id(own if native else entry), "FALLBACK": id(fallback)}
        words["NAMES"] = 0 if names is None else id(names)
        if converted is None:
            return Contents(words | {"OUTPUT": 0, "GIVEN": 0}, (entry, fallback, names))
        row, shelf = converted.row()
        words |= {"OUTPUT": row.ctypes.data, "GIVEN": id(_NUMBERS)}
        return Contents(words, (entry, fallback, converted, row, shelf))

    return native_function(array_call, fill)


class FixedLabels:
    """Labels of fixed width, for the numbers of labels that a plan answers with."""

    def __init__(self, labels: NDArray[np.str_]) -> None:
        self._labels = labels

    @classmethod
    def of_labels(cls, item: Node, dtype: np.dtype[Any]) -> FixedLabels | None:
        """That of the numbers which a node looks strings of fixed width up for, if it does that."""
        names = named_output(item).names if dtype.kind == "U" else None
        return None if names is None else cls(names.astype(dtype))

    def row(self) -> tuple[NDArray[np.int64], list[None]]:
        """The conversion as machine code reads it, and the shelf for its answers."""
        labels, shelf = self._labels, [None]
        words = {"ACROSS": SCALAR, "NAMES": labels.ctypes.data, "LAST": len(labels) - 1}
        words |= {"KIND": Kind.INT64, "DTYPE": id(labels.dtype)}
        words |= {"BYTES": labels.dtype.itemsize, "SHELF": list_items(shelf)}
        return np.array(numbers_of(words, "output"), np.int64), shelf

    def __call__(self, value: NDArray[Any]) -> NDArray[Any]:
        """The conversion by numpy."""
        return self._labels.take(value, mode="clip")


#: The dtype of the numbers of labels.
_NUMBERS = np.dtype(np.int64)
