"""Rows of columns of any kind: picked, cut out, put one below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flour.core.op import Columns
from flour.core.sparse import Sparse


def take_rows(column: Columns, rows: NDArray[np.int64]) -> Columns:
    """Some rows, by number."""
    if isinstance(column, Mapping):
        return {name: take_rows(part, rows) for name, part in column.items()}
    if isinstance(column, Sparse):
        counts = np.diff(column.indptr)[rows]
        pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        places = np.arange(pointers[-1]) + np.repeat(column.indptr[rows] - pointers[:-1], counts)
        shape = (len(rows), column.shape[1])
        return Sparse(column.data[places], column.indices[places], pointers, shape)
    return [column[row] for row in rows] if isinstance(column, list) else column[rows]


def cut_rows(columns: Columns, start: int, stop: int) -> Columns:
    """Rows that follow one another."""
    if isinstance(columns, Mapping):
        return {name: cut_rows(column, start, stop) for name, column in columns.items()}
    if isinstance(columns, Sparse):
        first, last = columns.indptr[start], columns.indptr[stop]
        pointers = columns.indptr[start : stop + 1] - first
        shape = (stop - start, columns.shape[1])
        return Sparse(columns.data[first:last], columns.indices[first:last], pointers, shape)
    return columns[start:stop]


def stacked(parts: Sequence[Columns]) -> Columns:
    """Columns one below the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Mapping):
        return {name: stacked([part[name] for part in parts]) for name in first}
    if hasattr(first, "indptr"):  # scipy has such matrices, too
        counts = np.concatenate([np.diff(part.indptr) for part in parts])
        pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        data = np.concatenate([part.data for part in parts])
        indices = np.concatenate([part.indices for part in parts])
        content, shape = (data, indices, pointers), (len(counts), first.shape[1])
        kind = type(first)
        return Sparse(*content, shape) if kind is Sparse else kind(content, shape=shape)
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    return [row for part in parts for row in part]
