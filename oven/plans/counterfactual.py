"""Counterfactual: the smallest change of a row that changes its answer."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

PRIVATE = "(private)"


class Change(NamedTuple):
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
    changes: tuple[Change, ...]
    #: The changed row by column, and as the model takes one row; the row itself if nothing changes.
    values: Mapping[str, Any]
    row: Any
    #: The label or value, and the score if there is one, of both rows.
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    cost: float = 0.0

    def hiding(self, columns: Collection[str]) -> Counterfactual:
        """A copy without the values of these columns."""
        if not columns:
            return self
        changes = (
            Change(each.column, PRIVATE, PRIVATE) if each.column in columns else each
            for each in self.changes
        )
        values = {name: PRIVATE if name in columns else each for name, each in self.values.items()}
        return replace(self, changes=tuple(changes), values=values, row=None)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        return {
            "want": _plain(self.want),
            "found": self.found,
            "proved": self.proved,
            "cost": self.cost,
            "changes": [
                {"column": each.column, "old": _plain(each.old), "new": _plain(each.new)}
                for each in self.changes
            ],
            "row": {name: _plain(each) for name, each in self.values.items()},
            "before": {name: _plain(each) for name, each in self.before.items()},
            "after": {name: _plain(each) for name, each in self.after.items()},
        }

    def to_text(self) -> str:
        """The answer in words."""
        before, after = _told(self.before), _told(self.after)
        if not self.found:
            sure = "" if self.proved else " was found"
            return f"{before}: none within the bounds{sure} for {_plain(self.want)}"
        if not self.changes:
            return f"{before}: nothing has to change"
        sure = "no smaller change exists" if self.proved else "the best change found"
        lines = [f"{before} -> {after} ({sure})"]
        lines += [f"  {c.column}: {_plain(c.old)} -> {_plain(c.new)}" for c in self.changes]
        return "\n".join(lines)

    def to_html(self) -> str:
        """The words for a page."""
        return f"<pre>{html.escape(self.to_text())}</pre>"

    __str__ = to_text


def _told(answer: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in answer.items())


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
