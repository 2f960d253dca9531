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
class Forest:
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


def tables(forest: Forest, width: int) -> tuple[dict[str, NDArray[Any]], Lookup]:
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
    forest: Forest,
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


def in_order(forest: Forest) -> NDArray[np.int64]:
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


def _levels(forest: Forest) -> tuple[list[NDArray[np.int64]], int] | None:
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


def _walk(forest: Forest) -> Iterator[int]:
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
