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
from oven.entry.array_entry import Call
from oven.entry.builtin import Contents, NativeTable, code_address, native_function
from oven.entry.generator import KINDS, SCALAR, Template, numbers_of
from oven.entry.interpreter import address, list_items
from oven.entry.parts import PARTS
from oven.entry.tables import named_output

_TEXT = """\
def array_call(self, argument):
    table = self.ARRAY_DATA
    fits = False
    if argument.TYPE == PyArray_Type:
        fits = argument.ARRAY_RANK == 2
    if fits:
        fits = ld_int64(argument.ARRAY_SHAPE, 0) > 0
    if not fits:
        $fall_back
    answers = c_call_2(table.CODE, table.OWN, argument)
    if answers == 0:
        return 0
    names, output, made = table.NAMES, table.OUTPUT, 0
    if names != 0:
        $named_answers(names)
        return made
    made = ld_int64(answers, TUPLE_ITEMS)
    if output != 0:
        $converted
    else:
        Py_IncRef(made)
    Py_DecRef(answers)
    return made
"""
#: The answer in an array of its own: it may be memory of somebody else's where Python answered.
_CONVERTED = """\
fits, dimensions, across = made.TYPE == PyArray_Type, 2, output.ACROSS
if fits:
    fits = made.ARRAY_DTYPE == table.GIVEN and made.ARRAY_FLAGS & ALIGNED != 0
    fits = fits and made.ARRAY_RANK == 1
if fits:
    rows = ld_int64(made.ARRAY_SHAPE, 0)
    fits = ld_int64(made.ARRAY_STRIDES, 0) == 8
if not fits:
    Py_DecRef(answers)
    $fall_back
sizes = stack_words(2)
$array
source, into = made.ARRAY_DATA, item.ARRAY_DATA
made = item
letters, labels, last = output.BYTES // 4, output.NAMES, output.LAST
for i in range(rows):
    label = labels + 4 * letters * min(max(ld_int64(source, i), 0), last)
    for j in range(letters):
        st_int32(into, j, ldc_int32(label, j))
    into += 4 * letters
"""
ARRAY_CALL = Template("array_call", _TEXT, {**PARTS, "converted": _CONVERTED})


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

    return native_function(ARRAY_CALL, fill)


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
        words |= {"KIND": KINDS.index("int64"), "DTYPE": id(labels.dtype)}
        words |= {"BYTES": labels.dtype.itemsize, "SHELF": list_items(shelf)}
        return np.array(numbers_of(words, "output"), np.int64), shelf

    def __call__(self, value: NDArray[Any]) -> NDArray[Any]:
        """The conversion by numpy."""
        return self._labels.take(value, mode="clip")


#: The dtype of the numbers of labels.
_NUMBERS = np.dtype(np.int64)
