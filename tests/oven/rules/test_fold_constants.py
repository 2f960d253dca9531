"""What is the same for every row is computed once."""

from __future__ import annotations

import numpy as np
import pytest

from flour.core.types import Record, Scalar
from flour.language.flow import Flow, outputs, source
from flour.ops.source import Fill
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "fold_constants"


def constant(*values: float) -> Flow:
    """The same numbers for every row."""
    return Fill(list(values))(vector(3))


def example() -> Flow:
    """A program the rule applies to."""
    return constant(1.0, 2.0).multiply([3.0])


def test_it_fires() -> None:
    made = assert_fires(example(), RULE, "Fill[2](x)")
    np.testing.assert_array_equal(made.node.op.fields()["values"].array, [3.0, 6.0])


def test_it_fires_on_several_constants() -> None:
    assert_fires(constant(1.0).concat(constant(2.0, 3.0)), RULE, "Fill[3](x)")
    assert_fires(constant(1.0) + constant(2.0), RULE, "Fill[1](x)")


def test_it_fires_on_a_scalar() -> None:
    assert_fires(constant(1.0, 2.0).element(1).sigmoid(), RULE, "Fill[1, True](x)")


def test_it_fires_on_whole_numbers() -> None:
    assert_fires(constant(1.5, -0.5).greater([0.0]), RULE, "Fill[2](x)")


def test_what_a_constant_reads_need_not_be_computed() -> None:
    flow = Fill([1.0])(vector(3).sigmoid().linear(np.ones((2, 3)), []))
    assert_fires(flow, RULE, "Fill[1](x)")


def test_a_constant_hangs_on_a_column_of_a_record() -> None:
    record = source("x", Record((("a", Scalar()), ("b", Scalar()))))
    flow = Fill([1.0])(record.columns(["a", "b"]).sigmoid())
    assert_fires(flow, RULE, "Fill[1](Pick[(a, b)](x))")


def test_it_declines_what_depends_on_the_row() -> None:
    assert_declines(constant(1.0).concat(vector(3)), RULE)


def test_it_declines_sums_of_floats() -> None:
    assert_declines(constant(1.0, 2.0).linear([[0.1, 0.2]], []), RULE)
    assert_declines(constant(1.0, 2.0).sum(), RULE)


def test_it_declines_what_is_not_one_dense_block_of_numbers() -> None:
    assert_declines(constant(1.0, 0.0).to_sparse(), RULE)
    assert_declines(Fill([1])(vector(3)).take(["no", "yes"]), RULE)


def test_it_declines_where_nothing_is_computed() -> None:
    assert_declines(Fill([1.0])(vector(3)), RULE)


def test_it_declines_where_a_row_can_be_refused() -> None:
    zero = np.zeros(1, np.int64)
    codes = vector(1).categorise([1.0], zero, [0, 1], zero, zero, strict=True)
    assert_declines(Fill([1.0])(codes), RULE)
    assert_fires(
        outputs(a=Fill([1.0])(vector(1).categorise([1.0], zero, [0, 1], zero, zero))),
        RULE,
        "Fill[1](x)",
    )
