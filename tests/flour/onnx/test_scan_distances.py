"""Scans that exporters write for distances: native whatever the number of points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flour.onnx import NotNative, import_model
from tests.onnx_models import model, node, onnx, same

_POINTS = np.random.default_rng(3).normal(size=(80, 4)).astype(np.float32)
_ROWS = np.random.default_rng(4).normal(size=(9, 4)).astype(np.float32)
_FLOAT = onnx.TensorProto.FLOAT


def _body(steps: list[Any], exponent: float) -> Any:
    """The graph of a round: the state goes on as it is, the last of the steps is collected."""
    value = onnx.helper.make_tensor_value_info
    kept = node("Identity", ["x"], ["kept"])
    power = onnx.numpy_helper.from_array(np.array(exponent, np.float32), "exponent")
    return onnx.helper.make_graph(
        [kept, *steps],
        "round",
        [value("x", _FLOAT, [None, 4]), value("point", _FLOAT, [4])],
        [value("kept", _FLOAT, [None, 4]), value("total", _FLOAT, [None])],
        [power],
    )


def _scan(steps: list[Any], exponent: float = 3.0) -> Any:
    scan = node("Scan", ["x", "points"], ["state", "found"], body=_body(steps, exponent))
    scan.attribute.append(onnx.helper.make_attribute("num_scan_inputs", 1))
    turned = node("Transpose", ["found"], ["gaps"], perm=[1, 0])
    return model(
        [scan, turned],
        {"x": ("float32", [None, 4])},
        {"gaps": "float32"},
        constants={"points": _POINTS},
        opsets={"": 11},
    )


_GAP = node("Sub", ["x", "point"], ["gap"])
_SIZE = node("Abs", ["gap"], ["size"])
_SUM: dict[str, Any] = {"axes": [1], "keepdims": 0}
_CHAINS = {
    "squares": [_GAP, node("ReduceSumSquare", ["gap"], ["total"], **_SUM)],
    "sizes": [_GAP, _SIZE, node("ReduceSum", ["size"], ["total"], **_SUM)],
    "powers": [
        _GAP,
        _SIZE,
        node("Pow", ["size", "exponent"], ["powers"]),
        node("ReduceSum", ["powers"], ["total"], **_SUM),
    ],
}


@pytest.mark.parametrize("name", sorted(_CHAINS))
def test_distances_to_many_points_are_native(name: str) -> None:
    same(_scan(_CHAINS[name]), {"x": _ROWS}, share=1e-6)
    same(_scan(_CHAINS[name], 1.5), {"x": _ROWS}, share=1e-6)


def test_they_are_compiled() -> None:
    same(_scan(_CHAINS["powers"]), {"x": _ROWS}, native=True, share=1e-6)


def test_nan_and_infinity_are_what_they_are() -> None:
    rows = _ROWS.copy()
    rows[0, 0], rows[1, 1], rows[2, 2] = np.nan, np.inf, -np.inf
    same(_scan(_CHAINS["powers"]), {"x": rows}, rtol=1e-5)


@pytest.mark.parametrize(
    "steps",
    [
        [_GAP, node("ReduceSum", ["gap"], ["total"], **_SUM)],
        [node("Sub", ["point", "x"], ["gap"]), _SIZE, _CHAINS["sizes"][-1]],
        [_GAP, _SIZE, node("ReduceSum", ["gap"], ["total"], **_SUM)],
        [_GAP, _SIZE, node("ReduceSum", ["size"], ["total"], axes=[0], keepdims=0)],
    ],
    ids=["sum", "order", "skips", "rows"],
)
def test_what_is_not_quite_that_is_not_taken_for_it(steps: list[Any]) -> None:
    with pytest.raises(NotNative, match="a scan of 80 rounds"):
        import_model(_scan(steps), native_only=True)
