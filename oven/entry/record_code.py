"""The entry of a plan that reads records: its machine code (see oven.entry.array_code).

The argument is a row by name (a dict), a row by position (a list or tuple), or a block of few rows:
a list of such rows, or a dict of lists. Values may be Python's own numbers, strings and None, and
numpy's most common scalars. Keys of a dict come in the order of the fields (the same string, or one
of the same hash that is equal), or are looked up in an index; all of it runs nobody's code, so from
the second look at the argument to the end nothing changes.

A row's cells lie side by side, and all blocks of columns that the stages read are cut from the same
rows. Scratch memory, behind the words that all entries have: rows, numbers of strings, documents,
rooms (memory whose size depends on the longest document). Whatever coercion would have to think
about (numbers beyond 2**53 where they may be rounded twice, subclasses, other keys) goes to Python.
"""

from __future__ import annotations

from oven.codegen.string_cells import NAN, NONE
from oven.entry.array_code import KINDS, MAKE, MEMORY_WORDS, ROOMS, RUN, WORDS, source

#: How a field is read, besides as a whole number.
SKIP, FLOAT64, FLOAT32, STRING, TEXT, WHOLE = range(6)
#: What the table of fields says of each: how it is read, where in the row it goes, whether it has
#: to be there, and of whole numbers the bytes and the bounds.
FIELD_WORDS = ("READ", "OFFSET", "NEEDED", "BYTES", "LOW", "HIGH")
#: Values that ports want in another dtype: how many, and where it says from where to where.
CONVERSION_WORDS = ("CONVERSIONS", "CONVERSION_TABLE")
#: The table's words, in order: those of all entries, and more.
RECORD_WORDS = (
    *WORDS[:-1],
    # What the argument and its values may be.
    "STR_TYPE",
    "DICT_TYPE",
    "TRUE",
    "FALSE",
    "DOUBLE_TYPE",
    "SINGLE_TYPE",
    "LONG_TYPE",
    "FLAG_TYPE",
    "BY_POSITION",
    "ARRAYS",
    # The fields: keys, a dict from key to place, and the table above.
    "FIELDS",
    "REQUIRED",
    "KEYS",
    "INDEX",
    "FIELD_TABLE",
    # The columns that stages read: how many, and where they are in a row; of texts the same.
    "PORTS",
    "PORT_TABLE",
    "STRINGS",
    "STRING_TABLE",
    *CONVERSION_WORDS,
    "ROW_BYTES",
    # Functions.
    "DICT_NEXT",
    "DICT_GET",
    "INT_AS_WORD",
    "AS_UTF8",
    "COMPARE",
    "COPY",
    *MEMORY_WORDS,
    "FIRST",
)
NAME = "record_entry"
#: What the argument is.
_FORMS = ("NOTHING", "ROW_BY_NAME", "COLUMNS", "ROWS_BY_NAME", "LISTED", "LISTS")

_START = """\
def record_entry(self, argument):
    table = ld_int64(self, 2)
    size, pair = stack_words(1), stack_words(3)
    if ld_int64(argument, 1) == ldc_int64(table, ARRAY_TYPE):
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, ARRAYS), argument)
"""
# What the argument is, and how many rows. This is done again once all containers are made, as
# making one may run anybody's code, and that may have changed a list.
_LOOK = """\
    form, many, axes, outer = NOTHING, 0, 0, 0
    kind = ld_int64(argument, 1)
    if kind == ldc_int64(table, DICT_TYPE):
        st_int64(pair, 0, 0)
        if c_call_4(ldc_int64(table, DICT_NEXT), argument, pair, pair + 8, pair + 16) & LOW_HALF:
            form, many, axes = ROW_BY_NAME, 1, 1
            item = ld_int64(pair, 2)
            kind = ld_int64(item, 1)
            if kind == ldc_int64(table, LIST_TYPE) or kind == ldc_int64(table, TUPLE_TYPE):
                form, many, axes = COLUMNS, ld_int64(item, 2), 2
            elif kind == ldc_int64(table, ARRAY_TYPE):
                many = 0
    elif kind == ldc_int64(table, LIST_TYPE) or kind == ldc_int64(table, TUPLE_TYPE):
        outer = ld_int64(argument, 3) if kind == ldc_int64(table, LIST_TYPE) else argument + 24
        if ld_int64(argument, 2) > 0 and ldc_int64(table, BY_POSITION) != 0:
            kind = ld_int64(ld_int64(outer, 0), 1)
            form, many, axes = LISTED, 1, 1
            if kind == ldc_int64(table, DICT_TYPE):
                form, many, axes = ROWS_BY_NAME, ld_int64(argument, 2), 2
            elif kind == ldc_int64(table, LIST_TYPE) or kind == ldc_int64(table, TUPLE_TYPE):
                form, many, axes = LISTS, ld_int64(argument, 2), 2
"""
_ASK = """\
    if many == 0:
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
    rows, dimensions, asked = many, axes, form

"""
REFUSE = """\
        if owned != 0:
            c_call_1(ldc_int64(table, FREE), owned)
        c_call_1(ldc_int64(table, DECREASE), made)
"""
FALL_BACK = """\
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
"""
# Memory for the rows.
ROOM = """\
    blocks, row_bytes = ldc_int64(table, SCRATCH_BYTES), ldc_int64(table, ROW_BYTES)
    answers = (blocks + rows * row_bytes + 63) & -64
    texts = ldc_int64(table, TEXTS) if dimensions == 2 else 0
    copies = answers + 8 * rows * texts
    scratch, owned, capacity = ldc_int64(table, SCRATCH), 0, ldc_int64(table, SHARED_BYTES)
    if copies > capacity:
        owned, capacity = c_call_1(ldc_int64(table, MALLOC), copies + 64), copies
        if owned == 0:
            c_call_1(ldc_int64(table, DECREASE), made)
            return c_call_0(ldc_int64(table, NO_MEMORY))
        scratch = (owned + 63) & -64
    total, longest = 0, 0
"""
# One value after the other. The body of the inner loop is what coercion means.
_FILL = """\
    fits = form == asked and many == rows and axes == dimensions
    fields = ldc_int64(table, FIELDS)
    keys, index = ldc_int64(table, KEYS), ldc_int64(table, INDEX)
    for i in range(rows):
        if not fits:
            break
        row = scratch + blocks + i * row_bytes
        record, items, found, at = argument, 0, 0, 0
        if form == ROWS_BY_NAME or form == LISTS:
            record = ld_int64(outer, i)
        kind = ld_int64(record, 1)
        if form <= ROWS_BY_NAME:
            fits = kind == ldc_int64(table, DICT_TYPE)
        elif kind == ldc_int64(table, LIST_TYPE):
            items, fits = ld_int64(record, 3), ld_int64(record, 2) == fields
        else:
            items = record + 24
            fits = kind == ldc_int64(table, TUPLE_TYPE)
            if fits:
                fits = ld_int64(record, 2) == fields
        st_int64(pair, 0, 0)
        while fits:
            place, item = at, 0
            if items != 0:
                if at == fields:
                    break
                item = ld_int64(items, at)
            else:
                more = c_call_4(ldc_int64(table, DICT_NEXT), record, pair, pair + 8, pair + 16)
                if more & LOW_HALF == 0:
                    break
                key, item = ld_int64(pair, 1), ld_int64(pair, 2)
                known, plain = False, ld_int64(key, 1) == ldc_int64(table, STR_TYPE)
                if at < fields:
                    wanted = ldc_int64(keys, at)
                    known = key == wanted
                    if not known and plain and ld_int64(key, 3) == ld_int64(wanted, 3):
                        known = c_call_2(ldc_int64(table, COMPARE), key, wanted) & LOW_HALF == 0
                if not known:
                    hit = 0
                    if plain:
                        hit = c_call_2(ldc_int64(table, DICT_GET), index, key)
                    if hit == 0:
                        fits = False
                        break
                    place = int64(ld_float64(hit, 2))
                if form == COLUMNS:
                    kind = ld_int64(item, 1)
                    if kind == ldc_int64(table, LIST_TYPE):
                        column = ld_int64(item, 3)
                    else:
                        column = item + 24
                        fits = kind == ldc_int64(table, TUPLE_TYPE)
                    if fits:
                        fits = ld_int64(item, 2) == rows
                    if not fits:
                        break
                    item = ld_int64(column, i)
            at = place + 1
            field = ldc_int64(table, FIELD_TABLE) + 8 * FIELD_SIZE * place
            read, into = ldc_int64(field, READ), row + ldc_int64(field, OFFSET)
            found += ldc_int64(field, NEEDED)
            kind = ld_int64(item, 1)
            if read == STRING or read == TEXT:
                if kind == ldc_int64(table, STR_TYPE):
                    where = c_call_2(ldc_int64(table, AS_UTF8), item, size)
                    st_int64(into, 0, where)
                    st_int64(into, 1, ld_int64(size, 0))
                    fits = where != 0
                    if fits:
                        total += ld_int64(size, 0)
                        longest = max(longest, ld_int64(size, 0))
                    else:
                        c_call_0(ldc_int64(table, ERROR_CLEAR))
                else:
                    gone = 0
                    if item == ldc_int64(table, NONE):
                        gone = NO_STRING
                    elif kind == ldc_int64(table, FLOAT_TYPE):
                        value = ld_float64(item, 2)
                        gone = NO_NUMBER if value != value else 0
                    fits = gone != 0 and read == STRING
                    st_int64(into, 1, gone)
                continue
            whole, word, value = False, 0, math.nan
            if kind == ldc_int64(table, FLOAT_TYPE) or kind == ldc_int64(table, DOUBLE_TYPE):
                value = ld_float64(item, 2)
            elif kind == ldc_int64(table, INT_TYPE):
                word, whole = c_call_2(ldc_int64(table, INT_AS_WORD), item, size), True
                fits = ld_int32(size, 0) == 0
            elif item == ldc_int64(table, TRUE) or item == ldc_int64(table, FALSE):
                word, whole = int64(item == ldc_int64(table, TRUE)), True
            elif kind == ldc_int64(table, LONG_TYPE):
                word, whole = ld_int64(item, 2), True
            elif kind == ldc_int64(table, SINGLE_TYPE):
                value = float64(ld_float32(item, 4))
            elif kind == ldc_int64(table, FLAG_TYPE):
                word, whole = int64(ld_uint8(item, 16) != 0), True
            elif read == SKIP and kind == ldc_int64(table, STR_TYPE):
                continue
            elif item != ldc_int64(table, NONE):
                fits = False
            if whole:
                value = float64(word)
            exact = -EXACT <= word and word <= EXACT
            if read == FLOAT64:
                st_float64(into, 0, value)
            elif read == FLOAT32:
                fits = fits and exact
                st_float32(into, 0, float32(value))
            elif read == WHOLE:
                if not whole:
                    fits = fits and abs(value) <= EXACT and value == math.floor(value)
                    word = int64(value) if fits else 0
                elif not exact:
                    fits = fits and form == ROW_BY_NAME
                fits = fits and ldc_int64(field, LOW) <= word and word <= ldc_int64(field, HIGH)
                step = ldc_int64(field, BYTES)
                if step == 8:
                    st_int64(into, 0, word)
                elif step == 4:
                    st_int32(into, 0, int32(word))
                elif step == 2:
                    st_int16(into, 0, int16(word))
                else:
                    st_int8(into, 0, int8(word))
        fits = fits and found == ldc_int64(table, REQUIRED)
    if not fits or longest > ldc_int64(table, LONGEST):
"""
# Memory for what depends on the longest document.
GROW = f"""\
{ROOMS}\
    spare = (copies + total + 24 + 63) & -64
    work = rows * (ldc_int64(table, ROW_WORK) + longest * ldc_int64(table, BYTE_WORK))
    release = work >= ldc_int64(table, RELEASE_WORK)
    if spare + most > capacity or (release and owned == 0):
        larger = c_call_1(ldc_int64(table, MALLOC), spare + most + 64)
        if larger != 0:
            c_call_3(ldc_int64(table, COPY), (larger + 63) & -64, scratch, answers)
        if owned != 0:
            c_call_1(ldc_int64(table, FREE), owned)
        if larger == 0:
            c_call_1(ldc_int64(table, DECREASE), made)
            return c_call_0(ldc_int64(table, NO_MEMORY))
        owned, scratch = larger, (larger + 63) & -64
"""
# The documents themselves.
_COPY = """\
    made_at = scratch + copies
    strings, string_table = ldc_int64(table, STRINGS), ldc_int64(table, STRING_TABLE)
    for i in range(rows):
        for place in range(strings):
            cell = scratch + blocks + i * row_bytes + ldc_int64(string_table, place)
            length = ld_int64(cell, 1)
            if length > 0:
                c_call_3(ldc_int64(table, COPY), made_at, ld_int64(cell, 0), length)
            st_int64(cell, 0, made_at)
            made_at += max(length, 0)
"""


def _convert() -> str:
    """Each value that a port wants in another dtype than its own, as numpy's `astype` makes it."""
    loads, stores = [], []
    for kind in KINDS[:-1]:
        into = "value" if kind.startswith("float") else "word"
        loaded = {"float32": "float64(ld_float32(here, 0))", "uint64": "ld_int64(here, 0)"}
        loaded |= {"bool": "int64(ld_uint8(here, 0) != 0)"}
        wide = loaded.get(kind, f"{'' if into == 'value' else 'int64'}(ld_{kind}(here, 0))")
        loads.append((kind, f"{into} = {wide}"))
    for kind, bytes_ in (("int64", 8), ("int32", 4), ("int16", 2), ("int8", 1)):
        names = [name for name in KINDS[:-1] if name in _OF_BYTES[bytes_]]
        stores += [(name, f"st_{kind}(there, 0, {kind}(word))") for name in names]
    stores += [("float64", "st_float64(there, 0, value)")]
    stores += [("float32", "st_float32(there, 0, float32(value))")]
    return _CONVERT.format(loads=_switch("kind", loads), stores=_switch("wanted", stores))


def _switch(name: str, cases: list[tuple[str, str]]) -> str:
    """One of these lines, by the number of a dtype."""
    return "\n".join(
        f"            {'if' if place == 0 else 'elif'} {name} == {KINDS.index(kind)}:\n"
        f"                {line}"
        for place, (kind, line) in enumerate(cases)
    )


_OF_BYTES: dict[int, tuple[str, ...]] = {
    8: ("int64", "uint64"),
    4: ("int32", "uint32"),
    2: ("int16", "uint16"),
    1: ("int8", "uint8", "bool"),
}
# Halves of whole numbers beyond int64 keep what is rounded away in their lowest bit.
_CONVERT = f"""\
    conversions = ldc_int64(table, CONVERSION_TABLE)
    for place in range(ldc_int64(table, CONVERSIONS)):
        kind, wanted = ldc_int64(conversions, 4 * place + 1), ldc_int64(conversions, 4 * place + 3)
        for i in range(rows):
            here = scratch + blocks + i * row_bytes + ldc_int64(conversions, 4 * place)
            there = scratch + blocks + i * row_bytes + ldc_int64(conversions, 4 * place + 2)
            word, value = 0, 0.0
{{loads}}
            if kind > 1:
                value = float64(word)
                if kind == {KINDS.index("uint64")} and word < 0:
                    value = 2.0 * float64(word >> 1 & {2**63 - 1} | word & 1)
{{stores}}
"""
CONVERT = _convert()
# Where the columns are.
WIRE = """\
    st_int64(made_at, 0, 0)
    st_int64(made_at, 1, 0)
    ports, stride, text = ldc_int64(table, PORT_TABLE), row_bytes, scratch + answers
    data = scratch + blocks + ldc_int64(ports, 0)
    for place in range(ldc_int64(table, PORTS)):
        st_int64(scratch, 2 * place, scratch + blocks + ldc_int64(ports, place))
        st_int64(scratch, 2 * place + 1, row_bytes)
    column = ldc_int64(table, ROOM_COLUMN)
    st_int64(scratch, 2 * column, scratch + spare)
    st_int64(scratch, 2 * column + 1, longest)

"""


def numbered(names: tuple[str, ...]) -> str:
    """These names as numbers, in code."""
    return "".join(f"{name} = {number}\n" for number, name in enumerate(names))


def _constants() -> str:
    """The numbers that the code is about, by name."""
    reads = ("SKIP", "FLOAT64", "FLOAT32", "STRING", "TEXT", "WHOLE")
    known = f"FIELD_SIZE = {len(FIELD_WORDS)}\nLOW_HALF = {0xFFFFFFFF}\nEXACT = {2**53}\n"
    known += f"NO_STRING = {NONE}\nNO_NUMBER = {NAN}\n"
    return known + numbered(reads) + numbered(FIELD_WORDS) + numbered(_FORMS)


_FILLED = ROOM + _FILL + REFUSE + FALL_BACK + CONVERT + GROW + _COPY + WIRE
_BODY = (_LOOK + _ASK, MAKE, _LOOK, _FILLED, RUN)
SOURCE = source(_constants() + _START, *_BODY, words=RECORD_WORDS)
