"""Columns in the form that native code reads and writes: blocks of memory, by address."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.sparse import Sparse
from flour.core.types import Pairs, Tokens, Type, Vector
from oven.codegen import string_cells
from oven.codegen.stages import Value, is_text


def given(column: Any, value: Value, *, stored: bool) -> NDArray[Any] | Sparse:
    """A column for native code: its rows, or their stored numbers (`stored`).

    There may be gaps between rows, but not within a row.
    """
    kind = value.type
    if isinstance(kind, Tokens):
        return string_cells.word_cells(column)
    if isinstance(kind, Pairs):
        return string_cells.pair_cells(column)
    if is_text(kind):
        return column if isinstance(column, string_cells.TextCells) else string_cells.cells(column)
    dtype = kind.dtype  # type: ignore[union-attr]  # native columns have a dtype
    if stored:
        sparse = column if isinstance(column, Sparse) else Sparse.of(column)
        indices = np.ascontiguousarray(sparse.indices, np.int64)
        indptr = np.ascontiguousarray(sparse.indptr, np.int64)
        return Sparse(np.ascontiguousarray(sparse.data, dtype), indices, indptr, sparse.shape)
    dense: NDArray[Any] = column.toarray() if isinstance(column, Sparse) else column
    if dense.dtype != dtype or (dense.ndim == 2 and dense.strides[1] != dense.itemsize):
        return np.ascontiguousarray(dense, dtype)
    return dense


def words(column: NDArray[Any] | Sparse) -> list[int]:
    """A column's entries in the table of columns: addresses and strides."""
    if isinstance(column, Sparse):
        parts = (column.indices.ctypes.data, column.data.ctypes.data)
        return [column.indptr.ctypes.data, 8, *parts]
    return [column.ctypes.data, column.strides[0] if column.ndim else 0]


def row_steps(column: NDArray[Any] | Sparse) -> list[int]:
    """By how much these entries grow with each row."""
    if isinstance(column, Sparse):
        return [8, 0, 0, 0]
    return [column.strides[0] if column.ndim else 0, 0]


def lengths(column: NDArray[Any] | Sparse, kind: Type) -> NDArray[np.int64]:
    """The length of each row: bytes of text, or the number of stored numbers."""
    if isinstance(column, Sparse):
        return np.diff(column.indptr)
    return string_cells.lengths(column, words=isinstance(kind, Tokens | Pairs))


def unfilled(kind: Type, rows: int, most: int) -> Sparse:
    """A sparse column for native code to fill: `rows` rows, at most `most` numbers in all."""
    assert isinstance(kind, Vector)
    data, indices = np.empty(most, kind.dtype), np.empty(most, np.int64)
    return Sparse(data, indices, np.zeros(rows + 1, np.int64), (rows, kind.width))


def settled(column: Sparse) -> Sparse:
    """The rows in arrays cut to the numbers that were written."""
    count = int(column.indptr[-1])
    data, indices = column.data[:count].copy(), column.indices[:count].copy()
    return Sparse(data, indices, column.indptr, column.shape)
