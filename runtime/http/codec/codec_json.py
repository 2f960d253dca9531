"""Requests and responses of the inference protocol as JSON.

Decoding is typed: numbers go from the text into one list and from there into the column. Bare NaN
and Infinity, which some clients send although they are not JSON, are handled by a slower decoder
that starts only after the fast one has refused the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

from runtime.http.codec import tensors
from runtime.http.codec.array_pieces import LARGE, ArrayPieces, array_pieces, check_weight, too_deep
from runtime.http.codec.number_arrays import LEAST_BYTES, ParsedArray, taken_out
from runtime.http.codec.number_texts import LEAST_NUMBERS, TEXTS, written
from runtime.http.codec.tensors import BYTES, DTYPES, FP16, datatype_of, objects
from runtime.http.wire.problems import HttpError

Parameters = dict[str, Any]


class TensorHead(Struct, gc=False):
    """A tensor of a request, without its data."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None


class RequestInput(TensorHead):
    """One input tensor of a request."""

    data: Raw | UnsetType = UNSET
    """Its text; an array after the native reader has read it."""


class LooseInput(TensorHead):
    """An input from text with bare NaN or Infinity; its data is decoded already."""

    data: Any = UNSET


class QuickInput(TensorHead, kw_only=True):
    """An input of plain numbers."""

    data: list[float]


class RequestOutput(Struct, gc=False):
    """One output that a request asks for."""

    name: str
    parameters: Parameters | None = None

    @property
    def is_text(self) -> bool:
        """True if its parameters say that it is wanted as JSON, and nothing else."""
        told = self.parameters or {}
        return len(told) == 1 and told.get("binary_data") is False


class RequestWishes(Struct, gc=False):
    """A request for inference, without its inputs."""

    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[RequestOutput] | None = None


class InferRequest(RequestWishes, kw_only=True):
    """The body of a request for inference."""

    inputs: list[RequestInput]


class LooseRequest(RequestWishes, kw_only=True):
    """A request from text with bare NaN or Infinity."""

    inputs: list[LooseInput]


class QuickRequest(RequestWishes, kw_only=True):
    """The common form of a request: plain numbers of one input, decoded in one step."""

    inputs: tuple[QuickInput]


Envelope = InferRequest | LooseRequest
AnyInput = RequestInput | LooseInput

_envelope = msgspec.json.Decoder(InferRequest)
_anything = msgspec.json.Decoder()
_FLOATS = list[float | None]
_KINDS: dict[str, Any] = {"f": _FLOATS, "i": list[int], "u": list[int], "b": list[bool]}
_TEXTS = list[str | None]
_plain_floats = msgspec.json.Decoder(list[float])
_decoders = {name: msgspec.json.Decoder(_KINDS[dtype.kind]) for name, dtype in DTYPES.items()} | {
    BYTES: msgspec.json.Decoder(_TEXTS)
}


def decode(body: bytes | memoryview) -> Envelope:
    """The request in a body; its data is still text, or has been read as numbers."""
    if len(body) >= LEAST_BYTES:
        request = _with_numbers(body)
        if request is not None:
            return request
    general: Envelope = decoded(body, _envelope, LooseRequest)
    return general


def _with_numbers(body: bytes | memoryview) -> Envelope | None:
    """The request, where the native reader has read some of its data."""
    rest, found = taken_out(body)
    if not found:
        return None
    if len(rest) > LARGE:
        check_weight(rest)
    try:
        request: InferRequest = _envelope.decode(rest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        if len(body) > LARGE:  # the general decoder would have too much to decode
            decoded(rest, _envelope, LooseRequest)
        return None  # the general decoder says what is wrong
    marked = [item for item in request.inputs if _is_marker(item.data)]
    if [bytes(cast("Raw", item.data)) for item in marked] != [
        b'"#%d"' % place for place in range(len(found))
    ]:
        return None
    for item, array in zip(marked, found, strict=True):
        item.data = cast("Raw", _data(item, array, body))
    return request


def _data(
    item: RequestInput, array: ParsedArray | ArrayPieces, body: bytes | memoryview
) -> Raw | NDArray[Any] | ArrayPieces:
    """Data of an input as it was read: numbers, pieces, or text again."""
    if isinstance(array, ArrayPieces):
        return array
    if item.datatype in _FLOAT_NAMES and array.fits(item.shape):
        return array.values
    long = array_pieces(body, array.start) if array.end - array.start > LARGE else None
    return long or Raw(bytes(body[array.start : array.end]))


def _is_marker(data: object) -> bool:
    return isinstance(data, Raw) and bytes(memoryview(data)[:2]) == b'"#'


_FLOAT_NAMES = {"FP32", "FP64"}


def decoded(
    body: bytes | memoryview | Raw, decoder: msgspec.json.Decoder[Any], loose: object
) -> Any:
    """Decode a body by a typed decoder, or by the slow one if it has bare NaN or Infinity."""
    if len(memoryview(body)) > LARGE:
        check_weight(memoryview(body))
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        raise refused(problem) from None
    except msgspec.DecodeError as problem:
        if _NOT_FINITE.search(memoryview(body)) is None:
            raise _no_json(memoryview(body), problem) from None
        return _loose(bytes(body), loose, problem)
    except UnicodeDecodeError:
        raise HttpError("the body is no UTF-8", hint="JSON is sent as UTF-8") from None
    except RecursionError:
        raise too_deep() from None


_NOT_FINITE, _NOT_SPACE = re.compile(b"NaN|Infinity"), re.compile(rb"[^ \t\r\n]")
#: Halves of surrogate pairs in JSON, and whole pairs.
_SURROGATES = re.compile(rb"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]|(\\u[dD][89a-fA-F]\w\w)")


def _no_json(body: memoryview | bytes, problem: Exception) -> HttpError:
    if _NOT_SPACE.search(body) is None:
        return HttpError("the body is empty", hint="JSON is expected")
    said = str(problem)
    if "truncated" in said or "surrogate" in said:  # one at the end of a text is told as an end
        for half in filter(None, (each[1] for each in _SURROGATES.finditer(body[:LARGE]))):
            return HttpError("half of a surrogate pair is no text", found=half.decode())
    return HttpError("the body is no JSON", found=said)


def _loose(body: bytes, kind: object, problem: Exception) -> Any:
    try:
        return converted(json.loads(body), kind)
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        raise _no_json(body, problem) from None


def converted(value: object, kind: object) -> Any:
    """A decoded value as one of a type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise refused(problem) from None


def refused(problem: msgspec.ValidationError, where: str = "$") -> HttpError:
    """A decoder's error as an HttpError."""
    what, _, path = str(problem).partition(" - at `$")
    hint = "float64 has numbers up to 1.8e308" if what == "Number out of range" else None
    return HttpError(what[:1].lower() + what[1:], where=where + path.removesuffix("`"), hint=hint)


# --- tensors in ----------------------------------------------------------------------------------


def values(item: AnyInput, where: str) -> NDArray[Any]:
    """The data of an input as an array in its shape."""
    tensors.check_datatype(item.datatype, where)
    if item.datatype == FP16:
        raise HttpError(
            "FP16 has no form in JSON", where=where, hint="send FP32, or raw tensors as binary data"
        )
    if item.data is UNSET:
        raise HttpError("this input has no data", where=where)
    tensors.count(item.shape, where)
    if isinstance(item.data, ArrayPieces):
        array = _joined(item, item.data, f"{where}.data")
        tensors.check_count(len(array), item.shape, where)
        return array.reshape(item.shape)
    if isinstance(item.data, np.ndarray):
        return _as_type(item.data, DTYPES[item.datatype], f"{where}.data").reshape(item.shape)
    flat = _data_list(item, item.shape, f"{where}.data")
    tensors.check_count(len(flat), item.shape, where)
    return as_array(flat, item.datatype, item.shape, f"{where}.data")


def _joined(item: AnyInput, pieces: ArrayPieces, where: str) -> NDArray[Any]:
    """Values, decoded in pieces, between which other threads can have the GIL."""
    arrays: list[NDArray[Any]] = []
    shape, count = [-1, *item.shape[1:]], 0
    for piece in pieces:
        place = f"{where}, after {count} values," if count else where
        try:
            flat = _data_list(item, shape, place, piece)
        except msgspec.DecodeError:  # it may have a bare NaN
            loose = decoded(piece, _anything, Any)
            flat = _flat(loose, shape, _decoders[item.datatype], place)
        arrays.append(as_array(flat, item.datatype, [len(flat)], where))
        count += len(flat)
    return np.concatenate(arrays)


def _data_list(
    item: AnyInput, shape: Sequence[int], where: str, piece: bytes | None = None
) -> list[Any]:
    """The data, or a piece of it, as one flat list; a number of rows of -1 is any."""
    decoder = _decoders[item.datatype]
    raw: Any = item.data if piece is None else piece
    if isinstance(item, LooseInput) and piece is None:
        return _flat(raw, shape, decoder, where)
    if decoder.type is _FLOATS:  # most data has no missing numbers
        try:
            return _plain_floats.decode(raw)
        except msgspec.ValidationError:
            pass
    try:
        flat: list[Any] = decoder.decode(raw)
        return flat
    except msgspec.ValidationError as problem:
        nested = decoded(raw, _anything, Any)
        if not (isinstance(nested, list) and nested and isinstance(nested[0], list)):
            raise refused(problem, where) from None
        return _flat(nested, shape, decoder, where)


def _flat(
    data: object, shape: Sequence[int], decoder: msgspec.json.Decoder[Any], where: str
) -> list[Any]:
    """Nested data as one list, checked against the shape and the type."""
    if isinstance(data, list) and data and isinstance(data[0], list):
        _check_level(bool(shape) and shape[0] in {-1, len(data)}, shape, where)
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
        # None is a missing number; for whole numbers the decoder has refused it.
        array = np.array(found, np.float64 if dtype.kind == "f" else dtype)
    except OverflowError:
        raise _too_much(dtype, where) from None
    return _as_type(array, dtype, where).reshape(shape)


def _as_type(array: NDArray[Any], dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype, copy=False)
    except FloatingPointError:
        raise _too_much(dtype, where) from None


def _too_much(dtype: np.dtype[Any], where: str) -> HttpError:
    return HttpError(f"a number is more than {datatype_of(dtype)} holds", where=where)


# --- tensors out ---------------------------------------------------------------------------------

Encode = Callable[[Any], bytes]


def _plain(value: object) -> object:
    """numpy's numbers and strings as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
encode: Encode = _encoder.encode


def encoded_values(values: NDArray[Any]) -> bytes:
    """The elements of an array, row by row; NaN and infinities become null."""
    if values.dtype.kind == "f" and values.size >= LEAST_NUMBERS and TEXTS.is_there:
        return b"[%b]" % b",".join(written(values.ravel()))
    return encoded_list(values.ravel())


def encoded_list(values: list[Any] | NDArray[Any]) -> bytes:
    """A list in pieces, between which other threads can have the GIL."""
    starts = range(0, len(values), _PIECE)
    if len(starts) <= 1:
        return encode(values.tolist() if isinstance(values, np.ndarray) else values)
    text, at = bytearray(), 0
    for start in starts:
        piece = values[start : start + _PIECE]
        _encoder.encode_into(piece.tolist() if isinstance(piece, np.ndarray) else piece, text, at)
        if at:  # its opening bracket is where the last one was closed
            text[at] = _COMMA
        at = len(text) - 1
    return bytes(text)


_PIECE, _COMMA = 2048, ord(",")


def tensor_head(
    name: str, datatype: str, shape: Sequence[int], parameters: Mapping[str, Any] | None = None
) -> bytes:
    """An output tensor up to its data, without the closing brace."""
    head: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    if parameters:
        head["parameters"] = parameters
    return encode(head)[:-1]
