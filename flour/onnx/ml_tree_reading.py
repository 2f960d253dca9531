"""The trees of ai.onnx.ml out of attributes: parallel lists by node, or version 5's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flour.onnx.errors import DamagedModel
from flour.onnx.ml_tree_tables import MEMBER, MODES, Forest

if TYPE_CHECKING:
    from flour.onnx.registry import Call


def _whole(call: Call, name: str) -> Any:
    return np.asarray(call.attribute(name, ()), np.int64).reshape(-1)


def _floats(call: Call, name: str) -> Any:
    """Numbers that are a list in older versions and may be a tensor in newer ones."""
    found = call.attribute(f"{name}_as_tensor")
    if found is None:
        found = call.attribute(name, ())
    return np.asarray(found, np.float64).reshape(-1)


def _damaged(what: str, found: object) -> DamagedModel:
    return DamagedModel(f"a tree ensemble {what}", found=str(found))


# --- one list an attribute, one entry a node ------------------------------------------------------


def forest_of_nodes(call: Call, kind: str, dtype: str) -> Forest:
    """The trees of a regressor (`kind` "target") or classifier ("class")."""
    trees, ids = _whole(call, "nodes_treeids"), _whole(call, "nodes_nodeids")
    modes = tuple(call.attribute("nodes_modes", ()))
    feature, split = _whole(call, "nodes_featureids"), _floats(call, "nodes_values")
    ways = [_whole(call, f"nodes_{way}nodeids") for way in ("true", "false")]
    if not len(ids) or {len(part) for part in (trees, modes, feature, split, *ways)} != {len(ids)}:
        raise _damaged("has lists of different lengths", [len(ids), len(modes), len(split)])
    keys = zip(trees.tolist(), ids.tolist(), strict=True)
    place = {key: number for number, key in enumerate(keys)}
    if len(place) != len(ids):
        raise _damaged("has two nodes of one number", len(ids) - len(place))
    unknown = sorted(set(modes) - set(MODES) - {"LEAF"})
    if unknown:
        raise _damaged("has a test nobody knows", unknown[0])
    leaf = np.array([mode == "LEAF" for mode in modes])
    nodes = np.where(leaf, -1 - np.arange(len(ids)), np.arange(len(ids)))
    tracks = _whole(call, "nodes_missing_value_tracks_true")
    tracks = tracks if len(tracks) == len(ids) else np.zeros(len(ids))
    yes, no = (_children(place, trees, way, leaf, nodes) for way in ways)
    starts = [0, *(np.flatnonzero(trees[1:] != trees[:-1]) + 1).tolist()]
    return Forest(
        feature,
        split,
        np.array([MODES.get(mode, 0) for mode in modes]),
        yes,
        no,
        tracks == 1,
        tuple(int(nodes[start]) for start in starts),
        _leaves(call, kind, place),
        dtype,
    )


def _children(
    place: dict[tuple[int, int], int], trees: Any, way: Any, leaf: Any, nodes: Any
) -> Any:
    made = np.zeros(len(trees), np.int64)
    for number in np.flatnonzero(~leaf).tolist():
        key = (int(trees[number]), int(way[number]))
        if key not in place:
            raise _damaged("goes to a node that is not there", f"node {key[1]} of tree {key[0]}")
        made[number] = nodes[place[key]]
    return made


def _leaves(
    call: Call, kind: str, place: dict[tuple[int, int], int]
) -> tuple[tuple[tuple[int, float], ...], ...]:
    """What each node adds to targets, by the node's place."""
    trees, ids = _whole(call, f"{kind}_treeids"), _whole(call, f"{kind}_nodeids")
    targets, weights = _whole(call, f"{kind}_ids"), _floats(call, f"{kind}_weights")
    if {len(trees), len(targets), len(weights)} != {len(ids)}:
        raise _damaged("has lists of different lengths", [len(ids), len(targets), len(weights)])
    made: list[list[tuple[int, float]]] = [[] for _ in place]
    for tree, node, target, weight in zip(trees, ids, targets, weights, strict=True):
        key = (int(tree), int(node))
        if key not in place:
            raise _damaged("gives weight to a node that is not there", f"node {node} of {tree}")
        made[place[key]].append((int(target), float(weight)))
    return tuple(map(tuple, made))


# --- version 5: inner nodes and leaves apart ------------------------------------------------------


def forest_of_tensors(call: Call, dtype: str) -> Forest:
    """The trees of `TreeEnsemble`."""
    feature, split = _whole(call, "nodes_featureids"), _tensor(call, "nodes_splits")
    modes = np.asarray(call.attribute("nodes_modes"), np.int64).reshape(-1)
    targets, weights = _whole(call, "leaf_targetids"), _tensor(call, "leaf_weights")
    if {len(split), len(modes)} != {len(feature)} or len(targets) != len(weights):
        raise _damaged("has lists of different lengths", [len(feature), len(split), len(modes)])
    yes, no = (_way(call, way, len(feature), len(targets)) for way in ("true", "false"))
    roots = _whole(call, "tree_roots")
    if not len(roots) or roots.min() < 0 or roots.max() >= len(feature):
        raise _damaged("has a root that is not there", roots.tolist()[:8])
    if len(modes) and not 0 <= modes.min() <= modes.max() <= MEMBER:
        raise _damaged("has a test nobody knows", int(modes.max()))
    leaves = [((int(t), float(w)),) for t, w in zip(targets, weights, strict=True)]
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
        tuple(leaves),
        dtype,
        _members(call, modes),
    )
    return _unshared(_stumps(forest))


def _tensor(call: Call, name: str) -> Any:
    return np.asarray(call.attribute(name, ()), np.float64).reshape(-1)


def _way(call: Call, way: str, nodes: int, leaves: int) -> Any:
    """Where a test leads: the number of a node, or -1 - the number of a leaf."""
    ids, leaf = _whole(call, f"nodes_{way}nodeids"), _whole(call, f"nodes_{way}leafs")
    if len(ids) != nodes or len(leaf) != nodes:
        raise _damaged("has lists of different lengths", [nodes, len(ids), len(leaf)])
    limit = np.where(leaf != 0, leaves, nodes)
    if np.any((ids < 0) | (ids >= limit)):
        raise _damaged("goes to a node that is not there", int(ids[(ids < 0) | (ids >= limit)][0]))
    return np.where(leaf != 0, -1 - ids, ids)


def _members(call: Call, modes: Any) -> dict[int, tuple[float, ...]]:
    """The set of each node that tests for membership, in the order of the nodes."""
    places = np.flatnonzero(modes == MEMBER).tolist()
    sets: list[list[float]] = [[]]
    for value in _tensor(call, "membership_values").tolist():
        if value != value:  # noqa: PLR0124 (the definition of NaN)
            sets.append([])
        else:
            sets[-1].append(value)
    if len(sets) < len(places):
        raise _damaged("has too few sets for its tests of membership", len(sets))
    return {place: tuple(values) for place, values in zip(places, sets, strict=False)}


def _stumps(forest: Forest) -> Forest:
    """A test whose both ways lead to one leaf is that leaf: how trees without tests are said."""
    same = (forest.yes == forest.no) & (forest.yes < 0)
    roots = tuple(int(forest.yes[root]) if same[root] else root for root in forest.roots)
    return Forest(**{**vars(forest), "roots": roots})


def _unshared(forest: Forest) -> Forest:
    """Every leaf gets a number of its own: two tests may lead to one."""
    yes, no, leaves = forest.yes.copy(), forest.no.copy(), []
    roots = list(forest.roots)
    for ways in (yes, no, roots):
        for place, node in enumerate(ways):
            if node < 0:
                leaves.append(forest.leaves[-1 - node])
                ways[place] = -len(leaves)
    made = {"yes": yes, "no": no, "roots": tuple(map(int, roots)), "leaves": tuple(leaves)}
    return Forest(**{**vars(forest), **made})
