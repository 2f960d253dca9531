"""Columns that a program was not fitted with are refused; the answers for one row of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flour.core.errors import nearest
from flour.core.sparse import Sparse
from flour.core.types import Record, Type
from flour.data.frames import frame_columns
from runtime.errors import UnexpectedColumn

Inputs = Mapping[str, Type]


def refuse_extra(inputs: Inputs, data: object) -> None:
    """Raise UnexpectedColumn for a column that the program was not fitted with."""
    if len(inputs) > 1:
        if isinstance(data, Mapping):
            _refuse(tuple(inputs), data, "$")
            for name, kind in inputs.items():
                _check(kind, data.get(name), f"$.{name}")
        return
    _check(next(iter(inputs.values())), data, "$")


def _check(kind: Type, data: object, path: str) -> None:
    if not isinstance(kind, Record):
        return
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        for index, row in enumerate(data):
            if isinstance(row, Mapping):  # coerce says what is wrong with any other
                _refuse(kind.names, row, f"{path}[{index}]")
        return
    columns = frame_columns(data)
    # Data without one of the fitted names goes by position, where that is allowed.
    if columns is not None and not (kind.positional and not set(kind.names) <= set(columns)):
        _refuse(kind.names, columns, path)


def _refuse(fitted: Sequence[str], columns: Mapping[str, object], path: str) -> None:
    extra = [name for name in columns if name not in fitted]
    if extra:
        raise UnexpectedColumn(
            f"the program has no column {extra[0]!r}",
            where=f"{path}.{extra[0]}",
            found=", ".join(map(str, extra[:20])),
            hint=nearest(extra[0], fitted) or "drop it, as before training",
        )


def first_row(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers for a block of one row as those for the row."""
    return {name: _only(value) for name, value in answers.items()}


def _only(value: Any) -> Any:
    if isinstance(value, Mapping):
        return first_row(value)
    if isinstance(value, Sparse):  # where there is no scipy
        return value.toarray()[0]
    first = value[0]
    return first.item() if isinstance(first, np.generic) else first
