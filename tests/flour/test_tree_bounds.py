"""Bounds of ensembles where columns are not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
import pretzel
from flour.ops.trees.trees import Trees

RNG = np.random.default_rng(2)
X = RNG.normal(size=(1500, 6))
Y = (X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * X[:, 3] > 0).astype(int)


def trees(model: Any) -> Any:
    nodes = pretzel.compile(model).plan.program.optimised.nodes()
    return next(item.op for item in nodes if isinstance(item.op, Trees))


@pytest.mark.parametrize("unknown", [[5], [0, 2], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("classes", [2, 3])
def test_no_row_is_outside_of_the_bounds(unknown: list[int], classes: int) -> None:
    target = Y if classes == 2 else Y + (X[:, 4] > 1)
    op = trees(LGBMClassifier(n_estimators=30, verbose=-1).fit(X, target))
    bounds = op.bounds(np.isin(np.arange(6), unknown))
    given = RNG.normal(size=(300, 6)).astype(np.float64)
    made = bounds.reference(given)
    program = bounds(flour.vector("x", 6)).named("y")
    native = oven.bake(program, background=False).run(given)["y"]
    assert np.allclose(native, made, rtol=0, atol=1e-12)
    for _ in range(40):
        given[:, unknown] = RNG.normal(scale=2, size=(300, len(unknown)))
        given[RNG.random(300) < 0.1, unknown[0]] = np.nan
        sums = op.reference(given)
        assert np.all((made[:, ::2] <= sums) & (sums <= made[:, 1::2]))


def test_bounds_of_what_is_known_are_the_sums() -> None:
    op = trees(LGBMClassifier(n_estimators=30, verbose=-1).fit(X, Y))
    made, sums = op.bounds(np.zeros(6, bool)).reference(X), op.reference(X)
    assert np.all(made[:, 1:] - made[:, :1] < 1e-9)
    assert np.all((made[:, :1] <= sums) & (sums <= made[:, 1:]))


@pytest.mark.parametrize(("leaves", "depth"), [(1, 300), (256, 2), (256, 300)])
def test_sides_that_would_grow_too_large_are_one_leaf(
    monkeypatch: pytest.MonkeyPatch, leaves: int, depth: int
) -> None:
    monkeypatch.setattr("flour.ops.trees.bounds._MOST_LEAVES", leaves)
    monkeypatch.setattr("flour.ops.trees.bounds._DEEPEST", depth)
    op = trees(DecisionTreeClassifier(random_state=0).fit(X, Y))
    bounds = op.bounds(np.array([1, 0, 1, 0, 0, 0], bool))
    sums, made = op.reference(X), bounds.reference(X)
    assert np.all((made[:, ::2] <= sums) & (sums <= made[:, 1::2]))
    assert len(bounds.feature) < (3 if leaves == 1 else 30) * len(op.feature)
