"""Ways of saying common compositions in one word: nothing here that operators could not say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flour.core.check import holds_text
from flour.core.errors import ParameterError, TypeMismatch
from flour.core.types import Text, Type, Vector
from flour.language.fluent import Fluent

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.11 has it


class Shorthands(Fluent):
    """Compositions of operators as methods of a flow."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def type(self) -> Type:
            """The type of the flow's one output."""

    def scale(self, mean: ArrayLike, deviation: ArrayLike) -> Self:
        """(x - mean) / deviation, column by column."""
        return self.as_float().subtract(mean).divide(deviation)

    def mean(self) -> Self:
        """The mean of all columns."""
        count = self._count()
        return self.as_float().sum().divide(count)

    def var(self, ddof: int = 0) -> Self:
        """The variance of all columns: the mean square of what they differ from their mean by."""
        count, x = self._count(ddof), self.as_float()
        return x.minus(x.mean()).square().sum().divide(count - ddof)

    def std(self, ddof: int = 0) -> Self:
        """The standard deviation of all columns."""
        return self.var(ddof).sqrt()

    def _count(self, ddof: int = 0) -> int:
        """The number of columns that a mean is over."""
        width = getattr(self.type, "width", 0)
        if width <= ddof:
            raise TypeMismatch.here(
                f"there is no mean of {self.type}",
                found=f"{width} columns, ddof {ddof}" if ddof else f"{width} columns",
                hint="a mean is over the columns of a vector: flour.concat(a, b).mean()",
            )
        return int(width)

    def bins(self, edges: Any, starts: ArrayLike | None = None) -> Self:
        """The number of edges that x has reached (int64): edge <= x; NaN reaches all.

        `edges` is a list of ascending numbers for one value, a list of those for a vector: one for
        each column. With `starts`, edges[starts[j]:starts[j + 1]] are those of column j.
        """
        if starts is not None:
            return super().bins(edges, starts)
        runs = _runs(self.type, edges)
        if any(np.ndim(edge) for run in runs for edge in run):
            raise _unlisted(edges)
        flat, cuts = np.concatenate([np.asarray(run, float) for run in runs]), _starts(runs)
        if isinstance(self.type, Vector):
            return super().bins(flat, cuts)
        return self.as_vector().bins(flat, cuts).element(0)

    def trees(self, trees: Sequence[Any], base: ArrayLike = 0.0, *, mean: bool = False) -> Self:
        """The sum (or the mean) of the leaves that a row reaches in decision trees, plus `base`.

        A tree is a nested dict: {"column": 2, "at_most": 0.5, "left": 1.0, "right": {...}}; see
        `flour.language.tree_nodes`.
        """
        from flour.language.tree_nodes import tree_table

        table = tree_table(trees)
        offsets = np.zeros(table["value"].shape[1]) + np.asarray(base, float)
        target = np.zeros(len(trees), np.int32)
        count = len(trees) if mean else 0
        return self._apply("Trees", (), **table, target=target, base=offsets, divisor=count)

    def ordinal(self, categories: Sequence[Any], *, unknown: int = -1) -> Self:
        """The place of each value among the categories; `unknown` for one that is not there.

        Of a vector, `categories` is a list of lists: one for each column.
        """
        runs = _runs(self.type, categories)
        starts = _starts(runs)
        none = np.full(len(runs), unknown)
        if getattr(self.type, "dtype", "") == "string":
            codes = np.concatenate([np.arange(len(run)) for run in runs])
            texts = [str(value) for run in runs for value in run]
            return self.categorise_text(texts, codes, starts, none, none, none)
        order = [np.argsort(run, kind="stable") for run in runs]
        values = np.concatenate([np.asarray(r)[o] for r, o in zip(runs, order, strict=True)])
        return self.categorise(values, np.concatenate(order), starts, none, none)

    def isin(self, values: Sequence[Any]) -> Self:
        """True if x is one of these values, column by column; NaN and missing strings never are."""
        fine = is_listed(values)
        if not fine or any(isinstance(each, str) != holds_text(self.type) for each in values):
            raise ParameterError.here(
                f"values of {self.type} are compared with a list of such values",
                found=repr(values)[:80],
                hint="city.isin(['Oslo', 'Rome']), age.isin([18, 65])",
            )
        distinct = list(dict.fromkeys(values))
        if isinstance(self.type, Text):
            longest_first = sorted(distinct, key=len, reverse=True)
            return self.matches_whole("|".join(map(re.escape, longest_first)))
        width = getattr(self.type, "width", None)
        return self.ordinal(distinct if width is None else [distinct] * width).greater_equal(0)

    def one_hot(self, categories: Sequence[Any]) -> Self:
        """A column for each category (of each column), with a one where the value is that one."""
        codes = self.ordinal(categories)
        runs = _runs(self.type, categories)
        codes = codes if isinstance(codes.type, Vector) else codes.as_vector()
        return codes.one_hot_codes(_starts(runs))


def _starts(runs: Sequence[Sequence[Any]]) -> NDArray[np.int64]:
    """The start of each run, and the end of the last."""
    return np.cumsum([0, *map(len, runs)], dtype=np.int64)


def _runs(kind: object, categories: Sequence[Any]) -> list[Sequence[Any]]:
    """The categories of each column; one value per row has one list of them."""
    runs = list(categories) if isinstance(kind, Vector) and is_listed(categories) else [categories]
    for run in runs:
        if not is_listed(run):
            raise _unlisted(run)
    return runs


def _unlisted(found: object) -> ParameterError:
    return ParameterError.here(
        "a column's categories, or its edges, are a list of values",
        found=repr(found)[:60],
        hint="['red', 'green'] for one value a row, a list of lists for a vector",
    )


def is_listed(values: object) -> bool:
    """True for a list of values, and no string."""
    return isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)


def rows_of(weights: ArrayLike, bias: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights as one row per output, and one bias for each."""
    rows = np.atleast_2d(np.asarray(weights))
    return rows, np.broadcast_to(np.asarray(bias, dtype=float), (len(rows),)).copy()
