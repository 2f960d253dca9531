"""Operators whose result is known at import: constants, ranges, identity matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flour.onnx.errors import NotNative
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Rows, Tensor, sizes_fit
from flour.onnx.tensors import dtype_of


@onnx_op("Constant")
def _constant(call: NodeUse) -> Tensor:
    kinds: dict[str, Any] = {
        "value": None,
        "sparse_value": None,
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
        "value_string": object,
        "value_strings": object,
    }
    for name, dtype in kinds.items():
        value = call.attribute(name)
        if value is not None:
            return Tensor.constant(np.asarray(value, dtype))
    raise NotNative("a constant without a value")


@onnx_op("ConstantOfShape", since=9)
def _constant_of_shape(call: NodeUse) -> Tensor:
    lengths = call.symbolic(0, "the shape").reshape(-1)
    value = call.attribute("value", np.zeros(1, np.float32)).reshape(-1)[0]
    rows = [i for i, size in enumerate(lengths) if isinstance(size, Rows)]
    if len(rows) > 1:
        raise NotNative("a shape in which more than one length is open")
    shape = [size.times if isinstance(size, Rows) else int(size) for size in lengths]
    sizes_fit(shape, "the constant")
    return Tensor.constant(np.full(shape, value), rows[0] if rows else None)


@onnx_op("Range", since=11)
def _range(call: NodeUse) -> Tensor:
    start, limit, step = (call.constant(index).reshape(-1)[0] for index in range(3))
    if not step or not np.isfinite((limit - start) / step):
        raise NotNative("an endless range")
    sizes_fit([math.ceil(max((limit - start) / step, 0))], "the range")
    count = max(int(np.ceil((float(limit) - float(start)) / float(step))), 0)
    return Tensor.constant((start + np.arange(count) * step).astype(np.asarray(start).dtype))


@onnx_op("EyeLike", since=9)
def _eye_like(call: NodeUse) -> Tensor:
    item = call[0]
    if item.axis is not None:
        raise NotNative("an identity matrix of as many rows as there are")
    dtype = dtype_of(call.attribute("dtype")) if call.attribute("dtype") else item.dtype
    high, wide = item.shape
    return Tensor.constant(np.eye(high, wide, call.attribute("k", 0)).astype(dtype))
