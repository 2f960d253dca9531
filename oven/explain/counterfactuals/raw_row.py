"""One row of raw columns, and copies of it in which some columns are changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flour.core.errors import InputError
from flour.core.op import Columns
from flour.core.sparse import Sparse, densify
from flour.core.types import Record, Type, Vector
from flour.data.coerce import coerce
from oven.plans.plan import Plan


class RawRow:
    """A row as the plan for its own types reads it."""

    def __init__(self, plan: Plan, row: object) -> None:
        block = plan.reader.read(row).block
        self.plan = (plan.variants.of(block) or plan).wait()
        self.held, count = coerce(self.plan.inputs, block)
        if count != 1:
            found = f"{count} rows"
            raise InputError("a change is looked for from one row", found=found, hint="pass one")
        #: By column: its input, its place there (None: it is the input), and its type.
        self.places: dict[str, tuple[str, Any, Type]] = {}
        for label, kind in self.plan.inputs.items():
            if isinstance(kind, Record):
                ahead = f"{label}." if len(self.plan.inputs) > 1 else ""
                read = [name for name in kind.names if name in self.held[label]]
                self.places |= {ahead + name: (label, name, kind[name]) for name in read}
            elif isinstance(kind, Vector):
                self.places |= {f"{label}[{j}]": (label, j, kind) for j in range(kind.width)}
            else:
                self.places[label] = (label, None, kind)
        self.values = {name: self.value_of(name, self.held) for name in self.places}
        known = plan.training().get("columns", {})
        whole = {name for name in self.places if known.get(name, {}).get("whole")}
        #: Columns of integers, by their types or by what they were in the training.
        self.whole = whole | {name for name in self.places if self._is_whole(name, plan)}

    def _is_whole(self, name: str, given: Plan) -> bool:
        """True for integers of the row, or of the `given` plan, where the row has other numbers."""
        label, place, kind = self.places[name]
        own = given.inputs[label]
        own = own[place] if isinstance(own, Record) else own
        return any("int" in getattr(each, "dtype", "") for each in (kind, own))

    def dtype(self, name: str) -> np.dtype[Any]:
        """The dtype of a column; object for strings."""
        dtype = getattr(self.places[name][2], "dtype", "string")
        return np.dtype(object if dtype == "string" else dtype)

    def copies(self, count: int, changed: Mapping[str, Any]) -> dict[str, Columns]:
        """Copies of the row whose `changed` columns have these values."""
        made = {label: _copies(held, count) for label, held in self.held.items()}
        for name, values in changed.items():
            label, place, kind = self.places[name]
            if isinstance(kind, Vector):
                made[label][:, place] = values
            else:
                column = np.empty(count, self.dtype(name))
                column[:] = values
                made[label] = column if place is None else {**made[label], place: column}
        sparse = [label for label, held in self.held.items() if isinstance(held, Sparse)]
        return {**made, **{label: Sparse.of(made[label]) for label in sparse}}

    def run(self, count: int, changed: Mapping[str, Any]) -> dict[str, Columns]:
        """Every output of the plan for such copies."""
        return self.plan.run_columns(self.copies(count, changed), count)

    def value_of(self, name: str, block: Mapping[str, Columns]) -> Any:
        """The value of a column in a block of one row."""
        label, place, kind = self.places[name]
        if place is None:
            return block[label][0]
        return (
            densify(block[label])[0, place] if isinstance(kind, Vector) else block[label][place][0]
        )

    def as_row(self, block: Mapping[str, Columns]) -> Any:
        """A block of one row as a plan takes one row: by column, a vector, or a document."""
        row = {
            label: {k: v[0] for k, v in held.items()}
            if isinstance(held, dict)
            else densify(held)[0]
            for label, held in block.items()
        }
        return next(iter(row.values())) if len(row) == 1 else row


def _copies(held: Columns, count: int) -> Any:
    if isinstance(held, dict):
        return {name: _copies(each, count) for name, each in held.items()}
    if isinstance(held, list):
        return held * count
    row = densify(held)
    return np.broadcast_to(row, (count, *row.shape[1:])).copy()
