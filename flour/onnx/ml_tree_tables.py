"""The trees of ai.onnx.ml as tables that `Trees` walks.

ONNX has seven tests and `Trees` has one, x <= threshold. x < t is x <= the number below t; the
opposite tests swap the two ways to go; whether x is one of some values is looked up first, in a
column of its own that the tree then tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.onnx.errors import DamagedModel
from flour.ops.walk import COMPARED, LEFT, RIGHT

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
    """Trees as ONNX says them: inner nodes by number, leaves as -1 - number."""

    feature: NDArray[np.int64]
    split: NDArray[np.float64]
    mode: NDArray[np.int64]
    yes: NDArray[np.int64]
    no: NDArray[np.int64]
    #: NaN goes where the test's success leads, whatever the test says.
    tracks: NDArray[np.bool_]
    roots: tuple[int, ...]
    #: What each leaf adds: (target, weight), in order.
    leaves: tuple[tuple[tuple[int, float], ...], ...]
    #: The float width splits and sums are made in.
    dtype: str = "float32"
    #: The values of each node's set, where its test is whether x is a member of one.
    members: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass
class Lookup:
    """Columns that say whether a feature is one of some values: added behind the features."""

    places: dict[tuple[int, tuple[float, ...], bool], int] = field(default_factory=dict)

    def column(self, feature: int, values: Sequence[float], *, missing: bool) -> int:
        """The number of such a column among the added ones."""
        key = (feature, tuple(sorted({float(value) for value in values})), missing)
        return self.places.setdefault(key, len(self.places))

    def parameters(self, dtype: str) -> dict[str, NDArray[Any]]:
        """What `Categorise` needs to fill the columns."""
        runs = [values for _, values, _ in self.places]
        flat = np.array([value for run in runs for value in run], dtype)
        ends = np.cumsum([0, *map(len, runs)]).astype(np.int64)
        missing = np.array([gone for *_, gone in self.places], np.int64)
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
        """The feature that each column looks at."""
        return [feature for feature, *_ in self.places]


def tables(forest: Forest, width: int) -> tuple[dict[str, NDArray[Any]], Lookup]:
    """The nodes, children behind their parents, and the columns they look at beside the features.

    Leaves are numbered as they are met, `leaf` of them saying which of the forest's they are.
    """
    lookup, order = Lookup(), list(_walk(forest))
    place = {node: number for number, node in enumerate(order)}
    leaves = [-1 - node for node in order if node < 0]
    numbers = {node: number for number, node in enumerate(n for n in order if n < 0)}
    rows = [
        _row(forest, node, width, lookup, place)
        if node >= 0
        else (-1, 0.0, numbers[node], 0, COMPARED)
        for node in order
    ]
    feature, threshold, left, right, missing = zip(*rows, strict=True)
    made: dict[str, NDArray[Any]] = {
        "feature": np.array(feature, np.int32),
        "threshold": np.array(threshold, np.float64),
        "left": np.array(left, np.int32),
        "right": np.array(right, np.int32),
        "missing": np.array(missing, np.uint8),
        "roots": np.array([place[root] for root in forest.roots], np.int32),
        "leaf": np.array(leaves, np.int64),
    }
    return made, lookup


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


def _row(
    forest: Forest, node: int, width: int, lookup: Lookup, place: Mapping[int, int]
) -> tuple[int, float, int, int, int]:
    """A test as `Trees` has it: (column, threshold, where it passes, where it fails, NaN)."""
    feature, mode, tracks = (
        int(forest.feature[node]),
        int(forest.mode[node]),
        bool(forest.tracks[node]),
    )
    if not 0 <= feature < width:
        raise DamagedModel(f"a tree looks at feature {feature} of {width}")
    yes, no = place[int(forest.yes[node])], place[int(forest.no[node])]
    split = float(forest.split[node])
    if mode in (EQ, NEQ, MEMBER):
        values = forest.members.get(node, (split,))
        gone = tracks and mode != NEQ
        column = width + lookup.column(feature, values, missing=gone)
        ways = (yes, no) if mode == NEQ else (no, yes)
        return column, 0.5, *ways, COMPARED
    if mode in (LT, GTE):
        split = float(np.nextafter(np.dtype(forest.dtype).type(split), -np.inf))
    if mode in (LEQ, LT):
        return feature, split, yes, no, LEFT if tracks else COMPARED
    return feature, split, no, yes, RIGHT if tracks else LEFT
