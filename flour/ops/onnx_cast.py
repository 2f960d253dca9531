"""Casts between strings and numbers, as onnxruntime has them: C's numbers at the start of a string.

A string is read as `strtod` and `strtoll` read it: white space, a sign, the longest prefix that is
a number; the rest is ignored. Native code reads ordinary decimals, and leaves anything else
(hexadecimal, more digits than a float64 tells apart, strings without a number) to the definition,
which returns the number or raises the error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from flour.core.check import expect
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.errors import InputError, ParameterError
from flour.core.op import Array, Columns, Op
from flour.core.types import FLOATS, INTS, Scalar, Type, Vector

_SPACE = r"[ \t\n\v\f\r]*"
_FLOAT = re.compile(
    rf"{_SPACE}([+-]?)(?:(0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)|(inf)|(nan))",
    re.IGNORECASE | re.ASCII,
)
_WHOLE = re.compile(rf"{_SPACE}([+-]?[0-9]+)", re.ASCII)
_TINY = float(np.finfo(np.float64).tiny)
#: More digits than this may not fit a whole number of 64 bits.
_DIGITS = 18
#: Powers of ten that are float64 exactly.
_TENS = 22
#: What onnxruntime reads missing strings as.
_NONE, _NAN = "None", "nan"


def float_of(text: str) -> float:
    """The number a string starts with; ValueError without one, or if no float64 is near it."""
    match = _FLOAT.match(text)
    if match is None:
        raise ValueError("no number")
    sign, hexadecimal, decimal, infinite, _ = match.groups()
    if hexadecimal or decimal:
        size = abs(_sized(hexadecimal, decimal))
    else:
        size = math.inf if infinite else math.nan
    return -size if sign == "-" else size


def _sized(hexadecimal: str | None, decimal: str | None) -> float:
    try:
        size = float.fromhex(hexadecimal) if hexadecimal else float(decimal or "")
    except OverflowError:
        raise ValueError("a number too large") from None
    exact = size >= _TINY or (decimal is not None and Fraction(decimal) == Fraction(size))
    if math.isinf(size) or not (exact or (hexadecimal and not size)):
        raise ValueError("a number too large or too small")
    return size


def whole_of(text: str, dtype: str) -> int:
    """The whole number a string starts with, cut to the type's bits as C does."""
    match = _WHOLE.match(text)
    if match is None:
        raise ValueError("no whole number")
    whole, signed = int(match[1]), dtype.startswith("int")
    limit = 1 << 63 if signed else 1 << 64
    if not (-limit <= whole < limit if signed else abs(whole) < limit):
        raise ValueError("a number too large")
    if dtype == "bool":
        return int(whole != 0)
    bits = 8 * int(np.dtype(dtype).itemsize)
    low = whole % (1 << bits)
    return low - (1 << bits) if signed and low >> bits - 1 else low


class ParseNumbers(Op):
    """The number that each string starts with."""

    method = ""
    dtype: str

    def check(self) -> None:
        if self.dtype not in (*FLOATS, *INTS, "bool"):
            raise ParameterError(f"strings are not read as {self.dtype}")

    def infer(self, x: Type) -> Vector | Scalar:
        fine = isinstance(x, Vector | Scalar) and x.dtype == "string"
        expect(fine, f"only strings are read as numbers, got {x}")
        return Vector(x.width, self.dtype) if isinstance(x, Vector) else Scalar(self.dtype)

    def reference(self, x: Columns) -> Columns:
        flat = x.reshape(-1).tolist()
        width = x.shape[1] if x.ndim == 2 else 1
        numbers = [
            self._one(value, *divmod(index, max(width, 1))) for index, value in enumerate(flat)
        ]
        wide = np.float64 if self.dtype in FLOATS else self.dtype
        with np.errstate(over="ignore"):
            return np.array(numbers, wide).astype(self.dtype).reshape(x.shape)

    def _one(self, value: object, row: int, column: int) -> float | int:
        text = value if isinstance(value, str) else _NONE if value is None else _NAN
        try:
            return float_of(text) if self.dtype in FLOATS else whole_of(text, self.dtype)
        except ValueError as problem:
            raise InputError(
                f"a string does not start with a number that is {self.dtype}",
                where=f"row {row}, column {column} of the cast",
                found=f"{text[:40]!r}: {problem}",
                hint="onnxruntime refuses such strings, too",
            ) from None

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        reader = _read_float if self.dtype in FLOATS else _read_whole

        def one(value: str) -> str:
            cell = e.let(value, "int64").expr
            where, size = (e.let(f"ld_int64({cell}, {half})", "int64").expr for half in (0, 1))
            return reader(e, where, size, self.dtype)

        if isinstance(x, ScalarValue):
            return e.let(one(x.expr), self.dtype)
        return e.map(lambda _, value: one(value), x, dtype=self.dtype, width=x.width)


def text_of(value: float | np.number[Any] | np.bool_) -> str:
    """A number as onnxruntime writes it: floats of every width with eight digits."""
    if not isinstance(value, float | np.floating):
        return str(int(value))
    if math.isfinite(value):
        return f"{float(value):.8g}"
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


class WriteFloats(Op):
    """Each float as a string of at most eight digits."""

    method = ""

    def infer(self, x: Type) -> Vector | Scalar:
        return _strings_of(x, FLOATS)

    def reference(self, x: Columns) -> Columns:
        return _texts(x)


def _strings_of(x: Type, dtypes: Sequence[str]) -> Vector | Scalar:
    """A string for each number of these types."""
    fine = isinstance(x, Vector | Scalar) and x.dtype in dtypes
    expect(fine, f"only numbers of {', '.join(dtypes)} are written, got {x}")
    return Vector(x.width, "string") if isinstance(x, Vector) else Scalar("string")


def _texts(x: Columns) -> Columns:
    texts = np.empty(x.size, object)
    texts[:] = [text_of(value) for value in x.reshape(-1)]
    return texts.reshape(x.shape)


class WriteWhole(Op):
    """Each whole number as a string of digits."""

    method = ""
    makes_strings = True

    def infer(self, x: Type) -> Vector | Scalar:
        return _strings_of(x, (*INTS, "bool"))

    def reference(self, x: Columns) -> Columns:
        return _texts(x)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        width = 1 if isinstance(x, ScalarValue) else x.width
        # Sixteen bytes behind a string may be read.
        cells = e.scratch("int64", width * _CELL + 2)

        def cell(j: str, value: str) -> str:
            base = e.let(f"{cells} + {8 * _CELL} * ({j})", "int64").expr
            return _written(e, base, value, least=0 if x.dtype == "uint64" else -(10**_DIGITS))

        if isinstance(x, ScalarValue):
            return ScalarValue(cell("0", x.expr), "string")
        return e.map(cell, x, dtype="string", width=width)


# --- native code ----------------------------------------------------------------------------------

#: The size of a cell and the characters behind it, in units of eight bytes.
_CELL = 5


def _written(e: Emitter, cell: str, value: str, least: int) -> str:
    """The cell with a whole number's digits; one below `least` (a wrapped uint64) is refused."""
    number = e.var(f"int64({value})")
    _refuse(e, f"{number} > {10**_DIGITS} or {number} < {least}")
    text, size = e.let(f"{cell} + 16", "int64").expr, e.var("int64(0)")
    with e.block(f"if {number} < 0:"):
        e.line(f"st_uint8({text}, 0, 45)")
        e.line(f"{size} = int64(1)")
        e.line(f"{number} = -{number}")
    rest, count = e.var(number), e.var("int64(1)")
    with e.block(f"while {rest} > 9:"):
        e.line(f"{rest} = {rest} // 10")
        e.line(f"{count} = {count} + 1")
    e.line(f"{size} = {size} + {count}")
    position = e.var(size)
    with e.block(f"while {count} > 0:"):
        e.line(f"{position} = {position} - 1")
        e.line(f"st_uint8({text}, {position}, 48 + {number} % 10)")
        e.line(f"{number} = {number} // 10")
        e.line(f"{count} = {count} - 1")
    e.line(f"st_int64({cell}, 0, {text})")
    e.line(f"st_int64({cell}, 1, {size})")
    return cell


class _Cursor:
    """A position in a string, and the character there (0 behind the end)."""

    def __init__(self, e: Emitter, where: str, size: str) -> None:
        self.e, self._where, self._size = e, where, size
        self.place, self.letter = e.var("int64(0)"), e.var("int64(0)")
        self._look()

    def _look(self) -> None:
        self.e.line(f"{self.letter} = int64(0)")
        with self.e.block(f"if {self.place} < {self._size}:"):
            self.e.line(f"{self.letter} = int64(ld_uint8({self._where} + {self.place}, 0))")

    def step(self) -> None:
        """Go on by one character."""
        self.e.line(f"{self.place} = {self.place} + 1")
        self._look()

    def skip_spaces(self) -> None:
        """Skip C's white space."""
        c = self.letter
        with self.e.block(f"while {c} == 32 or (9 <= {c} and {c} <= 13):"):
            self.step()

    def sign(self) -> str:
        """Read a sign, if there is one: -1 or 1."""
        sign = self.e.var("int64(1)")
        with self.e.block(f"if {self.letter} == 45 or {self.letter} == 43:"):
            self.e.line(f"{sign} = 44 - {self.letter}")
            self.step()
        return sign

    def digits(self, number: str, count: str) -> None:
        """Read digits and append them to those of a number; leading zeros are not counted."""
        with self.e.block(f"while 48 <= {self.letter} and {self.letter} <= 57:"):
            with self.e.block(f"if {count} < {_DIGITS}:"):
                self.e.line(f"{number} = {number} * 10 + ({self.letter} - 48)")
            self.e.line(f"{count} = {count} + (1 if {number} > 0 else 0)")
            self.step()


def _refuse(e: Emitter, condition: str) -> None:
    """Leave the rows to the definition."""
    with e.block(f"if {condition}:"):
        e.line("return 1")


def _read_whole(e: Emitter, where: str, size: str, dtype: str) -> str:
    """Read at most eighteen digits; strings without a digit and missing strings are refused."""
    _refuse(e, f"{size} < 0")
    cursor = _Cursor(e, where, size)
    cursor.skip_spaces()
    sign = cursor.sign()
    start, number, count = e.var(cursor.place), e.var("int64(0)"), e.var("int64(0)")
    cursor.digits(number, count)
    _refuse(e, f"{cursor.place} == {start} or {count} > {_DIGITS}")
    if dtype == "bool":
        return f"({number} != 0)"
    return e.cast(f"({sign} * {number})", "int64", dtype)


def _read_float(e: Emitter, where: str, size: str, dtype: str) -> str:
    """Read a decimal; a missing number is NaN, a missing text is refused."""
    _refuse(e, f"{size} == -1")
    value = e.var("math.nan")
    with e.block(f"if {size} >= 0:"):
        cursor = _Cursor(e, where, size)
        cursor.skip_spaces()
        sign = cursor.sign()
        number, count = e.var("int64(0)"), e.var("int64(0)")
        power = _decimal(e, cursor, number, count)
        e.line(f"{value} = {_scaled(e, number, power)}")
        with e.block(f"if {sign} < 0:"):
            e.line(f"{value} = -{value}")
    return e.cast(value, "float64", dtype)


def _decimal(e: Emitter, cursor: _Cursor, number: str, count: str) -> str:
    """Read a decimal; the power of ten that its digits are to be multiplied with."""
    start, seen, power = e.var(cursor.place), e.var("int64(0)"), e.var("int64(0)")
    cursor.digits(number, count)
    e.line(f"{seen} = {cursor.place} - {start}")
    # A zero may be the first digit of a hexadecimal number.
    _refuse(e, f"{seen} == 1 and ({cursor.letter} | 32) == 120")
    with e.block(f"if {cursor.letter} == 46:"):
        cursor.step()
        behind = e.var(cursor.place)
        cursor.digits(number, count)
        e.line(f"{power} = {behind} - {cursor.place}")
        e.line(f"{seen} = {seen} - {power}")
    _refuse(e, f"{seen} == 0 or {count} > {_DIGITS}")
    with e.block(f"if ({cursor.letter} | 32) == 101:"):
        cursor.step()
        sign, tens, places = cursor.sign(), e.var("int64(0)"), e.var("int64(0)")
        cursor.digits(tens, places)
        _refuse(e, f"{places} > 4")
        e.line(f"{power} = {power} + {sign} * {tens}")
    return power


def _scaled(e: Emitter, number: str, power: str) -> str:
    """number * 10**power, rounded once; refused where this arithmetic cannot tell the rounding."""
    tens = e.address(Array.of(np.array([float(f"1e{power}") for power in range(_TENS + 1)])))
    _refuse(e, f"{number} > 0 and ({power} > {_TENS} or {power} < -{_TENS})")
    high = e.let(f"float64({number})", "float64").expr
    low = e.let(f"float64({number} - int64({high}))", "float64").expr
    result = e.var(high)
    with e.block(f"if {number} > 0 and {power} != 0:"):
        ten = e.let(e.load(tens, f"abs({power})", "float64", constant=True), "float64").expr
        rest = e.var("0.0")
        with e.block(f"if {power} > 0:"):
            e.line(f"{result} = {high} * {ten}")
            error = _error(e, high, ten, result)
            e.line(f"{rest} = {error} + {low} * {ten}")
        with e.block("else:"):
            e.line(f"{result} = {high} / {ten}")
            product = e.let(f"{result} * {ten}", "float64").expr
            error = _error(e, result, ten, product)
            e.line(f"{rest} = (({high} - {product}) - {error} + {low}) / {ten}")
        # The rest is known to some 50 bits: either end of that must round to the same number.
        bounds = [
            e.let(f"{result} + {rest} * {1 + sign * 2.0**-40}", "float64").expr for sign in (-1, 1)
        ]
        _refuse(e, f"{bounds[0]} != {bounds[1]}")
        e.line(f"{result} = {bounds[0]}")
    return result


def _error(e: Emitter, x: str, y: str, product: str) -> str:
    """x * y - product, exactly: both factors in halves, as Dekker and Veltkamp have it."""
    halves = []
    for value in (x, y):
        scaled = e.let(f"{value} * {2.0**27 + 1}", "float64").expr
        top = e.let(f"{scaled} - ({scaled} - {value})", "float64").expr
        halves.append((top, e.let(f"{value} - {top}", "float64").expr))
    (a, b), (c, d) = halves
    return e.let(f"(({a} * {c} - {product}) + {a} * {d} + {b} * {c}) + {b} * {d}", "float64").expr
