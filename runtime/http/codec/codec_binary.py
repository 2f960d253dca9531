"""The binary tensor extension: a JSON header, then raw tensors one after the other.

Numbers are little-endian and row by row, BOOL takes a byte, each element of BYTES is preceded by
its length in four bytes. Numbers are read in place, without a copy, unless the header before them
leaves them unaligned.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.http.codec.tensors import BYTES, DTYPES, check_count, check_datatype, count, objects
from runtime.http.wire.problems import HttpError

_LENGTH = struct.Struct("<I")
_length_at = _LENGTH.unpack_from


class TensorReader:
    """The raw tensors of a body, read one after the other."""

    def __init__(self, body: bytes | memoryview, start: int) -> None:
        self._body, self._at = body, start

    def take(self, size: int, where: str) -> memoryview:
        """The next bytes."""
        end = self._at + size
        if size < 0 or end > len(self._body):
            raise HttpError(
                "the body ends before this tensor does",
                where=where,
                found=f"{len(self._body) - self._at} bytes of {size}",
            )
        part = memoryview(self._body)[self._at : end]
        self._at = end
        return part

    def finish(self) -> None:
        """Raise if bytes are left after the last tensor."""
        left = len(self._body) - self._at
        if left:
            raise HttpError(
                "the body goes on after its last tensor",
                found=f"{left} bytes",
                hint="each tensor's binary_data_size has to be what was sent of it",
            )


def binary_size(parameters: dict[str, Any] | None, where: str) -> int | None:
    """The bytes of raw data of an input; None for one with JSON data."""
    if parameters and "shared_memory_region" in parameters:
        what, hint = "this server has no shared memory with clients", "send tensors in the body"
        raise HttpError(what, 501, where=where, hint=hint)
    size = (parameters or {}).get("binary_data_size")
    if size is None:
        return None
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise HttpError("binary_data_size is a number of bytes", where=where, found=repr(size)[:40])
    return size


def values(raw: memoryview, datatype: str, shape: Sequence[int], where: str) -> NDArray[Any]:
    """Raw data as an array in its shape."""
    check_datatype(datatype, where)
    if datatype == BYTES:
        texts = _texts(raw, where)
        check_count(len(texts), shape, where)
        return objects(texts, shape)
    dtype = DTYPES[datatype]
    wanted = count(shape, where) * dtype.itemsize
    if len(raw) != wanted:
        raise HttpError(
            f"a {datatype} tensor of shape {list(shape)} takes {wanted} bytes",
            where=where,
            found=f"binary_data_size {len(raw)}",
        )
    if datatype == "BOOL":  # other bytes than 0 and 1 are not valid bools for numpy
        flags: NDArray[Any] = np.frombuffer(raw, np.uint8) != 0
        return flags.reshape(shape)
    array: NDArray[Any] = np.frombuffer(raw, dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()  # native code needs aligned numbers


def _texts(raw: memoryview, where: str) -> list[str]:
    texts, at, whole = list[str](), 0, bytes(raw)  # slicing bytes is faster than slicing a view
    end = len(whole)
    while at < end:
        start = at + 4
        if start > end:
            raise HttpError("a length of four bytes is cut off", where=where)
        (size,) = _length_at(whole, at)
        at = start + size
        if at > end:
            raise HttpError(
                "an element is longer than the tensor", where=where, found=f"{size} bytes"
            )
        texts.append(text(whole[start:at], where, len(texts)))
    return texts


def text(data: bytes, where: str, number: int) -> str:
    """The text of an element."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        what, hint = "an element is no UTF-8", "for other bytes send base64 as content type base64"
        raise HttpError(what, where=f"{where}[{number}]", hint=hint) from None


def raw_values(array: NDArray[Any], datatype: str) -> bytes | memoryview:
    """An array as raw data, without a copy if possible."""
    if datatype == BYTES:
        texts = array.ravel().tolist()
        packed = {text: _with_length(text) for text in set(texts)}  # labels repeat
        return b"".join(map(packed.__getitem__, texts))
    whole = np.ascontiguousarray(array, DTYPES[datatype])
    return whole.data.cast("B") if whole.size else b""


def _with_length(value: object) -> bytes:
    text = value.encode() if isinstance(value, str) else b""  # a missing text
    return _LENGTH.pack(len(text)) + text
