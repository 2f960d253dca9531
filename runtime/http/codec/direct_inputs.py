"""Data of a request that a plan's entry takes as it is: rows, few rows, columns by name.

What fits may be over in a microsecond, and is asked for on the event loop. Data of types that the
plan was not made for may have to wait for a compiler; it fits only once the code for it is there.

Rows that come as a tensor for each column are read from the body in one step:

    {"inputs": [{"name": "age", "shape": [1], "datatype": "FP64", "data": [41]}, ...]}

becomes {"age": 41.0, ...}, and several rows an array for each column. Whatever is not exactly of
this form goes the long way, which means the same and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import msgspec
import numpy as np

from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from flour.data.batch import Batch, Form, row_batch
from runtime.http.codec.codec_json import RequestWishes, TensorHead
from runtime.http.codec.tensors import BYTES, DTYPES, datatype_of
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


#: Types of values out of JSON by datatype, for those that need no conversion.
_PYTHON: dict[str, type] = {"FP64": float, "INT64": int, "BOOL": bool, BYTES: str}
#: Whole numbers up to here are floats, too; others are for the long way to judge.
_EXACT = 1 << 53
_INT64 = 1 << 63


class CellDecoder(TensorHead, kw_only=True):
    """An input of one value for each row."""

    data: list[str | float | int | bool | None]


class Cells(RequestWishes, kw_only=True):
    """A request whose inputs all are."""

    inputs: list[CellDecoder]


_decode = msgspec.json.Decoder(Cells).decode


class RowDecoder:
    """Reads the rows of one version."""

    __slots__ = ("_count", "_datatypes", "_direct", "_read", "_text", "_version")

    def __init__(
        self, version: ModelVersion, inputs: Mapping[str, Type], direct: DirectInputs
    ) -> None:
        """Look at what the version takes; without `inputs` nothing is read."""
        self._version, self._direct = version, direct
        only: Any = next(iter(inputs.values())) if len(inputs) == 1 else None
        self._text = isinstance(only, Text)
        self._datatypes = {} if self._text else _datatypes(inputs)
        self._count = len(self._datatypes) or int(self._text)
        #: The columns that have to come, where some are not read.
        self._read = self._datatypes.keys() - set(getattr(only, "unread", ()) or self._datatypes)

    def __bool__(self) -> bool:
        """True if there is anything that it could read."""
        return self._count > 0

    def read(self, body: bytes | memoryview) -> tuple[Batch, RequestWishes] | None:
        """The rows of a request and the rest of it; None for those with parameters, and others."""
        try:
            asked = _decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None
        cells = asked.inputs
        if (len(cells) != self._count and not self._read) or asked.parameters or not cells:
            return None
        rows = len(cells[0].data)
        shapes = [rows], [rows, 1]
        if any(len(c.data) != rows or c.parameters or c.shape not in shapes for c in cells):
            return None
        if rows != 1:
            block = self._block(cells) if rows else None
            return None if block is None else (block, asked)
        row = self._text_of(*cells) if self._text else self._row(cells)
        if row is None:
            return None
        try:
            return self._version.reader.read(row), asked
        except Exception:
            self._version.refused(row)
            raise

    @staticmethod
    def _text_of(cell: CellDecoder) -> str | None:
        text = cell.data[0]
        return text if cell.datatype == BYTES and isinstance(text, str) else None

    def _block(self, cells: list[CellDecoder]) -> Batch | None:
        """Several rows; None where the long way has more to look at, such as nulls."""
        block = {}
        for cell in cells:
            kind, kinds = _PYTHON.get(cell.datatype), {*map(type, cell.data)}
            if kinds != {kind} and not (kind is float and _are_numbers(kinds, cell.data)):
                return None
            try:
                block[cell.name] = np.array(cell.data, DTYPES.get(cell.datatype, _OBJECT))
            except OverflowError:
                return None
        if len(block) < len(cells):  # two have one name
            return None
        return self._direct.match(Batch(Form.GENERAL, block, len(cells[0].data), single=False))

    def _row(self, cells: list[CellDecoder]) -> dict[str, Any] | None:
        row, datatypes = {}, self._datatypes
        for cell in cells:
            value: Any = cell.data[0]
            if datatypes.get(cell.name) != cell.datatype:
                return None
            if type(value) is not _PYTHON[cell.datatype]:
                value = _converted(value, cell.datatype)
                if value is Ellipsis:
                    return None
            elif type(value) is int and not -_INT64 <= value < _INT64:
                return None
            row[cell.name] = value
        return row if len(row) == len(cells) and self._read <= row.keys() else None


def _are_numbers(kinds: set[type], values: list[Any]) -> bool:
    return kinds <= {float, int} and max(map(abs, values)) <= _EXACT


def _datatypes(inputs: Mapping[str, Type]) -> dict[str, str]:
    """The datatype of each column; empty where rows do not come this way."""
    kinds: Mapping[str, Type] = inputs
    if len(inputs) == 1:
        kind = next(iter(inputs.values()))
        if not isinstance(kind, Record):
            return {}
        kinds = dict(kind.fields)
    datatypes = {}
    for name, kind in kinds.items():
        if not isinstance(kind, Scalar | Category | Text):
            return {}
        datatypes[name] = BYTES if isinstance(kind, Text) else datatype_of(kind.dtype)
    return datatypes if set(datatypes.values()) <= _PYTHON.keys() else {}


def _converted(value: object, datatype: str) -> Any:
    """A value of another type as the general way converts it; an ellipsis where that decides."""
    if datatype == "FP64":
        if value is None:
            return nan
        if type(value) is int and -_EXACT <= value <= _EXACT:
            return float(value)
    return None if value is None and datatype == BYTES else ...
