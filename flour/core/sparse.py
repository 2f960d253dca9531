"""A minimal compressed-row matrix, so that scipy is imported only for its own matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Sparse:
    """Rows of (column, value) pairs; columns ascend within a row and are unique."""

    __slots__ = ("data", "indices", "indptr", "shape")

    def __init__(
        self,
        data: NDArray[Any],
        indices: NDArray[np.int64],
        indptr: NDArray[np.int64],
        shape: tuple[int, int],
    ) -> None:
        self.data, self.indices, self.indptr, self.shape = data, indices, indptr, shape

    @classmethod
    def of(cls, dense: Any) -> Sparse:
        """The stored form of a dense matrix (zeros are dropped; NaN is not zero), or of scipy's."""
        if hasattr(dense, "tocsr"):
            return cls.from_scipy(dense)
        if dense.ndim == 1:
            dense = dense[:, np.newaxis]
        rows, columns = np.nonzero(dense)
        counts = np.bincount(rows, minlength=len(dense))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(dense[rows, columns], columns.astype(np.int64), indptr, dense.shape)

    @classmethod
    def from_scipy(cls, matrix: Any) -> Sparse:
        """This matrix in canonical form: sorted columns, duplicates summed."""
        csr = matrix.tocsr(copy=True)
        csr.sum_duplicates()
        return cls(
            csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64), tuple(csr.shape)
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored values."""
        return self.data.dtype

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row number of every stored value."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def __len__(self) -> int:
        return self.shape[0]

    def with_data(self, data: NDArray[Any]) -> Sparse:
        """This pattern with other values."""
        return Sparse(data, self.indices, self.indptr, self.shape)

    def toarray(self) -> NDArray[Any]:
        """The dense matrix."""
        dense = np.zeros(self.shape, dtype=self.data.dtype)
        dense[self.rows, self.indices] = self.data
        return dense

    def to_scipy(self) -> Any:
        """This matrix as scipy.sparse.csr_matrix."""
        from scipy.sparse import csr_matrix

        return csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)

    def columns(self, picked: NDArray[np.int64]) -> Sparse:
        """The picked columns, in the picked order (a column may be picked more than once)."""
        order = np.argsort(picked, kind="stable")
        first = np.searchsorted(picked[order], self.indices, "left")
        count = np.searchsorted(picked[order], self.indices, "right") - first
        source = np.repeat(np.arange(len(self.indices)), count)
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        column = order[first[source] + offset]
        return _sorted(self.rows[source], column, self.data[source], (len(self), len(picked)))

    def matmul(self, right: NDArray[Any]) -> NDArray[Any]:
        """self @ right, dense."""
        dtype = np.result_type(self.data, right)
        out = np.zeros((self.shape[0], right.shape[1]), dtype)
        for row in range(self.shape[0]):
            span = slice(self.indptr[row], self.indptr[row + 1])
            out[row] = self.data[span].astype(dtype) @ right[self.indices[span]].astype(dtype)
        return out

    def row_sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of `values` (one per stored value) over each row."""
        return np.bincount(self.rows, weights=values, minlength=self.shape[0])

    def __repr__(self) -> str:
        return f"Sparse{self.shape} with {len(self.data)} stored {self.data.dtype}"


def hstack(parts: Sequence[Sparse | NDArray[Any]], dtype: np.dtype[Any]) -> Sparse:
    """The matrices side by side."""
    made = [part if isinstance(part, Sparse) else Sparse.of(part) for part in parts]
    starts = np.cumsum([0, *(part.shape[1] for part in made)])
    rows = np.concatenate([part.rows for part in made])
    columns = np.concatenate(
        [part.indices + start for part, start in zip(made, starts[:-1], strict=True)]
    )
    data = np.concatenate([part.data.astype(dtype) for part in made])
    return _sorted(rows, columns, data, (made[0].shape[0], int(starts[-1])))


def _sorted(
    rows: NDArray[np.int64], columns: NDArray[np.int64], data: NDArray[Any], shape: tuple[int, int]
) -> Sparse:
    order, counts = np.lexsort((columns, rows)), np.bincount(rows, minlength=shape[0])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Sparse(data[order], columns[order].astype(np.int64), indptr, shape)


def densify(column: object) -> Any:
    """The column, dense if it was sparse."""
    return column.toarray() if isinstance(column, Sparse) else column
