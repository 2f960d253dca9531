"""The same function of several parts is one function of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from flour.core.types import Scalar
from flour.language.flow import Flow, outputs, source
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "join_elementwise"


def example() -> Flow:
    """A program the rule applies to."""
    return vector(2).sigmoid().concat(vector(3, name="y").sigmoid())


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Sigmoid(Concat(x, y))")


def test_it_joins_the_parameters() -> None:
    left, right = vector(2).multiply([2.0, 3.0]), vector(3, name="y").multiply([5.0])
    made = assert_fires(left.concat(right), RULE, "Multiply[5](Concat(x, y))")
    operand = made.node.op.fields()["operand"].array
    np.testing.assert_array_equal(operand, [2.0, 3.0, 5.0, 5.0, 5.0])


def test_one_number_for_all_stays_one() -> None:
    left, right = vector(2).greater([0.5]), vector(3, name="y").greater([0.5])
    assert_fires(left.concat(right), RULE, "Greater[1](Concat(x, y))")


def test_it_fires_on_chains_and_on_scalars() -> None:
    one = source("z", Scalar()).subtract([1.0]).divide([2.0]).as_vector()
    many = vector(3).subtract([1.0, 2.0, 3.0]).divide([2.0, 2.0, 4.0])
    assert_fires(many.concat(one), RULE, "Divide[4](Subtract[4](Concat(x, z)))")


def test_it_fires_on_sparse_columns() -> None:
    left, right = vector(2, sparse=True).multiply([2.0]), vector(3, name="y").multiply([3.0])
    assert_fires(left.concat(right), RULE, "Multiply[5](Concat(x, y))")


def test_it_declines_different_functions() -> None:
    x, y = vector(2), vector(3, name="y")
    assert_declines(x.sigmoid().concat(y.abs()), RULE)
    assert_declines(x.sigmoid().concat(y), RULE)
    assert_declines(x.subtract([1.0]).concat(y.subtract([1.0], wide=True)), RULE)
    assert_declines(x.cast("float32").concat(y.cast("int64")), RULE)
    assert_declines(x.abs().concat(vector(3, "float32", name="y").abs()), RULE)


def test_it_declines_functions_that_mix_columns() -> None:
    assert_declines(vector(2).softmax().concat(vector(3, name="y").softmax()), RULE)


def test_it_declines_where_something_else_reads_a_part() -> None:
    left, right = vector(2).sigmoid(), vector(3, name="y").sigmoid()
    assert_declines(outputs(a=left.concat(right), b=left.sum()), RULE)
    scalar = source("z", Scalar()).sigmoid()
    assert_declines(outputs(a=right.concat(scalar), b=scalar), RULE)
