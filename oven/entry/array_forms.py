"""Entries for arrays by name: every input, or every column of a record; see oven.entry.forms."""

from __future__ import annotations

from oven.compiler.words import *
from oven.entry.generator import (
    ASCII,
    CALL_WORDS,
    FIELD_ROW,
    LETTERS,
    MOST_WAITING,
    NULL,
    TILE,
    Pointer,
    Read,
    c,
    ld_address,
)
from oven.entry.parts import (
    END,
    begin,
    convert,
    copy_texts,
    count_text,
    finished,
    next_field,
    out_of_memory,
    refused,
    same_dtype,
    take_rows_memory,
    text_cell,
)

# --- arrays by name -------------------------------------------------------------------------------


def columns_entry(self: Pointer, argument: Pointer) -> Pointer:
    """A dict with an array for every input, or for every column of a record; one array alone."""
    table, call = self.ARRAY_DATA, Pointer(stack_words(CALL_WORDS))
    rows = rows_of_arrays(table, argument)
    if rows == 0:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    if not begin(table, call, argument, rows, 2):
        return NULL
    fits = rows_of_arrays(table, argument) == rows
    if not take_rows_memory(table, call):
        return out_of_memory(table, call)
    start = call.SCRATCH + table.SCRATCH_BYTES
    if not fits or not read_arrays(table, call, start) or call.LONGEST > table.LONGEST:
        return refused(table, call)
    convert(table, start, rows)
    return finished(table, call, 1)


def packed_entry(self: Pointer, argument: Pointer) -> Pointer:
    """The rows of what columns_entry takes, laid out, and their strings: arrays of bytes both.

    The strings' array is made once it is known how long they are. Making an array does not run the
    collector, which the strings that are pointed at would not survive.
    """
    table, call = self.ARRAY_DATA, Pointer(stack_words(CALL_WORDS))
    rows = rows_of_arrays(table, argument)
    if rows == 0:
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    answers = c.PyTuple_New(2)
    if answers == 0:
        return NULL
    call.ARGUMENT, call.ROWS, call.TOTAL, call.LONGEST = argument, rows, 0, 0
    start = bytes_memory(table, answers, 0, rows * table.ROW_BYTES)
    if start == 0:
        return NULL
    fits = rows_of_arrays(table, argument) == rows
    if not fits or not read_arrays(table, call, start) or call.LONGEST > table.LONGEST:
        c.Py_DecRef(answers)
        return c.PyObject_CallOneArg(table.FALLBACK, argument)
    convert(table, start, rows)
    behind = bytes_memory(table, answers, 1, call.TOTAL + 24)
    if behind == 0:
        return NULL
    copy_texts(table, start, rows, behind, 1)
    return answers


def bytes_memory(table: Pointer, answers: Pointer, place: int, size: int) -> int:
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


def rows_of_arrays(table: Pointer, argument: Pointer) -> int:
    """How many rows the first array has."""
    pair, item, known = stack_words(3), argument, table.BARE != 0
    if c.PyDict_Type == argument.TYPE:
        st_int64(pair, 0, 0)
        known = c.PyDict_Next(argument, pair, pair + 8, pair + 16) != 0
        if known:
            item = ld_address(pair, 2)
    many = int64(0)
    if known and c.PyArray_Type == item.TYPE and item.ARRAY_RANK > 0:
        many = ld_int64(item.ARRAY_SHAPE, 0)
    return many


def read_arrays(table: Pointer, call: Pointer, start: int) -> bool:
    """Write one array after the other; False if one is none, or one is missing.

    Columns of numbers wait, and are copied together.
    """
    argument, rows, queue = call.ARGUMENT, call.ROWS, stack_words(_QUEUE_WORDS)
    by_name, pair = c.PyDict_Type == argument.TYPE, stack_words(3)
    fits, item, found, at, waiting = True, argument, int64(0), int64(0), int64(0)
    st_int64(pair, 0, 0)
    while fits:
        place = at
        if by_name:
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
        into, step, across = start + field.OFFSET, ld_int64(item.ARRAY_STRIDES, 0), int64(0)
        if item.ARRAY_RANK == 2:
            across = ld_int64(item.ARRAY_STRIDES, 1)
        if field.READ != Read.NUMBER:
            fits = read_texts(table, call, field, item, into, step, across)
            continue
        fits = same_dtype(item.ARRAY_DTYPE, field.DTYPE)
        if not fits:
            break
        if field.ACROSS != 1 or rows <= TILE:
            copy_numbers(table, field, into, item.ARRAY_DATA, step, across, rows)
            continue
        if waiting == MOST_WAITING:
            copy_waiting(table, queue, waiting, rows)
            waiting = 0
        queued = queue + 32 * waiting
        st_int64(queued, 0, into)
        st_int64(queued, 1, item.ARRAY_DATA)
        st_int64(queued, 2, step)
        st_int64(queued, 3, field.BYTES)
        waiting += 1
    fits = fits and found == table.REQUIRED
    if fits:
        copy_waiting(table, queue, waiting, rows)
    return fits


_QUEUE_WORDS = 4 * MOST_WAITING


def is_field(table: Pointer, item: Pointer, field: Pointer, rows: int) -> bool:
    """True if something is an array of as many rows, and of the dimensions that a field has."""
    fits, rank = c.PyArray_Type == item.TYPE, int64(0)
    if fits:
        rank = item.ARRAY_RANK
        fits = 0 < rank < 3 and item.ARRAY_FLAGS & c.ALIGNED != 0
    fits = fits and (field.RANKS >> rank) & 1 != 0
    fits = fits and ld_int64(item.ARRAY_SHAPE, 0) == rows
    if fits and rank == 2:
        fits = ld_int64(item.ARRAY_SHAPE, 1) == field.ACROSS
    return fits


def copy_numbers(
    table: Pointer, field: Pointer, into: int, begin: int, step: int, across: int, rows: int
) -> None:
    """Copy an array of numbers."""
    size, width = field.BYTES, field.ACROSS
    if width != 1 and across == size:
        for i in range(rows):
            c.memcpy(into + i * table.ROW_BYTES, begin + i * step, width * size)
    else:
        for j in range(width):
            copy_column(table, into + j * size, begin + j * across, step, size, rows)


def copy_column(table: Pointer, into: int, begin: int, step: int, size: int, rows: int) -> None:
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


def copy_waiting(table: Pointer, queue: int, waiting: int, rows: int) -> None:
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


# --- texts in arrays ------------------------------------------------------------------------------


def read_texts(
    table: Pointer, call: Pointer, field: Pointer, item: Pointer, into: int, step: int, across: int
) -> bool:
    """Write the cells of an array of texts, by how it holds them."""
    dtype, begin, row_bytes = item.ARRAY_DTYPE, item.ARRAY_DATA, table.ROW_BYTES
    if dtype == table.CELLS:
        return field.ACROSS == 1 and read_arrow(table, call, field, into, begin, step)
    objects, letters = same_dtype(dtype, table.OBJECT), dtype.DTYPE_SIZE // 4
    fits = objects or dtype.DTYPE_KIND == c.CHARACTERS
    for i in range(call.ROWS):
        for j in range(field.ACROSS):
            where, cell = begin + i * step + j * across, into + i * row_bytes + 16 * j
            if not fits:
                break
            if objects:
                value = ld_address(where, 0)
                fits = value != 0
                if fits:
                    fits = text_cell(table, call, value, cell, field.READ, field.LOW)
            else:
                fits = read_characters(call, where, cell, letters)
        if not fits:
            break
    return fits


def read_arrow(
    table: Pointer, call: Pointer, field: Pointer, into: int, begin: int, step: int
) -> bool:
    """Cells in Arrow's memory, by where they are and how long: see flour.data.arrow_strings."""
    total, longest, least = int64(0), int64(0), int64(0)
    for i in range(call.ROWS):
        here, there = into + i * table.ROW_BYTES, begin + i * step
        length = ld_int64(there, 1)
        st_int64(here, 0, ld_int64(there, 0))
        st_int64(here, 1, length)
        total += max(length, 0)
        longest, least = max(longest, length), min(least, length)
    call.TOTAL, call.LONGEST = call.TOTAL + total, max(call.LONGEST, longest)
    return least == 0 or field.READ == Read.STRING


def read_characters(call: Pointer, letters: int, cell: int, most: int) -> bool:
    """Write a cell of numpy's characters, of four bytes each; False if UTF-8 has none of them."""
    left = most
    while left > 0:
        if ld_int32(letters, left - 1) != 0:
            break
        left -= 1
    length = utf8_bytes(letters, left)
    if length >= 0:
        st_int64(cell, 0, letters + (ASCII if length == left else LETTERS))
        st_int64(cell, 1, length)
        count_text(call, length)
    return length >= 0


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
