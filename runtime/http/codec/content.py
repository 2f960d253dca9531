"""Content types: the meaning of an input's strings, by the names of MLServer's clients.

np, pd, str   unchanged: arrays, columns by name, texts
base64        texts in base64
datetime      times in ISO 8601; checked, and passed on as text
pd_json       values as JSON, which is how MLServer sends columns of mixed values

A request in the form "pd" is answered with a table: MLServer's `PandasCodec` makes one column of
each tensor and takes their elements one by one, so a tensor of several columns is sent as several.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from numpy.typing import NDArray

from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.tensors import BYTES, RequestTensor, objects
from runtime.http.wire.problems import HttpError


def _iso_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def json_value(text: str) -> Any:
    """The value of a text of JSON; a long one would be decoded in one piece."""
    if len(text) > LARGE:
        raise ValueError("it is too long")
    return json.loads(text)


#: The form of a table, and of its columns whose values are JSON.
TABLE, TABLE_JSON = "pd", "pd_json"

_READERS: dict[str, Callable[[str], Any]] = {
    "np": str,
    TABLE: str,
    TABLE_JSON: json_value,
    "str": str,
    "base64": lambda text: base64.b64decode(text, validate=True).decode(),
    "datetime": _iso_time,
}


_MEANT = {TABLE_JSON: f"JSON of up to {LARGE} characters", "datetime": "a time in ISO 8601"}


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


def read(tensor: RequestTensor, kind: str | None, where: str) -> RequestTensor:
    """The tensor with its texts decoded by the content type."""
    kind = kind or "np"
    if _READERS[kind] is str or tensor.datatype != BYTES:
        return tensor
    texts = [
        text if text is None else _decode_text(kind, text, f"{where}.data[{index}]")
        for index, text in enumerate(tensor.values.ravel().tolist())
    ]
    return RequestTensor(tensor.name, BYTES, objects(texts, tensor.values.shape))


def _decode_text(kind: str, text: str, where: str) -> Any:
    try:
        return _READERS[kind](text)
    except (ValueError, RecursionError, binascii.Error):
        what = _MEANT.get(kind, kind)
        raise HttpError(
            f"this text does not read as {what}", where=where, found=repr(text[:40])[:40]
        ) from None


def common_type(kinds: Sequence[str | None]) -> str | None:
    """The form that an answer has, from the content types of a request and of its inputs."""
    if TABLE in kinds or TABLE_JSON in kinds:
        return TABLE
    return next((kind for kind in kinds if kind is not None), None)


def written(datatype: str) -> str:
    """The content type of an output, for clients that use content types."""
    return "str" if datatype == BYTES else "np"


def columns(
    name: str, array: NDArray[Any], classes: Sequence[str]
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The columns of a table that one output makes, named by classes that fit."""
    width = math.prod(array.shape[1:])
    if array.ndim < 2 or width == 1:
        yield name, array.reshape(len(array))
        return
    ends = classes if len(classes) == width else [str(index) for index in range(width)]
    for end, column in zip(ends, array.reshape(len(array), width).T, strict=True):
        yield f"{name}.{end}", column
