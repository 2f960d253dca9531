"""pandas: `frame.pretzel.predict(plan)`, by blocks of rows on all cores.

    import runtime.bulk as pretzel
    pretzel.pandas                          # importing it adds the accessor
    frame.pretzel.predict(plan)             # a frame of the outputs, with the same index
    frame["review"].pretzel.predict(plan, outputs="label")

The columns that the plan reads are taken by name; others may be there. A frame whose numbers lie in
one block by rows (made from an array of C order) is read where it is, and so are the columns of one
block by columns; columns that were added one by one are copied into blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from flour.core.errors import InputError
from flour.core.types import Record, Vector
from flour.data.arrow_reader import ArrowReader
from oven import Plan
from runtime.bulk.plans import Source, chosen, flat_columns, in_parallel, one_column, open_plan
from runtime.bulk.refused import NULL, ROW_ERRORS, check_policy, joined, moved, others, separated

Frame = Any

#: Rows of a block.
_BLOCK = 1 << 14


def predict(
    plan: Source,
    rows: pd.DataFrame | pd.Series,
    outputs: str | Sequence[str] | None = None,
    threads: int | None = None,
    on_error: str | None = None,
) -> Any:
    """A frame of the answers; a Series for the name of one output that has one value a row.

    Rows that the plan refuses are an error; `on_error="null"` answers missing values for them, and
    "skip" leaves them out. The answers' `attrs["refused"]` then has the reason by row.
    """
    opened = open_plan(plan)
    check_policy(opened, on_error)
    wanted = chosen(opened, outputs)
    answers, refused = _answers(opened, _read(opened, rows), threads, on_error)
    columns = dict(flat_columns({name: answers[name] for name in wanted}))
    good = others(len(rows), refused) if refused else None
    made = pd.DataFrame(columns, index=rows.index if good is None else good)
    if good is not None:
        made = made.reindex(range(len(rows))) if on_error == NULL else made
        made.index = rows.index if on_error == NULL else rows.index[good]
    found = made[outputs] if list(made) == [outputs] else made
    if on_error is not None:
        found.attrs["refused"] = {row: str(problem) for row, problem in sorted(refused.items())}
    return found


def _read(plan: Plan, rows: Frame) -> Any:
    """The columns that the plan reads, by their names."""
    if isinstance(rows, pd.Series):
        return rows.to_frame(one_column(plan))
    labels = {str(label): label for label in rows.columns}
    names = ArrowReader(plan.inputs).check(list(labels))
    return rows if len(names) == len(labels) else rows[[labels[name] for name in names]]


def _answers(
    plan: Plan, rows: Frame, threads: int | None, on_error: str | None
) -> tuple[dict[str, Any], dict[int, Any]]:
    """Every output for all rows, block by block, and the rows that are refused."""

    def answer(start: int) -> tuple[Any, dict[int, Any]]:
        block = rows.iloc[start : start + size]

        def run(begin: int, end: int) -> Any:
            try:
                return plan.run(_data(plan, block.iloc[begin:end]))
            except InputError as problem:
                raise moved(problem, start + begin) from None

        try:
            return run(0, len(block)), {}
        except ROW_ERRORS:
            if on_error is None:
                raise
        parts, refused = separated(run, len(block))
        return joined(parts), {start + row: problem for row, problem in refused.items()}

    size = max(len(rows), 1) if plan.mixes_rows else _BLOCK
    starts = range(0, max(len(rows), 1), size)
    if len(starts) == 1:
        return answer(0)
    found = list(in_parallel(answer, starts, threads))
    refused = {row: problem for _, some in found for row, problem in some.items()}
    return joined([answers for answers, _ in found]), refused


def _data(plan: Plan, rows: Frame) -> Any:
    """A block as the plan reads it: several inputs are a dict, documents a list."""
    (name, kind), *more = plan.inputs.items()
    if not more and isinstance(kind, Record | Vector):
        return rows
    if not more:
        rows = rows.set_axis([name], axis=1)
    columns = {name: rows[name] for name in plan.inputs}
    return {
        name: column.to_numpy() if column.dtype.kind in "biuf" else column.tolist()
        for name, column in columns.items()
    }


class _Accessor:
    """`frame.pretzel` and `series.pretzel`."""

    def __init__(self, rows: Frame) -> None:
        self._rows = rows

    def predict(
        self,
        plan: Source,
        outputs: str | Sequence[str] | None = None,
        threads: int | None = None,
        on_error: str | None = None,
    ) -> Any:
        """The answers for these rows, with their index."""
        return predict(plan, self._rows, outputs, threads, on_error)


pd.api.extensions.register_dataframe_accessor("pretzel")(_Accessor)
pd.api.extensions.register_series_accessor("pretzel")(_Accessor)
