"""Tensors of the protocol: their datatypes and their arrays.

The classification parameter: the k largest elements of each row, as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.http.wire.problems import HttpError

BYTES = "BYTES"
FP16 = "FP16"

#: Every datatype but BYTES, as numpy's; on the wire all are little-endian.
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    FP16: np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
DATATYPES = (*DTYPES, BYTES)

_OF_DTYPE: dict[object, str] = {dtype: name for name, dtype in DTYPES.items()}
_OF_DTYPE[np.dtype(object)] = BYTES
_OF_NUMPY = {dtype.name: name for name, dtype in DTYPES.items()}

#: More dimensions than any model has; a request with more is a mistake or worse.
MOST_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class RequestTensor:
    """A tensor of a request: an array in its shape, of objects (str, None) for BYTES."""

    name: str
    datatype: str
    values: NDArray[Any]


def datatype_of(dtype: np.dtype[Any] | str) -> str:
    """The protocol's name for values of a numpy dtype, or of a dtype of our own types."""
    name = _OF_DTYPE.get(dtype)  # looked up by dtype, as numpy makes `dtype.name` anew each time
    return name or _OF_NUMPY.get(dtype if isinstance(dtype, str) else dtype.name, BYTES)


def check_datatype(name: str, where: str) -> None:
    """Raise unless the protocol knows this datatype."""
    if name not in DATATYPES:
        raise HttpError(
            "there is no such datatype",
            where=f"{where}.datatype",
            found=repr(name)[:40],
            hint="one of " + ", ".join(DATATYPES),
        )


def count(shape: Sequence[int], where: str) -> int:
    """The number of elements of a shape; HttpError if it is not a valid shape."""
    if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise HttpError(
            f"a shape has up to {MOST_DIMENSIONS} sizes, none of them negative",
            where=f"{where}.shape",
            found=repr(shape[: MOST_DIMENSIONS + 1])[:80],
        )
    return prod(shape)


def check_count(found: int, shape: Sequence[int], where: str) -> None:
    """Raise unless there are as many elements as the shape says."""
    wanted = count(shape, where)
    if found != wanted:
        raise HttpError(
            f"a tensor of shape {list(shape)} has {wanted} elements",
            where=f"{where}.data",
            found=f"{found} elements",
        )


def objects(values: Sequence[Any], shape: Sequence[int]) -> NDArray[Any]:
    """An array of objects in a shape."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def top_classes(
    array: NDArray[Any], many: int, labels: Sequence[object] | None
) -> NDArray[np.object_]:
    """Each row's largest elements as "value:index", with ":label" if labels are known."""
    if array.dtype == object or array.ndim not in {1, 2}:
        raise HttpError("classification is for outputs of numbers", where="$.outputs")
    rows = array if array.ndim == 2 else array[:, None]
    many = min(many, rows.shape[1])
    names = labels if labels is not None and len(labels) == rows.shape[1] else None
    order = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :many]
    texts = [
        _text(row[index], index, names)
        for row, indices in zip(rows, order, strict=True)
        for index in indices.tolist()
    ]
    return objects(texts, order.shape)


def _text(value: Any, index: int, names: Sequence[object] | None) -> str:
    text = f"{value.item():f}:{index}"
    return text if names is None else f"{text}:{names[index]}"
