"""The trees of ai.onnx.ml out of attributes: parallel lists by node, or version 5's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.onnx.errors import DamagedModel
from flour.onnx.ml_tree_tables import MEMBER, MODES, Forest
from flour.onnx.registry import Call


def _whole(call: Call, name: str) -> Any:
    return np.asarray(call.attribute(name, ()), np.int64).reshape(-1)


def _floats(call: Call, name: str) -> Any:
    """Numbers that are a list in older versions and may be a tensor in newer ones."""
    values = call.attribute(f"{name}_as_tensor")
    if values is None:
        values = call.attribute(name, ())
    return np.asarray(values, np.float64).reshape(-1)


def _damaged(what: str, found: object) -> DamagedModel:
    return DamagedModel(f"a tree ensemble {what}", found=str(found))


# --- one list an attribute, one entry a node ------------------------------------------------------


def forest_of_nodes(call: Call, kind: str, dtype: str) -> Forest:
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
    return Forest(
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


def _leaves(call: Call, kind: str, numbers: _NodeNumbers) -> tuple[Any, Any, Any]:
    """The weights of nodes: the node's position, the target, and the weight; node after node."""
    trees, ids = _whole(call, f"{kind}_treeids"), _whole(call, f"{kind}_nodeids")
    targets, weights = _whole(call, f"{kind}_ids"), _floats(call, f"{kind}_weights")
    if {len(trees), len(targets), len(weights)} != {len(ids)}:
        raise _damaged("has lists of different lengths", [len(ids), len(targets), len(weights)])
    leaf = numbers.of(trees, ids, "gives weight to a node that is not there")
    order = np.argsort(leaf, kind="stable")
    return leaf[order], targets[order], weights[order]


# --- version 5: inner nodes and leaves apart ------------------------------------------------------


def forest_of_tensors(call: Call, dtype: str) -> Forest:
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
    forest = Forest(
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
    return _unshared(_stumps(forest))


def _tensor(call: Call, name: str) -> Any:
    return np.asarray(call.attribute(name, ()), np.float64).reshape(-1)


def _way(call: Call, branch: str, nodes: int, leaves: int) -> Any:
    """The end of a test's branch: the number of a node, or -1 - the number of a leaf."""
    ids, leaf = _whole(call, f"nodes_{branch}nodeids"), _whole(call, f"nodes_{branch}leafs")
    if len(ids) != nodes or len(leaf) != nodes:
        raise _damaged("has lists of different lengths", [nodes, len(ids), len(leaf)])
    limit = np.where(leaf != 0, leaves, nodes)
    if np.any((ids < 0) | (ids >= limit)):
        raise _damaged("goes to a node that is not there", int(ids[(ids < 0) | (ids >= limit)][0]))
    return np.where(leaf != 0, -1 - ids, ids)


def _members(call: Call, modes: object) -> dict[int, tuple[float, ...]]:
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


def _stumps(forest: Forest) -> Forest:
    """A test whose branches both end in one leaf is that leaf: the form of trees without tests."""
    same = (forest.yes == forest.no) & (forest.yes < 0)
    roots = tuple(int(forest.yes[root]) if same[root] else root for root in forest.roots)
    return Forest(**{**vars(forest), "roots": roots})


def _unshared(forest: Forest) -> Forest:
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
    return Forest(**{**vars(forest), **changed})
