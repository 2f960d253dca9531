"""`InferenceSession.run` as machine code, for what most calls are: outputs, for a dict.

The plan's entry answers in half a microsecond, and what Python needs to come to it would be as much
again. The gate takes `run(None, feed)`, and `run(["label"], feed)`, to the entry and makes a list
of its answers; whatever else the call says, and whatever the entry does not answer, goes to the
method written in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from oven.compiler.words import *
from oven.entry.builtin import Contents, any_arguments, code_address, native_function
from oven.entry.generator import NULL, Pointer, c, ld_address


def session_gate(self: Pointer, arguments: Pointer, count: int, names: Pointer) -> Pointer:
    """`run` for outputs and a dict."""
    table = self.ARRAY_DATA
    made, owned, many = NULL, NULL, int64(table.COUNT)
    if count == 2 and names == 0:
        asked, feed = ld_address(arguments, 0), ld_address(arguments, 1)
        known = asked == c.Py_None and feed.TYPE == c.PyDict_Type
        if asked.TYPE == c.PyList_Type and feed.TYPE == c.PyDict_Type:
            owned = c.PyList_AsTuple(asked)
            if owned == 0:
                return NULL
            many = owned.SIZE
            known = many > 0
            for place in range(many):
                each = ld_address(owned, c.TUPLE_ITEMS + place)
                known = known and each.TYPE == c.PyUnicode_Type
        if known:
            made = Pointer(c_call_2(table.ENTRY, table.OWN, feed))
    answers = NULL
    if made != 0:
        answers = listed(table, made, owned, many)
        c.Py_DecRef(made)
    if owned != 0:
        c.Py_DecRef(owned)
    if answers != 0:
        return answers
    c.PyErr_Clear()
    return c.PyObject_Vectorcall(table.FALLBACK, arguments, count, names)


def listed(table: Pointer, made: Pointer, owned: Pointer, many: int) -> Pointer:
    """The answers in a list; NULL if one is missing.

    A tuple fresh from the entry has one reference: its answers move to the list, and it is freed.
    Of some outputs each may be asked for twice, so they are shared. Names are held in a tuple of
    their own, as another thread may change the caller's list.
    """
    if made.TYPE != c.PyTuple_Type or made.REFERENCES != 1:
        return NULL
    answers = c.PyList_New(many)
    if answers == 0:
        return NULL
    for place in range(many):
        at, value = place, NULL
        if owned != 0:
            name = ld_address(owned, c.TUPLE_ITEMS + place)
            hit, at = c.PyDict_GetItemWithError(table.INDEX, name), -1
            if hit != 0:
                at = int64(hit.FLOAT_VALUE)
        if at >= 0:
            source = c.TUPLE_ITEMS + ldc_int64(table.ORDER, 2 * at)
            shape = ldc_int64(table.ORDER, 2 * at + 1)
            value = ld_address(made, source)
            if shape != 0:
                value = c.PyObject_CallOneArg(shape, value)
            elif owned != 0:
                c.Py_IncRef(value)
            else:
                st_int64(made, source, 0)
        st_int64(answers.LIST_ITEMS, place, value)
        if value == 0:
            c.Py_DecRef(answers)
            return NULL
    return answers


STYLE = any_arguments(
    "run",
    "(output_names, input_feed, run_options=None)",
    "The outputs of these names, or all in the model's order: see InferenceSession.run.",
)

Run = Callable[..., list[Any]]


#: Of an output: where it is in the entry's answer, and what makes ONNX's value of it, if anything.
Order = Sequence[tuple[int, Callable[[Any], Any] | None]]


def open_gate(
    entry: BuiltinFunctionType, general: Run, order: Order, names: Sequence[str]
) -> Run | None:
    """`run` by way of this entry, or None where this interpreter can have no such function.

    What the entry answers in a tuple is the answer, in this order, under these names; an error of
    its, or anything else, is `general`'s business.
    """
    index = {name: float(place) for place, name in enumerate(names)}
    places = np.array([[place, id(shape) if shape else 0] for place, shape in order], np.int64)

    def fill() -> Contents:
        words = {"ENTRY": code_address(entry), "OWN": id(entry.__self__), "FALLBACK": id(general)}
        words |= {"ORDER": places.ctypes.data, "COUNT": len(order), "INDEX": id(index)}
        return Contents(words, (entry, general, order, places, index))

    return native_function(session_gate, fill, STYLE)
