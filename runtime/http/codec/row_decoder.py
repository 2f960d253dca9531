"""Single rows that come as a tensor for each column: from the body to the row in one step.

    {"inputs": [{"name": "age", "shape": [1], "datatype": "FP64", "data": [41]}, ...]}

becomes {"age": 41.0, ...}, which a plan's entry takes as it is. Whatever is not exactly of this
form goes the long way, which means the same and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import msgspec
from msgspec import Struct

from flour.core.types import Category, Record, Scalar, Text, Type
from runtime.http.codec.codec_json import Parameters, RequestOutput
from runtime.http.codec.tensors import BYTES, datatype_of

#: How values of a datatype come out of JSON, for those that need no conversion.
_PYTHON: dict[str, type] = {"FP64": float, "INT64": int, "BOOL": bool, BYTES: str}
_SHAPES = ([1], [1, 1])
#: Whole numbers up to here are floats, too; others are for the long way to judge.
_EXACT = 1 << 53
_INT64 = 1 << 63


class CellDecoder(Struct):
    """An input of one value."""

    name: str
    shape: list[int]
    datatype: str
    data: list[str | float | int | bool | None]
    parameters: Parameters | None = None


class Cells(Struct):
    """A request whose inputs all are."""

    inputs: list[CellDecoder]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[RequestOutput] | None = None


_decode = msgspec.json.Decoder(Cells).decode


class RowDecoder:
    """Reads the rows of one version."""

    __slots__ = ("_count", "_datatypes", "_read", "_text")

    def __init__(self, inputs: Mapping[str, Type]) -> None:
        """Look at what the version takes."""
        self._text = len(inputs) == 1 and isinstance(next(iter(inputs.values())), Text)
        self._datatypes = {} if self._text else _columns(inputs)
        self._count = len(self._datatypes) or int(self._text)
        only: Any = next(iter(inputs.values())) if len(inputs) == 1 else None
        #: The columns that have to come, where some are not read.
        self._read = self._datatypes.keys() - set(getattr(only, "unread", ()) or self._datatypes)

    def __bool__(self) -> bool:
        """True if there is anything that it could read."""
        return self._count > 0

    def read(self, body: bytes | memoryview) -> tuple[Any, str | None] | None:
        """The row and the id of a request that wishes nothing else; None for others."""
        try:
            asked = _decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None
        cells = asked.inputs
        wishes = asked.parameters or asked.outputs is not None
        if (len(cells) != self._count and not self._read) or wishes:
            return None
        if any(len(c.data) != 1 or c.parameters or c.shape not in _SHAPES for c in cells):
            return None
        if self._text:
            (cell,) = cells
            text = cell.data[0]
            return (text, asked.id) if cell.datatype == BYTES and type(text) is str else None
        row = self._row(cells)
        return None if row is None else (row, asked.id)

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


def _columns(inputs: Mapping[str, Type]) -> dict[str, str]:
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
