"""Operators of ai.onnx.ml over maps: the values of a row's map for keys known at import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flour.onnx.errors import NotNative
from flour.onnx.ml_categories import MOST_ENTRIES
from flour.onnx.ml_common import ML
from flour.onnx.registry import Call, onnx_op
from flour.onnx.tensor import Tensor
from flour.onnx.words import Map


@onnx_op("DictVectorizer", domain=ML)
def _dict_vectorizer(call: Call) -> Tensor:
    item = _map(call)
    names = call.attribute(f"{item.key}_vocabulary", ())
    if not len(names):
        raise NotNative(f"no vocabulary of {item.key}")
    return _values(item, [str(name) for name in names])


def _map(call: Call) -> Map:
    item = call[0]
    if not isinstance(item, Map):
        raise NotNative(f"a map is needed, not {item.shape} of {item.dtype}")
    return item


def _values(item: Map, names: Sequence[str]) -> Tensor:
    """A column for each name: zero where a row's map has none. A name may have several columns."""
    assert item.flow is not None
    if len(names) > MOST_ENTRIES:
        raise NotNative(f"a vocabulary of {len(names):,} names")
    columns = {name: number for number, name in enumerate(dict.fromkeys(names))}
    values = item.flow.named_values(list(columns), item.dtype)
    if len(columns) < len(names):
        values = values.to_dense().select([columns[name] for name in names])
    return Tensor.of(values, (1, len(names)), item.axis)


@onnx_op("CastMap", domain=ML)
def _cast_map(call: Call) -> Tensor:
    item, form = _map(call), str(call.attribute("map_form", "DENSE"))
    kind, count = str(call.attribute("cast_to", "TO_FLOAT")), int(call.attribute("max_map", 1))
    if form != "SPARSE":
        raise NotNative("a number of columns that depends on a map's keys")
    if kind not in _CASTS or not 0 < count <= MOST_ENTRIES or item.key != "int64":
        raise NotNative(f"{count} columns of a map from {item.key}, cast {kind}")
    columns = _values(item, list(map(str, np.arange(count))))
    flow: Any = columns.flow
    return Tensor.of(flow.to_dense().cast(_CASTS[kind]), columns.shape, columns.axis)


_CASTS = {"TO_FLOAT": "float32", "TO_INT64": "int64"}
