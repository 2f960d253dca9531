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
from oven.compiler.words import *
from oven.entry.builtin import Contents, any_arguments, native_function
from oven.entry.generator import CALL_WORDS, NULL, Pointer, c, ld_address
from oven.entry.interpreter import slots
from oven.entry.parts import named_answers
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


def native_predict(self: Pointer, arguments: int, count: int, names: Pointer) -> Pointer:
    """`predict` with a name and data, as nearly all calls are."""
    table, call = self.ARRAY_DATA, Pointer(stack_words(CALL_WORDS))
    name, data = NULL, NULL
    if count == 2 and names == 0:
        name, data = ld_address(arguments, 0), ld_address(arguments, 1)
    call.ARGUMENTS, call.COUNT, call.NAMES = arguments, count, names
    call.NAME, call.DATA, call.OUTPUTS, call.TUPLE, call.BARE = name, data, 0, 0, 1
    return predicted(table, call)


def native_predict_options(self: Pointer, arguments: int, count: int, names: Pointer) -> Pointer:
    """`predict` with any arguments.

    Where an entry answers on the caller's thread, headers, a tenant, a priority and a deadline that
    is not close change nothing. A list of outputs is made a tuple before anything is looked up, as
    that may run anybody's code.
    """
    table, call = self.ARRAY_DATA, Pointer(stack_words(CALL_WORDS))
    call.ARGUMENTS, call.COUNT, call.NAMES = arguments, count, names
    fits, asked = read_options(table, call), call.OUTPUTS
    call.TUPLE = 0
    if fits and asked != 0:
        if asked.TYPE == c.PyList_Type:
            asked = c.PyList_AsTuple(asked)
            if asked == 0:
                return NULL
            call.TUPLE, call.OUTPUTS = asked, asked
        fits = are_names(table, asked)
    if not fits:
        call.NAME = 0
    return predicted(table, call)


def are_names(table: Pointer, asked: Pointer) -> bool:
    """True for a string, and for a tuple of them."""
    fits = asked.TYPE == c.PyUnicode_Type
    if asked.TYPE == c.PyTuple_Type:
        fits = True
        for place in range(asked.SIZE):
            fits = fits and ld_address(asked, c.TUPLE_ITEMS + place).TYPE == c.PyUnicode_Type
    return fits


def read_options(table: Pointer, call: Pointer) -> bool:
    """Read the name, the data and the outputs; False if something is missing or not known here."""
    name, data, asked, bare, fits = NULL, NULL, NULL, True, call.COUNT <= 2
    if call.COUNT > 0:
        name = ld_address(call.ARGUMENTS, 0)
    if call.COUNT > 1:
        data = ld_address(call.ARGUMENTS, 1)
    if call.NAMES != 0:
        for place in range(call.NAMES.SIZE):
            word = ld_address(call.NAMES, c.TUPLE_ITEMS + place)
            value = ld_address(call.ARGUMENTS, call.COUNT + place)
            if word == table.WORD_DATA and data == 0:
                data = value
            elif word == table.WORD_NAME and name == 0:
                name = value
            elif word == table.WORD_OUTPUTS:
                asked = value
            else:
                bare = bare and value == c.Py_None
                fits = fits and is_option(table, word, value)
    if asked == c.Py_None:
        asked = NULL
    call.NAME, call.DATA, call.OUTPUTS = name, data, asked
    call.BARE = int64(bare and asked == 0)
    return fits and name != 0 and data != 0


def is_option(table: Pointer, word: Pointer, value: Pointer) -> bool:
    """True if an option changes nothing here: a deadline that is far, a priority, this thread."""
    if word == table.WORD_HEADERS or word == table.WORD_TENANT:
        return True
    if word == table.WORD_TIMEOUT or word == table.WORD_PRIORITY or word == table.WORD_ENGINE:
        if value == c.Py_None:
            return True
        given = value.TYPE
        if word == table.WORD_ENGINE:
            return value == table.WORD_INLINE
        if word == table.WORD_PRIORITY:
            return given == c.PyLong_Type
        if given == c.PyFloat_Type:
            return value.FLOAT_VALUE * 1000000.0 >= float64(table.NEAR)
        return given == c.PyLong_Type and c.PyLong_AsLong(value) > 0
    return False


def predicted(table: Pointer, call: Pointer) -> Pointer:
    """The answers by the shortest way, or by Python's."""
    version, mirror, name, asked = NULL, NULL, call.NAME, call.OUTPUTS
    if name != 0 and name.TYPE == c.PyUnicode_Type:
        version = c.PyDict_GetItemWithError(table.ROUTES, name)
        if version == 0 and call.BARE != 0:
            mirror = c.PyDict_GetItemWithError(table.MIRRORS, name)
            if mirror != 0:
                version = ld_address(mirror, table.AT_VERSION)
    entry, part, function, known = NULL, NULL, NULL, version != 0
    if known:
        fetch_lines(table, version)
        entry = ld_address(version, table.AT_ENTRY)
        part = entry
        function = ld_address(entry, table.AT_FUNCTION)
        known = function.TYPE == c.PyCFunction_Type
        if known and asked != 0:
            part = c.PyDict_GetItemWithError(ld_address(entry, table.AT_PARTS), asked)
            known = part != 0
            if known:
                function = ld_address(part, table.AT_FUNCTION)
                known = function.TYPE == c.PyCFunction_Type
    if call.TUPLE != 0:
        c.Py_DecRef(call.TUPLE)
    if known:
        known = is_inline(table, entry, call.DATA)
    if not known:
        c.PyErr_Clear()
        return by_python(table, call)
    call.VERSION, call.ENTRY, call.PART = version, entry, part
    call.FUNCTION, call.MIRROR = function, mirror
    return answered(table, call)


def by_python(table: Pointer, call: Pointer) -> Pointer:
    """The answers of Python's `predict`."""
    return c.PyObject_Vectorcall(table.FALLBACK, call.ARGUMENTS, call.COUNT, call.NAMES)


def fetch_lines(table: Pointer, version: Pointer) -> None:
    """Ask for the memory that a call of a version reads.

    After another plan's call each line is far away and leads to the next: all are asked for at
    once. Asking is no reading: it does not matter what is there.
    """
    if version != ld_int64(table.LATEST, 0):
        st_int64(table.LATEST, 0, version)
        lines = ld_address(version, table.LINES)
        where = c.PyBytes_AsString(lines)
        for place in range(lines.SIZE >> 3):
            fetch(ld_int64(where, place))


def is_inline(table: Pointer, entry: Pointer, data: Pointer) -> bool:
    """True if data is a row, a block of few rows, or few documents, as far as a look tells."""
    kind, known, first = data.TYPE, False, NULL
    by_name, text = ld_address(entry, table.AT_NAMED) == c.Py_True, table.AT_TEXT
    if kind == c.PyUnicode_Type:
        known = ld_address(entry, text) == c.Py_True
    elif kind == c.PyDict_Type:
        pair = stack_words(3)
        st_int64(pair, 0, 0)
        if c.PyDict_Next(data, pair, pair + 8, pair + 16) != 0:
            first = ld_address(pair, 2)
            if first.TYPE == c.PyArray_Type:
                dimensions = first.ARRAY_RANK
                if dimensions == 2 or (dimensions == 1 and by_name):
                    few = c.PyLong_AsLong(ld_int64(entry, table.AT_INLINE_ROWS))
                    known = ld_int64(first.ARRAY_SHAPE, 0) <= max(few, 1)
                first = NULL
            elif not by_name:
                first = NULL
    elif kind == c.PyList_Type and ld_address(entry, text) == c.Py_True:
        known = is_few(table, entry, data)
    elif ld_address(entry, table.AT_VECTOR) == c.Py_True:
        if kind == c.PyArray_Type:
            dimensions = data.ARRAY_RANK
            known = dimensions == 1
            if dimensions == 2:
                few = c.PyLong_AsLong(ld_int64(entry, table.AT_INLINE_ROWS))
                known = ld_int64(data.ARRAY_SHAPE, 0) <= few
        elif kind == c.PyList_Type and data.SIZE > 0:
            first = ld_address(data.LIST_ITEMS, 0)
        elif kind == c.PyTuple_Type and data.SIZE > 0:
            first = ld_address(data, c.TUPLE_ITEMS)
    if first != 0:
        kind = first.TYPE
        known = kind == c.PyFloat_Type or kind == c.PyLong_Type
        if by_name and not known:
            known = kind == c.PyUnicode_Type or first == c.Py_None
            known = known or kind == c.PyDoubleArrType_Type
    return known


def is_few(table: Pointer, entry: Pointer, data: Pointer) -> bool:
    """True if a list has few documents, which are short."""
    few = c.PyLong_AsLong(ld_int64(entry, table.AT_INLINE_CHARACTERS))
    many, items = data.SIZE, data.LIST_ITEMS
    size = int64(table.DOCUMENT * many)
    known = many > 0 and size <= few
    if known:
        for place in range(many):
            document = ld_address(items, place)
            if document.TYPE != c.PyUnicode_Type:
                known = False
                break
            size += document.STRING_LENGTH
    return known and size <= few


def answered(table: Pointer, call: Pointer) -> Pointer:
    """Count the call, make it, name the answers. All that is used is held."""
    entry, part, mirror = call.ENTRY, call.PART, call.MIRROR
    ticket = c.PyIter_Next(ld_int64(entry, table.AT_CALLS))
    if ticket == 0:
        return NULL
    call.TICKET = ticket
    c.Py_IncRef(call.VERSION)
    if part != entry:
        c.Py_IncRef(part)
    c.Py_IncRef(call.FUNCTION)
    looked = c.PyLong_AsLong(ticket) & c.PyLong_AsLong(ld_int64(entry, table.AT_REST)) == 0
    made, watched = NULL, ld_address(entry, table.AT_WATCHED) == c.Py_True
    if mirror != 0:
        c.Py_IncRef(mirror)
    answers = NULL
    if not looked:
        answers = c.PyObject_CallOneArg(call.FUNCTION, call.DATA)
    if answers != 0 and mirror != 0:
        made = noted_answers(table, call, answers)
    elif answers != 0:
        order = int64(0)
        if part != entry:
            order = ld_address(part, table.AT_PLACES).ARRAY_DATA
        made = named_answers(table, answers, ld_address(part, table.AT_OUTPUTS), order)
    elif mirror != 0 and (not looked or ld_address(mirror, table.AT_JOINED) == c.Py_True):
        c.PyErr_Clear()
        made = by_python(table, call)
    elif looked or watched:
        c.PyErr_Clear()
        made = timed(table, call)
        if made != 0 and mirror != 0:
            tell_mirror(table, call, made)
    if mirror != 0:
        c.Py_DecRef(mirror)
    c.Py_DecRef(ticket)
    c.Py_DecRef(call.FUNCTION)
    if part != entry:
        c.Py_DecRef(part)
    c.Py_DecRef(call.VERSION)
    return made


def timed(table: Pointer, call: Pointer) -> Pointer:
    """A call that is looked at, or was refused: Python makes it, under the number that it has."""
    given = stack_words(4)
    st_int64(given, 0, call.VERSION)
    st_int64(given, 1, call.DATA)
    st_int64(given, 2, call.TICKET)
    st_int64(given, 3, call.PART)
    return c.PyObject_Vectorcall(table.TIMED, given, 4, 0)


# --- notes for a shadow: see runtime.routing.mirror -----------------------------------------------


def noted_answers(table: Pointer, call: Pointer, answers: Pointer) -> Pointer:
    """The answers by name, noted with the row: copies of both, as their owner may change them."""
    mirror = call.MIRROR
    c.Py_IncRef(answers)
    made = named_answers(table, answers, ld_address(mirror, table.AT_NAMES), 0)
    waiting = ld_address(mirror, table.AT_WAITING)
    if made != 0 and waiting.TYPE == c.PyList_Type:
        if waiting.SIZE >= c.PyLong_AsLong(ld_int64(mirror, table.AT_MOST)):
            turn = c.PyIter_Next(ld_int64(mirror, table.AT_SHED))
            if turn != 0:
                c.Py_DecRef(turn)
        else:
            row = row_copy(table, call.DATA)
            if row == 0:
                tell_mirror(table, call, made)
            else:
                c.PyList_Append(waiting, row)
                for place in range(answers.SIZE):
                    item = answer_copy(table, ld_address(answers, c.TUPLE_ITEMS + place))
                    c.PyList_Append(waiting, item)
                    c.Py_DecRef(item)
                c.Py_DecRef(row)
    c.Py_DecRef(answers)
    return made


def tell_mirror(table: Pointer, call: Pointer, made: Pointer) -> None:
    """Have Python note the row, which it copies whatever it holds."""
    given = stack_words(3)
    st_int64(given, 0, call.MIRROR)
    st_int64(given, 1, call.DATA)
    st_int64(given, 2, made)
    turn = c.PyObject_Vectorcall(table.MIRRORED, given, 3, 0)
    if turn == 0:
        c.PyErr_Clear()
    else:
        c.Py_DecRef(turn)


def row_copy(table: Pointer, data: Pointer) -> Pointer:
    """A copy of a row; NULL if it holds more than plain values.

    Numbers are kept as bytes, which are made in a tenth of the time of an array, and which the
    garbage collector does not look at.
    """
    kind, plain, row = data.TYPE, True, NULL
    if kind == c.PyUnicode_Type:
        row = data
        c.Py_IncRef(row)
    elif kind == c.PyDict_Type:
        pair = stack_words(3)
        st_int64(pair, 0, 0)
        while plain and c.PyDict_Next(data, pair, pair + 8, pair + 16) != 0:
            plain = is_plain(table, ld_address(pair, 2))
        if plain:
            row = c.PyDict_Copy(data)
    elif kind == c.PyArray_Type:
        row = c.PyObject_CallOneArg(table.COPY, data)
    elif kind == c.PyList_Type:
        items, floats = data.LIST_ITEMS, True
        for place in range(data.SIZE):
            item = ld_address(items, place)
            floats = floats and item.TYPE == c.PyFloat_Type
            plain = plain and is_plain(table, item)
        if floats:
            row = c.PyBytes_FromStringAndSize(0, 8 * data.SIZE)
            if row != 0:
                where = c.PyBytes_AsString(row)
                for place in range(data.SIZE):
                    st_float64(where, place, ld_address(items, place).FLOAT_VALUE)
        elif plain:
            row = c.PyList_GetSlice(data, 0, data.SIZE)
    elif kind == c.PyTuple_Type:
        for place in range(data.SIZE):
            plain = plain and is_plain(table, ld_address(data, c.TUPLE_ITEMS + place))
        if plain:
            row = data
            c.Py_IncRef(row)
    return row


def is_plain(table: Pointer, item: Pointer) -> bool:
    """True for a value that nobody can change."""
    kind = item.TYPE
    known = kind == c.PyFloat_Type or kind == c.PyLong_Type or kind == c.PyUnicode_Type
    return known or item == c.Py_None or kind == c.PyDoubleArrType_Type or item == c.Py_True


def answer_copy(table: Pointer, item: Pointer) -> Pointer:
    """A copy of one answer, or None where there is no memory for it."""
    made = item
    if item.TYPE == c.PyArray_Type:
        few = item.ARRAY_RANK == 1 and item.ARRAY_DTYPE == table.FLOAT64
        if few and item.ARRAY_FLAGS | c.BY_COLUMNS == c.UNTOUCHED:
            size = 8 * ld_int64(item.ARRAY_SHAPE, 0)
            made = c.PyBytes_FromStringAndSize(item.ARRAY_DATA, size)
        else:
            made = c.PyObject_CallOneArg(table.COPY, item)
        if made == 0:
            c.PyErr_Clear()
            made = c.Py_None
            c.Py_IncRef(made)
    else:
        c.Py_IncRef(made)
    return made


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

    found = native_function(native_predict_options, partial(fill, general), _STYLE)
    return found and native_function(native_predict, partial(fill, found), _STYLE)
