"""Blocks of rows from a file, and the options of reading one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flour.core.errors import InputError

#: The formats that pyarrow reads.
ARROW = ("parquet", "arrow")
_PLACE = re.compile(r"^\$(?:\.(?P<column>[^\[\]]+))?\[(?P<row>\d+)\]\.?")


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

    def located(self, problem: InputError) -> InputError:
        """The error, with the line of the file."""
        match = _PLACE.match(problem.where or "")
        if match and int(match["row"]) < len(self.lines):
            line = f"{self.file}:{self.lines[int(match['row'])]}"
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

    @property
    def is_arrow(self) -> bool:
        """Whether pyarrow reads the files."""
        return self.form in ARROW
