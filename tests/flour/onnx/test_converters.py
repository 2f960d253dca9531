"""What converters of boosters write around their trees: native, and equal to onnxruntime.

The graphs are those of onnxmltools (LightGBM, XGBoost), of the same converters registered with
skl2onnx, and of CatBoost's own export, with trees made up here; docs/reference/onnx.md has which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from tests.onnx_models import same
from tests.onnx_parts import FLOAT, INT64, Port, model, node

RNG = np.random.default_rng(20181008)
ODD = np.array([[np.nan] * 3, [np.inf, -np.inf, 0.0]])
NEW = np.concatenate([RNG.normal(size=(30, 3)), ODD]).astype(np.float32)
ML = "ai.onnx.ml"
NUMBER = np.float32


def trees(kind: str, outputs: int, count: int = 6, seed: int = 1) -> dict[str, Any]:
    """The attributes of an ensemble of stumps of two leaves; tree t is about output t % outputs."""
    rng, about = np.random.default_rng(seed), np.arange(count) % outputs
    leaves = "class" if kind == "TreeEnsembleClassifier" else "target"
    number = np.repeat(np.arange(count), 3)
    return {
        "nodes_treeids": number,
        "nodes_nodeids": np.tile([0, 1, 2], count),
        "nodes_featureids": np.where(np.tile([1, 0, 0], count), rng.integers(0, 3, 3 * count), 0),
        "nodes_values": np.where(np.tile([1, 0, 0], count), rng.normal(size=3 * count), 0.0),
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * count,
        "nodes_truenodeids": np.tile([1, 0, 0], count),
        "nodes_falsenodeids": np.tile([2, 0, 0], count),
        "nodes_missing_value_tracks_true": np.tile([1, 0, 0], count),
        f"{leaves}_treeids": np.repeat(np.arange(count), 2),
        f"{leaves}_nodeids": np.tile([1, 2], count),
        f"{leaves}_ids": np.repeat(about, 2),
        f"{leaves}_weights": rng.normal(size=2 * count),
    }


def ensemble(kind: str, inputs: Sequence[str], outputs: Sequence[str], **how: Any) -> Any:
    """One ensemble node; `classes` or `targets` says how many outputs there are."""
    count = how.pop("classes", 0) or how.pop("targets", 1)
    many = how.pop("trees_about", count)
    given = {**trees(kind, many, seed=how.pop("seed", 1)), "post_transform": "NONE", **how}
    if kind == "TreeEnsembleClassifier":
        given["classlabels_int64s"] = list(range(count))
    else:
        given["n_targets"] = count
    return node(kind, inputs, outputs, domain=ML, **given)


def written(nodes: list[Any], outputs: list[Port], constants: dict[str, Any]) -> ModelProto:
    return model(nodes, [("X", FLOAT, [None, 3])], outputs, constants, opset=15)


def classifier(classes: int) -> ModelProto:
    """LightGBM's: labels and probabilities, then nothing much."""
    how = {"post_transform": "LOGISTIC" if classes == 2 else "SOFTMAX", "classes": classes}
    if classes == 2:
        how["trees_about"] = 1
    return written(
        [
            ensemble("TreeEnsembleClassifier", ["X"], ["l", "p"], **how),
            node("Identity", ["l"], ["label_"]),
            node("Cast", ["label_"], ["label"], to=TensorProto.INT64),
            node("Mul", ["p", "one"], ["probabilities"]),
        ],
        [("label", INT64, [1]), ("probabilities", FLOAT, [None, classes])],
        {"one": np.array(1, NUMBER)},
    )


def averaged() -> ModelProto:
    """LightGBM's random forest: the mean of the trees, and its label worked out again."""
    return written(
        [
            ensemble("TreeEnsembleClassifier", ["X"], ["l", "p"], classes=2, trees_about=1),
            node("ArrayFeatureExtractor", ["p", "first"], ["f"], domain=ML),
            node("Div", ["f", "many"], ["second"]),
            node("Sub", ["one", "second"], ["zeroth"]),
            node("Concat", ["zeroth", "second"], ["merged"], axis=1),
            node("ArgMax", ["merged"], ["place"], axis=1),
            node("ArrayFeatureExtractor", ["classes", "place"], ["name"], domain=ML),
            node("Reshape", ["name", "flat"], ["label"]),
            node("Identity", ["merged"], ["probabilities"]),
        ],
        [("label", INT64, [None]), ("probabilities", FLOAT, [None, 2])],
        {
            "first": np.array(1, np.int64),
            "many": np.array(6, NUMBER),
            "one": np.array(1, NUMBER),
            "classes": np.array([0, 1], np.int64),
            "flat": np.array([-1], np.int64),
        },
    )


def split() -> ModelProto:
    """LightGBM's regressor cut in pieces, which are added up in float64."""
    nodes = []
    for k in range(3):
        nodes.append(ensemble("TreeEnsembleRegressor", ["X"], [f"t{k}"], seed=k))
        nodes.append(node("Cast", [f"t{k}"], [f"d{k}"], to=TensorProto.DOUBLE))
    nodes += [
        node("Sum", ["d0", "d1", "d2"], ["sum"]),
        node("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
    ]
    return written(nodes, [("y", FLOAT, [None, 1])], {})


def poisson() -> ModelProto:
    """XGBoost's: the exponent of the trees, times the base score."""
    return written(
        [
            ensemble("TreeEnsembleRegressor", ["X"], ["t"]),
            node("Exp", ["t"], ["e"]),
            node("Mul", ["e", "base"], ["y"]),
        ],
        [("y", FLOAT, [None, 1])],
        {"base": np.array([4.4], NUMBER)},
    )


def columns() -> ModelProto:
    """skl2onnx's, asked for an output for each class."""
    cuts = {f"at{k}": np.array([k], np.int64) for k in range(4)}
    nodes = [
        node("Scaler", ["X"], ["s"], domain=ML, offset=[0.1, 0.2, 0.3], scale=[1.0, 2.0, 0.5]),
        ensemble("TreeEnsembleClassifier", ["s"], ["l", "p"], classes=3, post_transform="SOFTMAX"),
        node("Cast", ["l"], ["label"], to=TensorProto.INT64),
    ]
    for k in range(3):
        nodes.append(node("Slice", ["p", f"at{k}", f"at{k + 1}", "at1"], [f"c{k}"]))
        nodes.append(node("Reshape", [f"c{k}", "flat"], [f"i{k}"]))
    ports: list[Port] = [("label", INT64, [None])]
    ports += [(f"i{k}", FLOAT, [None]) for k in range(3)]
    return written(nodes, ports, {**cuts, "flat": np.array([-1], np.int64)})


def catboost() -> ModelProto:
    """CatBoost's: an output declared with fewer dimensions than it has."""
    made = ensemble("TreeEnsembleRegressor", ["X"], ["y"], base_values=[-0.02])
    return written([made], [("y", FLOAT, [None])], {})


GRAPHS = {
    "two classes": classifier(2),
    "three classes": classifier(3),
    **{f.__name__: f() for f in (averaged, split, poisson, columns, catboost)},
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_converters_write_is_native(name: str) -> None:
    same(GRAPHS[name], {"X": NEW}, share=1e-6)
