"""The parts that entries are made of, each written once: see oven.entry.generator.

Making an object may run the garbage collector, and that may run anybody's code, this entry
included. So all containers are made first, and scratch memory, which all entries share, is used
only after that: from there to the end no other Python code can run. A big block gets scratch memory
of its own, and runs without the interpreter's lock.

Parts speak of the entry's own variables: `argument` and `table`; `rows` and `dimensions`, what the
answers are to be; `answers`, the tuple of them; `scratch`, `owned` and `capacity`, the memory, whom
it belongs to and how much there is; `blocks` and `row_bytes`, where in it the rows lie and how far
apart; `fits`, whether the argument is what the plan was made for; `total` and `longest`, the bytes
of its texts.
"""

from __future__ import annotations

from collections.abc import Mapping

from oven.entry.generator import KINDS

#: The parts by their names.
PARTS: dict[str, str] = {}

#: Whatever is not exactly what the plan was made for goes to a Python function in the table.
PARTS["fall_back"] = """\
return PyObject_CallOneArg(table.FALLBACK, argument)
"""
PARTS["discard"] = """\
$give_back
Py_DecRef(answers)
"""
#: Memory of a call's own: the block that an earlier call left, as the pages of a new one take
#: longer to come than most calls.
PARTS["allocate"] = """\
owned, owned_bytes, spares = ld_int64(table.SPARE, 0), ld_int64(table.SPARE, 1), table.SPARE
if owned != 0 and owned_bytes >= {0} + 64:
    st_int64(spares, 0, 0)
    st_int64(spares, 1, 0)
else:
    owned_bytes = {0} + 64
    owned = PyMem_RawMalloc(owned_bytes)
    if owned == 0:
        Py_DecRef(answers)
        return PyErr_NoMemory()
scratch = (owned + 63) & -64
"""
#: The larger of this block and the one that was left before is left for the next call.
PARTS["give_back"] = """\
if owned != 0:
    spares = table.SPARE
    if owned_bytes <= MOST_SPARE and owned_bytes > ld_int64(spares, 1):
        left = ld_int64(spares, 0)
        st_int64(spares, 0, owned)
        st_int64(spares, 1, owned_bytes)
        owned = left
    PyMem_RawFree(owned)
"""
#: Whether two dtypes are the same; arrays that were pickled have a copy of theirs.
PARTS["same_dtype"] = """\
theirs, own = {0}, {1}
same = theirs == own
if not same:
    same = theirs.DTYPE_KIND & SAME_DTYPE == own.DTYPE_KIND & SAME_DTYPE
"""
#: Where the items of a list or a tuple are, and whether it has this many.
PARTS["items_of"] = """\
if kind == PyList_Type:
    {0}, fits = {1}.LIST_ITEMS, {1}.SIZE == {2}
else:
    {0}, fits = {1} + 8 * TUPLE_ITEMS, kind == PyTuple_Type
    if fits:
        fits = {1}.SIZE == {2}
"""
#: Make the answers.
PARTS["answers"] = """\
count = table.OUTPUTS
answers = PyTuple_New(count)
if answers == 0:
    return 0
sizes = stack_words(2)
for place in range(count):
    output = table.OUTPUT_TABLE + OUTPUT_ROW * place
    across = output.ACROSS
    if dimensions == 2 or across != SCALAR:
        $array
        PyTuple_SetItem(answers, place, item)
"""
#: An array for one output. Making one takes longer than most rows do. So a small one stays on a
#: shelf, and where it has no other reference and is as it was made, it is used again. Nothing is
#: lost with an array that is changed or held in any way: the next takes its place.
PARTS["array"] = """\
st_int64(sizes, 0, rows if dimensions == 2 else across)
st_int64(sizes, 1, across)
dtype, shelf, item = output.DTYPE, output.SHELF, 0
rank = dimensions - (1 if across == SCALAR else 0)
elements = rows * (1 if across == SCALAR else across)
small = 0 < elements and elements <= SHELVED
if small:
    $shelved
if item == 0:
    Py_IncRef(dtype)
    item = PyArray_Empty(rank, sizes, dtype, 0)
    if item == 0:
        Py_DecRef(answers)
        return 0
    if small:
        before = ld_int64(shelf, 0)
        Py_IncRef(item)
        st_int64(shelf, 0, item)
        Py_DecRef(before)
"""
PARTS["shelved"] = """\
item = ld_int64(shelf, 0)
same = item.TYPE == PyArray_Type
if same:
    same = item.REFERENCES == 1 and item.ARRAY_DTYPE == dtype
    same = same and item.ARRAY_FLAGS | BY_COLUMNS == UNTOUCHED
    same = same and item.ARRAY_BASE | item.ARRAY_WEAKREFS | item.ARRAY_BUFFERS == 0
if same:
    shape = item.ARRAY_SHAPE
    same = item.ARRAY_RANK == rank
    same = same and ld_int64(shape, 0) == ld_int64(sizes, 0)
    if same and rank == 2:
        same = ld_int64(shape, 1) == across
if same and output.KIND == KIND_STRING:
    name, cells = ldc_int64(output.NAMES, 0), item.ARRAY_DATA
    for j in range(rows):
        held = ld_int64(cells, j)
        if same and held != 0:
            same = held.TYPE == name.TYPE
        else:
            same = False
if same:
    Py_IncRef(item)
else:
    item = 0
"""
#: Memory for the rows.
PARTS["rows_memory"] = """\
blocks, row_bytes = table.SCRATCH_BYTES, table.ROW_BYTES
numbers = (blocks + rows * row_bytes + 63) & -64
texts = table.TEXTS if dimensions == 2 else 0
copies = numbers + 8 * rows * texts
scratch, owned, owned_bytes, capacity = table.SCRATCH, 0, 0, table.SHARED_BYTES
if copies > capacity:
    capacity += copies
    $allocate(capacity)
total, longest = 0, 0
"""
#: Of a dict the next value, with the place of the field that has its key.
PARTS["next_field"] = """\
if PyDict_Next(record, pair, pair + 8, pair + 16) == 0:
    break
key, item = ld_int64(pair, 1), ld_int64(pair, 2)
known, plain = False, key.TYPE == PyUnicode_Type
if at < table.FIELDS:
    wanted = ldc_int64(table.KEYS, at)
    known = key == wanted
    if not known and plain and key.STRING_HASH == wanted.STRING_HASH:
        known = PyUnicode_Compare(key, wanted) == 0
if not known:
    hit = 0
    if plain:
        hit = PyDict_GetItemWithError(table.INDEX, key)
    if hit == 0:
        fits = False
        break
    place = int64(hit.FLOAT_VALUE)
"""
#: A cell of text for a value: its UTF-8, which Python keeps, or that it is missing.
PARTS["text_cell"] = """\
if item.TYPE == PyUnicode_Type:
    where = PyUnicode_AsUTF8AndSize(item, size)
    st_int64(cell, 0, where)
    st_int64(cell, 1, ld_int64(size, 0))
    fits = where != 0
    if fits:
        total += ld_int64(size, 0)
        longest = max(longest, ld_int64(size, 0))
    else:
        PyErr_Clear()
else:
    missing = 0
    if item == Py_None:
        missing = none
    elif item.TYPE == PyFloat_Type:
        number = item.FLOAT_VALUE
        missing = NO_NUMBER if number != number else 0
    fits = missing != 0 and read == STRING
    st_int64(cell, 1, missing)
"""
PARTS["refuse"] = """\
if not fits or longest > table.LONGEST:
    $discard
    $fall_back
"""
#: Halves of whole numbers beyond int64 keep what is rounded away in their lowest bit.
PARTS["convert"] = """\
for place in range(table.CONVERSIONS):
    conversion = table.CONVERSION_TABLE + CONVERSION_ROW * place
    kind, wanted = conversion.KIND, conversion.WANTED
    for i in range(rows):
        here = scratch + blocks + i * row_bytes + conversion.FROM
        there = scratch + blocks + i * row_bytes + conversion.TO
        word, value = 0, 0.0
        $load_value
        if kind != KIND_FLOAT64 and kind != KIND_FLOAT32:
            value = float64(word)
            if kind == KIND_UINT64 and word < 0:
                value = 2.0 * float64(word >> 1 & 9223372036854775807 | word & 1)
        $store_value
"""
#: Memory for what depends on the longest document.
PARTS["grow"] = """\
room, most, sum_up = table.ROOMS, 0, 0
for place in range(table.ROOM_COUNT):
    takes = longest * room.EACH + room.FIXED
    sum_up += (min(takes, room.MOST) + 63) & -64
    most = max(most, sum_up)
    if room.END != 0:
        sum_up = 0
    room += ROOM_ROW
spare = (copies + total + 24 + 63) & -64
work = rows * (table.ROW_WORK + longest * table.BYTE_WORK)
release = work >= table.RELEASE_WORK
if spare + most > capacity or (release and owned == 0):
    larger = PyMem_RawMalloc(spare + most + 64)
    if larger != 0:
        memcpy((larger + 63) & -64, scratch, numbers)
    $give_back
    if larger == 0:
        Py_DecRef(answers)
        return PyErr_NoMemory()
    owned, owned_bytes, scratch = larger, spare + most + 64, (larger + 63) & -64
"""
#: The texts themselves, behind one another, and their cells pointing there.
PARTS["copy_texts"] = """\
strings, string_table = table.STRINGS, table.STRING_TABLE
for i in range(rows):
    for place in range(strings):
        cell = scratch + blocks + i * row_bytes + ldc_int64(string_table, place)
        where, long = ld_int64(cell, 0), max(ld_int64(cell, 1), 0)
        st_int64(cell, 0, behind)
        $encode
        if long > 0:
            memcpy(behind, where, long)
        behind += long
st_int64(behind, 0, 0)
st_int64(behind, 1, 0)
"""
#: Where the columns are.
PARTS["wire"] = """\
for place in range(table.PORTS):
    st_int64(scratch, 2 * place, scratch + blocks + ldc_int64(table.PORT_TABLE, place))
    st_int64(scratch, 2 * place + 1, row_bytes)
column = table.ROOM_COLUMN
st_int64(scratch, 2 * column, scratch + spare)
st_int64(scratch, 2 * column + 1, longest)
text = scratch + numbers
"""
#: What follows once all values are in their rows.
PARTS["filled"] = """\
$refuse
$convert
$grow
behind = scratch + copies
$copy_texts
$wire
$run
"""
#: Run all stages, and turn what they left into the answers. Of several outputs that are the same
#: column the last one is computed, and the others are copies.
PARTS["run"] = """\
for place in range(count):
    output = table.OUTPUT_TABLE + OUTPUT_ROW * place
    across, step = output.ACROSS, output.BYTES
    where = scratch + table.CELLS + 8 * place
    if dimensions == 2 and output.KIND == KIND_STRING:
        where = text
        text += 8 * rows
    elif dimensions == 2 or across != SCALAR:
        item = ld_int64(answers, TUPLE_ITEMS + place)
        where = item.ARRAY_DATA
    column = output.COLUMN
    st_int64(scratch, 2 * column, where)
    st_int64(scratch, 2 * column + 1, step)
thread = 0
if release:
    thread = PyEval_SaveThread()
refused = call_stage(table.RUN, table.PROGRAM, scratch, rows, scratch + table.STAGES) != 0
if release:
    PyEval_RestoreThread(thread)
if refused:
    $discard
    $fall_back

for place in range(count):
    output = table.OUTPUT_TABLE + OUTPUT_ROW * place
    kind, where = output.KIND, ld_int64(scratch, 2 * output.COLUMN)
    names, last = output.NAMES, output.LAST
    if dimensions == 2:
        if kind == KIND_STRING:
            item = ld_int64(answers, TUPLE_ITEMS + place)
            cells = item.ARRAY_DATA
            for i in range(rows):
                name = ldc_int64(names, min(max(ld_int64(where, i), 0), last))
                Py_IncRef(name)
                before = ld_int64(cells, i)
                st_int64(cells, i, name)
                Py_DecRef(before)
    if kind != KIND_STRING and (dimensions == 2 or output.ACROSS != SCALAR):
        item = ld_int64(answers, TUPLE_ITEMS + place)
        if item.ARRAY_DATA != where:
            memcpy(item.ARRAY_DATA, where, rows * output.BYTES)
    if dimensions != 2 and output.ACROSS == SCALAR:
        item = 0
        $scalar
        else:
            item = ldc_int64(names, min(max(ld_int64(where, 0), 0), last))
            Py_IncRef(item)
        if item == 0:
            Py_DecRef(answers)
            answers = 0
            break
        PyTuple_SetItem(answers, place, item)
$give_back
return answers
"""
#: The first answers of a call as a dict, under the names in a tuple.
PARTS["named_answers"] = """\
made, wrong = PyDict_New(), 0
if made != 0:
    for place in range({0}.SIZE):
        name = ld_int64({0}, TUPLE_ITEMS + place)
        wrong |= PyDict_SetItem(made, name, ld_int64(answers, TUPLE_ITEMS + place))
    if wrong != 0:
        Py_DecRef(made)
        made = 0
Py_DecRef(answers)
"""


def _switch(name: str, cases: dict[str, str]) -> str:
    """One of these lines, by a number."""
    return "el".join([f"if {name} == {number}:\n    {line}\n" for number, line in cases.items()])


def _of_kinds(name: str, floats: str, integers: str, others: Mapping[str, str]) -> str:
    """One of these lines by the number of a kind; {0} is the kind, {1} it without its sign."""
    lines = {
        f"KIND_{kind.upper()}": others.get(kind, floats if "float" in kind else integers)
        for kind in KINDS[:-1]
    }
    made = {each: (each[5:].lower(), each[5:].lower().removeprefix("u")) for each in lines}
    return _switch(name, {each: line.format(*made[each]) for each, line in lines.items()})


def _of_sizes(line: str) -> str:
    return _switch("long", {str(size): line.format(8 * size) for size in (8, 4, 2, 1)})


_FLAG = "int64(ld_uint8({0}, 0) != 0)"
PARTS |= {
    "encode": "",
    # A number in memory as one of Python's.
    "scalar": _of_kinds(
        "kind",
        "item = PyFloat_FromDouble(float64(ld_{0}(where, 0)))",
        "item = PyLong_FromLongLong(int64(ld_{0}(where, 0)))",
        {
            "bool": f"item = PyBool_FromLong({_FLAG.format('where')})",
            "uint64": "item = PyLong_FromUnsignedLongLong(int64(ld_uint64(where, 0)))",
        },
    ),
    # A number in memory as float64 or int64, whose bits a uint64 keeps.
    "load_value": _of_kinds(
        "kind",
        "value = float64(ld_{0}(here, 0))",
        "word = int64(ld_{0}(here, 0))",
        {"bool": f"word = {_FLAG.format('here')}"},
    ),
    "store_value": _of_kinds(
        "wanted",
        "st_{0}(there, 0, {0}(value))",
        "st_{1}(there, 0, {1}(word))",
        {"bool": "st_int8(there, 0, int8(word))"},
    ),
    "store_word": _of_sizes("st_int{0}(cell, 0, int{0}(word))"),
    "copy_words": _of_sizes(
        "for i in range(few):\n"
        "        st_int{0}(here + i * row_bytes, 0, ld_int{0}(there + i * step, 0))"
    ),
}
