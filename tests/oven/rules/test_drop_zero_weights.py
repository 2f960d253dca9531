"""Columns of weight zero are not computed."""

from __future__ import annotations

import numpy as np
import pytest

import oven
from flour.core.errors import InputError
from flour.core.types import LARGEST
from flour.language.flow import Flow
from flour.ops.require import RequireFinite
from oven.optimise.rewrite import optimise
from oven.optimise.summary import expression
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "drop_zero_weights"


def example() -> Flow:
    """A program the rule applies to."""
    return whole(5).cast("float64").subtract([1.0]).linear([[0.0, 2.0, 0.0, 0.0, 0.0]], [1.0])


def whole(width: int, name: str = "x") -> Flow:
    """Whole numbers, which are always finite."""
    return vector(width, "int64", name=name)


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Linear[1x1, 1](Select[{1}](Subtract[1](Cast[float64](x))))")


def test_it_fires_on_whole_parts() -> None:
    both = whole(3).cast("float64").sigmoid().concat(whole(2, "y").abs())
    flow = both.linear([[1.0, 0.0, 2.0, 0.0, 0.0]], [])
    after = "Linear[1x3, 0](Select[{0 1 2}](Concat(Sigmoid(Cast[float64](x)), Abs(y))))"
    assert_fires(flow, RULE, after)


def test_the_news_reaches_the_sources() -> None:
    made = optimise(whole(3).concat(whole(2, "y")).linear([[1, 2, 3, 0, 0]], []), exact=False)
    assert set(made.inputs()) == {"x"}


def test_it_fires_where_several_outputs_ignore_a_column() -> None:
    flow = whole(4).linear([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]], [])
    assert_fires(flow, RULE, "Linear[2x2, 0](Select[{1 3}](x))")


def test_nothing_used_is_a_constant() -> None:
    assert_fires(whole(4).linear(np.zeros((2, 4)), [1.0, 2.0]), RULE, "Fill[2](x)")
    assert_fires(whole(4).linear(np.zeros((2, 4)), []), RULE, "Fill[2](x)")


def test_it_declines_columns_that_need_not_be_finite() -> None:
    weights = [[0.0, 2.0, 0.0, 0.0]]
    assert_declines(vector(4).linear(weights, []), RULE)
    assert_declines(whole(4).cast("float64").divide([1.0, 1.0, 0.0, 1.0]).linear(weights, []), RULE)
    assert_declines((whole(4) / whole(4, "y")).linear(weights, []), RULE)
    assert_declines(vector(4).log().linear(weights, []), RULE)
    assert_declines(vector(4).divide([1.0, 1.0, 0.0, 1.0]).linear(weights, []), RULE)
    assert_declines((vector(4) / vector(4, name="y")).linear(weights, []), RULE)
    assert_declines(vector(4).add([np.inf]).linear(weights, []), RULE)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_missing_value_poisons_the_answer_as_in_the_original(odd: float) -> None:
    flow = vector(4).linear([[0.0, 2.0, 0.0, 1.0]], [1.0])
    rows = np.array([[odd, 1.0, 0.0, 3.0], [0.0, 1.0, 2.0, 3.0]])
    got = oven.bake(flow).run(rows)["output"].ravel()
    assert np.isnan(got[0])
    assert got[1] == 6.0


def test_it_declines_where_most_columns_are_used() -> None:
    assert_declines(whole(4).linear([[0.0, 2.0, 1.0, 1.0]], []), RULE)


def test_it_declines_to_pick_from_sparse_columns() -> None:
    assert_declines(vector(4, sparse=True).linear([[0.0, 2.0, 0.0, 0.0]], []), RULE)
    dense = vector(4, sparse=True).to_dense()
    assert_declines(dense.linear([[0.0, 2.0, 0.0, 0.0]], []), RULE)


def test_it_declines_to_drop_what_can_refuse_a_row() -> None:
    assert_declines(encoded(strict=True).linear([[1.0, 1.0, 1.0, 0.0]], []), RULE)
    assert_declines(encoded(strict=True).linear([[0.0, 0.0, 0.0, 0.0]], []), RULE)
    made = optimise(encoded(strict=False).linear([[1.0, 1.0, 1.0, 0.0]], []), exact=False)
    assert expression(made.node) == "Linear[1x3, 0](x)"


def encoded(*, strict: bool) -> Flow:
    """Three whole numbers, and the code of a category."""
    zero = np.zeros(1, np.int64)
    codes = vector(1, name="y").categorise([1.0], zero, [0, 1], zero, zero, strict=strict)
    return whole(3).concat(codes)


def checked(width: int, name: str = "x") -> Flow:
    """Floats that are finite, as rows with others are refused."""
    return RequireFinite([True], [LARGEST])(vector(width, name=name))


def test_it_fires_on_columns_that_are_checked() -> None:
    flow = checked(5).subtract([1.0]).linear([[0.0, 2.0, 0.0, 0.0, 0.0]], [1.0])
    assert_fires(flow, RULE, "Linear[1x1, 1](Select[{1}](Subtract[1](RequireFinite[1, 1](x))))")


@pytest.mark.parametrize(
    "weights", [[0.0, 2.0, 0.0, 0.0, 0.0], [0.0] * 5, [1.0, 1.0, 0.0, 0.0, 0.0]]
)
def test_a_column_that_is_not_used_is_still_checked(weights: list[float]) -> None:
    flow = checked(2).concat(checked(3, "y")).linear([weights], [1.0])
    plan = oven.bake(flow)
    rows = {"x": np.ones((2, 2)), "y": np.ones((2, 3))}
    plan.run(rows)
    rows["y"][1, 2] = np.nan
    with pytest.raises(InputError):
        plan.run(rows)
