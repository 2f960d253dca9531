"""The values of a request's row by column, in whichever form the row came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from flour.core.types import Category, Record, Scalar, Text, Type
from runtime.errors import BadCall

PLAIN = frozenset({str, int, float, bool})
_VALUES = (str, int, float, type(None), np.generic)
_NOTHING: Mapping[str, Any] = {}


def values_of(data: object, names: Sequence[str] = ()) -> Mapping[str, Any]:
    """The values of a row, or of a block of one row; those without names have these `names`.

    Of more rows, each column is a value that refuses to be compared.
    """
    if type(data) is dict or isinstance(data, Mapping):  # asking for the type takes less time
        for value in data.values():
            if type(value) in PLAIN:  # one value is no column, so none is
                return data
            break
        return {name: _only(value) for name, value in data.items()}
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        return values_of(data[0]) if len(data) == 1 else dict.fromkeys(data[0], MANY)
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return _of_frame(data)
    if hasattr(data, "to_dict"):  # a row of a pandas frame
        values: Mapping[str, Any] = data.to_dict()
        return values
    return _by_position(data, names) if names else _NOTHING


def names_by_position(inputs: Mapping[str, Type]) -> Sequence[str]:
    """The names of the values of a row that has none."""
    if len(inputs) > 1:
        return ()
    ((name, kind),) = inputs.items()
    if isinstance(kind, Record):
        return kind.names
    return (name,) if isinstance(kind, Scalar | Category | Text) else ()


def _of_frame(frame: object) -> Mapping[str, Any]:
    data: Any = frame
    if hasattr(data, "num_rows"):  # of Arrow
        columns, one = zip(data.schema.names, data.columns, strict=True), data.num_rows == 1
        return {name: column[0].as_py() if one else MANY for name, column in columns}
    return {str(name): _only(np.asarray(data[name])) for name in data.columns}


def _by_position(data: object, names: Sequence[str]) -> Mapping[str, Any]:
    """The values of a row without names, in the order of the model's columns."""
    if isinstance(data, np.ndarray) and data.dtype.names:
        return {name: _only(data[name]) for name in data.dtype.names}
    if isinstance(data, str | bytes) or not isinstance(data, Sequence | np.ndarray):
        return {names[0]: data} if len(names) == 1 else _NOTHING
    row: Any = data
    if len(names) == 1 or (len(row) and isinstance(row[0], Sequence | np.ndarray | np.void)):
        if isinstance(row[0] if len(row) else None, str | bytes) and len(names) > 1:
            return dict(zip(names, row, strict=False))
        if len(row) != 1:
            return dict.fromkeys(names, MANY)
        if len(names) == 1:
            return {names[0]: _only(row[0])}
        row = row[0]
    return dict(zip(names, row, strict=False))


def _only(value: object) -> Any:
    """The one value of a column."""
    if isinstance(value, _VALUES):
        return value
    if isinstance(value, np.ndarray):
        return value.reshape(-1)[0] if value.size == 1 else MANY
    if isinstance(value, list | tuple):
        return value[0] if len(value) == 1 else MANY
    return value


def refuse(found: str) -> NoReturn:
    """Raise: one version answers a request, so there is one value to choose it by."""
    raise BadCall(
        "what a route goes by is one text or number for each request",
        found=found,
        hint="a block of rows is routed by a header, or predicted row by row",
    )


class _Many:
    """The values of several rows, which no route can go by."""

    __hash__ = None  # type: ignore[assignment]  # as it has no equality

    def _refuse(self, _other: object) -> bool:
        refuse("a column of several rows")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


#: Stands for a column of several rows.
MANY: Any = _Many()
