"""The trees of ai.onnx.ml as tables that `Trees` walks.

ONNX has seven tests and `Trees` has one, x <= threshold. x < t is x <= the number below t; the
opposite tests swap the branches; membership of x in a set of values is looked up first, in a column
of its own that the tree then tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.onnx.errors import DamagedModel
from flour.onnx.registry import NodeUse
from flour.ops.trees.walk import COMPARED, LEFT, RIGHT

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
MODES = {
    "BRANCH_LEQ": LEQ,
    "BRANCH_LT": LT,
    "BRANCH_GTE": GTE,
    "BRANCH_GT": GT,
    "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NEQ,
}


@dataclass(frozen=True)
class OnnxForest:
    """Trees in ONNX's form: inner nodes by number, leaves as -1 - number."""

    feature: NDArray[np.int64]
    split: NDArray[np.float64]
    mode: NDArray[np.int64]
    yes: NDArray[np.int64]
    no: NDArray[np.int64]
    #: NaN takes the branch of success.
    tracks: NDArray[np.bool_]
    roots: tuple[int, ...]
    #: The weights of leaves: the leaf, the target and the weight; leaf after leaf, in order.
    leaf: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float64]
    #: The float width of splits and sums.
    dtype: str = "float32"
    #: The values of each node's set, where its test is whether x is a member of one.
    members: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Lookup:
    """Columns that hold whether a feature is one of some values: added behind the features."""

    #: The number of each column, by its feature, its values and whether NaN is among them.
    numbers: dict[tuple[int, tuple[float, ...], bool], int] = field(default_factory=dict)

    def column(self, feature: int, values: Sequence[float], *, missing: bool) -> int:
        """The number of such a column among the added ones."""
        key = (feature, tuple(sorted({float(value) for value in values})), missing)
        return self.numbers.setdefault(key, len(self.numbers))

    def parameters(self, dtype: str) -> dict[str, NDArray[Any]]:
        """The parameters of the `Categorise` that fills the columns."""
        runs = [values for _, values, _ in self.numbers]
        flat = np.array([value for run in runs for value in run], dtype)
        ends = np.cumsum([0, *map(len, runs)]).astype(np.int64)
        missing = np.array([with_missing for *_, with_missing in self.numbers], np.int64)
        ones = np.ones(len(flat), np.int64)
        nothing = np.zeros(len(runs), np.int64)
        return {
            "values": flat,
            "codes": ones,
            "starts": ends,
            "missing": missing,
            "unknown": nothing,
        }

    def features(self) -> list[int]:
        """The feature that each column is computed from."""
        return [feature for feature, *_ in self.numbers]


def tables(forest: OnnxForest, width: int) -> tuple[dict[str, NDArray[Any]], Lookup]:
    """The nodes, children behind their parents, and the columns they test beside the features.

    Leaves are numbered in the order of the walk; `leaf` has each one's number in the forest.
    """
    lookup, order = Lookup(), in_order(forest)
    # The new number of each node: inner nodes index from the front, leaves from the back.
    new_number = np.zeros(len(forest.mode) - min(int(order.min()), 0) + 1, np.int32)
    new_number[order] = np.arange(len(order), dtype=np.int32)
    inner = order >= 0
    leaves = -1 - order[~inner]
    columns: dict[str, NDArray[Any]] = {
        "feature": np.full(len(order), -1, np.int32),
        "threshold": np.zeros(len(order), np.float64),
        "left": np.zeros(len(order), np.int32),
        "right": np.zeros(len(order), np.int32),
        "missing": np.full(len(order), COMPARED, np.uint8),
        "roots": new_number[list(forest.roots)],
        "leaf": leaves,
    }
    columns["left"][~inner] = np.arange(len(leaves))
    for name, column in _tests(forest, order[inner], width, lookup, new_number).items():
        columns[name][inner] = column
    return columns, lookup


def _tests(
    forest: OnnxForest,
    nodes: NDArray[np.int64],
    width: int,
    lookup: Lookup,
    new_number: NDArray[np.int32],
) -> dict[str, NDArray[Any]]:
    """Tests in the form of `Trees`: column, threshold, both branches, treatment of NaN."""
    feature, mode = forest.feature[nodes], forest.mode[nodes]
    bad = (feature < 0) | (feature >= width)
    if bad.any():
        raise DamagedModel(f"a tree tests feature {feature[bad][0]} of {width}")
    split, tracks = forest.split[nodes], forest.tracks[nodes]
    yes, no = new_number[forest.yes[nodes]], new_number[forest.no[nodes]]
    below = (mode == LT) | (mode == GTE)
    with np.errstate(all="ignore"):
        narrow = split[below].astype(forest.dtype)
        split[below] = np.nextafter(narrow, narrow.dtype.type(-np.inf))
    turned = (mode == GTE) | (mode == GT)
    columns = {
        "feature": feature,
        "threshold": split,
        "left": np.where(turned, no, yes),
        "right": np.where(turned, yes, no),
        "missing": np.where(
            turned, np.where(tracks, RIGHT, LEFT), np.where(tracks, LEFT, COMPARED)
        ),
    }
    for at in np.flatnonzero(mode >= EQ).tolist():
        unequal = mode[at] == NEQ
        values = forest.members.get(int(nodes[at]), (float(split[at]),))
        missing = bool(tracks[at]) and not unequal
        column = width + lookup.column(int(feature[at]), values, missing=missing)
        branches = (yes[at], no[at]) if unequal else (no[at], yes[at])
        row = (column, 0.5, *branches, COMPARED)
        for each, value in zip(columns.values(), row, strict=True):
            each[at] = value
    return columns


def in_order(forest: OnnxForest) -> NDArray[np.int64]:
    """Every node once, parents first, what follows a success before what follows a failure."""
    levelled = _levels(forest)
    if levelled is None:
        return np.array([*_walk(forest)], np.int64)
    levels, nodes = levelled
    # The size of each node's subtree, from the lowest level up; then the position of each node.
    sizes = [np.ones(len(level), np.int64) for level in levels]
    for level, size, below in zip(levels[-2::-1], sizes[-2::-1], sizes[:0:-1], strict=True):
        size[level >= 0] += below[0::2] + below[1::2]
    at = np.cumsum(sizes[0]) - sizes[0]
    order = np.zeros(nodes, np.int64)
    for level, below in zip(levels, [*sizes[1:], np.zeros(0, np.int64)], strict=True):
        order[at] = level
        first = at[level >= 0] + 1
        at = np.stack([first, first + below[0::2]], axis=1).reshape(-1)
    return order


#: Trees deeper than this are walked node by node.
DEEPEST = 100


def _levels(forest: OnnxForest) -> tuple[list[NDArray[np.int64]], int] | None:
    """The nodes of all trees, level by level, siblings side by side, and their number.

    None where they are walked one by one: deep trees, and graphs that are no tree, which the walk
    refuses.
    """
    level, levels, count = np.array(forest.roots, np.int64), list[NDArray[np.int64]](), 0
    while len(level):
        levels.append(level)
        count += len(level)
        if len(levels) > DEEPEST or count > 2 * len(forest.mode) + len(forest.roots):
            break
        inner = level[level >= 0]
        level = np.stack([forest.yes[inner], forest.no[inner]], axis=1).reshape(-1)
    every = np.sort(np.concatenate(levels))
    return None if len(level) or np.any(every[1:] == every[:-1]) else (levels, count)


def _walk(forest: OnnxForest) -> Iterator[int]:
    """Every node once, parents first; a node that is met twice is no tree."""
    seen: set[int] = set()
    for root in forest.roots:
        stack = [root]
        while stack:
            node = stack.pop()
            if node in seen:
                raise DamagedModel("a node of a tree is met twice", found=f"node {node}")
            seen.add(node)
            yield node
            if node >= 0:
                stack += [int(forest.no[node]), int(forest.yes[node])]


# --- out of attributes ----------------------------------------------------------------------------


def _whole(call: NodeUse, name: str) -> Any:
    return np.asarray(call.attribute(name, ()), np.int64).reshape(-1)


def _floats(call: NodeUse, name: str) -> Any:
    """Numbers that are a list in older versions and may be a tensor in newer ones."""
    values = call.attribute(f"{name}_as_tensor")
    if values is None:
        values = call.attribute(name, ())
    return np.asarray(values, np.float64).reshape(-1)


def _damaged(what: str, found: object) -> DamagedModel:
    return DamagedModel(f"a tree ensemble {what}", found=str(found))


# --- one list an attribute, one entry a node ------------------------------------------------------


def forest_of_nodes(call: NodeUse, kind: str, dtype: str) -> OnnxForest:
    """The trees of a regressor (`kind` "target") or classifier ("class")."""
    trees, ids = _whole(call, "nodes_treeids"), _whole(call, "nodes_nodeids")
    modes = [*map(_CODES.get, names := call.attribute("nodes_modes", ()))]
    feature, split = _whole(call, "nodes_featureids"), _floats(call, "nodes_values")
    branches = [_whole(call, f"nodes_{branch}nodeids") for branch in ("true", "false")]
    if not len(ids) or {len(part) for part in (trees, modes, feature, split, *branches)} != {
        len(ids)
    }:
        raise _damaged("has lists of different lengths", [len(ids), len(modes), len(split)])
    numbers = _NodeNumbers(trees, ids)
    if None in modes:
        unknown = sorted(set(names) - set(_CODES))
        raise _damaged("has an unknown test", unknown[0])
    mode = np.array(modes, np.int64)
    inner = np.flatnonzero(mode != _LEAF)
    nodes = np.arange(len(ids))
    nodes[mode == _LEAF] = -1 - nodes[mode == _LEAF]
    tracks = _whole(call, "nodes_missing_value_tracks_true")
    tracks = tracks if len(tracks) == len(ids) else np.zeros(len(ids))
    yes, no = (np.zeros(len(ids), np.int64) for _ in branches)
    for children, branch in zip((yes, no), branches, strict=True):
        children[inner] = nodes[numbers.of(trees[inner], branch[inner], _NOWHERE)]
    starts = [0, *(np.flatnonzero(trees[1:] != trees[:-1]) + 1).tolist()]
    return OnnxForest(
        feature,
        split,
        np.maximum(mode, 0),
        yes,
        no,
        tracks == 1,
        tuple(int(nodes[start]) for start in starts),
        *_leaves(call, kind, numbers),
        dtype,
    )


_NOWHERE = "goes to a node that is not there"
_LEAF = -1
_CODES = {**MODES, "LEAF": _LEAF}


class _NodeNumbers:
    """The position of each node in the lists, by the number of its tree and its own."""

    def __init__(self, trees: Any, ids: Any) -> None:
        self._all_trees, self._all_ids = trees, ids
        self._trees, self._ids = np.unique(trees), np.unique(ids)
        keys = self._key(trees, ids)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        double = int(np.count_nonzero(self._keys[1:] == self._keys[:-1]))
        if double:
            raise _damaged("has two nodes of one number", double)

    def _key(self, trees: Any, ids: Any) -> Any:
        tree, number = np.searchsorted(self._trees, trees), np.searchsorted(self._ids, ids)
        return tree * np.int64(len(self._ids) + 1) + number

    def of(self, trees: object, ids: object, what: str) -> Any:
        """The positions of nodes, which must be in the lists."""
        at = np.searchsorted(self._keys, self._key(trees, ids))
        positions = self._order[np.minimum(at, len(self._order) - 1)]
        return self._checked(positions, trees, ids, what)

    def _checked(self, positions: Any, trees: Any, ids: Any, what: str) -> Any:
        bad = (self._all_trees[positions] != trees) | (self._all_ids[positions] != ids)
        if bad.any():
            at = int(np.argmax(bad))
            raise _damaged(what, f"node {ids[at]} of tree {trees[at]}")
        return positions


def _leaves(call: NodeUse, kind: str, numbers: _NodeNumbers) -> tuple[Any, Any, Any]:
    """The weights of nodes: the node's position, the target, and the weight; node after node."""
    trees, ids = _whole(call, f"{kind}_treeids"), _whole(call, f"{kind}_nodeids")
    targets, weights = _whole(call, f"{kind}_ids"), _floats(call, f"{kind}_weights")
    if {len(trees), len(targets), len(weights)} != {len(ids)}:
        raise _damaged("has lists of different lengths", [len(ids), len(targets), len(weights)])
    leaf = numbers.of(trees, ids, "gives weight to a node that is not there")
    order = np.argsort(leaf, kind="stable")
    return leaf[order], targets[order], weights[order]


# --- version 5: inner nodes and leaves apart ------------------------------------------------------


def forest_of_tensors(call: NodeUse, dtype: str) -> OnnxForest:
    """The trees of `TreeEnsemble`."""
    feature, split = _whole(call, "nodes_featureids"), _tensor(call, "nodes_splits")
    modes = np.asarray(call.attribute("nodes_modes"), np.int64).reshape(-1)
    targets, weights = _whole(call, "leaf_targetids"), _tensor(call, "leaf_weights")
    if {len(split), len(modes)} != {len(feature)} or len(targets) != len(weights):
        raise _damaged("has lists of different lengths", [len(feature), len(split), len(modes)])
    yes, no = (_way(call, branch, len(feature), len(targets)) for branch in ("true", "false"))
    roots = _whole(call, "tree_roots")
    if not len(roots) or roots.min() < 0 or roots.max() >= len(feature):
        raise _damaged("has a root that is not there", roots.tolist()[:8])
    if len(modes) and not 0 <= modes.min() <= modes.max() <= MEMBER:
        raise _damaged("has an unknown test", int(modes.max()))
    tracks = _whole(call, "nodes_missing_value_tracks_true")
    tracks = tracks if len(tracks) == len(feature) else np.zeros(len(feature))
    forest = OnnxForest(
        feature,
        split,
        modes,
        yes,
        no,
        tracks == 1,
        tuple(roots.tolist()),
        np.arange(len(targets)),
        targets,
        weights,
        dtype,
        _members(call, modes),
    )
    # A test whose branches both end in one leaf is that leaf: the form of trees without tests.
    same = (forest.yes == forest.no) & (forest.yes < 0)
    roots = tuple(int(forest.yes[root]) if same[root] else root for root in forest.roots)
    return _unshared(OnnxForest(**{**vars(forest), "roots": roots}))


def _tensor(call: NodeUse, name: str) -> Any:
    return np.asarray(call.attribute(name, ()), np.float64).reshape(-1)


def _way(call: NodeUse, branch: str, nodes: int, leaves: int) -> Any:
    """The end of a test's branch: the number of a node, or -1 - the number of a leaf."""
    ids, leaf = _whole(call, f"nodes_{branch}nodeids"), _whole(call, f"nodes_{branch}leafs")
    if len(ids) != nodes or len(leaf) != nodes:
        raise _damaged("has lists of different lengths", [nodes, len(ids), len(leaf)])
    limit = np.where(leaf != 0, leaves, nodes)
    if np.any((ids < 0) | (ids >= limit)):
        raise _damaged("goes to a node that is not there", int(ids[(ids < 0) | (ids >= limit)][0]))
    return np.where(leaf != 0, -1 - ids, ids)


def _members(call: NodeUse, modes: object) -> dict[int, tuple[float, ...]]:
    """The set of each node that tests for membership, in the order of the nodes."""
    nodes = np.flatnonzero(modes == MEMBER).tolist()
    sets: list[list[float]] = [[]]
    for value in _tensor(call, "membership_values").tolist():
        if value != value:  # noqa: PLR0124 (the definition of NaN)
            sets.append([])
        else:
            sets[-1].append(value)
    if len(sets) < len(nodes):
        raise _damaged("has too few sets for its tests of membership", len(sets))
    return {node: tuple(values) for node, values in zip(nodes, sets, strict=False)}


def _unshared(forest: OnnxForest) -> OnnxForest:
    """Every leaf gets a number of its own: two tests may lead to one."""
    yes, no, roots = forest.yes.copy(), forest.no.copy(), np.array(forest.roots, np.int64)
    leaves, count = [], 0
    for branches in (yes, no, roots):
        is_leaf = branches < 0
        leaves.append(-1 - branches[is_leaf])
        branches[is_leaf] = -1 - np.arange(count, count + len(leaves[-1]))
        count += len(leaves[-1])
    order = np.concatenate(leaves)
    changed = {
        "yes": yes,
        "no": no,
        "roots": tuple(roots.tolist()),
        "leaf": np.arange(len(order)),
        "target": forest.target[order],
        "weight": forest.weight[order],
    }
    return OnnxForest(**{**vars(forest), **changed})
