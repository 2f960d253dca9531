"""Picks move to the sources."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flour.core.errors import InputError
from flour.core.node import node
from flour.core.types import LARGEST, Category, Record, Scalar
from flour.language.flow import Flow, outputs, source
from flour.ops.require import RequireFinite
from oven.optimise.summary import expression
from tests.rewrites import assert_declines, assert_fires, traced, vector

pytestmark = pytest.mark.rules
RULE = "drop_unused_columns"


def example() -> Flow:
    """A program the rule applies to."""
    return vector(5).subtract([1.0, 2.0, 3.0, 4.0, 5.0]).select([4, 1])


def record() -> Flow:
    """Four columns of three kinds."""
    fields = (("a", Scalar("int64")), ("b", Scalar()), ("c", Scalar("float32")), ("d", Category()))
    return source("x", Record(fields))


def test_it_fires() -> None:
    made = assert_fires(example(), RULE, "Subtract[2](Select[{4 1}](x))")
    np.testing.assert_array_equal(made.node.op.fields()["operand"].array, [5.0, 2.0])


PICKS = [
    (vector(5).select([4, 1, 3]).select([2, 0, 2]), "Select[{3 4 3}](x)"),
    (vector(5).select([4, 1, 3]).element(2), "Element[3](x)"),
    (vector(5).sigmoid().element(2), "Sigmoid(Element[2](x))"),
    (vector(5).multiply([1.0, 2.0, 3.0, 4.0, 5.0]).element(2), "Multiply[1](Element[2](x))"),
    (
        vector(5).divide([3.0]).cast("float32").select([1]),
        "Cast[float32](Divide[1](Select[{1}](x)))",
    ),
    ((vector(3) + vector(3, name="y")).select([1]), "Plus(Select[{1}](x), Select[{1}](y))"),
    ((vector(3) / vector(3).sum()).element(1), "Over(Element[1](x), Sum(x))"),
    (source("x", Scalar()).as_vector().element(0), "x"),
    (vector(5, sparse=True).multiply([2.0]).select([1, 2]), "Multiply[1](Select[{1 2}](x))"),
]


@pytest.mark.parametrize(("flow", "after"), PICKS, ids=[after for _, after in PICKS])
def test_it_fires_through(flow: Flow, after: str) -> None:
    assert_fires(flow, RULE, after)


def beside(dtype: str = "float64", *, sparse: bool = False) -> Flow:
    """Three columns, a number, and two columns."""
    number = source("y", Scalar("float64"))
    return vector(3).concat(number, vector(2, dtype, name="z", sparse=sparse))


CONCATS = [
    (beside().select([0, 2]), "Select[{0 2}](x)"),
    (beside().select([0, 1, 2]), "x"),
    (beside().select([3]), "AsVector(y)"),
    (beside().select([3, 4, 5]), "Concat(y, z)"),
    (beside().select([1, 3, 3, 5]), "Concat(Select[{1}](x), Concat(y, y), Select[{1}](z))"),
    (beside("float32").select([4, 5]), "Cast[float64](z)"),
    (beside("float32").element(5), "Cast[float64](Element[1](z))"),
    (beside().element(3), "y"),
    (beside(sparse=True).select([0, 1, 2]), "ToSparse(x)"),
    (
        beside(sparse=True).to_dense().select([0, 4]),
        "ToDense(Concat(Select[{0}](x), Select[{0}](z)))",
    ),
]


@pytest.mark.parametrize(("flow", "after"), CONCATS, ids=[after for _, after in CONCATS])
def test_it_fires_through_a_concatenation(flow: Flow, after: str) -> None:
    assert_fires(flow, RULE, after)


RECORDS = [
    (record().columns(["a", "b", "c"]).select([1, 2]), "Pick[(b, c)](x)"),
    (record().columns(["a", "b"]).select([0]), "Cast[float64](Pick[(a)](x))"),
    (record().columns(["a", "b"]).element(1), "Field[b](x)"),
    (record().columns(["a", "b"]).element(0), "Cast[float64](Field[a](x))"),
]


@pytest.mark.parametrize(("flow", "after"), RECORDS, ids=[after for _, after in RECORDS])
def test_it_fires_down_to_a_record(flow: Flow, after: str) -> None:
    assert_fires(flow, RULE, after)


def test_it_fires_for_two_picks_that_share_nothing() -> None:
    x = vector(4).sigmoid()
    flow = outputs(a=x.select([0, 1]), b=x.select([2]).sum())
    assert_fires(flow, RULE, "Sum(Sigmoid(Select[{2}](x)))", output="b")


def test_it_declines_where_all_columns_are_read_as_well() -> None:
    x = vector(4).sigmoid()
    assert_declines(outputs(a=x.select([0, 1]), b=x.sum()), RULE)
    assert_declines(outputs(a=x.select([0, 1]), b=x), RULE)
    both = vector(2).concat(vector(2, name="y"))
    assert_declines(outputs(a=both.select([0, 1]), b=both), RULE)
    assert_declines(outputs(a=both.element(0), b=both), RULE)


def test_it_declines_to_compute_more_than_before() -> None:
    x = vector(3).sigmoid()
    assert_declines(outputs(a=x.select([0, 1]), b=x.select([1, 2])), RULE)
    assert_declines(vector(3).sigmoid().select([0, 0, 1, 1]), RULE)


def test_it_declines_to_cut_a_concatenation_into_small_pieces() -> None:
    both = vector(2).concat(vector(2, name="y"))
    assert_declines(both.select([0, 2, 1, 3]), RULE)


def test_it_declines_to_drop_what_can_refuse_a_row() -> None:
    zero = np.zeros(1, np.int64)
    codes = vector(1, name="y").categorise([1.0], zero, [0, 1], zero, zero, strict=True)
    both = vector(2).concat(codes)
    assert_declines(both.select([0, 1]), RULE)
    assert_declines(both.element(0), RULE)


@pytest.mark.parametrize(
    ("pick", "after"),
    [
        (lambda both: both.select([3]), "Exp(Select[{1}](RequireFinite[1, 1](x)))"),
        (lambda both: both.element(0), "Sigmoid(Element[0](RequireFinite[1, 1](x)))"),
    ],
    ids=["select", "element"],
)
def test_it_drops_what_is_refused_in_what_stays(pick: Callable[[Flow], Flow], after: str) -> None:
    x = refusing(vector(2))
    both = x.sigmoid().concat(x.exp())
    made = traced(pick(both), RULE).flow  # odd rows, which `assert_fires` compares, are refused
    assert expression(next(iter(made.outputs.values()))) == after
    for column in range(2):
        with pytest.raises(InputError, match="refuses infinity"):
            made.reference(np.where(np.arange(2) == column, np.inf, 0.0)[None])
    assert_declines(pick(both.concat(refusing(vector(2, name="y")))), RULE)


def refusing(x: Flow) -> Flow:
    """The vector, whose rows are refused where they are not finite."""
    return Flow({"out": node(RequireFinite(np.array([True]), np.array([LARGEST])), [x.node])})


def test_it_declines_a_category_that_became_a_string() -> None:
    assert_declines(record().columns(["d"]).element(0), RULE)


def test_it_declines_operators_that_mix_columns() -> None:
    assert_declines(vector(3).softmax().select([0]), RULE)
    assert_declines(vector(3).linear(np.ones((3, 3)), []).select([0]), RULE)
