"""Random tables of trees, every kind of node among them."""

from __future__ import annotations

from typing import Any

import numpy as np

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from flour.ops.trees.linear_trees import LinearTrees
from flour.ops.trees.oblivious import ObliviousTrees
from flour.ops.trees.trees import TreeLeaves, Trees

FLAGS = ("strict", "narrow", "zeros", "divisor", "dtype", "signed", "absent")


def nodes(
    seed: int,
    *,
    trees: int = 5,
    depth: int = 4,
    width: int = 6,
    sets: bool = False,
    zeros: bool = False,
) -> Any:
    """The table of an ensemble of random trees, and how many leaves they have."""
    rng = np.random.default_rng(seed)
    rows: list[list[Any]] = []
    roots, leaves = [], 0

    def grow(left_over: int) -> int:
        nonlocal leaves
        place = len(rows)
        rows.append([-1, 0.0, leaves, 0, 0, -1, 0])
        if left_over == 0 or rng.random() < 0.2:
            leaves += 1
            return place
        left, right = grow(left_over - 1), grow(left_over - 1)
        start = int(rng.integers(0, 3)) if sets and rng.random() < 0.4 else -1
        rows[place] = [
            int(rng.integers(width)),
            float(rng.choice(np.array([0.0, rng.normal(), np.float32(rng.normal())]))),
            left,
            right,
            int(rng.choice([0, 1, 2, 5, 6])) if zeros else int(rng.integers(3)),
            start,
            2 if start >= 0 else 0,
        ]
        return place

    for _ in range(trees):
        roots.append(len(rows))
        grow(depth)
    columns = list(zip(*rows, strict=True))
    names = ("feature", "threshold", "left", "right", "missing", "category", "length")
    dtypes = (np.int32, np.float64, np.int32, np.int32, np.uint8, np.int32, np.int32)
    made = {n: np.array(c, t) for n, c, t in zip(names, columns, dtypes, strict=True)}
    made["roots"] = np.array(roots, np.int32)
    if sets:
        made["words"] = rng.integers(0, 2**32, size=5, dtype=np.uint32)
    else:
        del made["category"], made["length"]
    return made, leaves


def sums(seed: int, outputs: int = 1, span: int = 1, **how: Any) -> Trees:
    """An ensemble whose trees add `span` values to `outputs` columns."""
    flags = {key: how.pop(key) for key in FLAGS if key in how}
    table, leaves = nodes(seed, zeros=bool(flags.get("zeros")), **how)
    rng = np.random.default_rng(seed)
    return Trees(
        **table,
        value=rng.normal(size=(leaves, span)),
        target=rng.integers(0, outputs - span + 1, size=len(table["roots"])).astype(np.int32),
        base=rng.normal(size=outputs),
        **flags,
    )


def linear(seed: int, outputs: int = 1, width: int = 6, **how: Any) -> LinearTrees:
    """An ensemble whose leaves hold up to three terms each."""
    table, count = nodes(seed, width=width, **how)
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 4, size=count))])
    return LinearTrees(
        **table,
        value=rng.normal(size=count),
        constant=rng.normal(size=count),
        starts=starts.astype(np.int32),
        column=rng.integers(0, width, size=starts[-1]).astype(np.int32),
        slope=rng.normal(size=starts[-1]),
        target=rng.integers(0, outputs, size=len(table["roots"])).astype(np.int32),
        base=rng.normal(size=outputs),
    )


def oblivious(
    seed: int, trees: int = 7, depth: int = 3, width: int = 6, outputs: int = 1
) -> ObliviousTrees:
    """An ensemble whose trees ask one question a level; one of them has a level less."""
    rng = np.random.default_rng(seed)
    border = rng.normal(size=(trees, depth)).astype(np.float32)
    sizes = np.full(trees, 1 << depth)
    if depth:
        border[0, -1], sizes[0] = np.inf, 1 << (depth - 1)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return ObliviousTrees(
        feature=rng.integers(0, width, size=(trees, depth)).astype(np.int32),
        border=border,
        starts=starts,
        value=rng.normal(size=(starts[-1], outputs)),
        above=np.arange(width, dtype=np.uint8) % 2,
    )


def leaves(seed: int, **how: Any) -> TreeLeaves:
    """The leaves an ensemble's rows reach, numbered at random."""
    table, count = nodes(seed, **how)
    return TreeLeaves(**table, number=np.random.default_rng(seed).permutation(count))


def chains(trees: int, tests: int, width: int, seed: int = 0) -> Trees:
    """Trees that are one long branch each: `tests` nodes deep, with a leaf at every one."""
    rng = np.random.default_rng(seed)
    inner, size = np.arange(tests), 2 * tests + 1
    feature = np.full((trees, size), -1, np.int32)
    feature[:, :tests] = rng.integers(width, size=(trees, tests))
    threshold = np.zeros((trees, size))
    threshold[:, :tests] = rng.normal(size=(trees, tests))
    left, right = np.zeros((2, trees, size), np.int64)
    leaf, on = tests + inner, np.append(inner[1:], size - 1)
    turned = rng.random((trees, tests)) < 0.5
    left[:, :tests], right[:, :tests] = np.where(turned, leaf, on), np.where(turned, on, leaf)
    start = size * np.arange(trees)[:, None]
    left[:, :tests] += start
    right[:, :tests] += start
    left[:, tests:] = np.arange(trees * (tests + 1)).reshape(trees, -1)
    return Trees(
        feature=feature.reshape(-1),
        threshold=threshold.reshape(-1),
        left=left.reshape(-1).astype(np.int32),
        right=right.reshape(-1).astype(np.int32),
        missing=rng.integers(3, size=trees * size).astype(np.uint8),
        roots=start.reshape(-1).astype(np.int32),
        value=rng.normal(size=(trees * (tests + 1), 1)),
        target=np.zeros(trees, np.int32),
        base=np.zeros(1),
    )


def near(op: Any, seed: int, rows: int, dtype: str, width: int = 6) -> Any:
    """Rows at the ensemble's thresholds, beside them, and far out."""
    rng = np.random.default_rng(seed)
    used = np.unique(np.asarray(op.threshold.array))
    beside = [used, np.nextafter(used, np.inf), np.nextafter(used, -np.inf), used.astype("f4")]
    odd = [np.nan, np.inf, -np.inf, -0.0, 1e-36, -1e-36, -0.5, 31.0, 32.0, 63.9, 64.0, 1e30]
    with np.errstate(over="ignore"):
        return rng.choice(np.concatenate([*beside, odd]), size=(rows, width)).astype(dtype)


def answers_alike(op: Any, rows: Any, *counts: int) -> None:
    """Blocks of so many of the rows answer as the definition does, to the last bit."""
    x = source("X", Vector(rows.shape[1], str(rows.dtype)))
    plan = oven.bake(outputs(scores=op(x)), exact=True)
    want = np.asarray(op.reference(rows))
    bits = f"i{want.itemsize}"
    for count in counts or (len(rows),):
        found = plan.run(rows[:count])["scores"]
        np.testing.assert_array_equal(found.view(bits), want[:count].view(bits))
