"""A row is divided by its length after it was summed."""

from __future__ import annotations

import numpy as np
import pytest

from flour.language.flow import Flow, outputs
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "normalise_after_linear"
WEIGHTS = np.random.default_rng(0).normal(size=(2, 5))


def normalised(dtype: str = "float64", *, sparse: bool = False) -> Flow:
    """Rows of length one."""
    x = vector(5, dtype, sparse=sparse)
    return x / x.norm("l2").one_if_tiny(10.0)


def example() -> Flow:
    """A program the rule applies to."""
    return normalised().linear(WEIGHTS, [1.0, 2.0])


def test_it_fires() -> None:
    after = "Add[2](Over(Linear[2x5, 0](x), OneIfTiny[10.0](Norm[l2](x))))"
    assert_fires(example(), RULE, after)


def test_it_fires_without_a_bias_and_on_sparse_rows() -> None:
    after = "Over(Linear[2x5, 0](x), OneIfTiny[10.0](Norm[l2](x)))"
    assert_fires(normalised(sparse=True).linear(WEIGHTS, []), RULE, after)


def test_it_fires_in_float32() -> None:
    after = "Over(Linear[2x5, 0](x), OneIfTiny[10.0](Norm[l2](x)))"
    assert_fires(normalised("float32").linear(WEIGHTS.astype("f4"), []), RULE, after)


def test_it_declines_where_somebody_else_reads_the_rows() -> None:
    rows = normalised()
    assert_declines(outputs(features=rows, scores=rows.linear(WEIGHTS, [])), RULE)


def test_it_declines_as_many_outputs_as_columns() -> None:
    assert_declines(normalised().linear(np.eye(5), []), RULE)


def test_it_declines_to_skip_a_rounding() -> None:
    assert_declines(normalised("float32").linear(WEIGHTS, []), RULE)


def test_it_declines_a_division_column_by_column() -> None:
    assert_declines((vector(5) / vector(5, name="y")).linear(WEIGHTS, []), RULE)
