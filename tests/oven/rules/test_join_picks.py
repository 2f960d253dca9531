"""What was taken apart and is put together again was never apart."""

from __future__ import annotations

import numpy as np
import pytest

from flour.core.types import Category, Record, Scalar
from flour.language.flow import Flow, source
from oven.optimise.rewrite import optimise
from oven.optimise.summary import expression
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "join_picks"


def example() -> Flow:
    """A program the rule applies to."""
    return vector(5).select([4, 1]).concat(vector(5).select([0]))


def record() -> Flow:
    """Four columns."""
    fields = (("a", Scalar()), ("b", Scalar()), ("c", Scalar("int64")), ("d", Category()))
    return source("x", Record(fields))


PICKS = [
    (example(), "Select[{4 1 0}](x)"),
    (vector(5).element(2).concat(vector(5).select([0, 2])), "Select[{2 0 2}](x)"),
    (
        vector(5).select([1]).concat(vector(5).select([2]), vector(2, name="y")),
        "Concat(Select[{1 2}](x), y)",
    ),
    (record().columns(["b"]).concat(record().columns(["a"])), "Pick[(b, a)](x)"),
    (record().field("b").concat(record().columns(["a"])), "Pick[(b, a)](x)"),
]


@pytest.mark.parametrize(("flow", "after"), PICKS, ids=[after for _, after in PICKS])
def test_it_fires(flow: Flow, after: str) -> None:
    assert_fires(flow, RULE, after)


def test_scalers_of_single_columns_leave_nothing_behind() -> None:
    x = vector(3)
    columns = [x.select([j]).subtract([1.0]).divide([2.0 + j]) for j in range(3)]
    flow = columns[0].concat(*columns[1:]).linear(np.ones((1, 3)), [0.0])
    assert expression(optimise(flow, exact=False).node) == "Linear[1x3, 1](x)"


def test_it_declines_different_places() -> None:
    x, y = vector(5), vector(5, name="y")
    assert_declines(x.select([1]).concat(y.select([1])), RULE)
    assert_declines(x.select([1]).concat(y, x.select([2])), RULE)
    assert_declines(x.select([1]).concat(x), RULE)


def test_it_declines_sparse_columns() -> None:
    x = vector(5, sparse=True)
    assert_declines(x.select([1]).concat(x.select([2])), RULE)


def test_it_declines_columns_of_different_dtypes() -> None:
    assert_declines(record().columns(["a"]).concat(record().columns(["c"])), RULE)
    assert_declines(record().columns(["a", "c"]).concat(record().columns(["b"])), RULE)
