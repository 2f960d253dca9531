"""Lines of CSV to named, typed columns: a program may start where the data is still text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from csv import Error as CsvError
from csv import reader
from typing import Any

import numpy as np

from flour.core.check import holds_text, text
from flour.core.emission import Emitter, Room, ScalarValue, TextValue, Value
from flour.core.errors import NotRectangular, ParameterError, WrongDtype
from flour.core.op import Columns, Op
from flour.core.types import Category, Record, Scalar, Text, Type
from flour.ops.text import SLACK, document


class ParseCsv(Op):
    """One CSV record per row as named columns; quoting as RFC 4180 has it.

    An empty field is a missing number (NaN) in a column of floats, and None in one of categories.
    """

    labels: tuple[str, ...]
    kinds: tuple[object, ...]
    separator: str = ","

    def check(self) -> None:
        if len(self.labels) != len(self.kinds) or not self.labels:
            raise ParameterError("every CSV column needs a name and a type")
        if len(set(self.labels)) != len(self.labels):
            raise ParameterError("two CSV columns have one name", found=", ".join(self.labels))
        if len(self.separator) != 1 or self.separator in '"\r\n':
            raise ParameterError("a CSV separator is one character", found=repr(self.separator))
        for label, kind in zip(self.labels, self.kinds, strict=True):
            if not isinstance(kind, Scalar | Category | Text):
                raise ParameterError(
                    f"CSV column {label!r} cannot be {kind}",
                    hint="a field is a Scalar, a Category or a Text",
                )

    def infer(self, x: Type) -> Record:
        text(x, "parse_csv")
        pairs: Any = tuple(zip(self.labels, self.kinds, strict=True))
        return Record(pairs)

    def reference(self, x: Columns) -> Columns:
        rows = [self.cut(i, line) for i, line in enumerate(x)]
        return {
            label: _column(label, kind, [row[j] for row in rows])
            for j, (label, kind) in enumerate(zip(self.labels, self.kinds, strict=True))
        }

    def cut(self, row: int, line: str) -> list[str]:
        """The fields of one record; a quoted field may hold separators, quotes and line ends."""
        try:
            records = list(reader([line], delimiter=self.separator, strict=True))
        except CsvError as problem:
            raise NotRectangular(
                "this is not a CSV record",
                where=f"$[{row}]",
                found=str(problem),
                hint='quotes around a field are doubled inside it: "say ""hi"""',
            ) from None
        # An empty line is a record of one empty field; what follows a line end is a second record.
        fields = (records[0] or [""]) if len(records) == 1 else []
        if len(fields) != len(self.labels):
            raise NotRectangular(
                f"expected {len(self.labels)} fields, got {len(fields)}",
                where=f"$[{row}]",
                found=repr(line[:60]),
                hint="the columns are " + ", ".join(self.labels),
            )
        return fields


class CsvField(ParseCsv):
    """One column of strings of a CSV record per row; the other columns are not converted."""

    method = ""  # written by Flow.field, for a column of strings
    column: str = ""

    def check(self) -> None:
        super().check()
        if self.column not in self.labels or not holds_text(self._kind()):
            raise ParameterError("this is no CSV column of strings", found=repr(self.column))

    def _kind(self) -> Any:
        return self.kinds[self.labels.index(self.column)]

    def infer(self, x: Type) -> Any:
        text(x, "csv_field")
        return self._kind()

    def reference(self, x: Columns) -> Columns:
        place = self.labels.index(self.column)
        return _column(self.column, self._kind(), [self.cut(i, t)[place] for i, t in enumerate(x)])

    def runs_native(self) -> bool:
        return self.separator.isascii()

    def emit(self, e: Emitter, x: Value) -> Value:
        """Walk to the field; a record with anything unusual in it is left to the reference."""
        line = document(e, x)
        made = e.room(Room(line.growth, SLACK))
        where, size, number, at = (e.var("0") for _ in range(4))
        separator, count = e.size(ord(self.separator)), e.size(len(self.labels))
        e.refuse(f"{line.size} > {CSV_LIMIT}")
        with e.block(f"while {number} < {count}:"):
            start, end, doubled = _walk_field(e, line, at, separator)
            with e.block(f"if {number} == {e.size(self.labels.index(self.column))}:"):
                e.line(f"{where}, {size} = {line.where} + {start}, {end} - {start}")
                with e.block(f"if {doubled} > 0:"):
                    e.line(f"{where}, {size} = {made}, {size} - {doubled}")
                    _copy_unquoted(e, f"{line.where} + {start}", size, made)
            e.line(f"{number} += 1")
            with e.block(f"if {number} < {count}:"):
                e.refuse(f"{at} >= {line.size}")
                e.line(f"{at} += 1")
        e.refuse(f"{at} < {line.size}")
        if isinstance(self._kind(), Text):
            return TextValue(where, size, line.growth)
        cell = e.scratch("int64", 2)
        e.store(cell, "0", where, "int64")
        none = f"({size} if {size} > 0 else -1)" if self._kind() == Category() else size
        e.store(cell, "1", none, "int64")
        return ScalarValue(cell, "string")


#: The number of characters of a field beyond which Python's reader refuses it.
CSV_LIMIT = 131_072


def _walk_field(e: Emitter, line: TextValue, at: str, separator: str) -> tuple[str, str, str]:
    """Code that moves `at` behind a field: its start and end, and how many quotes are doubled."""
    start, end, doubled, closed = (e.var(value) for value in (at, "0", "0", "0"))

    def byte(place: str) -> str:
        return f"ld_uint8({line.where}, {place})"

    with e.block(f"if {at} < {line.size} and {byte(at)} == {_QUOTE}:"):
        e.line(f"{at} += 1")
        e.line(f"{start} = {at}")
        with e.block(f"while {at} < {line.size} and {closed} == 0:"):
            with e.block(f"if {byte(at)} != {_QUOTE}:"):
                e.line(f"{at} += 1")
            with e.block(f"elif {at} + 1 < {line.size} and {byte(f'{at} + 1')} == {_QUOTE}:"):
                e.line(f"{at}, {doubled} = {at} + 2, {doubled} + 1")
            with e.block("else:"):
                e.line(f"{closed} = 1")
        e.line(f"{end} = {at}")
        e.line(f"{at} += 1")
        behind = f"{at} < {line.size} and {byte(at)} != {separator}"
        e.refuse(f"{closed} == 0 or ({behind})")
    with e.block("else:"):
        with e.block(f"while {at} < {line.size} and {byte(at)} != {separator}:"):
            e.refuse(f"{byte(at)} == 10 or {byte(at)} == 13")
            e.line(f"{at} += 1")
        e.line(f"{end} = {at}")
    return start, end, doubled


_QUOTE = ord('"')


def _copy_unquoted(e: Emitter, source: str, size: str, made: str) -> None:
    """Copy `size` bytes without the first of each two quotes."""
    read = e.var("0")
    with e.loop(size) as j:
        value = e.let(f"ld_uint8({source}, {read})", "uint8").expr
        e.store(made, j, value, "uint8")
        e.line(f"{read} += 2 if {value} == {_QUOTE} else 1")


def _column(label: str, kind: object, fields: list[str]) -> Columns:
    dtype = "string" if isinstance(kind, Text) else kind.dtype  # type: ignore[attr-defined]  # checked
    if dtype != "string":
        read = _READERS[np.dtype(dtype).kind]
        return np.array([_read(read, f, dtype, i, label) for i, f in enumerate(fields)], dtype)
    column = np.empty(len(fields), object)
    column[:] = [None if isinstance(kind, Category) and not field else field for field in fields]
    return column


def _read(read: Callable[[str], Any], field: str, dtype: str, row: int, label: str) -> Any:
    try:
        # numpy refuses what is outside a dtype's range, and Python what has too many digits.
        if "_" in field and dtype != "bool":  # Python reads 1_0 as ten
            raise ValueError(field)
        return np.array(read(field.strip()), dtype)
    except (ValueError, KeyError, OverflowError):
        raise WrongDtype(
            f"expected {dtype}",
            where=f"$[{row}].{label}",
            found=repr(field[:40]),
            hint="is it another column, or is the separator another one?",
        ) from None


_BOOLS: Mapping[str, bool] = {"true": True, "false": False, "1": True, "0": False}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "f": lambda field: float(field) if field else float("nan"),
    "i": int,
    "u": int,
    "b": lambda field: _BOOLS[field.lower()],
}
