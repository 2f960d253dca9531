"""Steps that do nothing go, and only those."""

from __future__ import annotations

import numpy as np
import pytest

import flour
from flour.core.types import Scalar
from flour.language.flow import Flow, source
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "remove_identity"


def example() -> Flow:
    """A program the rule applies to."""
    return vector(3).as_float().sigmoid()


NOTHING = [
    vector(3).as_float(),
    vector(3).cast("float64"),
    vector(3).subtract(np.zeros(3)),
    vector(3).subtract([0.0]),
    vector(3).add([-0.0]),
    vector(3).multiply([1.0, 1.0, 1.0]),
    vector(3).divide([1.0]),
    vector(3, "float32").divide([1.0], wide=True),
    vector(3, "float32").subtract([1e-60]),  # zero in the data's own width
    vector(3).clip([-np.inf], [np.inf]),
    vector(3).select([0, 1, 2]),
    vector(3).to_dense(),
    vector(3, sparse=True).to_sparse(),
    vector(3, sparse=True).multiply([1.0]),
    source("x", Scalar("int64")).cast("int64"),
]


@pytest.mark.parametrize("flow", NOTHING, ids=lambda flow: flow.node.op.name)
def test_it_fires(flow: Flow) -> None:
    assert_fires(flow.concat(flow.abs()), RULE, "Concat(x, Abs(x))")


def test_it_fires_on_a_concatenation_of_one() -> None:
    assert_fires(flour.concat(vector(3)).abs(), RULE, "Abs(x)")


LABELS = [
    (vector(3).arg_max().take([0, 1, 2]), "ArgMax(x)"),
    (vector(3).arg_min().take([0, 1, 2, 3]), "ArgMin(x)"),
    (vector(3).greater([0.5]).cast("int64").take([0, 1]), "Cast[int64](Greater[1](x))"),
]


@pytest.mark.parametrize(("flow", "after"), LABELS, ids=[after for _, after in LABELS])
def test_it_fires_on_labels_that_count(flow: Flow, after: str) -> None:
    assert_fires(flow, RULE, after)


def test_it_fires_on_the_only_column_of_a_vector() -> None:
    assert_fires(vector(1).element(0).as_vector().abs(), RULE, "Abs(x)")
    both = vector(1).element(0).concat(vector(2, name="y"), source("z", Scalar()))
    assert_fires(both, RULE, "Concat(x, y, z)")


SOMETHING = [
    vector(2).element(0).as_vector(),
    vector(2).element(0).concat(vector(2, name="y")),
    vector(1, sparse=True).element(0).as_vector(),
    vector(3).arg_max().take([0, 1]),  # a number beyond the table means its end
    vector(3).arg_max().take([0, 2, 1]),
    vector(3).arg_max().take([0.0, 1.0, 2.0]),
    source("x", Scalar("int64")).take([0, 1]),
    vector(3).cast("int64").take([0, 1]),
    vector(3).add([0.0]),  # -0.0 + 0.0 is 0.0
    vector(3).subtract([-0.0]),  # -0.0 - -0.0 is 0.0
    vector(3).subtract([0.0, 0.0, 1e-300]),
    vector(3).multiply([1.0, 1.0, 1.0 + 2**-52]),
    vector(3).clip([-np.inf], [1e308]),
    vector(3).select([0, 2, 1]),
    vector(3).select([0, 1]),
    vector(3, "int64").as_float(),
    vector(3).cast("float32"),
    vector(3, sparse=True).to_dense(),
    vector(3, sparse=True).subtract([0.0]),  # makes it dense
    source("x", Scalar()).as_vector(),
    flour.concat(source("x", Scalar())),
]


@pytest.mark.parametrize("flow", SOMETHING, ids=lambda flow: flow.node.op.name)
def test_it_declines(flow: Flow) -> None:
    assert_declines(flow, RULE)


def test_adding_a_zero_of_the_wrong_sign_is_not_nothing() -> None:
    answer = vector(1).add([0.0]).reference(np.array([[-0.0]]))["output"]
    assert not np.signbit(answer).any()
