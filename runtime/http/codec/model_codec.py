"""One version's codec: from the bytes of a request to the data of a call, and back.

What can be worked out once is: the decoder for requests as most are, the bytes that every answer
begins with, the tensors that metadata lists. A `ModelCodec` belongs to one version and goes with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError
from flour.core.types import FLOATS, Category, Record, Scalar, Text, Tokens, Type, Vector
from flour.data.batch import Batch, Form, row_batch
from runtime.http.codec import codec_binary, codec_json, tensors
from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.codec_json import Envelope, encode, encoded_values, tensor_head
from runtime.http.codec.content import TABLE, TABLE_JSON, columns, content_type, read, written
from runtime.http.codec.direct_inputs import DirectInputs, RowDecoder
from runtime.http.codec.number_texts import LEAST_NUMBERS
from runtime.http.codec.response_options import NOTHING, OutputOptions, ResponseOptions
from runtime.http.codec.signature import TensorSpec, call_data, specs
from runtime.http.codec.tensors import BYTES, DTYPES, RequestTensor, datatype_of, objects
from runtime.http.wire import messages
from runtime.http.wire.messages import HEADER_LENGTH, JSON, OCTETS, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.service.answerers import InferCall
from runtime.service.entry import Outputs
from runtime.service.version import ModelVersion

_quick = msgspec.json.Decoder(codec_json.QuickRequest)
_ARRAY, _OBJECT = np.ndarray, np.dtype(object)
#: The first number that is infinite in float32.
_INFINITE = 2.0**128 - 2.0**103
#: The name, datatype, dtype and sizes of a row of an output.
DenseOutput = tuple[str, str, np.dtype[Any], tuple[int, ...]]
#: Choices of outputs that codecs are kept for.
_MOST_NARROWED = 64
#: The outputs of classifiers, regressors and transformers that `predict` or `transform` returns.
_PREDICTED = ("label", "value", "features")


class CallCounts:
    """Calls of one version; only the event loop's thread counts. A context that fails is one."""

    __slots__ = ("calls", "failed", "rows", "seconds")

    def __init__(self) -> None:
        self.calls = self.failed = self.rows = 0
        self.seconds = 0.0

    def done(self, rows: int, seconds: float) -> None:
        """One more call was answered."""
        self.calls += 1
        self.rows += rows
        self.seconds += seconds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.failed += kind is not None


class ModelCodec:
    """The front end's prepared decoding and encoding for one version."""

    __slots__ = (
        *("block", "class_names", "counts", "dense", "direct", "inputs", "messages", "origin"),
        *("_narrowed", "outputs", "places", "prefix", "quick_type", "quick_width", "row"),
        *("rows", "usual", "version"),
    )

    #: The type of its answers that are not binary.
    content_type = JSON

    def __init__(self, version: ModelVersion) -> None:
        self.version, self.counts = version, CallCounts()
        self.inputs: tuple[TensorSpec, ...] = specs(version.inputs, inputs=True)
        self.outputs: tuple[TensorSpec, ...] = specs(version.kinds, inputs=False)
        #: The inputs, or columns, whose numbers become float32; and "" if there are no others.
        #: The text of each class, where the program has a label for each.
        self.class_names = tuple(
            label if isinstance(label, str) else encode(label).decode()
            for label in version.classes or ()
        )
        names = {"model_name": version.name, "model_version": version.version}
        self.prefix = encode(names)[:-1]
        #: What is answered to those who name no outputs; None for everything.
        self.usual = _usual(version)
        #: Where they are among the outputs, None for everything; their form, and the answers to one
        #: row and to several, with places for the id and for each: empty where one is no array.
        form = _form(version, self.prefix, self.usual or version.outputs)
        self.places, self.dense, self.row, self.block = form
        kind = next(iter(version.inputs.values()))
        numbers = len(version.inputs) == 1 and isinstance(kind, Vector) and kind.dtype in FLOATS
        numbers = numbers and is_dense(kind) and all(map(is_dense, version.kinds.values()))
        self.quick_type = self.inputs[0].datatype if numbers else ""
        self.quick_width = kind.width if isinstance(kind, Vector) else 0
        #: Which arrays go to the plan's entry.
        self.direct = DirectInputs(version)
        #: Reader of rows that come as columns; None where there is none.
        reader = RowDecoder(version, version.inputs if self.dense else {}, self.direct)
        self.rows = reader or None
        #: The headers that say which plan answers; made for the first answer in binary.
        self.origin: tuple[tuple[str, str], ...] = ()
        #: The codecs of gRPC, made for the first call.
        self.messages: tuple[ModelCodec, ...] = ()
        #: This codec by outputs that were named; under (), that of `predicting`.
        self._narrowed: dict[tuple[str, ...], ModelCodec] = {}

    @property
    def predicting(self) -> ModelCodec:
        """This codec for those who expect what `predict` returned, unless a note names outputs."""
        made = self._narrowed.get(())
        if made is None:
            found = [name for name in _PREDICTED if name in self.version.kinds]
            noted = not found or self.version.notes.get("default_outputs")
            made = self._narrowed[()] = self if noted else self.answering((found[0],))
        return made

    def answering(self, outputs: tuple[str, ...]) -> ModelCodec:
        """This codec for those who want these outputs, in this order; some are kept."""
        made = self._narrowed.get(outputs)
        if made is None:
            made, kinds = copy(self), {name: self.version.kinds[name] for name in outputs}
            made.usual, made.outputs = outputs, specs(kinds, inputs=False)
            form = _form(self.version, self.prefix, outputs)
            made.places, made.dense, made.row, made.block = form
            if len(self._narrowed) >= _MOST_NARROWED:
                self._narrowed.clear()
            self._narrowed[outputs] = made
        return made

    def _naming(self, outputs: Sequence[codec_json.RequestOutput]) -> ModelCodec | None:
        """This codec for outputs that are named to be answered as JSON; None for other wishes."""
        names = tuple([each.name for each in outputs if not each.parameters or each.is_text])
        if len(names) < len(outputs):
            return None
        made = self._narrowed.get(names)
        if made is None and len({*names}) == len(names) and {*names} <= self.version.kinds.keys():
            made = self.answering(names)
        return made if made is not None and made.dense else None

    # --- requests ----------------------------------------------------------------------------

    def quick(self, request: Request) -> tuple[ModelCodec, Batch, str | None] | None:
        """The codec of the answer, the rows and the id of a usual request; None for others."""
        body = request.body
        found = self._vectors(body) if self.rows is None else self.rows.read(body)
        if found is None:
            return None
        batch, asked = found
        front = self._naming(asked.outputs) if asked.outputs else self
        return None if front is None else (front, batch, asked.id)

    def _vectors(self, body: bytes | memoryview) -> tuple[Batch, codec_json.RequestWishes] | None:
        """The rows of a request that are numbers of the one input, and the rest of it."""
        try:
            asked = _quick.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None  # the long way says what is wrong, if anything is
        (item,) = asked.inputs
        if item.datatype != self.quick_type or item.parameters or asked.parameters:
            return None
        if item.datatype == "FP32" and max(map(abs, item.data), default=0.0) >= _INFINITE:
            return None
        batch = self.numbers(item.shape, item.data)  # msgspec has looked at every value
        return None if batch is None else (batch, asked)

    def numbers(self, shape: Sequence[int], data: list[float]) -> Batch | None:
        """The row or block of the one input of numbers; None if the shape is another."""
        width = self.quick_width
        if len(data) == width and shape == [1, width]:
            return row_batch(data)
        if len(shape) != 2 or shape[1] != width or shape[0] * width != len(data) or shape[0] < 2:
            return None
        array = np.array(data, DTYPES[self.quick_type]).reshape(shape)
        return Batch(Form.ARRAYS, array, len(array), single=False)

    def decode(self, request: Request) -> tuple[InferCall, ResponseOptions]:
        """Any request, as a call and what is wished of its answer."""
        header = request.header(HEADER_LENGTH)
        body = request.body
        size = len(body) if header is None else _header_size(header, len(body))
        if header is not None and size == 0:
            return self._raw(body), NOTHING
        asked = codec_json.decode(body if header is None else body[:size])
        reader = codec_binary.TensorReader(body, size)
        return self.read(asked, request, partial(self._tensors, asked, reader))

    def read(
        self, asked: Envelope, request: Request, tensors_of: Callable[[], list[RequestTensor]]
    ) -> tuple[InferCall, ResponseOptions]:
        """A decoded request as a call, with what is wished of its answer."""
        told: Any = None
        try:
            tensors = tensors_of()
            reader = self.version.reader
            told = call_data(self.version.inputs, tensors)
            if not reader.nulls.idle:
                told = reader.nulls.settled(told, spoken=True)
            batch = reader.read(told).as_block
        except Exception:
            self.version.refused(self._loose(asked) if told is None else told)
            raise
        wished = ResponseOptions.of(asked, request)
        return self.call(batch, wished), wished

    def _loose(self, asked: Envelope) -> object:
        """Return the readable part of tensors that cannot be read as a whole."""
        found = {item.name: _rows_of(item) for item in asked.inputs}
        only = len(found) == 1 and len(self.version.inputs) == 1
        return next(iter(found.values())) if only else found

    def _tensors(self, asked: Envelope, reader: codec_binary.TensorReader) -> list[RequestTensor]:
        common = content_type(asked.parameters, "$")
        items: Sequence[codec_json.AnyInput] = asked.inputs
        tensors = []
        for index, item in enumerate(items):
            where = f"$.inputs[{index}]"
            size = codec_binary.binary_size(item.parameters, where)
            if size is None:
                array = codec_json.values(item, where)
            else:
                raw = reader.take(size, where)
                array = codec_binary.values(raw, item.datatype, item.shape, where)
            tensor = RequestTensor(item.name, item.datatype, array)
            tensors.append(read(tensor, content_type(item.parameters, where) or common, where))
        reader.finish()
        return tensors

    def _raw(self, body: bytes | memoryview) -> InferCall:
        """A body that is the one input and nothing else."""
        if len(self.inputs) != 1:
            names = ", ".join(spec.name for spec in self.inputs[:20])
            raise HttpError("a body without JSON is for models with one input", found=names)
        spec = self.inputs[0]
        view = memoryview(body)
        if spec.datatype == BYTES:  # one element, as its length says
            array = codec_binary.values(view, BYTES, [1], spec.name)
        else:
            width = max(1, spec.shape[-1]) if len(spec.shape) == 2 else 1
            size = DTYPES[spec.datatype].itemsize * width
            if not body or len(body) % size:
                raise HttpError(
                    f"a row takes {size} bytes", where=spec.name, found=f"{len(body)} bytes"
                )
            shape = [len(body) // size, *spec.shape[1:]]
            array = codec_binary.values(view, spec.datatype, shape, spec.name)
        data = call_data(self.version.inputs, [RequestTensor(spec.name, spec.datatype, array)])
        try:
            batch = self.version.reader.read(data)
        except Exception:
            self.version.refused(data)
            raise
        return self.call(batch.as_block, NOTHING)

    def call(self, batch: Batch, wished: ResponseOptions) -> InferCall:
        """The call for a batch."""
        outputs = self.usual
        if wished.outputs is not None:
            outputs = tuple(dict.fromkeys(map(self._source, wished.outputs)))
        return InferCall(self.version, batch, outputs, wished.timeout, wished.priority)

    def _source(self, wish: OutputOptions) -> str:
        """The program's output that a tensor comes from."""
        names = {spec.name for spec in self.outputs}
        if wish.name not in names:
            raise HttpError(
                f"the model has no output {wish.name!r}"[:200],
                where="$.outputs",
                hint="its outputs are " + ", ".join(spec.name for spec in self.outputs[:20]),
            )
        return wish.name if wish.name in self.version.kinds else wish.name.split(".")[0]

    # --- responses ---------------------------------------------------------------------------

    def answered(
        self, request: Request, batch: Batch, answers: Outputs, name: str | None
    ) -> Response:
        """The answer to a request without options, which is counted."""
        places = self.places
        chosen = answers if places is None else tuple([answers[index] for index in places])
        text = (self.encode_row if batch.single else self.encode_block)(chosen, name)
        if not text:
            text = self.encode(self.told(answers), ResponseOptions(id=name)).body
        self.counts.done(batch.rows, perf_counter() - request.started)
        return Response(text, 200, self.content_type)

    def encode_row(self, answers: Outputs, name: str | None) -> bytes:
        """The answer to one row: the bytes that are known before, with the values in between."""
        values = [b"" if name is None else b',"id":' + encode(name)]
        for value in answers:  # vectors are arrays, anything else is a value of Python's
            values.append(encode(value.tolist() if type(value) is _ARRAY else value))  # noqa: PERF401 (slower)
        return self.row % tuple(values)

    def encode_block(self, answers: Outputs, name: str | None) -> bytes:
        """The answer to some rows; empty where an output is not as the program says."""
        if not self.block:
            return b""
        values: list[Any] = [b"" if name is None else b',"id":' + encode(name)]
        for value, (_, _, dtype, sizes) in zip(answers, self.dense):  # noqa: B905 (it is hot)
            if type(value) is not _ARRAY or value.dtype != dtype or value.shape[1:] != sizes:
                return b""
            few = value.size < LEAST_NUMBERS
            text = encode(value.ravel().tolist()) if few else encoded_values(value)
            values += (len(value), text if sizes else text[1:-1])
        return self.block % tuple(values)

    def as_block(self, answers: tuple[Any, ...]) -> tuple[Any, ...]:
        """The outputs for one row as those for a block of it."""
        kinds = self.version.kinds.values()
        return tuple(_block(kind, value) for kind, value in zip(kinds, answers, strict=True))

    def told(self, answers: Outputs, wished: ResponseOptions = NOTHING) -> dict[str, Any]:
        """The outputs by name: those that are answered to who names none, else all."""
        values = dict(zip(self.version.outputs, answers, strict=True))
        if self.usual is None or wished.outputs is not None:
            return values
        return {name: values[name] for name in self.usual}

    def encode(self, answers: Mapping[str, Any], wished: ResponseOptions) -> Response:
        """The answer to a block of rows."""
        heads: list[bytes] = []
        raw: list[bytes | memoryview] = []
        for binary, name, values, kind in self.tensors(answers, wished):
            datatype = datatype_of(values.dtype)
            parameters: dict[str, Any] = {} if kind is None else {"content_type": kind}
            if binary:
                raw.append(codec_binary.raw_values(values, datatype))
                parameters["binary_data_size"] = len(raw[-1])
                heads.append(tensor_head(name, datatype, values.shape, parameters) + b"}")
            else:
                head = tensor_head(name, datatype, values.shape, parameters)
                heads.append(b"".join((head, b',"data":', encoded_values(values), b"}")))
        header = self._header(heads, wished)
        if not raw:
            return Response(header)
        self.origin = self.origin or self._origin()
        headers = (HEADER_LENGTH, str(len(header))), *self.origin
        return Response(b"".join((header, *raw)), content_type=OCTETS, headers=headers)

    def tensors(
        self, answers: Mapping[str, Any], wished: ResponseOptions
    ) -> Iterator[tuple[bool, str, NDArray[Any], str | None]]:
        """The tensors of an answer: True if binary, name, values and content type of each."""
        arrays = dict(self._arrays(answers))
        wanted = wished.outputs or tuple(
            OutputOptions(spec.name, wished.binary) for spec in self.outputs if spec.name in arrays
        )
        for wish in wanted:
            array = arrays[wish.name]
            if wish.classes:
                array = tensors.top_classes(array, wish.classes, self.version.classes)
            for name, values, kind in self._parts(wish, array, wished.content):
                yield wish.binary, name, values, kind

    def _origin(self) -> tuple[tuple[str, str], ...]:
        plan = messages.PLAN_HEADER, self.version.digest
        with suppress(FlourError):  # no answer depends on what is known of the training
            stands_for = str(self.version.training.get("parity_of", ""))
            if stands_for.isalnum() and stands_for.isascii():
                return plan, (messages.PARITY_OF, stands_for)
        return (plan,)

    def _parts(
        self, wish: OutputOptions, array: NDArray[Any], content: str | None
    ) -> Iterator[tuple[str, NDArray[Any], str | None]]:
        """The tensors that an output is sent as, with their content types."""
        usual = None if content is None else written(datatype_of(array.dtype))
        if content != TABLE or wish.content not in {None, TABLE}:
            yield wish.name, array, usual
            return
        if isinstance(self.version.kinds.get(wish.name), Tokens):
            usual = TABLE_JSON
        names = self.class_names if wish.name == "probabilities" and not wish.classes else ()
        for name, column in columns(wish.name, array, names):
            yield name, column, usual

    def _header(self, heads: list[bytes], wished: ResponseOptions) -> bytes:
        parts = [self.prefix]
        if wished.id is not None:
            parts += (b',"id":', encode(wished.id))
        parameters: dict[str, Any] = {"content_type": TABLE} if wished.content == TABLE else {}
        if wished.attribution is not None:
            parameters["attribution"] = wished.attribution
        if parameters:
            parts += (b',"parameters":', encode(parameters))
        return b"".join((*parts, b',"outputs":[', b",".join(heads), b"]}"))

    def _arrays(self, answers: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in answers.items():
            if type(value) is not _ARRAY and isinstance(value, Mapping):
                yield from self._arrays(value, f"{before}{name}.")
            else:
                yield before + name, _array(value)


def _rows_of(item: codec_json.AnyInput) -> list[Any]:
    """Return a value or a list for each row of a tensor that cannot be read."""
    data, rows = item.data, item.shape[0] if item.shape else 1
    if isinstance(data, msgspec.Raw) and len(memoryview(data)) <= LARGE:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            data = msgspec.json.decode(data)
    if not isinstance(data, list) or not 0 < rows <= len(data) or len(data) % rows:
        return [None]
    wide = len(data) // rows
    return data if wide == 1 else [data[at : at + wide] for at in range(0, len(data), wide)]


def _usual(version: ModelVersion) -> tuple[str, ...] | None:
    """The outputs that stand for all, where the registration names them."""
    told = version.notes.get("default_outputs")
    names = tuple(name for name in version.kinds if isinstance(told, tuple) and name in told)
    return names if names and len(names) < len(version.kinds) else None


def is_dense(kind: Type) -> bool:
    """True if its values for a block of rows are one array."""
    return isinstance(kind, Scalar | Category | Text) or (
        isinstance(kind, Vector) and not kind.sparse
    )


def _block(kind: Type, value: Any) -> Any:
    if isinstance(kind, Vector):
        return value if hasattr(value, "toarray") else np.asarray(value)[None]
    if isinstance(kind, Tokens):
        return [value]
    if isinstance(kind, Record):
        return {name: _block(part, value[name]) for name, part in kind.fields if name in value}
    dtype = kind.dtype if isinstance(kind, Scalar | Category) else "string"
    return objects([value], [1]) if dtype == "string" else np.array([value], dtype)


def _header_size(text: str, body: int) -> int:
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not 0 <= size <= body:
        raise HttpError(
            f"{HEADER_LENGTH} is how many bytes of the body are JSON",
            found=f"{text[:20]!r} of {body} bytes",
        )
    return size


def _array(value: Any) -> NDArray[Any]:
    """An output as an array; rows of words as rows of JSON."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "toarray"):
        dense: NDArray[Any] = value.toarray()
        return dense
    return objects([encode(words).decode() for words in value], [len(value)])


def _dense(version: ModelVersion, names: Sequence[str]) -> list[DenseOutput]:
    """The form of these outputs; nothing if one is no array."""
    if not all(is_dense(version.kinds[name]) for name in names):
        return []
    found = specs({name: version.kinds[name] for name in names}, inputs=False)
    return [
        (each.name, each.datatype, DTYPES.get(each.datatype, _OBJECT), each.shape[1:])
        for each in found
    ]


def _form(
    version: ModelVersion, prefix: bytes, names: tuple[str, ...]
) -> tuple[tuple[int, ...] | None, list[DenseOutput], bytes, bytes]:
    """The places of outputs, None for all as they are, their form and templates of answers."""
    places = None if names == version.outputs else tuple(map(version.outputs.index, names))
    dense = _dense(version, names)
    row, block = [_template(prefix, dense, rows) if dense else b"" for rows in (1, None)]
    return places, dense, row, block


def _template(prefix: bytes, outputs: Sequence[DenseOutput], rows: int | None) -> bytes:
    """The answer with places for the id, each output and, if it is not known, its rows."""
    tensors = []
    for name, datatype, _, sizes in outputs:
        head = tensor_head(name, datatype, [rows or 0, *sizes]).replace(b"%", b"%%")
        if rows is None:
            before, _, after = head.rpartition(b"[0")
            head = before + b"[%d" + after
        tensors.append(head + (b',"data":%b}' if sizes else b',"data":[%b]}'))
    return prefix.replace(b"%", b"%%") + b'%b,"outputs":[' + b",".join(tensors) + b"]}"
