"""Values of native code while it is written: expressions, memory, and fitted numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from flour.core.emission import Emitter, ScalarValue
from flour.core.native_source import INFIX, NUMPY
from objectstore import Blob

#: The dtypes of numbers that a function spells out.
_KINDS: dict[type, str] = {float: "float64", int: "int64", bool: "bool"}


class Code(str):
    """An expression of native code, and its dtype where it is known."""

    __slots__ = ("dtype",)
    dtype: str

    def __new__(cls, text: str, dtype: str = "") -> Code:
        """Make an expression."""
        made = str.__new__(cls, text)
        made.dtype = dtype
        return made


class Memory(str):
    """Numbers at an address: what is read and written by index. `constant` is never written."""

    __slots__ = ("constant", "dtype")
    dtype: str
    constant: bool

    def __new__(cls, address: str, dtype: str, *, constant: bool = False) -> Memory:
        """Make memory at an address."""
        made = super().__new__(cls, address)
        made.dtype, made.constant = dtype, constant
        return made

    def at(self, address: str, dtype: str = "") -> Memory:
        """Return memory of the same kind at another address, or of another dtype."""
        return Memory(address, dtype or self.dtype, constant=self.constant)


class FittedNumbers(NamedTuple):
    """Numbers of an operator, read by index; a single number stands for all of them."""

    parameter: Blob
    dtype: str


class Spelled(NamedTuple):
    """A function of Python that writes code: what it is called with, it gets as text.

    As a row it says its number at an index; its size is None where its width is known.
    """

    write: Callable[..., Any]
    dtype: str = ""
    size: str | None = None


def plain(value: object) -> Any:
    """Return what an operator hands over as native code sees it."""
    if isinstance(value, ScalarValue):
        return Code(value.expr, value.dtype)
    if type(value) is tuple:
        return tuple(map(plain, value))
    return FittedNumbers(value, _name(value.dtype)) if isinstance(value, Blob) else value


@cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def text(value: object) -> str:
    """Return the expression of a value; of a number that is known, its literal."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else f"{'-' if value < 0 else ''}math.inf"
    return repr(value)


def let(e: Emitter, value: Code) -> Code:
    """Return a name for an expression, which is evaluated once."""
    return value if value.isidentifier() else Code(e.let(value, value.dtype).expr, value.dtype)


def word_of(e: Emitter, name: str, values: Sequence[object]) -> Code:
    """Return the call of a word of the vocabulary, or the conversion to a dtype."""
    given = [
        e.address(each.parameter, each.dtype) if isinstance(each, FittedNumbers) else text(each)
        for each in map(plain, values)
    ]
    return Code(f"{name}({', '.join(given)})", dtype_of(name, values))


def dtype_of(word: str, values: Sequence[object]) -> str:
    """Return the dtype of a word that is called with these values."""
    if word.startswith(("float", "int", "uint")):
        return word
    return next((each.dtype for each in values if isinstance(each, Code)), "")


def ufunc(e: Emitter, function: Callable[..., Any], values: Sequence[object]) -> Any:
    """Return the call of a function of numpy, which is a word of its name or an operator."""
    given, name = [plain(value) for value in values], function.__name__
    if name == "isnan":
        held = e.let(text(given[0]), getattr(given[0], "dtype", "")).expr
        return Code(f"({held} != {held})", "bool")
    if name in INFIX:
        left, right = map(text, given)
        return Code(f"({left} {INFIX[name]} {right})", dtype_of("", given))
    if name == "where":
        return Code("({1} if {0} else {2})".format(*map(text, given)), dtype_of("", given[1:]))
    return Code(f"{NUMPY.get(name, name)}({', '.join(map(text, given))})", dtype_of("", given))


class CountedRange(NamedTuple):
    """Integers that a loop counts."""

    start: str
    stop: object


def variable(e: Emitter, name: str, value: object) -> Any:
    """Return a new variable with this value."""
    return Code(
        e.var(text(value), name), value.dtype if isinstance(value, Code) else _KINDS[type(value)]
    )


def _length(of: Any) -> object:
    return len(of) if type(of) in (list, tuple) else Code(of.size, "int64")


#: Functions of Python that are called while code is written; every function knows their names.
STATIC: dict[object, Callable[..., Any]] = {
    len: _length,
    range: lambda *ends: CountedRange(text(ends[0]) if len(ends) > 1 else "0", ends[-1]),
    zip: lambda *many: list(zip(*many, strict=True)),
}
BUILT_IN = {"len": len, "range": range, "zip": zip}
