"""The order of a forest's nodes: level by level it is the one of walking them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flour.onnx.errors import DamagedModel
from flour.onnx.ml_tree_tables import DEEPEST, OnnxForest, _levels, _walk, in_order, tables


def forest(yes: list[int], no: list[int], roots: list[int]) -> OnnxForest:
    """Nodes that go somewhere; whatever they test."""
    count = len(yes)
    nothing = np.zeros(0, np.int64)
    return OnnxForest(
        feature=np.arange(count) % 3,
        split=np.arange(count, dtype=np.float64),
        mode=np.zeros(count, np.int64),
        yes=np.array(yes, np.int64),
        no=np.array(no, np.int64),
        tracks=np.zeros(count, bool),
        roots=tuple(roots),
        leaf=nothing,
        target=nothing,
        weight=np.zeros(0),
    )


@st.composite
def trees(draw: st.DrawFn) -> OnnxForest:
    """Any trees, their nodes and leaves numbered in any order; also a leaf alone."""
    yes: dict[int, int] = {}
    no: dict[int, int] = {}
    roots, leaves = [], 0
    numbers = draw(st.permutations(range(draw(st.integers(0, 25)))))
    open_: list[tuple[dict[int, int], int]] = []
    for number in numbers:
        place = draw(st.integers(-1, len(open_) - 1))
        if place >= 0:
            ways, parent = open_.pop(place)
            ways[parent] = number
        else:
            roots.append(number)
        open_ += [(yes, number), (no, number)]
    for ways, parent in draw(st.permutations(open_)):
        leaves += 1
        ways[parent] = -leaves
    if not roots or draw(st.booleans()):
        roots.append(-1 - leaves)
    size = len(numbers)
    return forest([yes[k] for k in range(size)], [no[k] for k in range(size)], roots)


@given(trees())
def test_levels_and_walking_agree(given: OnnxForest) -> None:
    assert _levels(given) is not None
    order = in_order(given).tolist()
    assert order == [*_walk(given)]
    made, _ = tables(given, 3)
    inner = [k for k, node in enumerate(order) if node >= 0]
    assert [order[k] for k in made["roots"]] == list(given.roots)
    assert [order[k] for k in made["left"][inner]] == [int(given.yes[order[k]]) for k in inner]
    assert [order[k] for k in made["right"][inner]] == [int(given.no[order[k]]) for k in inner]
    assert (-1 - made["leaf"]).tolist() == [node for node in order if node < 0]


@pytest.mark.parametrize("depth", [DEEPEST - 2, DEEPEST + 2, 5000])
def test_deep_trees(depth: int) -> None:
    yes, no = [*range(1, depth), -1], [-2 - k for k in range(depth)]
    given = forest(yes, no, [0])
    assert (_levels(given) is None) == (depth > DEEPEST)
    assert in_order(given).tolist() == [*_walk(given)]


@pytest.mark.parametrize(
    ("yes", "no", "roots"),
    [
        ([0], [-1], [0]),
        ([1, -1], [1, -2], [0]),
        ([-1], [-1], [0]),
        ([1, 0], [-1, -2], [0]),
        ([-1, -3], [-2, -4], [0, 1, 0]),
        ([*range(1, 40), -1], [*range(1, 40), -2], [0]),
    ],
)
def test_what_is_no_tree(yes: list[int], no: list[int], roots: list[int]) -> None:
    with pytest.raises(DamagedModel, match="met twice"):
        in_order(forest(yes, no, roots))
