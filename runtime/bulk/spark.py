"""Spark: a plan over a frame (`mapInArrow`), or as a pandas UDF.

    answers = pretzel.spark.predict(frame, plan)            # the frame's columns, and the outputs
    score = pretzel.spark.udf(session, plan, "scores")
    frame.withColumn("score", score("age", "city"))
    scores = pretzel.spark.predict(frame, plan, ["scores"], keep=["id"])    # the fastest

The plan travels as a file of the session (`addFile`), which each executor fetches once; a task has
the file's name only. Spark has no arrays of fixed size, so vectors are lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import SparkFiles, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import pandas_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from flour.data.arrow_reader import Arrow, library
from oven import Plan
from runtime.bulk.plans import (
    Source,
    chosen,
    empty_answers,
    kept_and_needed,
    open_plan,
    predict_arrow,
    typed_columns,
)
from runtime.bulk.refused import NULL, check_policy
from runtime.bulk.shipping import arrived, kept, packed


def predict(
    frame: DataFrame,
    plan: Source,
    outputs: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    on_error: str | None = None,
) -> DataFrame:
    """The frame with the outputs behind its columns, or behind those to keep.

    Rows that the plan refuses are an error; `on_error="null"` answers null for them, and "skip"
    leaves them out.

    Converting rows to Arrow and back takes Spark longer than the model does, so only the columns
    that the plan reads go there, and only those to keep come back.
    """
    opened = open_plan(plan)
    check_policy(opened, on_error)
    wanted = chosen(opened, outputs)
    kept, needed = kept_and_needed(opened, wanted, frame.columns, keep)
    name = _send(frame.sparkSession, opened)
    fields = [*(frame.schema[each] for each in kept), *_fields(opened, wanted)]
    answer = partial(_batches, name, wanted, kept, on_error)
    return frame.select(*needed).mapInArrow(answer, StructType(fields))


def udf(
    session: SparkSession,
    plan: Source,
    outputs: str | Sequence[str] | None = None,
    on_error: str | None = None,
) -> Any:
    """A function of columns: those that the plan reads, in the plan's order.

    It answers a struct of the outputs, or for the name of one output that output itself. Rows that
    the plan refuses are an error; with `on_error="null"` they have null.
    """
    opened = open_plan(plan)
    check_policy(opened, on_error, (NULL,))
    wanted = chosen(opened, outputs)
    fields = _fields(opened, wanted)
    single = isinstance(outputs, str) and len(fields) == 1
    columns = tuple(name for name, _ in typed_columns(opened))
    answer = partial(_series, _send(session, opened), wanted, columns, single, on_error)

    def call(*given: pd.Series) -> pd.DataFrame:
        return answer(*given)

    call.__annotations__ = {"given": pd.Series, "return": pd.Series}
    return pandas_udf(call, fields[0].dataType if single else StructType(fields))


def _send(session: SparkSession, plan: Plan) -> str:
    name, raw = packed(plan)
    context = session.sparkContext
    if not any(Path(each).name == name for each in context.listFiles):
        context.addFile(str(kept(name, lambda: raw)))
    return name


def _fields(plan: Plan, outputs: tuple[str, ...]) -> list[StructField]:
    schema = _plain(empty_answers(plan, outputs)).schema
    return [StructField(field.name, from_arrow_type(field.type)) for field in schema]


def _plain(batch: Arrow) -> Arrow:
    """The batch with lists in place of arrays of fixed size."""
    pa, made = library(), []
    for column in batch.columns:
        fixed = hasattr(column.type, "list_size")
        made.append(column.cast(pa.list_(column.type.value_type)) if fixed else column)
    return pa.record_batch(made, names=batch.schema.names)


# --- on executors ---------------------------------------------------------------------------------


def _plan(name: str) -> Plan:
    return arrived(name, lambda: Path(SparkFiles.get(name)).read_bytes())


def _partition() -> str:
    """The part of a frame whose rows are counted in errors."""
    context = TaskContext.get()
    return "a partition" if context is None else f"partition {context.partitionId()}"


def _batches(
    name: str,
    outputs: tuple[str, ...],
    keep: list[str],
    on_error: str | None,
    batches: Iterator[Arrow],
) -> Iterator[Arrow]:
    """The answers for each batch, behind the columns to keep."""
    plan, start, within = _plan(name), 0, _partition()
    for batch in batches:
        answers, good = predict_arrow(plan, batch, outputs, on_error, start, within)
        start += len(batch)
        made = _plain(answers)
        if good is not None:
            batch = batch.take(good)  # noqa: PLW2901 (the rows that have answers)
        kept = [batch.column(each) for each in keep]
        names = [*keep, *made.schema.names]
        yield library().record_batch([*kept, *made.columns], names=names)


def _series(
    name: str,
    outputs: tuple[str, ...],
    columns: tuple[str, ...],
    single: bool,  # noqa: FBT001 (it is bound by name above)
    on_error: str | None,
    *given: pd.Series,
) -> Any:
    """The answers for columns of one batch."""
    pa = library()
    arrays = [pa.Array.from_pandas(each) for each in given]
    batch = pa.record_batch(arrays, names=list(columns))
    within = f"{_partition()}, a batch of {len(batch):,} rows"
    made, _ = predict_arrow(_plan(name), batch, outputs, on_error, 0, within)
    frame = pd.DataFrame({name: column.to_pandas() for name, column in _named(made)})
    return frame.iloc[:, 0] if single else frame


def _named(batch: Arrow) -> Iterator[tuple[str, Arrow]]:
    return zip(batch.schema.names, _plain(batch).columns, strict=True)
