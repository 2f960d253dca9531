"""Blocks of rows from a file, and the options of reading one.

The types of columns of CSV that are copied into Parquet, Arrow or JSON.
A column has the first of these types that all of its cells have, apart from missing ones: bools,
integers, numbers, texts. Numbers that would not be written again as they stand, such as 007, leave
their column one of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flour.core.errors import FlourError
from runtime.bulk.refused import PLACE
from runtime.cli.errors import BadTable
from runtime.cli.tables import MISSING

P = TypeVar("P", bound=FlourError)
#: The formats that pyarrow reads.
ARROW = ("parquet", "arrow")


@dataclass(slots=True)
class Block:
    """Some rows, as the model takes them."""

    data: Any
    count: int
    file: str
    lines: Sequence[int]
    """The line of each row; the row's number in formats without lines."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Columns that are copied to the output."""
    done: int = 0
    """Bytes of the file that were read so far."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The types of those columns, by their names in Arrow, where they are known."""
    refused: dict[int, FlourError] = field(default_factory=dict)
    """Rows that cannot be read, with the errors; `data` has the others, `kept` has all."""

    def place(self, row: int) -> int:
        """The position of a row of the data among all rows."""
        for refused in sorted(self.refused):
            row += refused <= row
        return row

    def located(self, problem: P, start: int = 0) -> P:
        """The error about rows of the data from `start` on, with the line of the file."""
        match = PLACE.match(problem.where or "")
        row = self.place(int(match["row"]) + start) if match else 0
        if match and row < len(self.lines):
            line = f"{self.file}:{self.lines[row]}"
            rest = (match["column"] or "") + (problem.where or "")[match.end() :]
            problem.where = f"{line}, {rest}" if rest else line
        elif self.lines:
            about = f"{self.file}:{self.lines[0]} to {self.lines[-1]}"
            problem.where = f"{about}, {problem.where}" if problem.where else about
        return problem


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading a file."""

    form: str
    rows: int = 10_000
    """The maximum of a block."""
    header: bool | None = None
    """True if the first line of a CSV file names its columns; None to find out."""
    separator: str | None = None
    keep: tuple[str, ...] = ()
    where: str | None = None
    """A condition (runtime.bulk.where) on the rows to answer."""
    tolerant: bool = False
    """True if blocks hold the rows that cannot be read instead of raising the first error."""
    typed: bool = False
    """True if kept columns of CSV get the narrowest type that fits all of their cells."""

    @property
    def is_arrow(self) -> bool:
        """True if pyarrow reads the files."""
        return self.form in ARROW


_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?|-?[iI]nf(?:inity)?", re.ASCII)
_EXACT = 1 << 53


def _integer(text: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match[1] or match[2] or text == "-0":
        raise ValueError(text)
    if not -(1 << 63) <= (value := int(text)) < 1 << 63:
        raise ValueError(text)
    return value


def _float(text: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    if not (match[1] or match[2]) and text[-1].isdecimal() and abs(int(text)) > _EXACT:
        raise ValueError(text)  # it would be rounded
    return float(text)


def _bool(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


_READERS: dict[str, Callable[[str], object]]
_READERS = {"bool": _bool, "int64": _integer, "float64": _float, "string": str}


class KeptTypes:
    """Finds the types of columns by their cells, and converts them."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._left = {column: list(_READERS) for column in columns}
        self._empty = set(self._left)
        #: The names of the types in Arrow, once they are settled.
        self.kinds: Mapping[str, str] = {}

    def learn(self, some: Iterable[Mapping[str, Sequence[str | None]]]) -> None:
        """Look at more cells."""
        for columns in some:
            for column, cells in columns.items():
                words = {cell for cell in cells if cell is not None and cell not in MISSING}
                self._empty -= {column} if words else set()
                self._left[column] = [
                    kind for kind in self._left[column] if all(_fits(kind, word) for word in words)
                ]

    def settle(self) -> None:
        """No more cells are looked at. A column without any value is one of texts."""
        self.kinds = {
            column: "string" if column in self._empty else left[0]
            for column, left in self._left.items()
        }

    def convert(self, block: Block) -> None:
        """Give the kept cells of a block their types; the first block says them if nothing did."""
        if not self.kinds:
            self.learn([block.kept])
            self.settle()
        block.kinds = self.kinds
        for column, cells in block.kept.items():
            kind = self.kinds[column]
            if kind != "string":
                block.kept[column] = [
                    _cell(kind, cell, column, block, row) for row, cell in enumerate(cells)
                ]


def _fits(kind: str, text: str) -> bool:
    try:
        _READERS[kind](text)
    except (ValueError, KeyError):
        return False
    return True


def _cell(kind: str, text: str | None, column: str, block: Block, row: int) -> object:
    if text is None or (kind != "string" and text in MISSING):
        return None
    try:
        return _READERS[kind](text)
    except (ValueError, KeyError):
        raise BadTable(
            f"column {column!r} is kept as {kind}, which this is not",
            where=f"{block.file}:{block.lines[row]}",
            found=repr(text[:60]),
            hint="a pipe is read once, so its first rows say what is kept; write it to a file",
        ) from None
