"""Linear maps of the same columns are one matrix product."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from oven.optimise.rewrite import optimise
from oven.optimise.summary import expression
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "join_linears"
rng = np.random.default_rng(0)


def model(outs: int = 1, *, bias: bool = True, dtype: str = "float64", name: str = "x") -> Flow:
    """A linear map of five columns."""
    weights = rng.normal(size=(outs, 5)).astype(dtype)
    shift = rng.normal(size=outs) if bias else np.zeros(0)
    return vector(5, dtype, name=name).linear(weights, shift.astype(dtype))


def example() -> Flow:
    """A program the rule applies to."""
    return model().concat(model(2))


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Linear[3x5, 3](x)")


def test_it_fires_where_only_some_have_a_bias() -> None:
    assert_fires(model(bias=False).concat(model()), RULE, "Linear[2x5, 2](x)")
    assert_fires(model(bias=False).concat(model(bias=False)), RULE, "Linear[2x5, 0](x)")


def test_it_fires_in_float32() -> None:
    assert_fires(model(dtype="float32").concat(model(dtype="float32")), RULE, "Linear[2x5, 2](x)")


def test_it_fires_on_neighbours_among_others() -> None:
    y = vector(2, name="y")
    flow = model().concat(model(), y, model(name="z"), model(2, name="z"))
    assert_fires(flow, RULE, "Concat(Linear[2x5, 2](x), y, Linear[3x5, 3](z))")


def test_one_model_for_each_class_becomes_one_model() -> None:
    x = vector(5).as_float().subtract(rng.normal(size=5)).divide(rng.uniform(1, 2, 5))
    heads = [x.linear(rng.normal(size=(1, 5)), rng.normal(size=1)).element(0) for _ in range(4)]
    chances = [head.sigmoid() for head in heads]
    flow = outputs(
        scores=heads[0].concat(*heads[1:]), probabilities=chances[0].concat(*chances[1:])
    )
    made = optimise(flow, exact=False)
    assert expression(made.outputs["probabilities"]) == "Sigmoid(Linear[4x5, 4](x))"


def both(score: Flow) -> Flow:
    """The scores of two classes."""
    return score.negate().concat(score)


def test_it_fires_on_models_of_two_classes() -> None:
    assert_fires(both(model()).concat(both(model())), RULE, "Linear[4x5, 4](x)")


def test_it_leaves_two_classes_alone_where_the_score_is_read() -> None:
    score = model()
    flow = outputs(label=score.element(0).greater(0.0), both=both(score).concat(both(model())))
    made = optimise(flow, exact=False)
    assert "Negate" in expression(made.outputs["both"])


def test_it_declines_different_columns() -> None:
    assert_declines(model().concat(model(name="y")), RULE)
    assert_declines(model().concat(vector(5, name="y"), model()), RULE)


def test_it_declines_different_float_widths() -> None:
    narrow = vector(5, "float32").linear(rng.normal(size=(1, 5)).astype("f4"), np.zeros(0, "f4"))
    wide = vector(5, "float32").linear(rng.normal(size=(1, 5)), [])
    assert_declines(narrow.concat(wide), RULE)


def test_it_declines_where_something_else_reads_one() -> None:
    first, second = model(), model()
    assert_declines(outputs(a=first.concat(second), b=second.sigmoid()), RULE)


def test_it_declines_the_same_map_twice() -> None:
    first = model()
    assert_declines(first.concat(first), RULE)
