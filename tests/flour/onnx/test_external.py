"""Tensors in files beside the model, inside nodes that onnxruntime runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import flour
import oven
import runtime
from flour.onnx import DamagedModel
from runtime.onnx.errors import InvalidGraph
from tests.onnx_parts import FLOAT, model, node

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)


def outside(name: str, location: str = "weights.bin") -> TensorProto:
    """The weights, as a tensor whose data is in a file."""
    made = numpy_helper.from_array(WEIGHTS, name)
    made.ClearField("raw_data")
    made.data_location = TensorProto.EXTERNAL
    made.external_data.add(key="location", value=location)
    return made


def branching(location: str = "weights.bin") -> Any:
    """A choice by the data, whose branches have constants of their own in a file."""
    out = [helper.make_tensor_value_info("out", FLOAT, None)]
    product = node("MatMul", ["x", "w"], ["out"])
    then = helper.make_graph([product], "then", [], out, [outside("w", location)])
    constant = node("Constant", [], ["w2"], value=outside("", location))
    steps = [constant, node("MatMul", ["x", "w2"], ["p"]), node("Abs", ["p"], ["out"])]
    other = helper.make_graph(steps, "else", [], out)
    return model(
        [
            node("ReduceSum", ["x"], ["total"], keepdims=0),
            node("Greater", ["total", "zero"], ["positive"]),
            node("If", ["positive"], ["y"], then_branch=then, else_branch=other),
        ],
        [("x", FLOAT, ["N", 4])],
        [("y", FLOAT, ["N", 4])],
        {"zero": np.zeros((), np.float32)},
    )


def saved(made: Any, folder: Path) -> Path:
    """The model in a file, and the weights beside it."""
    (folder / "weights.bin").write_bytes(WEIGHTS.tobytes())
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_parts_take_in_what_is_in_files(tmp_path: Path) -> None:
    path = saved(branching(), tmp_path)
    theirs = onnxruntime.InferenceSession(str(path))
    ours, plan = runtime.InferenceSession(path), oven.bake(flour.from_onnx(path))
    (tmp_path / "weights.bin").unlink()
    for rows in (np.abs(X), -np.abs(X)):
        (want,) = theirs.run(None, {"x": rows})
        np.testing.assert_allclose(ours.run(None, {"x": rows})[0], want, rtol=1e-5)
        np.testing.assert_allclose(plan.run({"x": rows})["y"], want, rtol=1e-5)


def constant(location: str = "weights.bin") -> Any:
    """A product with a constant of a node."""
    steps = [node("Constant", [], ["w"], value=outside("", location))]
    steps.append(node("MatMul", ["x", "w"], ["y"]))
    return model(steps, [("x", FLOAT, ["N", 4])], [("y", FLOAT, ["N", 4])])


def test_constants_of_native_nodes(tmp_path: Path) -> None:
    found = flour.from_onnx(saved(constant(), tmp_path), native_only=True).reference(X)["y"]
    np.testing.assert_allclose(found, X @ WEIGHTS, rtol=1e-5)


@pytest.mark.parametrize("make", [branching, constant])
def test_nothing_outside_the_folder_is_read(tmp_path: Path, make: Any) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    (inner / "link.bin").symlink_to(tmp_path / "secret.bin")
    for location in ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin", "absent.bin", ""):
        path = saved(make(location), inner)
        with pytest.raises(DamagedModel):
            flour.from_onnx(path)
        with pytest.raises(InvalidGraph):
            runtime.InferenceSession(path)


def test_a_model_from_nowhere_has_no_files() -> None:
    with pytest.raises(DamagedModel, match="not read from one"):
        flour.from_onnx(branching().SerializeToString())
