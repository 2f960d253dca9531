"""Ray Data: a plan over a dataset, or as a function for `map_batches`.

    answers = pretzel.ray.predict(dataset, plan)            # the dataset's columns, and the outputs
    scores = pretzel.ray.predict(dataset, plan, ["scores"], keep=["id"])    # the fastest
    dataset.map_batches(pretzel.ray.batch(plan), batch_format="pyarrow")    # options of your own

The plan is put into Ray's object store once; each machine takes it from there once (`shipping`), so
tasks are small and need no actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.data.dataset import MaterializedDataset

from flour.data.arrow_reader import Arrow, library
from oven import Plan
from runtime.bulk.plans import (
    Source,
    check_kept,
    chosen,
    empty_answers,
    kept_and_needed,
    open_plan,
    predict_arrow,
)
from runtime.bulk.refused import check_policy
from runtime.bulk.shipping import arrived, packed

#: Blocks of Ray are answered in parts of so many rows, which stay in the processor's cache.
_ROWS = 1 << 14
#: A plan arrives at a task in this time, or the task fails.
_SECONDS = 300.0

#: Values that a task reads at least. Ray's own work is some 20 ms a task, whatever its rows; more
#: values would save little of it, and leave processors idle longer beside the last tasks.
_VALUES = 3 << 20


def predict(
    dataset: ray.data.Dataset,
    plan: Source,
    outputs: Sequence[str] | None = None,
    keep: Sequence[str] | None = None,
    batch_size: int | None = None,
    on_error: str | None = None,
    **options: object,
) -> ray.data.Dataset:
    """The dataset with the outputs behind its columns, or behind those to keep.

    Rows that the plan refuses are an error; `on_error="null"` answers null for them, and "skip"
    leaves them out.

    Only the columns that the plan reads, and those to keep, are read where Ray knows the columns
    without running anything, as it does for Parquet. Neighbouring blocks are answered by one task
    until they have `batch_size` rows. Other options are those of `map_batches`.
    """
    opened = open_plan(plan)
    function: Any = batch(opened, outputs, keep, on_error)
    if isinstance(dataset, MaterializedDataset) and not dataset.count():
        schema = dataset.schema()  # Ray calls nothing without rows
        types = zip(schema.names, schema.types, strict=True) if schema else ()
        return ray.data.from_arrow(function(library().schema(list(types)).empty_table()))
    names = dataset.columns(fetch_if_missing=False)
    if names is not None:  # what is missing is told here, and not by a task
        _, needed = kept_and_needed(opened, chosen(opened, outputs), names, keep)
        if len(needed) < len(names):
            dataset = dataset.select_columns(needed)
    rows = batch_size or task_rows(opened)
    return dataset.map_batches(function, batch_format="pyarrow", batch_size=rows, **options)


def batch(
    plan: Source,
    outputs: Sequence[str] | None = None,
    keep: Sequence[str] | None = (),
    on_error: str | None = None,
) -> BlockScorer:
    """A function from a table of rows to one of answers; Ray has to be running.

    The answers stand behind the columns to keep; with None, behind all columns of the table.
    """
    opened = open_plan(plan)
    check_policy(opened, on_error)
    name, raw = packed(opened)
    kept = None if keep is None else tuple(keep)
    return BlockScorer(name, ray.put(raw), chosen(opened, outputs), kept, on_error)


class BlockScorer:
    """The callable for `map_batches`."""

    def __init__(
        self,
        name: str,
        reference: object,
        outputs: tuple[str, ...],
        keep: tuple[str, ...] | None,
        on_error: str | None = None,
    ) -> None:
        self._name, self._reference = name, reference
        self._outputs, self._keep, self._on_error = outputs, keep, on_error

    def __call__(self, rows: Arrow) -> Arrow:
        """The answers for a table."""
        plan = arrived(self._name, lambda: ray.get(self._reference, timeout=_SECONDS))
        kept = rows.column_names if self._keep is None else self._keep
        check_kept(kept, self._outputs)
        most = None if plan.mixes_rows else _ROWS
        made, good, start = [], [], 0
        for part in rows.to_batches(max_chunksize=most):
            within = f"a task's table of {len(rows):,} rows"
            answers, some = predict_arrow(plan, part, self._outputs, self._on_error, start, within)
            made.append(answers)
            good += [start + row for row in (range(len(part)) if some is None else some)]
            start += len(part)
        answers = library().Table.from_batches(made or [empty_answers(plan, self._outputs)])
        if len(good) < len(rows):
            rows = rows.take(good)
        for place, name in enumerate(kept):
            answers = answers.add_column(place, name, rows[name])
        return answers


def task_rows(plan: Plan) -> int:
    """Rows of a task, fewer where a row has many values."""
    kinds: list[Any] = list(plan.inputs.values())
    values = sum(getattr(each, "width", 0) or len(getattr(each, "fields", "1")) for each in kinds)
    return max(_ROWS, _VALUES // max(16, values))
