"""Counterfactual: the smallest change of a row that changes its answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
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
    #: The changed row by column, and as the model takes one row; the row itself if nothing changes.
    values: Mapping[str, Any]
    row: Any
    #: The label or value, and the scores, of both rows.
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        changes = [each._asdict() for each in self.changes]
        made: dict[str, Any] = _plain({**asdict(replace(self, row=None)), "changes": changes})
        return {**made, "row": made.pop("values")}

    def __str__(self) -> str:
        before, after = (
            ", ".join(f"{name} {_short(_plain(value))}" for name, value in answer.items())
            for answer in (self.before, self.after)
        )
        if not self.found:
            sure = "there is" if self.proved else "there was found"
            return f"{before}: {sure} none within the bounds for {_plain(self.want)}"
        if not self.changes:
            return f"{before}: nothing has to change"
        sure = "no smaller change exists" if self.proved else "the best change found"
        lines = [f"{c.column}: {_plain(c.old)} -> {_plain(c.new)}" for c in self.changes]
        return "\n  ".join([f"{before} -> {after} ({sure})", *lines])


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: object) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
