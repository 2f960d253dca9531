"""A large object of columns in plain JSON, in pieces of rows: others are answered in between.

    {"age": [41.0, 33.0, ...], "city": ["Oslo", "Rome", ...]}

Decoded and answered at once, 60 MB of them keep others waiting for half a second. Here native code
finds the arrays, and reads those of numbers without the GIL for columns of float64; the others are
decoded in pieces. Some rows of all columns are then answered at a time (in answer/piecewise.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from runtime.http.codec.array_pieces import ArrayPieces, array_pieces
from runtime.http.codec.number_arrays import ANY_NAME, ParsedArray, taken_out

#: The values of a piece, which are read in some milliseconds where they are lists.
PIECE_VALUES = 16 << 10
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class ColumnPieces:
    """Columns of the same length."""

    columns: Mapping[str, Any]
    """Arrays and lists by name, or by the name of an input and of a column."""
    rows: int
    instances: bool = False
    """True if they stand in an object, as `instances`."""

    @property
    def pieces(self) -> Iterator[dict[str, Any]]:
        """Some rows of all columns at a time: arrays where all columns are arrays, else lists."""
        every = list(_leaves(self.columns))
        lists = not all(isinstance(each, np.ndarray) for each in every)
        step = max(1, PIECE_VALUES * self.rows // sum(map(np.size, every)))
        for at in range(0, self.rows, step):
            yield _cut(self.columns, slice(at, at + step), lists=lists)


def column_pieces(body: bytes | memoryview, inputs: Mapping[str, Type]) -> ColumnPieces | None:
    """The columns of an object; None for any other body, and for mistakes."""
    rest, found = taken_out(body, ANY_NAME) if body[:1] == b"{" else (body, [])
    try:
        data = _decode(rest) if found else None
        if not isinstance(data, dict) or sorted(_marks(data)) != list(range(len(found))):
            return None
        filled = _filled(data, inputs, body, found)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None  # the general decoder says what is wrong
    lengths = set() if filled is None else set(map(len, _leaves(filled)))
    rows = lengths.pop() if len(lengths) == 1 else 0
    return ColumnPieces(filled, rows) if filled and rows else None


def _leaves(data: Mapping[str, Any]) -> Iterator[Any]:
    """The values of an object, and of those that it holds."""
    for value in data.values():
        yield from _leaves(value) if isinstance(value, dict) else (value,)


def _cut(data: Mapping[str, Any], rows: slice, *, lists: bool) -> dict[str, Any]:
    """Some rows of all columns."""
    parts = {
        name: _cut(each, rows, lists=lists) if isinstance(each, dict) else each[rows]
        for name, each in data.items()
    }
    return {
        name: each.tolist() if lists and isinstance(each, np.ndarray) else each
        for name, each in parts.items()
    }


def _place(value: object) -> int | None:
    """The number of the array that was taken out here; None for anything else."""
    if isinstance(value, str) and value[:1] == "#" and value[1:].isdecimal():
        return int(value[1:])
    return None


def _marks(data: Mapping[str, Any]) -> Iterator[int]:
    """The numbers of the arrays in an object; -1 for anything else in it."""
    for value in _leaves(data):
        place = _place(value)
        yield -1 if place is None else place


def _filled(
    data: Mapping[str, Any],
    inputs: Mapping[str, Type],
    body: bytes | memoryview,
    found: list[ParsedArray | ArrayPieces],
) -> dict[str, Any] | None:
    """The object with its arrays in their places; None if one of them may be no column."""
    only = next(iter(inputs.values())) if len(inputs) == 1 else None
    known = {**(dict(only.fields) if isinstance(only, Record) else {}), **inputs}
    made: dict[str, Any] = {}
    for name, value in data.items():
        kind = known.get(name)
        if isinstance(value, dict):
            made[name] = None if kind is None else _filled(value, {name: kind}, body, found)
        else:
            made[name] = _column(body, found[int(value[1:])], kind)
        if made[name] is None:
            return None
    return made


def _column(body: bytes | memoryview, array: ParsedArray | ArrayPieces, kind: Type | None) -> Any:
    """The values of a column, or the rows of a vector; None if this may be something else."""
    if isinstance(array, ParsedArray) and not np.isnan(array.values).any():
        if isinstance(kind, Vector) and kind.dtype == "float64" and array.width == kind.width:
            return array.values.reshape(-1, array.width)
        if kind == Scalar("float64") and not array.width:
            return array.values
    if not isinstance(kind, Scalar | Category | Text | None):
        return None  # a list of values could be one row
    pieces = array if isinstance(array, ArrayPieces) else array_pieces(body, array.start)
    return None if pieces is None else list(chain.from_iterable(_decode(each) for each in pieces))
