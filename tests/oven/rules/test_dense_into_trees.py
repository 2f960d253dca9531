"""What trees read is written with its zeros by whoever makes it."""

from __future__ import annotations

import numpy as np
import pytest

import oven
from flour.core.types import Vector
from flour.language.flow import Flow, outputs
from oven.optimise.rules.dense_into_trees import WIDEST
from oven.plans.values import by_definition
from tests import ensembles
from tests.oven.entry.test_array_entry import of_run, same_row
from tests.rewrites import assert_declines, assert_means_the_same, traced, vector

pytestmark = pytest.mark.rules
RULE = "dense_into_trees"


def stored(width: int = 6) -> Flow:
    """Columns that are computed, and stored sparsely."""
    return vector(width).clip([-1.0], [1.0]).to_sparse()


def example() -> Flow:
    """A program the rule applies to."""
    return ensembles.sums(0)(stored())


def fires(flow: Flow) -> None:
    """The rule applies, means the same, and no trees read what is stored sparsely."""
    found = traced(flow, RULE)
    assert found.fired == {RULE}, found.text()
    assert_means_the_same(flow, found.flow, RULE)
    for item in found.flow.nodes():
        if item.op.name in {"Trees", "TreeLeaves", "LinearTrees"}:
            kind = item.inputs[0].type
            assert isinstance(kind, Vector)
            assert not kind.sparse


@pytest.mark.parametrize("trees", [ensembles.sums, ensembles.leaves, ensembles.linear])
def test_it_fires(trees: object) -> None:
    assert callable(trees)
    fires(trees(0)(stored()))
    fires(trees(1, sets=True)(stored()))


def test_it_fires_where_zeros_go_a_way_of_their_own() -> None:
    fires(ensembles.sums(0, zeros=True)(stored()))


def test_it_fires_for_all_that_read_the_same() -> None:
    x = stored()
    fires(outputs(a=ensembles.sums(0)(x), b=ensembles.sums(1)(x), c=ensembles.leaves(2)(x)))


def test_it_declines_where_zeros_are_missing() -> None:
    assert_declines(ensembles.sums(0, absent=True)(stored()), RULE)


def test_it_declines_where_somebody_else_wants_it_stored() -> None:
    x = stored()
    assert_declines(outputs(a=x, b=ensembles.sums(0)(x)), RULE)
    assert_declines(outputs(a=x.sum(), b=ensembles.sums(0)(x)), RULE)


def test_it_declines_what_comes_from_outside() -> None:
    assert_declines(ensembles.sums(0)(vector(6, sparse=True)), RULE)


def test_it_declines_what_is_dense_or_too_wide() -> None:
    assert_declines(ensembles.sums(0)(vector(6)), RULE)
    assert_declines(ensembles.sums(0)(stored(WIDEST + 1)), RULE)
    fires(ensembles.sums(0)(stored(WIDEST)))


def leaves_of_trees() -> Flow:
    """Leaves as 800 columns beside the columns themselves, to trees: the featurizers' shape."""
    x, starts = vector(6), np.arange(0, 801, 40)
    codes = ensembles.leaves(3, trees=20, depth=3)(x)  # codes out of range have no column
    return ensembles.sums(0, width=500)(x.concat(codes.one_hot_codes(starts)))


@pytest.mark.parametrize("exact", [True, False])
def test_a_plan_of_wide_leaves_is_one_native_call(exact: bool) -> None:  # noqa: FBT001
    plan = oven.bake(leaves_of_trees(), exact=exact)
    assert len(plan.code.steps) == 1
    assert type(plan.entry()).__name__ == "builtin_function_or_method"
    rows = np.random.default_rng(0).normal(size=(300, 6))
    optimised = oven.bake(leaves_of_trees(), exact=exact).program.optimised
    want = by_definition(optimised, {"x": rows})["output"]
    np.testing.assert_array_equal(plan.run(rows)["output"], want)
    same_row(plan.entry()(rows[0]), of_run(plan, rows[:1]))
