"""Feature steps of ai.onnx.ml: scaling, imputing, encoding, picking, putting side by side."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from flour.core.types import FLOATS, Vector
from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.ml_categories import MOST_ENTRIES
from flour.onnx.ml_common import ML, MOST_ROWS, joined, matrix, narrow, single
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.onnx.words import Map
from flour.ops.require import RequireFinite


def _per_feature(item: Tensor, values: Any, what: str) -> Any:
    """One value for all features, or one for each of the last dimension, for the flat row."""
    flat = values.reshape(-1)
    if flat.size == 1:
        return flat
    if item.rank < 1 or item.axis == item.rank - 1 or flat.size != item.shape[-1]:
        raise NotNative(f"{flat.size} values of {what} for a tensor of {item.shape}")
    return np.tile(flat, item.size // flat.size)


@onnx_op("Scaler", domain=ML)
def _scaler(call: NodeUse) -> Tensor:
    x = call[0]
    offset, scale = (narrow(call.attribute(name, (default,))) for name, default in _SCALER)
    # Subtracted and scaled in float64 where the data is float64, and rounded at the end.
    wide = x.dtype == "float64"
    flow = call.flow(x) if wide else single(call.flow(x))
    kind = "float64" if wide else "float32"
    moved = flow.subtract(_per_feature(x, offset, "offset").astype(kind))
    scaled = moved.multiply(_per_feature(x, scale, "scale").astype(kind))
    return Tensor.of(single(scaled), x.shape, x.axis)


_SCALER = (("offset", 0.0), ("scale", 1.0))


@onnx_op("Normalizer", domain=ML)
def _normalizer(call: NodeUse) -> Tensor:
    x, norm = matrix(call), str(call.attribute("norm", "MAX"))
    rows = x.map(lambda row: _normal(single(row), norm))
    item = call[0]
    return Tensor.of(joined(rows), item.shape, item.axis)


def _normal(x: Flow, norm: str) -> Flow:
    """A row over its norm; one whose norm is zero is unchanged."""
    if norm == "MAX":
        lowest = float(np.finfo(np.float32).min)
        known = x.to_dense().impute(float("nan"), narrow([lowest]))
        size = known.max().clip(narrow([lowest]), narrow([np.inf]))
    elif norm == "L1":
        size = x.abs().sum()
    elif norm == "L2":
        size = x.square().sum().sqrt()
    else:
        raise NotNative(f"the norm {norm!r}")
    none = size.equal(narrow([0]))
    return x / none.cast("float32").plus(size)


@onnx_op("Imputer", domain=ML)
def _imputer(call: NodeUse) -> Tensor:
    x, flow = call[0], call.flow(call[0])
    floats = x.dtype in FLOATS
    values = call.attribute("imputed_value_floats" if floats else "imputed_value_int64s", ())
    marker = call.attribute("replaced_value_float" if floats else "replaced_value_int64", 0)
    if not len(values):
        raise NotNative("there is nothing to impute")
    last = x.shape[-1] if x.rank else 1
    fill = np.asarray(values, x.dtype) if len(values) == last else np.asarray(values[:1], x.dtype)
    if not floats and abs(int(marker)) >= 1 << 53:
        raise NotNative("a marker that no float64 holds")
    return Tensor.of(flow.impute(float(marker), _per_feature(x, fill, "values")), x.shape, x.axis)


@onnx_op("Binarizer", domain=ML)
def _binarizer(call: NodeUse) -> Tensor:
    x = call[0]
    known = RequireFinite([True], [np.inf], nan_step="Binarizer")(call.flow(x))
    return Tensor.of(known.binarize(float(call.attribute("threshold", 0.0))), x.shape, x.axis)


@onnx_op("FeatureVectorizer", domain=ML)
def _feature_vectorizer(call: NodeUse) -> Tensor:
    sizes = tuple(map(int, call.attribute("inputdimensions", ())))
    parts = [_columns(call, index, sizes) for index in range(len(call.inputs))]
    width = sum(part.type.width for part in parts if isinstance(part.type, Vector))
    axis = next((item.axis for item in call.inputs if item and item.axis is not None), None)
    return Tensor.of(joined(parts), (1, width), axis)


def _columns(call: NodeUse, index: int, sizes: tuple[int, ...]) -> Flow:
    """An input's features in float32, of the number in the node's attributes."""
    x = matrix(call, index)
    if len(x.rows) != 1:
        raise NotNative("several rows of features side by side")
    width = sizes[index] if index < len(sizes) else x.width
    flow = single(x.rows[0])
    if width < 0:
        raise NotNative(f"{width} features of an input")
    if width < x.width:
        return flow.select(np.arange(width))
    return flow if width == x.width else flow.concat(flow.fill(narrow([0] * (width - x.width))))


@onnx_op("ArrayFeatureExtractor", domain=ML)
def _array_feature_extractor(call: NodeUse) -> Tensor:
    x, indices = call[0], call[1]
    if indices.known:
        return _fixed_features(x, call.constant(1, "the indices").reshape(-1))
    if not x.known or not 0 < x.size <= MOST_ROWS * x.shape[-1]:
        raise NotNative("indices and values that both depend on the data")
    if indices.axis is not None and prod(indices.shape[: indices.axis]) != 1:
        raise NotNative("indices whose rows are not one after another")
    from flour.onnx.indexing import in_range  # the other features need none of it

    # Tables looked up for every row: the results lie along the last axis, as the indices did.
    tables = np.asarray(x.value).reshape(-1, x.shape[-1])
    flow = in_range(call.flow(indices), x.shape[-1])
    picked = joined([flow.take(table) for table in tables])
    around = x.shape[:-1] or (1,)
    axis = None if indices.axis is None else len(around)
    return Tensor.of(picked, (*around, indices.size), axis)


def _fixed_features(x: Tensor, indices: Any) -> Tensor:
    """Columns of the last axis; a vector is one row of them."""
    width = x.shape[-1] if x.rank else 1
    if x.axis is not None and x.axis == x.rank - 1:
        raise NotNative("features are picked along the axis of the rows")
    if indices.size and not 0 <= indices.min() <= indices.max() < width:
        raise NotNative(f"index {int(indices.max())} of {width} features")
    table = x.flat_indices()[..., indices.astype(np.int64)]
    return x.picked(table.reshape(1, -1) if x.rank == 1 else table, x.axis)


@onnx_op("ZipMap", domain=ML)
def _zipmap(call: NodeUse) -> Tensor:
    x = call[0]
    labels = tuple(call.attribute("classlabels_strings", ())) or tuple(
        call.attribute("classlabels_int64s", ())
    )
    if x.rank not in (1, 2) or x.dtype != "float32" or x.shape[-1] != len(labels):
        raise NotNative(f"{len(labels)} names for a tensor of {x.shape}")
    return Tensor(x.shape, x.dtype, x.axis, call.flow(x), None, labels)


# --- maps -----------------------------------------------------------------------------------------


@onnx_op("DictVectorizer", domain=ML)
def _dict_vectorizer(call: NodeUse) -> Tensor:
    item = _map(call)
    names = call.attribute(f"{item.key}_vocabulary", ())
    if not len(names):
        raise NotNative(f"no vocabulary of {item.key}")
    return _values(item, [str(name) for name in names])


def _map(call: NodeUse) -> Map:
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
def _cast_map(call: NodeUse) -> Tensor:
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
