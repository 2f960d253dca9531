"""The code of a leaf's number is a number of the leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, RandomTreesEmbedding
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.language.flow import Flow, outputs
from flour.ops.categorise import UNKNOWN, Categorise
from flour.ops.trees.lockstep import NodeTable, Outline
from flour.ops.trees.trees import TreeLeaves
from objectstore import Blob
from oven.explain import explain
from tests import ensembles
from tests.rewrites import assert_declines, assert_means_the_same, traced, vector

pytestmark = pytest.mark.rules
RULE = "codes_into_leaves"


def numbered(seed: int = 0, trees: int = 5) -> TreeLeaves:
    """Trees whose leaves have numbers with gaps in between, in no order."""
    made = ensembles.leaves(seed, trees=trees)
    draw = np.random.default_rng(seed).permutation(3 * len(made.number))
    return made.replace(number=Blob.of(draw[: len(made.number)].astype(np.int64)))


def categories(leaves: TreeLeaves, *, without: int = 0, strict: bool = False) -> Categorise:
    """Codes of all numbers of each tree but so many."""
    table = NodeTable(leaves)
    at = np.flatnonzero(~table.inner)
    number, tree = leaves.number.array[table.left[at]], Outline(table).tree[at]
    columns = [np.sort(number[tree == t])[without:] for t in range(len(leaves.roots))]
    starts = np.cumsum([0, *map(len, columns)])
    values = np.concatenate(columns)
    count = len(columns)
    return Categorise(
        values=values.astype(np.float64),
        codes=np.random.default_rng(1).permutation(len(values)),
        starts=starts,
        missing=np.full(count, -1),
        unknown=np.full(count, UNKNOWN if strict else -2),
        strict=strict,
    )


def example() -> Flow:
    """A program the rule applies to."""
    leaves = numbered()
    return categories(leaves)(leaves(vector(6)))


def fires(flow: Flow) -> None:
    """The rule applies, means the same, and nothing is looked up any more."""
    found = traced(flow, RULE)
    assert found.fired == {RULE}, found.text()
    assert "Categorise" not in {item.op.name for item in found.flow.nodes()}
    assert_means_the_same(flow, found.flow, RULE)


@pytest.mark.parametrize("strict", [False, True])
def test_it_fires(*, strict: bool) -> None:
    leaves = numbered()
    fires(categories(leaves, strict=strict)(leaves(vector(6))))


def test_it_fires_where_some_numbers_have_no_category() -> None:
    leaves = numbered(3, trees=9)
    fires(categories(leaves, without=1)(leaves(vector(6))))


def test_it_declines_where_a_number_without_a_category_is_an_error() -> None:
    leaves = numbered()
    assert_declines(categories(leaves, without=1, strict=True)(leaves(vector(6))), RULE)


def test_it_declines_where_the_numbers_are_read_too() -> None:
    leaves = numbered()
    numbers = leaves(vector(6))
    assert_declines(outputs(numbers=numbers, codes=categories(leaves)(numbers)), RULE)


def test_it_declines_where_trees_share_a_leaf() -> None:
    tree: dict[str, Any] = {
        "feature": np.array([0, -1, -1, 0, -1, -1], np.int32),
        "threshold": np.zeros(6),
        "left": np.array([1, 0, 1, 4, 0, 1], np.int32),
        "right": np.array([2, 0, 0, 5, 0, 0], np.int32),
        "missing": np.zeros(6, np.uint8),
        "roots": np.array([0, 3], np.int32),
    }
    leaves = TreeLeaves(**tree, number=np.array([5, 7]))
    assert_declines(categories(leaves)(leaves(vector(6))), RULE)


def test_an_embedding_in_front_of_trees_is_not_searched() -> None:
    draw = np.random.default_rng(0)
    rows, target = draw.normal(size=(400, 8)), draw.normal(size=400)
    model = make_pipeline(
        RandomTreesEmbedding(6, max_depth=4, random_state=0),
        GradientBoostingRegressor(n_estimators=10, random_state=0),
    ).fit(rows, target)
    plan = oven.bake(flour.from_sklearn(model)["value"], background=False)
    assert "Categorise" not in str(explain(plan))
    np.testing.assert_allclose(plan.run(rows)["value"], model.predict(rows), rtol=1e-12)
