"""Words that native functions share: in Python they compute, in native code they are written.

Functions of numpy (`maximum`, `sqrt`, `floor`) are words of their own name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flour.core.native import indexable_row, written_as
from flour.core.native_values import Code, FittedNumbers, Memory

#: A vector of one row: it has a length, a dtype, and elements by their column.
Row = Any
#: A number in native code.
Number = Any
#: Fitted numbers, read by index; or many rows of the same width.
Numbers = Any

_ONES = {"float64": "1.0", "float32": "float32(1.0)"}
_ZEROS = {"float64": "0.0", "float32": "float32(0.0)"}


@written_as(indexable_row)
def indexable(row: Row) -> Row:
    """Return the row as one of which any element is read cheaply, any number of times."""
    return row


@written_as(lambda _, row: row)
def stored(row: Row) -> Iterator[tuple[int, Number]]:
    """Return the columns that are stored with their values; of a dense row, all of them."""
    return enumerate(row)


@written_as(lambda _, row: Code(_ZEROS.get(row.dtype, "0"), row.dtype))
def zero(row: Row) -> Number:
    """Return a zero of the row's dtype."""
    return row.dtype.type(0)


@written_as(lambda _, number: Code(_ONES.get(number.dtype, "1"), number.dtype))
def one(number: Number) -> Number:
    """Return a one of the number's dtype."""
    return number.dtype.type(1)


@written_as(lambda _, number, value: Code(f"{number.dtype}({value})", number.dtype))
def like(number: Number, value: Number) -> Number:
    """Return a value in the dtype of a number."""
    return number.dtype.type(value)


@written_as(lambda _, number: 8 * np.dtype(number.dtype).itemsize)
def bits(number: Number) -> int:
    """Return how many bits a number has."""
    return 8 * int(number.dtype.itemsize)


@written_as(lambda _, number: _narrowed(number))
def narrowed(number: Number) -> Number:
    """Return the number in its own dtype: native arithmetic widens small integers."""
    return number


@written_as(lambda e, total, value: Code(_added(e, total, value), total.dtype))
def added(total: Number, value: Number) -> Number:
    """Return the sum; in a loop, sums may be added up in any order unless they must be exact."""
    return total + value


@written_as(lambda e, left, right: Code(_times(e, left, right), left.dtype))
def times(left: Number, right: Number) -> Number:
    """Return the product; it may be fused with the sum it is added to unless it must be exact."""
    return left * right


@written_as(lambda e, number, dtype: Code(e.cast(number, number.dtype, dtype), dtype))
def cast(number: Number, dtype: str) -> Number:
    """Return the number in another dtype, as numpy converts it."""
    return np.asarray(number).astype(dtype)[()]


@written_as(lambda e, count: Code(e.size(count), "int64"))
def size(count: int) -> int:
    """Return a number of things, which differs between programs of one structure."""
    return count


@written_as(lambda e, value, dtype: Code(e.number(value, dtype), dtype))
def number(value: float, dtype: str) -> Number:
    """Return a fitted number in a dtype."""
    return np.dtype(dtype).type(value)


@written_as(lambda e, dtype, count: Memory(e.scratch(dtype, count), dtype))
def scratch(dtype: str, count: int) -> Any:
    """Return memory for so many numbers, which lives for one row."""
    return np.empty(count, dtype)


@written_as(lambda e, memory, start: memory.at(_offset(e, memory, start)))
def behind(memory: Numbers, start: int) -> Any:
    """Return the memory from an index on."""
    return memory[start:]


@written_as(lambda e, dtype, count: [_register(e, dtype) for _ in range(count)])
def registers(dtype: str, count: int) -> Any:
    """Return zeros in registers; which of them is meant is known when code is written."""
    return np.zeros(count, dtype)


@written_as(lambda e, _: Code(e.rows, "int64"))
def rows(block: Numbers) -> int:
    """Return the number of rows of a block."""
    return len(block)


@written_as(lambda _, block: Code(block.size, "int64"))
def width(block: Numbers) -> int:
    """Return the number of columns of a block."""
    return int(block.shape[1])


@written_as(lambda e, block, i: Memory(e.var(block.row(i), "r"), block.type.dtype, constant=True))
def read_row(block: Numbers, i: int) -> Any:
    """Return a row of a block that is only read."""
    return block[i]


@written_as(lambda e, block, i: Memory(e.var(block.row(i), "w"), block.type.dtype))
def write_row(block: Numbers, i: int) -> Any:
    """Return a row of a block that is written."""
    return block[i]


@written_as(lambda e, numbers, dtype=None: _fitted(e, numbers, dtype))
def fitted(numbers: Any, dtype: str | None = None) -> Any:
    """Return an operator's numbers as one run of memory, in another dtype if one is given."""
    return np.asarray(numbers).astype(dtype or numbers.dtype).reshape(-1)


def _narrowed(number: Code) -> Code:
    wide = number.dtype in {"float64", "float32", "int64"}
    return number if wide else Code(f"{number.dtype}({number})", number.dtype)


def _fitted(e: Any, numbers: FittedNumbers, dtype: str | None) -> Memory:
    kind = dtype or numbers.dtype
    return Memory(e.address(numbers.parameter, kind), kind, constant=True)


def _added(e: Any, total: Code, value: Code) -> str:
    if e.exact or not total.dtype.startswith("float"):
        return f"({total} + {value})"
    return f"loose_add_{total.dtype}({total}, {value})"


def _times(e: Any, left: Code, right: Code) -> str:
    if e.exact or not left.dtype.startswith("float"):
        return f"({left} * {right})"
    return f"loose_mul_{left.dtype}({left}, {right})"


def _register(e: Any, dtype: str) -> Code:
    return Code(e.var(_ZEROS.get(dtype, "0")), dtype)


def _offset(e: Any, memory: Memory, start: Code) -> str:
    size = np.dtype(memory.dtype).itemsize
    return str(e.let(f"{memory} + {size} * ({start})", "int64").expr)


@written_as(lambda e: e.line("return 1"))
def refuse() -> None:
    """Leave these rows to the operator's definition, which says what is wrong with them."""
    raise ValueError("these rows are refused")


@written_as(lambda e, cell: (Memory(_half(e, cell, 0), "uint8"), Code(_half(e, cell, 1), "int64")))
def string(cell: Any) -> tuple[bytes, int]:
    """Return a string's bytes and their number: -1 for None, -2 for NaN."""
    text = cell.encode("utf-8", "surrogatepass") if isinstance(cell, str) else b""
    return text, len(text) if isinstance(cell, str) else (-1 if cell is None else -2)


@written_as(lambda _, text, length: Code(f"text_surrogate({text}, {length})", "bool"))
def unpaired(text: bytes, length: int) -> bool:
    """Return True if half of a pair of surrogates is among a string's letters."""
    letters = text[:length].decode("utf-8", "surrogatepass")
    return any("\ud800" <= letter <= "\udfff" for letter in letters)


@written_as(lambda _, left, right: Code(f"wrap_mul({left}, {right})", "int64"))
def wrap_mul(left: int, right: int) -> int:
    """Return the product in 64 bits."""
    return (left * right + 2**63) % 2**64 - 2**63


def _half(e: Any, cell: Code, half: int) -> str:
    return str(e.let(f"ld_int64({cell}, {half})", "int64").expr)


def _chosen(test: Any, yes: Any, no: Any) -> Code:
    dtype = getattr(yes, "dtype", "") or getattr(no, "dtype", "")
    return Code(f"({yes} if {test} else {no})", dtype)


written_as(lambda _, *values: _chosen(*values))(np.where)
written_as(lambda e, row: Memory(e.scratch(row.dtype, row.width), row.dtype))(np.empty_like)
