"""Operators of com.microsoft that converters emit: distances, hashes, equations with constants."""

from __future__ import annotations

import numpy as np

from flour.core.types import FLOATS
from flour.onnx.errors import NotNative
from flour.onnx.ml_common import matrix
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.onnx.text_ngrams import MICROSOFT
from flour.ops.city_hash import Murmur


@onnx_op("CDist", domain=MICROSOFT)
def _cdist(call: NodeUse) -> Tensor:
    metric = str(call.attribute("metric", "sqeuclidean"))
    if metric not in ("euclidean", "sqeuclidean"):
        raise NotNative(f"the metric {metric!r}")
    x, points = matrix(call), call.constant(1, "the points")
    if points.ndim != 2 or points.shape[1] != x.width or not len(points):
        raise NotNative(f"points of shape {points.shape} for {x.width} features")
    distances = [row.squared_distances(points) for row in x.rows]
    if metric == "euclidean":
        distances = [squared.sqrt() for squared in distances]
    return x.table(distances, len(points))


@onnx_op("MurmurHash3", domain=MICROSOFT)
def _murmur(call: NodeUse) -> Tensor:
    item, positive = call[0], bool(call.attribute("positive", 1))
    hashes = Murmur(int(call.attribute("seed", 0)), positive)(call.flow(item))
    return Tensor.of(hashes, item.shape, item.axis)


@onnx_op("Solve", domain=MICROSOFT)
def _solve(call: NodeUse) -> Tensor:
    """A constant system for every row's right side, a column: times the inverse, known at import.

    onnxruntime has no such operator; the converter of Gaussian process classifiers writes it.
    """
    table, sides = call.constant(0, "the matrix").astype(np.float64), call[1]
    triangle = call.flag("lower", default=False) or call.flag("transposed", default=False)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or triangle:
        raise NotNative(f"equations of shape {table.shape}")
    if sides.shape != (len(table), 1) or sides.axis != 1 or sides.dtype not in FLOATS:
        raise NotNative(f"right sides of shape {sides.shape} with rows along {sides.axis}")
    try:
        inverse = np.linalg.inv(table)
    except np.linalg.LinAlgError:
        raise NotNative("equations without an answer") from None
    solution = call.flow(sides).cast("float64").linear(inverse, []).cast(sides.dtype)
    return Tensor.of(solution, sides.shape, 1)
