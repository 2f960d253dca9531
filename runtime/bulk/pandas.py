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

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from flour.core.types import Record, Vector
from flour.data.arrow_reader import ArrowReader
from oven import Plan
from runtime.bulk.plans import Source, chosen, flat_columns, in_parallel, open_plan

#: Rows of a block.
_BLOCK = 1 << 14


def predict(
    plan: Source,
    rows: pd.DataFrame | pd.Series,
    outputs: str | Sequence[str] | None = None,
    threads: int | None = None,
) -> Any:
    """A frame of the answers; a Series for the name of one output that has one value a row."""
    opened = open_plan(plan)
    wanted = chosen(opened, outputs)
    data = rows
    if isinstance(rows, pd.DataFrame):
        labels = {str(label): label for label in rows.columns}
        names = ArrowReader(opened.inputs).columns(list(labels))
        if len(names) < len(labels):
            data = rows[[labels[name] for name in names]]
    answers = _answers(opened, data, threads)
    columns = dict(flat_columns({name: answers[name] for name in wanted}))
    made = pd.DataFrame(columns, index=rows.index)
    return made[outputs] if list(made) == [outputs] else made


def _answers(plan: Plan, rows: Any, threads: int | None) -> dict[str, Any]:
    """Every output for all rows, block by block."""
    if plan.mixes_rows or len(rows) <= _BLOCK:
        return plan.run(_data(plan, rows))
    blocks = (rows.iloc[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
    found = list(in_parallel(lambda block: plan.run(_data(plan, block)), blocks, threads))
    return {name: _joined([answers[name] for answers in found]) for name in plan.outputs}


def _data(plan: Plan, rows: Any) -> Any:
    """A block as the plan reads it: documents are a list, several inputs a dict."""
    if isinstance(rows, pd.Series):
        return rows.tolist() if rows.dtype.kind not in "biuf" else rows.to_numpy()
    if len(plan.inputs) == 1 and isinstance(next(iter(plan.inputs.values())), Record | Vector):
        return rows
    return {name: rows[name].to_numpy() for name in plan.inputs}


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}
    if isinstance(parts[0], list):
        return [row for part in parts for row in part]
    dense = [part.toarray() if hasattr(part, "toarray") else part for part in parts]
    return np.concatenate(dense)


class _Accessor:
    """`frame.pretzel` and `series.pretzel`."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def predict(
        self,
        plan: Source,
        outputs: str | Sequence[str] | None = None,
        threads: int | None = None,
    ) -> Any:
        """The answers for these rows, with their index."""
        return predict(plan, self._rows, outputs, threads)


pd.api.extensions.register_dataframe_accessor("pretzel")(_Accessor)
pd.api.extensions.register_series_accessor("pretzel")(_Accessor)
