"""Casts of numbers to strings; see flour.ops.onnx_cast for onnxruntime's rules.

Strings that native code makes are only read within the same stage; strings that leave it are made
by the definition. Labels out of a table of numbers are looked up in a table of strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import FLOATS
from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.registry import Call
from flour.onnx.tensor import Tensor
from flour.ops.onnx_cast import WriteFloats, WriteWhole, text_of
from flour.ops.structure import AsVector, Take, TakeText


def spelt(call: Call, item: Tensor) -> Tensor:
    """Numbers as strings."""
    if item.symbolic:
        raise NotNative("the number of rows would become a value")
    if item.value is not None:
        strings = written(item.value.reshape(-1)).reshape(item.shape)
        return Tensor(item.shape, "string", item.axis, None, strings)
    flow = call.flow(item)
    table = _table(flow)
    if table is not None:
        indices, entries = table
        return Tensor.of(TakeText(written(entries).tolist())(indices), item.shape, item.axis)
    op = WriteFloats() if getattr(flow.type, "dtype", "") in FLOATS else WriteWhole()
    return Tensor.of(op(flow), item.shape, item.axis)


def written(values: NDArray[Any]) -> NDArray[np.object_]:
    """Known numbers as onnxruntime writes them."""
    strings = np.empty(len(values), object)
    strings[:] = [text_of(value) for value in values]
    return strings


def _table(flow: Flow) -> tuple[Flow, NDArray[Any]] | None:
    """The indices and the table that numbers are looked up in; None if they are not."""
    if isinstance(flow.node.op, AsVector):
        flow = flow.input(0)
    op = flow.node.op
    return (flow.input(0), op.table.array) if isinstance(op, Take) else None
