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
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from flour.core.errors import FlourError
from flour.core.types import Pairs, Record, Type, Vector
from flour.data.arrow_reader import ArrowReader
from flour.data.arrow_strings import with_texts
from runtime.bulk import compressed
from runtime.bulk.files import is_stream, parts_of
from runtime.bulk.plans import no_rows
from runtime.bulk.refused import ROW_ERRORS, others, separated
from runtime.cli.blocks import ARROW, Block, KeptTypes, ReadOptions
from runtime.cli.errors import BadTable
from runtime.cli.tables import UNREAD, CsvColumn, Schema, place_of, wrong_header

if TYPE_CHECKING:
    from oven import Plan

FORMATS = ("csv", "tsv", "jsonl", *ARROW)
_BY_ENDING = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BY_ENDING |= {".parquet": "parquet", ".pq": "parquet"}
_BY_ENDING |= dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow")
MAX_CELL = 16 << 20
#: What the decoder makes of bytes that are no UTF-8.
_NO_UTF8 = re.compile("[\udc80-\udcff]")


def by_ending(path: Path) -> str | None:
    """The format that a file's name says, also of a compressed one; None if it says none."""
    return _BY_ENDING.get(compressed.plain_suffix(path))


def format_of(path: str, told: str | None) -> str:
    """The format of a file, or of those in a folder: as given, or by the first one's ending."""
    named = Path(path)
    if not told and named.is_dir():
        named = next((part.path for part in parts_of(path)), named)
    form = told or by_ending(named)
    if form is None:
        raise BadTable(
            "the format of this file is unknown",
            where="standard input" if path == "-" else path,
            hint="say so: --format " + "|".join(FORMATS),
        )
    if form in ARROW and compressed.compression(named):
        raise BadTable(
            "only CSV and JSON lines are read and written compressed as a whole",
            where=path,
            found=form,
            hint="Parquet and Arrow files compress their columns themselves",
        )
    return form


def first_rows(plan: Plan, given: argparse.Namespace, path: str, count: int) -> Any:
    """The first rows of a file, for a plan."""
    return first_block(plan, given, path, count).data


def first_block(plan: Plan, given: argparse.Namespace, path: str, count: int) -> Block:
    """The first rows of a file, for a plan, with their lines."""
    how = replace(options_of(given, path), rows=count)
    for block in blocks(path, plan.inputs, how):
        # A block may have a row more, that its header was told by.
        data = plan.reader.nulls.of_file(block.data)
        if isinstance(data, dict):
            data = {name: column[:count] for name, column in data.items()}
        block.data = data if isinstance(data, dict) else data[:count]
        return block
    raise BadTable("there are no rows", where=path)


def options_of(given: argparse.Namespace, path: str) -> ReadOptions:
    """The options of reading this file, by the arguments of a command."""
    form = format_of(path, given.format)
    return ReadOptions(form, header=given.header, separator=given.separator)


def size(path: str) -> int:
    """The bytes of all files; 0 of standard input."""
    return 0 if path == "-" else sum(part.path.stat().st_size for part in parts_of(path))


def blocks(
    path: str,
    inputs: Mapping[str, Type],
    options: ReadOptions,
    skip: int = 0,
    *,
    plain: bool = True,
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


def _text_blocks(path: str, inputs: Mapping[str, Type], options: ReadOptions) -> Iterator[Block]:
    """The rows of all files; where there are none, one block of no rows says what columns are."""
    before, rows = 0, 0
    types = KeptTypes(options.keep) if options.typed and options.form != "jsonl" else None
    if types and not is_stream(path):  # of a pipe, the first block has to say
        for file, name, _ in _files(path, tolerant=True):
            types.learn(_kept_cells(file, inputs, replace(options, tolerant=True), name))
        types.settle()
    for file, name, size in _files(path, tolerant=options.tolerant):
        for block in _of_file(file, inputs, options, name, types):
            block.done, rows = before + file.done, rows + block.count
            yield block
        before += size
    if not rows:
        kinds = types.kinds if types else {}
        kept: dict[str, Any]
        kept = {column: [] if column in kinds else np.empty(0, str) for column in options.keep}
        yield Block(no_rows(inputs), 0, path, (), kept, kinds=kinds)


def _files(path: str, *, tolerant: bool) -> Iterator[tuple[_Counted, str, int]]:
    """Every file, open, with its name and size."""
    for part, _ in parts_of(path):
        name = "standard input" if path == "-" else str(part)
        stdin = nullcontext((sys.stdin.buffer, None))
        with stdin if path == "-" else compressed.opened(part) as (file, raw):
            counted = _Counted(file, part, name, raw, tolerant=tolerant)
            yield counted, name, 0 if path == "-" else part.stat().st_size
            counted.file.detach()  # it stays open


def _of_file(
    file: _Counted,
    inputs: Mapping[str, Type],
    options: ReadOptions,
    name: str,
    types: KeptTypes | None,
) -> Iterator[Block]:
    if options.form == "jsonl":
        return _json_lines(file, inputs, options, name)
    return _csv(file, inputs, options, name, types)


class _Counted:
    """The lines of a file of UTF-8, with the bytes that were read of it.

    A tolerant reader keeps the errors of lines that are no UTF-8.
    """

    def __init__(
        self, file: BinaryIO, path: Path, name: str, raw: BinaryIO | None, *, tolerant: bool
    ) -> None:
        self.file = TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
        self._path, self._name, self._raw, self._tolerant = path, name, raw, tolerant
        #: By their line, if tolerant.
        self.wrong: dict[int, BadTable] = {}

    @property
    def done(self) -> int:
        """The bytes that were read so far."""
        return self._raw.tell() if self._raw and self._raw.seekable() else 0

    def __iter__(self) -> Iterator[str]:
        with compressed.told(self._path, self._name):
            yield from self._lines()

    def _lines(self) -> Iterator[str]:
        for number, line in enumerate(self.file, 1):
            if not line.isascii() and (wrong := _NO_UTF8.search(line)):
                problem = BadTable(
                    "this text is not UTF-8",
                    where=f"{self._name}:{number}",
                    found=f"0x{ord(wrong[0]) & 0xFF:02x} after {line[: wrong.start()][-20:]!r}",
                    hint="write the file anew as UTF-8",
                )
                if not self._tolerant:
                    raise problem
                self.wrong[number] = problem
            yield line

    def wrong_in(self, first: int, end: int) -> BadTable | None:
        """The error of one of these lines, which is given out once."""
        found = [self.wrong.pop(line) for line in [*self.wrong] if first <= line < end]
        return found[0] if found else None


Read = Callable[[Sequence[int]], Any]
"""The data of some rows of a block."""


def _readable(
    read: Read, rows: Sequence[object], *, tolerant: bool
) -> tuple[Any, dict[int, FlourError]]:
    """The data of all rows that can be read, and the errors of the others."""
    refused: dict[int, FlourError]
    refused = {at: row for at, row in enumerate(rows) if isinstance(row, BadTable)}
    good = others(len(rows), refused)
    try:
        return read(good), refused
    except ROW_ERRORS:
        if not tolerant:
            raise
    _, wrong = separated(lambda start, end: read(good[start:end]), len(good))
    refused |= {good[at]: problem for at, problem in wrong.items()}
    return read(others(len(rows), refused)), refused


# --- CSV -----------------------------------------------------------------------------------------


def _csv(
    file: _Counted,
    inputs: Mapping[str, Type],
    options: ReadOptions,
    name: str,
    types: KeptTypes | None = None,
) -> Iterator[Block]:
    header, width, rest = _opened_csv(file, inputs, options, name)
    kept = _kept_columns(header, options, name)
    schema = Schema(inputs, header, width, name, options.keep)
    while some := list(islice(rest, options.rows)):
        block = _block(schema, some, kept, name, tolerant=options.tolerant)
        if types:
            types.convert(block)
        yield block


def _kept_cells(
    file: _Counted, inputs: Mapping[str, Type], options: ReadOptions, name: str
) -> Iterator[dict[str, list[str]]]:
    """The columns to keep of a CSV file, some rows at a time."""
    header, _, rest = _opened_csv(file, inputs, options, name)
    kept = _kept_columns(header, options, name)
    while some := list(islice(rest, options.rows)):
        rows = [row for _, row in some if not isinstance(row, BadTable)]
        yield {column: [row[index] for row in rows] for column, index in kept.items()}


def _opened_csv(
    file: _Counted, inputs: Mapping[str, Type], options: ReadOptions, name: str
) -> tuple[list[str] | None, int, Iterator[tuple[int, Any]]]:
    """The header, if there is one, how many cells a row has, and the rows with their lines."""
    csv.field_size_limit(MAX_CELL)
    separator = options.separator or ("\t" if options.form == "tsv" else ",")
    rows = _rows(csv.reader(iter(file), delimiter=separator, strict=True), file, name, options)
    first = next(rows, None)
    if first is None:
        hint = "a table without rows has a line of names"
        raise BadTable("this file is empty", where=name, hint=hint)
    if isinstance(first[1], BadTable):
        raise first[1]
    header = _header(first[1], inputs, options, name)
    return header, len(first[1]), rows if header is not None else chain([first], rows)


def _rows(
    reader: Any, file: _Counted, name: str, options: ReadOptions
) -> Iterator[tuple[int, list[str] | BadTable]]:
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
            wrong = file.wrong_in(line, reader.line_num + 1) if file.wrong else None
            if len(row) != width:
                wrong = wrong or BadTable(
                    f"{len(row)} cells, the first line has {width}",
                    where=f"{name}:{line}",
                    hint="a cell with a separator in it needs quotation marks",
                )
                if not options.tolerant:
                    raise wrong
            yield line, wrong or row
        line = reader.line_num + 1


def _header(
    first: list[str], inputs: Mapping[str, Type], options: ReadOptions, name: str
) -> list[str] | None:
    if options.header is not None:
        return first if options.header else None
    kind = next(iter(inputs.values()), None)
    if isinstance(kind, Record) and (set(kind.names) & set(first) or not kind.positional):
        return first
    if set(first) & set(inputs):
        return first
    if options.keep:  # they have names
        return first
    return first if Schema(inputs, None, len(first), name).looks_like_header(first) else None


def _kept_columns(header: list[str] | None, options: ReadOptions, name: str) -> dict[str, int]:
    if options.keep and header is None:
        raise BadTable("columns to keep need a header", where=f"{name}:1")
    for column in options.keep:
        if column not in (header or ()):
            raise wrong_header(f"there is no column {column!r} to keep", header, name, None)
    return {column: place_of(column, header or (), name) for column in options.keep}


def _block(
    schema: Schema,
    pending: list[tuple[int, Any]],
    kept: dict[str, int],
    name: str,
    *,
    tolerant: bool,
) -> Block:
    lines = [line for line, _ in pending]
    rows = [row for _, row in pending]

    def read(places: Sequence[int]) -> Any:
        def where(row: int, index: int, column: str) -> str:
            return f"{name}:{lines[places[row]]}:{index + 1} (column {column!r})"

        return schema.data([rows[place] for place in places], where)

    data, refused = _readable(read, rows, tolerant=tolerant)
    cells = [None if isinstance(row, BadTable) else row for row in rows]
    columns = {column: [row and row[index] for row in cells] for column, index in kept.items()}
    return Block(data, len(rows), name, lines, columns, refused=refused)


# --- JSON lines ----------------------------------------------------------------------------------


def _json_lines(
    file: _Counted, inputs: Mapping[str, Type], options: ReadOptions, name: str
) -> Iterator[Block]:
    texts = ((number, line) for number, line in enumerate(file, 1) if line.strip())
    columns: list[str] = []
    kind = next(iter(inputs.values()))
    known = isinstance(kind, Record) and ({*kind.names} - {*kind.unread} | {*options.keep})

    def parsed(number: int, line: str) -> Any:
        try:
            if file.wrong and (wrong := file.wrong_in(number, number + 1)):
                raise wrong
            return _parsed(line, f"{name}:{number}", known)
        except BadTable as problem:
            if not options.tolerant:
                raise
            return problem

    while some := dict(islice(texts, options.rows)):
        lines, rows = [*some], [parsed(number, line) for number, line in some.items()]
        first = next((row for row in rows if not isinstance(row, BadTable)), None)
        if not columns and isinstance(first, dict):
            columns = [key for key in first if key not in options.keep] or list(first)
        named = [row if isinstance(row, dict) else {} for row in rows]
        kept = {key: [row.get(key) for row in named] for key in options.keep}

        read = partial(_json_data, rows, lines, inputs, name, columns)
        data, refused = _readable(read, rows, tolerant=options.tolerant)
        yield Block(data, len(rows), name, lines, kept, refused=refused)


def _parsed(line: str, where: str, names: Collection[str] | Literal[False]) -> Any:
    """The value of a line, in whose objects no name, or none of these, is there twice."""
    try:
        value = json.loads(line)
        if "\\ud" in line or "\\uD" in line:
            json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be written
    except json.JSONDecodeError as problem:
        raise BadTable(
            "this is not JSON", where=f"{where}:{problem.colno}", found=problem.msg
        ) from None
    except (RecursionError, ValueError) as problem:
        raise BadTable("this JSON cannot be read", where=where, found=str(problem)[:80]) from None

    def once(pairs: list[tuple[str, Any]]) -> None:
        for name, times in Counter(name for name, _ in pairs).items():
            if times > 1 and (not names or name in names):
                what, hint = f"several values have the name {name!r}", "each has one in a row"
                raise BadTable(what, where=where, hint=hint)

    if isinstance(value, dict) and line.count(":") > len(value):  # there may be more names
        json.loads(line, object_pairs_hook=once)
    return value


def _json_data(
    all_rows: list[Any],
    lines: list[int],
    inputs: Mapping[str, Type],
    name: str,
    columns: list[str],
    places: Sequence[int],
) -> Any:
    """The data of the rows of these places in a block."""
    rows = [all_rows[place] for place in places]
    if not rows:
        return no_rows(inputs)
    kind = next(iter(inputs.values()))
    if len(inputs) > 1:
        for row, line in zip(rows, (lines[place] for place in places), strict=True):
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
    """Value under an input's name in an object; else its values, in the first row's order."""
    if not isinstance(row, dict) or name in row or not row.keys() >= {*columns}:
        return row.get(name, row) if isinstance(row, dict) else row
    values = [row[column] for column in columns]
    return values if isinstance(kind, Vector) else values[0] if len(values) == 1 else row


# --- a sample ------------------------------------------------------------------------------------


def sample(path: str, options: ReadOptions) -> dict[str, Any]:
    """The first rows of files, whose model is not known yet: columns as their values show them."""
    if options.is_arrow:
        from runtime.cli import parquet

        return {name: _shown(values) for name, values in parquet.first(path, options).items()}
    for file, name, _ in _files(path, tolerant=False):
        if options.form == "jsonl":
            return _json_sample([*islice(file, options.rows)], name)
        header, _, rest = _opened_csv(file, {}, replace(options, header=True), name)
        rows = [row for _, row in islice(rest, options.rows)]
        columns = [CsvColumn(each, at, UNREAD) for at, each in enumerate(header or ())]
        return {each.name: each.values(rows, lambda *_: path) for each in columns}
    raise BadTable("there is no row to be a sample", where=path)


def _json_sample(lines: list[str], name: str) -> dict[str, Any]:
    try:
        rows = [json.loads(line) for line in lines if line.strip()]
        return {key: _shown([row.get(key) for row in rows]) for key in rows[0]}
    except (ValueError, AttributeError, IndexError, TypeError, RecursionError) as problem:
        raise BadTable(
            "a sample has a line of JSON for each row, with names and values",
            where=name,
            found=str(problem)[:120],
        ) from None


def _shown(values: list[Any]) -> Any:
    """A column of strings where one is no number, else of floats."""
    if any(isinstance(value, str) for value in values):
        return np.array([str(v) if isinstance(v, bool) else v for v in values], object)
    return np.array([np.nan if value is None else value for value in values], np.float64)
