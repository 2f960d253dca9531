"""Numbers written as strings, as onnxruntime writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flour.core.check import expect
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.op import Columns, Op
from flour.core.types import FLOATS, INTS, Scalar, Type, Vector

#: More digits than this may not fit a whole number of 64 bits.
_DIGITS = 18


def text_of(value: float | np.number[Any] | np.bool_) -> str:
    """A number as onnxruntime writes it: floats of every width with eight digits."""
    if not isinstance(value, float | np.floating):
        return str(int(value))
    if math.isfinite(value):
        return f"{float(value):.8g}"
    return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"


class WriteFloats(Op, method=""):
    """Each float as a string of at most eight digits."""

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


class WriteWhole(Op, method="", makes_strings=True):
    """Each whole number as a string of digits."""

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

        return e.map(cell, x, dtype="string")


# --- native code ----------------------------------------------------------------------------------

#: The size of a cell and the characters behind it, in units of eight bytes.
_CELL = 5


def _written(e: Emitter, cell: str, value: str, least: int) -> str:
    """The cell with a whole number's digits; one below `least` (a wrapped uint64) is refused."""
    number = e.var(f"int64({value})")
    e.refuse(f"{number} > {10**_DIGITS} or {number} < {least}")
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
