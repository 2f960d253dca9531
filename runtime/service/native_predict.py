"""The gate of a runtime: `predict` as machine code, for what most calls are.

`runtime.predict(name, row)` finds the endpoint in the table of routes, sees that the row may go by
the shortest way, calls the plan's entry, counts the call and puts the answers into a dict. Written
in Python that takes several times as long as the entry of a small model, so it is written for the
compiler: a function that reads the runtime's own objects where CPython keeps them, as entries do
(see oven.entry.array_entry). Whatever is not a row (or a block of few rows, or few documents) for
an entry of machine code is handed to `Runtime.predict` as it came; that method means the same and
is the definition. A runtime's gate opens when its first such entry does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flour.data.batch import DOCUMENT
from oven.entry.builtin import NativeTable, any_arguments, made_of
from oven.entry.interpreter import slots
from runtime.service.entry import SAMPLE, InlineEntry
from runtime.service.version import ModelVersion

# What the code reads of a version's entry, see runtime.service.entry.
_SLOTS = (
    *("function", "calls", "outputs", "inline_rows", "inline_characters"),
    *("vector", "text", "named", "coarse_timing"),
)
#: The table's words, in order.
WORDS = (
    *("ROUTES", "GENERAL", "TIMED", "REST", "RARE", "AT_ENTRY"),
    *(f"AT_{name.upper()}" for name in _SLOTS),
    # Types and objects.
    *("FUNCTION_TYPE", "ARRAY_TYPE", "LIST_TYPE", "TUPLE_TYPE", "DICT_TYPE", "STR_TYPE"),
    *("FLOAT_TYPE", "INT_TYPE", "DOUBLE_TYPE", "NONE", "TRUE"),
    # Functions of Python.
    *("DICT_GET", "DICT_NEXT", "DICT_NEW", "DICT_SET", "NEXT", "AS_LONG"),
    *("CALL", "CALL_ANY", "INCREASE", "DECREASE"),
)
#: Whom the call is for, and whether it may go by the shortest way.
_LOOK = """\
def gate(self, arguments, count, names):
    table = ld_int64(self, 2)
    pair = stack_words(3)
    known = False
    served, entry, call, data = 0, 0, 0, 0
    if count == 2 and names == 0:
        name, data = ld_int64(arguments, 0), ld_int64(arguments, 1)
        if ld_int64(name, 1) == ldc_int64(table, STR_TYPE):
            served = c_call_2(ldc_int64(table, DICT_GET), ldc_int64(table, ROUTES), name)
    if served != 0:
        entry = ld_int64(served, ldc_int64(table, AT_ENTRY))
        call = ld_int64(entry, ldc_int64(table, AT_FUNCTION))
        if ld_int64(call, 1) != ldc_int64(table, FUNCTION_TYPE):
            served = 0
    if served != 0:
        kind, yes = ld_int64(data, 1), ldc_int64(table, TRUE)
        named = ld_int64(entry, ldc_int64(table, AT_NAMED)) == yes
        first, text_at = 0, ldc_int64(table, AT_TEXT)
        if kind == ldc_int64(table, STR_TYPE):
            known = ld_int64(entry, text_at) == yes
        elif kind == ldc_int64(table, DICT_TYPE):
            st_int64(pair, 0, 0)
            more = c_call_4(ldc_int64(table, DICT_NEXT), data, pair, pair + 8, pair + 16)
            if more & 0xFFFFFFFF != 0:
                first = ld_int64(pair, 2)
                if ld_int64(first, 1) == ldc_int64(table, ARRAY_TYPE):
                    dimensions = ld_int32(first, 6)
                    if dimensions == 2 or (dimensions == 1 and named):
                        few = c_call_1(
                            ldc_int64(table, AS_LONG),
                            ld_int64(entry, ldc_int64(table, AT_INLINE_ROWS)),
                        )
                        known = ld_int64(ld_int64(first, 4), 0) <= max(few, 1)
                    first = 0
                elif not named:
                    first = 0
        elif kind == ldc_int64(table, LIST_TYPE) and ld_int64(entry, text_at) == yes:
            few = c_call_1(
                ldc_int64(table, AS_LONG), ld_int64(entry, ldc_int64(table, AT_INLINE_CHARACTERS))
            )
            many, items = ld_int64(data, 2), ld_int64(data, 3)
            size = DOCUMENT * many
            known = many > 0 and size <= few
            if known:
                for place in range(many):
                    document = ld_int64(items, place)
                    if ld_int64(document, 1) != ldc_int64(table, STR_TYPE):
                        known = False
                        break
                    size += ld_int64(document, 2)
            known = known and size <= few
        elif ld_int64(entry, ldc_int64(table, AT_VECTOR)) == yes:
            if kind == ldc_int64(table, ARRAY_TYPE):
                dimensions = ld_int32(data, 6)
                known = dimensions == 1
                if dimensions == 2:
                    few = c_call_1(
                        ldc_int64(table, AS_LONG), ld_int64(entry, ldc_int64(table, AT_INLINE_ROWS))
                    )
                    known = ld_int64(ld_int64(data, 4), 0) <= few
            elif kind == ldc_int64(table, LIST_TYPE):
                if ld_int64(data, 2) > 0:
                    first = ld_int64(ld_int64(data, 3), 0)
            elif kind == ldc_int64(table, TUPLE_TYPE):
                if ld_int64(data, 2) > 0:
                    first = ld_int64(data, 3)
        if first != 0:
            kind = ld_int64(first, 1)
            known = kind == ldc_int64(table, FLOAT_TYPE) or kind == ldc_int64(table, INT_TYPE)
            if named and not known:
                known = kind == ldc_int64(table, STR_TYPE) or first == ldc_int64(table, NONE)
                known = known or kind == ldc_int64(table, DOUBLE_TYPE)
    if not known:
        general = ldc_int64(table, GENERAL)
        return c_call_4(ldc_int64(table, CALL_ANY), general, arguments, count, names)
"""
#: Count the call, make it, name the answers. What is used is held: the version may go meanwhile.
_ANSWER = """\
    turn = c_call_1(ldc_int64(table, NEXT), ld_int64(entry, ldc_int64(table, AT_CALLS)))
    if turn == 0:
        return 0
    number = c_call_1(ldc_int64(table, AS_LONG), turn)
    c_call_1(ldc_int64(table, DECREASE), turn)
    outputs = ld_int64(entry, ldc_int64(table, AT_OUTPUTS))
    c_call_1(ldc_int64(table, INCREASE), served)
    c_call_1(ldc_int64(table, INCREASE), call)
    made = 0
    rest = ldc_int64(table, RARE)
    if ld_int64(entry, ldc_int64(table, AT_COARSE_TIMING)) == ldc_int64(table, TRUE):
        rest = ldc_int64(table, REST)
    if number & rest == 0:
        st_int64(pair, 0, served)
        st_int64(pair, 1, data)
        made = c_call_4(ldc_int64(table, CALL_ANY), ldc_int64(table, TIMED), pair, 2, 0)
    else:
        answers = c_call_2(ldc_int64(table, CALL), call, data)
        if answers != 0:
            made = c_call_0(ldc_int64(table, DICT_NEW))
            wrong = 0
            if made != 0:
                for place in range(ld_int64(answers, 2)):
                    name, value = ld_int64(outputs, 3 + place), ld_int64(answers, 3 + place)
                    wrong |= c_call_3(ldc_int64(table, DICT_SET), made, name, value) & 0xFFFFFFFF
                if wrong != 0:
                    c_call_1(ldc_int64(table, DECREASE), made)
                    made = 0
            c_call_1(ldc_int64(table, DECREASE), answers)
    c_call_1(ldc_int64(table, DECREASE), call)
    c_call_1(ldc_int64(table, DECREASE), served)
    return made
"""
NAME = "gate"
_NUMBERS = {word: place for place, word in enumerate(WORDS)} | {"DOCUMENT": DOCUMENT}
SOURCE = "".join(f"{word} = {number}\n" for word, number in _NUMBERS.items()) + _LOOK + _ANSWER
_STYLE = any_arguments(
    "predict",
    "(name, data, *, outputs=None, timeout=None, priority=None, engine=None)",
    "The outputs by name: see Runtime.predict.",
)

#: A call that takes less time than a look at the clock is timed once in so many: a look among a
#: hundred calls would be what the slowest of them are known by.
RARE = 1024

Predict = Callable[..., dict[str, Any]]


def open_native_predict(
    routes: dict[str, ModelVersion], general: Predict, timed: Predict
) -> Predict | None:
    """`predict` over these routes, or None where this interpreter can have no such function.

    `general(...)` is called for whatever the gate does not do itself, and for one call in so many
    `timed(version, row)`.
    """
    at_entry, places = slots(ModelVersion, ("entry",)), slots(InlineEntry, _SLOTS)
    if at_entry is None or places is None:
        return None

    def fill(known: Mapping[str, int]) -> NativeTable:
        words = {**known, "ROUTES": id(routes), "REST": SAMPLE - 1, "RARE": RARE - 1}
        words |= {"GENERAL": id(general), "TIMED": id(timed), "AT_ENTRY": at_entry[0]}
        words |= {f"AT_{name.upper()}": place for name, place in zip(_SLOTS, places, strict=True)}
        table = np.array([words[word] for word in WORDS], np.int64).view(NativeTable)
        table.kept = (routes, general, timed)
        return table

    return made_of(SOURCE, NAME, fill, _STYLE)
