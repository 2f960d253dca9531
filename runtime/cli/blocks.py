"""Blocks of rows from a file, and the options of reading one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flour.core.errors import FlourError
from runtime.bulk.refused import PLACE

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
        """Where a row of the data is among all rows."""
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
class Options:
    """Options of reading a file."""

    form: str
    rows: int = 10_000
    """How many a block has at most."""
    header: bool | None = None
    """Whether the first line of a CSV file names its columns; None to find out."""
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
        """Whether pyarrow reads the files."""
        return self.form in ARROW
