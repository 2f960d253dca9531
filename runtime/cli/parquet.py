"""Parquet in and out, through pyarrow, which is optional."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flour.core.types import Record, Scalar, Type, Vector
from runtime.cli.blocks import Block, Options
from runtime.cli.errors import BadTable, NotFound, NotInstalled


def _library() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise NotInstalled(
            "Parquet needs pyarrow, which is not installed",
            hint="pip install pyarrow; or use CSV or JSON lines",
        ) from None
    return pyarrow


def blocks(path: str, inputs: Mapping[str, Type], options: Options) -> Iterator[Block]:
    """The rows of a file in blocks."""
    arrow = _library()
    if path == "-":
        raise BadTable("Parquet cannot be read from standard input", where="standard input")
    if not Path(path).is_file():
        raise NotFound("there is no such file", where=path)
    try:
        file = arrow.parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as problem:
        raise BadTable("this is not a Parquet file", where=path, found=str(problem)[:120]) from None
    with file:
        size, total, done = Path(path).stat().st_size, max(file.metadata.num_rows, 1), 0
        for batch in file.iter_batches(options.chunk):
            table = arrow.Table.from_batches([batch])
            columns = {name: table.column(name) for name in table.column_names}
            missing = [name for name in options.keep if name not in columns]
            if missing:
                raise BadTable(f"there is no column {missing[0]!r} to keep", where=path)
            kept = {name: columns[name].to_pylist() for name in options.keep}
            data = _data(columns, inputs, path)
            numbers = range(done + 1, done + batch.num_rows + 1)
            done += batch.num_rows
            yield Block(data, batch.num_rows, path, numbers, kept, size * done // total)


def _data(columns: Mapping[str, Any], inputs: Mapping[str, Type], path: str) -> Any:
    """The part of these columns that the model reads."""
    if len(inputs) > 1:
        return {name: columns.get(name) for name in inputs}
    name, kind = next(iter(inputs.items()))
    if isinstance(kind, Record):
        names = set(kind.names)
        return {column: values for column, values in columns.items() if column in names}
    if isinstance(kind, Vector):
        if len(columns) < kind.width:
            columns_found = f"{len(columns)} columns"
            raise BadTable(f"the model reads {kind.width} columns", where=path, found=columns_found)
        first = list(columns.values())[: kind.width]
        return np.stack([_floats(each, kind.dtype) for each in first], axis=1)
    if name not in columns and len(columns) != 1:
        columns_found = ", ".join(columns)[:200]
        raise BadTable(f"there is no column {name!r}", where=path, found=columns_found)
    values = columns[name] if name in columns else next(iter(columns.values()))
    return values if isinstance(kind, Scalar) else values.to_pylist()


def _floats(column: Any, dtype: str) -> Any:
    values = column.to_numpy()
    return values if dtype == "string" else np.asarray(values, np.dtype(dtype))


class Writer:
    """Writes answers, one row group for each block."""

    def __init__(self, path: str) -> None:
        self._arrow = _library()
        self._path = path
        self._file: Any = None

    def write(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """The next rows."""
        table = self._arrow.table({name: list(values) for name, values in columns.items()})
        if self._file is None:
            self._file = self._arrow.parquet.ParquetWriter(self._path, table.schema)
        self._file.write_table(table.cast(self._file.schema))

    def close(self) -> None:
        """Finish the file."""
        if self._file is None:
            self.write({})
        self._file.close()
