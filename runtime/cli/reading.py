"""Rows for a model from files, block by block: CSV, JSON lines, Parquet, Arrow.

A file is never in memory as a whole. Every block has the lines of its rows, so that an error about
`$[3].age` becomes one about a line of the file.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from flour.core.types import Pairs, Record, Type, Vector
from flour.data.arrow_reader import ArrowReader
from flour.data.arrow_strings import with_texts
from runtime.bulk.files import parts_of
from runtime.bulk.plans import no_rows
from runtime.cli.blocks import ARROW, Block, Options
from runtime.cli.errors import BadTable
from runtime.cli.tables import Schema

FORMATS = ("csv", "tsv", "jsonl", *ARROW)
_BY_ENDING = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BY_ENDING |= {".parquet": "parquet", ".pq": "parquet"}
_BY_ENDING |= dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow")
MAX_CELL = 16 << 20
#: What the decoder makes of bytes that are no UTF-8.
_NO_UTF8 = re.compile("[\udc80-\udcff]")


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
                block.data = with_texts(ArrowReader(inputs).read(block.data))
            yield block
        return
    for block in _text_blocks(path, inputs, options):
        if 0 < block.count <= skip:
            skip -= block.count
        else:
            yield block


def _text_blocks(path: str, inputs: Mapping[str, Type], options: Options) -> Iterator[Block]:
    """The rows of all files; where there are none, one block of no rows says what columns are."""
    before, rows = 0, 0
    for part, _ in parts_of(path):
        name = "standard input" if path == "-" else str(part)
        with nullcontext(sys.stdin.buffer) if path == "-" else part.open("rb") as file:
            counted = _Counted(file, name)
            reader = _json_lines if options.form == "jsonl" else _csv
            for block in reader(counted, inputs, options, name):
                block.done, rows = before + counted.done, rows + block.count
                yield block
            counted.file.detach()  # it stays open
        before += counted.done
    if not rows:
        kept = {column: np.empty(0, str) for column in options.keep}
        yield Block(no_rows(inputs), 0, path, (), kept)


class _Counted:
    """The lines of a file of UTF-8, with an approximate count of their bytes."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file = TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
        self.done, self._name = 0, name

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self.file, 1):
            if not line.isascii() and (wrong := _NO_UTF8.search(line)):
                raise BadTable(
                    "this text is not UTF-8",
                    where=f"{self._name}:{number}",
                    found=f"0x{ord(wrong[0]) & 0xFF:02x} after {line[: wrong.start()][-20:]!r}",
                    hint="write the file anew as UTF-8",
                )
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
    rest = rows if header is not None else chain([first], rows)
    while some := list(islice(rest, options.rows)):
        yield _block(schema, some, kept, name)


def _rows(reader: Any, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the line it begins on; empty lines are skipped."""
    line, width = 1, 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            where = f"{name}:{reader.line_num or 1}"
            raise BadTable("this is not CSV", where=where, found=str(problem)[:120]) from None
        if row:
            width = width or len(row)
            if len(row) != width:
                raise BadTable(
                    f"{len(row)} cells, the first line has {width}",
                    where=f"{name}:{line}",
                    hint="a cell with a separator in it needs quotation marks",
                )
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
    texts = ((number, line) for number, line in enumerate(file, 1) if line.strip())
    columns: list[str] = []
    while some := dict(islice(texts, options.rows)):
        rows = [_parsed(line, f"{name}:{number}") for number, line in some.items()]
        if not columns and isinstance(rows[0], dict):
            columns = [key for key in rows[0] if key not in options.keep] or list(rows[0])
        named = [row if isinstance(row, dict) else {} for row in rows]
        kept = {key: [row.get(key) for row in named] for key in options.keep}
        data = _json_data(rows, [*some], inputs, name, columns)
        yield Block(data, len(rows), name, [*some], kept)


def _parsed(line: str, where: str) -> Any:
    try:
        value = json.loads(line)
        if "\\ud" in line or "\\uD" in line:
            json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be written
        return value
    except json.JSONDecodeError as problem:
        raise BadTable(
            "this is not JSON", where=f"{where}:{problem.colno}", found=problem.msg
        ) from None
    except (RecursionError, ValueError) as problem:
        raise BadTable("this JSON cannot be read", where=where, found=str(problem)[:80]) from None


def _json_data(
    rows: list[Any], lines: list[int], inputs: Mapping[str, Type], name: str, columns: list[str]
) -> Any:
    kind = next(iter(inputs.values()))
    if len(inputs) > 1:
        for row, line in zip(rows, lines, strict=True):
            if not isinstance(row, dict) or not inputs.keys() <= row.keys():
                wanted = ", ".join(inputs)
                raise BadTable(f"a row has {wanted}", where=f"{name}:{line}", found=str(row)[:60])
        return {key: [row[key] for row in rows] for key in inputs}
    if isinstance(kind, Record):  # a file has ids and labels, too
        known = frozenset(kind.names)
        return [
            {key: row[key] for key in row if key in known} if isinstance(row, dict) else row
            for row in rows
        ]
    if isinstance(kind, Pairs):
        return rows
    # The columns of others have any names.
    return [_unnamed(row, columns, next(iter(inputs)), kind) for row in rows]


def _unnamed(row: object, columns: Sequence[str], name: str, kind: Type) -> object:
    """What an object holds under an input's name; else its values, in the first row's order."""
    if not isinstance(row, dict) or name in row or not row.keys() >= {*columns}:
        return row.get(name, row) if isinstance(row, dict) else row
    values = [row[column] for column in columns]
    return values if isinstance(kind, Vector) else values[0] if len(values) == 1 else row
