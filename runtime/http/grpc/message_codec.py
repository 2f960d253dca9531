"""One version's codec for gRPC: from the message of a call to its data, and back to bytes.

Answers come as the inputs came: as raw bytes, or as typed contents. They are written without
objects of protobuf: nearly everything in the answer to a row is known before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite, prod
from struct import Struct
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.data.batch import Batch, row_batch
from runtime.http.codec import codec_binary, tensors
from runtime.http.codec.codec_arrow import ARROW
from runtime.http.codec.codec_json import InferRequest, RequestInput, RequestOutput, encode
from runtime.http.codec.content import TABLE, content_type, read
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.response_options import ResponseOptions
from runtime.http.codec.signature import TensorSpec
from runtime.http.codec.tensors import BYTES, DTYPES, FP16, RequestTensor, datatype_of, objects
from runtime.http.grpc.schemas import message_class, parsed
from runtime.http.wire.hpack import varint
from runtime.http.wire.messages import GRPC, JSON, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.service.answerers import InferCall

#: The field of typed contents for a datatype, and its number. FP16 has none.
_FIELDS = {
    "BOOL": ("bool_contents", 1),
    **dict.fromkeys(("INT8", "INT16", "INT32"), ("int_contents", 2)),
    "INT64": ("int64_contents", 3),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), ("uint_contents", 4)),
    "UINT64": ("uint64_contents", 5),
    "FP32": ("fp32_contents", 6),
    "FP64": ("fp64_contents", 7),
    BYTES: ("bytes_contents", 8),
}
#: The letters of struct for numbers of eight bytes, whose own letters mean four there.
_LONG = {"l": "q", "L": "Q"}
#: Texts of an output whose bytes are kept: labels repeat.
_TEXTS = 256
#: Beginnings of calls that are kept, and the bytes that a row has less than.
_BEGINNINGS, _SHORT = 256, 1024
REQUEST = "inference.ModelInferRequest"


def field(number: int, data: bytes | memoryview) -> bytes:
    """A field of bytes, text, a message or packed numbers."""
    return b"".join((bytes((number << 3 | 2,)), varint(len(data)), data))


def _parameter(name: str, text: str) -> bytes:
    """An entry of `parameters` with a text."""
    return field(4, field(1, name.encode()) + field(2, field(3, text.encode())))


def plain_message(body: bytes, kind: str, raw: int) -> bytes:
    """The end of a message whose one element, in this field, is a body of `/predict/{model}`."""
    element = field(raw, len(body).to_bytes(4, "little") + body)
    return _parameter("content_type", kind) + field(5, tensor_head("rows", BYTES, (1,))) + element


class _CallTensor(Protocol):
    """An input of a call, or an output that it asks for."""

    name: str
    datatype: str
    shape: Sequence[int]
    parameters: Mapping[str, Any]
    contents: Any


class InferMessage(Protocol):
    """A call for inference, as protobuf has read it."""

    model_name: str
    model_version: str
    id: str
    parameters: Mapping[str, Any]
    inputs: Sequence[_CallTensor]
    outputs: Sequence[_CallTensor]
    raw_input_contents: Sequence[bytes]

    def SerializeToString(self, *, deterministic: bool) -> bytes:  # noqa: N802 (protobuf's name)
        """Its bytes."""


class Beginning(NamedTuple):
    """Everything of a call but the bytes of its row, which are its last."""

    params: dict[str, str]
    """The variables of a path that name the model."""
    datatype: str
    shape: tuple[int, ...]


class Beginnings:
    """Calls that differ only in their row: what is before it is read once."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # of rows, by that of the whole message
        self._known: dict[bytes, Beginning] = {}

    def find(self, body: bytes) -> Beginning | None:
        """The beginning of a message, if it is known."""
        size = self._sizes.get(len(body))
        return None if size is None else self._known.get(body[:-size])

    def remember(self, body: bytes, message: InferMessage, params: dict[str, str]) -> None:
        """Keep the beginning of a message that ends with its one row, as most of them do."""
        raw, inputs = message.raw_input_contents, message.inputs
        if message.id or len(raw) != 1 or len(inputs) != 1 or not 0 < len(raw[0]) < _SHORT:
            return
        if message.parameters or message.outputs or inputs[0].parameters:
            return
        if inputs[0].contents.ListFields():  # which is refused
            return
        if message.SerializeToString(deterministic=True) != body:  # raw contents are not its end
            return
        if len(self._known) >= _BEGINNINGS:
            self._known.clear()
            self._sizes.clear()
        self._sizes[len(body)] = len(raw[0])
        made = Beginning(params, inputs[0].datatype, tuple(inputs[0].shape))
        self._known[body[: -len(raw[0])]] = made


class MessageCodec(ModelCodec):
    """The codec of a version for calls whose inputs are raw, or typed."""

    __slots__ = ("_begin", "_raw_inputs", "_row", "_shape", "_usual", "_writers")

    content_type = GRPC

    def __init__(self, front: ModelCodec, *, raw: bool) -> None:
        super().__init__(front.version)
        self.counts, self.rows, self._raw_inputs, self.block = front.counts, None, raw, b""
        version = front.version
        self._begin = field(1, version.name.encode()) + field(2, version.version.encode())
        names = self.usual or tuple(version.kinds)
        specs = [spec for spec in self.outputs if spec.name in names]
        #: The answer to one row: what is always the same, and what writes each output.
        self._usual = self._begin
        if raw:
            heads = [tensor_head(each.name, each.datatype, (1, *each.shape[1:])) for each in specs]
            self._usual += b"".join(field(5, head) for head in heads)
        self._writers = [_writer(each, raw=raw) for each in specs]
        self._shape = 1, self.quick_width
        self._row = Struct(f"<{self.quick_width}{'d' if self.quick_type == 'FP64' else 'f'}")

    # --- requests ----------------------------------------------------------------------------

    def quick(self, request: Request) -> tuple[ModelCodec, Batch, str | None] | None:
        """The codec, the row or block and the id of a call without options; None for others."""
        message = request.message
        if type(message) is Beginning:
            fits = message.datatype == self.quick_type and message.shape == self._shape
            body = request.body
            row = fits and list(self._row.unpack_from(body, len(body) - self._row.size))
            # Numbers that are not finite are for the usual way to judge.
            return (self, row_batch(row), None) if row and isfinite(sum(row)) else None
        inputs = message.inputs
        if len(inputs) != 1 or message.parameters or message.outputs:
            return None
        (item,) = inputs
        if item.datatype != self.quick_type or item.parameters:
            return None
        values = self._row_of(item, message.raw_input_contents)
        batch = self.numbers(item.shape, values) if isfinite(sum(values)) else None
        return None if batch is None else (self, batch, message.id or None)

    def _row_of(self, item: _CallTensor, raw: Sequence[bytes]) -> list[float]:
        """The numbers of an input; none if they are raw, and not one row."""
        if raw:
            fits = len(raw) == 1 and len(raw[0]) == self._row.size
            fits = fits and not item.contents.ListFields()
            return list(self._row.unpack(raw[0])) if fits else []
        data = item.contents
        return list(data.fp64_contents if self.quick_type == "FP64" else data.fp32_contents)

    def decode(self, request: Request) -> tuple[InferCall, ResponseOptions]:
        """Any call, with what is wished of its answer."""
        message = request.message
        if type(message) is Beginning:
            message = parsed(REQUEST, request.body)
        wished = [RequestOutput(each.name, _values(each.parameters)) for each in message.outputs]
        asked = InferRequest(
            message.id or None,
            _values(message.parameters),
            wished or None,
            inputs=[
                RequestInput(each.name, [*each.shape], each.datatype, _values(each.parameters))
                for each in message.inputs
            ],
        )
        return self.read(asked, request, lambda: _tensors(asked, message))

    # --- responses ---------------------------------------------------------------------------

    def encode_row(self, answers: tuple[Any, ...], name: str | None) -> bytes:
        """The answer to one row: what is known before, with the values in between."""
        parts = [write(value) for write, value in zip(self._writers, answers, strict=True)]
        if name is not None:
            parts.append(field(3, name.encode()))
        return self._usual + b"".join(parts)

    def encode(self, answers: Mapping[str, Any], wished: ResponseOptions) -> Response:
        """The answer to a block of rows."""
        parts, raw = [self._begin], list[bytes]()
        if wished.id is not None:
            parts.append(field(3, wished.id.encode()))
        if wished.content == TABLE:
            parts.append(_parameter("content_type", TABLE))
        if wished.attribution is not None:
            parts.append(_parameter("attribution", encode(wished.attribution).decode()))
        for _, name, values, kind in self.tensors(answers, wished):
            datatype = datatype_of(values.dtype)
            head = tensor_head(name, datatype, values.shape)
            if kind is not None:
                head += _parameter("content_type", kind)
            if self._raw_inputs:
                raw.append(field(6, codec_binary.raw_values(values, datatype)))
            else:
                head += _contents(values, datatype)
            parts.append(field(5, head))
        return Response(b"".join((*parts, *raw)), content_type=GRPC)


def codec_of(front: ModelCodec, message: InferMessage | Beginning) -> ModelCodec:
    """The codec for a message."""
    if not front.messages:
        front.messages = MessageCodec(front, raw=False), MessageCodec(front, raw=True)
    raw = isinstance(message, Beginning) or bool(message.raw_input_contents)
    return front.messages[raw]


def plain_body(message: InferMessage) -> bytes | None:
    """The body of `/predict/{model}` in a message; None for tensors."""
    kind = _values(message.parameters).get("content_type")
    if kind not in {JSON, ARROW}:
        return None
    elements = [data for each in message.inputs for data in each.contents.bytes_contents]
    elements += [raw[4:] for raw in message.raw_input_contents]  # behind its length
    if len(elements) != 1:
        what = f"{kind} is the one element of the one input"
        raise HttpError(what, where="inputs", found=f"{len(elements)} elements")
    return bytes(elements[0])


def plain_answer(model: str, response: Response) -> Response:
    """An answer of `/predict/{model}` as a message."""
    made = field(1, model.encode()) + plain_message(response.body, response.content_type, 6)
    return Response(made, content_type=GRPC, headers=response.headers)


def _writer(spec: TensorSpec, *, raw: bool) -> Callable[[Any], bytes]:
    """A function that writes the values of an output for one row."""
    shape, datatype = (1, *spec.shape[1:]), spec.datatype
    head = tensor_head(spec.name, datatype, shape)

    def write(array: NDArray[Any]) -> bytes:
        if raw:
            return field(6, codec_binary.raw_values(array, datatype))
        return field(5, head + _contents(array, datatype))

    if datatype == BYTES:
        known: dict[object, bytes] = {}

        def write_text(value: object) -> bytes:
            if isinstance(value, np.ndarray):
                return write(value)
            if len(known) >= _TEXTS:
                known.clear()
            return known.get(value) or known.setdefault(value, write(objects([value], [1])))

        return write_text
    dtype = DTYPES[datatype]
    if raw or datatype in {"FP32", "FP64"}:  # such numbers have always as many bytes
        ahead = write(np.zeros(shape, dtype))[: -dtype.itemsize * prod(shape)]
        one = Struct("<" + _LONG.get(dtype.char, dtype.char)).pack
        many = partial(codec_binary.raw_values, datatype=datatype)
        return lambda value: ahead + (many if type(value) is np.ndarray else one)(value)
    return lambda value: write(np.asarray(value, dtype).reshape(shape))


def tensor_head(name: str, datatype: str, shape: Sequence[int]) -> bytes:
    """The name, datatype and shape of an output."""
    sizes = b"".join(map(varint, shape))
    return field(1, name.encode()) + field(2, datatype.encode()) + field(3, sizes)


def _contents(values: NDArray[Any], datatype: str) -> bytes:
    """The typed contents of an output, as a field of it."""
    if datatype not in _FIELDS:
        raise _untyped("outputs")
    name, number = _FIELDS[datatype]
    if datatype == BYTES:
        texts = (each if isinstance(each, str) else "" for each in values.ravel())
        made = b"".join(field(number, each.encode()) for each in texts)
    elif datatype in {"FP32", "FP64"}:
        made = field(number, codec_binary.raw_values(values, datatype)) if values.size else b""
    else:
        made = message_class("inference.InferTensorContents")(
            **{name: values.ravel().tolist()}
        ).SerializeToString()
    return field(5, made)


def _tensors(asked: InferRequest, message: InferMessage) -> list[RequestTensor]:
    """The inputs of a call."""
    raw, tensors = message.raw_input_contents, []
    common = content_type(asked.parameters, "$")
    if raw and len(raw) != len(asked.inputs):
        raise HttpError(
            "each input has its raw contents, or none has",
            where="raw_input_contents",
            found=f"{len(raw)} for {len(asked.inputs)} inputs",
        )
    for index, (item, told) in enumerate(zip(asked.inputs, message.inputs, strict=True)):
        where = f"inputs[{index}]"
        if raw:
            if told.contents.ListFields():
                raise HttpError("an input has raw contents and typed ones", where=where)
            view = memoryview(raw[index])
            array = codec_binary.values(view, item.datatype, item.shape, where)
        else:
            array = _typed(item, told, where)
        tensor = RequestTensor(item.name, item.datatype, array)
        tensors.append(read(tensor, content_type(item.parameters, where) or common, where))
    return tensors


def _typed(item: RequestInput, told: _CallTensor, where: str) -> NDArray[Any]:
    tensors.check_datatype(item.datatype, where)
    if item.datatype == FP16:
        raise _untyped(where)
    name, _ = _FIELDS[item.datatype]
    contents = told.contents
    filled = [each.name for each, _ in contents.ListFields()]
    if filled not in ([], [name]):
        raise HttpError(
            f"the contents of a {item.datatype} tensor are {name}",
            where=f"{where}.contents",
            found=", ".join(filled),
        )
    data = getattr(contents, name)
    tensors.check_count(len(data), item.shape, where)
    if item.datatype == BYTES:
        texts = [codec_binary.text(each, where, at) for at, each in enumerate(data)]
        return objects(texts, item.shape)
    try:
        made = np.array(data, DTYPES[item.datatype])
    except OverflowError:
        made = None
    if made is None or (item.datatype[:2] != "FP" and made.tolist() != list(data)):
        raise HttpError(f"a number is too large for {item.datatype}", where=f"{where}.contents")
    return made.reshape(item.shape)


def _untyped(where: str) -> HttpError:
    return HttpError("FP16 has no typed contents", where=where, hint="send and ask for raw ones")


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as values of Python."""
    return {
        name: getattr(told, kind)
        for name, told in parameters.items()
        if (kind := told.WhichOneof("choice"))
    }
