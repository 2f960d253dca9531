"""Constants that fit one number of rows only, where rows are open: as onnxruntime has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import flour
import oven
from runtime import InferenceSession

W = np.array([[1, 2], [3, 4]], np.float32)


def constant(name: str, values: Any) -> Any:
    return numpy_helper.from_array(np.asarray(values), name)


def node(kind: str, inputs: str, outputs: str = "Y", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


#: Nodes and constants; the model's input X has open rows and two columns.
MODELS: dict[str, tuple[list[Any], list[Any]]] = {
    "Add": ([node("Add", "X W")], [constant("W", W)]),
    "MatMul": ([node("MatMul", "W X")], [constant("W", W)]),
    "Gemm": ([node("Gemm", "W X")], [constant("W", W)]),
    "Concat": ([node("Concat", "X W", axis=0)], [constant("W", W)]),
    "Split": ([node("Split", "X", "A B", axis=0), node("Add", "A B")], []),
    "Where": ([node("Where", "C X W")], [constant("C", W > 2), constant("W", W)]),
    "Expand": ([node("Expand", "X S")], [constant("S", [2, 2])]),
    "Reshape": ([node("Reshape", "X S")], [constant("S", [1, 4])]),
    "Tile": ([node("Tile", "X S")], [constant("S", [2, 1])]),
    "Slice": ([node("Slice", "X A B")], [constant("A", [0]), constant("B", [2])]),
    "Gather": ([node("Gather", "X A", axis=0)], [constant("A", [1, 0])]),
    "behind native operators": (
        [node("Mul", "X X", "A"), node("Add", "A W", "B"), node("Sqrt", "B")],
        [constant("W", W)],
    ),
}


def model(name: str) -> bytes:
    nodes, constants = MODELS[name]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
        constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data: bytes = made.SerializeToString()
    return data


def outcome(call: Any) -> Any:
    """The answer, or that there is none."""
    try:
        return np.asarray(call()).tolist()
    except Exception:  # noqa: BLE001 (whatever class: the original raises as well)
        return "an error"


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_answers_and_errors_are_onnxruntimes(name: str, rows: int) -> None:
    data = model(name)
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    x = np.arange(1, 1 + 2 * rows, dtype=np.float32).reshape(rows, 2)
    theirs = ort.InferenceSession(data, quiet)
    want = outcome(lambda: theirs.run(None, {"X": x})[0])
    ours = InferenceSession(data)
    assert outcome(lambda: ours.run(None, {"X": x})[0]) == want
    plan = oven.bake(flour.from_onnx(data))
    # A row of a program is a vector: two rows of ONNX's for one of the input's lie side by side.
    flat = want if isinstance(want, str) else np.ravel(want).tolist()
    assert outcome(lambda: np.ravel(plan.run(x)["Y"])) == flat
