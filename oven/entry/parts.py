"""The parts that entries are made of, each written once: see oven.entry.generator.

Making an object may run the garbage collector, and that may run anybody's code, this entry
included. So all containers are made first, and scratch memory, which all entries share, is used
only after that: from there to the end no other Python code can run. A big block gets scratch memory
of its own, and runs without the interpreter's lock.

Parts are compiled into the entries that call them. They share `call`, the variables of the call,
and `table`, the entry's own, which holds whatever C calls.
"""

from __future__ import annotations

from oven.compiler.words import *
from oven.entry.generator import (
    ASCII,
    CONVERSION_ROW,
    LETTERS,
    MOST_SPARE,
    NO_NUMBER,
    NULL,
    OUTPUT_ROW,
    ROOM_ROW,
    SAME_DTYPE,
    SCALAR,
    SHELVED,
    Kind,
    Pointer,
    Read,
    c,
    ld_address,
    ldc_address,
)

# --- arguments ------------------------------------------------------------------------------------

#: The places of a dict's next value after the last one, and of one that nothing is known of.
END, UNKNOWN = -1, -2


def same_dtype(theirs: Pointer, own: Pointer) -> bool:
    """True if two dtypes are the same; arrays that were pickled have a copy of theirs."""
    same = theirs == own
    if not same:
        same = theirs.DTYPE_KIND & SAME_DTYPE == own.DTYPE_KIND & SAME_DTYPE
    return same


def items_of(table: Pointer, record: Pointer, count: int) -> tuple[Pointer, bool]:
    """The items of a list or a tuple, and whether it has so many."""
    if record.TYPE == c.PyList_Type:
        items, fits = record.LIST_ITEMS, record.SIZE == count
    else:
        items, fits = record + 8 * c.TUPLE_ITEMS, record.TYPE == c.PyTuple_Type
        if fits:
            fits = record.SIZE == count
    return items, fits


def next_field(table: Pointer, record: Pointer, pair: int, at: int) -> tuple[int, Pointer]:
    """Of a dict the next value, and the place of the field that has its key."""
    if c.PyDict_Next(record, pair, pair + 8, pair + 16) == 0:
        return END, NULL
    key, item = ld_address(pair, 1), ld_address(pair, 2)
    known, plain, place = False, key.TYPE == c.PyUnicode_Type, at
    if at < table.FIELDS:
        wanted = ldc_address(table.KEYS, at)
        known = key == wanted
        if not known and plain and key.STRING_HASH == wanted.STRING_HASH:
            known = c.PyUnicode_Compare(key, wanted) == 0
    if not known:
        hit = NULL
        if plain:
            hit = c.PyDict_GetItemWithError(table.INDEX, key)
        if hit == 0:
            return UNKNOWN, NULL
        place = int64(hit.FLOAT_VALUE)
    return place, item


def text_cell(
    table: Pointer, call: Pointer, item: Pointer, cell: int, read: int, none: int
) -> bool:
    """Write a cell of text: its UTF-8, which Python keeps, or that it is missing."""
    if item.TYPE == c.PyUnicode_Type:
        size = stack_words(1)
        where = c.PyUnicode_AsUTF8AndSize(item, size)
        length = ld_int64(size, 0)
        st_int64(cell, 0, where)
        st_int64(cell, 1, length)
        if where == 0:
            c.PyErr_Clear()
        else:
            count_text(call, length)
        return where != 0
    missing = 0
    if item == c.Py_None:
        missing = none
    elif item.TYPE == c.PyFloat_Type:
        number = item.FLOAT_VALUE
        missing = NO_NUMBER if number != number else 0  # noqa: PLR0124 (so is only NaN)
    st_int64(cell, 1, missing)
    return missing != 0 and read == Read.STRING


def count_text(call: Pointer, length: int) -> None:
    """Count the bytes of a text."""
    call.TOTAL, call.LONGEST = call.TOTAL + length, max(call.LONGEST, length)


# --- memory ---------------------------------------------------------------------------------------


def out_of_memory(table: Pointer, call: Pointer) -> Pointer:
    """The end of a call that got no memory."""
    c.Py_DecRef(call.ANSWERS)
    return c.PyErr_NoMemory()


def take_memory(table: Pointer, call: Pointer, size: int) -> bool:
    """Take memory of the call's own: the block that an earlier call left, if it is enough.

    The pages of a new one take longer to come than most calls. False if there is none.
    """
    spares = table.SPARE
    owned, owned_bytes = ld_int64(spares, 0), ld_int64(spares, 1)
    if owned != 0 and owned_bytes >= size + 64:
        st_int64(spares, 0, 0)
        st_int64(spares, 1, 0)
    else:
        owned_bytes = size + 64
        owned = c.PyMem_RawMalloc(owned_bytes)
    call.OWNED, call.OWNED_BYTES, call.SCRATCH = owned, owned_bytes, (owned + 63) & -64
    return owned != 0


def share_memory(table: Pointer, call: Pointer) -> bool:
    """Use the memory of all; True, as it is always there."""
    call.OWNED, call.OWNED_BYTES, call.SCRATCH = 0, 0, table.SCRATCH
    return True


def give_back(table: Pointer, call: Pointer) -> None:
    """Leave the larger of the call's block and the one that was left before to the next call."""
    unused = int64(call.OWNED)
    if unused != 0:
        spares = table.SPARE
        if call.OWNED_BYTES <= MOST_SPARE and call.OWNED_BYTES > ld_int64(spares, 1):
            unused = ld_int64(spares, 0)
            st_int64(spares, 0, call.OWNED)
            st_int64(spares, 1, call.OWNED_BYTES)
        c.PyMem_RawFree(unused)


def refused(table: Pointer, call: Pointer) -> Pointer:
    """The answer of the Python function in the table, for what the plan was not made for."""
    give_back(table, call)
    c.Py_DecRef(call.ANSWERS)
    return c.PyObject_CallOneArg(table.FALLBACK, call.ARGUMENT)


def numbers_at(table: Pointer, call: Pointer) -> int:
    """The end of the rows in scratch memory, where the numbers of strings begin."""
    return (table.SCRATCH_BYTES + call.ROWS * table.ROW_BYTES + 63) & -64


def copies_at(table: Pointer, call: Pointer) -> int:
    """The end of the numbers, where the texts begin."""
    return numbers_at(table, call) + 8 * call.ROWS * (table.TEXTS if call.DIMENSIONS == 2 else 0)


def take_rows_memory(table: Pointer, call: Pointer) -> bool:
    """Take memory for the rows; False if there is none."""
    call.TOTAL, call.LONGEST = 0, 0
    size = copies_at(table, call)
    if size > table.SHARED_BYTES:
        return take_memory(table, call, table.SHARED_BYTES + size)
    return share_memory(table, call)


# --- answers --------------------------------------------------------------------------------------


def begin(table: Pointer, call: Pointer, argument: Pointer, rows: int, dimensions: int) -> bool:
    """Make the tuple of answers, an array for each that is no scalar; False without memory."""
    answers = c.PyTuple_New(table.OUTPUTS)
    call.ARGUMENT, call.ROWS, call.DIMENSIONS, call.ANSWERS = argument, rows, dimensions, answers
    if answers == 0:
        return False
    for place in range(table.OUTPUTS):
        output = table.OUTPUT_TABLE + OUTPUT_ROW * place
        if dimensions == 2 or output.ACROSS != SCALAR:
            item = answer_array(table, output, rows, dimensions)
            if item == 0:
                c.Py_DecRef(answers)
                return False
            c.PyTuple_SetItem(answers, place, item)
    return True


def answer_array(table: Pointer, output: Pointer, rows: int, dimensions: int) -> Pointer:
    """An array for one output.

    Making one takes longer than most rows do. So a small one stays on a shelf, and where it has no
    other reference and is as it was made, it is used again. Nothing is lost with an array that is
    changed or held in any way: the next takes its place.
    """
    sizes, across = stack_words(2), output.ACROSS
    st_int64(sizes, 0, rows if dimensions == 2 else across)
    st_int64(sizes, 1, across)
    dtype, shelf, item = output.DTYPE, output.SHELF, NULL
    rank = dimensions - (1 if across == SCALAR else 0)
    elements = rows * (1 if across == SCALAR else across)
    small = 0 < elements <= SHELVED
    if small:
        item = shelved_array(table, output, rank, rows, sizes)
    if item == 0:
        c.Py_IncRef(dtype)
        item = c.PyArray_Empty(rank, sizes, dtype, 0)
        if item != 0 and small:
            before = ld_int64(shelf, 0)
            c.Py_IncRef(item)
            st_int64(shelf, 0, item)
            c.Py_DecRef(before)
    return item


def shelved_array(table: Pointer, output: Pointer, rank: int, rows: int, sizes: int) -> Pointer:
    """The array on an output's shelf, if nobody else has it and it is as it was made."""
    item = ld_address(output.SHELF, 0)
    same = item.TYPE == c.PyArray_Type
    if same:
        same = item.REFERENCES == 1 and item.ARRAY_DTYPE == output.DTYPE
        same = same and item.ARRAY_FLAGS | c.BY_COLUMNS == c.UNTOUCHED
        same = same and item.ARRAY_BASE | item.ARRAY_WEAKREFS | item.ARRAY_BUFFERS == 0
    if same:
        shape = item.ARRAY_SHAPE
        same = item.ARRAY_RANK == rank
        same = same and ld_int64(shape, 0) == ld_int64(sizes, 0)
        if same and rank == 2:
            same = ld_int64(shape, 1) == ld_int64(sizes, 1)
    if same and output.KIND == Kind.STRING:
        name, cells = ldc_address(output.NAMES, 0), item.ARRAY_DATA
        for j in range(rows):
            held = ld_address(cells, j)
            same = same and held != 0 and held.TYPE == name.TYPE
    if not same:
        return NULL
    c.Py_IncRef(item)
    return item


def named_answers(table: Pointer, answers: Pointer, names: Pointer, order: int) -> Pointer:
    """The first answers of a call as a dict, in this order unless it is NULL; the tuple goes."""
    made, wrong = c.PyDict_New(), 0
    if made != 0:
        for place in range(names.SIZE):
            name, at = ld_int64(names, c.TUPLE_ITEMS + place), place
            if order != 0:
                at = ld_int64(order, place)
            wrong |= c.PyDict_SetItem(made, name, ld_int64(answers, c.TUPLE_ITEMS + at))
        if wrong != 0:
            c.Py_DecRef(made)
            made = NULL
    c.Py_DecRef(answers)
    return made


# --- numbers --------------------------------------------------------------------------------------


def loaded(where: int, kind: int) -> tuple[int, float]:
    """A number in memory as int64, whose bits a uint64 keeps, or as float64."""
    word, value = int64(0), 0.0
    if kind == Kind.FLOAT64:
        value = ld_float64(where, 0)
    elif kind == Kind.FLOAT32:
        value = float64(ld_float32(where, 0))
    elif kind == Kind.INT64 or kind == Kind.UINT64:
        word = ld_int64(where, 0)
    elif kind == Kind.INT32:
        word = int64(ld_int32(where, 0))
    elif kind == Kind.INT16:
        word = int64(ld_int16(where, 0))
    elif kind == Kind.INT8:
        word = int64(ld_int8(where, 0))
    elif kind == Kind.UINT32:
        word = int64(ld_uint32(where, 0))
    elif kind == Kind.UINT16:
        word = int64(ld_uint16(where, 0))
    elif kind == Kind.UINT8:
        word = int64(ld_uint8(where, 0))
    else:
        word = int64(ld_uint8(where, 0) != 0)
    return word, value


def python_number(table: Pointer, where: int, kind: int) -> Pointer:
    """A number in memory as one of Python's; the usual kinds come first."""
    if kind == Kind.FLOAT64:
        return c.PyFloat_FromDouble(ld_float64(where, 0))
    if kind == Kind.INT64:
        return c.PyLong_FromLongLong(ld_int64(where, 0))
    word, value = loaded(where, kind)
    if kind == Kind.FLOAT32:
        return c.PyFloat_FromDouble(value)
    if kind == Kind.BOOL:
        return c.PyBool_FromLong(word)
    if kind == Kind.UINT64:
        return c.PyLong_FromUnsignedLongLong(word)
    return c.PyLong_FromLongLong(word)


def store_word(where: int, size: int, word: int) -> None:
    """Write a whole number of so many bytes."""
    if size == 8:
        st_int64(where, 0, word)
    elif size == 4:
        st_int32(where, 0, int32(word))
    elif size == 2:
        st_int16(where, 0, int16(word))
    else:
        st_int8(where, 0, int8(word))


def convert(table: Pointer, start: int, rows: int) -> None:
    """Write the converted numbers of all rows from `start` on.

    Halves of whole numbers beyond int64 keep what is rounded away in their lowest bit.
    """
    row_bytes = table.ROW_BYTES
    for place in range(table.CONVERSIONS):
        conversion = table.CONVERSION_TABLE + CONVERSION_ROW * place
        kind, wanted = conversion.KIND, conversion.WANTED
        for i in range(rows):
            row = start + i * row_bytes
            there = row + conversion.TO
            word, value = loaded(row + conversion.FROM, kind)
            if kind != Kind.FLOAT64 and kind != Kind.FLOAT32:
                value = float64(word)
                if kind == Kind.UINT64 and word < 0:
                    value = 2.0 * float64(word >> 1 & 0x7FFFFFFFFFFFFFFF | word & 1)
            if wanted == Kind.FLOAT64:
                st_float64(there, 0, value)
            elif wanted == Kind.FLOAT32:
                st_float32(there, 0, float32(value))
            elif wanted == Kind.INT64 or wanted == Kind.UINT64:
                store_word(there, 8, word)
            elif wanted == Kind.INT32 or wanted == Kind.UINT32:
                store_word(there, 4, word)
            elif wanted == Kind.INT16 or wanted == Kind.UINT16:
                store_word(there, 2, word)
            else:
                store_word(there, 1, word)


# --- the end of a call ----------------------------------------------------------------------------


def rooms_bytes(table: Pointer, longest: int) -> int:
    """The most memory that depends on the longest document, in any step."""
    room, most, sum_up = table.ROOMS, int64(0), int64(0)
    for _ in range(table.ROOM_COUNT):
        takes = longest * room.EACH + room.FIXED
        sum_up += (min(takes, room.MOST) + 63) & -64
        most = max(most, sum_up)
        if room.END != 0:
            sum_up = 0
        room += ROOM_ROW
    return most


def grow_memory(table: Pointer, call: Pointer, size: int) -> bool:
    """Take larger memory, and bring the rows there; False if there is none."""
    larger = c.PyMem_RawMalloc(size + 64)
    if larger != 0:
        c.memcpy((larger + 63) & -64, call.SCRATCH, numbers_at(table, call))
    give_back(table, call)
    call.OWNED, call.OWNED_BYTES, call.SCRATCH = larger, size + 64, (larger + 63) & -64
    return larger != 0


def copy_texts(table: Pointer, start: int, rows: int, into: int, letters: int) -> None:
    """Copy the texts themselves behind one another, and have their cells point there.

    With `letters` some may be numpy's characters: their addresses say so.
    """
    strings, string_table, row_bytes = table.STRINGS, table.STRING_TABLE, table.ROW_BYTES
    behind = into
    for i in range(rows):
        for place in range(strings):
            cell = start + i * row_bytes + ldc_int64(string_table, place)
            where, size = ld_int64(cell, 0), max(ld_int64(cell, 1), 0)
            st_int64(cell, 0, behind)
            if letters != 0 and (where >= ASCII or where < 0):
                encode(where, size, behind)
            elif size > 0:
                c.memcpy(behind, where, size)
            behind += size
    st_int64(behind, 0, 0)
    st_int64(behind, 1, 0)


def encode(where: int, size: int, into: int) -> None:
    """Write the UTF-8 of numpy's characters, of so many bytes."""
    if where >= ASCII:
        for k in range(size):
            st_int8(into, k, int8(ld_int32(where - ASCII, k)))
        return
    letters, behind, k = where - LETTERS, into, 0
    while behind < into + size:
        letter, more = int64(ld_int32(letters, k)), int64(0)
        k += 1
        if letter < 0x80:
            st_int8(behind, 0, int8(letter))
        else:
            more = 1 + int64(letter > 0x7FF) + int64(letter > 0xFFFF)
            st_int8(behind, 0, int8((0xFF00 >> more + 1) & 0xFF | letter >> 6 * more))
            for j in range(more):
                rest = letter >> 6 * (more - 1 - j)
                st_int8(behind, 1 + j, int8(0x80 | rest & 0x3F))
        behind += more + 1


def finished(table: Pointer, call: Pointer, letters: int) -> Pointer:
    """The answers, once all values are in their rows and converted."""
    copies = copies_at(table, call)
    spare = (copies + call.TOTAL + 24 + 63) & -64
    size = spare + rooms_bytes(table, call.LONGEST)
    capacity = call.OWNED_BYTES - 64 if call.OWNED != 0 else table.SHARED_BYTES
    work = call.ROWS * (table.ROW_WORK + call.LONGEST * table.BYTE_WORK)
    release = int64(work >= table.RELEASE_WORK)
    grows = size > capacity or (release != 0 and call.OWNED == 0)
    if grows and not grow_memory(table, call, size):
        return out_of_memory(table, call)
    start = call.SCRATCH + table.SCRATCH_BYTES
    copy_texts(table, start, call.ROWS, call.SCRATCH + copies, letters)
    for place in range(table.PORTS):
        st_int64(call.SCRATCH, 2 * place, start + ldc_int64(table.PORT_TABLE, place))
        st_int64(call.SCRATCH, 2 * place + 1, table.ROW_BYTES)
    column = table.ROOM_COLUMN
    st_int64(call.SCRATCH, 2 * column, call.SCRATCH + spare)
    st_int64(call.SCRATCH, 2 * column + 1, call.LONGEST)
    return ran(table, call, call.SCRATCH + numbers_at(table, call), release)


def ran(table: Pointer, call: Pointer, numbers: int, release: int) -> Pointer:
    """The answers, once all stages have run.

    Of several outputs that are the same column the last one is computed, and the others are copies.
    The numbers of strings go to `numbers`.
    """
    scratch, answers = call.SCRATCH, call.ANSWERS
    for place in range(table.OUTPUTS):
        output = table.OUTPUT_TABLE + OUTPUT_ROW * place
        where = int64(scratch + table.CELLS + 8 * place)
        if call.DIMENSIONS == 2 and output.KIND == Kind.STRING:
            where = numbers
            numbers += 8 * call.ROWS
        elif call.DIMENSIONS == 2 or output.ACROSS != SCALAR:
            where = ld_address(answers, c.TUPLE_ITEMS + place).ARRAY_DATA
        st_int64(scratch, 2 * output.COLUMN, where)
        st_int64(scratch, 2 * output.COLUMN + 1, output.BYTES)
    thread = NULL
    if release != 0:
        thread = c.PyEval_SaveThread()
    failed = call_stage(table.RUN, table.PROGRAM, scratch, call.ROWS, scratch + table.STAGES) != 0
    if release != 0:
        c.PyEval_RestoreThread(thread)
    if failed:
        return refused(table, call)
    for place in range(table.OUTPUTS):
        output = table.OUTPUT_TABLE + OUTPUT_ROW * place
        where = ld_int64(scratch, 2 * output.COLUMN)
        if call.DIMENSIONS != 2 and output.ACROSS == SCALAR:
            item = scalar_answer(table, output, where)
            if item == 0:
                c.Py_DecRef(answers)
                answers = NULL
                break
            c.PyTuple_SetItem(answers, place, item)
        else:
            item = ld_address(answers, c.TUPLE_ITEMS + place)
            fill_array(table, output, item, where, call.ROWS)
    give_back(table, call)
    return answers


def scalar_answer(table: Pointer, output: Pointer, where: int) -> Pointer:
    """The answer for one value: a number, or the string that a number stands for."""
    if output.KIND != Kind.STRING:
        return python_number(table, where, output.KIND)
    item = ldc_address(output.NAMES, min(max(ld_int64(where, 0), 0), output.LAST))
    c.Py_IncRef(item)
    return item


def fill_array(table: Pointer, output: Pointer, item: Pointer, where: int, rows: int) -> None:
    """Put the strings that numbers stand for into an array, or copies of what is elsewhere."""
    into = item.ARRAY_DATA
    if output.KIND == Kind.STRING:
        for i in range(rows):
            name = ldc_int64(output.NAMES, min(max(ld_int64(where, i), 0), output.LAST))
            c.Py_IncRef(name)
            before = ld_int64(into, i)
            st_int64(into, i, name)
            c.Py_DecRef(before)
    elif into != where:
        c.memcpy(into, where, rows * output.BYTES)
