"""The entry of a plan that reads one document a row: its machine code (see oven.entry.array_code).

The argument is a document, or a list, tuple or array of them, or a dict with one of these under
the one name the plan reads. Documents are copied, with room behind them to read on, into scratch
memory; their cells follow the rules of oven.codegen.string_cells. Python itself knows each string's
UTF-8: for ASCII it is the string, for others it is made once and stays with the string.

Scratch memory, behind the words that all entries have: cells, documents, rooms (memory whose size
depends on the longest document), numbers of strings. Whatever is no document, half a pair of
surrogates among its characters, and documents of many megabytes go to Python.
"""

from __future__ import annotations

from oven.entry.array_code import MAKE, MEMORY_WORDS, ROOMS, RUN, WORDS, source

#: The table's words, in order: those of all entries, and more.
TEXT_WORDS = (
    *WORDS[:-1],
    # What the argument may be: a name under which it comes, and whether it may come without.
    "STR_TYPE",
    "DICT_TYPE",
    "OBJECT",
    "LABEL",
    "BARE",
    "DICT_SIZE",
    "DICT_GET",
    # Text.
    "AS_UTF8",
    "COPY",
    *MEMORY_WORDS,
    "FIRST",
)
NAME = "text_entry"

_START = """\
def text_entry(self, argument):
    table = ld_int64(self, 2)
"""
# Where the documents are. This is done again once all containers are made, as making one may run
# anybody's code, and that may have changed a list.
_LOOK = """\
    value, kind, bare = argument, ld_int64(argument, 1), ldc_int64(table, BARE) != 0
    if kind == ldc_int64(table, DICT_TYPE):
        value, kind, bare = 0, 0, True
        if c_call_1(ldc_int64(table, DICT_SIZE), argument) == 1:
            value = c_call_2(ldc_int64(table, DICT_GET), argument, ldc_int64(table, LABEL))
            if value != 0:
                kind = ld_int64(value, 1)
            else:
                c_call_0(ldc_int64(table, ERROR_CLEAR))
    many, axes, items = 0, 2, 0
    if kind == ldc_int64(table, STR_TYPE):
        many, axes = 1, 1
    elif kind == ldc_int64(table, LIST_TYPE):
        many, items = ld_int64(value, 2), ld_int64(value, 3)
    elif kind == ldc_int64(table, TUPLE_TYPE):
        many, items = ld_int64(value, 2), value + 24
    elif kind == ldc_int64(table, ARRAY_TYPE):
        if ld_int32(value, 6) == 1 and ld_int64(value, 7) == ldc_int64(table, OBJECT):
            if ld_int64(ld_int64(value, 5), 0) == 8:
                many, items = ld_int64(ld_int64(value, 4), 0), ld_int64(value, 2)
"""
_ASK = """\
    if many == 0 or not bare:
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
    rows, dimensions = many, axes

"""
# How large the documents are, and whether all of them are some.
_MEASURE = """\
    size = stack_words(1)
    fits, total, longest = many == rows and axes == dimensions, 0, 0
    if fits:
        for i in range(rows):
            item = ld_int64(items, i) if items != 0 else value
            fits = item != 0
            if fits:
                fits = ld_int64(item, 1) == ldc_int64(table, STR_TYPE)
            if fits:
                fits = c_call_2(ldc_int64(table, AS_UTF8), item, size) != 0
                if fits:
                    total += ld_int64(size, 0)
                    longest = max(longest, ld_int64(size, 0))
                else:
                    c_call_0(ldc_int64(table, ERROR_CLEAR))
            if not fits:
                break
    if not fits or longest > ldc_int64(table, LONGEST):
        c_call_1(ldc_int64(table, DECREASE), made)
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
"""
# Where everything lies; and the documents themselves.
_COPY = """\
    cells = ldc_int64(table, SCRATCH_BYTES)
    copies = cells + 16 * rows
    spare = (copies + total + 24 + 63) & -64
    texts = ldc_int64(table, TEXTS) if dimensions == 2 else 0
    needed = spare + most + 8 * rows * texts
    work = rows * (ldc_int64(table, ROW_WORK) + longest * ldc_int64(table, BYTE_WORK))
    release = work >= ldc_int64(table, RELEASE_WORK)
    scratch, owned = ldc_int64(table, SCRATCH), 0
    if release or needed > ldc_int64(table, SHARED_BYTES):
        owned = c_call_1(ldc_int64(table, MALLOC), needed + 64)
        if owned == 0:
            c_call_1(ldc_int64(table, DECREASE), made)
            return c_call_0(ldc_int64(table, NO_MEMORY))
        scratch = (owned + 63) & -64
    data, stride, text = scratch + cells, 16, scratch + spare + most
    made_at = scratch + copies
    for i in range(rows):
        item = ld_int64(items, i) if items != 0 else value
        where = c_call_2(ldc_int64(table, AS_UTF8), item, size)
        c_call_3(ldc_int64(table, COPY), made_at, where, ld_int64(size, 0))
        st_int64(data, 2 * i, made_at)
        st_int64(data, 2 * i + 1, ld_int64(size, 0))
        made_at += ld_int64(size, 0)
    st_int64(made_at, 0, 0)
    column = ldc_int64(table, ROOM_COLUMN)
    st_int64(scratch, 2 * column, scratch + spare)
    st_int64(scratch, 2 * column + 1, longest)

"""
SOURCE = source(
    _START + _LOOK + _ASK, MAKE, _LOOK, _MEASURE + "\n" + ROOMS, _COPY, RUN, words=TEXT_WORDS
)
