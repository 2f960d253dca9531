"""Rows of a call in the forms that people have them, and answers in the form of the rows.

Frames of pandas, polars and pyarrow go as Arrow, columns and arrays as tensors, and rows one by one
as plain JSON. Messages of gRPC have Arrow and JSON as the one element of a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from flour.core.errors import ParameterError
from flour.core.http1 import Reply
from flour.data.arrow_reader import library
from runtime.client.links import CallRequest
from runtime.errors import RefusedRows
from runtime.http.codec.codec_arrow import ARROW
from runtime.http.codec.codec_binary import TensorReader, raw_values, values
from runtime.http.codec.tensors import BYTES, datatype_of
from runtime.http.grpc.message_codec import field, plain_message, tensor_head
from runtime.http.grpc.schemas import INFERENCE, parsed
from runtime.http.wire.messages import HEADER_LENGTH, JSON

#: Columns by name, in a dict or a frame, or numbers side by side.
Rows = Mapping[str, ArrayLike] | ArrayLike
Outputs = dict[str, NDArray[Any]]
_FRAMES = {"pandas", "polars", "pyarrow"}
_PLAIN = {int, float, bool, type(None)}
_HALF = "half of a character is no text; mend it where it was decoded"
_HINT = "bytes are decoded first, other numbers made floats, rows of an iterator a list"
#: Errors of values that JSON, UTF-8, numpy or Arrow do not have.
_ODD = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError)


class RowCall(NamedTuple):
    """A request for answers, and what reads them of the reply."""

    ask: CallRequest
    read: Callable[[Reply], Any]


def call(model: str, rows: Any, *, grpc: bool) -> RowCall:
    """The request for the answers of a model to rows, and what makes answers of its reply."""
    if not (model and _is_text(model)):
        raise ParameterError("a model has a name", found=repr(model)[:80])
    kind = type(rows).__module__.partition(".")[0]
    framed = kind in _FRAMES and hasattr(rows, "columns")
    columns = isinstance(rows, Mapping) and any(map(_is_column, rows.values()))
    if not framed and (columns or (_is_column(rows) and not isinstance(rows, list | tuple))):
        return _tensor_call(model, rows, grpc=grpc)
    body, form = (_arrow(rows, kind), ARROW) if framed else (_json(rows), JSON)
    read = partial(_framed, rows, kind) if framed else msgspec.json.decode
    if grpc:
        ask = _message(model, plain_message(body, form, 7))
        return RowCall(ask, lambda it: read(_answer(it).raw_output_contents[0][4:]))
    path, told = f"/predict/{quote(model, safe='@')}", {"content-type": form}
    ask = CallRequest("POST", path, body, told, repeatable=True)
    return RowCall(ask, lambda reply: read(reply.body))


def _is_column(value: object) -> bool:
    kind = type(value)
    if issubclass(kind, str):  # numpy's, too
        return False
    return kind in {list, tuple} or (hasattr(kind, "__array__") and hasattr(kind, "__len__"))


# --- rows as JSON --------------------------------------------------------------------------------


def _json(rows: object) -> bytes:
    try:
        odd = _odd(rows)
        if odd is None:
            body = msgspec.json.encode(rows, enc_hook=_listed)
            if b"null" in body and "Infinity" in (text := json.dumps(rows, default=_listed)):
                return text.encode()  # as infinity is no missing number
            return body
    except _ODD:  # of names, and of lists in themselves
        odd = "", rows
    raise _refusal("a row has numbers, texts, booleans and None", odd)


def _odd(value: object) -> tuple[str, object] | None:
    """The first value that JSON does not have as it is, with its place among the others."""
    if not isinstance(value, Mapping | list | tuple):
        numeric = isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biufU"
        return None if numeric or _is_number(value) or _is_text(value) else ("", value)
    for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
        if type(each) not in _PLAIN and (found := _odd(each)) is not None:
            return f"[{key!r}]{found[0]}", found[1]
    return None


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _is_text(value: object) -> bool:
    """True for a text of whole characters."""
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value


def _listed(value: np.generic | NDArray[Any] | Mapping[str, object]) -> object:
    """A number or an array of numpy, or a mapping of any kind, as JSON has it."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else dict(value)


def _refusal(what: str, odd: tuple[str, object], hint: str = "") -> RefusedRows:
    place, value = odd
    hint = hint or (_HALF if isinstance(value, str) else _HINT)
    known = isinstance(value, Exception)
    found = str(value).partition("\n")[0] if known else f"{type(value).__name__} {value!r}"[:80]
    return RefusedRows(what, where=f"rows{place}"[:100], found=found[:200], hint=hint)


# --- frames as Arrow -----------------------------------------------------------------------------


def _arrow(rows: Any, kind: str) -> bytes:
    pa, table = library(), rows
    sink = pa.BufferOutputStream()
    try:
        if kind == "pandas":
            table = pa.Table.from_pandas(rows, preserve_index=False)
        elif kind == "polars":
            table = rows.to_arrow()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write(table)
    except (*_ODD, pa.ArrowException) as problem:
        hint = "a column has values of one type, and a name of its own"
        raise _refusal("Arrow cannot hold this frame", ("", problem), hint) from None
    return bytes(sink.getvalue())


def _framed(rows: Any, kind: str, body: bytes) -> Any:
    """A stream of answers as a frame of the kind of the rows."""
    table = library().ipc.open_stream(body).read_all()
    if kind == "pandas":
        return table.to_pandas().set_index(rows.index)
    return type(rows)(table) if kind == "polars" else table


# --- columns as tensors --------------------------------------------------------------------------


def _tensor_call(model: str, rows: Rows, *, grpc: bool) -> RowCall:
    """The request for columns or an array, whose answers are arrays."""
    columns = columns_of(rows)
    if not grpc:
        ask = tensors(model, columns)
        return RowCall(ask, lambda reply: tensor_outputs(reply.headers, reply.body))
    kinds = {name: datatype_of(column.dtype) for name, column in columns.items()}
    heads = (tensor_head(name, kind, columns[name].shape) for name, kind in kinds.items())
    raws = (raw_values(columns[name], kind) for name, kind in kinds.items())
    end = (*(field(5, head) for head in heads), *(field(7, raw) for raw in raws))
    ask = _message(model, b"".join(end))
    return RowCall(ask, _message_outputs)


def tensors(model: str, columns: Mapping[str, NDArray[Any]]) -> CallRequest:
    """A request of the binary extension for all outputs."""
    raws, inputs = list[bytes](), list[object]()
    for name, column in columns.items():
        datatype = datatype_of(column.dtype)
        raws.append(bytes(raw_values(column, datatype)))
        size = {"binary_data_size": len(raws[-1])}
        about = {"datatype": datatype, "shape": column.shape, "parameters": size}
        inputs.append({"name": name, **about})
    head = msgspec.json.encode({"inputs": inputs, "parameters": {"binary_data_output": True}})
    name, _, version = model.partition("@")
    at = f"/versions/{quote(version, safe='')}" if version else ""
    path, told = f"/v2/models/{quote(name, safe='')}{at}/infer", {HEADER_LENGTH: str(len(head))}
    return CallRequest("POST", path, b"".join((head, *raws)), told, repeatable=True)


def tensor_outputs(headers: Mapping[str, str], body: bytes) -> Outputs:
    """The outputs of an answer in binary; names of headers are in lower case."""
    size = int(headers[HEADER_LENGTH])
    reader, outputs = TensorReader(body, size), Outputs()
    for output in msgspec.json.decode(body[:size])["outputs"]:
        name, raw = output["name"], output["parameters"]["binary_data_size"]
        outputs[name] = values(reader.take(raw, name), output["datatype"], output["shape"], name)
    return outputs


def _message(model: str, end: bytes) -> CallRequest:
    name, _, version = model.partition("@")
    body = b"".join((field(1, name.encode()), field(2, version.encode()), end))
    return CallRequest("POST", f"/{INFERENCE}/ModelInfer", body, {}, repeatable=True)


def _answer(reply: Reply) -> Any:
    return parsed("inference.ModelInferResponse", reply.body)


def _message_outputs(reply: Reply) -> Outputs:
    told = _answer(reply)
    return {
        each.name: values(memoryview(raw), each.datatype, list(each.shape), each.name)
        for each, raw in zip(told.outputs, told.raw_output_contents, strict=True)
    }


def columns_of(rows: Rows) -> dict[str, NDArray[Any]]:
    """The columns of a block as arrays of numbers or of strings."""
    named: Any = rows
    if not isinstance(rows, Mapping):
        names = getattr(rows, "column_names", getattr(rows, "columns", None))
        if names is None:
            return {"input": _column(rows, "")}
        named = {str(each): named[each] for each in names}
    columns = {str(key): _column(values, f"[{key!r}]") for key, values in named.items()}
    if odd := _odd([*columns]):
        raise _refusal("the name of a column is a text", odd)
    return columns


def _column(values: object, place: str) -> NDArray[Any]:
    """A column that tensors of the protocol hold: objects are all strings, or all numbers."""
    try:
        if isinstance(values, np.ma.MaskedArray):
            values = values.tolist()  # None where one is masked
        array = np.asarray(values)
        if array.dtype.kind == "U" and isinstance(values, list | tuple):
            array = np.array(values, object)  # numpy makes strings of numbers among strings
        if array.dtype.kind in "biuf":
            return array if datatype_of(array.dtype) != BYTES else array.astype(np.float64)
        listed = array.ravel().tolist()
        texts = any(isinstance(each, str) for each in listed)
        if array.dtype.kind == "O" and all(map(_is_number, listed)):
            return array.astype(np.float64)
        if array.dtype.kind in "OU" and all(map(_is_text, listed)):
            return array
    except _ODD as problem:
        raise _refusal("these values make no column", (place, problem)) from None
    fits = _is_text if texts else _is_number
    odd = next((at for at in np.ndindex(array.shape) if not fits(array[at])), None)
    value: Any = array.dtype if odd is None else array[odd]
    place += "".join(f"[{at}]" for at in odd or ())
    hint = "a frame, or a list of rows, holds other values" if value is None else ""
    what = "a column of a block holds numbers, or strings of which none is missing"
    raise _refusal(what, (place, value), hint)
