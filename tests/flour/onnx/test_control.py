"""If, Scan and the distances exporters write with them, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from flour.onnx import import_model
from flour.onnx.errors import NotNative
from tests.onnx_models import model, node, same

_X = np.random.default_rng(3).normal(size=(6, 3)).astype(np.float32)
_POINTS = np.random.default_rng(4).normal(size=(70, 3)).astype(np.float32)


def _value(name: str, kind: int = onnx.TensorProto.FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _branch(op: str, *inputs: str) -> Any:
    return helper.make_graph([node(op, inputs, ["out"])], op, [], [_value("out")])


@pytest.mark.parametrize("chosen", [True, False])
def test_a_condition_that_is_known_picks_its_branch(chosen: bool) -> None:  # noqa: FBT001
    branches = {"then_branch": _branch("Exp", "X"), "else_branch": _branch("Neg", "X")}
    nodes = [node("If", ["C"], ["Y"], **branches)]
    constants = {"C": np.array(chosen)}
    proto = model(nodes, {"X": ("float32", [None, 3])}, {"Y": "float32"}, constants=constants)
    same(proto, {"X": _X})


def test_a_condition_of_the_data_chooses_between_both() -> None:
    branches = {"then_branch": _branch("Exp", "X"), "else_branch": _branch("Neg", "X")}
    nodes = [
        node("ReduceSum", ["X"], ["S"], keepdims=0),
        node("Greater", ["S", "Z"], ["C"]),
        node("If", ["C"], ["Y"], **branches),
    ]
    constants = {"Z": np.float32(0)}
    proto = model(nodes, {"X": ("float32", [3])}, {"Y": "float32"}, constants=constants)
    for row in _X:
        same(proto, {"X": row})
    batch = model(nodes, {"X": ("float32", [None, 3])}, {"Y": "float32"}, constants=constants)
    with pytest.raises(NotNative):
        import_model(batch, native_only=True)


def _distances(points: Any, *, keeps: int = 0) -> Any:
    body = helper.make_graph(
        [
            node("Identity", ["state"], ["same"]),
            node("Sub", ["state", "point"], ["gap"]),
            node("ReduceSumSquare", ["gap"], ["sum"], axes=[1], keepdims=keeps),
            node("Identity", ["sum"], ["out"]),
        ],
        "body",
        [_value("state"), _value("point")],
        [_value("same"), _value("out")],
    )
    nodes = [
        node("Scan", ["X", "P"], ["S", "D"], body=body, num_scan_inputs=1),
        node("Transpose", ["D"], ["Y"], perm=[1, 0] if not keeps else [1, 0, 2]),
    ]
    inputs, constants = {"X": ("float32", [None, 3])}, {"P": points}
    return model(nodes, inputs, {"Y": "float32"}, constants=constants)


def test_the_scan_that_means_distances() -> None:
    same(_distances(_POINTS), {"X": _X}, rtol=1e-5)


def test_another_scan_over_points_is_unrolled() -> None:
    same(_distances(_POINTS[:5], keeps=1), {"X": _X}, rtol=1e-5)
    with pytest.raises(NotNative, match="70 rounds"):
        import_model(_distances(_POINTS, keeps=1), native_only=True)


def _along_rows(*, total: bool) -> Any:
    op = "Add" if total else "Identity"
    inputs = ["state", "row"] if total else ["state"]
    body = helper.make_graph(
        [
            node(op, inputs, ["next"]),
            node("Sub", ["row", "next"], ["gap"]),
            node("ReduceSum", ["gap"], ["out"], keepdims=0),
        ],
        "body",
        [_value("state"), _value("row")],
        [_value("next"), _value("out")],
    )
    nodes = [node("Scan", ["C", "X"], ["S", "Y"], body=body, num_scan_inputs=1)]
    given, constants = {"X": ("float32", [None, 3])}, {"C": _POINTS[0]}
    return model(nodes, given, {"Y": "float32"}, constants=constants)


def test_a_scan_along_the_rows() -> None:
    same(_along_rows(total=False), {"X": _X}, rtol=1e-5)
    with pytest.raises(NotNative, match="depends on those before"):
        import_model(_along_rows(total=True), native_only=True)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_by_their_own_operator(metric: str) -> None:
    nodes = [node("CDist", ["X", "P"], ["Y"], "com.microsoft", metric=metric)]
    inputs, constants = {"X": ("float32", [None, 3])}, {"P": _POINTS}
    proto = model(nodes, inputs, {"Y": "float32"}, constants=constants)
    same(proto, {"X": _X}, rtol=1e-4, atol=1e-4)
