"""x + y and y + x are computed once."""

from __future__ import annotations

import pytest

from flour.language.flow import Flow, outputs
from oven.optimise.passes import PASSES
from oven.optimise.rewrite import trace
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "merge_common"


def x_and_y() -> tuple[Flow, Flow]:
    """Two inputs."""
    return vector(3), vector(3, name="y")


def example() -> Flow:
    """A program the rule applies to."""
    x, y = x_and_y()
    return outputs(a=(x + y).sigmoid(), b=(y + x).sum())


def test_it_fires() -> None:
    made = assert_fires(example(), RULE, "Sum(Plus(x, y))", output="b")
    assert len(made.nodes()) == len(example().nodes()) - 1


def test_it_fires_for_products() -> None:
    x, y = x_and_y()
    assert_fires(outputs(a=x * y, b=(y * x).abs()), RULE, "Abs(Times(x, y))", output="b")


def test_it_declines_without_a_twin() -> None:
    x, y = x_and_y()
    assert_declines(outputs(a=(x + y).sigmoid(), b=(x * y).sum()), RULE)


def test_it_declines_what_does_not_commute() -> None:
    x, y = x_and_y()
    assert_declines(outputs(a=x - y, b=y - x, c=x / y, d=y / x), RULE)


def test_equal_programs_are_one_node_anyway() -> None:
    x, _ = x_and_y()
    flow = outputs(a=x.sigmoid().sum(), b=x.sigmoid().max())
    assert [item.op.name for item in flow.nodes()].count("Sigmoid") == 1


def test_equal_branches_meet_across_outputs_once_others_have_fired() -> None:
    x, _ = x_and_y()
    flow = outputs(a=x.select([0, 1]).sigmoid().sum(), b=x.sigmoid().select([0, 1]).max())
    made = trace(flow, passes=PASSES).flow
    assert [item.op.name for item in made.nodes()].count("Sigmoid") == 1
