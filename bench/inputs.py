"""A workload's input rows, in files that every contestant can read: JSON and numpy only."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS, TEXT, TABLE = "numbers", "text", "table"


@dataclass(frozen=True)
class Table:
    """Named columns: numbers with holes, and strings."""

    columns: tuple[str, ...]
    numeric: frozenset[str]
    rows: list[list[Any]]

    def record(self, row: int) -> dict[str, Any]:
        """One row as a dict, as it arrives in JSON."""
        return dict(zip(self.columns, self.rows[row], strict=True))

    def column(self, name: str, start: int, stop: int) -> Any:
        """A part of a column: float64 with NaN for holes, or strings."""
        index = self.columns.index(name)
        values = [row[index] for row in self.rows[start:stop]]
        if name in self.numeric:
            return np.array([np.nan if each is None else each for each in values], np.float64)
        return np.array(values, object)


@dataclass(frozen=True)
class Inputs:
    """The rows of one workload, of one of three kinds."""

    kind: str
    data: Any

    def __len__(self) -> int:
        return len(self.data.rows if self.kind == TABLE else self.data)

    def repeated(self, count: int) -> Inputs:
        """These rows again and again, as many as asked for; not fewer than there are."""
        if count <= len(self):
            return self
        times = -(-count // len(self))
        if self.kind == NUMBERS:
            return Inputs(NUMBERS, np.tile(self.data, (times, 1)))
        if self.kind == TEXT:
            return Inputs(TEXT, self.data * times)
        return Inputs(TABLE, replace(self.data, rows=self.data.rows * times))

    def write(self, folder: Path) -> None:
        """Put the rows into files of a directory."""
        if self.kind == NUMBERS:
            np.save(folder / "rows.npy", self.data)
            return
        table = self.data
        written = (
            {"texts": table}
            if self.kind == TEXT
            else {"columns": table.columns, "numeric": sorted(table.numeric), "rows": table.rows}
        )
        (folder / "rows.json").write_text(json.dumps(written), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Inputs:
        """The rows from the files of `write`."""
        if (folder / "rows.npy").exists():
            return cls(NUMBERS, np.load(folder / "rows.npy"))
        read = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
        if "texts" in read:
            return cls(TEXT, read["texts"])
        columns, numeric = tuple(read["columns"]), frozenset(read["numeric"])
        return cls(TABLE, Table(columns, numeric, read["rows"]))

    def frame(self, start: int, stop: int) -> Any:
        """Rows in scikit-learn's form: an array, a list of texts or a data frame."""
        if self.kind != TABLE:
            return self.data[start:stop]
        import pandas as pd

        table = self.data
        return pd.DataFrame({name: table.column(name, start, stop) for name in table.columns})
