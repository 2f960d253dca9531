"""The smallest changes that change an answer, held against brute force and the original libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import flour
import oven
from flour.core.errors import FlourError
from oven.explain import counterfactual
from oven.plans.counterfactual import Counterfactual

Rows = NDArray[np.float64]


def rows(columns: int = 4, count: int = 300) -> Rows:
    """Return rows of numbers."""
    return np.random.default_rng(columns).normal(size=(count, columns))


def labels(X: Rows, classes: int = 2) -> NDArray[np.int64]:
    """Return what depends on several columns together."""
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * np.sin(3 * X[:, -1])
    return np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


def plan_of(fit: Any, X: Any) -> oven.Plan:
    """Return a model's plan."""
    return oven.bake(flour.from_sklearn(fit, sample=X))


def thresholds(fit: Any) -> list[list[float]]:
    """Return the values that each column of a fitted forest or booster is compared with."""
    if hasattr(fit, "booster_"):
        frame = fit.booster_.trees_to_dataframe()
        names, cuts = fit.booster_.feature_name(), frame["threshold"]
        return [sorted(set(cuts[frame["split_feature"] == name].dropna())) for name in names]
    if hasattr(fit, "get_booster"):
        frame = fit.get_booster().trees_to_dataframe()
        columns = range(fit.n_features_in_)
        return [sorted(set(frame["Split"][frame["Feature"] == f"f{j}"])) for j in columns]
    trees = getattr(fit, "estimators_", [fit])
    trees = [each.tree_ for each in np.ravel(np.asarray(trees, dtype=object))]
    columns = range(fit.n_features_in_)
    return [sorted({t for e in trees for t in e.threshold[e.feature == j]}) for j in columns]


def around(cuts: Sequence[float], width: float = 1e-6) -> list[float]:
    """Return a value on each side of every threshold, beyond the rounding to float32."""
    return [cut + side * width * max(1.0, abs(cut)) for cut in cuts for side in (-1, 1)]


def brute(
    met: Callable[[Rows], NDArray[np.bool_]],
    row: Rows,
    values: Sequence[Sequence[float]],
    scales: Rows,
    most: int = 2,
) -> tuple[int, float] | None:
    """Return the fewest columns and the least cost of all combinations of these values."""
    for size in range(1, most + 1):
        best = np.inf
        for chosen in combinations(range(len(row)), size):
            sets = np.array([*product(*(values[j] for j in chosen))], float).reshape(-1, size)
            if not len(sets):
                continue
            block = np.repeat(row[None], len(sets), axis=0)
            block[:, chosen] = sets
            costs = (np.abs(block - row) / scales).sum(axis=1)
            best = min(best, costs[met(block)].min(initial=np.inf))
        if np.isfinite(best):
            return size, float(best)
    return None


def scales_of(row: Rows) -> Rows:
    """Return the distances that cost 1 where nothing else is known."""
    return np.maximum(1.0, np.abs(row))


TREES: dict[str, tuple[Any, int]] = {
    "tree": (DecisionTreeClassifier(max_depth=5, random_state=0), 2),
    "forest": (RandomForestClassifier(7, max_depth=4, random_state=0), 2),
    "forest-three": (RandomForestClassifier(6, max_depth=4, random_state=0), 3),
    "boosted-three": (GradientBoostingClassifier(n_estimators=5, random_state=0), 3),
    "light": (LGBMClassifier(n_estimators=12, num_leaves=8, verbose=-1, n_jobs=1), 2),
    "xg": (XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1), 2),
}


@pytest.mark.parametrize("name", [*TREES])
def test_trees_are_changed_as_little_as_brute_force_does(name: str) -> None:
    """Every change is proved, has the original's word, and none of all cells is cheaper."""
    fit, classes = TREES[name]
    X = rows()
    fit.fit(X, labels(X, classes))
    plan, values = plan_of(fit, X), [around(each) for each in thresholds(fit)]
    for row in X[:25]:
        want = (int(fit.predict(row[None])[0]) + 1) % classes
        made = counterfactual(plan, row, want=want, most=2)
        found = brute(lambda block: fit.predict(block) == want, row, values, scales_of(row))
        assert made.proved
        checked(made, fit, row)
        if found is None:
            assert not made.found
        else:
            assert (len(made.changes), made.cost) == (found[0], pytest.approx(found[1], abs=1e-5))


def checked(made: Counterfactual, fit: Any, row: Rows) -> None:
    """Check that the original answers the told row as told, and what has changed."""
    if not made.found:
        assert np.array_equal(made.row, row)
        return
    assert fit.predict(made.row[None])[0] == made.want == made.after["label"]
    moved = np.flatnonzero(made.row != row)
    assert {f"X[{j}]" for j in moved} == {each.column for each in made.changes}
    assert made.cost == pytest.approx(np.sum(np.abs(made.row - row) / scales_of(row)))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_models_are_changed_up_to_the_boundary(scaled: bool, classes: int) -> None:  # noqa: FBT001 (a case)
    """Nothing on a fine grid is cheaper, of one column or of two with bounds."""
    X = rows(3)
    fit = LogisticRegression()
    fit = make_pipeline(StandardScaler(), fit) if scaled else fit
    fit.fit(X * [1.0, 30.0, 0.1], labels(X, classes))
    X, plan = X * [1.0, 30.0, 0.1], plan_of(fit, X)
    within = {f"X[{j}]": (-spread, spread) for j, spread in enumerate((0.7, 20.0, 0.07))}
    grid = [[*np.linspace(low, high, 161)] for low, high in within.values()]
    scales = np.array([high - low for low, high in within.values()])
    sizes = set()
    for row in X[:40]:
        want = (int(fit.predict(row[None])[0]) + 1) % classes
        made = counterfactual(plan, row, want=want, within=within, most=2)
        found = brute(lambda block: fit.predict(block) == want, row, grid, scales)
        assert made.proved
        if not made.found:
            assert found is None
            continue
        assert fit.predict(made.row[None])[0] == want
        sizes.add(len(made.changes))
        for each in made.changes:
            low, high = within[each.column]
            assert low <= each.new <= high
        if found is not None:
            assert len(made.changes) <= found[0]
        if found is not None and len(made.changes) == found[0]:
            assert made.cost <= found[1] + 1e-6
            assert made.cost >= found[1] - 0.03
    assert {1, 2} <= sizes
