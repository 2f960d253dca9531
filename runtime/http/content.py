"""Content types: the meaning of an input's strings, by the names of MLServer's clients.

np, pd, str   unchanged: arrays, columns by name, texts
base64        texts in base64
datetime      times in ISO 8601; checked, and passed on as text
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Any

from runtime.http.problems import HttpError
from runtime.http.tensors import BYTES, Tensor, objects


def _as_is(text: str) -> str:
    return text


def _from_base64(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()


def _iso_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


_READERS: dict[str, Callable[[str], str]] = {
    "np": _as_is,
    "pd": _as_is,
    "str": _as_is,
    "base64": _from_base64,
    "datetime": _iso_time,
}


def content_type(parameters: dict[str, Any] | None, where: str) -> str | None:
    """The content type that a request or an input names, checked."""
    name = (parameters or {}).get("content_type")
    if name is not None and (not isinstance(name, str) or name not in _READERS):
        raise HttpError(
            "there is no such content type",
            where=f"{where}.parameters.content_type",
            found=repr(name)[:40],
            hint="one of " + ", ".join(_READERS),
        )
    return name


def read(tensor: Tensor, kind: str | None, where: str) -> Tensor:
    """The tensor with its texts decoded by the content type."""
    reader = _READERS[kind or "np"]
    if reader is _as_is or tensor.datatype != BYTES:
        return tensor
    texts = [
        text if text is None else _decode_text(reader, text, f"{where}.data[{index}]")
        for index, text in enumerate(tensor.values.ravel().tolist())
    ]
    return Tensor(tensor.name, BYTES, objects(texts, tensor.values.shape))


def _decode_text(reader: Callable[[str], str], text: str, where: str) -> str:
    try:
        return reader(text)
    except (ValueError, binascii.Error):
        what = reader.__name__.removeprefix("_").replace("_", " ")
        raise HttpError(
            f"this text does not read as {what}", where=where, found=repr(text)[:40]
        ) from None


def written(datatype: str) -> dict[str, str]:
    """The content type of an output, for clients that use content types."""
    return {"content_type": "str" if datatype == BYTES else "np"}
