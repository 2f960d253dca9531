"""A model's constants in onnxruntime's session options.

`SessionOptions.add_initializer` puts another array in place of a model's constant. Options cannot
be asked which they replace, so onnxruntime is: a model of the same constants alone answers with
what a session made with these options has for them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import InputError
from flour.onnx.reading import Opened, as_written, opened

#: Options by which a session writes files, and their defaults.
_WRITING = {"enable_profiling": False, "optimized_model_filepath": ""}


def with_initializers(model: object, options: object) -> object:
    """The model with the constants that the options put into it; itself where there are none."""
    kind = type(options)
    if kind.__name__ != "SessionOptions" or not kind.__module__.startswith("onnxruntime"):
        return model
    read = opened(model)
    proto = as_written(read)
    names = [str(item.name) for item in proto.graph.initializer if not item.external_data]
    own, found = (_constants(proto, names, each) for each in (None, options))
    changed = {name: found[name] for name in names if found[name] != own[name]}
    if not changed:
        return model
    made = type(proto)()
    made.CopyFrom(proto)
    for item in made.graph.initializer:
        if item.name in changed:
            item.ParseFromString(changed[item.name])
    return Opened(made, read.folder)


def _constants(proto: Any, names: list[str], options: Any) -> dict[str, bytes]:
    """The model's constants as a session made with these options has them."""
    import onnxruntime as ort
    from onnx import TensorProto, helper

    tensors = [item for item in proto.graph.initializer if item.name in set(names)]
    if not tensors:
        return {}
    # Their shape is fed in, or onnxruntime computes all of it before it takes the options' arrays.
    flat = "the shape of all"
    nodes = [helper.make_node("Reshape", [name, flat], [f"{name} as it is"]) for name in names]
    ends = [
        helper.make_tensor_value_info(f"{item.name} as it is", item.data_type, None)
        for item in tensors
    ]
    shape = helper.make_tensor_value_info(flat, TensorProto.INT64, [1])
    graph = helper.make_graph(nodes, "constants", [shape], ends, tensors)
    opsets = [item for item in proto.opset_import if item.domain in ("", "ai.onnx")]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=proto.ir_version)
    kept = {} if options is None else {name: getattr(options, name) for name in _WRITING}
    try:
        for name in kept:
            setattr(options, name, _WRITING[name])
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    finally:
        for name, value in kept.items():
            setattr(options, name, value)
    values = session.run(None, {flat: np.array([-1])})
    return {
        str(item.name): _tensor(item, value).SerializeToString()
        for item, value in zip(tensors, values, strict=True)
    }


def _tensor(own: Any, value: NDArray[Any]) -> Any:
    """A constant of the model with these numbers."""
    from onnx import numpy_helper

    shape = tuple(own.dims)
    if value.size != prod(shape):
        raise InputError(
            f"the options have another array for {own.name!r} than the model",
            where="sess_options",
            found=f"{value.size} values, expected {list(shape)}",
        )
    return numpy_helper.from_array(value.reshape(shape), str(own.name))
