"""The columns of one chunk of DuckDB's rows as arrays over its own memory, and answers put there.

The types of a call's arguments say beforehand whether its vectors can be read so: numbers and
VARCHAR for fields that are no documents. DuckDB hands functions of its C API vectors that are flat:
numbers one after another, strings as views of 16 bytes (the length, and then either up to 12 bytes
or four of them and an address), and a bitmap that has a bit for each row with a value, or none
where all have. The arrays are good until the call returns. All else is read as Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import PyDLL, c_uint64, c_void_p, memmove
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import FLOATS, INTS, Category, Record, Scalar, Type
from flour.data.arrow_strings import CELLS, LEAST_ROWS, NONE, bits, fill_views, memory

#: Numbers by what their types are called in the C API, and strings.
_NUMBERS = dict(enumerate(map(np.dtype, ("bool", *INTS, *FLOATS)), 1))
_STRING = 17


class Vectors:
    """A reader of the chunks of one call."""

    def __init__(
        self, api: PyDLL, fields: Sequence[tuple[str, Type]], types: Sequence[int]
    ) -> None:
        self._api, self._fields = api, tuple(zip(fields, types, strict=True))

    def read(self, chunk: int) -> dict[str, NDArray[Any]] | None:
        """The columns by name; None where these rows have to be read as Arrow."""
        rows = self._api.duckdb_data_chunk_get_size(c_void_p(chunk))
        if rows < LEAST_ROWS:
            return None
        found: dict[str, NDArray[Any]] = {}
        texts: list[tuple[str, int, NDArray[np.bool_] | None]] = []
        for place, ((name, kind), number) in enumerate(self._fields):
            api = self._api
            vector = c_void_p(api.duckdb_data_chunk_get_vector(c_void_p(chunk), c_uint64(place)))
            valid = api.duckdb_vector_get_validity(vector)
            begin, there = (
                api.duckdb_vector_get_data(vector),
                bits(valid, 0, rows) if valid else None,
            )
            if number == _STRING:
                texts.append((name, begin, there))
                continue
            column = _numbers(begin, there, rows, _NUMBERS[number])
            if column is None:
                return None
            if column.dtype == np.float32 and isinstance(kind, Scalar) and kind.dtype in FLOATS:
                column = column.astype(kind.dtype, copy=False)
            found[name] = column
        return found | _cells(texts, rows) if texts else found


def vectors(
    api: PyDLL, inputs: Mapping[str, Type], names: Sequence[str], types: Sequence[int]
) -> Vectors | None:
    """A reader of chunks with these names and types; None if that needs Arrow."""
    (kind, *more), fields = inputs.values(), inputs
    if not more:
        if not isinstance(kind, Record):
            return None
        fields = dict(kind.fields)
    if len(names) != len(types) or not set(names) <= set(fields):
        return None
    given = [(name, fields[name]) for name in names]
    plain = all(_is_plain(kind, number) for (_, kind), number in zip(given, types, strict=True))
    return Vectors(api, given, types) if plain else None


def _is_plain(kind: Type, number: int) -> bool:
    """True if a column of this type is read without Arrow."""
    if not isinstance(kind, Scalar | Category):
        return False
    return number in _NUMBERS or (number == _STRING and kind.dtype == "string")


def _numbers(
    begin: int, there: NDArray[np.bool_] | None, rows: int, dtype: np.dtype[Any]
) -> NDArray[Any] | None:
    column = memory(begin, rows * dtype.itemsize).view(dtype)
    if there is None or there.all():
        return column
    # Whole numbers with missing ones become floats, and large ones must not be rounded.
    return np.where(there, column, dtype.type(np.nan)) if dtype.kind == "f" else None


def _cells(
    vectors: Sequence[tuple[str, int, NDArray[np.bool_] | None]], rows: int
) -> dict[str, NDArray[Any]]:
    """The address and length of each string of some vectors."""
    made = np.empty((len(vectors), rows), CELLS)
    fill_views(made.view(np.int64).reshape(-1, 2), [begin for _, begin, _ in vectors], None)
    for column, (_, _, there) in zip(made, vectors, strict=True):
        if there is not None:
            column[~there] = 0, NONE
    return {name: column for (name, _, _), column in zip(vectors, made, strict=True)}


def put(api: PyDLL, answers: object, number: int, output: int) -> bool:
    """Copy answers into a vector of this type; False where they are not one such number a row."""
    if number not in _NUMBERS or not isinstance(answers, np.ndarray):
        return False
    if answers.ndim != 1 or answers.dtype != _NUMBERS[number]:
        return False
    whole = np.ascontiguousarray(answers)
    memmove(api.duckdb_vector_get_data(c_void_p(output)), whole.ctypes.data, whole.nbytes)
    return True
