"""Blocks of values as a file of Parquet or a stream of Arrow, written by pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from flour.core.errors import ParameterError
from oven.plans.arrow import answers_batch

#: Rows of a group in a file: fewer are not worth its header.
GROUP = 8192


def arrow() -> Any:
    """The package pyarrow, with its readers of CSV and Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ModuleNotFoundError as problem:
        raise ParameterError(
            "values are written by pyarrow",
            found=f"no {problem.name}",
            hint="pip install 'pretzel-runtime[arrow]'",
        ) from None
    return pa


class ArrowSink:
    """Writes a column `value` in groups of rows: a number, a text, or a list of numbers each."""

    def __init__(self, to: Path | BinaryIO, *, parquet: bool) -> None:
        self._arrow, self._parquet = arrow(), parquet
        self._file: Any = _opened(to) if isinstance(to, Path) else to
        self._path = to if isinstance(to, Path) else None
        self._writer: Any = None
        self._blocks: list[Any] = []
        self._rows = 0

    def __call__(self, values: object) -> None:
        """Keep a block until there are enough for a group; a stream gets each at once."""
        block = answers_batch({"value": values}, {})
        self._blocks.append(block)
        self._rows += len(block)
        if not self._parquet or self._rows >= GROUP:
            self._write()

    def _write(self) -> None:
        table = self._arrow.Table.from_batches(self._blocks)
        self._blocks, self._rows = [], 0
        if self._writer is None:
            arrow = self._arrow
            begin = arrow.parquet.ParquetWriter if self._parquet else arrow.ipc.new_stream
            self._writer = begin(self._file, table.schema)
        self._writer.write_table(table)
        if not self._parquet:
            self._file.flush()

    def close(self) -> None:
        """Write the last group and the end of the file."""
        if self._blocks:
            self._write()
        if self._writer is not None:
            self._writer.close()
        if self._path is not None:
            self._file.close()
            if self._writer is None:
                self._path.unlink(missing_ok=True)  # without a value there is no schema


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except OSError as problem:
        raise ParameterError(
            "a tap cannot write this file",
            where=str(path),
            found=problem.strerror or type(problem).__name__,
            hint="name a file that is not there yet, in a folder that is",
        ) from None
