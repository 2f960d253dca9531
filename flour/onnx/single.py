"""A model of one operator, from a node and some arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import NodeProto


def model_of(
    node: NodeProto, names: Sequence[str], arrays: Sequence[Any], version: int | None = None
) -> Any:
    """A ModelProto of this node over inputs like these, in a version of its operator set.

    Without a version, the newest one of its operator set that is known here.
    """
    from onnx import defs, helper

    inputs = [
        helper.make_tensor_value_info(name, _element(np.asarray(value)), np.shape(value))
        for name, value in zip(names, arrays, strict=True)
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    for item in outputs:
        item.ClearField("type")
    opsets = {node.domain: version or _newest(node)} if node.domain else {}
    opsets.setdefault("", version if version and not node.domain else defs.onnx_opset_version())
    graph = helper.make_graph([node], "node", inputs, outputs)
    ids = [helper.make_opsetid(*entry) for entry in opsets.items()]
    return helper.make_model(graph, opset_imports=ids, ir_version=10)


def _newest(node: NodeProto) -> int:
    """The version of another operator set in which the operator was last changed."""
    from onnx import defs

    if not defs.has(node.op_type, domain=node.domain):
        return 1
    return int(defs.get_schema(node.op_type, domain=node.domain).since_version)


def _element(array: NDArray[Any]) -> int:
    from onnx import TensorProto, helper

    texts = array.dtype.kind in "OUS"
    return TensorProto.STRING if texts else helper.np_dtype_to_tensor_dtype(array.dtype)
