"""Rows of Parquet and Arrow files as blocks, which need pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from flour.core.types import Record, Scalar, Type, Vector
from flour.data.arrow_reader import Arrow, ArrowReader, decoded
from runtime.cli.blocks import Block, Options
from runtime.cli.errors import BadTable, NotInstalled

if TYPE_CHECKING:
    from runtime.bulk.files import Source


def check_library() -> None:
    """Raise NotInstalled where there is no pyarrow."""
    try:
        import pyarrow as pa  # noqa: F401 (whether it is there)
    except ImportError:
        raise NotInstalled(
            "Parquet and Arrow files need pyarrow, which is not installed",
            hint="pip install 'pretzel-runtime[arrow]'; or use CSV or JSON lines",
        ) from None


def source(path: str, inputs: Mapping[str, Type], options: Options) -> Source:
    """The rows of files, with the columns that the model reads and those to keep."""
    check_library()
    from runtime.bulk.files import Source, is_stream
    from runtime.bulk.where import Where

    if is_stream(path) and options.form == "parquet":
        raise BadTable("Parquet cannot be read from standard input or a pipe", where=path)
    reader, where = ArrowReader(inputs), Where(options.where) if options.where else None
    more = {*options.keep, *(where.columns if where else ())}

    def choose(names: list[str]) -> list[str]:
        wanted = more.union(reader.columns(names))
        return [name for name in names if name in wanted]

    # What is written or compared keeps its type.
    categories = reader.categories() - more
    return Source(path, options.form, choose, options.rows, where, categories)


def blocks(
    path: str, inputs: Mapping[str, Type], options: Options, skip: int = 0
) -> Iterator[Block]:
    """The rows of files in blocks, whose data are record batches."""
    from runtime.cli.reading import size

    opened, reader = source(path, inputs, options), ArrowReader(inputs)
    # A share of the bytes, by the share of the rows: batches do not say where they were.
    total = opened.rows()
    per_row = size(path) / total if total else 0.0
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
        data = batch.select(reader.columns(names))
        yield Block(data, len(batch), file, lines, kept, int(done * per_row))


def plain(batch: Arrow, inputs: Mapping[str, Type], path: str) -> Any:
    """The columns of a batch as a model's own library takes them."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if len(inputs) > 1 or isinstance(next(iter(inputs.values())), Record):
        return columns
    kind = next(iter(inputs.values()))
    if isinstance(kind, Vector):
        if len(columns) < kind.width:
            found = f"{len(columns)} columns"
            raise BadTable(f"the model reads {kind.width} columns", where=path, found=found)
        return np.stack([_floats(each, kind.dtype) for each in columns.values()], axis=1)
    if len(columns) != 1:
        raise BadTable("the model reads one column", where=path, found=", ".join(columns)[:200])
    (values,) = columns.values()
    return values if isinstance(kind, Scalar) else values.to_pylist()


def _floats(column: Arrow, dtype: str) -> Any:
    values = column.to_numpy(zero_copy_only=False)
    return values if dtype == "string" else np.asarray(values, np.dtype(dtype))
