"""Counterfactual: the smallest change of a row that changes its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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

    def __str__(self) -> str:
        before, after = (
            ", ".join(f"{name} {_short(value)}" for name, value in answer.items())
            for answer in (self.before, self.after)
        )
        if not self.found:
            sure = "there is" if self.proved else "there was found"
            return f"{before}: {sure} none within the bounds for {self.want}"
        if not self.changes:
            return f"{before}: nothing has to change"
        sure = "no smaller change exists" if self.proved else "the best change found"
        lines = [f"{c.column}: {c.old} -> {c.new}" for c in self.changes]
        return "\n  ".join([f"{before} -> {after} ({sure})", *lines])


def _short(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"[{', '.join(map(_short, value))}]"
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
