"""`InferenceSession.run` as machine code, for what most calls are: all outputs, for a dict.

The plan's entry answers in half a microsecond, and what Python needs to come to it would be as much
again. The gate takes `run(None, feed)` to the entry and makes a list of its answers; whatever else
the call says, and whatever the entry does not answer, goes to the method written in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from oven.entry.builtin import Contents, any_arguments, code_address, native_function
from oven.entry.generator import Template
from oven.entry.parts import PARTS

# A tuple fresh from the entry is nobody else's: its answers move to the list, and it goes.
_CODE = """\
def session_gate(self, arguments, count, names):
    table = self.ARRAY_DATA
    known, made, answers = False, 0, 0
    if count == 2 and names == 0:
        feed = ld_int64(arguments, 1)
        known = ld_int64(arguments, 0) == Py_None and feed.TYPE == PyDict_Type
        if known:
            made = c_call_2(table.ENTRY, table.OWN, feed)
    if made != 0:
        known = made.TYPE == PyTuple_Type and made.REFERENCES == 1
        if known:
            answers = PyList_New(table.COUNT)
            known = answers != 0
        if known:
            items = answers.LIST_ITEMS
            for place in range(table.COUNT):
                source = TUPLE_ITEMS + ldc_int64(table.ORDER, 2 * place)
                shape = ldc_int64(table.ORDER, 2 * place + 1)
                value = ld_int64(made, source)
                if shape == 0:
                    st_int64(made, source, 0)
                else:
                    value = PyObject_CallOneArg(shape, value)
                st_int64(items, place, value)
                if value == 0:
                    known = False
                    break
        Py_DecRef(made)
        if known:
            return answers
        if answers != 0:
            Py_DecRef(answers)
    PyErr_Clear()
    return PyObject_Vectorcall(table.FALLBACK, arguments, count, names)
"""
_TEMPLATE = Template("session_gate", _CODE, PARTS)
_STYLE = any_arguments(
    "run",
    "(output_names, input_feed, run_options=None)",
    "The outputs of these names, or all in the model's order: see InferenceSession.run.",
)

Run = Callable[..., list[Any]]


#: Of an output: where it is in the entry's answer, and what makes ONNX's value of it, if anything.
Order = Sequence[tuple[int, Callable[[Any], Any] | None]]


def open_gate(entry: BuiltinFunctionType, general: Run, order: Order) -> Run | None:
    """`run` by way of this entry, or None where this interpreter can have no such function.

    What the entry answers in a tuple is the answer, in this order; an error of its, or anything
    else, is `general`'s business.
    """
    places = np.array([[place, id(shape) if shape else 0] for place, shape in order], np.int64)

    def fill() -> Contents:
        words = {"ENTRY": code_address(entry), "OWN": id(entry.__self__), "FALLBACK": id(general)}
        words |= {"ORDER": places.ctypes.data, "COUNT": len(order)}
        return Contents(words, (entry, general, order, places))

    return native_function(_TEMPLATE, fill, _STYLE)
