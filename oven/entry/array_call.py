"""A plan's answers for a block, as its callers want them: all by name, or one alone.

An entry answers with a tuple. To make a dict of it in Python, or to look whether the rows are
finite, takes longer than the entry itself; machine code around the entry takes a tenth of it. What
is no array of two dimensions, or has to be looked at, goes to a Python function that means the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oven.entry.array_entry import Call
from oven.entry.builtin import Contents, native_function
from oven.entry.generator import Template
from oven.entry.parts import PARTS

#: So many values are looked at here; of more, numpy takes the sum in less time.
_FEW = 1 << 12
_TEXT = """\
def array_call(self, argument):
    table = self.ARRAY_DATA
    fits = False
    if argument.TYPE == PyArray_Type:
        fits = argument.ARRAY_RANK == 2
    if fits:
        shape, strides = argument.ARRAY_SHAPE, argument.ARRAY_STRIDES
        rows, width = ld_int64(shape, 0), ld_int64(shape, 1)
        fits = rows > 0
        if fits and table.MOST != 0:
            $same_dtype(argument.ARRAY_DTYPE, table.DTYPE)
            size, total, data = rows * width, 0.0, argument.ARRAY_DATA
            fits = same and size <= table.MOST and argument.ARRAY_FLAGS & ALIGNED != 0
            fits = fits and ld_int64(strides, 1) == 8
            fits = fits and (rows == 1 or ld_int64(strides, 0) == 8 * width)
            if fits:
                for i in range(size):
                    total += 0.0 * ld_float64(data, i)
                fits = total == 0.0
    if not fits:
        $fall_back
    answers = PyObject_CallOneArg(table.ENTRY, argument)
    if answers == 0:
        return 0
    names, made = table.NAMES, 0
    if names == 0:
        made = ld_int64(answers, TUPLE_ITEMS)
        Py_IncRef(made)
        Py_DecRef(answers)
    else:
        $named_answers(names)
    return made
"""
_TEMPLATE = Template("array_call", _TEXT, PARTS.__getitem__)


def open_array_call(
    entry: Call,
    fallback: Callable[[Any], Any],
    names: tuple[str, ...] | None = None,
    *,
    finite: bool = False,
) -> Callable[[Any], Any] | None:
    """What answers for a block by these names, or with the first output alone, if it can be made.

    With `finite`, only rows without NaN and infinity are answered here.
    """
    dtype = np.dtype(np.float64)

    def fill() -> Contents:
        words = {"ENTRY": id(entry), "FALLBACK": id(fallback), "DTYPE": id(dtype)}
        words |= {"NAMES": 0 if names is None else id(names), "MOST": _FEW if finite else 0}
        return Contents(words, (entry, fallback, names, dtype))

    return native_function(_TEMPLATE, fill)
