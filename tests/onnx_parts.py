"""Small ONNX models for tests: nodes, inputs, outputs and constants in a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
node = helper.make_node
Port = tuple[str, int, Sequence[int | str | None] | None]


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    constants: Mapping[str, NDArray[Any]] | None = None,
    opset: int = 18,
) -> ModelProto:
    """A model of these nodes, with ONNX's own operators and those of ai.onnx.ml."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def text_encoder(pieces: int, width: int = 4) -> NDArray[np.uint8]:
    """An encoder of text whose vectors depend on the pieces around them, as those of BERT do."""
    rows = np.random.default_rng(20181011).normal(size=(pieces, width)).astype(np.float32)
    nodes = [
        node("Gather", ["rows", "input_ids"], ["picked"]),
        node("Softmax", ["picked"], ["shares"], axis=1),
        node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
        node("Unsqueeze", ["mask", "axis"], ["wide"]),
        node("Mul", ["shares", "wide"], ["last_hidden_state"]),
    ]
    inputs: list[Port] = [(name, INT64, ["b", "n"]) for name in ("input_ids", "attention_mask")]
    outputs: list[Port] = [("last_hidden_state", FLOAT, ["b", "n", width])]
    constants = {"rows": rows, "axis": np.array([2])}
    raw = model(nodes, inputs, outputs, constants).SerializeToString()
    return np.frombuffer(raw, np.uint8)


def black_in_the_middle(width: int = 4, hidden: int = 300) -> ModelProto:
    """Native, then an operator that only onnxruntime has (a dequantised product), then native.

    DynamicQuantizeLinear looks at all rows at once to find its scale.
    """
    rng = np.random.default_rng(width)
    return model(
        [
            node("Mul", ["x", "x"], ["a"]),
            node("DynamicQuantizeLinear", ["a"], ["q", "scale", "zero"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["b"]),
            node("MatMul", ["b", "w"], ["c"]),
            node("Relu", ["c"], ["y"]),
        ],
        [("x", FLOAT, ["N", width])],
        [("y", FLOAT, ["N", hidden])],
        {"w": rng.normal(size=(width, hidden)).astype(np.float32)},
    )


def black_weights(seed: int = 0, width: int = 64) -> ModelProto:
    """A convolution, which only onnxruntime has, over a large constant; behind it native code."""
    shared = np.random.default_rng(99).normal(size=(200, 1, width)).astype(np.float32)
    bias = np.random.default_rng(seed).normal(size=200).astype(np.float32)
    return model(
        [node("Conv", ["x", "big", "bias"], ["c"]), node("Relu", ["c"], ["y"])],
        [("x", FLOAT, ["N", 1, width])],
        [("y", FLOAT, ["N", 200, 1])],
        {"big": shared, "bias": bias},
    )


def absolute(width: int) -> dict[str, Any]:
    """The fields of an operator that asks onnxruntime for absolute values."""
    made = model(
        [node("Abs", ["x"], ["y"])], [("x", FLOAT, ["N", width])], [("y", FLOAT, ["N", width])]
    )
    wire = ("float32", (1, width), 0)
    return {
        "model": np.frombuffer(made.SerializeToString(), np.uint8),
        "reads": (("x", *wire),),
        "leaves": (("y", *wire),),
        "mixes": False,
    }


def session(made: ModelProto | bytes) -> Any:
    """A session of onnxruntime with one thread, on the processor, that logs errors alone."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    data = made if isinstance(made, bytes) else made.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def theirs(made: ModelProto | bytes, **feed: Any) -> list[Any]:
    """Answers of onnxruntime."""
    return list(session(made).run(None, feed))


def theirs_by_name(made: ModelProto | bytes, **feed: Any) -> dict[str, Any]:
    """Answers of onnxruntime, under the names of the outputs."""
    names = [item.name for item in session(made).get_outputs()]
    return dict(zip(names, theirs(made, **feed), strict=True))
