"""A large object of columns in plain JSON, in pieces of rows: others are answered in between.

    {"age": [41.0, 33.0, ...], "city": ["Oslo", "Rome", ...]}

Decoded and answered at once, 60 MB of them keep others waiting for half a second. Here native code
finds the arrays, and reads those of numbers without the GIL for columns of float64; the others are
decoded in pieces. Some rows of all columns are then answered at a time (in answer/inference.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from runtime.http.codec.array_pieces import LARGE, ArrayPieces, outline
from runtime.http.codec.codec_json import decoded
from runtime.http.codec.number_arrays import read
from runtime.http.wire.problems import HttpError

#: The values of a piece, which are read in some milliseconds where they are lists.
PIECE_VALUES = 16 << 10
_anything = msgspec.json.Decoder()


def outlined(body: bytes | memoryview) -> Any:
    """The value of a body; its long arrays are left in pieces, if they are not in an array."""
    found = outline(body)
    if found is None:
        return decoded(body, _anything, Any)
    rest, arrays = found
    try:
        value = decoded(rest, _anything, Any)
    except HttpError as problem:  # a position would be that in the rest
        problem.found = problem.found and problem.found.partition(" (byte")[0]
        raise
    return _put(value, arrays)


def whole(body: bytes | memoryview) -> Any:
    """The value of a body, decoded in pieces, between which other threads can have the GIL."""
    return joined(outlined(body)) if len(body) > LARGE else decoded(body, _anything, Any)


def _put(value: object, arrays: Mapping[str, ArrayPieces], levels: int = 2) -> Any:
    """The value with its arrays in their places."""
    if isinstance(value, dict) and levels:
        return {name: _put(each, arrays, levels - 1) for name, each in value.items()}
    return arrays.get(value, value) if isinstance(value, str) else value


def joined(value: object, levels: int = 2) -> Any:
    """The value with lists in the place of pieces."""
    if isinstance(value, dict) and levels:
        return {name: joined(each, levels - 1) for name, each in value.items()}
    if not isinstance(value, ArrayPieces):
        return value
    return list(chain.from_iterable(decoded(each, _anything, Any) for each in value))


@dataclass(frozen=True)
class ColumnPieces:
    """Columns of the same length."""

    columns: Mapping[str, Any]
    """Arrays and lists by name, or by the name of an input and of a column."""
    rows: int

    @property
    def pieces(self) -> Iterator[dict[str, Any]]:
        """Some rows of all columns at a time: arrays where all columns are arrays, else lists."""
        every = list(_leaves(self.columns))
        lists = not all(isinstance(each, np.ndarray) for each in every)
        step = max(1, PIECE_VALUES * self.rows // sum(map(np.size, every)))
        for at in range(0, self.rows, step):
            yield _cut(self.columns, slice(at, at + step), lists=lists)


def column_pieces(value: object, inputs: Mapping[str, Type]) -> ColumnPieces | None:
    """The columns of an outlined object; None for any other value, and for mistakes."""
    filled = _filled(value, inputs) if isinstance(value, dict) else None
    if not filled:
        return None
    rows = len(next(_leaves(filled)))
    if all(len(each) == rows for each in _leaves(filled)):
        return ColumnPieces(filled, rows) if rows else None
    known = {name: len(each) for name, each in filled.items() if name in _columns(inputs)}
    if len({*known.values()}) > 1:
        found = ", ".join(f"{name}: {count}" for name, count in known.items())[:200]
        raise HttpError("the columns have different lengths", where="$", found=found)
    return None  # one that is not read is longer or shorter, or each input has its own


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


def _filled(data: Mapping[str, Any], inputs: Mapping[str, Type]) -> dict[str, Any] | None:
    """The object with columns in the place of pieces; None if one of them may be no column."""
    known = _columns(inputs)
    made: dict[str, Any] = {}
    for name, value in data.items():
        kind = known.get(name)
        if isinstance(value, dict):
            made[name] = None if kind is None else _filled(value, {name: kind})
        else:
            made[name] = _column(value, kind)
        if made[name] is None:
            return None
    return made


def _columns(inputs: Mapping[str, Type]) -> dict[str, Type]:
    """The columns of the only input, and all inputs."""
    only = next(iter(inputs.values())) if len(inputs) == 1 else None
    return {**(dict(only.fields) if isinstance(only, Record) else {}), **inputs}


def _column(values: object, kind: Type | None) -> Any:
    """The values of a column, or the rows of a vector; None if this may be something else."""
    array = read(values.text, values.bounds[0] - 1) if isinstance(values, ArrayPieces) else None
    if array is not None and not np.isnan(array.values).any():
        if isinstance(kind, Vector) and kind.dtype == "float64" and array.width == kind.width:
            return array.values.reshape(-1, array.width)
        if kind == Scalar("float64") and not array.width:
            return array.values
    if not isinstance(kind, Scalar | Category | Text | None):
        return None  # a list of values could be one row
    return joined(values) if isinstance(values, ArrayPieces | list) else None
