"""Rows of a call in the forms that people have them, and answers in the form of the rows.

Frames of pandas, polars and pyarrow go as Arrow, columns and arrays as tensors, and rows one by one
as plain JSON. Over gRPC all of them go as tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from flour.core.http1 import Reply
from flour.data.arrow_reader import library
from runtime.client.links import CallRequest
from runtime.errors import RefusedRows
from runtime.http.codec.codec_arrow import ARROW
from runtime.http.codec.codec_binary import TensorReader, raw_values, values
from runtime.http.codec.tensors import datatype_of
from runtime.http.grpc.message_codec import field, tensor_head
from runtime.http.grpc.schemas import INFERENCE, parsed
from runtime.http.wire.messages import HEADER_LENGTH, JSON

#: Columns by name, in a dict or a frame, or numbers side by side.
Rows = Mapping[str, ArrayLike] | ArrayLike
Outputs = dict[str, NDArray[Any]]
_FRAMES = {"pandas", "polars", "pyarrow"}


class RowCall(NamedTuple):
    """A request for answers, and what reads them of the reply."""

    ask: CallRequest
    read: Callable[[Reply], Any]


def call(model: str, rows: Any, *, grpc: bool) -> RowCall:
    """The request for the answers of a model to rows, and what makes answers of its reply."""
    kind, named = type(rows).__module__.partition(".")[0], isinstance(rows, Mapping)
    framed = kind in _FRAMES and hasattr(rows, "columns")
    if framed and not grpc:
        return _arrow(model, rows, kind)
    many = isinstance(rows, np.ndarray) or (named and any(map(_is_column, rows.values())))
    if not (framed or many or grpc):
        body, told = msgspec.json.encode(rows, enc_hook=_plain), {"content-type": JSON}
        return RowCall(_plain_ask(model, body, told), lambda reply: msgspec.json.decode(reply.body))
    if not named and isinstance(rows, Sequence) and rows and isinstance(rows[0], Mapping):
        rows = {name: [row[name] for row in rows] for name in rows[0]}
    elif named and not many:
        rows = {name: [value] for name, value in rows.items()}
    columns = columns_of(rows)
    ask = _message(model, columns) if grpc else tensors(model, columns)

    def read(reply: Reply) -> Any:
        outputs = (_message_outputs if grpc else tensor_outputs)(reply.headers, reply.body)
        if not framed:
            return outputs
        table = library().table({name: list(each) for name, each in outputs.items()})
        return _framed(table, rows, kind)

    return RowCall(ask, read)


def _is_column(value: object) -> bool:
    kind = type(value)
    return kind in {list, tuple} or (hasattr(kind, "__array__") and hasattr(kind, "__len__"))


def _plain(value: np.generic | NDArray[Any]) -> object:
    """A number or an array of numpy as JSON has it."""
    return value.tolist()


def _plain_ask(model: str, body: bytes, headers: Mapping[str, str]) -> CallRequest:
    return CallRequest("POST", f"/predict/{quote(model, safe='@')}", body, headers, repeatable=True)


def _arrow(model: str, rows: Any, kind: str) -> RowCall:
    pa, table = library(), rows
    if kind == "pandas":
        table = pa.Table.from_pandas(rows, preserve_index=False)
    elif kind == "polars":
        table = rows.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    ask = _plain_ask(model, sink.getvalue().to_pybytes(), {"content-type": ARROW})
    return RowCall(
        ask, lambda reply: _framed(pa.ipc.open_stream(reply.body).read_all(), rows, kind)
    )


def _framed(table: Any, rows: Any, kind: str) -> Any:
    """A table of answers as a frame of the kind of the rows."""
    if kind == "pandas":
        return table.to_pandas().set_index(rows.index)
    return type(rows)(table) if kind == "polars" else table


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


def _message(model: str, columns: Mapping[str, NDArray[Any]]) -> CallRequest:
    name, _, version = model.partition("@")
    parts, raws = [field(1, name.encode()), field(2, version.encode())], list[bytes]()
    for key, column in columns.items():
        kind = datatype_of(column.dtype)
        parts.append(field(5, tensor_head(key, kind, column.shape)))
        raws.append(field(7, raw_values(column, kind)))
    return CallRequest(
        "POST", f"/{INFERENCE}/ModelInfer", b"".join(parts + raws), {}, repeatable=True
    )


def _message_outputs(_: Mapping[str, str], body: bytes) -> Outputs:
    told = parsed("inference.ModelInferResponse", body)
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
            return {"input": _column(rows, "input")}
        named = {str(each): named[each] for each in names}
    return {str(key): _column(values, str(key)) for key, values in named.items()}


def _column(values: object, key: str) -> NDArray[Any]:
    """A column that tensors of the protocol hold: objects are all strings, or all numbers."""
    array = np.asarray(values)
    if array.dtype.kind == "U" and isinstance(values, list | tuple):
        array = np.array(values, object)  # numpy makes strings of numbers among strings
    if array.dtype.kind in "biufU":
        return array
    listed = array.ravel().tolist() if array.dtype == object else []
    if listed and all(isinstance(each, str) for each in listed):
        return array
    if listed and all(each is None or isinstance(each, int | float) for each in listed):
        return array.astype(np.float64)
    odd = next((each for each in listed if not isinstance(each, str)), array.dtype)
    raise RefusedRows(
        "a column of a block holds numbers, or strings of which none is missing",
        where=f"column {key!r}",
        found=f"{type(odd).__name__} {odd!r}"[:80],
        hint="over HTTP a frame, or a list of rows, holds other values; bytes are decoded first",
    )
