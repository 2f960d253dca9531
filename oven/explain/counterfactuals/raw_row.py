"""One row of raw columns, and blocks of it in which some columns are changed."""

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
        #: The plan for the row's types.
        self.plan = plan.variants.of(block) or plan
        self.held, count = coerce(self.plan.inputs, block)
        if count != 1:
            raise InputError(
                "a change is looked for from one row",
                found=f"{count} rows",
                hint="pass a single row",
            )
        #: By column: its input, its name or number there (None: it is the input), and its type.
        self.places: dict[str, tuple[str, str | int | None, Type]] = {}
        self.values: dict[str, Any] = {}
        for label, kind in self.plan.inputs.items():
            self._add(label, kind, alone=len(self.plan.inputs) == 1)

    def _add(self, label: str, kind: Type, *, alone: bool) -> None:
        held = self.held[label]
        match kind:
            case Record(fields=fields, unread=unread):
                for name, sub in fields:
                    if name in held and name not in unread:
                        self._put(name if alone else f"{label}.{name}", label, name, sub, held)
            case Vector(width=width):
                row = densify(held)[0]
                for j in range(width):
                    self._put(f"{label}[{j}]", label, j, kind, {j: row[j : j + 1]})
            case _:
                self._put(label, label, None, kind, {None: held})

    def _put(
        self, name: str, label: str, key: str | int | None, kind: Type, held: Mapping[Any, Any]
    ) -> None:
        self.places[name] = (label, key, kind)
        self.values[name] = held[key][0]

    def block(self, count: int, changed: Mapping[str, Any]) -> dict[str, Columns]:
        """Copies of the row whose `changed` columns have these values."""
        made = {name: _repeated(held, count) for name, held in self.held.items()}
        for name, values in changed.items():
            label, key, kind = self.places[name]
            if isinstance(kind, Vector):
                made[label][:, key] = values
            elif key is None:
                made[label] = _alike(made[label], values)
            else:
                made[label][key] = _alike(made[label][key], values)
        return {
            name: Sparse.of(made[name]) if isinstance(held, Sparse) else made[name]
            for name, held in self.held.items()
        }

    def run(self, count: int, changed: Mapping[str, Any]) -> dict[str, Columns]:
        """Every output of the plan for such copies."""
        return self.plan.run_columns(self.block(count, changed), count)

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """The dtype of a column of numbers; None for other columns."""
        dtype = getattr(self.places[name][2], "dtype", "string")
        return None if dtype == "string" else np.dtype(dtype)

    def values_of(self, block: Mapping[str, Columns]) -> dict[str, Any]:
        """The values of a block of one row, by column."""
        made = {}
        for name, (label, key, kind) in self.places.items():
            held: Any = block[label] if key is None else densify(block[label])
            if isinstance(kind, Vector):
                made[name] = held[0, key]
            else:
                made[name] = held[0] if key is None else held[key][0]
        return made

    def as_row(self, block: Mapping[str, Columns]) -> Any:
        """A block of one row as a plan takes one: by column, a vector, or a document."""
        parts: dict[str, Any] = {}
        for label, held in block.items():
            is_record = isinstance(held, dict)
            parts[label] = {k: v[0] for k, v in held.items()} if is_record else densify(held)[0]
        return next(iter(parts.values())) if len(parts) == 1 else parts


def _repeated(held: Columns, count: int) -> Any:
    if isinstance(held, dict):
        return {name: _repeated(each, count) for name, each in held.items()}
    if isinstance(held, list):
        return held * count
    return np.repeat(densify(held), count, axis=0)


def _alike(held: Any, values: Any) -> Any:
    """Values as the column has them."""
    if isinstance(held, list):
        return list(values)
    if held.dtype == object:
        made = np.empty(len(held), object)
        made[:] = values
        return made
    return np.asarray(values).astype(held.dtype)
