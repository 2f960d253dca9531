"""Trees of ai.onnx.ml, every test and rule of them, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flour.onnx import import_model
from flour.onnx.errors import NotNative
from tests.onnx_models import ml, model, same

_MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
_VALUES = [-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 3.0]
_LINKS = ["NONE", "LOGISTIC", "SOFTMAX"]
_OFTEN = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
_X = np.array(
    [[a, b] for a in [*_VALUES, np.nan, np.inf, -np.inf] for b in (0.0, 1.0, np.nan)], np.float32
)


class Forest:
    """Attributes of a forest, written node by node."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids")
        rest = ("falsenodeids", "missing_value_tracks_true")
        self.nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in (*names, *rest)}
        self.leaves: dict[str, list[Any]] = {
            f"{kind}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")
        }

    def node(self, *values: Any) -> None:
        """One node: tree, node, feature, mode, value, where it leads, what NaN does."""
        for listed, value in zip(self.nodes.values(), values, strict=True):
            listed.append(value)

    def weight(self, *values: Any) -> None:
        """What a leaf adds: tree, node, target, weight."""
        for listed, value in zip(self.leaves.values(), values, strict=True):
            listed.append(value)


@st.composite
def forests(draw: st.DrawFn, kind: str, targets: int, *, dense: bool) -> dict[str, Any]:
    """Forests of a few small trees of every mode."""
    made = Forest(kind)
    for tree in range(draw(st.integers(1, 3))):
        inner = draw(st.integers(1, 4))
        size = 2 * inner + 1
        for number in range(inner):
            feature, mode = draw(st.integers(0, 1)), draw(st.sampled_from(_MODES))
            value, missing = draw(st.sampled_from(_VALUES)), draw(st.integers(0, 1))
            ways = 2 * number + 1, 2 * number + 2
            made.node(tree, number, feature, mode, value, *ways, missing)
        for number in range(inner, size):
            made.node(tree, number, 0, "LEAF", 0.0, 0, 0, 0)
            chosen = range(targets) if dense else [draw(st.integers(0, targets - 1))]
            for target in chosen:
                made.weight(tree, number, target, draw(st.sampled_from([-1.5, -0.25, 0.25, 0.75])))
    return {**made.nodes, **made.leaves}


def _regressor(attributes: dict[str, Any], dtype: str = "float32") -> Any:
    made = ml("TreeEnsembleRegressor", ["X"], ["Y"], **attributes)
    return model([made], {"X": (dtype, [None, 2])}, {"Y": "float32"})


def _classifier(attributes: dict[str, Any], dtype: str = "float32", label: str = "int64") -> Any:
    made = ml("TreeEnsembleClassifier", ["X"], ["L", "Z"], **attributes)
    return model([made], {"X": (dtype, [None, 2])}, {"L": label, "Z": "float32"})


@_OFTEN
@given(st.data())
def test_regressors(data: st.DataObject) -> None:
    targets = data.draw(st.integers(1, 3))
    attributes = data.draw(forests("target", targets, dense=data.draw(st.booleans())))
    way = data.draw(st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]))
    base = data.draw(st.sampled_from([{}, {"base_values": [0.5, -1.0, 2.0][:targets]}]))
    link = data.draw(st.sampled_from(_LINKS))
    rest = {"n_targets": targets, "aggregate_function": way, "post_transform": link}
    same(_regressor({**attributes, **base, **rest}), {"X": _X})


@_OFTEN
@given(st.data())
def test_classifiers_of_many(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 4))
    attributes = data.draw(forests("class", count, dense=data.draw(st.booleans())))
    base = data.draw(st.sampled_from([{}, {"base_values": [0.5, -1.0, 2.0, 0.25][:count]}]))
    rest = {"classlabels_int64s": [7, 5, -1, 0][:count]}
    link = data.draw(st.sampled_from(_LINKS))
    same(_classifier({**attributes, **base, **rest, "post_transform": link}), {"X": _X})


@_OFTEN
@given(st.data())
def test_classifiers_of_two(data: st.DataObject) -> None:
    attributes = data.draw(forests("class", 2, dense=data.draw(st.booleans())))
    if data.draw(st.booleans()):
        attributes["class_ids"] = [data.draw(st.integers(0, 1))] * len(attributes["class_ids"])
        keys = ("class_treeids", "class_nodeids", "class_ids", "class_weights")
        found = zip(*(attributes[key] for key in keys), strict=True)
        firsts = {entry[:2]: entry for entry in found}
        attributes |= dict(zip(keys, map(list, zip(*firsts.values(), strict=True)), strict=True))
    base = data.draw(st.sampled_from([{}, {"base_values": [0.5]}, {"base_values": [0.5, -1.0]}]))
    kind = data.draw(st.sampled_from(["int64", "string"]))
    labels = {"int64": ("int64s", [7, 5]), "string": ("strings", ["yes", "no"])}[kind]
    rest = {f"classlabels_{labels[0]}": labels[1]}
    link = data.draw(st.sampled_from(_LINKS))
    proto = _classifier({**attributes, **base, **rest, "post_transform": link}, label=kind)
    try:
        import_model(proto, native_only=True)
    except NotNative as problem:
        assert "unwritten" in str(problem) or "no leaf" in str(problem)  # noqa: PT017
        return
    same(proto, {"X": _X})


def _stump(**how: Any) -> dict[str, Any]:
    made = Forest("class")
    made.node(0, 0, 1, "BRANCH_LEQ", 0.1, 1, 2, 1)
    made.node(0, 1, 0, "LEAF", 0.0, 0, 0, 0)
    made.node(0, 2, 0, "LEAF", 0.0, 0, 0, 0)
    for node in (1, 2):
        for target in range(3):
            made.weight(0, node, target, 0.1 * (node * target % 4))
    return {**made.nodes, **made.leaves, **how}


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_other_kinds_of_numbers(dtype: str) -> None:
    values = np.array([[0, 0], [1, 1], [-2, -1], [16777217, 3]], dtype)
    if dtype == "float64":
        values[0] = float(np.float32(0.1)) + 1e-12
    same(_classifier(_stump(classlabels_int64s=[1, 2, 3]), dtype), {"X": values})


def test_labels_that_are_text() -> None:
    attributes = _stump(classlabels_strings=["a", "b", "ç"])
    same(_classifier(attributes, label="string"), {"X": _X})


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_several_weights_of_a_leaf_for_one_target(how: str, targets: int) -> None:
    """Of one target, onnxruntime reads the first: converters write the number of a leaf so."""
    lists = {key: value for key, value in _stump().items() if key.startswith("nodes")}
    lists |= {"target_treeids": [0] * 4, "target_nodeids": [2, 1, 2, 1], "target_ids": [0] * 4}
    lists |= {"target_weights": [1.0, 2.0, 3.0, 4.0], "aggregate_function": how}
    proto = _regressor({**lists, "n_targets": targets})
    if targets == 2 and how in ("MIN", "MAX"):
        with pytest.raises(NotNative, match="several weights"):
            import_model(proto, native_only=True)
        return
    same(proto, {"X": _X})


def test_native_code_answers_the_same() -> None:
    attributes = _stump(classlabels_int64s=[1, 2, 3], post_transform="SOFTMAX")
    attributes["nodes_modes"] = ["BRANCH_EQ", "LEAF", "LEAF"]
    same(_classifier(attributes), {"X": _X}, native=True)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"nodes_truenodeids": [9, 0, 0]}, "not there"),
        ({"nodes_truenodeids": [0, 0, 0]}, "met twice"),
        ({"nodes_falsenodeids": [1, 0, 0]}, "met twice"),
        ({"nodes_featureids": [2, 0, 0]}, "feature 2 of 2"),
        ({"nodes_modes": ["BRANCH", "LEAF", "LEAF"]}, "unknown test"),
        ({"class_ids": [5, 0, 0, 0, 0, 0]}, "target 5 of 3"),
        ({"nodes_nodeids": [0, 1, 1]}, "two nodes"),
    ],
)
def test_damaged_trees_are_said(change: dict[str, Any], what: str) -> None:
    attributes = _stump(classlabels_int64s=[1, 2, 3]) | change
    with pytest.raises(NotNative, match=what):
        import_model(_classifier(attributes), native_only=True)
