"""Rows and answers as bytes and back, bit for bit: JSON for their form, arrays behind it.

Nothing is pickled. A form that is not known here is refused, and not guessed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from flour.core.errors import InputError
from flour.data.arrow_strings import CELLS, as_texts

_LENGTH = struct.Struct("<I")
_PLAIN = (str, bool, int, float, type(None))
#: Kinds of dtypes whose bytes are their values.
_BYTES = "biufcmMSU"
_SPARSE = ("csr", "csc")


def packed(value: object) -> bytes:
    """A value as bytes."""
    parts: list[bytes] = []
    form = json.dumps(_form(value, parts), ensure_ascii=True, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(form)), form, *parts))


def unpacked(data: bytes) -> Any:
    """The value that `packed` has made bytes of."""
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + length
    return _Reader(memoryview(data)[start:]).value(json.loads(data[_LENGTH.size : start]))


def _form(value: Any, parts: list[bytes]) -> Any:
    if type(value) in _PLAIN:
        return value
    for kind, form in _FORMS:
        if isinstance(value, kind):
            return form(value, parts)
    if getattr(value, "format", None) in _SPARSE:
        matrix = [_array(part, parts) for part in (value.data, value.indices, value.indptr)]
        return {"m": [value.format, [int(size) for size in value.shape], matrix]}
    raise InputError("values of this type cannot be kept", found=type(value).__name__)


def _list(value: Any, parts: list[bytes]) -> list[Any]:
    return [_form(each, parts) for each in value]


def _dict(value: Any, parts: list[bytes]) -> dict[str, Any]:
    return {"d": [[_form(name, parts), _form(part, parts)] for name, part in value.items()]}


def _raw(value: bytes, parts: list[bytes]) -> dict[str, Any]:
    parts.append(value)
    return {"b": len(value)}


def _whole(value: Any, parts: list[bytes]) -> Any:
    return _array(as_texts(value) if value.dtype is CELLS else value, parts)


def _array(value: Any, parts: list[bytes]) -> Any:
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


class _Reader:
    """Makes values of their form, and of arrays one behind another."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer, self._at = buffer, 0

    def value(self, form: Any) -> Any:
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

    def _t(self, part: Any) -> Any:
        return tuple(self.value(part))

    def _d(self, part: Any) -> Any:
        return {self.value(name): self.value(each) for name, each in part}

    def _b(self, part: Any) -> Any:
        return self._take(part)

    def _s(self, part: Any) -> Any:
        return self.value(part)[()]

    def _a(self, part: Any) -> Any:
        dtype, shape = np.dtype(part[0]), tuple(part[1])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return np.frombuffer(bytearray(self._take(size)), dtype).reshape(shape)

    def _o(self, part: Any) -> Any:
        made = np.empty(int(np.prod(part[0], dtype=np.int64)), object)
        for place, each in enumerate(part[1]):
            made[place] = self.value(each)
        return made.reshape(part[0])

    def _m(self, part: Any) -> Any:
        from scipy import sparse  # only where matrices were given

        form, shape, matrix = part
        made = sparse.csr_matrix if form == "csr" else sparse.csc_matrix
        return made(tuple(self.value(matrix)), shape=tuple(shape))
