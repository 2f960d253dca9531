"""Rows without gaps that are computed as one long row, and few exponentials that stand alone.

Either way a row has the bits it has alone, wherever its neighbours are.
"""

from __future__ import annotations

import numpy as np
import pytest

import oven
from flour.core.types import Vector
from flour.language.flow import Flow, source

pytestmark = pytest.mark.once

RNG = np.random.default_rng(11)
FUNCTIONS = ("exp", "tanh", "log", "sqrt", "expm1")
WIDTHS = (2, 3, 15, 16, 50)


def made(name: str, width: int, dtype: str) -> oven.Plan:
    """A plan of one function of a vector."""
    flow: Flow = getattr(source("x", Vector(width, dtype)), name)()
    return oven.bake(flow)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_have_the_same_bits_with_and_without_gaps(name: str, width: int, dtype: str) -> None:
    run = made(name, width, dtype).entry()
    rows = np.exp(RNG.normal(size=(23, width)) * 2).astype(dtype)
    (together,) = run(rows)
    alone = np.concatenate([np.asarray(run(rows[i : i + 1])[0]) for i in range(len(rows))])
    wide = np.full((23, width + 3), np.nan, dtype)
    wide[:, 1 : width + 1] = rows
    (apart,) = run(wide[:, 1 : width + 1])
    (backwards,) = run(rows[::-1])
    np.testing.assert_array_equal(np.asarray(together), alone)
    np.testing.assert_array_equal(np.asarray(apart), alone)
    np.testing.assert_array_equal(np.asarray(backwards), alone[::-1])
    with np.errstate(over="ignore"):
        wanted = getattr(np, name)(rows)
    np.testing.assert_allclose(together, wanted, rtol=4e-7 if dtype == "float32" else 5e-16)


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_no_rows_are_no_rows(name: str) -> None:
    (answer,) = made(name, 3, "float32").entry()(np.empty((0, 3), np.float32))
    assert np.asarray(answer).shape == (0, 3)


def stages(flow: Flow) -> list[oven.codegen.stages.Stage]:
    """The stages of a program."""
    return list(oven.bake(flow).program.stages)


def test_few_exponentials_of_float32_stand_alone() -> None:
    def of(width: int, dtype: str) -> list[str]:
        x = source("x", Vector(width, dtype))
        return [stage.name for stage in stages(x.square().exp().sqrt())]

    assert of(3, "float32") == ["fused_rows", "kernel_exp", "fused_rows"]
    assert of(16, "float32") == of(3, "float64") == ["fused_rows"]


def long(flow: Flow) -> list[bool]:
    """Of each stage, whether rows without gaps are one."""
    return ["    n = 1" in stage.source for stage in stages(flow)]


def test_one_long_row_is_for_functions_of_every_number_alike() -> None:
    x = source("x", Vector(20, "float32"))
    assert long(x.tanh()) == [True]
    assert long(source("x", Vector(1, "float32")).tanh()) == [False]
    by_column = x.subtract(np.arange(20, dtype=np.float32))
    assert long(by_column.tanh()) == [False]
    assert long(x.select([3, 5, 7]).tanh()) == [False]
    assert long(x.tanh().sum()) == [False]
