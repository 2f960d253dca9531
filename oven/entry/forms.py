"""The forms in which data comes in, one entry for each: how it is looked at, and how it is read.

VECTORS     a row of numbers as an array, list or tuple; a block of them as an array
DOCUMENTS   a string; a list, tuple or array of strings; one of these in a dict under its one name
RECORDS     a row by name (a dict) or by position (a list or tuple), a list of rows, a dict of lists
COLUMNS     a dict with an array for every input, or for every column of a record; one array alone
NAMED       a dict of one array, which goes to the entry for vectors as it is
PACKED      what COLUMNS takes, laid out as rows only, for who runs them in chunks

All but VECTORS and NAMED lay rows out side by side in scratch memory: a row's cells, texts as UTF-8
behind all rows, rooms (memory whose size depends on the longest text), numbers of strings. What
coercion would have to think about (numbers beyond 2**53 where they may be rounded twice,
subclasses, other keys, other dtypes, half a pair of surrogates) goes to Python.

Making an answer may run anybody's code, which may change a list or dict under our hands. So what
the argument is, is looked at again once all containers are made.
"""

from __future__ import annotations

from oven.entry.generator import Template
from oven.entry.parts import PARTS

_NOTHING_THERE = """\
if many == 0:
    $fall_back
"""

# --- vectors --------------------------------------------------------------------------------------

_VECTORS = """\
def entry(self, argument):
    table = self.ARRAY_DATA
    width, kind = table.WIDTH, argument.TYPE
    dimensions, rows, data, stride, items = 1, 1, 0, 0, 0
    fits = False
    if kind == PyArray_Type:
        dimensions = argument.ARRAY_RANK
        $same_dtype(argument.ARRAY_DTYPE, table.DTYPE)
        if same and argument.ARRAY_FLAGS & ALIGNED != 0 and (dimensions == 1 or dimensions == 2):
            shape, strides = argument.ARRAY_SHAPE, argument.ARRAY_STRIDES
            side = ld_int64(strides, dimensions - 1) == table.ITEM_BYTES
            fits = ld_int64(shape, dimensions - 1) == width and (side or width < 2)
            data, stride = argument.ARRAY_DATA, ld_int64(strides, 0)
            if dimensions == 2:
                rows = ld_int64(shape, 0)
    else:
        $items_of(items, argument, width)
    if not fits:
        if kind == PyArray_Type and table.OTHER != 0:
            $same_dtype(argument.ARRAY_DTYPE, table.OTHER_DTYPE)
            if same:
                return PyObject_CallOneArg(table.OTHER, argument)
        $fall_back
    $answers
    scratch = table.SCRATCH
    release = rows >= table.RELEASE_ROWS
    texts = table.TEXTS if dimensions == 2 else 0
    owned, owned_bytes = 0, 0
    if release or texts != 0:
        size = table.SCRATCH_BYTES + 8 * rows * texts
        $allocate(size)
    text = scratch + table.SCRATCH_BYTES
    if items != 0:
        data = scratch + table.ROW
        double, kind = table.ITEM_BYTES == 8, argument.TYPE
        $items_of(items, argument, width)
        for j in range(width):
            if not fits:
                break
            item = ld_int64(items, j)
            kind = item.TYPE
            value = math.nan
            if kind == PyFloat_Type:
                value = item.FLOAT_VALUE
            elif kind == PyLong_Type:
                value = PyLong_AsDouble(item)
                if value == -1.0 and PyErr_Occurred() != 0:
                    PyErr_Clear()
                    fits = False
            elif item != Py_None:
                fits = False
            if not fits:
                continue
            if double:
                st_float64(data, j, value)
            else:
                st_float32(data, j, float32(value))
        if not fits:
            $discard
            $fall_back
    st_int64(scratch, 0, data)
    st_int64(scratch, 1, stride)
    $run
"""

# --- documents ------------------------------------------------------------------------------------

_DOCUMENTS = """\
def text_entry(self, argument):
    table = self.ARRAY_DATA
    size = stack_words(1)
    $look
    if many == 0 or not bare:
        $fall_back
    rows, dimensions = many, axes
    $answers
    $look
    $rows_memory
    fits, read, none = many == rows and axes == dimensions, TEXT, 0
    for i in range(rows):
        if not fits:
            break
        item = ld_int64(items, i) if items != 0 else value
        cell, fits = scratch + blocks + i * row_bytes, item != 0
        if fits:
            $text_cell
    $filled
"""
#: Where the documents are.
_LOOK_DOCUMENTS = """\
value, kind, bare = argument, argument.TYPE, table.BARE != 0
if kind == PyDict_Type:
    value, kind, bare = 0, 0, True
    if PyDict_Size(argument) == 1:
        value = PyDict_GetItemWithError(argument, table.LABEL)
        if value != 0:
            kind = value.TYPE
        else:
            PyErr_Clear()
many, axes, items = 0, 2, 0
if kind == PyUnicode_Type:
    many, axes = 1, 1
elif kind == PyList_Type:
    many, items = value.SIZE, value.LIST_ITEMS
elif kind == PyTuple_Type:
    many, items = value.SIZE, value + 8 * TUPLE_ITEMS
elif kind == PyArray_Type:
    if value.ARRAY_RANK == 1 and value.ARRAY_DTYPE == table.OBJECT:
        if ld_int64(value.ARRAY_STRIDES, 0) == 8:
            many, items = ld_int64(value.ARRAY_SHAPE, 0), value.ARRAY_DATA
"""

# --- records --------------------------------------------------------------------------------------

_RECORDS = """\
def record_entry(self, argument):
    table = self.ARRAY_DATA
    size, pair = stack_words(1), stack_words(3)
    if argument.TYPE == PyArray_Type:
        return PyObject_CallOneArg(table.ARRAYS, argument)
    $look
    if form == ROW_BY_NAME and many == 0:
        return PyObject_CallOneArg(table.COLUMNS, argument)
    $nothing_there
    rows, dimensions, asked = many, axes, form
    $answers
    $look
    $rows_memory
    fits = form == asked and many == rows and axes == dimensions
    fields = table.FIELDS
    for i in range(rows):
        if not fits:
            break
        row = scratch + blocks + i * row_bytes
        record, items, found, at = argument, 0, 0, 0
        if form == ROWS_BY_NAME or form == LISTS:
            record = ld_int64(outer, i)
        kind = record.TYPE
        if form <= ROWS_BY_NAME:
            fits = kind == PyDict_Type
        else:
            $items_of(items, record, fields)
        st_int64(pair, 0, 0)
        while fits:
            place, item = at, 0
            if items != 0:
                if at == fields:
                    break
                item = ld_int64(items, at)
            else:
                $next_field
                if form == COLUMNS:
                    kind = item.TYPE
                    $items_of(column, item, rows)
                    if not fits:
                        break
                    item = ld_int64(column, i)
            at = place + 1
            field = table.FIELD_TABLE + FIELD_ROW * place
            read, cell, none = field.READ, row + field.OFFSET, field.LOW
            found += field.NEEDED
            if read == STRING or read == TEXT:
                $text_cell
                continue
            $number
        fits = fits and found == table.REQUIRED
    $filled
"""
#: What the argument is, and how many rows.
_LOOK_RECORDS = """\
form, many, axes, outer = NOTHING, 0, 0, 0
kind = argument.TYPE
if kind == PyDict_Type:
    st_int64(pair, 0, 0)
    if PyDict_Next(argument, pair, pair + 8, pair + 16) != 0:
        form, many, axes = ROW_BY_NAME, 1, 1
        item = ld_int64(pair, 2)
        kind = item.TYPE
        if kind == PyList_Type or kind == PyTuple_Type:
            form, many, axes = COLUMNS, item.SIZE, 2
        elif kind == PyArray_Type:
            many = 0
elif kind == PyList_Type or kind == PyTuple_Type:
    outer = argument.LIST_ITEMS if kind == PyList_Type else argument + 8 * TUPLE_ITEMS
    if argument.SIZE > 0 and table.BY_POSITION != 0:
        item = ld_int64(outer, 0)
        kind = item.TYPE
        form, many, axes = LISTED, 1, 1
        if kind == PyDict_Type:
            form, many, axes = ROWS_BY_NAME, argument.SIZE, 2
        elif kind == PyList_Type or kind == PyTuple_Type:
            form, many, axes = LISTS, argument.SIZE, 2
"""
#: One number as coercion means it: a float, or a whole number in the bounds of its field.
_NUMBER = """\
kind = item.TYPE
whole, word, value = False, 0, math.nan
if kind == PyFloat_Type or kind == PyDoubleArrType_Type:
    value = item.FLOAT_VALUE
elif kind == PyLong_Type:
    word, whole = PyLong_AsLongLongAndOverflow(item, size), True
    fits = ld_int32(size, 0) == 0
elif item == Py_True or item == Py_False:
    word, whole = int64(item == Py_True), True
elif kind == PyLongArrType_Type:
    word, whole = item.LONG_VALUE, True
elif kind == PyFloatArrType_Type:
    value = item.SINGLE_VALUE
elif kind == PyBoolArrType_Type:
    word, whole = int64(item.FLAG_VALUE != 0), True
elif read == SKIP and kind == PyUnicode_Type:
    continue
elif item != Py_None:
    fits = False
if whole:
    value = float64(word)
exact = -EXACT <= word and word <= EXACT
if read == FLOAT64:
    st_float64(cell, 0, value)
elif read == FLOAT32:
    fits = fits and exact
    st_float32(cell, 0, float32(value))
elif read == WHOLE:
    if not whole:
        fits = fits and abs(value) <= EXACT and value == floor(value)
        word = int64(value) if fits else 0
    elif not exact:
        fits = fits and form == ROW_BY_NAME
    fits = fits and field.LOW <= word and word <= field.HIGH
    long = field.BYTES
    $store_word
"""

# --- arrays by name -------------------------------------------------------------------------------

#: Parts of the entries for arrays, by their names.
_ARRAYS: dict[str, str] = {}
_ARRAYS["start"] = """\
def {0}(self, argument):
    table = self.ARRAY_DATA
    size, pair, sizes = stack_words(1), stack_words(3), stack_words(2)
    waiting, queue = 0, stack_words(QUEUE_WORDS)
    $look
    $nothing_there
    rows, dimensions = many, 2
"""
_COLUMNS = """\
$start(columns_entry)
    $answers
    $look
    $rows_memory
    $fill
    $filled
"""
#: Where the first array is, and how many rows.
_ARRAYS["look"] = """\
many, named, item, record = 0, argument.TYPE == PyDict_Type, argument, argument
known = named or table.BARE != 0
if named:
    st_int64(pair, 0, 0)
    known = PyDict_Next(argument, pair, pair + 8, pair + 16) != 0
    if known:
        item = ld_int64(pair, 2)
if known:
    if item.TYPE == PyArray_Type and item.ARRAY_RANK > 0:
        many = ld_int64(item.ARRAY_SHAPE, 0)
"""
#: One array after the other. Columns of numbers wait, and are copied together.
_ARRAYS["fill"] = """\
fits = many == rows
found, at, waiting = 0, 0, 0
st_int64(pair, 0, 0)
while fits:
    place = at
    if named:
        $next_field
    elif at != 0:
        break
    at = place + 1
    field = table.FIELD_TABLE + FIELD_ROW * place
    found += field.NEEDED
    read, width, none = field.READ, field.ACROSS, field.LOW
    if read == SKIP:
        continue
    if waiting == MOST_WAITING:
        $copy_waiting
    fits = item.TYPE == PyArray_Type
    if not fits:
        break
    rank = item.ARRAY_RANK
    fits = 0 < rank and rank < 3 and item.ARRAY_FLAGS & ALIGNED != 0
    if fits:
        fits = (field.RANKS >> rank) & 1 != 0
    if not fits:
        break
    shape, strides, across = item.ARRAY_SHAPE, item.ARRAY_STRIDES, 0
    fits = ld_int64(shape, 0) == rows
    if rank == 2:
        fits, across = fits and ld_int64(shape, 1) == width, ld_int64(strides, 1)
    if not fits:
        break
    begin, step, dtype = item.ARRAY_DATA, ld_int64(strides, 0), item.ARRAY_DTYPE
    into = scratch + blocks + field.OFFSET
    if read == NUMBER:
        $numbers
        continue
    $same_dtype(dtype, table.OBJECT)
    if same:
        for i in range(rows):
            for j in range(width):
                item = ld_int64(begin + i * step + j * across, 0)
                cell, fits = into + i * row_bytes + 16 * j, item != 0
                if fits:
                    $text_cell
                if not fits:
                    break
            if not fits:
                break
    elif dtype == table.CELLS:
        $cells
    else:
        $characters
fits = fits and found == table.REQUIRED
if fits:
    $copy_waiting
"""
#: Some rows of all columns that wait, then the next: what is written stays in the nearest cache.
_ARRAYS["copy_waiting"] = """\
for tile in range((rows + TILE - 1) // TILE):
    first = tile * TILE
    few = min(TILE, rows - first)
    for place in range(waiting):
        queued = queue + 32 * place
        step, long = ld_int64(queued, 2), ld_int64(queued, 3)
        here = ld_int64(queued, 0) + first * row_bytes
        there = ld_int64(queued, 1) + first * step
        $copy_words
waiting = 0
"""
_ARRAYS["numbers"] = """\
$same_dtype(dtype, field.DTYPE)
fits = same
if not fits:
    break
long = field.BYTES
if width != 1 and across == long:
    for i in range(rows):
        memcpy(into + i * row_bytes, begin + i * step, width * long)
    continue
if width == 1 and rows > TILE:
    queued = queue + 32 * waiting
    st_int64(queued, 0, into)
    st_int64(queued, 1, begin)
    st_int64(queued, 2, step)
    st_int64(queued, 3, long)
    waiting += 1
    continue
few = rows
for j in range(width):
    here, there = into + j * long, begin + j * across
    $copy_words
"""
#: Texts in Arrow's memory, by where they are and how long: see flour.data.arrow_strings.
_ARRAYS["cells"] = """\
fits, least = width == 1, 0
for i in range(rows if fits else 0):
    here, there = into + i * row_bytes, begin + i * step
    long = ld_int64(there, 1)
    st_int64(here, 0, ld_int64(there, 0))
    st_int64(here, 1, long)
    total += max(long, 0)
    longest, least = max(longest, long), min(least, long)
fits = fits and (least == 0 or read == STRING)
"""
#: How long the UTF-8 of numpy's characters is, of four bytes each, and whether it can be written.
_ARRAYS["characters"] = """\
fits = dtype.DTYPE_KIND == CHARACTERS
most_letters = dtype.DTYPE_SIZE // 4 if fits else 0
for i in range(rows):
    for j in range(width):
        letters, left = begin + i * step + j * across, most_letters
        while left > 0:
            if ld_int32(letters, left - 1) != 0:
                break
            left -= 1
        every, long = 0, left
        for k in range(left):
            every |= ld_int32(letters, k)
        if every < 0 or every > 127:
            for k in range(left):
                letter = ld_int32(letters, k)
                long += int64(letter > 0x7F) + int64(letter > 0x7FF) + int64(letter > 0xFFFF)
                if letter < 0 or letter > 0x10FFFF or letter >> 11 == 27:
                    fits = False
        cell = into + i * row_bytes + 16 * j
        st_int64(cell, 0, letters + (ASCII if long == left else LETTERS))
        st_int64(cell, 1, long)
        total += long
        longest = max(longest, long)
    if not fits:
        break
"""
#: UTF-8 of numpy's characters, where a text's address says that they are.
_ARRAYS["encode"] = """\
if where >= ASCII:
    letters = where - ASCII
    for k in range(long):
        st_int8(behind, k, int8(ld_int32(letters, k)))
    behind += long
    continue
if where < 0:
    letters, end, k = where - LETTERS, behind + long, 0
    while behind < end:
        letter = int64(ld_int32(letters, k))
        k += 1
        if letter < 0x80:
            st_int8(behind, 0, int8(letter))
            behind += 1
            continue
        more = 1 + int64(letter > 0x7FF) + int64(letter > 0xFFFF)
        st_int8(behind, 0, int8((0xFF00 >> more + 1) & 0xFF | letter >> 6 * more))
        for j in range(more):
            rest = letter >> 6 * (more - 1 - j)
            st_int8(behind, 1 + j, int8(0x80 | rest & 0x3F))
        behind += more + 1
    continue
"""
# The rows, and once it is known how long the strings are, they; arrays of bytes both. Making an
# array does not run the collector, which the strings that are pointed at would not survive.
_PACKED = """\
$start(lay_out)
    row_bytes, blocks, owned, owned_bytes = table.ROW_BYTES, 0, 0, 0
    answers = PyTuple_New(2)
    if answers == 0:
        return 0
    $bytes(rows * row_bytes, 0)
    scratch, total, longest = array.ARRAY_DATA, 0, 0
    $look
    $fill
    $refuse
    $convert
    $bytes(total + 24, 1)
    behind = array.ARRAY_DATA
    $copy_texts
    return answers
"""
_ARRAYS["bytes"] = """\
st_int64(sizes, 0, {0})
Py_IncRef(table.DTYPE)
array = PyArray_Empty(1, sizes, table.DTYPE, 0)
if array == 0:
    Py_DecRef(answers)
    return 0
PyTuple_SetItem(answers, {1}, array)
"""
# The array is held: once the interpreter's lock is let go, another thread may empty the dict.
_NAMED = """\
def named_entry(self, argument):
    table = self.ARRAY_DATA
    item, fits = 0, False
    if argument.TYPE == PyDict_Type:
        if PyDict_Size(argument) == 1:
            item = PyDict_GetItemWithError(argument, table.LABEL)
            if item == 0:
                PyErr_Clear()
    if item != 0:
        if item.TYPE == PyArray_Type and item.ARRAY_RANK == 2:
            fits = ld_int64(item.ARRAY_SHAPE, 0) > 0
    if not fits:
        $fall_back
    Py_IncRef(item)
    answers = PyObject_CallOneArg(table.ENTRY, item)
    Py_DecRef(item)
    return answers
"""


def _form(name: str, text: str, **parts: str) -> Template:
    return Template(name, text, {**PARTS, "nothing_there": _NOTHING_THERE, **parts})


VECTORS = _form("entry", _VECTORS)
DOCUMENTS = _form("text_entry", _DOCUMENTS, look=_LOOK_DOCUMENTS, convert="")
RECORDS = _form(*("record_entry", _RECORDS), look=_LOOK_RECORDS, number=_NUMBER)
COLUMNS = _form("columns_entry", _COLUMNS, **_ARRAYS)
PACKED = _form("lay_out", _PACKED, **_ARRAYS)
NAMED = _form("named_entry", _NAMED)
