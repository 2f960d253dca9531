"""Lines of CSV to named, typed columns: a program may start where the data is still text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from csv import Error as CsvError
from csv import reader
from typing import Any

import numpy as np

from flour.core.check import text
from flour.core.errors import NotRectangular, ParameterError, WrongDtype
from flour.core.op import Columns, Op
from flour.core.types import Category, Record, Scalar, Text, Type


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
        rows = [self._cut(i, line) for i, line in enumerate(x)]
        return {
            label: _column(label, kind, [row[j] for row in rows])
            for j, (label, kind) in enumerate(zip(self.labels, self.kinds, strict=True))
        }

    def _cut(self, row: int, line: str) -> list[str]:
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
