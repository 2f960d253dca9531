"""`Runtime.predict` as machine code, for what most calls are.

`runtime.predict(name, row)` finds the endpoint in the table of routes, sees that the row may go by
the shortest way, calls the plan's entry, counts the call and puts the answers into a dict. Written
in Python that takes several times as long as the entry of a small model, so it is written for the
compiler: a function that reads the runtime's own objects where CPython keeps them, as entries do
(see oven.entry.generator). It serves stacks of answerers with a height of one (see
runtime.service.answerers), and notes rows for shadows of everything. Whatever is not a row (or a
block of few rows, or few documents) for an entry of machine code, and every other endpoint, is
handed to `Runtime._predict` as it came; that method means the same and is the definition. A runtime
has this function once it has the first such entry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from flour.data.batch import DOCUMENT
from oven.entry.builtin import Contents, any_arguments, native_function
from oven.entry.generator import Template
from oven.entry.interpreter import slots
from oven.entry.parts import PARTS
from runtime.routing.mirror import Mirror
from runtime.routing.pairs import Answers
from runtime.service.call import BETWEEN_SECONDS
from runtime.service.entry import InlineEntry, OutputsEntry
from runtime.service.version import ModelVersion

#: The slots of a version's entry that the code reads: see runtime.service.entry.
_SLOTS = (
    *("function", "calls", "outputs", "inline_rows", "inline_characters", "parts", "places"),
    *("vector", "text", "named", "rest", "watched"),
)
#: Words by which arguments are known, as the texts of callers intern them.
_WORDS = (
    *("name", "data", "outputs", "timeout", "priority", "engine", "headers", "tenant"),
    "inline",
)
#: The slots of a mirror, and what copies an array.
_MIRROR_SLOTS, _COPY = ("version", "names", "joined", "waiting", "shed", "most"), np.ndarray.copy
_FLOAT64 = np.dtype(np.float64)
#: The arguments. Where an entry answers on the caller's thread, headers, a tenant, a priority and a
#: deadline that is not close change nothing. A list of outputs is made a tuple before anything is
#: looked up, as that may run anybody's code.
_ARGUMENTS = """\
name, data, asked, owned, bare, fits = 0, 0, 0, 0, True, count <= 2
if count > 0:
    name = ld_int64(arguments, 0)
if count > 1:
    data = ld_int64(arguments, 1)
if names != 0:
    for place in range(names.SIZE):
        word, value = ld_int64(names, TUPLE_ITEMS + place), ld_int64(arguments, count + place)
        if word == table.WORD_DATA and data == 0:
            data = value
        elif word == table.WORD_NAME and name == 0:
            name = value
        elif word == table.WORD_OUTPUTS:
            asked = value
        elif word == table.WORD_HEADERS or word == table.WORD_TENANT:
            bare = bare and value == Py_None
        elif word == table.WORD_TIMEOUT or word == table.WORD_PRIORITY or word == table.WORD_ENGINE:
            if value != Py_None:
                bare, given = False, value.TYPE
                if word == table.WORD_ENGINE:
                    fits = fits and value == table.WORD_INLINE
                elif word == table.WORD_PRIORITY:
                    fits = fits and given == PyLong_Type
                elif given == PyFloat_Type:
                    fits = fits and value.FLOAT_VALUE * 1000000.0 >= float64(table.NEAR)
                else:
                    fits = fits and given == PyLong_Type and PyLong_AsLong(value) > 0
        else:
            fits = False
fits = fits and name != 0 and data != 0
if asked == Py_None:
    asked = 0
if fits and asked != 0:
    bare = False
    if asked.TYPE == PyList_Type:
        owned = PyList_AsTuple(asked)
        if owned == 0:
            return 0
        asked = owned
    if asked.TYPE == PyTuple_Type:
        for place in range(asked.SIZE):
            each = ld_int64(asked, TUPLE_ITEMS + place)
            fits = fits and each.TYPE == PyUnicode_Type
    else:
        fits = fits and asked.TYPE == PyUnicode_Type
"""
#: Those of nearly all calls.
_TWO_ARGUMENTS = """\
name, data, asked, owned, bare, fits = 0, 0, 0, 0, True, count == 2 and names == 0
if fits:
    name, data = ld_int64(arguments, 0), ld_int64(arguments, 1)
"""
#: Whom the call is for, and whether it may go by the shortest way.
_LOOK = """\
def native_predict(self, arguments, count, names):
    table = self.ARRAY_DATA
    pair = stack_words(4)
    known = False
    version, entry, part, call, mirror = 0, 0, 0, 0, 0
    $arguments
    if fits and name.TYPE == PyUnicode_Type:
        version = PyDict_GetItemWithError(table.ROUTES, name)
        if version == 0 and bare:
            mirror = PyDict_GetItemWithError(table.MIRRORS, name)
            if mirror != 0:
                version = ld_int64(mirror, table.AT_VERSION)
    if version != 0:
        $fetched
        entry = ld_int64(version, table.AT_ENTRY)
        part = entry
        call = ld_int64(entry, table.AT_FUNCTION)
        if call.TYPE != PyCFunction_Type:
            version = 0
        elif asked != 0:
            part = PyDict_GetItemWithError(ld_int64(entry, table.AT_PARTS), asked)
            if part != 0:
                call = ld_int64(part, table.AT_FUNCTION)
            if part == 0 or call.TYPE != PyCFunction_Type:
                version = 0
    if owned != 0:
        Py_DecRef(owned)
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
        PyErr_Clear()
        return PyObject_Vectorcall(table.FALLBACK, arguments, count, names)
"""
#: After another plan's call each line of memory is far away and leads to the next: all are asked
#: for at once. Asking is no reading: it does not matter what is there.
_FETCHED = """\
if version != ld_int64(table.LATEST, 0):
    st_int64(table.LATEST, 0, version)
    lines = ld_int64(version, table.LINES)
    where = PyBytes_AsString(lines)
    for place in range(lines.SIZE >> 3):
        fetch(ld_int64(where, place))
"""
#: Count the call, make it, name the answers. What is used is held: the version may go meanwhile.
_ANSWER = """\
    ticket = PyIter_Next(ld_int64(entry, table.AT_CALLS))
    if ticket == 0:
        return 0
    number = PyLong_AsLong(ticket)
    outputs, joined = ld_int64(part, table.AT_OUTPUTS), False
    if mirror != 0:
        outputs, joined = ld_int64(mirror, table.AT_NAMES), ld_int64(mirror, table.AT_JOINED) == yes
        Py_IncRef(mirror)
    Py_IncRef(version)
    if part != entry:
        Py_IncRef(part)
    Py_IncRef(call)
    made = 0
    rest = PyLong_AsLong(ld_int64(entry, table.AT_REST))
    if number & rest == 0 and joined:
        made = PyObject_Vectorcall(table.FALLBACK, arguments, count, names)
    elif number & rest == 0:
        $looked
        if mirror != 0 and made != 0:
            $mirrored
    else:
        answers = PyObject_CallOneArg(call, data)
        if answers != 0:
            both = answers
            if mirror != 0:
                Py_IncRef(both)
            places = ld_int64(part, table.AT_PLACES)
            chosen = places.ARRAY_DATA if part != entry else 0
            $named_answers(outputs)
            if mirror != 0:
                if made != 0:
                    $noted
                Py_DecRef(both)
        elif mirror != 0:
            PyErr_Clear()
            made = PyObject_Vectorcall(table.FALLBACK, arguments, count, names)
        elif ld_int64(entry, table.AT_WATCHED) == Py_True:
            PyErr_Clear()
            $looked
    if mirror != 0:
        Py_DecRef(mirror)
    Py_DecRef(ticket)
    Py_DecRef(call)
    if part != entry:
        Py_DecRef(part)
    Py_DecRef(version)
    return made
"""
#: Copy the row and the answers, as their owner may change them, for whoever asks the shadow; see
#: runtime.routing.mirror. A row that holds more than plain values is copied by Python. Numbers are
#: kept as bytes, which are made in a tenth of the time of an array, and which the garbage collector
#: does not look at.
_NOTED = """\
waiting, row = ld_int64(mirror, table.AT_WAITING), 0
if waiting.TYPE == PyList_Type:
    if waiting.SIZE >= PyLong_AsLong(ld_int64(mirror, table.AT_MOST)):
        turn = PyIter_Next(ld_int64(mirror, table.AT_SHED))
        if turn != 0:
            Py_DecRef(turn)
    else:
        $row_copy
        if row == 0:
            $mirrored
        else:
            $noted_answers
            Py_DecRef(row)
"""
_ROW_COPY = """\
kind, plain = data.TYPE, True
if kind == PyUnicode_Type:
    row = data
    Py_IncRef(row)
elif kind == PyDict_Type:
    st_int64(pair, 0, 0)
    while plain and PyDict_Next(data, pair, pair + 8, pair + 16) != 0:
        item = ld_int64(pair, 2)
        $plain
    if plain:
        row = PyDict_Copy(data)
elif kind == PyArray_Type:
    row = PyObject_CallOneArg(table.COPY, data)
elif kind == PyList_Type:
    items, floats = data.LIST_ITEMS, True
    for place in range(data.SIZE):
        item = ld_int64(items, place)
        floats = floats and item.TYPE == PyFloat_Type
        $plain
    if floats:
        row = PyBytes_FromStringAndSize(0, 8 * data.SIZE)
        if row != 0:
            where = PyBytes_AsString(row)
            for place in range(data.SIZE):
                item = ld_int64(items, place)
                st_float64(where, place, item.FLOAT_VALUE)
    elif plain:
        row = PyList_GetSlice(data, 0, data.SIZE)
elif kind == PyTuple_Type:
    for place in range(data.SIZE):
        item = ld_int64(data, TUPLE_ITEMS + place)
        $plain
    if plain:
        row = data
        Py_IncRef(row)
"""
_PLAIN = """\
type_of = item.TYPE
known = type_of == PyFloat_Type or type_of == PyLong_Type or type_of == PyUnicode_Type
known = known or item == Py_None or type_of == PyDoubleArrType_Type or item == yes
plain = plain and known
"""
_NOTED_ANSWERS = """\
PyList_Append(waiting, row)
for place in range(both.SIZE):
    item = ld_int64(both, TUPLE_ITEMS + place)
    if item.TYPE == PyArray_Type:
        few = item.ARRAY_RANK == 1 and item.ARRAY_DTYPE == table.FLOAT64
        if few and item.ARRAY_FLAGS | BY_COLUMNS == UNTOUCHED:
            size = 8 * ld_int64(item.ARRAY_SHAPE, 0)
            item = PyBytes_FromStringAndSize(item.ARRAY_DATA, size)
        else:
            item = PyObject_CallOneArg(table.COPY, item)
        if item == 0:
            PyErr_Clear()
            item = Py_None
            Py_IncRef(item)
    else:
        Py_IncRef(item)
    PyList_Append(waiting, item)
    Py_DecRef(item)
"""
#: A call that is looked at, or that was refused: Python makes it, under the number that it has.
_LOOKED = """\
st_int64(pair, 0, version)
st_int64(pair, 1, data)
st_int64(pair, 2, ticket)
st_int64(pair, 3, part)
made = PyObject_Vectorcall(table.TIMED, pair, 4, 0)
"""
_MIRRORED = """\
st_int64(pair, 0, mirror)
st_int64(pair, 1, data)
st_int64(pair, 2, made)
turn = PyObject_Vectorcall(table.MIRRORED, pair, 3, 0)
if turn == 0:
    PyErr_Clear()
else:
    Py_DecRef(turn)
"""
#: The answers in the order that was asked for.
_NAMED = PARTS["named_answers"].replace(
    "ITEMS + place))", "ITEMS + (place if chosen == 0 else ld_int64(chosen, place))))"
)
_PARTS = {
    **PARTS,
    "arguments": _ARGUMENTS,
    "fetched": _FETCHED,
    "named_answers": _NAMED,
    "noted": _NOTED,
    "row_copy": _ROW_COPY,
    "plain": _PLAIN,
    "mirrored": _MIRRORED,
    "looked": _LOOKED,
    "noted_answers": _NOTED_ANSWERS,
}
_TEMPLATE = Template("native_predict", _LOOK + _ANSWER, _PARTS)
_SHORT = Template("native_predict", _LOOK + _ANSWER, {**_PARTS, "arguments": _TWO_ARGUMENTS})
_STYLE = any_arguments(
    "predict",
    "(name, data, *, outputs=None, timeout=None, priority=None, engine=None,"
    " headers=None, tenant='')",
    "The outputs by name: see Runtime.predict.",
)


#: `Runtime.predict`, however it is written.
Predict = Callable[..., Answers]


def open_native_predict(
    routes: dict[str, ModelVersion],
    mirrors: dict[str, Mirror],
    general: Predict,
    timed: Callable[[ModelVersion, object, int, OutputsEntry], Answers],
    mirrored: Callable[[Mirror, object, dict[str, Any]], object],
) -> Predict | None:
    """`predict` over these routes, or None where this interpreter can have no such function.

    `general(...)` is called for whatever it does not do itself, and for one call in so many
    `timed(version, row, number, part)`. A name that is no route may have a mirror: what that
    version answers is noted for its shadow, by `mirrored(mirror, row, answers)` where machine code
    cannot.
    """
    own, places = slots(ModelVersion, ("entry", "close_by")), slots(InlineEntry, _SLOTS)
    mirror_places, latest = slots(Mirror, _MIRROR_SLOTS), np.zeros(1, np.int64)
    if own is None or places is None or mirror_places is None:
        return None

    def fill(otherwise: Predict) -> Contents:
        words = {f"AT_{name.upper()}": place for name, place in zip(_SLOTS, places, strict=True)}
        words |= {"ROUTES": id(routes), "DOCUMENT": DOCUMENT, "LATEST": latest.ctypes.data}
        words |= {"FALLBACK": id(otherwise), "TIMED": id(timed), "AT_ENTRY": own[0]}
        noted = zip(_MIRROR_SLOTS, mirror_places, strict=True)
        words |= {f"AT_{name.upper()}": place for name, place in noted}
        words |= {"MIRRORS": id(mirrors), "MIRRORED": id(mirrored), "COPY": id(_COPY)}
        words |= {f"WORD_{each.upper()}": id(sys.intern(each)) for each in _WORDS}
        words |= {"FLOAT64": id(_FLOAT64), "NEAR": round(BETWEEN_SECONDS * 1e6), "LINES": own[1]}
        return Contents(words, (routes, mirrors, otherwise, timed, mirrored, latest))

    found = native_function(_TEMPLATE, partial(fill, general), _STYLE)
    return found and native_function(_SHORT, partial(fill, found), _STYLE)
