"""Requests and responses of the inference protocol as JSON.

Decoding is typed: numbers go from the text into one list and from there into the column. Bare NaN
and Infinity, which some clients send although they are not JSON, are handled by a slower decoder
that starts only after the fast one has refused the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

from runtime.http.problems import HttpError
from runtime.http.tensors import BYTES, DTYPES, FP16, check_count, check_datatype, count, objects

Parameters = dict[str, Any]


class RequestInput(Struct):
    """One input tensor of a request."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: Raw | UnsetType = UNSET


class LooseInput(Struct):
    """The same from text with bare NaN or Infinity; its data is decoded already."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: Any = UNSET


class RequestOutput(Struct):
    """One output that a request asks for."""

    name: str
    parameters: Parameters | None = None


class InferRequest(Struct):
    """The body of a request for inference."""

    inputs: list[RequestInput]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[RequestOutput] | None = None


class LooseRequest(Struct):
    """The same from text with bare NaN or Infinity."""

    inputs: list[LooseInput]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[RequestOutput] | None = None


class QuickInput(Struct):
    """An input of plain numbers."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]
    parameters: Parameters | None = None


class QuickRequest(Struct):
    """The common form of a request: plain numbers, decoded in one step."""

    inputs: list[QuickInput]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[RequestOutput] | None = None


Envelope = InferRequest | LooseRequest

_envelope = msgspec.json.Decoder(InferRequest)
_anything = msgspec.json.Decoder()
_FLOATS = list[float | None]
_KINDS: dict[str, Any] = {"f": _FLOATS, "i": list[int], "u": list[int], "b": list[bool]}
_TEXTS = list[str | None]
_plain_floats = msgspec.json.Decoder(list[float])
_decoders = {name: msgspec.json.Decoder(_KINDS[dtype.kind]) for name, dtype in DTYPES.items()} | {
    BYTES: msgspec.json.Decoder(_TEXTS)
}


def decode(body: bytes) -> Envelope:
    """The request in a body; its data is still text."""
    request: Envelope = decoded(body, _envelope, LooseRequest)
    return request


def decoded(body: bytes, decoder: msgspec.json.Decoder[Any], loose: object) -> Any:
    """Decode a body by a typed decoder, or by the slow one if it has bare NaN or Infinity."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise refused(problem) from None
    except msgspec.DecodeError as problem:
        if b"NaN" not in body and b"Infinity" not in body:
            raise HttpError("the body is no JSON", found=str(problem)) from None
        return _loose(body, loose, problem)
    except UnicodeDecodeError:
        raise HttpError("the body is no UTF-8", hint="JSON is sent as UTF-8") from None
    except RecursionError:
        raise _too_deep() from None


def _loose(body: bytes, kind: object, problem: Exception) -> Any:
    try:
        return msgspec.convert(json.loads(body), kind)
    except msgspec.ValidationError as refusal:
        raise refused(refusal) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise HttpError("the body is no JSON", found=str(problem)) from None


def _too_deep() -> HttpError:
    return HttpError("the body is nested too deeply", hint="tensors have few dimensions")


def refused(problem: msgspec.ValidationError, where: str = "$") -> HttpError:
    """A decoder's error as an HttpError."""
    what, _, path = str(problem).partition(" - at `$")
    return HttpError(what[:1].lower() + what[1:], where=where + path.removesuffix("`"))


# --- tensors in ----------------------------------------------------------------------------------


def values(item: RequestInput | LooseInput, where: str) -> NDArray[Any]:
    """The data of an input as an array in its shape."""
    check_datatype(item.datatype, where)
    if item.datatype == FP16:
        raise HttpError(
            "FP16 has no form in JSON", where=where, hint="send FP32, or raw tensors as binary data"
        )
    if item.data is UNSET:
        raise HttpError("this input has no data", where=where)
    count(item.shape, where)
    flat = _data_list(item, f"{where}.data")
    check_count(len(flat), item.shape, where)
    return as_array(flat, item.datatype, item.shape, f"{where}.data")


def _data_list(item: RequestInput | LooseInput, where: str) -> list[Any]:
    """The data as one flat list."""
    decoder = _decoders[item.datatype]
    if isinstance(item, LooseInput):
        return _flat(item.data, item.shape, decoder, where)
    raw: Any = item.data
    if decoder.type is _FLOATS:  # most data has no missing numbers
        try:
            return _plain_floats.decode(raw)
        except msgspec.ValidationError:
            pass
    try:
        flat: list[Any] = decoder.decode(raw)
        return flat
    except msgspec.ValidationError as problem:
        nested = _nested(raw, where)
        if nested is None:
            raise refused(problem, where) from None
        return _flat(nested, item.shape, decoder, where)


def _nested(raw: Raw, where: str) -> list[Any] | None:
    """Nested data, still nested; None for other data."""
    try:
        decoded_data = _anything.decode(raw)
    except msgspec.ValidationError as problem:
        raise refused(problem, where) from None
    return (
        decoded_data
        if isinstance(decoded_data, list) and decoded_data and isinstance(decoded_data[0], list)
        else None
    )


def _flat(
    data: object, shape: Sequence[int], decoder: msgspec.json.Decoder[Any], where: str
) -> list[Any]:
    """Nested data as one list, checked against the shape and the type."""
    if isinstance(data, list) and data and isinstance(data[0], list):
        _check_level(len(data) == shape[0] if shape else False, shape, where)
        for size in shape[1:]:
            even = all(isinstance(row, list) and len(row) == size for row in data)
            _check_level(even, shape, where)
            data = list(chain.from_iterable(data))
    try:
        flat: list[Any] = msgspec.convert(data, decoder.type)
        return flat
    except msgspec.ValidationError as problem:
        raise refused(problem, where) from None


def _check_level(even: bool, shape: Sequence[int], where: str) -> None:  # noqa: FBT001 (a fact)
    if not even:
        raise HttpError(
            f"nested data has to have the shape {list(shape)}",
            where=where,
            hint="nest it as the shape says, or send it flat, row by row",
        )


def as_array(found: list[Any], datatype: str, shape: Sequence[int], where: str) -> NDArray[Any]:
    """Decoded values as an array."""
    if datatype == BYTES:
        return objects(found, shape)
    dtype = DTYPES[datatype]
    try:
        with np.errstate(over="raise"):
            # None is a missing number; for whole numbers the decoder has refused it.
            return (
                np.array(found, np.float64 if dtype.kind == "f" else dtype)
                .astype(dtype, copy=False)
                .reshape(shape)
            )
    except (OverflowError, FloatingPointError):
        raise HttpError(f"a number is more than {datatype} holds", where=where) from None


# --- tensors out ---------------------------------------------------------------------------------

Encode = Callable[[Any], bytes]


def _plain(value: object) -> object:
    """numpy's numbers and strings as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


encode: Encode = msgspec.json.Encoder(enc_hook=_plain).encode


def encoded_values(values: NDArray[Any]) -> bytes:
    """The elements of an array, row by row; NaN and infinities become null."""
    return encode(values.ravel().tolist())


def tensor_head(
    name: str, datatype: str, shape: Sequence[int], parameters: Mapping[str, Any] | None = None
) -> bytes:
    """An output tensor up to its data, without the closing brace."""
    head: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if parameters:
        head["parameters"] = parameters
    return encode(head)[:-1]
