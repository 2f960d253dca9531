"""Trees answer the same, and take no longer for a row, however many rows a block has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from flour.ops.trees.trees import Trees
from tests import ensembles
from tests.ensembles import answers_alike, chains, near

#: Around the widths of registers, of half blocks and of blocks.
SIZES = (1, 2, 3, 7, 8, 9, 16, 17, 33, 64, 65, 100, 1000)
#: A block may take so many times as long for a row as one row alone.
MOST = 1.05


def every_size(op: Trees, width: int, dtype: str = "float64", seed: int = 0) -> None:
    """Blocks of every size answer as the definition does, to the last bit."""
    answers_alike(op, near(op, seed, SIZES[-1], dtype, width), *SIZES)


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([(12, 5), (60, 4), (40, 6)]))
def test_random_ensembles(seed: int, shape: tuple[int, int]) -> None:
    trees, depth = shape
    every_size(ensembles.sums(seed, trees=trees, depth=depth), 6, seed=seed)


@settings(max_examples=5)
@given(st.integers(0, 10_000))
def test_numbers_of_four_bytes(seed: int) -> None:
    op = ensembles.sums(seed, narrow=True, strict=True, trees=40, depth=6)
    every_size(op, 6, "float32", seed)


@pytest.mark.parametrize(
    ("trees", "tests"),
    [
        pytest.param(300, 1, id="groups of many trees"),
        pytest.param(3, 200, id="a tree for each group"),
        pytest.param(3, 255, id="as many leaves as a byte numbers"),
        pytest.param(3, 256, id="one more"),
        pytest.param(5, 0, id="leaves"),
    ],
)
def test_groups_of_trees(trees: int, tests: int) -> None:
    every_size(chains(trees, tests, 4), 4)


@pytest.mark.parametrize("trees", [1, 2, 3, 5, 9, 17])
def test_columns_of_few_and_many_thresholds(trees: int) -> None:
    """From one comparison of all thresholds to several behind the pivots."""
    for tests in (1, 7, 15, 16, 31, 60):
        every_size(chains(trees, tests, 1), 1)


def least(
    run: Callable[[Any], Any], blocks: dict[int, list[Any]], turns: int = 100
) -> dict[int, float]:
    """The least time of this thread for a row in blocks of each size, which take turns."""
    took = dict.fromkeys(blocks, np.inf)
    for _ in range(turns):
        for size, parts in blocks.items():
            start = time.thread_time_ns()
            for part in parts:
                run(part)
            took[size] = min(took[size], (time.thread_time_ns() - start) / (size * len(parts)))
    return took


@pytest.mark.bench
@pytest.mark.parametrize(("trees", "depth"), [(100, 5), (500, 6), (20, 8)])
def test_a_block_takes_no_longer_than_its_rows(trees: int, depth: int) -> None:
    op = ensembles.sums(0, trees=trees, depth=depth, width=30)
    plan = oven.bake(outputs(scores=op(source("X", Vector(30)))))
    rows = np.random.default_rng(0).normal(size=(1000, 30))
    starts = {size: range(0, 1000 - size + 1, size) for size in SIZES}
    blocks = {n: [rows[k : k + n] for k in starts[n][:100]] for n in SIZES}
    took = least(plan.run, blocks)
    slow = {size: each for size, each in took.items() if each > MOST * took[1]}
    assert not slow, f"one row alone takes {took[1]:.0f} ns"


#: The sizes at which blocks begin to be scored in other ways.
FEW = (2, 4, 8, 10, 16, 33, 64, 65, 100)
#: Rows are new to the branch predictor, as a service's are.
MANY_ROWS = 700
#: Nanoseconds by which a call may differ that takes no longer than this many of them.
CALL = 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_random_ensembles_take_no_longer_in_blocks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trees, depth, width = int(np.exp(rng.uniform(0, np.log(300)))), *rng.integers((1, 4), (9, 40))
    narrow, columns = bool(rng.integers(2)), int(rng.choice([1, 1, 1, 3]))
    how = {"narrow": narrow, "outputs": columns, "sets": bool(rng.random() < 0.2)}
    op = ensembles.sums(seed, trees=trees, depth=int(depth), width=int(width), **how)
    entry = oven.bake(outputs(scores=op(source("X", Vector(int(width)))))).wait().entry()
    rows = rng.normal(size=(MANY_ROWS, int(width)))
    blocks = {n: [rows[k : k + n].copy() for k in range(0, 640 // n * n, n)] for n in (1, *FEW)}
    took = dict.fromkeys(blocks, np.inf)
    slow = {1: 0.0}
    for _ in range(12):
        if slow:
            for size, each in least(entry, blocks, turns=6).items():
                took[size] = min(took[size], each)
            slow = {
                size: each / took[1]
                for size, each in took.items()
                if each > MOST * took[1] and (each - took[1]) * size > CALL
            }
    assert not slow, f"one row alone takes {took[1]:.0f} ns"
