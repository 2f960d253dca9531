"""Tree ensembles of ai.onnx.ml: regressors, classifiers, and version 5's one operator.

Leaves are added up in float32 in the order of the trees (in float64 for float64 input), then base
values are added, as onnxruntime does. Its rules for two classes are written down in `_two_classes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.language.flow import Flow
from flour.onnx.errors import DamagedModel, NotNative
from flour.onnx.ml_common import (
    LINKS,
    ML,
    Classes,
    Matrix,
    classes,
    joined,
    link_name,
    linked,
    matrix,
    opposite,
    rest,
)
from flour.onnx.ml_tree_tables import OnnxForest, forest_of_nodes, forest_of_tensors, tables
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.ops.link import FirstLargest
from flour.ops.trees.trees import TreeLeaves, Trees

_TARGETS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class OnnxTrees:
    """A forest as tables for walking, with the weights of its leaves."""

    forest: OnnxForest
    nodes: dict[str, NDArray[Any]]
    targets: int
    width: int
    lookup: Any

    @classmethod
    def of(cls, forest: OnnxForest, targets: int, width: int) -> OnnxTrees:
        """The tables of a forest whose leaves add to this number of targets."""
        if targets < 1:
            raise DamagedModel("a tree ensemble has no targets")
        forest = _with_one_weight_a_leaf(forest) if targets == 1 else forest
        nodes, lookup = tables(forest, width)
        worst = int(forest.target.max(initial=0))
        if worst >= targets or forest.target.min(initial=0) < 0:
            raise DamagedModel(f"a leaf adds to target {worst} of {targets}")
        return cls(forest, nodes, targets, width, lookup)

    def inputs(self, x: Flow) -> Flow:
        """The features, followed by the columns that are looked up."""
        if not self.lookup.numbers:
            return x
        picked = x.select(self.lookup.features())
        codes = picked.categorise(**self.lookup.parameters(self.forest.dtype))
        return x.concat(codes.cast(self.forest.dtype))

    def sums(self, x: Flow, values: NDArray[Any], divisor: int = 0) -> Flow:
        """The rows of `values` (one a leaf) that a row reaches, added up tree by tree."""
        dtype = self.forest.dtype
        walk = Trees(
            **self._walk(),
            value=values.astype(dtype),
            target=np.zeros(len(self.forest.roots), np.int32),
            base=np.zeros(values.shape[1], dtype),
            divisor=divisor,
            dtype=dtype,
        )
        return walk(self.inputs(x))

    def leaves(self, x: Flow) -> Flow:
        """The number of the leaf a row reaches in each tree."""
        count = len(self.nodes["leaf"])
        return TreeLeaves(**self._walk(), number=np.arange(count))(self.inputs(x))

    def _walk(self) -> dict[str, Any]:
        nodes = {key: value for key, value in self.nodes.items() if key != "leaf"}
        return {**nodes, "narrow": self.forest.dtype == "float32"}

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each leaf for each target."""
        rows, of_leaf = self._entries
        table = np.zeros((len(self.nodes["leaf"]), self.targets))
        np.add.at(table, (rows, self.forest.target[of_leaf]), self.forest.weight[of_leaf])
        return table

    @cached_property
    def scored(self) -> NDArray[np.bool_]:
        """True if each leaf has a weight for each target."""
        rows, of_leaf = self._entries
        mask = np.zeros((len(self.nodes["leaf"]), self.targets), bool)
        mask[rows, self.forest.target[of_leaf]] = True
        return mask

    @cached_property
    def _entries(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The weights of reachable leaves: the number of the leaf, and the index of its weight."""
        leaf, forest = self.nodes["leaf"], self.forest
        number = np.full(max(leaf.max(), forest.leaf.max(initial=0)) + 1, -1)
        number[leaf] = np.arange(len(leaf))
        rows = number[forest.leaf]
        there = np.flatnonzero(rows >= 0)
        return rows[there], there

    @cached_property
    def always(self) -> list[bool]:
        """For each target, whether every row gets a score: some tree has one in all its leaves."""
        return self._in_all_leaves(self.scored)

    def someone(self) -> bool:
        """True if every row gets a score for some target."""
        return self._in_all_leaves(self.scored.any(axis=1, keepdims=True))[0]

    def _in_all_leaves(self, scored: Any) -> list[bool]:
        """For each column, whether some tree has it in all its leaves."""
        # Leaves have numbers in the order of the trees, each of which has one.
        before = np.cumsum(self.nodes["feature"] < 0)[self.nodes["roots"]]
        starts = before - (self.nodes["feature"][self.nodes["roots"]] < 0)
        every: Any = np.logical_and.reduceat(scored, starts, axis=0)
        return [bool(item) for item in every.any(axis=0)]


def _with_one_weight_a_leaf(forest: OnnxForest) -> OnnxForest:
    """The first weight of each leaf: with one target, onnxruntime reads no other."""
    _, first = np.unique(forest.leaf, return_index=True)
    kept = {name: getattr(forest, name)[first] for name in ("leaf", "target", "weight")}
    return OnnxForest(**{**vars(forest), **kept})


def _base(call: NodeUse) -> Sequence[float]:
    values = call.attribute("base_values_as_tensor")
    if values is None:
        values = call.attribute("base_values", ())
    return tuple(np.asarray(values, np.float64).reshape(-1).tolist())


def _wide(x: Matrix) -> str:
    return "float64" if x.dtype == "float64" else "float32"


def _plus(score: Flow, base: object, dtype: str) -> Flow:
    return score.add(np.asarray(base, dtype)) if np.any(np.asarray(base)) else score


# --- regressors -----------------------------------------------------------------------------------


@onnx_op("TreeEnsembleRegressor", domain=ML)
def _regressor(call: NodeUse) -> Tensor:
    x = matrix(call)
    forest = forest_of_nodes(call, "target", _wide(x))
    targets = int(call.attribute("n_targets", 1))
    trees = OnnxTrees.of(forest, targets, x.width)
    aggregate, link = str(call.attribute("aggregate_function", "SUM")), link_name(call)
    answer = partial(_regressed, trees, aggregate, _base(call), link)
    return x.table(x.map(lambda row: answer(row).cast("float32")), targets)


@onnx_op("TreeEnsemble", since=5, domain=ML)
def _ensemble(call: NodeUse) -> Tensor:
    x = matrix(call)
    if x.dtype not in ("float32", "float64"):
        raise NotNative(f"trees over {x.dtype}")
    targets = int(call.attribute("n_targets", 1))
    trees = OnnxTrees.of(forest_of_tensors(call, x.dtype), targets, x.width)
    aggregate = ("AVERAGE", "SUM", "MIN", "MAX")[int(call.attribute("aggregate_function", 1))]
    link = _TARGETS[int(call.attribute("post_transform", 0))]
    if link not in LINKS:
        raise NotNative(f"scores through {link}")
    return x.table(x.map(partial(_regressed, trees, aggregate, (), link)), targets)


def _regressed(trees: OnnxTrees, aggregate: str, base: Sequence[float], link: str, x: Flow) -> Flow:
    """One row's targets: aggregated, plus their base, linked."""
    score = _aggregated(trees, aggregate, x)
    if len(base) == trees.targets:
        score = _based(trees, score, base, x)
    return score if trees.targets == 1 else _linked(score, link)


def _based(trees: OnnxTrees, score: Flow, base: Sequence[float], x: Flow) -> Flow:
    """The scores plus base values; of several targets, one without a leaf's weight stays zero."""
    dtype = trees.forest.dtype
    if trees.targets == 1 or all(trees.always):
        return _plus(score, base, dtype)
    _, spoken = _with_presence(trees, x)
    return spoken.where(_plus(score, base, dtype), score)


def _aggregated(trees: OnnxTrees, aggregate: str, x: Flow) -> Flow:
    if aggregate in ("SUM", "AVERAGE"):
        divisor = len(trees.forest.roots) if aggregate == "AVERAGE" else 0
        return trees.sums(x, trees.weights, divisor)
    if aggregate not in ("MIN", "MAX"):
        raise DamagedModel(f"trees are not aggregated by {aggregate!r}")
    pairs = trees.forest.leaf * trees.targets + trees.forest.target
    if len(np.unique(pairs)) < len(pairs):
        raise NotNative(f"the {aggregate} of several weights that a leaf has for one target")
    # The smallest or largest weight of all trees, target by target; 0 for a target without any.
    leaves, dtype = trees.leaves(x), trees.forest.dtype
    limit = np.inf if aggregate == "MIN" else -np.inf
    values = np.where(trees.scored, trees.weights, limit).astype(dtype)
    outs = []
    for target in range(trees.targets):
        per_tree = leaves.take(values[:, target])
        best = per_tree.min() if aggregate == "MIN" else per_tree.max()
        if not trees.always[target]:
            nothing = best.fill(np.zeros(1, dtype), scalar=True)
            best = best.equal(np.array(limit, dtype)).where(nothing, best)
        outs.append(best.as_vector())
    return joined(outs)


# --- classifiers ----------------------------------------------------------------------------------


@onnx_op("TreeEnsembleClassifier", domain=ML)
def _classifier(call: NodeUse) -> tuple[Tensor, Tensor]:
    x, labels = matrix(call), classes(call)
    count = len(labels.labels)
    if count < 2:
        raise NotNative("a classifier of less than two classes")
    trees = OnnxTrees.of(forest_of_nodes(call, "class", _wide(x)), count, x.width)
    answer = _two_classes if count == 2 else _classes
    pairs = [answer(trees, labels, _base(call), link_name(call), row) for row in x.rows]
    best, scores = zip(*pairs, strict=True)
    return x.column(best), x.table([score.cast("float32") for score in scores], count)


def _classes(
    trees: OnnxTrees, labels: Classes, base: Sequence[float], link: str, x: Flow
) -> tuple[Flow, Flow]:
    """Three classes or more: the largest score of those that a reached leaf has a weight for."""
    if len(base) not in (0, trees.targets):
        raise NotNative(f"{len(base)} base values for {trees.targets} classes")
    dtype, open_ = trees.forest.dtype, not base and not all(trees.always)
    if not open_:
        score = _plus(trees.sums(x, trees.weights), base, dtype)
        return labels.take(FirstLargest()(score)), _linked(score, link)
    score, spoken = _with_presence(trees, x)
    lowest = score.fill(np.full(trees.targets, -np.inf, dtype))
    return labels.take(FirstLargest()(spoken.where(score, lowest))), _linked(score, link)


def _with_presence(trees: OnnxTrees, x: Flow) -> tuple[Flow, Flow]:
    """The scores, and whether a reached leaf has a weight for each class."""
    count = trees.targets
    both = trees.sums(x, np.concatenate([trees.weights, trees.scored], axis=1))
    spoken = both.select(np.arange(count, 2 * count)).greater(0.0)
    return both.select(np.arange(count)), spoken


def _linked(score: Flow, link: str) -> Flow:
    return linked(score.cast("float32") if link == "LOGISTIC" else score, link)


@dataclass(frozen=True)
class _TwoClasses:
    """The label and scores of two classes, from one score or from two."""

    labels: Classes
    link: str
    #: Facts of the weights: only one class has some; none of them is below zero.
    single: bool
    positive: bool

    def decide(self, weight: Flow) -> Flow:
        """True if it is the second label, by the weight of the class that counts."""
        return weight.greater(0.5 if self._half else 0.0)

    def label(self, second: Flow) -> Flow:
        """The second label where true, else the first."""
        kept = self.single or self.labels.strings
        return self.labels.either(second, self.labels.labels if kept else self.labels.plain)

    @property
    def _half(self) -> bool:
        return self.single and self.positive

    def scores(self, score: Flow, *, apart: bool) -> Flow:
        """The scores of both classes from that of one."""
        if not (self.single or apart):
            raise NotNative("onnxruntime leaves one of two scores unwritten")
        score = score.cast("float32") if self.link == "LOGISTIC" else score
        return rest(score, self.link) if self._half else opposite(score, self.link)


def _two_classes(
    trees: OnnxTrees, labels: Classes, base: Sequence[float], link: str, x: Flow
) -> tuple[Flow, Flow]:
    """Two classes, by onnxruntime's rules.

    If no reached leaf has a weight for the second class, the first one's score is used, as that of
    the second class; else the second one's. A model with weights for one class only
    decides at one half if none is negative, and at zero otherwise; one with weights for both
    decides at zero, and answers 0 or 1 whatever its labels, if they are numbers.
    """
    forest = trees.forest
    single = len(np.unique(forest.target)) == 1
    rule = _TwoClasses(labels, link, single, not np.any(forest.weight < 0))
    second, scores = _decided(trees, rule, base, x)
    return rule.label(second), scores


def _decided(
    trees: OnnxTrees, rule: _TwoClasses, base: Sequence[float], x: Flow
) -> tuple[Flow, Flow]:
    """True if it is the second class, and the scores of both."""
    if trees.always[1]:
        return _second(trees, rule, base, trees.sums(x, trees.weights), x)
    if not trees.someone():
        raise NotNative("rows may reach no leaf with a weight for a class")
    if not trees.scored[:, 1].any():
        return _first(trees, rule, base, trees.sums(x, trees.weights))
    score, present = _with_presence(trees, x)
    one, two = _first(trees, rule, base, score), _second(trees, rule, base, score, x)
    chosen = present.element(1)
    return chosen.where(two[0], one[0]), chosen.where(two[1], one[1])


def _if_present(trees: OnnxTrees, first: Flow, x: Flow) -> Flow:
    """The first class's score, zero where no reached leaf has a weight for it."""
    if trees.always[0]:
        return first
    nothing = first.fill(np.zeros(1, trees.forest.dtype), scalar=True)
    return _with_presence(trees, x)[1].element(0).where(first, nothing)


def _second(
    trees: OnnxTrees, rule: _TwoClasses, base: Sequence[float], score: Flow, x: Flow
) -> tuple[Flow, Flow]:
    """The second class has a score: both go through the link unchanged, a missing one as 0."""
    dtype, (first, second) = trees.forest.dtype, (score.element(0), score.element(1))
    spoken = bool(np.any(trees.forest.target == 0))
    if len(base) == 2:
        # Both classes get scores from the first one's sum: that is onnxruntime's behaviour, no
        # slip.
        second = _plus(first.as_vector(), base[1:], dtype).element(0)
        first = _if_present(trees, second.negate(), x) if spoken else first
    elif len(base) == 1 and spoken:
        first = _if_present(trees, _plus(first.as_vector(), base, dtype).element(0), x)
    return rule.decide(second), _linked(first.concat(second), rule.link)


def _first(
    trees: OnnxTrees, rule: _TwoClasses, base: Sequence[float], score: Flow
) -> tuple[Flow, Flow]:
    """Only the first class has a score, which stands for the second."""
    if len(base) == 2:
        both = _plus(score, [base[0], 0.0], trees.forest.dtype)
        return rule.decide(both.element(0)), _linked(both, rule.link)
    one = score.select([0])
    one = _plus(one, base[:1], trees.forest.dtype) if base else one
    return rule.decide(one.element(0)), rule.scores(one, apart=not base)
