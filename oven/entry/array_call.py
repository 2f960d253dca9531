"""A plan's answers for a block, as its callers want them: all by name, or one alone.

An entry answers with a tuple. To make a dict of it in Python takes longer than the entry itself;
machine code around the entry takes a tenth of it. What is no array of two dimensions goes to a
Python function that means the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oven.entry.array_entry import Call
from oven.entry.builtin import Contents, NativeTable, code_address, native_function
from oven.entry.generator import Template
from oven.entry.interpreter import address
from oven.entry.parts import PARTS

_TEXT = """\
def array_call(self, argument):
    table = self.ARRAY_DATA
    fits = False
    if argument.TYPE == PyArray_Type:
        fits = argument.ARRAY_RANK == 2
    if fits:
        fits = ld_int64(argument.ARRAY_SHAPE, 0) > 0
    if not fits:
        $fall_back
    answers = c_call_2(table.CODE, table.OWN, argument)
    if answers == 0:
        return 0
    names, made = table.NAMES, 0
    if names == 0:
        made = ld_int64(answers, TUPLE_ITEMS)
        Py_IncRef(made)
        Py_DecRef(answers)
    else:
        $named_answers(names)
    return made
"""
ARRAY_CALL = Template("array_call", _TEXT, PARTS)


def open_array_call(
    entry: Call, fallback: Callable[[Any], Any], names: tuple[str, ...] | None = None
) -> Callable[[Any], Any] | None:
    """What answers for a block, by these names or with the first output, if it can be made."""

    def fill() -> Contents:
        words = {**_callee(entry), "FALLBACK": id(fallback)}
        words["NAMES"] = 0 if names is None else id(names)
        return Contents(words, (entry, fallback, names))

    return native_function(ARRAY_CALL, fill)


def _callee(entry: Call) -> dict[str, int]:
    """The C function that calls an entry, and the object that it gets before the argument.

    An entry of machine code is called as such: to have Python find it takes as long as a dict.
    """
    own = getattr(entry, "__self__", None)
    if isinstance(own, NativeTable):
        return {"CODE": code_address(entry), "OWN": id(own)}
    return {"CODE": address("PyObject_CallOneArg"), "OWN": id(entry)}
