"""Plans on Arrow data: batch in, batch out.

    plan.run_arrow(batch)       a record batch for a record batch, or for any one array of structs
    plan.run_arrow(table)       a table for a table
    plan.run_arrow(stream)      a stream for anything else with a stream, computed as it is read

There is one row of answers for each row, in their order. Outputs of a vector are lists of fixed
size over the memory that native code wrote to; missing strings are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import InputError, WrongDtype
from flour.core.types import Type, Whole
from flour.data.arrow_reader import Arrow, ArrowReader, exact_parts, library, no_rows
from flour.data.batch import BatchReader

#: A sparse output is written out in full, up to so many values a row.
_WIDEST = 1 << 16


class ArrowPlan(Protocol):
    """A plan as this module uses it."""

    reader: BatchReader

    @property
    def inputs(self) -> Mapping[str, Type]:
        """The inputs by name."""

    @property
    def outputs(self) -> Mapping[str, Type]:
        """The outputs by name."""

    @property
    def mixes_rows(self) -> bool:
        """True if the answers for a row depend on other rows."""

    def run(self, data: object) -> dict[str, Any]:
        """The answers for a block of rows."""


def run_arrow(plan: ArrowPlan, data: object) -> Arrow:
    """Every output, in the form that the data has."""
    pa = library()
    if isinstance(data, pa.Table):
        schema, batches = _answers(plan, _whole(plan, data).to_batches(), data.schema)
        return pa.Table.from_batches(batches, schema)
    if isinstance(data, pa.RecordBatch):
        return _batch(plan, data)
    if hasattr(data, "__arrow_c_stream__"):
        stream = pa.RecordBatchReader.from_stream(data)
        if plan.mixes_rows:
            stream = _whole(plan, stream.read_all()).to_reader()
        return pa.RecordBatchReader.from_batches(*_answers(plan, stream, stream.schema))
    if not hasattr(data, "__arrow_c_array__"):
        raise WrongDtype(
            "expected Arrow data, which has __arrow_c_array__ or __arrow_c_stream__",
            where="$",
            found=type(data).__name__,
            hint="run() takes rows in any other form",
        )
    return _batch(plan, pa.record_batch(data))


def _whole(plan: ArrowPlan, table: Arrow) -> Arrow:
    """A table in one batch, where its rows depend on each other."""
    return table.combine_chunks() if plan.mixes_rows else table


def _answers(
    plan: ArrowPlan, batches: Iterable[Arrow], schema: Arrow
) -> tuple[Arrow, Iterator[Arrow]]:
    """The columns of the answers, and the answers: those of the first batch say what all have."""
    rest = (batch for batch in batches if batch.num_rows)
    found = next(rest, None)
    first = _batch(plan, no_rows(schema) if found is None else found)
    return first.schema, _each(plan, first, rest)


def _each(plan: ArrowPlan, first: Arrow, rest: Iterator[Arrow]) -> Iterator[Arrow]:
    yield first
    for number, batch in enumerate(rest, 1):
        try:
            made = _batch(plan, batch)
        except InputError as problem:
            problem.where = f"batch {number}, {problem.where}"
            raise
        yield as_schema(first.schema, made)


def _batch(plan: ArrowPlan, batch: Arrow) -> Arrow:
    reader = ArrowReader(plan.inputs)
    few = None if plan.mixes_rows else reader.distinct(batch)
    if few is not None:
        try:
            return _run(plan, reader, few.batch).take(library().array(few.places))
        except InputError:
            pass  # the row numbers of an error are those of all rows
    parts = [] if plan.mixes_rows else exact_parts(batch)
    return _in_parts(plan, reader, batch, parts) if parts else _run(plan, reader, batch)


def _in_parts(
    plan: ArrowPlan, reader: ArrowReader, batch: Arrow, parts: list[NDArray[np.int64]]
) -> Arrow:
    """The answers for parts of a batch, in the order of the batch's rows."""
    pa = library()
    try:
        made = [_run(plan, reader, batch.take(pa.array(rows))) for rows in parts]
    except InputError:
        _run(plan, reader, batch)  # its error has the row numbers of the whole batch
        raise
    try:
        tables = [pa.Table.from_batches([as_schema(made[0].schema, each)]) for each in made]
    except pa.ArrowInvalid:  # some answers have fractions
        tables = [pa.Table.from_batches([each]) for each in made]
    whole = pa.concat_tables(tables, promote_options="permissive")
    order = np.argsort(np.concatenate(parts))
    (joined,) = whole.combine_chunks().take(pa.array(order)).to_batches()
    return joined


def as_schema(schema: Arrow, batch: Arrow) -> Arrow:
    """A batch of answers with the types of others; NaN among whole numbers is a missing one."""
    if batch.schema == schema:
        return batch
    pa, columns = library(), []
    for field, column in zip(schema, batch.columns, strict=True):
        given = column
        if pa.types.is_integer(field.type) and pa.types.is_floating(column.type):
            given = pa.array(column.to_numpy(zero_copy_only=False), from_pandas=True)
        columns.append(given.cast(field.type))
    return pa.record_batch(columns, schema=schema)


def _run(plan: ArrowPlan, reader: ArrowReader, batch: Arrow) -> Arrow:
    return answers_batch(plan.run(plan.reader.nulls.settled(reader.read(batch))), plan.outputs)


def answers_batch(answers: Mapping[str, Any], kinds: Mapping[str, Type]) -> Arrow:
    """The answers of `Plan.run` for a block of rows, with their types, as a batch."""
    arrays = dict(_arrays(answers, kinds))
    return library().record_batch(list(arrays.values()), names=list(arrays))


def _arrays(
    answers: Mapping[str, Any], kinds: Mapping[str, Type], before: str = ""
) -> Iterator[tuple[str, Arrow]]:
    """Answers as columns; those of a record by its name and theirs."""
    for name, value in answers.items():
        kind = kinds.get(name)
        if isinstance(value, Mapping):
            yield from _arrays(value, {}, f"{before}{name}.")
        elif isinstance(kind, Whole):
            raise WrongDtype(
                "this output belongs to all rows together and is no column",
                where=name,
                found=str(kind),
                hint="call run() instead",
            )
        else:
            yield before + name, _array(value, name)


def _array(value: Any, name: str) -> Arrow:
    pa = library()
    if hasattr(value, "toarray"):
        if value.shape[1] > _WIDEST:
            raise WrongDtype(
                "this output is sparse, and too wide to be written out in full",
                where=name,
                found=f"{value.shape[1]} values a row",
                hint="call run(), whose answer is sparse; or give out a later step of the program",
            )
        value = value.toarray()
    if isinstance(value, np.ndarray) and value.ndim == 2:
        flat = np.ascontiguousarray(value).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(_flat(flat), value.shape[1])
    return _flat(value)


def _flat(value: object) -> Arrow:
    pa = library()
    if isinstance(value, np.ndarray) and value.dtype == object:
        return pa.array(value, pa.string(), from_pandas=True)
    return pa.array(value)
