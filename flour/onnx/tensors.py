"""The tensors of a model as numpy arrays, with their data inside the model or in files beside it.

A file beside the model may be named by a plain relative path only, and must lie inside the model's
folder once every link is followed: a model cannot make the importer read any other file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flour.onnx.errors import DamagedModel

if TYPE_CHECKING:
    from onnx import ModelProto, SparseTensorProto, TensorProto

#: TensorProto.DataType -> numpy's name, or ONNX's own where numpy has none.
DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
}
#: The fields of the types that models are made of; the `onnx` package, which is slow to import,
#: reads the others.
_FIELDS = {1: "float_data", 6: "int32_data", 7: "int64_data", 11: "double_data"}
_EXTERNAL = 1
#: AttributeProto.AttributeType: a tensor, and kinds with no tensors in them.
_TENSOR, _PLAIN = 4, frozenset({1, 2, 3, 6, 7, 8})
MAX_VALUES = 2**31 - 1


def _numbers(proto: TensorProto) -> NDArray[Any]:
    """The values of a tensor whose data it holds itself; of strings, an array of objects."""
    field = _FIELDS.get(proto.data_type)
    if field is None or proto.HasField("segment"):
        from onnx import numpy_helper

        return np.asarray(numpy_helper.to_array(proto))
    dtype = np.dtype(DTYPES[proto.data_type])
    if proto.HasField("raw_data"):
        values = np.frombuffer(proto.raw_data, dtype.newbyteorder("<")).astype(dtype)
    else:
        values = np.asarray(getattr(proto, field), dtype)
    return values.reshape(proto.dims)


def dtype_of(kind: int) -> str:
    """The name of an element type."""
    return DTYPES.get(kind, f"onnx{kind}")


class Tensors:
    """Reads tensors; `folder` is that of the model's file, if it came from one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def array(self, proto: TensorProto) -> NDArray[Any]:
        """A tensor as an array (strings as objects)."""
        where = f"tensor '{proto.name}'"
        self._check(proto, where)
        try:
            if proto.data_location == _EXTERNAL:
                proto = self._with_data(proto, where)
            array = _numbers(proto)
        except (ValueError, TypeError, KeyError, OverflowError) as problem:
            raise DamagedModel(
                "a tensor's data does not fit its shape",
                where=where,
                found=f"{list(proto.dims)}: {problem}"[:160],
            ) from None
        if array.dtype.kind in "OUS":
            texts = np.empty(array.shape, object)
            flat, out = array.reshape(-1), texts.reshape(-1)
            for i, value in enumerate(flat):
                text = value if isinstance(value, bytes | str) else str(value)
                out[i] = (
                    text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
                )
            texts.flags.writeable = False
            return texts
        array.flags.writeable = False
        return array

    def _check(self, proto: TensorProto, where: str) -> None:
        """Refuse shapes that no data in the model could fill, before anything is allocated."""
        if any(size < 0 for size in proto.dims) or prod(proto.dims) > MAX_VALUES:
            raise DamagedModel(
                "a tensor's shape is absurd", where=where, found=str(list(proto.dims))[:80]
            )

    def sparse(self, proto: SparseTensorProto) -> NDArray[Any]:
        """A sparse tensor as a dense array."""
        where = f"sparse tensor '{proto.values.name}'"
        shape = tuple(int(size) for size in proto.dims)
        self._check(proto, where)
        values, indices = self.array(proto.values), self.array(proto.indices)
        if prod(shape) > 1 << 28:
            raise DamagedModel("a sparse tensor is absurdly large", where=where, found=str(shape))
        dense = np.zeros(shape, values.dtype)
        try:
            flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
            np.put(dense, flat, values, mode="raise")
        except (ValueError, IndexError, TypeError) as problem:
            raise DamagedModel(
                "a sparse tensor's values do not fit its shape", where=where, found=str(problem)
            ) from None
        dense.flags.writeable = False
        return dense

    # --- data in files -----------------------------------------------------------------------

    def take_in(self, model: ModelProto) -> None:
        """Put the data of tensors inside nodes from their files into the model itself.

        A node can then be copied elsewhere unchanged. The graph's own constants are read by name,
        later.
        """
        for tensor in _inside_nodes([*model.graph.node, *model.functions]):
            if tensor.data_location == _EXTERNAL:
                tensor.CopyFrom(self._with_data(tensor, f"tensor '{tensor.name}'"))

    def _with_data(self, proto: Any, where: str) -> Any:
        """The tensor with the data that lies in a file beside the model."""
        entries = {str(item.key): str(item.value) for item in proto.external_data}
        path = self._inside(entries.get("location", ""), where)
        offset, length = _number(entries, "offset", where), _number(entries, "length", where)
        try:
            size = path.stat().st_size
            end = size if "length" not in entries else offset + length
            if not 0 <= offset <= end <= size:
                found = f"bytes {offset} to {end} of {size}"
                raise DamagedModel(
                    "a tensor's data ends beyond the end of its file", where=where, found=found
                )
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(end - offset)
        except OSError as problem:
            raise DamagedModel(
                "a tensor's file cannot be read", where=where, found=problem.strerror or ""
            ) from None
        tensor = type(proto)()
        tensor.CopyFrom(proto)
        tensor.ClearField("external_data")
        tensor.data_location = 0
        tensor.raw_data = data
        return tensor

    def _inside(self, location: str, where: str) -> Path:
        """The file a tensor names, which must lie in the model's folder."""
        refused = partial(DamagedModel, where=where, found=repr(location)[:120])
        hint = "only a plain relative path inside the model's folder is read"
        if self._folder is None:
            what = "a tensor's data is in a file, but the model was not read from one"
            raise refused(what, hint="pass the model's path")
        plain = PurePosixPath(location)
        odd = not location or plain.is_absolute() or ".." in plain.parts or "\\" in location
        if odd or "\0" in location or ":" in location:
            raise refused("a tensor's data is outside the model's folder", hint=hint)
        path = _file_inside(self._folder.resolve(), plain)
        if path is None:
            raise refused("a tensor's data is not a file in the model's folder", hint=hint)
        return path


def _file_inside(folder: Path, name: PurePosixPath) -> Path | None:
    """The regular file of this name, links followed; None where there is none in the folder."""
    try:
        path = (folder / name).resolve()
        return path if path.is_relative_to(folder) and path.is_file() else None
    except (OSError, RuntimeError):  # a name too long for a file, links in a circle
        return None


def _inside_nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """The tensors in the attributes of nodes, and in the graphs there; functions have nodes too."""
    stack = [*nodes]
    while stack:
        item = stack.pop()
        stack.extend(getattr(item, "node", ()))
        for each in item.attribute if hasattr(item, "op_type") else ():
            kind = each.type
            if kind == _TENSOR:
                yield each.t
            elif kind not in _PLAIN:
                yield from (each.t, *each.tensors)
                for sparse in (each.sparse_tensor, *each.sparse_tensors):
                    yield from (sparse.values, sparse.indices)
                for graph in (each.g, *each.graphs):
                    yield from graph.initializer
                    for sparse in graph.sparse_initializer:
                        yield from (sparse.values, sparse.indices)
                    stack.extend(graph.node)


def _number(entries: dict[str, str], key: str, where: str) -> int:
    try:
        return int(entries.get(key) or 0)
    except ValueError:
        raise DamagedModel(f"{key} is no number", where=where, found=entries[key][:40]) from None
