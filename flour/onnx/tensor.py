"""ONNX values seen from inside a program that computes one row at a time.

ONNX's tensors have a batch axis like any other; a program has rows. `Tensor` brings both together:

    the ONNX value  =  the rows' tensors, joined one behind another along `axis`

Each row's tensor has the static `shape`; a matrix (N, 4) is rows of shape (1, 4) along axis 0, its
transpose rows of shape (4, 1) along axis 1, and the same flattened rows of shape (4,) along axis 0.
Without an axis every row has the same tensor, or there is one row: models whose shapes are all
static run as one row. Operators on each row's tensor alone are native code, and broadcasting,
transposing, slicing are index tables over the row's flat vector; operators that mix rows are
`NotNative`.

A value that is known at import is an array (`value`); lengths that depend on the number of rows
are `Rows` in it, so that the shape arithmetic of exporters is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import DTYPES, Scalar, Vector
from flour.language.flow import Flow
from flour.onnx.errors import NotNative, TooLarge

#: ONNX's strings are never missing: onnxruntime reads None and NaN as these texts.
NONE_TEXT, NAN_TEXT = "None", "nan"

#: More values in one row's tensor are no use for serving, and a table of them would be huge.
MAX_VALUES = 1 << 24
#: From this number on, onnxruntime is not tried either.
ABSURD = 1 << 31


@dataclass(frozen=True)
class Rows:
    """A multiple of the number of rows, which is not known at import."""

    times: int = 1

    def __mul__(self, other: object) -> Rows:
        if isinstance(other, int | np.integer):
            return Rows(self.times * int(other))
        raise NotNative("arithmetic with the number of rows")

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Rows | int:
        if isinstance(other, int | np.integer) and other and self.times % int(other) == 0:
            return Rows(self.times // int(other))
        if isinstance(other, Rows) and other.times and self.times % other.times == 0:
            return self.times // other.times
        raise NotNative("arithmetic with the number of rows")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | np.integer) and other < 0:
            return False
        if isinstance(other, Rows):
            return self.times == other.times
        raise NotNative("a comparison with the number of rows")

    def __hash__(self) -> int:
        return hash(("Rows", self.times))

    def __bool__(self) -> bool:
        raise NotNative("a choice by the number of rows")


@dataclass(frozen=True)
class Tensor:
    """A constant (`value`) or the value of a flow for a row; see the module for `axis`."""

    shape: tuple[int, ...]
    dtype: str
    axis: int | None = None
    flow: Flow | None = None
    value: NDArray[Any] | None = None
    #: The classes of a ZipMap: the names of the columns in the output.
    labels: tuple[Any, ...] | None = None

    @staticmethod
    def constant(value: object, axis: int | None = None) -> Tensor:
        """A value known at import."""
        array = np.asarray(value)
        cells = array.reshape(-1) if array.dtype == object else ()
        if len(cells) and all(isinstance(item, int | np.integer) for item in cells):
            array = array.astype(np.int64)
        return Tensor(array.shape, _dtype(array), axis, None, array)

    @staticmethod
    def of(flow: Flow, shape: Sequence[int], axis: int | None) -> Tensor:
        """The values of a flow; a number per row becomes a vector of one."""
        kind = flow.type
        if isinstance(kind, Scalar):
            flow = flow.as_vector()
            kind = flow.type
        sizes = tuple(int(size) for size in shape)
        if isinstance(kind, Vector) and kind.width != prod(sizes):
            raise NotNative(f"{kind.width} values a row cannot have the shape {sizes}")
        return Tensor(sizes, getattr(kind, "dtype", "string"), axis, flow)

    @property
    def known(self) -> bool:
        """True if every row has this value, known at import."""
        return self.value is not None

    @property
    def size(self) -> int:
        """The number of values in a row."""
        return prod(self.shape)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def symbolic(self) -> bool:
        """True if it is a constant that holds `Rows`."""
        if self.value is None or self.value.dtype != object:
            return False
        return any(isinstance(item, Rows) for item in self.value.reshape(-1))

    def shaped(self, shape: Sequence[int], axis: int | None) -> Tensor:
        """These values in their order, in another shape."""
        sizes = tuple(int(size) for size in shape)
        value = None if self.value is None else self.value.reshape(sizes)
        return replace(self, shape=sizes, axis=axis, value=value, labels=None)

    def picked(self, table: NDArray[Any], axis: int | None) -> Tensor:
        """The values at these indices of the row's flat vector, in the table's shape."""
        indices = np.asarray(table, np.int64)
        if self.value is not None:
            return Tensor.constant(self.value.reshape(-1)[indices], axis)
        assert self.flow is not None
        flat = indices.reshape(-1)
        if flat.size == self.size and np.array_equal(flat, np.arange(self.size)):
            return self.shaped(indices.shape, axis)
        return Tensor.of(self.flow.select(flat), indices.shape, axis)

    def flat_indices(self) -> NDArray[np.int64]:
        """The index of each value in the row's flat vector, in the tensor's shape."""
        return np.arange(self.size).reshape(self.shape)


def _dtype(array: NDArray[Any]) -> str:
    if array.dtype == object:
        whole = all(isinstance(item, Rows | int | np.integer) for item in array.reshape(-1))
        return "int64" if whole and array.size else "string"
    return "string" if array.dtype.kind in "US" else str(array.dtype.name)


def sizes_fit(shape: Sequence[int], what: str) -> None:
    """Raise NotNative for tensors that are too large for one row, TooLarge for absurd ones."""
    if prod(shape) > ABSURD:
        raise TooLarge(f"{what} would have {prod(shape):,} values in a row")
    if prod(shape) > MAX_VALUES:
        raise NotNative(f"{what} has {prod(shape):,} values in a row")


def native_dtype(dtype: str) -> str:
    """The dtype, if programs have values of it."""
    if dtype not in DTYPES:
        raise NotNative(f"programs have no values of type {dtype}")
    return dtype


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise NotNative(f"there is no axis {axis} of {rank}")
    return axis % rank if rank else 0


# --- broadcasting ---------------------------------------------------------------------------------


def broadcast(tensors: Sequence[Tensor]) -> tuple[tuple[int, ...], int | None]:
    """The shape and axis of tensors broadcast by numpy's rules."""
    rank = max(item.rank for item in tensors)
    axes = {item.axis + rank - item.rank for item in tensors if item.axis is not None}
    if len(axes) > 1:
        raise NotNative("values whose rows are along different axes")
    axis = next(iter(axes), None)
    shapes = [(1,) * (rank - item.rank) + item.shape for item in tensors]
    if axis is not None:
        pairs = [(item, shape[axis]) for item, shape in zip(tensors, shapes, strict=True)]
        # One known value for every row is also one for each of a row's several.
        counts = {n for item, n in pairs if item.axis is not None and not (item.known and n == 1)}
        others = {n for item, n in pairs if item.axis is None}
        if len(counts) > 1 or others - {1}:
            raise NotNative("an operation between values of different rows")
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        found = " and ".join(str(item.shape) for item in tensors)
        raise NotNative(f"the shapes {found} do not fit each other") from None
    sizes_fit(shape, "the result")
    return shape, axis


def spread(item: Tensor, shape: Sequence[int], axis: int | None) -> Tensor:
    """The tensor repeated along dimensions of one, as numpy does."""
    if item.shape == tuple(shape):
        return replace(item, axis=axis)
    return item.picked(np.broadcast_to(item.flat_indices(), shape), axis)
