"""Rows and answers as bytes and back, bit for bit: JSON for their form, arrays behind it.

Nothing is pickled. A form that is not known here is refused, and not guessed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import InputError
from flour.core.sparse import Sparse
from flour.data.arrow_strings import CELLS, as_texts
from flour.data.frames import is_sparse

_LENGTH = struct.Struct("<I")
_PLAIN = (str, bool, int, float, type(None))
#: Kinds of dtypes whose bytes are their values.
_BYTES = "biufcmMSU"


def packed(value: object) -> bytes:
    """A value as bytes."""
    parts: list[bytes] = []
    form = json.dumps(_form(value, parts), ensure_ascii=True, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(form)), form, *parts))


def unpacked(data: bytes) -> Any:
    """The value that `packed` has made bytes of."""
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + length
    return _FormReader(memoryview(data)[start:]).value(json.loads(data[_LENGTH.size : start]))


def _form(value: object, parts: list[bytes]) -> Any:
    if type(value) in _PLAIN:
        return value
    for kind, form in _FORMS:
        if isinstance(value, kind):
            return form(value, parts)
    if is_sparse(value) or isinstance(value, Sparse):
        rows = value if isinstance(value, Sparse) else Sparse.from_scipy(value)
        matrix = [_array(part, parts) for part in (rows.data, rows.indices, rows.indptr)]
        return {"m": [rows is not value, [int(size) for size in rows.shape], matrix]}
    raise InputError("values of this type cannot be kept", found=type(value).__name__)


def _list(value: Iterable[object], parts: list[bytes]) -> list[Any]:
    return [_form(each, parts) for each in value]


def _dict(value: dict[object, object], parts: list[bytes]) -> dict[str, Any]:
    return {"d": [[_form(name, parts), _form(part, parts)] for name, part in value.items()]}


def _raw(value: bytes, parts: list[bytes]) -> dict[str, Any]:
    parts.append(value)
    return {"b": len(value)}


def _whole(value: NDArray[Any], parts: list[bytes]) -> Any:
    return _array(as_texts(value) if value.dtype is CELLS else value, parts)


def _array(value: NDArray[Any], parts: list[bytes]) -> Any:
    shape = list(value.shape)
    if value.dtype.kind == "O":
        return {"o": [shape, [_form(each, parts) for each in value.ravel().tolist()]]}
    if value.dtype.kind not in _BYTES:
        raise InputError("arrays of this dtype cannot be kept", found=str(value.dtype))
    parts.append(value.tobytes())
    return {"a": [value.dtype.str, shape]}


_FORMS: tuple[tuple[type, Callable[[Any, list[bytes]], Any]], ...] = (
    (np.ndarray, _whole),
    (np.generic, lambda value, parts: {"s": _array(np.asarray(value), parts)}),
    (list, _list),
    (tuple, lambda value, parts: {"t": _list(value, parts)}),
    (dict, _dict),
    (bytes, _raw),
)


class _FormReader:
    """Makes values of their form, and of arrays one behind another."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer, self._at = buffer, 0

    def value(self, form: object) -> Any:
        """The value of a form."""
        if isinstance(form, list):
            return [self.value(each) for each in form]
        if not isinstance(form, dict):
            return form
        ((kind, part),) = form.items()
        return getattr(self, f"_{kind}")(part)

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        return bytes(self._buffer[start : self._at])

    def _t(self, part: list[object]) -> Any:
        return tuple(self.value(part))

    def _d(self, part: list[list[object]]) -> Any:
        return {self.value(name): self.value(each) for name, each in part}

    def _b(self, part: int) -> bytes:
        return self._take(part)

    def _s(self, part: object) -> Any:
        return self.value(part)[()]

    def _a(self, part: tuple[str, list[int]]) -> Any:
        dtype, shape = np.dtype(part[0]), tuple(part[1])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(bytearray(self._take(size)), dtype).reshape(shape)

    def _o(self, part: tuple[list[int], list[object]]) -> Any:
        made = np.empty(int(np.prod(part[0], dtype=np.int64)), object)
        for place, each in enumerate(part[1]):
            made[place] = self.value(each)
        return made.reshape(part[0])

    def _m(self, part: tuple[bool, tuple[int, int], list[object]]) -> Any:
        foreign, (rows, columns), matrix = part
        data, indices, indptr = self.value(matrix)
        made = Sparse(data, indices, indptr, (rows, columns))
        return made.to_scipy() if foreign else made


def id_of(record: bytes) -> str:
    """The id of the answer in a record of a log."""
    return record[1 : 1 + record[0]].decode()


def content_of(record: bytes) -> dict[str, Any]:
    """The content of a record, behind its id."""
    found: dict[str, Any] = unpacked(record[1 + record[0] :])
    return found
