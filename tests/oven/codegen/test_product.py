"""Matrix products: every shape, float width and number of rows, within their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oven
from flour.core.types import Vector
from flour.language.flow import source
from flour.ops.product import product
from objectstore import Blob
from oven.plans.plan import Plan
from tests.checked import run as run_checked

# Outputs that fill no vector, one, several, and one more than that, for either float width.
OUTPUTS = [2, 3, 7, 8, 9, 15, 16, 17, 24, 25, 31, 32, 33, 40, 48, 49, 63, 65, 100, 130]


def bake(
    width: int, outputs: int, dtype: str = "float64", *, bias: bool = True, **how: Any
) -> Plan:
    """A plan that is one product."""
    rng = np.random.default_rng(outputs)
    weights = rng.normal(size=(outputs, width)).astype(dtype)
    added = rng.normal(size=outputs if bias else 0).astype(dtype)
    plan = oven.bake(source("x", Vector(width, dtype)).linear(weights, added), **how)
    assert [stage.kind for stage in plan.program.stages] == ["kernel"]
    return plan


def expected(plan: Plan, block: Any) -> tuple[Any, Any]:
    """The product computed in the widest floats, and how far from it a sum may be."""
    op = plan.flow.node.op
    weights, bias = op.weights.array, op.bias.array  # type: ignore[attr-defined]  # a Linear
    wide, many = block.astype(np.longdouble), weights.T.astype(np.longdouble)
    made = wide @ many + (bias if len(bias) else 0)
    slack = np.abs(wide) @ np.abs(many) + (np.abs(bias) if len(bias) else 0)
    return made, slack * (block.shape[1] + 2) * np.finfo(weights.dtype).eps


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("outputs", OUTPUTS)
def test_every_number_of_outputs(outputs: int, dtype: str) -> None:
    plan = bake(11, outputs, dtype)
    for rows in (1, 2, 5, 6, 13, 300):
        block = np.random.default_rng(rows).normal(size=(rows, 11)).astype(dtype)
        (got,) = plan.run(block).values()
        want, slack = expected(plan, block)
        assert got.dtype == dtype
        assert (np.abs(got - want) <= slack).all()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("outputs", [3, 20, 33])
def test_a_row_has_the_same_bits_alone_and_among_others(outputs: int, *, exact: bool) -> None:
    plan = bake(40, outputs, exact=exact)
    block = np.random.default_rng(0).normal(size=(50, 40))
    (together,) = plan.run(block).values()
    for place in range(50):
        (alone,) = plan.run(block[place : place + 1]).values()
        np.testing.assert_array_equal(alone[0], together[place])


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("points", [2, 9, 20])
def test_a_distance_has_the_same_bits_alone_and_among_others(points: int, *, exact: bool) -> None:
    rng = np.random.default_rng(points)
    program = source("x", Vector(11)).squared_distances(rng.normal(size=(points, 11)))
    plan = oven.bake(program, exact=exact)
    assert [stage.kind for stage in plan.program.stages] == ["kernel"]
    block = rng.normal(size=(50, 11))
    (together,) = plan.run(block).values()
    np.testing.assert_allclose(together, program.reference(block)["output"], rtol=1e-12)
    for place in range(50):
        (alone,) = plan.run(block[place : place + 1]).values()
        np.testing.assert_array_equal(alone[0], together[place])


def test_exact_sums_keep_their_order_and_fuse_nothing() -> None:
    plan = bake(30, 9, exact=True)
    block = np.random.default_rng(0).normal(size=(7, 30))
    op = plan.flow.node.op
    total = np.zeros((7, 9))
    for j in range(30):
        total += block[:, j : j + 1] * op.weights.array[:, j]  # type: ignore[attr-defined]
    total += op.bias.array  # type: ignore[attr-defined]
    np.testing.assert_array_equal(plan.run(block)["output"], total)


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(2, 70), st.integers(0, 9), st.booleans(), st.booleans())
def test_it_stays_within_its_memory(
    width: int,
    outputs: int,
    rows: int,
    bias: bool,  # noqa: FBT001 (drawn)
    narrow: bool,  # noqa: FBT001 (drawn)
) -> None:
    plan = bake(width, outputs, "float32" if narrow else "float64", bias=bias)
    (kind,) = plan.inputs.values()
    assert isinstance(kind, Vector)
    block = np.random.default_rng(rows).normal(size=(rows, width)).astype(kind.dtype)
    got = run_checked(plan, {"x": block}, rows)["output"]
    want, slack = expected(plan, block)
    assert (np.abs(got - want) <= slack).all()


def test_odd_values_stay_in_their_row_and_output() -> None:
    plan = bake(10, 17)
    block = np.random.default_rng(0).normal(size=(20, 10))
    (plain,) = plan.run(block).values()
    for odd in (np.nan, np.inf):
        spoilt = block.copy()
        spoilt[7, 3] = odd
        (got,) = plan.run(spoilt).values()
        others = np.arange(20) != 7
        np.testing.assert_array_equal(got[others], plain[others])
        assert not np.isfinite(got[7]).any()


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_padding_is_less_than_a_tile(outputs: int) -> None:
    made = product(Blob.of(np.ones((outputs, 3))), Blob.of(np.ones(outputs)), "float64")
    panels, columns, across = made.weights.shape
    padded = panels * across
    assert columns == 3
    assert outputs <= padded < outputs + 16
    assert padded % (8 * made.vectors) == padded % (8 * made.alone) == 0
    flat = made.weights.array.transpose(0, 2, 1).reshape(padded, 3)
    assert flat[:outputs].all()
    assert not flat[outputs:].any()
