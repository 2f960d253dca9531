"""Quantised numbers by rows: ONNX's own cases have static shapes, served models have rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from flour.onnx import NotNative, import_model

ort = pytest.importorskip("onnxruntime")

KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}
SCALES = np.array([0.5, 0.013, 2], np.float32)


def model(nodes: Sequence[Any], x: str, y: str, **constants: NDArray[Any]) -> Any:
    """A model over rows of three."""
    ends = [
        helper.make_tensor_value_info(name, KINDS[kind], [None, 3])
        for name, kind in (("x", x), ("y", y))
    ]
    known = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "quantised", ends[:1], ends[1:], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def assert_as_onnxruntime(made: Any, x: NDArray[Any]) -> None:
    """The very numbers that onnxruntime answers, by definitions and native code."""
    (want,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    program = import_model(made, native_only=True)
    plan, data = program.flow.plan(), program.feed({"x": x})
    assert all(stage.native for stage in plan.stages)
    for columns in (program.flow.reference(data), plan.run(data)):
        got = program.answer(columns)["y"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("scales", [SCALES, SCALES[:1].reshape(())])
def test_to_whole_numbers_and_back(kind: str, scales: NDArray[np.float32]) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(scale=60, size=(60, 3)), rng.integers(-500, 500, (60, 3)) / 4])
    zeros = np.resize(np.array([3, 120, 0], kind), scales.shape)
    first = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], axis=1)
    quantised = model([first], "float32", kind, scale=scales, zero=zeros)
    assert_as_onnxruntime(quantised, x.astype(np.float32))
    back = helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["y"], axis=1)
    every = np.arange(255).reshape(85, 3).astype(kind)
    assert_as_onnxruntime(model([back], kind, "float32", scale=scales, zero=zeros), every)


def test_too_large_numbers_stay_at_the_limit() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    made = model([node], "float32", "int8", scale=SCALES[0], zero=np.array(-5, np.int8))
    ends = np.array([[1e30, -1e30, 0], [np.inf, -np.inf, 70], [1e9, -1e9, -70]], np.float32)
    program = import_model(made, native_only=True)
    data = program.feed({"x": ends})
    for columns in (program.flow.reference(data), program.flow.plan().run(data)):
        got = program.answer(columns)["y"]
        np.testing.assert_array_equal(got, [[127, -128, -5], [127, -128, 127], [127, -128, -128]])


def test_products_of_quantised_rows() -> None:
    rng = np.random.default_rng(2)
    x, w = (rng.integers(0, 256, shape).astype(np.uint8) for shape in ((50, 3), (3, 3)))
    names = ["x", "s", "z", "w", "t", "u", "r", "v"]
    node = helper.make_node("QLinearMatMul", names, ["y"])
    scales = {name: np.float32(value) for name, value in (("s", 0.02), ("t", 0.03), ("r", 0.9))}
    zeros = {name: np.uint8(value) for name, value in (("z", 113), ("u", 120), ("v", 118))}
    constants = {name: np.array(value) for name, value in (scales | zeros).items()}
    assert_as_onnxruntime(model([node], "uint8", "uint8", w=w, **constants), x)


def test_scales_of_all_rows_together_are_refused() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    with pytest.raises(NotNative, match="native") as caught:
        import_model(model([node], "float32", "uint8"), native_only=True)
    assert "a reduction over all rows" in str(caught.value.found)
