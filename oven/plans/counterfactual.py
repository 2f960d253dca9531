"""Counterfactual: the smallest change of a row that changes its answer."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np


class ChangedValue(NamedTuple):
    """A column with its old and its new value."""

    column: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A changed row, and what the plan answers for it.

    It changes the fewest columns (of a document, words), and of such changes costs least: a number
    costs its distance over the column's scale, a category or a word costs 1. `proved` says that no
    smaller change exists, or none at all if nothing was found; else it is the best one found.
    """

    want: Any
    found: bool
    proved: bool
    cost: float
    changes: tuple[ChangedValue, ...]
    #: The changed row as the model takes one row; the row itself if nothing changes.
    row: Any
    #: The label or value, and the scores, of both rows.
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    #: Columns whose own values are not within the bounds: they stay, or move inside.
    outside: tuple[str, ...] = ()

    def hiding(self, columns: Collection[str]) -> Counterfactual:
        """A copy without the values of these columns."""
        changes = tuple(
            ChangedValue(each.column, "(private)", "(private)") if each.column in columns else each
            for each in self.changes
        )
        return replace(self, changes=changes, row=_without(self.row, columns))

    def to_dict(self) -> dict[str, Any]:
        """The change as plain data."""
        made = {each.name: _plain(getattr(self, each.name)) for each in fields(self)}
        return made | {"changes": [_plain(each._asdict()) for each in self.changes]}

    def __str__(self) -> str:
        before, after = (
            ", ".join(f"{name} {_short(value)}" for name, value in answer.items())
            for answer in (self.before, self.after)
        )
        if not self.found:
            sure = "there is" if self.proved else "there was found"
            own = f"; the row itself is outside of those of {', '.join(self.outside)}"
            own *= bool(self.outside)
            return f"{before}: {sure} none within the bounds for {self.want}{own}"
        if not self.changes:
            return f"{before}: nothing has to change"
        sure = "no smaller change exists" if self.proved else "the best change found"
        lines = [f"{c.column}: {c.old} -> {c.new}" for c in self.changes]
        return "\n  ".join([f"{before} -> {after} ({sure})", *lines])


def _without(row: object, columns: Collection[str]) -> Any:
    """A row without these columns, which an input may hold; None if it has no names."""
    if not columns:
        return row
    if not isinstance(row, Mapping):
        return None
    held = ((name, value) for name, value in row.items() if name not in columns)
    return {n: _without(v, columns) if isinstance(v, Mapping) else v for n, v in held}


def _plain(value: object) -> Any:
    """A value as JSON has it: a missing number is null, an infinite one a text."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _short(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"[{', '.join(map(_short, value))}]"
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
