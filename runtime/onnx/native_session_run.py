"""`InferenceSession.run` as machine code, for what most calls are: all outputs, for a dict.

The plan's entry answers in half a microsecond, and what Python needs to come to it would be as much
again. The gate takes `run(None, feed)` to the entry and makes a list of its answers; whatever else
the call says, and whatever the entry does not answer, goes to the method written in Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from oven.entry.builtin import ONE, Method, NativeTable, any_arguments, made_of

_WORDS = (
    *("ENTRY", "OWN", "GENERAL", "NONE", "DICT_TYPE", "TUPLE_TYPE", "CALL_ANY"),
    *("LIST_NEW", "ERROR_CLEAR", "DECREASE", "CALL", "ORDER", "SIZE"),
)
_NAME = "session_gate"
# A tuple fresh from the entry is nobody else's: its answers move to the list, and it goes.
_CODE = """\
def session_gate(self, arguments, count, names):
    table = ld_int64(self, 2)
    known, made, answers = False, 0, 0
    if count == 2 and names == 0:
        feed = ld_int64(arguments, 1)
        known = ld_int64(arguments, 0) == ldc_int64(table, NONE)
        known = known and ld_int64(feed, 1) == ldc_int64(table, DICT_TYPE)
        if known:
            made = c_call_2(ldc_int64(table, ENTRY), ldc_int64(table, OWN), feed)
    if made != 0:
        known = ld_int64(made, 1) == ldc_int64(table, TUPLE_TYPE) and ld_int64(made, 0) == 1
        if known:
            order, size = ldc_int64(table, ORDER), ldc_int64(table, SIZE)
            answers = c_call_1(ldc_int64(table, LIST_NEW), size)
            known = answers != 0
        if known:
            room = ld_int64(answers, 3)
            for place in range(size):
                source, shape = ldc_int64(order, 2 * place), ldc_int64(order, 2 * place + 1)
                value = ld_int64(made, 3 + source)
                if shape == 0:
                    st_int64(made, 3 + source, 0)
                else:
                    value = c_call_2(ldc_int64(table, CALL), shape, value)
                st_int64(room, place, value)
                if value == 0:
                    known = False
                    break
        c_call_1(ldc_int64(table, DECREASE), made)
        if known:
            return answers
        if answers != 0:
            c_call_1(ldc_int64(table, DECREASE), answers)
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


#: Of an output: where it is in the entry's answer, and what makes ONNX's value of it, if anything.
Order = Sequence[tuple[int, Callable[[Any], Any] | None]]


def open_gate(entry: BuiltinFunctionType, general: Run, order: Order) -> Run | None:
    """`run` by way of this entry, or None where this interpreter can have no such function.

    What the entry answers in a tuple is the answer, in this order; an error of its, or anything
    else, is `general`'s business.
    """
    places = np.array([[place, id(shape) if shape else 0] for place, shape in order], np.int64)

    def fill(known: Mapping[str, int]) -> NativeTable:
        words = {
            **known,
            "ENTRY": _code_of(entry),
            "OWN": id(entry.__self__),
            "GENERAL": id(general),
        }
        words |= {"ORDER": places.ctypes.data, "SIZE": len(order)}
        table = np.array([words[word] for word in _WORDS], np.int64).view(NativeTable)
        table.kept = (entry, general, order, places)
        return table

    return made_of(_SOURCE, _NAME, fill, _STYLE)


class _Function(ctypes.Structure):
    """The start of a built-in function object: what it is counted and known by, its method."""

    _fields_ = (
        ("count", ctypes.c_ssize_t),
        ("kind", ctypes.c_void_p),
        ("method", ctypes.POINTER(Method)),
    )


def _code_of(entry: BuiltinFunctionType) -> int:
    """Where the machine code of an entry is: calling it there saves Python's looking for it."""
    method = _Function.from_address(id(entry)).method.contents
    assert method.flags == ONE.flags, "entries take one argument"
    return int(method.function)
