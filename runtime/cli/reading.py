"""Rows for a model from files, block by block: CSV, JSON lines, Parquet, Arrow.

A file is never in memory as a whole. Every block has the lines of its rows, so that an error about
`$[3].age` becomes one about a line of the file.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flour.core.types import Record, Type
from runtime.bulk.files import parts_of
from runtime.cli.blocks import ARROW, Block, Options
from runtime.cli.errors import BadTable
from runtime.cli.tables import Schema

FORMATS = ("csv", "tsv", "jsonl", *ARROW)
_BY_ENDING = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BY_ENDING |= {".parquet": "parquet", ".pq": "parquet"}
_BY_ENDING |= dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow")
MAX_CELL = 16 << 20


def format_of(path: str, told: str | None) -> str:
    """The format of a file, or of those in a folder: as given, or by the first one's ending."""
    named = Path(path)
    if not told and named.is_dir():
        named = next((part.path for part in parts_of(path)), named)
    form = told or _BY_ENDING.get(named.suffix.lower())
    if form is None:
        raise BadTable(
            "the format of this file is unknown",
            where="standard input" if path == "-" else path,
            hint="say so: --format " + "|".join(FORMATS),
        )
    return form


def options_of(given: argparse.Namespace, path: str) -> Options:
    """The options of reading this file, by the arguments of a command."""
    form = format_of(path, given.format)
    return Options(form, header=given.header, separator=given.separator)


def size(path: str) -> int:
    """The bytes of all files; 0 of standard input."""
    return 0 if path == "-" else sum(part.path.stat().st_size for part in parts_of(path))


def blocks(
    path: str, inputs: Mapping[str, Type], options: Options, skip: int = 0, *, plain: bool = True
) -> Iterator[Block]:
    """The rows of files, `options.rows` at a time, without the blocks that have the first `skip`.

    Those of Parquet and Arrow files are record batches unless they should be `plain` columns.
    """
    if options.is_arrow:
        from runtime.cli import parquet

        for block in parquet.blocks(path, inputs, options, skip):
            if plain:
                block.data = parquet.plain(block.data, inputs, block.file)
            yield block
        return
    for block in _text_blocks(path, inputs, options):
        if block.count <= skip:
            skip -= block.count
        else:
            yield block


def _text_blocks(path: str, inputs: Mapping[str, Type], options: Options) -> Iterator[Block]:
    before = 0
    for part in ["-"] if path == "-" else [str(each.path) for each in parts_of(path)]:
        with _open_text(part) as file:
            counted = _Counted(file)
            name = "standard input" if part == "-" else part
            reader = _json_lines if options.form == "jsonl" else _csv
            for block in reader(counted, inputs, options, name):
                block.done = before + counted.done
                yield block
        before += counted.done


@contextmanager
def _open_text(path: str) -> Iterator[Iterable[str]]:
    if path == "-":
        yield _without_mark(sys.stdin)
        return
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        yield file


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the mark of byte order, which files are read without, too."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")


class _Counted:
    """The lines of a file, with an approximate count of their bytes."""

    def __init__(self, file: Iterable[str]) -> None:
        self._file = iter(file)
        self.done = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.done += len(line)
            yield line


# --- CSV -----------------------------------------------------------------------------------------


def _csv(
    file: _Counted, inputs: Mapping[str, Type], options: Options, name: str
) -> Iterator[Block]:
    csv.field_size_limit(MAX_CELL)
    separator = options.separator or ("\t" if options.form == "tsv" else ",")
    reader = csv.reader(iter(file), delimiter=separator, strict=True)
    rows = _rows(reader, name)
    first = next(rows, None)
    if first is None:
        return
    header = _header(first[1], inputs, options, name)
    schema = Schema(inputs, header, len(first[1]), name)
    kept = _kept_columns(header, options, name)
    pending = [] if header is not None else [first]
    for line, row in rows:
        if len(row) != len(first[1]):
            raise BadTable(
                f"{len(row)} cells, the first line has {len(first[1])}",
                where=f"{name}:{line}",
                hint="a cell with a separator in it needs quotation marks",
            )
        pending.append((line, row))
        if len(pending) >= options.rows:
            yield _block(schema, pending, kept, name)
            pending = []
    if pending:
        yield _block(schema, pending, kept, name)


def _rows(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the line it begins on; empty lines are skipped."""
    line = 1
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except (csv.Error, UnicodeDecodeError) as problem:
            where = f"{name}:{reader.line_num or 1}"
            raise BadTable("this is not CSV", where=where, found=str(problem)[:120]) from None
        if row:
            yield line, row
        line = reader.line_num + 1


def _header(
    first: list[str], inputs: Mapping[str, Type], options: Options, name: str
) -> list[str] | None:
    if options.header is not None:
        return first if options.header else None
    kind = next(iter(inputs.values()), None)
    if isinstance(kind, Record) and (set(kind.names) & set(first) or not kind.positional):
        return first
    if set(first) & set(inputs):
        return first
    return first if Schema(inputs, None, len(first), name).looks_like_header(first) else None


def _kept_columns(header: list[str] | None, options: Options, name: str) -> dict[str, int]:
    if options.keep and header is None:
        raise BadTable("columns to keep need a header", where=f"{name}:1")
    missing = [column for column in options.keep if column not in (header or ())]
    if missing:
        names = ", ".join(header or ())[:200]
        raise BadTable(f"there is no column {missing[0]!r} to keep", where=f"{name}:1", found=names)
    return {column: (header or []).index(column) for column in options.keep}


def _block(
    schema: Schema, pending: list[tuple[int, list[str]]], kept: dict[str, int], name: str
) -> Block:
    lines = [line for line, _ in pending]
    rows = [row for _, row in pending]

    def where(row: int, index: int, column: str) -> str:
        return f"{name}:{lines[row]}:{index + 1} (column {column!r})"

    columns = {column: [row[index] for row in rows] for column, index in kept.items()}
    return Block(schema.data(rows, where), len(rows), name, lines, columns)


# --- JSON lines ----------------------------------------------------------------------------------


def _json_lines(
    file: _Counted, inputs: Mapping[str, Type], options: Options, name: str
) -> Iterator[Block]:
    rows: list[Any] = []
    lines: list[int] = []
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        rows.append(_parsed(line, f"{name}:{number}"))
        lines.append(number)
        if len(rows) >= options.rows:
            yield _json_block(rows, lines, inputs, options, name)
            rows, lines = [], []
    if rows:
        yield _json_block(rows, lines, inputs, options, name)


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as problem:
        raise BadTable(
            "this is not JSON", where=f"{where}:{problem.colno}", found=problem.msg
        ) from None
    except (RecursionError, ValueError) as problem:
        raise BadTable("this JSON cannot be read", where=where, found=str(problem)[:80]) from None


def _json_block(
    rows: list[Any],
    lines: list[int],
    inputs: Mapping[str, Type],
    options: Options,
    name: str,
) -> Block:
    kept: dict[str, list[Any]] = {
        column: [row.pop(column, None) if isinstance(row, dict) else None for row in rows]
        for column in options.keep
    }
    kind = next(iter(inputs.values()))
    if len(inputs) == 1 and isinstance(kind, Record):  # a file has ids and labels, too
        known = frozenset(kind.names)
        rows = [
            {key: row[key] for key in row if key in known} if isinstance(row, dict) else row
            for row in rows
        ]
    data: Any = rows
    if len(inputs) > 1:
        for row, line in zip(rows, lines, strict=True):
            if not isinstance(row, dict) or not inputs.keys() <= row.keys():
                wanted = ", ".join(inputs)
                raise BadTable(f"a row has {wanted}", where=f"{name}:{line}", found=str(row)[:60])
        data = {key: [row[key] for row in rows] for key in inputs}
    return Block(data, len(rows), name, lines, kept)
