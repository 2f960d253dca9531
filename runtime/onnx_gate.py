"""`InferenceSession.run` as machine code, for what most calls are: all outputs, for a dict.

The plan's door answers in half a microsecond, and what Python needs to come to it would be as much
again. The gate takes `run(None, feed)` to the door and makes a list of its answers; whatever else
the call says, and whatever the door does not answer, goes to the method written in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from oven.builtin import Table, any_arguments, made_of

_WORDS = (
    *("DOOR", "GENERAL", "NONE", "DICT_TYPE", "TUPLE_TYPE", "CALL", "CALL_ANY"),
    *("AS_LIST", "ERROR_CLEAR", "DECREASE"),
)
_NAME = "session_gate"
_CODE = """\
def session_gate(self, arguments, count, names):
    table = ld_int64(self, 2)
    known, made, answers = False, 0, 0
    if count == 2 and names == 0:
        feed = ld_int64(arguments, 1)
        known = ld_int64(arguments, 0) == ldc_int64(table, NONE)
        known = known and ld_int64(feed, 1) == ldc_int64(table, DICT_TYPE)
        if known:
            made = c_call_2(ldc_int64(table, CALL), ldc_int64(table, DOOR), feed)
    if made != 0:
        known = ld_int64(made, 1) == ldc_int64(table, TUPLE_TYPE)
        if known:
            answers = c_call_1(ldc_int64(table, AS_LIST), made)
        c_call_1(ldc_int64(table, DECREASE), made)
        if known:
            return answers
    elif known:
        c_call_0(ldc_int64(table, ERROR_CLEAR))
    general = ldc_int64(table, GENERAL)
    return c_call_4(ldc_int64(table, CALL_ANY), general, arguments, count, names)
"""
_SOURCE = "".join(f"{word} = {place}\n" for place, word in enumerate(_WORDS)) + _CODE
_STYLE = any_arguments(
    "run",
    "(output_names, input_feed, run_options=None)",
    "The outputs of these names, or all in the model's order: see InferenceSession.run.",
)

Run = Callable[..., list[Any]]


def open_gate(door: Callable[[Any], Any], general: Run) -> Run | None:
    """`run` by way of this door, or None where this interpreter can have no such function.

    What the door answers in a tuple is the answer; an error of its, or anything else, is
    `general`'s business.
    """

    def fill(known: Mapping[str, int]) -> Table:
        words = {**known, "DOOR": id(door), "GENERAL": id(general)}
        table = np.array([words[word] for word in _WORDS], np.int64).view(Table)
        table.kept = (door, general)
        return table

    return made_of(_SOURCE, _NAME, fill, _STYLE)
