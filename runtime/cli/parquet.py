"""Rows of Parquet and Arrow files as blocks, which need pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import chain
from typing import Any

from flour.core.errors import WidthMismatch
from flour.core.types import Type
from flour.data.arrow_reader import ArrowReader
from flour.data.frames import decoded
from runtime.bulk.files import FileSource, is_stream, parts_of
from runtime.bulk.where import RowCondition
from runtime.cli.blocks import Block, ReadOptions
from runtime.cli.errors import BadTable, NotInstalled
from runtime.cli.tables import KEEP


def blocks(
    path: str, inputs: Mapping[str, Type], options: ReadOptions, skip: int = 0
) -> Iterator[Block]:
    """The rows in blocks of record batches, with what the model reads and what is to be kept."""
    _need_pyarrow()
    if is_stream(path) and options.form == "parquet":
        raise BadTable("Parquet cannot be read from standard input or a pipe", where=path)
    reader, where = ArrowReader(inputs), RowCondition(options.where) if options.where else None
    more = {*options.keep, *(where.columns if where else ())}
    # Values that stand in paths are no features of a model without names.
    apart = {*options.keep, *chain.from_iterable(part.values for part in parts_of(path))}

    def choose(names: list[str]) -> list[str]:
        try:
            wanted = more.union(reader.columns(names, apart))
        except WidthMismatch as problem:
            raise BadTable(
                problem.what, where=path, found=problem.found, hint=f"{problem.hint}; {KEEP}"
            ) from problem
        return [name for name in names if name in wanted]

    # What is written or compared keeps its type.
    categories = reader.categories() - more
    opened = FileSource(path, options.form, choose, options.rows, where, categories)
    # A share of the bytes, by the share of the rows: batches do not say where they were.
    total = opened.rows()
    per_row = sum(part.path.stat().st_size for part in parts_of(path)) / total if total else 0.0
    types = opened.common_types(options.keep)
    for batch, file, lines, done in opened.read(skip):
        names = batch.schema.names
        missing = [name for name in options.keep if name not in names]
        if missing:
            raise BadTable(f"there is no column {missing[0]!r} to keep", where=file)
        # Batches have dictionaries of their own, and files are to have one at most.
        kept = {name: decoded(batch.column(name)) for name in options.keep}
        for name in types.keys() & kept.keys():
            kept[name] = decoded(kept[name].cast(types[name]))
        data = batch.select(reader.columns(names, apart))
        yield Block(data, len(batch), file, lines, kept, int(done * per_row))


def _need_pyarrow() -> None:
    if find_spec("pyarrow") is None:
        raise NotInstalled(
            "Parquet and Arrow files need pyarrow, which is not installed",
            hint="pip install 'pretzel-runtime[arrow]'; or use CSV or JSON lines",
        )


def first(path: str, options: ReadOptions) -> dict[str, list[Any]]:
    """The columns of the first rows, of which no model has said what it reads."""
    _need_pyarrow()
    source = FileSource(path, options.form, lambda names: names, options.rows)
    batch, *_ = next(source.read())
    return {name: decoded(batch.column(name)).to_pylist() for name in batch.schema.names}
