"""Makes ONNX models for onnxruntime: by skl2onnx, and by hand where it has no converter.

Without this, onnxruntime would be absent from the workloads it is most used for. By hand: the
branches of a FeatureUnion (a voting classifier that hands on probabilities, trees as featurizers),
each exactly one ONNX tree operator, and LightGBM's trees.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.inputs import NUMBERS, TEXT, Inputs

OPSET = {"": 18, "ai.onnx.ml": 3}


def export(estimator: Any, inputs: Inputs) -> bytes:
    """The serialised model; its last output is what is compared."""
    with warnings.catch_warnings(), _plain_attributes(), _names_without_words():
        warnings.simplefilter("ignore")
        if type(estimator).__name__ == "LGBMClassifier":
            return bytes(_lightgbm(estimator).SerializeToString())
        steps = dict(getattr(estimator, "steps", []))
        if "features" in steps and inputs.kind == NUMBERS:
            return bytes(_branched(estimator, inputs.data.shape[1]).SerializeToString())
        return bytes(_converted(estimator, inputs).SerializeToString())


@contextmanager
def _plain_attributes() -> Iterator[None]:
    """Convert numpy's integers and booleans, which skl2onnx passes on and onnx refuses."""
    from onnx import helper

    original = helper.make_attribute

    def plain(key: str, value: Any, *more: Any, **named: Any) -> Any:
        if isinstance(value, list | tuple):
            value = [
                int(each) if isinstance(each, bool | np.integer | np.bool_) else each
                for each in value
            ]
        return original(key, value, *more, **named)

    with patch.object(helper, "make_attribute", plain):
        yield


@contextmanager
def _names_without_words() -> Iterator[None]:
    """Skip dictionaries of words, which skl2onnx searches for models for minutes."""
    from skl2onnx.common import utils_sklearn

    original = utils_sklearn.enumerate_model_names

    def names(model: Any, *more: Any, **named: Any) -> Iterator[Any]:
        if isinstance(model, dict) and not any(hasattr(m, "get_params") for m in model.values()):
            return iter(())
        return iter(original(model, *more, **named))

    with patch.object(utils_sklearn, "enumerate_model_names", names):
        yield


def _converted(estimator: Any, inputs: Inputs) -> Any:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    types: list[tuple[str, Any]]
    if inputs.kind == TEXT:
        types = [("X", StringTensorType([None, 1]))]
    elif inputs.kind == NUMBERS:
        types = [("X", FloatTensorType([None, inputs.data.shape[1]]))]
    else:
        numeric = inputs.data.numeric
        types = [
            (name, FloatTensorType([None, 1]) if name in numeric else StringTensorType([None, 1]))
            for name in inputs.data.columns
        ]
    return to_onnx(estimator, initial_types=types, options=_plain(estimator), target_opset=OPSET)


def _plain(estimator: Any) -> dict[Any, Any]:
    """Probabilities as one matrix instead of a list of dicts."""
    return {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else {}


# --- branches -----------------------------------------------------------------------------------


def _branched(estimator: Any, width: int) -> Any:
    """Branches side by side, their concatenation, and the last step, in one graph."""
    from onnx import TensorProto, helper

    union, last = estimator.named_steps["features"], estimator.named_steps["trees"]
    nodes: list[Any] = []
    constants: list[Any] = []
    parts = []
    for name, branch in union.transformer_list:
        parts.append(_branch(name, branch, width, nodes, constants))
    nodes.append(helper.make_node("Concat", parts, ["features"], axis=1))
    columns = last.n_features_in_
    last_graph = _number_graph(last, columns)
    result = _append("last", last_graph, "features", nodes, constants, output=-1)
    graph = helper.make_graph(
        nodes,
        "pipeline",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, width])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, [None, 1])],
        constants,
    )
    return _model(graph)


def _branch(name: str, branch: Any, width: int, nodes: list[Any], constants: list[Any]) -> str:
    """Add a branch's nodes; returns the name of its output."""
    kind = type(branch).__name__
    if kind == "RandomTreesEmbedding":
        return _leaves(branch, name, nodes)
    # A vote of one, softly, is its only member's probabilities.
    inner = branch.estimators_[0] if kind == "VotingClassifier" else branch
    return _append(name, _number_graph(inner, width), "X", nodes, constants, output=-1)


def _number_graph(estimator: Any, width: int) -> Any:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType

    types = [("X", FloatTensorType([None, width]))]
    model = to_onnx(estimator, initial_types=types, options=_plain(estimator), target_opset=OPSET)
    return model.graph


def _append(
    name: str, graph: Any, source: str, nodes: list[Any], constants: list[Any], *, output: int
) -> str:
    """Copy a graph's nodes under new names, reading `source`; the name of one of its outputs."""

    def renamed(value: str) -> str:
        return source if value == "X" else f"{name}_{value}" if value else ""

    for item in graph.initializer:
        item.name = renamed(item.name)
        constants.append(item)
    for node in graph.node:
        node.name = f"{name}_{node.name}"
        node.input[:] = [renamed(each) for each in node.input]
        node.output[:] = [renamed(each) for each in node.output]
        nodes.append(node)
    return renamed(graph.output[output].name)


def _leaves(branch: Any, name: str, nodes: list[Any]) -> str:
    """One-hot leaves as a tree regressor with one target for each leaf."""
    trees = _Trees()
    for tree in branch.estimators_:
        trees.add_sklearn(tree.tree_)
    nodes.append(trees.node("X", f"{name}_leaves"))
    return f"{name}_leaves"


class _Trees:
    """The attributes of a TreeEnsembleRegressor, tree by tree."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, int, float, int, int]] = []
        self.targets: list[tuple[int, int, int, float]] = []
        self.trees = self.leaves = 0

    def add_sklearn(self, tree: Any) -> None:
        """A tree whose every leaf is a target of its own, worth one."""
        number = self.trees
        for node in range(tree.node_count):
            if tree.children_left[node] < 0:
                self.rows.append((number, node, "LEAF", 0, 0.0, 0, 0))
                self.targets.append((number, node, self.leaves, 1.0))
                self.leaves += 1
            else:
                left, right = int(tree.children_left[node]), int(tree.children_right[node])
                column, limit = int(tree.feature[node]), rounded_down(tree.threshold[node])
                self.rows.append((number, node, "BRANCH_LEQ", column, limit, left, right))
        self.trees += 1

    def add_lightgbm(self, root: dict[str, Any]) -> None:
        """A tree of LightGBM's dump; its leaves add to one target."""
        self._lightgbm(root, iter(range(1 << 30)))
        self.trees += 1
        self.leaves = 1

    def _lightgbm(self, node: dict[str, Any], numbers: Any) -> int:
        number = next(numbers)
        if "leaf_value" in node:
            self.rows.append((self.trees, number, "LEAF", 0, 0.0, 0, 0))
            self.targets.append((self.trees, number, 0, float(node["leaf_value"])))
            return int(number)
        left = self._lightgbm(node["left_child"], numbers)
        right = self._lightgbm(node["right_child"], numbers)
        limit = rounded_down(node["threshold"])
        column = int(node["split_feature"])
        self.rows.append((self.trees, number, "BRANCH_LEQ", column, limit, left, right))
        return int(number)

    def node(self, source: str, result: str) -> Any:
        """The ONNX node."""
        from onnx import helper

        # Nodes of a tree must come in the order of their numbers: runtimes take the first as root.
        self.rows.sort()
        tree, ids, modes, columns, limits, left, right = zip(*self.rows, strict=True)
        owner, leaf_nodes, targets, weights = zip(*self.targets, strict=True)
        return helper.make_node(
            "TreeEnsembleRegressor",
            [source],
            [result],
            domain="ai.onnx.ml",
            n_targets=self.leaves,
            nodes_treeids=tree,
            nodes_nodeids=ids,
            nodes_modes=modes,
            nodes_featureids=columns,
            nodes_values=limits,
            nodes_truenodeids=left,
            nodes_falsenodeids=right,
            nodes_hitrates=[1.0] * len(tree),
            nodes_missing_value_tracks_true=[0] * len(tree),
            target_treeids=owner,
            target_nodeids=leaf_nodes,
            target_ids=targets,
            target_weights=weights,
        )


def rounded_down(limit: float) -> float:
    """The largest float32 that is no larger: the same float32 numbers are below or at it."""
    near = np.float32(limit)
    return float(near if float(near) <= limit else np.nextafter(near, np.float32(-np.inf)))


def _lightgbm(estimator: Any) -> Any:
    """A booster with one output: the sum of its trees, through the logistic function."""
    from onnx import TensorProto, helper

    trees = _Trees()
    for item in estimator.booster_.dump_model()["tree_info"]:
        trees.add_lightgbm(item["tree_structure"])
    nodes = [trees.node("X", "sum"), helper.make_node("Sigmoid", ["sum"], ["probability"])]
    width = estimator.n_features_in_
    graph = helper.make_graph(
        nodes,
        "booster",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, width])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, [None, 1])],
    )
    return _model(graph)


def _model(graph: Any) -> Any:
    from onnx import helper

    opsets = [helper.make_opsetid(domain, number) for domain, number in OPSET.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
