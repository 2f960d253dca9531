"""A linear map is cut where a branch gains by being scored alone."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from flour.ops.source import Fill
from oven.optimise.rewrite import optimise
from oven.optimise.summary import expression
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "push_linear_through_concat"
rng = np.random.default_rng(0)


def weights(outs: int, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Random ones."""
    return rng.normal(size=(outs, width))


def constant(*values: float) -> Flow:
    """The same numbers for every row."""
    return Fill(list(values))(vector(3))


def unit(name: str = "x", width: int = 3) -> Flow:
    """Rows of length one."""
    x = vector(width, name=name)
    return x / x.norm("l2")


def example() -> Flow:
    """A program the rule applies to."""
    return unit().concat(vector(2, name="y")).linear(weights(1, 5), [1.0])


def test_it_fires() -> None:
    after = "Plus(Linear[1x2, 1](y), Linear[1x3, 0](Over(x, Norm[l2](x))))"
    assert_fires(example(), RULE, after)


def test_it_fires_on_several_and_keeps_the_rest_together() -> None:
    parts = [vector(2, name="y"), unit(), vector(1, name="z"), unit("t")]
    flow = parts[0].concat(*parts[1:]).linear(weights(2, 9), [])
    after = (
        "Plus(Plus(Linear[2x3, 0](Concat(y, z)), Linear[2x3, 0](Over(x, Norm[l2](x)))), "
        "Linear[2x3, 0](Over(t, Norm[l2](t))))"
    )
    assert_fires(flow, RULE, after)


def test_constants_become_part_of_the_bias() -> None:
    flow = constant(1.0, 2.0).concat(vector(2, name="y")).linear([[1.0, 1.0, 0.5, 0.5]], [])
    made = assert_fires(flow, RULE, "Linear[1x2, 1](y)")
    assert made.node.op.fields()["bias"].array == [3.0]


def test_dense_columns_beside_sparse_ones_get_a_kernel() -> None:
    both = vector(8).concat(vector(5, name="y", sparse=True))
    after = "Plus(Linear[2x8, 2](x), Linear[2x5, 0](y))"
    assert_fires(both.linear(weights(2, 13), [1.0, 2.0]), RULE, after)


def test_scored_alone_a_normalised_branch_is_divided_once() -> None:
    after = "Plus(Linear[1x2, 1](y), Over(Linear[1x3, 0](x), Norm[l2](x)))"
    assert expression(optimise(example(), exact=False).node) == after


def test_it_declines_ordinary_dense_branches() -> None:
    flow = vector(3).sigmoid().concat(vector(2, name="y"))
    assert_declines(flow.linear(weights(2, 5), []), RULE)
    few = vector(3).concat(vector(5, name="y", sparse=True))
    assert_declines(few.linear(weights(2, 8), []), RULE)
    alone = vector(8).concat(vector(5, name="y", sparse=True))
    assert_declines(alone.linear(weights(1, 13), []), RULE)


def test_it_declines_where_somebody_else_reads_the_concatenation() -> None:
    both = unit().concat(vector(2, name="y"))
    assert_declines(outputs(a=both.linear(weights(1, 5), []), b=both), RULE)


def test_it_declines_where_a_branch_is_narrower() -> None:
    both = unit().concat(vector(2, "float32", name="y"))
    assert_declines(both.linear(weights(1, 5), []), RULE)


def test_it_declines_as_many_outputs_as_columns() -> None:
    flow = unit(width=2).concat(vector(2, name="y")).linear(weights(2, 4), [])
    assert_declines(flow, RULE)


def test_it_declines_constants_that_are_not_finite() -> None:
    flow = constant(np.inf).concat(vector(2, name="y")).linear(weights(1, 3), [])
    assert_declines(flow, RULE)
