"""Ensembles of every shape, scored 64 rows at a time and alone, end where plain walks end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from flour.ops.trees.quickscorer_row import row_tables
from flour.ops.trees.slices import slices
from flour.ops.trees.trees import Trees
from objectstore import Blob
from oven.explain import explain
from tests import ensembles
from tests.ensembles import answers_alike, chains, near

#: Rows of one block or less, of one and a few, of two and a half.
ROWS = (1, 5, 64, 70, 160)


def same(op: Trees, width: int, seed: int = 0) -> None:
    """Every number of rows answers as the definition does, to the last bit."""
    answers_alike(op, near(op, seed, ROWS[-1], "float64", width), *ROWS)


@pytest.mark.parametrize(
    ("trees", "tests", "width"),
    [
        pytest.param(10_000, 1, 3, id="10,000 trees of three columns"),
        pytest.param(40, 60, 3, id="60 deep"),
        pytest.param(700, 7, 5000, id="5,000 columns"),
        pytest.param(9, 31, 4, id="32 leaves"),
        pytest.param(9, 32, 4, id="33 leaves"),
        pytest.param(9, 63, 4, id="64 leaves"),
        pytest.param(9, 64, 4, id="65 leaves"),
        pytest.param(9, 255, 4, id="256 leaves"),
        pytest.param(9, 256, 4, id="257 leaves"),
        pytest.param(30, 60, 1, id="more thresholds than a rank counts"),
        pytest.param(120, 60, 2, id="as many for several columns"),
        pytest.param(1, 0, 1, id="a leaf"),
        pytest.param(20, 0, 4, id="leaves"),
    ],
)
def test_shapes(trees: int, tests: int, width: int) -> None:
    same(chains(trees, tests, width), width)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([(1, 1), (3, 1), (4, 2), (3, 3)]))
def test_several_outputs(seed: int, shape: tuple[int, int]) -> None:
    op = ensembles.sums(seed, *shape, trees=6, depth=5, divisor=seed % 2 * 6)
    same(op, 6, seed)


def holed(rng: np.random.Generator, rows: Any, more: list[float]) -> Any:
    """Codes of categories, three in ten of them odd numbers."""
    odd = [np.nan, -1.0, -0.5, -0.0, 63.9, 64.0, 1e9, np.inf, -np.inf, *more]
    return np.where(rng.random(rows.shape) < 0.3, rng.choice(odd, rows.shape), rows)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.booleans())
def test_many_categories(seed: int, signed: bool) -> None:  # noqa: FBT001 (drawn)
    rng = np.random.default_rng(seed)
    table, leaves = ensembles.nodes(seed, trees=9, depth=5, sets=True)
    table["words"] = rng.integers(0, 2**32, size=30, dtype=np.uint32)
    has = table["category"] >= 0
    table["category"][has] = rng.integers(0, 20, size=has.sum())
    table["length"][has] = rng.integers(0, 10, size=has.sum())
    op = Trees(
        **table,
        value=rng.normal(size=(leaves, 1)),
        target=np.zeros(9, np.int32),
        base=np.zeros(1),
        signed=signed,
    )
    answers_alike(op, holed(rng, rng.integers(0, 330, (70, 6)), [319.0, 320.0]), 1, 9, 70)


@pytest.mark.parametrize("words", [1, 20])
def test_sets_that_many_nodes_share(words: int) -> None:
    """A few sets are looked up once for all nodes; they answer as sets of each node do."""
    rng = np.random.default_rng(words)
    table, leaves = ensembles.nodes(words, trees=40, depth=6, sets=True)
    has = table["category"] >= 0
    table["words"] = rng.integers(0, 2**32, size=3 * words, dtype=np.uint32)
    table["category"][has] = rng.integers(0, 3, size=has.sum()) * words
    table["length"][has] = words
    op = Trees(
        **table, value=rng.normal(size=(leaves, 1)), target=np.zeros(40, np.int32), base=np.zeros(1)
    )
    made: Any = slices(op)
    assert 0 < made.layout().shared <= 36  # three sets, six columns, two ways of missing values
    whole = rng.integers(0, 32 * words + 20, size=(160, 6))
    answers_alike(op, holed(rng, whole, [31.5, 640.0]), 1, 9, 70, 160)


def test_few_trees_over_many_columns() -> None:
    """Blocks only: one row looks at few of the columns, so it is walked."""
    for trees, tests, width in ((3, 400, 60), (1, 900, 200)):
        op = chains(trees, tests, width)
        made: Any = slices(op)
        assert made.table.mostly_slots
        assert row_tables(made, op.value.array[:, 0]) is None
        assert "walked one by one; from" in op.remark()
        same(op, width)


def test_what_is_chosen_depends_on_the_shape() -> None:
    def ways(op: Trees) -> tuple[bool, bool]:
        made: Any = slices(op)
        return made is not None, made is not None and row_tables(
            made, op.value.array[:, 0]
        ) is not None

    assert ways(chains(9, 31, 4)) == (True, True)
    assert ways(chains(9, 64, 4)) == (True, False)  # a mask of leaves has 64 bits
    assert ways(chains(60, 60, 100)) == (True, False)  # one instruction chooses among 128 ranks
    assert ways(chains(1, 1, 40)) == (False, False)  # turning its column costs more than the walk


@pytest.mark.parametrize(
    ("op", "width", "condition"),
    [
        pytest.param(ensembles.sums(1, trees=30, depth=6), 6, "", id="a byte for each leaf"),
        pytest.param(ensembles.sums(5, trees=60, depth=11), 6, "", id="two bytes"),
        pytest.param(
            ensembles.sums(5, trees=12, depth=11, width=12),
            12,
            "bit_masks or wide_registers",
            id="too slow with registers of 16 bytes",
        ),
        pytest.param(ensembles.sums(9, trees=2, depth=12), 6, "bit_masks", id="too few trees"),
        pytest.param(chains(3, 768, 4), 4, "bit_masks", id="too many nodes in a tree"),
    ],
)
def test_where_blocks_are_taken_depends_on_the_processor(
    op: Trees, width: int, condition: str
) -> None:
    sliced = slices(op, Vector(width))
    assert sliced is not None
    assert sliced.cost().condition == condition
    paired = sliced.layout().paired is not None
    assert paired == (sliced.leaf == "uint16" and condition != "bit_masks")


def test_a_plan_says_how_its_trees_are_scored() -> None:
    def said(op: Trees) -> str:
        return explain(oven.bake(outputs(scores=op(source("X", Vector(40))))), "stages")

    assert "9 trees, all nodes of a tree at once; from" in said(chains(9, 31, 4))
    assert "9 trees, 8 walked together; from" in said(chains(9, 64, 4))
    assert "1 trees, walked one by one" in said(chains(1, 30, 40))


@pytest.mark.parametrize("op", [chains(9, 31, 4), chains(90, 64, 4)], ids=["small", "deep"])
def test_a_plan_says_what_its_tables_take(op: Trees) -> None:
    plan = oven.bake(outputs(scores=op(source("X", Vector(4)))))
    stated = float(explain(plan, "stages").split("tables of ")[1].split()[0])
    own = set(op.parameters())
    made = [
        item for item in plan.program.parameters() if isinstance(item, Blob) and item not in own
    ]
    held = sum(item.array.nbytes for item in made) / len(op.feature)
    assert stated == pytest.approx(held, rel=0.02)


@pytest.mark.parametrize(
    ("op", "most"),
    [
        (chains(500, 30, 10), 36),  # small trees: a way for one row of them besides
        (chains(200, 63, 20), 40),
        (chains(40, 250, 20), 36),  # walks and blocks
        (chains(60, 120, 20).replace(value=np.ones((60 * 121, 3)), base=np.zeros(3)), 56),
    ],
    ids=["32 leaves", "64 leaves", "251 leaves", "three outputs"],
)
def test_what_a_node_takes_in_memory(op: Trees, most: float, tmp_path: Path) -> None:
    """A plan that is loaded holds what its native code reads, and no node as it was written."""
    plan = oven.bake(outputs(scores=op(source("X", Vector(20)))))
    plan.save(tmp_path / "trees.plan")
    assert set(op.parameters()) & plan.program.parameters()
    oven.load(tmp_path / "trees.plan")  # from here on it is known
    again = oven.load(tmp_path / "trees.plan")
    rows = np.random.default_rng(1).normal(size=(70, 20))
    np.testing.assert_array_equal(again.run(rows)["scores"], plan.run(rows)["scores"])
    held = again.program.resident()
    written = {*op.feature.parts, *op.threshold.parts, *op.left.parts}  # type: ignore[union-attr]
    assert not held & written
    assert sum(item.nbytes for item in held) / len(op.feature) <= most
