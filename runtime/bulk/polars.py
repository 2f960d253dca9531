"""Polars: a plan as an expression, in lazy frames too.

    frame.with_columns(pretzel.polars.predict(plan, "age", "city").struct.field("label"))
    frame.with_columns(pl.col("review").pretzel.predict(plan, outputs="label"))
    frame.pretzel.predict(plan)                         # a frame of the outputs

The expression answers a struct of the outputs, or with `outputs="label"` that output itself. Its
columns are found by name. It is elementwise, so the streaming engine hands it parts of the rows,
and native code releases the GIL. Polars' strings are read as views, without a copy of the text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from flour.data.arrow_reader import ArrowReader
from oven import Plan
from runtime.bulk.plans import (
    Outputs,
    Source,
    chosen,
    columns_of,
    empty_answers,
    in_common,
    one_column,
    open_plan,
    predict_arrow,
)
from runtime.bulk.refused import NULL, check_policy

#: More rows than these are answered by several threads, in parts of so many.
_PART = 1 << 14


def predict(
    plan: Source, *columns: str | pl.Expr, outputs: Outputs = None, on_error: str | None = None
) -> pl.Expr:
    """The answers for these columns; for those that the plan reads, where none are given.

    Rows that the plan refuses are an error; with `on_error="null"`, their answers are null.
    """
    opened = open_plan(plan)
    check_policy(opened, on_error, (NULL,))
    wanted = chosen(opened, outputs)
    given = columns or tuple(columns_of(opened))
    frame: Any = pl.from_arrow(empty_answers(opened, wanted))
    returned: Any = pl.Struct(dict(frame.schema))
    answer: Any = _StructFunction(opened, wanted, returned, on_error)
    # Declared elementwise: a plan whose rows depend on each other has to see all of them.
    made = pl.struct(*given).map_batches(answer, returned, is_elementwise=not opened.mixes_rows)
    return made.struct.field(wanted[0]) if isinstance(outputs, str) else made


class _StructFunction(NamedTuple):
    """The function that Polars calls with a column of structs; it can be pickled."""

    plan: Plan
    outputs: tuple[str, ...]
    kind: Any
    on_error: str | None

    def __call__(self, given: pl.Series) -> pl.Series:
        """The answers as one column of structs."""
        rows, plan = given.struct.unnest(), self.plan
        names = ArrowReader(plan.inputs).check(rows.columns)
        cut = not plan.mixes_rows and len(rows) > _PART
        size = _PART if cut else max(len(rows), 1)
        parts = enumerate(rows.select(names).iter_slices(size))
        # The streaming engine hands over some rows, and does not say which.
        within = f"a chunk of {len(rows):,} rows"

        def answer(item: tuple[int, pl.DataFrame]) -> Any:
            number, part = item
            # Making one chunk of what is one copies it. Of views, only those are rows of this part.
            whole = part if max(part.n_chunks("all")) == 1 else part.rechunk()
            (batch,) = whole.to_arrow(compat_level=pl.CompatLevel.newest()).to_batches()
            return predict_arrow(plan, batch, self.outputs, self.on_error, number * size, within)[0]

        # Polars calls from all of its threads at once: each with threads of its own would be too
        # many.
        found = in_common(answer, parts) if cut else map(answer, parts)
        made: list[Any] = [pl.from_arrow(batch) for batch in found] if len(rows) else []
        frame: Any = pl.concat(made) if made else pl.DataFrame(schema=self.kind.to_schema())
        series: pl.Series = frame.to_struct("answers")
        return series if series.dtype == self.kind else series.cast(self.kind)


class _Frame:
    """`frame.pretzel`, of frames and lazy frames."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def predict(
        self,
        plan: Source,
        *columns: str | pl.Expr,
        outputs: Outputs = None,
        on_error: str | None = None,
    ) -> Any:
        """A frame of the answers, for these columns, or for those of the frame that are read."""
        opened = open_plan(plan)
        if not columns:
            names = self._frame.collect_schema().names()
            columns = tuple(ArrowReader(opened.inputs).check(names))
        made = predict(opened, *columns, outputs=outputs, on_error=on_error)
        if isinstance(outputs, str):
            return self._frame.select(made)
        return self._frame.select(made.alias("answers")).unnest("answers")


class _Expression:
    """`pl.col("review").pretzel`, for plans that read one column."""

    def __init__(self, expression: pl.Expr) -> None:
        self._expression = expression

    def predict(
        self, plan: Source, outputs: Outputs = None, on_error: str | None = None
    ) -> pl.Expr:
        """The answers for this column, whatever its name is."""
        opened = open_plan(plan)
        column = self._expression.alias(one_column(opened))
        return predict(opened, column, outputs=outputs, on_error=on_error)


pl.api.register_dataframe_namespace("pretzel")(_Frame)
pl.api.register_lazyframe_namespace("pretzel")(_Frame)
pl.api.register_expr_namespace("pretzel")(_Expression)
