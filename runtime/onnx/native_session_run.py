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

from oven.entry.builtin import Contents, any_arguments, code_address, native_function
from oven.entry.generator import Template
from oven.entry.parts import PARTS

# A tuple fresh from the entry has one reference: its answers move to the list, and it is freed. Of
# some outputs each may be asked for twice, so they are shared. Names are held in a tuple of their
# own, as another thread may change the caller's list.
_CODE = """\
def session_gate(self, arguments, count, names):
    table = self.ARRAY_DATA
    known, made, answers, owned, many = False, 0, 0, 0, table.COUNT
    if count == 2 and names == 0:
        asked, feed = ld_int64(arguments, 0), ld_int64(arguments, 1)
        known = asked == Py_None and feed.TYPE == PyDict_Type
        if asked.TYPE == PyList_Type and feed.TYPE == PyDict_Type:
            owned = PyList_AsTuple(asked)
            if owned == 0:
                return 0
            many = owned.SIZE
            known = many > 0
            for place in range(many):
                each = ld_int64(owned, TUPLE_ITEMS + place)
                known = known and each.TYPE == PyUnicode_Type
        if known:
            made = c_call_2(table.ENTRY, table.OWN, feed)
    if made != 0:
        known = made.TYPE == PyTuple_Type and made.REFERENCES == 1
        if known:
            answers = PyList_New(many)
            known = answers != 0
        if known:
            items = answers.LIST_ITEMS
            for place in range(many):
                at, value = place, 0
                if owned != 0:
                    hit = PyDict_GetItemWithError(table.INDEX, ld_int64(owned, TUPLE_ITEMS + place))
                    known = hit != 0
                    if known:
                        at = int64(hit.FLOAT_VALUE)
                if known:
                    source = TUPLE_ITEMS + ldc_int64(table.ORDER, 2 * at)
                    shape = ldc_int64(table.ORDER, 2 * at + 1)
                    value = ld_int64(made, source)
                    if shape != 0:
                        value = PyObject_CallOneArg(shape, value)
                    elif owned != 0:
                        Py_IncRef(value)
                    else:
                        st_int64(made, source, 0)
                st_int64(items, place, value)
                if value == 0:
                    known = False
                    break
        Py_DecRef(made)
        if known:
            if owned != 0:
                Py_DecRef(owned)
            return answers
        if answers != 0:
            Py_DecRef(answers)
    if owned != 0:
        Py_DecRef(owned)
    PyErr_Clear()
    return PyObject_Vectorcall(table.FALLBACK, arguments, count, names)
"""
GATE = Template("session_gate", _CODE, PARTS)
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

    return native_function(GATE, fill, STYLE)
