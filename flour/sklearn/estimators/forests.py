"""scikit-learn's trees and ensembles of them, on the one operator of flour/ops/trees/trees.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.trees.trees import TreeLeaves, Trees
from flour.ops.trees.walk import COMPARED, LEFT, RIGHT


def table(trees: Sequence[Any], columns: Sequence[Any] | None = None) -> dict[str, NDArray[Any]]:
    """The nodes of fitted `tree_` objects in one table; `columns` renames each tree's features.

    scikit-learn narrows values to float32, and compares them with float64 thresholds.
    """
    counts = [tree.node_count for tree in trees]
    roots = np.cumsum([0, *counts[:-1]])
    start = np.repeat(roots, counts)
    left, right, threshold = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("children_left", "children_right", "threshold")
    )
    inner = left >= 0
    features = [tree.feature for tree in trees]
    if columns is not None:  # a leaf has a mark below zero, which is no column
        features = [np.asarray(columns[i])[np.maximum(f, 0)] for i, f in enumerate(features)]
    to_left: list[Any] = [getattr(tree, "missing_go_to_left", None) for tree in trees]
    # To 1.2 none takes NaN; later every inner node sends it one way or the other.
    ways = RIGHT if to_left[0] is None else np.where(np.concatenate(to_left) != 0, LEFT, RIGHT)
    return {
        "feature": np.where(inner, np.concatenate(features), -1).astype(np.int32),
        "threshold": np.where(inner, threshold, 0.0),
        "left": np.where(inner, left + start, np.cumsum(~inner) - 1).astype(np.int32),
        "right": np.where(inner, right + start, 0).astype(np.int32),
        "missing": np.where(inner, ways, COMPARED).astype(np.uint8),
        "roots": roots.astype(np.int32),
    }


def covers(trees: Sequence[Any], to: Importer) -> dict[str, NDArray[np.float64]]:
    """The weight of the training rows that reached each node, where covers are asked for."""
    counts = [tree.weighted_n_node_samples for tree in trees] if to.covers else []
    return {"cover": np.concatenate(counts)} if counts else {}


def forest(
    x: Flow, trees: Sequence[Any], to: Importer, *, mean: bool, columns: Sequence[Any] | None = None
) -> Flow:
    """The sum or mean of the trees' leaf values, all outputs side by side."""
    rows = [tree.value[tree.children_left < 0] for tree in trees]
    value = np.concatenate([part.reshape(len(part), -1) for part in rows])
    trees_op = Trees(
        **table(trees, columns),
        **covers(trees, to),
        value=value,
        target=np.zeros(len(trees), np.int32),
        base=np.zeros(value.shape[1]),
        narrow=True,
        divisor=len(trees) if mean else 0,
    )
    return trees_op(x)


# --- single trees and forests -------------------------------------------------------------------


@adapts("sklearn.tree.DecisionTreeClassifier", "sklearn.tree.ExtraTreeClassifier")
def _tree_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return _votes(fit, forest(to.floats(x), _shares([fit]), to, mean=False))


@adapts(
    "sklearn.ensemble.RandomForestClassifier",
    "sklearn.ensemble.ExtraTreesClassifier",
    "imblearn.ensemble.BalancedRandomForestClassifier",
)
def _forest_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return _votes(fit, forest(to.floats(x), _shares(fit.estimators_), to, mean=True))


class _TreeOfShares:
    """A tree whose nodes hold shares of classes."""

    def __init__(self, tree: Fitted, value: NDArray[Any]) -> None:
        self._tree, self.value = tree, value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)


def _shares(estimators: Sequence[Any]) -> list[Any]:
    """The trees of classifiers; to 1.3, nodes hold weights of rows, and predicting divides them."""
    trees = [each.tree_ for each in estimators]
    values = np.concatenate([tree.value for tree in trees])
    if (np.abs(values @ np.ones(values.shape[2]) - 1) <= 1e-6).all():
        return trees
    for at, tree in enumerate(trees):
        totals = tree.value.sum(axis=2, keepdims=True)
        weights = np.abs(totals - 1) > 1e-6
        if weights.any() and totals[weights].any():  # not only of rows without a weight
            trees[at] = _TreeOfShares(tree, tree.value / np.where(totals == 0, 1.0, totals))
    return trees


def _votes(fit: Fitted, values: Flow) -> dict[str, Flow]:
    """Class probabilities, target by target (each tree pads them to the widest target)."""
    if fit.n_outputs_ == 1:
        proba = values.select(np.arange(int(fit.n_classes_)))
        return {"label": proba.arg_max().take(fit.classes_), "probabilities": proba}
    widest = int(max(fit.n_classes_))
    parts = [
        values.select(k * widest + np.arange(int(count))) for k, count in enumerate(fit.n_classes_)
    ]
    labels = [
        part.arg_max().take(classes) for part, classes in zip(parts, fit.classes_, strict=True)
    ]
    probabilities = {f"probabilities_{k}": part for k, part in enumerate(parts)}
    return {"label": labels[0].concat(*labels[1:]), **probabilities}


@adapts("sklearn.tree.DecisionTreeRegressor", "sklearn.tree.ExtraTreeRegressor")
def _tree_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return _value(fit, forest(to.floats(x), [fit.tree_], to, mean=False))


@adapts("sklearn.ensemble.RandomForestRegressor", "sklearn.ensemble.ExtraTreesRegressor")
def _forest_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return _value(fit, forest(to.floats(x), [e.tree_ for e in fit.estimators_], to, mean=True))


def _value(fit: Fitted, values: Flow) -> dict[str, Flow]:
    return {"value": values.element(0) if fit.n_outputs_ == 1 else values}


@adapts("sklearn.ensemble.IsolationForest")
def _isolation_forest(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    trees = [e.tree_ for e in fit.estimators_]
    depth = [
        lengths[tree.children_left < 0] + average[tree.children_left < 0] - 1.0
        for tree, lengths, average in zip(
            trees, fit._decision_path_lengths, fit._average_path_length_per_tree, strict=True
        )
    ]
    whole = all(len(columns) == fit.n_features_in_ for columns in fit.estimators_features_)
    trees_op = Trees(
        **table(trees, None if whole else fit.estimators_features_),
        **covers(trees, to),
        value=np.concatenate(depth)[:, None],
        target=np.zeros(len(trees), np.int32),
        base=[0.0],
        narrow=True,
    )
    depths = trees_op(to.floats(x)).element(0)
    # The anomaly score is 2 ** -(depth / expected depth); one row alone counts as depth 1 of 1.
    expected = len(trees) * _average_path_length(fit._max_samples)
    share = depths / expected if expected else depths.multiply([0.0]).add([1.0])
    scores = share.multiply([-np.log(2.0)]).exp().negate().subtract([fit.offset_])
    inlier = depths.greater([_deepest_outlier(expected, fit.offset_)]).cast("int64")
    return {"label": inlier.take(np.array([-1, 1])), "scores": scores}


def _deepest_outlier(expected: float, offset: float) -> float:
    """The largest sum of depths whose score is still below zero.

    The offset is a score of the training data, so rows are often exactly on it: labels depend on
    the last bit of a power, which only the library's own computation gives.
    """

    def outside(depth: float) -> bool:
        share = np.array([depth / expected if expected else 1.0])
        return bool((-(2**-share) - offset)[0] < 0)

    if not outside(0.0):
        return -1.0
    low, high = np.array([0.0, np.inf]).view(np.int64).tolist()
    while low + 1 < high:  # positive floats ascend as their bits do
        middle = (low + high) // 2
        deeper = outside(float(np.int64(middle).view(np.float64)))
        low, high = (middle, high) if deeper else (low, middle)
    return float(np.int64(low).view(np.float64))


def _average_path_length(samples: int) -> float:
    """The mean length of an unsuccessful search in a binary tree of this number of samples."""
    if samples <= 1:
        return 0.0
    if samples == 2:
        return 1.0
    return float(2.0 * (np.log(samples - 1.0) + np.euler_gamma) - 2.0 * (samples - 1.0) / samples)


@adapts("sklearn.ensemble.RandomTreesEmbedding")
def _embedding(fit: Fitted, x: Flow, to: Importer) -> Flow:
    trees = [e.tree_ for e in fit.estimators_]
    numbers = [np.flatnonzero(tree.children_left < 0) for tree in trees]
    leaves = TreeLeaves(**table(trees), number=np.concatenate(numbers), narrow=True)
    return to.transform(fit.one_hot_encoder_, leaves(to.floats(x)), "one_hot_encoder")
