"""Walks in lock-step and by masks end where plain walks end, wherever the thresholds are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oven
from flour.core.errors import ParameterError
from flour.core.types import Vector
from flour.language.flow import outputs, source
from flour.ops.trees import lockstep
from flour.ops.trees.trees import Trees
from objectstore import Blob
from tests import ensembles
from tests.ensembles import answers_alike, near

#: How LightGBM, scikit-learn and XGBoost look at their data. Every way is code of its own.
LIBRARIES: list[tuple[dict[str, bool], str]] = [
    ({"zeros": True}, "float64"),
    ({"narrow": True}, "float64"),
    ({"strict": True, "narrow": True, "signed": False}, "float32"),
]
#: Trees and their depth: scored by masks of 32 and 64 bits, walked side by side and alone.
SHAPES = [(1, 3), (8, 0), (9, 4), (17, 6), (4, 9)]


@settings(max_examples=80)
@given(
    st.integers(0, 10_000),
    st.sampled_from(SHAPES),
    st.sampled_from(LIBRARIES),
    st.sampled_from([0, 1]),
)
def test_every_way_ends_at_the_same_leaves(
    seed: int, shape: tuple[int, int], library: tuple[dict[str, bool], str], sets: int
) -> None:
    flags, dtype = library
    op = ensembles.sums(seed, trees=shape[0], depth=shape[1], sets=bool(sets), **flags)
    answers_alike(op, near(op, seed, 70, dtype), 1, 7, 9, 70)


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_sets_that_many_nodes_share_have_slots(library: tuple[dict[str, bool], str]) -> None:
    """A set is looked up once for all nodes; its slot passes as the nodes would."""
    flags, dtype = library
    how: dict[str, Any] = {"trees": 40, "depth": 8, "width": 3, "sets": True}
    op = ensembles.sums(1, **how, **flags)
    packed = lockstep.pack(op, op.value.array[:, 0])
    assert packed is not None
    assert packed.shared is not None
    ends = ensembles.leaves(1, **how, zeros=bool(flags.get("zeros"))).replace(**flags)
    for each in (op, ends):
        answers_alike(each, near(op, 1, 70, dtype, 3), 1, 3, 70)


@pytest.mark.parametrize("span", [1, 3])
@pytest.mark.parametrize("sets", [False, True])
def test_nodes_of_float32_take_half(span: int, *, sets: bool) -> None:
    """Leaves are numbers there, counted from left to right, whatever numbers they had."""
    op = ensembles.sums(3, 3, span, trees=40, depth=8, width=3, sets=sets, narrow=True)
    leaves = len(op.value)
    mixed = np.random.default_rng(3).permutation(leaves).astype(np.int32)
    inner = np.asarray(op.feature.array) >= 0
    left = np.where(inner, op.left.array, mixed[np.where(inner, 0, op.left.array)])
    op = op.replace(left=Blob.of(left.astype(np.int32)))
    small, big = (lockstep.pack(op, np.arange(leaves), held) for held in ("float32", "float64"))
    assert small is not None
    assert big is not None
    assert (small.order is None, big.order is None) == (False, True)
    assert 2 * small.nodes.nbytes == big.nodes.nbytes
    answers_alike(op, near(op, 1, 70, "float64", 3), 1, 70)


def test_nodes_without_room_for_their_numbers_are_big() -> None:
    """So many columns and nodes that a number of each takes more than 32 bits."""
    inner = np.arange(2**16 - 1)
    none = np.zeros(len(inner) + 1)
    op = Trees(
        feature=np.concatenate([inner, none - 1]).astype(np.int32),
        threshold=np.concatenate([inner, none]).astype(float),
        left=np.concatenate([2 * inner + 1, np.arange(len(none))]).astype(np.int32),
        right=np.concatenate([2 * inner + 2, none]).astype(np.int32),
        missing=np.zeros(len(inner) + len(none), np.uint8),
        roots=np.zeros(1, np.int32),
        value=np.arange(float(len(none)))[:, None],
        target=np.zeros(1, np.int32),
        base=np.zeros(1),
        narrow=True,
    )
    table = lockstep.NodeTable(op)
    threshold = table.thresholds()
    assert threshold is not None
    assert table.compact(threshold) is None
    few = lockstep.NodeTable(op.replace(feature=Blob.of(np.minimum(op.feature.array, 99))))
    assert few.compact(threshold) is not None


def one_test(threshold: float, **changed: Any) -> dict[str, Any]:
    """Eight trees of one test each."""
    count = 8
    fields: dict[str, Any] = {
        "feature": np.tile([0, -1, -1], count).astype(np.int32),
        "threshold": np.tile([threshold, 0.0, 0.0], count),
        "left": np.array([[3 * t + 1, 2 * t, 2 * t + 1] for t in range(count)], np.int32).ravel(),
        "right": np.array([[3 * t + 2, 0, 0] for t in range(count)], np.int32).ravel(),
        "missing": np.tile([1, 0, 0], count).astype(np.uint8),
        "roots": np.arange(0, 3 * count, 3, dtype=np.int32),
        "value": np.tile([[1.0], [2.0]], (count, 1)),
        "target": np.zeros(count, np.int32),
        "base": np.zeros(1),
    }
    return {**fields, **changed}


@pytest.mark.parametrize("threshold", [np.nan, -np.inf, np.inf, 5e-324, -0.0])
@pytest.mark.parametrize("strict", [False, True])
def test_thresholds_at_the_ends(threshold: float, *, strict: bool) -> None:
    op = Trees(**one_test(threshold, strict=strict))
    impossible = np.isnan(threshold) or (strict and threshold == -np.inf)
    assert (lockstep.pack(op, op.value.array[:, 0]) is None) == impossible
    rows = np.array([[np.nan], [-np.inf], [np.inf], [0.0], [-0.0], [5e-324]])
    answers_alike(op, np.tile(rows, (20, 1)), 1, len(rows), 20 * len(rows))


def test_leaves_that_are_not_numbers() -> None:
    value = np.tile([[np.nan], [-np.inf]], (8, 1))
    op = Trees(**one_test(0.0, value=value))
    assert lockstep.pack(op, value[:, 0]) is None
    answers_alike(op, np.array([[-1.0], [1.0]]))


def test_trees_that_share_nodes_are_refused() -> None:
    fields = one_test(0.0)
    fields["right"][0] = fields["left"][0]
    with pytest.raises(ParameterError, match="one parent"):
        Trees(**fields)
    fields = one_test(0.0)
    fields["roots"][1] = fields["roots"][0]
    with pytest.raises(ParameterError, match="one parent"):
        Trees(**fields)


def test_a_leaf_alone_and_a_chain() -> None:
    deep = 4000
    inner = np.arange(deep)
    fields: dict[str, Any] = {
        "feature": np.concatenate([np.zeros(deep), -np.ones(deep + 1)]).astype(np.int32),
        "threshold": np.concatenate([inner.astype(float), np.zeros(deep + 1)]),
        "left": np.concatenate([deep + inner, np.arange(deep + 1)]).astype(np.int32),
        "right": np.concatenate([inner + 1, np.zeros(deep + 1)]).astype(np.int32),
        "missing": np.zeros(2 * deep + 1, np.uint8),
        "roots": np.zeros(1, np.int32),
        "value": np.arange(deep + 1.0)[:, None],
        "target": np.zeros(1, np.int32),
        "base": np.zeros(1),
    }
    fields["right"][deep - 1] = 2 * deep
    op = Trees(**fields)
    rows = np.array([[-1.0], [0.5], [1999.0], [1e9], [np.nan]])
    plan = oven.bake(outputs(scores=op(source("X", Vector(1)))))
    answers_alike(op, rows)
    assert plan.run(rows)["scores"][:, 0].tolist() == [0.0, 1.0, 1999.0, 4000.0, 4000.0]
