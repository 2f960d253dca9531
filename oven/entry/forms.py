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
    ASCII,
    EXACT,
    FIELD_ROW,
    LETTERS,
    MOST_WAITING,
    NULL,
    TILE,
    Address,
    Form,
    Read,
    c,
    ld_object,
)
from oven.entry.parts import (
    END,
    convert,
    copy_texts,
    finished,
    items_of,
    made_answers,
    next_field,
    out_of_memory,
    ran,
    refused,
    rows_memory,
    same_dtype,
    store_word,
    taken_memory,
    text_cell,
)

# --- vectors --------------------------------------------------------------------------------------


def vectors_entry(self: Address, argument: Address) -> Address:
    """A row of numbers as an array, list or tuple; a block of them as an array."""
    table = self.ARRAY_DATA
    dimensions, rows, data, stride, items = 1, 1, 0, 0, NULL
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
    answers = made_answers(table, rows, dimensions)
    if answers == 0:
        return NULL
    scratch, owned, owned_bytes = int64(table.SCRATCH), NULL, 0
    release = int64(rows >= table.RELEASE_ROWS)
    texts = table.TEXTS if dimensions == 2 else 0
    if release != 0 or texts != 0:
        owned, owned_bytes = taken_memory(table, table.SCRATCH_BYTES + 8 * rows * texts)
        if owned == 0:
            return out_of_memory(table, answers)
        scratch = (owned + 63) & -64
    if items != 0:
        data = scratch + table.ROW
        if not read_numbers(table, argument, data):
            return refused(table, argument, answers, owned, owned_bytes)
    st_int64(scratch, 0, data)
    st_int64(scratch, 1, stride)
    numbers = scratch + table.SCRATCH_BYTES
    return ran(
        table, argument, answers, scratch, owned, owned_bytes, rows, dimensions, numbers, release
    )


def read_numbers(table: Address, argument: Address, data: int) -> bool:
    """Write the numbers of a list or tuple; False if something else is in it."""
    double = table.ITEM_BYTES == 8
    items, fits = items_of(table, argument, table.WIDTH)
    for j in range(table.WIDTH):
        if not fits:
            break
        item = ld_object(items, j)
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


def documents_entry(self: Address, argument: Address) -> Address:
    """A string; a list, tuple or array of strings; one of these in a dict under its one name."""
    table = self.ARRAY_DATA
    size = stack_words(1)
    rows, dimensions, _, _ = texts_in(table, argument)
    if rows == 0:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    answers = made_answers(table, rows, dimensions)
    if answers == 0:
        return NULL
    many, axes, value, items = texts_in(table, argument)
    scratch, owned, owned_bytes = rows_memory(table, rows, dimensions)
    if scratch == 0:
        return out_of_memory(table, answers)
    fits, total, longest = many == rows and axes == dimensions, int64(0), int64(0)
    cell = scratch + table.SCRATCH_BYTES
    for i in range(rows):
        if not fits:
            break
        item = value
        if items != 0:
            item = ld_object(items, i)
        fits = item != 0
        if fits:
            length = text_cell(table, item, cell + i * table.ROW_BYTES, size, Read.TEXT, 0)
            fits = length >= 0
            total += length
            longest = max(longest, length)
    if not fits or longest > table.LONGEST:
        return refused(table, argument, answers, owned, owned_bytes)
    return finished(
        table, argument, answers, scratch, owned, owned_bytes, rows, dimensions, total, longest, 0
    )


def texts_in(table: Address, argument: Address) -> tuple[int, int, Address, Address]:
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


def records_entry(self: Address, argument: Address) -> Address:
    """A row by name or by position, a list of rows, a dict of lists."""
    table = self.ARRAY_DATA
    size, pair = stack_words(1), stack_words(3)
    if argument.TYPE == c.PyArray_Type:
        return c.PyObject_CallOneArg(table.ARRAYS, argument)
    form, rows, dimensions, _ = rows_in(table, argument, pair)
    if rows == 0:
        other = table.COLUMNS if form == Form.ROW_BY_NAME else table.FALLBACK
        return c.PyObject_CallOneArg(other, argument)
    answers = made_answers(table, rows, dimensions)
    if answers == 0:
        return NULL
    now, many, axes, outer = rows_in(table, argument, pair)
    scratch, owned, owned_bytes = rows_memory(table, rows, dimensions)
    if scratch == 0:
        return out_of_memory(table, answers)
    fits, total, longest = now == form and many == rows and axes == dimensions, int64(0), int64(0)
    start = scratch + table.SCRATCH_BYTES
    for i in range(rows):
        if not fits:
            break
        record = argument
        if form == Form.ROWS_BY_NAME or form == Form.LISTS:
            record = ld_object(outer, i)
        row = start + i * table.ROW_BYTES
        fits, length, most = read_record(table, record, form, i, rows, row, pair, size)
        total += length
        longest = max(longest, most)
    if not fits or longest > table.LONGEST:
        return refused(table, argument, answers, owned, owned_bytes)
    convert(table, start, rows)
    return finished(
        table, argument, answers, scratch, owned, owned_bytes, rows, dimensions, total, longest, 0
    )


def rows_in(table: Address, argument: Address, pair: int) -> tuple[int, int, int, Address]:
    """What the argument is, how many rows, of how many dimensions, and where several are."""
    form, many, axes, outer = int64(Form.NOTHING), int64(0), int64(0), NULL
    kind = argument.TYPE
    if kind == c.PyDict_Type:
        st_int64(pair, 0, 0)
        if c.PyDict_Next(argument, pair, pair + 8, pair + 16) != 0:
            form, many, axes = Form.ROW_BY_NAME, 1, 1
            item = ld_object(pair, 2)
            kind = item.TYPE
            if kind == c.PyList_Type or kind == c.PyTuple_Type:
                form, many, axes = Form.COLUMNS, item.SIZE, 2
            elif kind == c.PyArray_Type:
                many = 0
    elif kind == c.PyList_Type or kind == c.PyTuple_Type:
        outer = argument.LIST_ITEMS if kind == c.PyList_Type else argument + 8 * c.TUPLE_ITEMS
        if argument.SIZE > 0 and table.BY_POSITION != 0:
            kind = ld_object(outer, 0).TYPE
            form, many, axes = Form.LISTED, 1, 1
            if kind == c.PyDict_Type:
                form, many, axes = Form.ROWS_BY_NAME, argument.SIZE, 2
            elif kind == c.PyList_Type or kind == c.PyTuple_Type:
                form, many, axes = Form.LISTS, argument.SIZE, 2
    return form, many, axes, outer


def read_record(
    table: Address, record: Address, form: int, i: int, rows: int, row: int, pair: int, size: int
) -> tuple[bool, int, int]:
    """Write a row; False if it is none, and the bytes of its texts and of its longest."""
    items, fits, found, at, total, longest = NULL, True, int64(0), int64(0), int64(0), int64(0)
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
            item = ld_object(items, at)
        else:
            place, item = next_field(table, record, pair, at)
            if place < 0:
                fits = place == END
                break
            if form == Form.COLUMNS:
                column, fits = items_of(table, item, rows)
                if not fits:
                    break
                item = ld_object(column, i)
        at = place + 1
        field = table.FIELD_TABLE + FIELD_ROW * place
        read, cell = field.READ, row + field.OFFSET
        found += field.NEEDED
        if read == Read.STRING or read == Read.TEXT:
            length = text_cell(table, item, cell, size, read, field.LOW)
            fits = length >= 0
            total += length
            longest = max(longest, length)
        else:
            fits = number_cell(table, item, field, cell, form, size)
    return fits and found == table.REQUIRED, total, longest


def number_cell(
    table: Address, item: Address, field: Address, cell: int, form: int, size: int
) -> bool:
    """Write a number as coercion means it: a float, or a whole one in the bounds of its field."""
    kind, read = item.TYPE, field.READ
    fits, whole, word, value = True, False, int64(0), math.nan
    if kind == c.PyFloat_Type or kind == c.PyDoubleArrType_Type:
        value = item.FLOAT_VALUE
    elif kind == c.PyLong_Type:
        word, whole = c.PyLong_AsLongLongAndOverflow(item, size), True
        fits = ld_int32(size, 0) == 0
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


# --- arrays by name -------------------------------------------------------------------------------


def columns_entry(self: Address, argument: Address) -> Address:
    """A dict with an array for every input, or for every column of a record; one array alone."""
    table = self.ARRAY_DATA
    rows = rows_of_arrays(table, argument)
    if rows == 0:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    answers = made_answers(table, rows, 2)
    if answers == 0:
        return NULL
    many = rows_of_arrays(table, argument)
    scratch, owned, owned_bytes = rows_memory(table, rows, 2)
    if scratch == 0:
        return out_of_memory(table, answers)
    fits, total, longest, start = False, int64(0), int64(0), scratch + table.SCRATCH_BYTES
    if many == rows:
        fits, total, longest = read_arrays(table, argument, start, rows)
    if not fits or longest > table.LONGEST:
        return refused(table, argument, answers, owned, owned_bytes)
    convert(table, start, rows)
    return finished(
        table, argument, answers, scratch, owned, owned_bytes, rows, 2, total, longest, 1
    )


def packed_entry(self: Address, argument: Address) -> Address:
    """What columns take, laid out as rows only, and the strings; arrays of bytes both.

    The strings' array is made once it is known how long they are. Making an array does not run the
    collector, which the strings that are pointed at would not survive.
    """
    table = self.ARRAY_DATA
    rows = rows_of_arrays(table, argument)
    if rows == 0:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    answers = c.PyTuple_New(2)
    if answers == 0:
        return NULL
    start = bytes_memory(table, answers, 0, rows * table.ROW_BYTES)
    if start == 0:
        return NULL
    fits, total, longest = False, int64(0), int64(0)
    if rows_of_arrays(table, argument) == rows:
        fits, total, longest = read_arrays(table, argument, start, rows)
    if not fits or longest > table.LONGEST:
        c.Py_DecRef(answers)
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    convert(table, start, rows)
    behind = bytes_memory(table, answers, 1, total + 24)
    if behind == 0:
        return NULL
    copy_texts(table, start, rows, behind, 1)
    return answers


def bytes_memory(table: Address, answers: Address, place: int, size: int) -> int:
    """Memory of an array of bytes, one of the answers; NULL, and no answers, if it is out."""
    sizes = stack_words(1)
    st_int64(sizes, 0, size)
    c.Py_IncRef(table.DTYPE)
    array = c.PyArray_Empty(1, sizes, table.DTYPE, 0)
    if array == 0:
        c.Py_DecRef(answers)
        return NULL
    c.PyTuple_SetItem(answers, place, array)
    return array.ARRAY_DATA


def rows_of_arrays(table: Address, argument: Address) -> int:
    """How many rows the first array has."""
    pair, item, known = stack_words(3), argument, table.BARE != 0
    if argument.TYPE == c.PyDict_Type:
        st_int64(pair, 0, 0)
        known = c.PyDict_Next(argument, pair, pair + 8, pair + 16) != 0
        if known:
            item = ld_object(pair, 2)
    many = int64(0)
    if known and item.TYPE == c.PyArray_Type and item.ARRAY_RANK > 0:
        many = ld_int64(item.ARRAY_SHAPE, 0)
    return many


def read_arrays(table: Address, argument: Address, start: int, rows: int) -> tuple[bool, int, int]:
    """Write all arrays; False if one is none, and the bytes of texts and of the longest.

    Columns of numbers wait, and are copied together.
    """
    named, pair, queue = argument.TYPE == c.PyDict_Type, stack_words(3), stack_words(_QUEUE_WORDS)
    fits, item, found, at, waiting = True, argument, int64(0), int64(0), int64(0)
    total, longest = int64(0), int64(0)
    st_int64(pair, 0, 0)
    while fits:
        place = at
        if named:
            place, item = next_field(table, argument, pair, at)
            if place < 0:
                fits = place == END
                break
        elif at != 0:
            break
        at = place + 1
        field = table.FIELD_TABLE + FIELD_ROW * place
        found += field.NEEDED
        if field.READ == Read.SKIP:
            continue
        fits = is_field(table, item, field, rows)
        if not fits:
            break
        begin, into = item.ARRAY_DATA, start + field.OFFSET
        step, across = ld_int64(item.ARRAY_STRIDES, 0), int64(0)
        if item.ARRAY_RANK == 2:
            across = ld_int64(item.ARRAY_STRIDES, 1)
        if field.READ == Read.NUMBER:
            fits = same_dtype(item.ARRAY_DTYPE, field.DTYPE)
            if not fits:
                break
            if field.ACROSS != 1 or rows <= TILE:
                copy_numbers(table, field, into, begin, step, across, rows)
                continue
            if waiting == MOST_WAITING:
                copy_waiting(table, queue, waiting, rows)
                waiting = 0
            queued = queue + 32 * waiting
            st_int64(queued, 0, into)
            st_int64(queued, 1, begin)
            st_int64(queued, 2, step)
            st_int64(queued, 3, field.BYTES)
            waiting += 1
            continue
        length, most = read_texts(table, field, item.ARRAY_DTYPE, into, begin, step, across, rows)
        fits = most >= 0
        total += length
        longest = max(longest, most)
    fits = fits and found == table.REQUIRED
    if fits:
        copy_waiting(table, queue, waiting, rows)
    return fits, total, longest


_QUEUE_WORDS = 4 * MOST_WAITING


def is_field(table: Address, item: Address, field: Address, rows: int) -> bool:
    """True if something is an array of as many rows, and of the dimensions that a field has."""
    fits, rank = item.TYPE == c.PyArray_Type, int64(0)
    if fits:
        rank = item.ARRAY_RANK
        fits = 0 < rank < 3 and item.ARRAY_FLAGS & c.ALIGNED != 0
    fits = fits and (field.RANKS >> rank) & 1 != 0
    fits = fits and ld_int64(item.ARRAY_SHAPE, 0) == rows
    if fits and rank == 2:
        fits = ld_int64(item.ARRAY_SHAPE, 1) == field.ACROSS
    return fits


def copy_numbers(
    table: Address, field: Address, into: int, begin: int, step: int, across: int, rows: int
) -> None:
    """Copy an array of numbers."""
    size, width = field.BYTES, field.ACROSS
    if width != 1 and across == size:
        for i in range(rows):
            c.memcpy(into + i * table.ROW_BYTES, begin + i * step, width * size)
    else:
        for j in range(width):
            copy_column(table, into + j * size, begin + j * across, step, size, rows)


def copy_column(table: Address, into: int, begin: int, step: int, size: int, rows: int) -> None:
    """Copy one number a row."""
    row_bytes = table.ROW_BYTES
    if size == 8:
        for i in range(rows):
            st_int64(into + i * row_bytes, 0, ld_int64(begin + i * step, 0))
    elif size == 4:
        for i in range(rows):
            st_int32(into + i * row_bytes, 0, ld_int32(begin + i * step, 0))
    elif size == 2:
        for i in range(rows):
            st_int16(into + i * row_bytes, 0, ld_int16(begin + i * step, 0))
    else:
        for i in range(rows):
            st_int8(into + i * row_bytes, 0, ld_int8(begin + i * step, 0))


def copy_waiting(table: Address, queue: int, waiting: int, rows: int) -> None:
    """Copy some rows of all columns that wait, then the next: they stay in the nearest cache."""
    for tile in range((rows + TILE - 1) // TILE):
        first = tile * TILE
        few = min(TILE, rows - first)
        for place in range(waiting):
            queued = queue + 32 * place
            step = ld_int64(queued, 2)
            into = ld_int64(queued, 0) + first * table.ROW_BYTES
            begin = ld_int64(queued, 1) + first * step
            copy_column(table, into, begin, step, ld_int64(queued, 3), few)


# --- texts in arrays: their bytes, and those of the longest, which are -1 if one is none ----------


def read_texts(
    table: Address,
    field: Address,
    dtype: Address,
    into: int,
    begin: int,
    step: int,
    across: int,
    rows: int,
) -> tuple[int, int]:
    """Write the cells of an array of texts, by how it holds them."""
    total, longest = int64(0), int64(-1)
    if same_dtype(dtype, table.OBJECT):
        total, longest = read_objects(table, field, into, begin, step, across, rows)
    elif dtype == table.CELLS:
        if field.ACROSS == 1:
            total, longest = read_arrow(table, field, into, begin, step, rows)
    elif dtype.DTYPE_KIND == c.CHARACTERS:
        letters = dtype.DTYPE_SIZE // 4
        total, longest = read_characters(table, field, into, begin, step, across, rows, letters)
    return total, longest


def read_objects(
    table: Address, field: Address, into: int, begin: int, step: int, across: int, rows: int
) -> tuple[int, int]:
    """Cells of Python's objects."""
    size, total, longest = stack_words(1), int64(0), int64(0)
    for i in range(rows):
        for j in range(field.ACROSS):
            item = ld_object(begin + i * step + j * across, 0)
            cell, length = into + i * table.ROW_BYTES + 16 * j, int64(-1)
            if item != 0:
                length = text_cell(table, item, cell, size, field.READ, field.LOW)
            if length < 0:
                return total, length
            total += length
            longest = max(longest, length)
    return total, longest


def read_arrow(
    table: Address, field: Address, into: int, begin: int, step: int, rows: int
) -> tuple[int, int]:
    """Cells in Arrow's memory, by where they are and how long: see flour.data.arrow_strings."""
    total, longest, least = int64(0), int64(0), int64(0)
    for i in range(rows):
        here, there = into + i * table.ROW_BYTES, begin + i * step
        length = ld_int64(there, 1)
        st_int64(here, 0, ld_int64(there, 0))
        st_int64(here, 1, length)
        total += max(length, 0)
        longest, least = max(longest, length), min(least, length)
    if least != 0 and field.READ != Read.STRING:
        longest = -1
    return total, longest


def read_characters(
    table: Address,
    field: Address,
    into: int,
    begin: int,
    step: int,
    across: int,
    rows: int,
    most_letters: int,
) -> tuple[int, int]:
    """Cells of numpy's characters, of four bytes each: where they are, and how long their UTF-8."""
    total, longest = int64(0), int64(0)
    for i in range(rows):
        for j in range(field.ACROSS):
            letters, left = begin + i * step + j * across, most_letters
            while left > 0:
                if ld_int32(letters, left - 1) != 0:
                    break
                left -= 1
            length = utf8_bytes(letters, left)
            if length < 0:
                return total, length
            cell = into + i * table.ROW_BYTES + 16 * j
            st_int64(cell, 0, letters + (ASCII if length == left else LETTERS))
            st_int64(cell, 1, length)
            total += length
            longest = max(longest, length)
    return total, longest


def utf8_bytes(letters: int, count: int) -> int:
    """How long the UTF-8 of some of numpy's characters is; -1 if it cannot be written."""
    every, length = int64(0), count
    for k in range(count):
        every |= ld_int32(letters, k)
    if every < 0 or every > 127:
        for k in range(count):
            letter = ld_int32(letters, k)
            length += int64(letter > 0x7F) + int64(letter > 0x7FF) + int64(letter > 0xFFFF)
            if letter < 0 or letter > 0x10FFFF or letter >> 11 == 27:
                return int64(-1)
    return length


def named_entry(self: Address, argument: Address) -> Address:
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
