"""Writes answers to a file, block by block: CSV, JSON lines, Parquet, Arrow.

The file appears under its name when it is whole: until then it is a temporary one beside it.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import numpy as np

from runtime.bulk.compressed import written
from runtime.bulk.plans import flat_columns

Columns = Any
"""A record batch, or columns by name: arrays or lists with one entry per row."""
Write = Callable[[Columns], object]
"""Writes the next rows, given as columns."""


@contextmanager
def opened(path: str, form: str) -> Iterator[Write]:
    """The function that writes to a file, or to standard output ("-")."""
    if path == "-":
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as files, whatever the locale
        with _writer(Path("-"), path, form) as write:
            yield write
        sys.stdout.flush()
        return
    whole = Path(path)
    part = whole.with_name(f".{whole.name}.{os.getpid()}.part")
    try:
        with _writer(part, path, form) as write:
            yield write
        part.replace(whole)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _writer(path: Path, name: str, form: str) -> Iterator[Write]:
    if form in {"parquet", "arrow"}:
        from runtime.bulk.files import FileWriter

        writer = FileWriter(str(path), form)
        yield writer.write
        writer.close()
        return
    with written(path, name) if name != "-" else nullcontext(sys.stdout) as file:
        separator = "\t" if form == "tsv" else ","
        yield partial(_write_json, file) if form == "jsonl" else _Csv(file, separator).write


def _by_name(columns: Columns) -> Mapping[str, Any]:
    """Columns by name, of which those of lists of one length are arrays of two dimensions."""
    if isinstance(columns, Mapping):
        return columns
    pairs = zip(columns.schema.names, columns.columns, strict=True)
    return {name: _plain_column(column) for name, column in pairs}


def _plain_column(column: Any) -> Any:
    size = getattr(column.type, "list_size", None)
    if size is None:
        return column.to_pylist()
    if column.null_count:
        return np.array([row or [None] * size for row in column.to_pylist()], object)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), size)


def _write_json(file: IO[str], columns: Columns) -> None:
    """One object per line; vectors are arrays, NaN and infinities are null."""
    columns = _by_name(columns)
    for row in zip(*columns.values(), strict=True):
        plain = {name: _plain(value) for name, value in zip(columns, row, strict=True)}
        file.write(json.dumps(plain, ensure_ascii=False) + "\n")


class _Csv:
    """A header and rows; a vector has a column for each of its values."""

    def __init__(self, file: IO[str], separator: str) -> None:
        self._writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        self._started = False

    def write(self, columns: Columns) -> None:
        flat = {
            name: values.tolist() if isinstance(values, np.ndarray) else values
            for name, values in flat_columns(_by_name(columns))
        }
        if not self._started:
            self._writer.writerow(flat)
            self._started = True
        self._writer.writerows(zip(*flat.values(), strict=True))


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype == object and all(item is None for item in value):
            return None  # a row that was refused
        return [_plain(item) for item in value.tolist()]
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not np.isfinite(plain):
        return None if np.isnan(plain) else str(plain)
    return plain
