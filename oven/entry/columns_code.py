"""Entries for arrays by the name of an input or a column: their machine code (see
oven.entry.array_code).

`columns_entry` takes a dict with an array for every input, or for every column of a record: numbers
in the program's own dtype, strings as objects or as numpy's own characters. An array has one value
a row, (n,) or (n, 1), or a row of them, (n, k). The array of a plan's one input may come without
the dict. All arrays are laid out as rows, as oven.entry.record_code does it for single values, and
strings are copied as UTF-8, which is written here for numpy's characters of four bytes.

`named_entry` takes a dict of one array and hands that to the entry for vectors: nothing is copied.

Whatever is not exactly that goes to Python: other dtypes, other keys, missing rows, byte orders.
"""

from __future__ import annotations

from oven.codegen.string_cells import NAN, NONE
from oven.entry.array_code import MAKE, MEMORY_WORDS, RUN, WORDS, source
from oven.entry.record_code import (
    CONVERSION_WORDS,
    CONVERT,
    FALL_BACK,
    GROW,
    REFUSE,
    ROOM,
    WIRE,
    numbered,
)

#: How a field is read.
SKIP, NUMBER, STRING, TEXT = range(4)
#: What the table of fields says of each: how it is read, where in the row it goes, whether it has
#: to be there, how many values it has a row, the bytes of each, its dtype, and how many dimensions
#: its array may have (bit 1 for one, bit 2 for two).
FIELD_WORDS = ("READ", "OFFSET", "NEEDED", "ACROSS", "BYTES", "FIELD_DTYPE", "RANKS")
#: The table's words, in order: those of all entries, and more.
COLUMN_WORDS = (
    *WORDS[:-1],
    "STR_TYPE",
    "DICT_TYPE",
    "OBJECT",
    "CHARACTERS",
    "BARE",
    # The fields: a dict from key to place, and the tables of oven.entry.record_code.
    *("FIELDS", "REQUIRED", "KEYS", "INDEX", "FIELD_TABLE"),
    *("PORTS", "PORT_TABLE", "STRINGS", "STRING_TABLE", *CONVERSION_WORDS, "ROW_BYTES"),
    # Functions.
    *("DICT_NEXT", "DICT_GET", "AS_UTF8", "COPY"),
    *MEMORY_WORDS,
    "FIRST",
)
NAME = "columns_entry"

_START = """\
def columns_entry(self, argument):
    table = ld_int64(self, 2)
    size, pair = stack_words(1), stack_words(3)
"""
# Where the first array is, and how many rows. This is done again once all containers are made, as
# making one may run anybody's code.
_LOOK = """\
    many, named, item = 0, ld_int64(argument, 1) == ldc_int64(table, DICT_TYPE), argument
    known = named or ldc_int64(table, BARE) != 0
    if named:
        st_int64(pair, 0, 0)
        more = c_call_4(ldc_int64(table, DICT_NEXT), argument, pair, pair + 8, pair + 16)
        known = more & LOW_HALF != 0
        if known:
            item = ld_int64(pair, 2)
    if known:
        if ld_int64(item, 1) == ldc_int64(table, ARRAY_TYPE) and ld_int32(item, 6) > 0:
            many = ld_int64(ld_int64(item, 4), 0)
"""
_ASK = """\
    if many == 0:
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
    rows, dimensions = many, 2

"""
# One array after the other.
_FILL = """\
    fits = many == rows
    keys, index = ldc_int64(table, KEYS), ldc_int64(table, INDEX)
    found, at = 0, 0
    st_int64(pair, 0, 0)
    while fits:
        place = at
        if named:
            more = c_call_4(ldc_int64(table, DICT_NEXT), argument, pair, pair + 8, pair + 16)
            if more & LOW_HALF == 0:
                break
            key, item = ld_int64(pair, 1), ld_int64(pair, 2)
            known = False
            if at < ldc_int64(table, FIELDS):
                known = key == ldc_int64(keys, at)
            if not known:
                hit = 0
                if ld_int64(key, 1) == ldc_int64(table, STR_TYPE):
                    hit = c_call_2(ldc_int64(table, DICT_GET), index, key)
                if hit == 0:
                    fits = False
                    break
                place = int64(ld_float64(hit, 2))
        elif at != 0:
            break
        at = place + 1
        field = ldc_int64(table, FIELD_TABLE) + 8 * FIELD_SIZE * place
        found += ldc_int64(field, NEEDED)
        read, width = ldc_int64(field, READ), ldc_int64(field, ACROSS)
        if read == SKIP:
            continue
        fits = ld_int64(item, 1) == ldc_int64(table, ARRAY_TYPE)
        if not fits:
            break
        rank = int64(ld_int32(item, 6))
        fits = 0 < rank and rank < 3 and ld_int32(item, 16) & 256 != 0
        if fits:
            fits = (ldc_int64(field, RANKS) >> rank) & 1 != 0
        if not fits:
            break
        shape, strides, across = ld_int64(item, 4), ld_int64(item, 5), 0
        fits = ld_int64(shape, 0) == rows
        if rank == 2:
            fits, across = fits and ld_int64(shape, 1) == width, ld_int64(strides, 1)
        if not fits:
            break
        begin, step, kind = ld_int64(item, 2), ld_int64(strides, 0), ld_int64(item, 7)
        into = scratch + blocks + ldc_int64(field, OFFSET)
        if read == NUMBER:
            long = ldc_int64(field, BYTES)
            own = ldc_int64(field, FIELD_DTYPE)
            fits = kind == own
            if not fits:  # arrays that were pickled have a copy of it
                fits = ld_int64(kind, 3) & SAME_DTYPE == ld_int64(own, 3) & SAME_DTYPE
            if not fits:
                break
            if width != 1 and across == long:
                for i in range(rows):
                    c_call_3(
                        ldc_int64(table, COPY), into + i * row_bytes, begin + i * step, width * long
                    )
                continue
            for j in range(width):
                here, there = into + j * long, begin + j * across
                if long == 8:
                    for i in range(rows):
                        st_int64(here + i * row_bytes, 0, ld_int64(there + i * step, 0))
                elif long == 4:
                    for i in range(rows):
                        st_int32(here + i * row_bytes, 0, ld_int32(there + i * step, 0))
                elif long == 2:
                    for i in range(rows):
                        st_int16(here + i * row_bytes, 0, ld_int16(there + i * step, 0))
                else:
                    for i in range(rows):
                        st_int8(here + i * row_bytes, 0, ld_int8(there + i * step, 0))
        elif ld_int64(kind, 3) & SAME_DTYPE == ld_int64(ldc_int64(table, OBJECT), 3) & SAME_DTYPE:
            for i in range(rows):
                for j in range(width):
                    value = ld_int64(begin + i * step + j * across, 0)
                    cell, gone = into + i * row_bytes + 16 * j, 0
                    if value == 0:
                        fits = False
                    elif ld_int64(value, 1) == ldc_int64(table, STR_TYPE):
                        where = c_call_2(ldc_int64(table, AS_UTF8), value, size)
                        gone = ld_int64(size, 0)
                        st_int64(cell, 0, where)
                        if where == 0:
                            c_call_0(ldc_int64(table, ERROR_CLEAR))
                            fits = False
                        else:
                            total += gone
                            longest = max(longest, gone)
                    else:
                        if value == ldc_int64(table, NONE):
                            gone = NO_STRING
                        elif ld_int64(value, 1) == ldc_int64(table, FLOAT_TYPE):
                            number = ld_float64(value, 2)
                            gone = NO_NUMBER if number != number else 0
                        fits = gone != 0 and read == STRING
                    st_int64(cell, 1, gone)
                    if not fits:
                        break
                if not fits:
                    break
        else:
            fits = ld_int64(kind, 3) == ldc_int64(table, CHARACTERS)
            most_letters = ld_int64(kind, 5) // 4 if fits else 0
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
                            long += int64(letter > 0x7F) + int64(letter > 0x7FF)
                            long += int64(letter > 0xFFFF)
                            if letter < 0 or letter > 0x10FFFF or letter >> 11 == 27:
                                fits = False
                    cell = into + i * row_bytes + 16 * j
                    st_int64(cell, 0, letters + (ASCII if long == left else LETTERS))
                    st_int64(cell, 1, long)
                    total += long
                    longest = max(longest, long)
                if not fits:
                    break
    fits = fits and found == ldc_int64(table, REQUIRED)
    if not fits or longest > ldc_int64(table, LONGEST):
"""
_BEHIND = """\
    made_at = scratch + copies
"""
# The strings themselves. Addresses beyond all that there are say where numpy's letters are.
_COPY = """\
    strings, string_table = ldc_int64(table, STRINGS), ldc_int64(table, STRING_TABLE)
    for i in range(rows):
        for place in range(strings):
            cell = scratch + blocks + i * row_bytes + ldc_int64(string_table, place)
            where, long = ld_int64(cell, 0), max(ld_int64(cell, 1), 0)
            st_int64(cell, 0, made_at)
            if where >= ASCII:
                letters = where - ASCII
                for k in range(long):
                    st_int8(made_at, k, int8(ld_int32(letters, k)))
                made_at += long
                continue
            if where >= 0:
                if long > 0:
                    c_call_3(ldc_int64(table, COPY), made_at, where, long)
                made_at += long
                continue
            letters, end, k = where - LETTERS, made_at + long, 0
            while made_at < end:
                letter = int64(ld_int32(letters, k))
                k += 1
                if letter < 0x80:
                    st_int8(made_at, 0, int8(letter))
                    made_at += 1
                    continue
                more = 1 + int64(letter > 0x7FF) + int64(letter > 0xFFFF)
                st_int8(made_at, 0, int8((0xFF00 >> more + 1) & 0xFF | letter >> 6 * more))
                for j in range(more):
                    rest = letter >> 6 * (more - 1 - j)
                    st_int8(made_at, 1 + j, int8(0x80 | rest & 0x3F))
                made_at += more + 1
"""


def _constants() -> str:
    """The numbers that the code is about, by name."""
    known = f"FIELD_SIZE = {len(FIELD_WORDS)}\nLOW_HALF = {0xFFFFFFFF}\n"
    known += f"NO_STRING = {NONE}\nNO_NUMBER = {NAN}\nLETTERS = {-(2**63)}\n"
    known += f"ASCII = {2**62}\n"
    reads = ("SKIP", "NUMBER", "STRING", "TEXT")
    return known + numbered(reads) + numbered(FIELD_WORDS)


_FILLED = ROOM + _FILL + REFUSE + FALL_BACK + CONVERT + GROW + _BEHIND + _COPY + WIRE
SOURCE = source(_constants() + _START + _LOOK, _ASK, MAKE, _LOOK, _FILLED, RUN, words=COLUMN_WORDS)

#: The code that only lays rows out: for who takes them through the stages in chunks.
LAY = "lay_out"
_LAY = """\
def lay_out(self, argument):
    table = ld_int64(self, 2)
    size, pair, sizes = stack_words(1), stack_words(3), stack_words(1)
"""


def _array(size: str, place: int) -> str:
    """A new array of so many bytes is the result's item at this place."""
    return f"""\
    st_int64(sizes, 0, {size})
    c_call_1(ldc_int64(table, INCREASE), ldc_int64(table, DTYPE))
    array = c_call_4(ldc_int64(table, NEW_ARRAY), 1, sizes, ldc_int64(table, DTYPE), 0)
    if array == 0:
        c_call_1(ldc_int64(table, DECREASE), made)
        return 0
    c_call_3(ldc_int64(table, TUPLE_SET), made, {place}, array)
"""


# The rows, and once it is known how long the strings are, they; arrays of bytes both. Making an
# array does not run the collector, which the strings that are pointed at would not survive.
_ARRAYS = f"""    row_bytes, blocks, owned = ldc_int64(table, ROW_BYTES), 0, 0
    made = c_call_1(ldc_int64(table, TUPLE_NEW), 2)
    if made == 0:
        return 0
{_array("rows * row_bytes", 0)}\
    scratch, total, longest = ld_int64(array, 2), 0, 0
"""
_TEXTS = f"""\
{_array("total + 24", 1)}\
    made_at = ld_int64(array, 2)
"""
_END = """    st_int64(made_at, 0, 0)
    st_int64(made_at, 1, 0)
    return made
"""
_LAID = _ARRAYS + _LOOK + _FILL + REFUSE + FALL_BACK + CONVERT + _TEXTS + _COPY + _END
LAY_SOURCE = source(_constants() + _LAY + _LOOK, _ASK, _LAID, words=COLUMN_WORDS)

#: The words of `named_entry`'s table.
NAMED_WORDS = (
    *("ARRAY_TYPE", "DICT_TYPE", "LABEL", "ENTRY", "FALLBACK"),
    *("DICT_SIZE", "DICT_GET", "ERROR_CLEAR", "INCREASE", "DECREASE", "CALL"),
)
NAMED = "named_entry"
# The array is held: once the interpreter's lock is let go, another thread may empty the dict.
_NAMED = """\
def named_entry(self, argument):
    table = ld_int64(self, 2)
    item, right = 0, False
    if ld_int64(argument, 1) == ldc_int64(table, DICT_TYPE):
        if c_call_1(ldc_int64(table, DICT_SIZE), argument) == 1:
            item = c_call_2(ldc_int64(table, DICT_GET), argument, ldc_int64(table, LABEL))
            if item == 0:
                c_call_0(ldc_int64(table, ERROR_CLEAR))
    if item != 0:
        if ld_int64(item, 1) == ldc_int64(table, ARRAY_TYPE) and ld_int32(item, 6) == 2:
            right = ld_int64(ld_int64(item, 4), 0) > 0
    if not right:
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
    c_call_1(ldc_int64(table, INCREASE), item)
    made = c_call_2(ldc_int64(table, CALL), ldc_int64(table, ENTRY), item)
    c_call_1(ldc_int64(table, DECREASE), item)
    return made
"""
NAMED_SOURCE = source(_NAMED, words=(*NAMED_WORDS, "FIRST"))
