"""Arrays of a request that a plan's entry takes as they are: rows, few rows, columns by name.

What fits may be over in a microsecond, and is asked for on the event loop. Data of types that the
plan was not made for may have to wait for a compiler; it fits only once the code for it is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from flour.data.batch import Batch, Form, row_batch
from runtime.http.codec.tensors import DTYPES, datatype_of
from runtime.service.version import ModelVersion

_ARRAY = np.ndarray
_OBJECT = np.dtype(object)


class DirectInputs:
    """Matches arrays to the entry of one version."""

    __slots__ = ("_columns", "_numbers", "_version")

    def __init__(self, version: ModelVersion) -> None:
        """Look at what the version takes."""
        self._version = version
        kinds = list(version.inputs.values())
        only = kinds[0] if len(kinds) == 1 else None
        #: Of plans for one vector: the type of its numbers.
        self._numbers = DTYPES.get(datatype_of(only.dtype)) if isinstance(only, Vector) else None
        #: Of other plans: the type of each array, and how many dimensions it has.
        self._columns = {} if isinstance(only, Text | Vector) else _columns(version, only)

    def match(self, batch: Batch) -> Batch | None:
        """The batch as the entry takes it, one row as a row; None if it does not fit."""
        data = batch.data
        kind = type(data)
        if kind is dict:
            rows = self._rows(data)
            return Batch(Form.ARRAYS, data, rows, single=False) if rows else None
        if batch.kind is Form.DOCUMENTS and batch.rows == 1 and type(data[0]) is str:
            return Batch(Form.DOCUMENT, data[0], 1, single=True)
        if kind is not _ARRAY or data.ndim != 2 or not len(data):
            return None
        if data.dtype == self._numbers:
            return row_batch(data[0]) if len(data) == 1 else batch
        plan = self._version.plan
        return batch if plan is not None and plan.variants.ready_for(data) else None

    def _rows(self, data: dict[str, Any]) -> int:
        """The number of rows columns have; 0 unless they have the right types and one length."""
        columns, rows = self._columns, -1
        if data.keys() != columns.keys():
            return 0
        for name, array in data.items():
            if type(array) is not _ARRAY or (array.dtype, array.ndim) != columns[name]:
                return 0
            if len(array) != rows >= 0:
                return 0
            rows = len(array)
        return max(rows, 0)


def _columns(version: ModelVersion, only: Type | None) -> dict[str, tuple[np.dtype[Any], int]]:
    """The array for each input, or for each column of the only one; empty where some have none."""
    kinds = dict(version.inputs)
    if isinstance(only, Record):
        kinds = {name: kind for name, kind in only.fields if name not in only.unread}
    arrays = {}
    for name, kind in kinds.items():
        if isinstance(kind, Vector) and not kind.sparse:
            arrays[name] = DTYPES.get(datatype_of(kind.dtype), _OBJECT), 2
        elif isinstance(kind, Text):
            arrays[name] = _OBJECT, 1
        elif isinstance(kind, Scalar | Category):
            arrays[name] = DTYPES.get(datatype_of(kind.dtype), _OBJECT), 1
        else:
            return {}
    return arrays
