"""Machine code as functions that Python calls: built-in functions, made while the process runs.

Such a function gets its table (an array of words, what Python calls its `self`) and whatever it was
called with, as CPython's C interface says, and answers with an object. Its text is generated
(oven.entry.generator) for the interpreter as it was found to be (oven.entry.interpreter).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from oven.compiler import cache, machine
from oven.entry.generator import Entry, EntryCode, entry_code
from oven.entry.interpreter import address


class NativeTable(np.ndarray[Any, Any]):
    """A function's table, which Python hands to it as its `self`; it keeps all it refers to."""

    __slots__ = ("code", "kept")
    code: EntryCode
    kept: tuple[Any, ...]


class Contents(NamedTuple):
    """The words of a function's table by name, and the objects to keep alive with it."""

    words: Mapping[str, int]
    kept: tuple[Any, ...]


class Style(NamedTuple):
    """The calling convention of a function, and its text for `help`."""

    name: bytes
    doc: bytes
    flags: int
    #: How many words the code is called with, `self` among them.
    words: int


#: One argument: METH_O.
ONE = Style(b"entry", b"Answers for a row or a block of rows.", 8, 2)
#: Any arguments, by position and by name: METH_FASTCALL and METH_KEYWORDS.
_ANY = 0x82


def any_arguments(name: str, signature: str, doc: str) -> Style:
    """The style of a function that is called with where its arguments are, and how many."""
    return Style(name.encode(), f"{name}{signature}\n--\n\n{doc}".encode(), _ANY, 4)


_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class _Method(ctypes.Structure):
    """PyMethodDef: how Python's C interface describes a built-in function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def native_function(
    entry: Entry, fill: Callable[[], Contents], style: Style = ONE
) -> Callable[..., Any] | None:
    """A built-in function of this machine code, bound to a table of what `fill` says.

    None where this interpreter can have none, or there is no compiler.
    """
    code = entry_code(entry) if machine.is_there() else None
    if code is None:
        return None
    contents = fill()
    words = [
        contents.words[name] if name in contents.words else address(name) for name in code.words
    ]
    if any(
        word == 0 and name.startswith("Py") for name, word in zip(code.words, words, strict=True)
    ):
        return None
    table = np.array(words, np.int64).view(NativeTable)
    table.code, table.kept = code, contents.kept
    where = compiled(code, style)
    made: Callable[..., Any] = _new_function(_described(where, style), table, None)
    return made


def compiled(code: EntryCode, style: Style = ONE) -> int:
    """The address of this text's machine code, compiled if no cache has it."""
    return cache.machine_code(code.key, code.name, partial(_build, code, style.words))


def code_address(function: Callable[..., Any]) -> int:
    """The address of a built-in function's machine code: calling it saves a look-up."""
    return int(_function_of(function))


def learn_release(function: object, rows: int, *, long: bool) -> None:
    """Move the bound from which an entry releases the GIL: a call of so many rows was `long`.

    An entry begins with what its code says of itself, in bytes that it touches; this says what it
    takes. Where rows differ in length, as texts do, the bound stays.
    """
    table = getattr(function, "__self__", None)
    if not isinstance(table, NativeTable):
        return
    words = table.code.words
    if "RELEASE_ROWS" in words:
        at, size = words.index("RELEASE_ROWS"), rows
    elif "RELEASE_WORK" in words and not table[words.index("BYTE_WORK")]:
        at, size = words.index("RELEASE_WORK"), rows * int(table[words.index("ROW_WORK")])
    else:
        return
    bound = int(table[at])
    table[at] = min(bound, size) if long else max(bound, size + 1)


def hand_on(function: object, dtype: np.dtype[Any], other: Callable[..., Any]) -> None:
    """Have an entry for vectors call another one for arrays of this type of floats."""
    table = getattr(function, "__self__", None)
    if not isinstance(table, NativeTable) or "OTHER" not in table.code.words:
        return
    at, kind = map(table.code.words.index, ("OTHER", "OTHER_DTYPE"))
    if not table[at] and dtype in _FLOATS:
        table.kept = (*table.kept, dtype, other)
        table[kind] = id(dtype)
        table[at] = id(other)


#: One for each code there is, not for each function: they stay, as code does.
_methods: dict[tuple[int, Style], _Method] = {}


def _described(where: int, style: Style) -> int:
    """The address of Python's description of this code."""
    found = _methods.get((where, style))
    if found is None:
        made = _Method(style.name, where, style.flags, style.doc)
        found = _methods.setdefault((where, style), made)
    return ctypes.addressof(found)


def _build(code: EntryCode, words: int, given: str) -> machine.MachineCode:
    from oven.compiler import native, source_check  # loading code needs no compiler
    from oven.compiler.intrinsics.vocabulary import vocabulary

    text = code.text.replace(f"def {code.name}(", f"def {given}(", 1)
    source_check.vet(text, given, vocabulary(), words)
    return native.compile_source(text, given)


_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))
_function_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyCFunction_GetFunction", ctypes.pythonapi)
)
