"""The forms in which data comes in, one entry for each: how it is looked at, and how it is read.

vectors     a row of numbers as an array, list or tuple; a block of them as an array
documents   a string; a list, tuple or array of strings; one of these in a dict under its one name
records     a row by name (a dict) or by position (a list or tuple), a list of rows, a dict of lists
columns     a dict with an array for every input, or for every column of a record; one array alone
named       a dict of one array, which goes to the entry for vectors as it is
packed      what columns take, laid out as rows only, for who runs them in chunks

All but vectors and named lay rows out side by side in scratch memory: a row's cells, texts as UTF-8
behind all rows, rooms (memory whose size depends on the longest text), numbers of strings. What
coercion would have to think about (numbers beyond 2**53 where they may be rounded twice,
subclasses, other keys, other dtypes, half a pair of surrogates) goes to Python.

Making an answer may run anybody's code, which may change a list or dict under our hands. So what
the argument is, is looked at again once all containers are made.
"""

from __future__ import annotations

import math

from oven.compiler.words import *
from oven.entry.generator import (
    CALL_WORDS,
    EXACT,
    FIELD_ROW,
    NULL,
    Form,
    Pointer,
    Read,
    c,
    ld_address,
)
from oven.entry.parts import (
    END,
    begin,
    convert,
    finished,
    items_of,
    next_field,
    out_of_memory,
    ran,
    refused,
    same_dtype,
    share_memory,
    store_word,
    take_memory,
    take_rows_memory,
    text_cell,
)

# --- vectors --------------------------------------------------------------------------------------


def vectors_entry(self: Pointer, argument: Pointer) -> Pointer:
    """A row of numbers as an array, list or tuple; a block of them as an array."""
    table, call = self.ARRAY_DATA, Pointer(stack_words(CALL_WORDS))
    rows, dimensions, data, stride, items = 1, 1, 0, 0, NULL
    is_array, fits = argument.TYPE == c.PyArray_Type, False
    if is_array:
        dimensions = argument.ARRAY_RANK
        fits = same_dtype(argument.ARRAY_DTYPE, table.DTYPE)
        fits = fits and argument.ARRAY_FLAGS & c.ALIGNED != 0
        fits = fits and (dimensions == 1 or dimensions == 2)
        if fits:
            shape, strides = argument.ARRAY_SHAPE, argument.ARRAY_STRIDES
            side = ld_int64(strides, dimensions - 1) == table.ITEM_BYTES
            fits = ld_int64(shape, dimensions - 1) == table.WIDTH and (side or table.WIDTH < 2)
            data, stride = argument.ARRAY_DATA, ld_int64(strides, 0)
            if dimensions == 2:
                rows = ld_int64(shape, 0)
    else:
        items, fits = items_of(table, argument, table.WIDTH)
    if not fits:
        other = False
        if is_array and table.OTHER != 0:
            other = same_dtype(argument.ARRAY_DTYPE, table.OTHER_DTYPE)
        return c.PyObject_CallOneArg(table.OTHER if other else table.FALLBACK, argument)
    if not begin(table, call, argument, rows, dimensions):
        return NULL
    share_memory(table, call)
    release = int64(rows >= table.RELEASE_ROWS)
    texts = table.TEXTS if dimensions == 2 else 0
    own = release != 0 or texts != 0
    if own and not take_memory(table, call, table.SCRATCH_BYTES + 8 * rows * texts):
        return out_of_memory(table, call)
    if items != 0:
        data = call.SCRATCH + table.ROW
        if not read_numbers(table, argument, data):
            return refused(table, call)
    st_int64(call.SCRATCH, 0, data)
    st_int64(call.SCRATCH, 1, stride)
    return ran(table, call, call.SCRATCH + table.SCRATCH_BYTES, release)


def read_numbers(table: Pointer, argument: Pointer, data: int) -> bool:
    """Write the numbers of a list or tuple; False if something else is in it."""
    double = table.ITEM_BYTES == 8
    items, fits = items_of(table, argument, table.WIDTH)
    for j in range(table.WIDTH):
        if not fits:
            break
        item = ld_address(items, j)
        kind, value = item.TYPE, math.nan
        if kind == c.PyFloat_Type:
            value = item.FLOAT_VALUE
        elif kind == c.PyLong_Type:
            value = c.PyLong_AsDouble(item)
            if value == -1.0 and c.PyErr_Occurred() != 0:
                c.PyErr_Clear()
                fits = False
        elif item != c.Py_None:
            fits = False
        if double:
            st_float64(data, j, value)
        else:
            st_float32(data, j, float32(value))
    return fits


# --- documents ------------------------------------------------------------------------------------


def documents_entry(self: Pointer, argument: Pointer) -> Pointer:
    """A string; a list, tuple or array of strings; one of these in a dict under its one name."""
    table, call = self.ARRAY_DATA, Pointer(stack_words(CALL_WORDS))
    rows, dimensions, _, _ = texts_in(table, argument)
    if rows == 0:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    if not begin(table, call, argument, rows, dimensions):
        return NULL
    many, axes, value, items = texts_in(table, argument)
    if not take_rows_memory(table, call):
        return out_of_memory(table, call)
    fits, cell = many == rows and axes == dimensions, call.SCRATCH + table.SCRATCH_BYTES
    for i in range(rows):
        if not fits:
            break
        item = value
        if items != 0:
            item = ld_address(items, i)
        fits = item != 0
        if fits:
            fits = text_cell(table, call, item, cell + i * table.ROW_BYTES, Read.TEXT, 0)
    if not fits or call.LONGEST > table.LONGEST:
        return refused(table, call)
    return finished(table, call, 0)


def texts_in(table: Pointer, argument: Pointer) -> tuple[int, int, Pointer, Pointer]:
    """How many documents there are, of how many dimensions; the one, and where several are."""
    value, bare = argument, table.BARE != 0
    many, axes, items = int64(0), 2, NULL
    if argument.TYPE == c.PyDict_Type:
        value = NULL
        if c.PyDict_Size(argument) == 1:
            value, bare = c.PyDict_GetItemWithError(argument, table.LABEL), True
            if value == 0:
                c.PyErr_Clear()
    if value != 0 and bare:
        kind = value.TYPE
        if kind == c.PyUnicode_Type:
            many, axes = 1, 1
        elif kind == c.PyList_Type:
            many, items = value.SIZE, value.LIST_ITEMS
        elif kind == c.PyTuple_Type:
            many, items = value.SIZE, value + 8 * c.TUPLE_ITEMS
        elif kind == c.PyArray_Type:
            bare = value.ARRAY_RANK == 1 and value.ARRAY_DTYPE == table.OBJECT
            if bare and ld_int64(value.ARRAY_STRIDES, 0) == 8:
                many, items = ld_int64(value.ARRAY_SHAPE, 0), value.ARRAY_DATA
    return many, axes, value, items


# --- records --------------------------------------------------------------------------------------


def records_entry(self: Pointer, argument: Pointer) -> Pointer:
    """A row by name or by position, a list of rows, a dict of lists."""
    table, call = self.ARRAY_DATA, Pointer(stack_words(CALL_WORDS))
    pair = stack_words(3)
    if argument.TYPE == c.PyArray_Type:
        return c.PyObject_CallOneArg(table.ARRAYS, argument)
    form, rows, dimensions, _ = rows_in(table, argument, pair)
    if rows == 0:
        other = table.COLUMNS if form == Form.ROW_BY_NAME else table.FALLBACK
        return c.PyObject_CallOneArg(other, argument)
    if not begin(table, call, argument, rows, dimensions):
        return NULL
    now, many, axes, outer = rows_in(table, argument, pair)
    if not take_rows_memory(table, call):
        return out_of_memory(table, call)
    start = call.SCRATCH + table.SCRATCH_BYTES
    fits = now == form and many == rows and axes == dimensions
    for i in range(rows):
        if not fits:
            break
        record = argument
        if form == Form.ROWS_BY_NAME or form == Form.LISTS:
            record = ld_address(outer, i)
        fits = read_record(table, call, record, form, i, start + i * table.ROW_BYTES, pair)
    if not fits or call.LONGEST > table.LONGEST:
        return refused(table, call)
    convert(table, start, rows)
    return finished(table, call, 0)


def rows_in(table: Pointer, argument: Pointer, pair: int) -> tuple[int, int, int, Pointer]:
    """The form of the argument, how many rows, of how many dimensions, and where several are."""
    form, many, axes, outer = int64(Form.NOTHING), int64(0), int64(0), NULL
    kind = argument.TYPE
    if kind == c.PyDict_Type:
        st_int64(pair, 0, 0)
        if c.PyDict_Next(argument, pair, pair + 8, pair + 16) != 0:
            form, many, axes = Form.ROW_BY_NAME, 1, 1
            item = ld_address(pair, 2)
            kind = item.TYPE
            if kind == c.PyList_Type or kind == c.PyTuple_Type:
                form, many, axes = Form.COLUMNS, item.SIZE, 2
            elif kind == c.PyArray_Type:
                many = 0
    elif kind == c.PyList_Type or kind == c.PyTuple_Type:
        outer = argument.LIST_ITEMS if kind == c.PyList_Type else argument + 8 * c.TUPLE_ITEMS
        if argument.SIZE > 0 and table.BY_POSITION != 0:
            kind = ld_address(outer, 0).TYPE
            form, many, axes = Form.LISTED, 1, 1
            if kind == c.PyDict_Type:
                form, many, axes = Form.ROWS_BY_NAME, argument.SIZE, 2
            elif kind == c.PyList_Type or kind == c.PyTuple_Type:
                form, many, axes = Form.LISTS, argument.SIZE, 2
    return form, many, axes, outer


def read_record(
    table: Pointer, call: Pointer, record: Pointer, form: int, i: int, row: int, pair: int
) -> bool:
    """Write a row; False if it is none."""
    items, fits, found, at = NULL, True, int64(0), int64(0)
    if form <= Form.ROWS_BY_NAME:
        fits = record.TYPE == c.PyDict_Type
    else:
        items, fits = items_of(table, record, table.FIELDS)
    st_int64(pair, 0, 0)
    while fits:
        place, item = at, NULL
        if items != 0:
            if at == table.FIELDS:
                break
            item = ld_address(items, at)
        else:
            place, item = next_field(table, record, pair, at)
            if place < 0:
                fits = place == END
                break
            if form == Form.COLUMNS:
                column, fits = items_of(table, item, call.ROWS)
                if not fits:
                    break
                item = ld_address(column, i)
        at = place + 1
        field = table.FIELD_TABLE + FIELD_ROW * place
        read, cell = field.READ, row + field.OFFSET
        found += field.NEEDED
        if read == Read.STRING or read == Read.TEXT:
            fits = text_cell(table, call, item, cell, read, field.LOW)
        else:
            fits = number_cell(table, item, field, cell, form)
    return fits and found == table.REQUIRED


def number_cell(table: Pointer, item: Pointer, field: Pointer, cell: int, form: int) -> bool:
    """Write a number as coercion means it: a float, or a whole one in the bounds of its field."""
    kind, read = item.TYPE, field.READ
    fits, whole, word, value = True, False, int64(0), math.nan
    if kind == c.PyFloat_Type or kind == c.PyDoubleArrType_Type:
        value = item.FLOAT_VALUE
    elif kind == c.PyLong_Type:
        overflow = stack_words(1)
        word, whole = c.PyLong_AsLongLongAndOverflow(item, overflow), True
        fits = ld_int32(overflow, 0) == 0
    elif item == c.Py_True or item == c.Py_False:
        word, whole = int64(item == c.Py_True), True
    elif kind == c.PyLongArrType_Type:
        word, whole = item.LONG_VALUE, True
    elif kind == c.PyFloatArrType_Type:
        value = item.SINGLE_VALUE
    elif kind == c.PyBoolArrType_Type:
        word, whole = int64(item.FLAG_VALUE != 0), True
    elif item != c.Py_None:
        fits = read == Read.SKIP and kind == c.PyUnicode_Type
    if whole:
        value = float64(word)
    exact = -EXACT <= word <= EXACT
    if read == Read.FLOAT64:
        st_float64(cell, 0, value)
    elif read == Read.FLOAT32:
        fits = fits and exact
        st_float32(cell, 0, float32(value))
    elif read == Read.WHOLE:
        if not whole:
            fits = fits and abs(value) <= EXACT and value == floor(value)
            word = int64(value) if fits else 0
        elif not exact:
            fits = fits and form == Form.ROW_BY_NAME
        fits = fits and field.LOW <= word <= field.HIGH
        store_word(cell, field.BYTES, word)
    return fits


# --- named ----------------------------------------------------------------------------------------


def named_entry(self: Pointer, argument: Pointer) -> Pointer:
    """A dict of one array, for the entry of vectors.

    The array is held: once the interpreter's lock is let go, another thread may empty the dict.
    """
    table = self.ARRAY_DATA
    item, fits = NULL, False
    if argument.TYPE == c.PyDict_Type and c.PyDict_Size(argument) == 1:
        item = c.PyDict_GetItemWithError(argument, table.LABEL)
        if item == 0:
            c.PyErr_Clear()
    if item != 0 and item.TYPE == c.PyArray_Type and item.ARRAY_RANK == 2:
        fits = ld_int64(item.ARRAY_SHAPE, 0) > 0
    if not fits:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    c.Py_IncRef(item)
    answers = c.PyObject_CallOneArg(table.ENTRY, item)
    c.Py_DecRef(item)
    return answers
