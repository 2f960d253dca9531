"""Small ensembles in blocks whose tests compare numbers end where plain walks end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from flour.ops.trees.lockstep import at_most
from flour.ops.trees.slices import Slices, slices
from flour.ops.trees.tiles import SIDE, Tiled, tiles
from flour.ops.trees.trees import TreeLeaves, Trees
from oven.explain import explain
from tests import ensembles
from tests.ensembles import answers_alike, chains, near

#: Rows of one block or less, of two and a half.
ROWS = (1, 63, 64, 160)
#: How scikit-learn, LightGBM and XGBoost look at their data, and float32 that is compared as such.
LIBRARIES: list[tuple[dict[str, bool], str]] = [
    ({"narrow": True}, "float64"),
    ({"zeros": True}, "float64"),
    ({"strict": True, "narrow": True}, "float32"),
    ({"zeros": True}, "float32"),
]


def tables(op: Trees, dtype: str = "float64", width: int = 6) -> Tiled | None:
    """The tables of an ensemble, if it is for tests of numbers."""
    return tiles(op, Vector(width, dtype), op.value.array.astype(op.dtype))


def same(op: Any, dtype: str, width: int, seed: int) -> None:
    """Every number of rows answers as the definition does, to the last bit."""
    answers_alike(op, near(op, seed, ROWS[-1], dtype, width), *ROWS)


@settings(max_examples=60)
@given(
    st.integers(0, 10_000) | st.just(1),
    st.sampled_from(LIBRARIES),
    # One output of small leaves and of large ones, several outputs, more than a register holds.
    st.sampled_from([(1, 3), (1, 6), (3, 4), (9, 4)]),
    st.integers(0, 1),
)
def test_numbers_compared(
    seed: int, library: tuple[dict[str, bool], str], shape: tuple[int, int], mean: int
) -> None:
    flags, dtype = library
    count, depth = shape
    op = ensembles.sums(seed, count, count, depth=depth, width=20, divisor=5 * mean, **flags)
    if seed % 100 == 1:
        assert tables(op, dtype, 20) is not None
    same(op, dtype, 20, seed)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(LIBRARIES))
def test_numbers_of_leaves(seed: int, library: tuple[dict[str, bool], str]) -> None:
    flags, dtype = library
    table, count = ensembles.nodes(seed, zeros=bool(flags.get("zeros")))
    number = np.random.default_rng(seed).permutation(count).astype(np.int32)
    same(TreeLeaves(**table, number=number, **flags), dtype, 6, seed)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_any_width(width: int, dtype: str) -> None:
    """Columns behind a row's end are not read; the others are turned, whichever are asked for."""
    op = chains(12 if width == 1 else 4, min(9, 2 * width), width)
    op = op.replace(narrow=width % 2 == 0)
    made = tables(op, dtype, width)
    assert made is not None
    assert len(made.groups.array) <= -(-width // SIDE)
    same(op, dtype, width, width)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_what_is_no_float_is_ranked_or_walked(dtype: str) -> None:
    op = ensembles.sums(3, trees=30, depth=6)
    assert tables(op, dtype) is None
    assert slices(op, Vector(6, dtype)) is not None
    rows = np.random.default_rng(0).integers(0, 2, (130, 6)).astype(dtype)
    answers_alike(op, rows)


@pytest.mark.parametrize(
    ("tests", "held"),
    [(60, "float32"), (250, "float32"), (700, "float64")],
    ids=["two searches", "many", "too many"],
)
def test_ranks_of_float32(tests: int, held: str) -> None:
    """Thresholds that are one float32 share a rank; too many are searched for as float64."""
    op = chains(8, tests, 6).replace(narrow=True)
    limits = np.random.default_rng(tests).normal(size=len(op.threshold)) * 1e-3 + 1.0
    inner = np.asarray(op.feature.array) >= 0
    op = op.replace(threshold=np.where(inner, limits, 0.0))
    assert tables(op) is None
    made = slices(op, Vector(6))
    assert made is not None
    assert made.ranked_as() == held
    for dtype in ("float64", "float32"):
        same(op, dtype, 6, tests)


@given(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False))
def test_limits_are_rounded_down(limit: float, value: float) -> None:
    (made,) = at_most(np.array([limit, 0.0]), "float32")[:1]
    assert (np.float32(value) <= made) == (value <= limit)


def test_what_is_chosen_depends_on_the_shape() -> None:
    """A few tests of each column are numbers compared, many are ranks, a very few walks."""
    assert tables(chains(4, 10, 40), width=40) is not None
    assert tables(chains(1, 1, 40), width=40) is None
    many = ensembles.sums(1, trees=400, depth=6)
    assert tables(many) is None
    assert slices(many) is not None


def test_costs_are_those_of_the_machine() -> None:
    """What says how long a block takes knows what its columns are."""

    def cost(dtype: str) -> float:
        op = chains(8, 30, 6).replace(narrow=dtype == "float32")
        made = slices(op, Vector(6, dtype))
        assert isinstance(made, Slices)
        return made.cost().block

    assert cost("float32") < cost("float64") < cost("int64")


def test_a_plan_says_what_is_compared() -> None:
    said = explain(oven.bake(outputs(scores=chains(4, 10, 40)(source("X", Vector(40))))), "stages")
    assert "rows on 64 rows at a time, numbers compared" in said
