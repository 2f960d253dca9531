"""Machine code as functions that Python calls: built-in functions, made while the process runs.

Such a function gets its table (an array of words, what Python calls its `self`) and whatever it was
called with, as CPython's C interface says, and answers with an object. `oven.entry.interpreter`
says where it finds the interpreter's own functions and types.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from oven.compiler import cache, machine
from oven.entry.interpreter import addresses


class NativeTable(np.ndarray[Any, Any]):
    """A function's table, which Python hands to it as its `self`; it keeps all it refers to."""

    __slots__ = ("kept",)
    kept: tuple[Any, ...]


class Style(NamedTuple):
    """How Python is to call a function, and what `help` says of it."""

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


class Method(ctypes.Structure):
    """PyMethodDef: how Python's C interface describes a built-in function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def made_of(
    source: str, name: str, fill: Callable[[Mapping[str, int]], NativeTable], style: Style = ONE
) -> Callable[..., Any] | None:
    """A built-in function of this machine code, bound to the table that `fill` makes.

    None where this interpreter can have none.
    """
    known = addresses()
    if known is None:
        return None
    build = partial(_build, source, name, style.words)
    address = cache.machine_code(cache.key(source), name, build)
    made: Callable[..., Any] = _new_function(_described(address, style), fill(known), None)
    return made


#: One for each code there is, not for each function: they stay, as code does.
_methods: dict[tuple[int, Style], Method] = {}


def _described(address: int, style: Style) -> int:
    """Where Python's description of this code is."""
    found = _methods.get((address, style))
    if found is None:
        made = Method(style.name, address, style.flags, style.doc)
        found = _methods.setdefault((address, style), made)
    return ctypes.addressof(found)


def _build(source: str, name: str, words: int, given: str) -> cache.Code:
    from oven.compiler import native  # numba is imported only to compile

    made = native.compile_source(source.replace(f"def {name}(", f"def {given}(", 1), given)
    # Code that is called with as many words as a stage is compiled like one.
    return made if words == ONE.words else machine.callable_by_c(made.symbol, made.llvm, words)


_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))
