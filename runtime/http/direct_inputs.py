"""Arrays of a request that a plan's entry takes as they are: rows, few rows, columns by name.

What fits may be over in a microsecond, and is asked for on the event loop. Data of types that the
plan was not made for may have to wait for a compiler; it fits only once the code for it is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from runtime.http.tensors import DTYPES, datatype_of
from runtime.service.version import ModelVersion

_ARRAY = np.ndarray
_OBJECT = np.dtype(object)


class DirectInputs:
    """What arrays fit one version."""

    __slots__ = ("_columns", "_numbers", "_served", "_text")

    def __init__(self, served: ModelVersion) -> None:
        """Look at what the version takes."""
        self._served = served
        kinds = list(served.inputs.values())
        only = kinds[0] if len(kinds) == 1 else None
        self._text = isinstance(only, Text)
        #: Of plans for one vector: the type of its numbers.
        self._numbers = DTYPES.get(datatype_of(only.dtype)) if isinstance(only, Vector) else None
        #: Of other plans: the type of each array, and how many dimensions it has.
        self._columns = {} if self._text or isinstance(only, Vector) else _columns(served, only)

    def look(self, data: Any) -> tuple[Any, int] | None:
        """The data for the entry, and how many rows it is: 0 for a row of its own.

        None for what does not fit.
        """
        kind = type(data)
        if kind is dict:
            rows = self._rows(data)
            return (data, rows) if rows else None
        if kind is not _ARRAY or not len(data):
            return None
        if self._text:
            alone = data.shape == (1,) and type(data[0]) is str
            return (data[0], 0) if alone else None
        if data.ndim != 2:
            return None
        if data.dtype == self._numbers:
            return (data[0], 0) if len(data) == 1 else (data, len(data))
        plan = self._served.plan
        return (data, len(data)) if plan is not None and plan.is_compiled_for(data) else None

    def _rows(self, data: dict[str, Any]) -> int:
        """How many rows columns have; 0 unless they have the right types and one length."""
        known, rows = self._columns, -1
        if data.keys() != known.keys():
            return 0
        for name, array in data.items():
            if type(array) is not _ARRAY or (array.dtype, array.ndim) != known[name]:
                return 0
            if len(array) != rows >= 0:
                return 0
            rows = len(array)
        return max(rows, 0)


def _columns(served: ModelVersion, only: Type | None) -> dict[str, tuple[np.dtype[Any], int]]:
    """The array for each input, or for each column of the only one; empty where some have none."""
    kinds = dict(served.inputs)
    if isinstance(only, Record):
        kinds = {name: kind for name, kind in only.fields if name not in only.unread}
    made = {}
    for name, kind in kinds.items():
        if isinstance(kind, Vector) and not kind.sparse:
            made[name] = DTYPES.get(datatype_of(kind.dtype), _OBJECT), 2
        elif isinstance(kind, Text):
            made[name] = _OBJECT, 1
        elif isinstance(kind, Scalar | Category):
            made[name] = DTYPES.get(datatype_of(kind.dtype), _OBJECT), 1
        else:
            return {}
    return made
