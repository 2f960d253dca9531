"""Inputs and outputs of a version as tensors, and the data of a call from tensors.

input             tensors
Vector            one [n, width] of any name, or its columns as separate [n] or [n, 1]
Record            one for each column; or one [n, columns] of any name, by position
Text, Scalar, ... one [n] or [n, 1] of any name
Pairs             one [n] of any name, each a JSON object
several inputs    each as above, by name; columns of a record as "input.column"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import nearest
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector
from runtime.http.codec.content import json_value
from runtime.http.codec.tensors import BYTES, RequestTensor, datatype_of
from runtime.http.wire.problems import HttpError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as metadata says it; -1 is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def specs(kinds: Mapping[str, Type], *, inputs: bool) -> tuple[TensorSpec, ...]:
    """The tensors for the inputs or outputs of a version."""
    alone = inputs and len(kinds) == 1
    return tuple(spec for name, kind in kinds.items() for spec in _specs(name, kind, alone=alone))


def _specs(name: str, kind: Type, *, alone: bool) -> Iterator[TensorSpec]:
    match kind:
        case Record(fields, _, unread):
            for field, sub in fields:
                if field not in unread:
                    yield from _specs(field if alone else f"{name}.{field}", sub, alone=False)
        case Vector(width, dtype):
            yield TensorSpec(name, datatype_of(dtype), (-1, width))
        case Scalar(dtype) | Category(dtype):
            yield TensorSpec(name, datatype_of(dtype), (-1,))
        case Text() | Pairs():  # a pair's row is a JSON object
            yield TensorSpec(name, BYTES, (-1,))
        case Tokens():  # as inputs rows of words, as outputs rows of JSON
            yield TensorSpec(name, BYTES, (-1, -1) if alone else (-1,))


def call_data(inputs: Mapping[str, Type], tensors: Sequence[RequestTensor]) -> Any:
    """The data of a call from the tensors of its request."""
    by_name = {tensor.name: tensor for tensor in tensors}
    if len(by_name) != len(tensors):
        names = [tensor.name for tensor in tensors]
        double = next(name for name in names if names.count(name) > 1)
        raise HttpError("two inputs have the same name", where="$.inputs", found=repr(double)[:80])
    if not by_name:
        raise HttpError("there is no input", where="$.inputs", hint="send one tensor at least")
    if len(inputs) == 1:
        return _one(next(iter(inputs.values())), by_name)
    data = {name: _several(name, kind, by_name) for name, kind in inputs.items()}
    read = [name for name in by_name if name in inputs or name.split(".")[0] in inputs]
    _refuse_others(by_name, read, list(inputs))
    return data


def _one(kind: Type, by_name: Mapping[str, RequestTensor]) -> Any:
    """The data of the only input."""
    tensors = list(by_name.values())
    match kind:
        case Vector(width=width):
            return _vector(width, tensors)
        case Record():
            if (
                len(tensors) == 1
                and tensors[0].values.ndim == 2
                and tensors[0].name not in kind.names
            ):
                return tensors[0].values
            return {name: _column(tensor) for name, tensor in by_name.items()}
    if len(tensors) != 1:
        raise HttpError(
            "the model has one input", where="$.inputs", found=", ".join(list(by_name)[:20])
        )
    return _values(kind, tensors[0])


def _several(name: str, kind: Type, by_name: Mapping[str, RequestTensor]) -> Any:
    """The data of one of several inputs."""
    if isinstance(kind, Record):
        start = len(name) + 1
        columns = {
            key[start:]: _column(tensor)
            for key, tensor in by_name.items()
            if key.startswith(f"{name}.")
        }
        if columns:
            return columns
    if name not in by_name:
        raise HttpError(
            f"there is no input {name!r}",
            where="$.inputs",
            found=", ".join(list(by_name)[:20]),
            hint=nearest(name, by_name) or "inputs are found by name",
        )
    tensor = by_name[name]
    return tensor.values if isinstance(kind, Record) else _values(kind, tensor)


def _refuse_others(by_name: Mapping[str, RequestTensor], read: list[str], names: list[str]) -> None:
    others = [name for name in by_name if name not in read]
    if others:
        raise HttpError(
            f"the model has no input {others[0]!r}",
            where="$.inputs",
            found=", ".join(list(by_name)[:20]),
            hint="its inputs are " + ", ".join(names[:20]),
        )


def _vector(width: int, tensors: Sequence[RequestTensor]) -> NDArray[Any]:
    if len(tensors) > 1:  # its columns, one by one
        columns = [_column(tensor) for tensor in tensors]
        if len({column.shape for column in columns}) > 1:
            found = ", ".join(f"{t.name}: {len(c)}" for t, c in zip(tensors, columns, strict=True))
            raise HttpError(
                "the columns have different lengths", where="$.inputs", found=found[:200]
            )
        return np.stack(columns, axis=1)
    values = tensors[0].values
    return values.reshape(-1, 1) if width == 1 and values.ndim == 1 else values


def _values(kind: Type, tensor: RequestTensor) -> Any:
    match kind:
        case Vector(width=width):
            return _vector(width, [tensor])
        case Tokens():
            rows = tensor.values if tensor.values.ndim == 2 else tensor.values[:, None]
            return rows.tolist()
        case Pairs():
            return [_object(raw, tensor.name, i) for i, raw in enumerate(_column(tensor))]
    return _column(tensor)


def _object(raw: Any, name: str, index: int) -> dict[str, Any]:
    """A row of named values, from its JSON."""
    try:
        row = json_value(raw)
    except (TypeError, ValueError, RecursionError):
        row = None
    if isinstance(row, dict):
        return row
    raise HttpError(
        "a row of named values is a JSON object",
        where=f"$.inputs.{name}[{index}]"[:100],
        found=repr(raw[:60] if isinstance(raw, str) else raw)[:60],
        hint='such as {"city": "Rome", "age": 3}',
    )


def _column(tensor: RequestTensor) -> NDArray[Any]:
    """One value for each row."""
    values = tensor.values
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise HttpError(
            "this input has one value for each row",
            where=f"$.inputs.{tensor.name}"[:100],
            found=f"shape {list(values.shape)}",
            hint="its shape is [rows] or [rows, 1]",
        )
    return values
