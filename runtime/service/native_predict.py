"""`Runtime.predict` as machine code, for what most calls are.

`runtime.predict(name, row)` finds the endpoint in the table of routes, sees that the row may go by
the shortest way, calls the plan's entry, counts the call and puts the answers into a dict. Written
in Python that takes several times as long as the entry of a small model, so it is written for the
compiler: a function that reads the runtime's own objects where CPython keeps them, as entries do
(see oven.entry.generator). Whatever is not a row (or a block of few rows, or few documents) for
an entry of machine code is handed to `Runtime.predict` as it came; that method means the same and
is the definition. A runtime has this function once it has the first such entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flour.data.batch import DOCUMENT
from oven.entry.builtin import Contents, any_arguments, native_function
from oven.entry.generator import Template
from oven.entry.interpreter import slots
from oven.entry.parts import PARTS
from runtime.service.entry import SAMPLE, InlineEntry
from runtime.service.version import ModelVersion

#: The slots of a version's entry that the code reads: see runtime.service.entry.
_SLOTS = (
    *("function", "calls", "outputs", "inline_rows", "inline_characters"),
    *("vector", "text", "named", "coarse_timing"),
)
#: Whom the call is for, and whether it may go by the shortest way.
_LOOK = """\
def native_predict(self, arguments, count, names):
    table = self.ARRAY_DATA
    pair = stack_words(3)
    known = False
    version, entry, call, data = 0, 0, 0, 0
    if count == 2 and names == 0:
        name, data = ld_int64(arguments, 0), ld_int64(arguments, 1)
        if name.TYPE == PyUnicode_Type:
            version = PyDict_GetItemWithError(table.ROUTES, name)
    if version != 0:
        entry = ld_int64(version, table.AT_ENTRY)
        call = ld_int64(entry, table.AT_FUNCTION)
        if call.TYPE != PyCFunction_Type:
            version = 0
    if version != 0:
        kind, yes = data.TYPE, Py_True
        named = ld_int64(entry, table.AT_NAMED) == yes
        first, text_at = 0, table.AT_TEXT
        if kind == PyUnicode_Type:
            known = ld_int64(entry, text_at) == yes
        elif kind == PyDict_Type:
            st_int64(pair, 0, 0)
            if PyDict_Next(data, pair, pair + 8, pair + 16) != 0:
                first = ld_int64(pair, 2)
                if first.TYPE == PyArray_Type:
                    dimensions = first.ARRAY_RANK
                    if dimensions == 2 or (dimensions == 1 and named):
                        few = PyLong_AsLong(ld_int64(entry, table.AT_INLINE_ROWS))
                        known = ld_int64(first.ARRAY_SHAPE, 0) <= max(few, 1)
                    first = 0
                elif not named:
                    first = 0
        elif kind == PyList_Type and ld_int64(entry, text_at) == yes:
            few = PyLong_AsLong(ld_int64(entry, table.AT_INLINE_CHARACTERS))
            many, items = data.SIZE, data.LIST_ITEMS
            size = table.DOCUMENT * many
            known = many > 0 and size <= few
            if known:
                for place in range(many):
                    document = ld_int64(items, place)
                    if document.TYPE != PyUnicode_Type:
                        known = False
                        break
                    size += document.STRING_LENGTH
            known = known and size <= few
        elif ld_int64(entry, table.AT_VECTOR) == yes:
            if kind == PyArray_Type:
                dimensions = data.ARRAY_RANK
                known = dimensions == 1
                if dimensions == 2:
                    few = PyLong_AsLong(ld_int64(entry, table.AT_INLINE_ROWS))
                    known = ld_int64(data.ARRAY_SHAPE, 0) <= few
            elif kind == PyList_Type:
                if data.SIZE > 0:
                    first = ld_int64(data.LIST_ITEMS, 0)
            elif kind == PyTuple_Type:
                if data.SIZE > 0:
                    first = ld_int64(data, TUPLE_ITEMS)
        if first != 0:
            kind = first.TYPE
            known = kind == PyFloat_Type or kind == PyLong_Type
            if named and not known:
                known = kind == PyUnicode_Type or first == Py_None
                known = known or kind == PyDoubleArrType_Type
    if not known:
        return PyObject_Vectorcall(table.FALLBACK, arguments, count, names)
"""
#: Count the call, make it, name the answers. What is used is held: the version may go meanwhile.
_ANSWER = """\
    turn = PyIter_Next(ld_int64(entry, table.AT_CALLS))
    if turn == 0:
        return 0
    number = PyLong_AsLong(turn)
    Py_DecRef(turn)
    outputs = ld_int64(entry, table.AT_OUTPUTS)
    Py_IncRef(version)
    Py_IncRef(call)
    made = 0
    rest = table.RARE
    if ld_int64(entry, table.AT_COARSE_TIMING) == Py_True:
        rest = table.REST
    if number & rest == 0:
        st_int64(pair, 0, version)
        st_int64(pair, 1, data)
        made = PyObject_Vectorcall(table.TIMED, pair, 2, 0)
    else:
        answers = PyObject_CallOneArg(call, data)
        if answers != 0:
            $named_answers(outputs)
    Py_DecRef(call)
    Py_DecRef(version)
    return made
"""
_TEMPLATE = Template("native_predict", _LOOK + _ANSWER, PARTS)
_STYLE = any_arguments(
    "predict",
    "(name, data, *, outputs=None, timeout=None, priority=None, engine=None,"
    " headers=None, tenant='')",
    "The outputs by name: see Runtime.predict.",
)

#: A call that takes less time than a look at the clock is timed once in so many: a look among a
#: hundred calls would be what the slowest of them are known by.
RARE = 1024

Predict = Callable[..., dict[str, Any]]


def open_native_predict(
    routes: dict[str, ModelVersion], general: Predict, timed: Predict
) -> Predict | None:
    """`predict` over these routes, or None where this interpreter can have no such function.

    `general(...)` is called for whatever it does not do itself, and for one call in so many
    `timed(version, row)`.
    """
    at_entry, places = slots(ModelVersion, ("entry",)), slots(InlineEntry, _SLOTS)
    if at_entry is None or places is None:
        return None

    def fill() -> Contents:
        words = {f"AT_{name.upper()}": place for name, place in zip(_SLOTS, places, strict=True)}
        words |= {"ROUTES": id(routes), "REST": SAMPLE - 1, "RARE": RARE - 1, "DOCUMENT": DOCUMENT}
        words |= {"FALLBACK": id(general), "TIMED": id(timed), "AT_ENTRY": at_entry[0]}
        return Contents(words, (routes, general, timed))

    return native_function(_TEMPLATE, fill, _STYLE)
