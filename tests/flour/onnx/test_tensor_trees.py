"""Trees as tensor programs, in the three shapes that tensor compilers write: native, and equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import ModelProto, TensorProto
from sklearn.ensemble import RandomForestRegressor

from tests.onnx_models import same
from tests.onnx_parts import FLOAT, Port, model, node

RNG = np.random.default_rng(20181008)
X = RNG.normal(size=(60, 4)).astype(np.float32)
NEW = np.concatenate([RNG.normal(size=(9, 4)) * 2, X[:3]]).astype(np.float32)
FOREST = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, X @ [1.0, -2.0, 0.5, 0.0])
WIDTH = X.shape[1]


class Perfect(NamedTuple):
    """Trees of one depth: the split of every inner node, level by level, and the leaves."""

    feature: Any  # (trees, 2 ** depth - 1)
    threshold: Any
    leaf: Any  # (trees, 2 ** depth)

    @property
    def trees(self) -> int:
        return len(self.leaf)

    @property
    def depth(self) -> int:
        return int(np.log2(self.leaf.shape[1]))


def perfect(depth: int = 3) -> Perfect:
    """The forest with leaves that are too high up repeated, as such compilers fill trees up."""
    features, thresholds, leaves = [], [], []
    for fitted in FOREST.estimators_:
        tree, level = fitted.tree_, [0]
        feature, threshold = [], []
        for _ in range(depth):
            below = []
            for place in level:
                inner = tree.children_left[place] >= 0
                feature.append(tree.feature[place] if inner else 0)
                threshold.append(tree.threshold[place] if inner else np.inf)
                left, right = tree.children_left[place], tree.children_right[place]
                below += [left, right] if inner else [place, place]
            level = below
        features.append(feature)
        thresholds.append(threshold)
        leaves.append([tree.value[place, 0, 0] for place in level])
    return Perfect(
        np.array(features, np.int64), np.array(thresholds, np.float32), np.array(leaves, np.float32)
    )


class Tensors:
    """A model as it is written: nodes with names of their own, constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def __call__(self, op: str, *inputs: Any, **how: Any) -> str:
        """One node; arrays among the inputs become constants."""
        names = [self._named(item) for item in inputs]
        made = f"v{len(self.nodes)}"
        self.nodes.append(node(op, names, [made], **how))
        return made

    def _named(self, item: Any) -> str:
        if isinstance(item, str):
            return item
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(item)
        return name

    def shape(self, x: str, *sizes: int) -> str:
        """x in another shape."""
        return self("Reshape", x, np.array(sizes, np.int64))

    def done(self, y: str) -> ModelProto:
        """The model that answers with y."""
        self.nodes.append(node("Identity", [y], ["y"]))
        reads: Port = ("x", FLOAT, ["N", WIDTH])
        leaves: Port = ("y", FLOAT, ["N", 1])
        return model(self.nodes, [reads], [leaves], self.constants, opset=13)


def products(trees: Perfect) -> ModelProto:
    """Three matrix products for all trees, the rows of data last: splits, paths, leaves."""
    out, inner, leaves = Tensors(), trees.feature.shape[1], trees.leaf.shape[1]
    picked = np.zeros((trees.trees * inner, WIDTH), np.float32)
    picked[np.arange(len(picked)), trees.feature.reshape(-1)] = 1
    finite = np.minimum(trees.threshold.reshape(-1, 1), np.float32(1e30))
    path, lefts = np.zeros((leaves, inner), np.float32), np.zeros((leaves, 1), np.float32)
    for leaf in range(leaves):
        place = 0
        for level in reversed(range(trees.depth)):
            right = leaf >> level & 1
            path[leaf, place] = -1 if right else 1
            lefts[leaf] += not right
            place = 2 * place + 1 + right
    compared = out("LessOrEqual", out("MatMul", picked, out("Transpose", "x", perm=[1, 0])), finite)
    compared = out("Cast", out.shape(compared, trees.trees, inner, -1), to=TensorProto.FLOAT)
    reached = out("MatMul", np.tile(path, (trees.trees, 1, 1)), compared)
    reached = out("Equal", out.shape(reached, trees.trees * leaves, -1), np.tile(lefts, (3, 1)))
    reached = out("Cast", out.shape(reached, trees.trees, leaves, -1), to=TensorProto.FLOAT)
    values = out("MatMul", trees.leaf[:, None], reached)
    total = out("ReduceSum", out.shape(values, trees.trees, 1, -1), np.array([0]), keepdims=0)
    return out.done(out("Transpose", total, perm=[1, 0]))


def walked(trees: Perfect) -> ModelProto:
    """A step of all rows and trees at a time, as pairs of them in one long dimension."""
    out, inner, leaves = Tensors(), trees.feature.shape[1], trees.leaf.shape[1]
    size, count = inner + leaves, trees.trees
    feature = np.zeros((count, size), np.int64)
    feature[:, :inner] = trees.feature
    threshold, value = np.zeros((2, count, size), np.float32)
    threshold[:, :inner], value[:, inner:] = trees.threshold, trees.leaf
    node_ = np.arange(size)
    left, right = (np.tile(np.where(node_ < inner, 2 * node_ + k, node_), count) for k in (1, 2))
    start = np.arange(count)[None] * size
    rows = out("Gather", out("Shape", "x"), np.array([0]), axis=0)
    place = out("Expand", start, out("Concat", rows, np.array([count]), axis=0))
    place = out.shape(place, -1)
    for _ in range(trees.depth):
        picked = out.shape(out("Gather", feature.reshape(-1), place, axis=0), -1, count)
        have = out("GatherElements", "x", picked, axis=1)
        limit = out.shape(out("Gather", threshold.reshape(-1), place, axis=0), -1, count)
        ways = [out.shape(out("Gather", side, place, axis=0), -1, count) for side in (left, right)]
        place = out("Where", out("LessOrEqual", have, limit), *ways)
        place = out.shape(out("Add", place, start), -1)
    found = out.shape(out("Gather", value.reshape(-1, 1), place, axis=0), -1, count, 1)
    return out.done(out("ReduceSum", found, np.array([1]), keepdims=0))


def doubled(trees: Perfect) -> ModelProto:
    """Perfect trees: the number of the next node is twice that of this one, or one more."""
    out, count = Tensors(), trees.trees
    first = out("Gather", "x", trees.feature[:, 0], axis=1)
    goes = out("Cast", out("Greater", first, trees.threshold[:, 0]), to=TensorProto.INT64)
    place = out.shape(out("Add", goes, np.arange(count) * 2), -1)
    for level in range(1, trees.depth):
        run = slice(2**level - 1, 2 ** (level + 1) - 1)
        picked = out("Gather", trees.feature[:, run].reshape(-1), place, axis=0)
        have = out("GatherElements", "x", out.shape(picked, -1, count), axis=1)
        limit = out("Gather", trees.threshold[:, run].reshape(-1), place, axis=0)
        goes = out("Greater", out.shape(have, -1), limit)
        goes = out("Cast", goes, to=TensorProto.INT64)
        place = out("Add", out("Mul", place, np.array(2)), goes)
    found = out.shape(out("Gather", trees.leaf.reshape(-1, 1), place, axis=0), -1, count, 1)
    return out.done(out("ReduceSum", found, np.array([1]), keepdims=0))


@pytest.mark.parametrize("write", [products, walked, doubled], ids=lambda w: w.__name__)
def test_trees_as_tensors_are_native(write: Callable[[Perfect], ModelProto]) -> None:
    proto = write(perfect())
    same(proto, {"x": NEW}, share=1e-6)
    same(proto, {"x": NEW[:1]}, share=1e-6)
