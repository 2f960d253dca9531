"""Linear models and support vector machines of ai.onnx.ml against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flour.onnx import import_model
from flour.onnx.errors import NotNative
from flour.ops.linear import Linear
from runtime import InferenceSession
from tests.onnx_models import ml, model, same, wanted

_LINKS = ["NONE", "LOGISTIC", "SOFTMAX"]
_OFTEN = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
_RNG = np.random.default_rng(7)
_X = np.concatenate([_RNG.normal(size=(20, 3)), [[0, 0, 0], [-0.0, 1, 0]]]).astype(np.float32)


def _floats(count: int) -> list[float]:
    return [float(value) for value in _RNG.normal(size=count).astype(np.float32)]


def _classifier(op: str, attributes: dict[str, Any], dtype: str = "float32") -> Any:
    label = "string" if "classlabels_strings" in attributes else "int64"
    nodes = [ml(op, ["X"], ["L", "Z"], **attributes)]
    return model(nodes, {"X": (dtype, [None, 3])}, {"L": label, "Z": "float32"})


@_OFTEN
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(_LINKS), st.booleans())
def test_linear_classifiers(scores: int, labels: int, link: str, text: bool) -> None:  # noqa: FBT001
    labels = max(labels, scores) if scores > 1 else 2
    names: dict[str, Any] = {"classlabels_ints": [9, 4, 0, -3][:labels]}
    if text:
        names = {"classlabels_strings": ["x", "y", "ü", "z"][:labels]}
    weights = {"coefficients": _floats(3 * scores), "intercepts": _floats(scores)}
    same(_classifier("LinearClassifier", {**names, **weights, "post_transform": link}), {"X": _X})


@pytest.mark.parametrize("link", _LINKS)
@pytest.mark.parametrize("text", [True, False])
def test_two_classes_that_are_opposites_are_one_product(link: str, *, text: bool) -> None:
    names = {"classlabels_strings": ["x", "y"]} if text else {"classlabels_ints": [7, -2]}
    one = [*_floats(3), 0.25]
    weights = {"coefficients": [-v for v in one[:3]] + one[:3], "intercepts": [-0.25, 0.25]}
    proto = _classifier("LinearClassifier", {**names, **weights, "post_transform": link})
    odd = np.array([[np.nan, 0, 1], [np.inf, 0, 0], [-np.inf, 1, 1]])
    same(proto, {"X": np.concatenate([_X, odd.astype(np.float32)])})
    flow = import_model(proto).flow
    assert [item.op.weights.shape for item in flow.nodes() if isinstance(item.op, Linear)] == [
        (1, 3)
    ]


def test_two_classes_that_are_none_stay_two_products() -> None:
    weights = {"coefficients": [1.0, 2, 3, -1, -2, -3], "intercepts": [0.5, 0.5]}
    proto = _classifier("LinearClassifier", {**weights, "classlabels_ints": [0, 1]})
    flow = import_model(proto).flow
    assert any(isinstance(i.op, Linear) and len(i.op.weights) == 2 for i in flow.nodes())
    same(proto, {"X": _X})


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_other_kinds_of_numbers(dtype: str) -> None:
    weights = {"coefficients": _floats(6), "intercepts": _floats(2), "classlabels_ints": [1, 2]}
    same(_classifier("LinearClassifier", weights, dtype), {"X": (_X * 9).astype(dtype)}, atol=1e-5)


@pytest.mark.parametrize("link", _LINKS)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressors(targets: int, link: str) -> None:
    attributes = {
        "coefficients": [value * 0.1 for value in _floats(3 * targets)],
        "intercepts": [0.5] * targets,
        "targets": targets,
        "post_transform": link,
    }
    nodes = [ml("LinearRegressor", ["X"], ["Y"], **attributes)]
    proto = model(nodes, {"X": ("float32", [None, 3])}, {"Y": "float32"})
    same(proto, {"X": _X}, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("link", ["PROBIT", "SOFTMAX_ZERO"])
def test_links_that_no_converter_writes_are_onnxruntimes(link: str) -> None:
    attributes = {"coefficients": _floats(9), "intercepts": _floats(3), "targets": 3}
    nodes = [ml("LinearRegressor", ["X"], ["Y"], **attributes, post_transform=link)]
    proto = model(nodes, {"X": ("float32", [None, 3])}, {"Y": "float32"})
    with pytest.raises(NotNative, match="native"):
        import_model(proto, native_only=True)
    (got,) = InferenceSession(proto).run(None, {"X": _X})
    np.testing.assert_array_equal(got, wanted(proto, {"X": _X})["Y"])


_KERNELS = [
    ("LINEAR", [0.0, 0.0, 0.0]),
    ("RBF", [0.4, 0.0, 0.0]),
    ("POLY", [0.3, 1.5, 2.0]),
    ("SIGMOID", [0.2, 0.1, 0.0]),
]


@_OFTEN
@given(st.integers(2, 4), st.sampled_from(_KERNELS), st.booleans(), st.sampled_from(_LINKS))
def test_support_vector_classifiers(
    count: int,
    kernel: tuple[str, list[float]],
    proba: bool,  # noqa: FBT001
    link: str,
) -> None:
    sizes, pairs = [2, 1, 3, 2][:count], count * (count - 1) // 2
    total = sum(sizes)
    attributes: dict[str, Any] = {
        "classlabels_ints": [3, 1, 8, 0][:count],
        "vectors_per_class": sizes,
        "support_vectors": _floats(3 * total),
        "coefficients": _floats((count - 1) * total),
        "rho": _floats(pairs),
        "kernel_type": kernel[0],
        "kernel_params": kernel[1],
        "post_transform": link,
    }
    if proba:
        attributes |= {"prob_a": [-abs(v) for v in _floats(pairs)], "prob_b": _floats(pairs)}
    same(_classifier("SVMClassifier", attributes), {"X": _X}, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kernel", _KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vector_regressors(kernel: tuple[str, list[float]], one_class: int) -> None:
    attributes = {
        "support_vectors": _floats(12),
        "n_supports": 4,
        "coefficients": _floats(4),
        "rho": [0.25],
        "kernel_type": kernel[0],
        "kernel_params": kernel[1],
        "one_class": one_class,
    }
    nodes = [ml("SVMRegressor", ["X"], ["Y"], **attributes)]
    proto = model(nodes, {"X": ("float32", [None, 3])}, {"Y": "float32"})
    same(proto, {"X": _X}, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("link", ["PROBIT", "LOGISTIC", "SOFTMAX"])
def test_what_a_machine_says_goes_through_no_link(link: str) -> None:
    attributes = {"coefficients": _floats(3), "rho": [0.5], "kernel_params": [0.0, 0.0, 0.0]}
    nodes = [ml("SVMRegressor", ["X"], ["Y"], post_transform=link, **attributes)]
    same(model(nodes, {"X": ("float32", [None, 3])}, {"Y": "float32"}), {"X": _X}, atol=1e-5)


def test_linear_machines() -> None:
    attributes = {"classlabels_ints": [3, 1, 8], "coefficients": _floats(9)}
    attributes |= {"rho": [0.5], "kernel_params": [0.0, 0.0, 0.0]}
    same(_classifier("SVMClassifier", attributes), {"X": _X}, atol=1e-5)


def test_one_row_of_several_in_a_static_model() -> None:
    attributes = {"coefficients": _floats(6), "intercepts": [0.1, 0.2], "classlabels_ints": [5, 6]}
    nodes = [ml("LinearClassifier", ["X"], ["L", "Z"], **attributes)]
    proto = model(nodes, {"X": ("float32", [4, 3])}, {"L": "int64", "Z": "float32"})
    same(proto, {"X": _X[:4]})
    whole = model(nodes, {"X": ("float32", [3])}, {"L": "int64", "Z": "float32"})
    same(whole, {"X": _X[0]})
