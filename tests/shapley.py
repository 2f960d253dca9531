"""Shapley values by their definition, and fitted models whose attribution is held against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor, XGBRFRegressor

from flour.ops.trees.trees import Trees
from tests.boosters import sample

#: The score where these columns are known, and all others are not.
Score = Callable[[frozenset[int]], NDArray[np.float64]]


def shapley(score: Score, columns: int) -> NDArray[np.float64]:
    """Return the values of all columns: what each adds, on average over all orders."""
    every = range(columns)
    known = {
        frozenset(chosen): score(frozenset(chosen))
        for size in range(columns + 1)
        for chosen in combinations(every, size)
    }
    values = np.zeros((columns, *known[frozenset()].shape))
    for chosen, before in known.items():
        if len(chosen) == columns:
            continue
        ways = math.factorial(len(chosen)) * math.factorial(columns - len(chosen) - 1)
        for column in set(every) - chosen:
            values[column] += ways * (known[chosen | {column}] - before)
    return values / math.factorial(columns)


def by_covers(op: Trees, row: NDArray[Any], made: NDArray[np.int64]) -> Score:
    """Return the mean of the trees by covers, where columns are unknown; `made` says of what."""
    value, cover = np.asarray(op.value.array, float), np.asarray(op.cover.array, float)
    left, right, feature = (np.asarray(p.array) for p in (op.left, op.right, op.feature))
    seen = op.rows(row[None]).astype(np.float32 if op.narrow else np.float64).astype(np.float64)
    inner = np.flatnonzero(feature >= 0)  # whose sides do not depend on what is known
    passed = np.zeros(len(feature), bool)
    passed[inner] = op.passes(seen[0, feature[inner]], inner)

    def mean(node: int, known: frozenset[int]) -> NDArray[np.float64]:
        if feature[node] < 0:
            return np.asarray(value[left[node]])
        if int(made[feature[node]]) in known:
            return mean(int(left[node] if passed[node] else right[node]), known)
        sides = ((int(side), cover[side] / cover[node]) for side in (left[node], right[node]))
        return np.asarray(sum(share * mean(side, known) for side, share in sides))

    def score(known: frozenset[int]) -> NDArray[np.float64]:
        total = np.asarray(op.base.array, float).copy()
        for root, target in zip(op.roots.array, op.target.array, strict=True):
            total[target : target + value.shape[1]] += mean(int(root), known)
        return total / op.divisor if op.divisor else total

    return score


class Model(NamedTuple):
    """A fitted model, and rows of its five columns."""

    fit: Any
    rows: NDArray[np.float64]


def _targets(y: NDArray[np.float64], kind: str) -> NDArray[Any]:
    cuts = {"two": [0.0], "three": [-1.0, 1.0]}.get(kind)
    return y if cuts is None else np.digitize(y, cuts)


#: What is made: the class, its settings, the target, and whether rows have missing values.
_RANDOM = {"random_state": 0}
_SMALL = {"n_estimators": 6, **_RANDOM}
_LIGHT = {"n_estimators": 8, "num_leaves": 12, "verbose": -1, "n_jobs": 1, "min_child_samples": 5}
_XG = {"n_estimators": 6, "max_depth": 4, "n_jobs": 1}
MAKERS: dict[str, tuple[type[Any], dict[str, Any], str, bool]] = {
    "tree": (DecisionTreeRegressor, {"max_depth": 5, **_RANDOM}, "", False),
    "tree-whole": (DecisionTreeRegressor, _RANDOM, "", True),
    "tree-two": (DecisionTreeClassifier, {"max_depth": 4, **_RANDOM}, "two", True),
    "tree-three": (DecisionTreeClassifier, {"max_depth": 6, **_RANDOM}, "three", False),
    "tree-stump": (DecisionTreeRegressor, {"max_depth": 1, **_RANDOM}, "", False),
    "tree-leaf": (DecisionTreeRegressor, {"min_samples_split": 1.0, **_RANDOM}, "", False),
    "forest": (RandomForestRegressor, _SMALL, "", False),
    "forest-holes": (RandomForestRegressor, _SMALL, "", True),
    "forest-two": (RandomForestClassifier, _SMALL, "two", True),
    "forest-three": (RandomForestClassifier, {"max_depth": 5, **_SMALL}, "three", False),
    "forest-balanced": (
        RandomForestClassifier,
        {"class_weight": "balanced", **_SMALL},
        "two",
        False,
    ),
    "extra": (ExtraTreesRegressor, {"max_depth": 6, **_SMALL}, "", False),
    "extra-three": (ExtraTreesClassifier, {"max_depth": 4, **_SMALL}, "three", True),
    "boosted": (GradientBoostingRegressor, _SMALL, "", False),
    "boosted-deep": (GradientBoostingRegressor, {"max_depth": 7, **_SMALL}, "", False),
    "boosted-part": (GradientBoostingRegressor, {"subsample": 0.5, **_SMALL}, "", False),
    "boosted-two": (GradientBoostingClassifier, _SMALL, "two", False),
    "boosted-three": (GradientBoostingClassifier, _SMALL, "three", False),
    "boosted-exponential": (
        GradientBoostingClassifier,
        {"loss": "exponential", **_SMALL},
        "two",
        False,
    ),
    "hist": (HistGradientBoostingRegressor, {"max_iter": 6}, "", False),
    "hist-holes": (HistGradientBoostingRegressor, {"max_iter": 6}, "", True),
    "hist-categories": (
        HistGradientBoostingRegressor,
        {"max_iter": 6, "categorical_features": [4]},
        "",
        True,
    ),
    "hist-two": (HistGradientBoostingClassifier, {"max_iter": 6}, "two", True),
    "hist-three": (HistGradientBoostingClassifier, {"max_iter": 4}, "three", False),
    "hist-poisson": (
        HistGradientBoostingRegressor,
        {"max_iter": 5, "loss": "poisson"},
        "three",
        False,
    ),
    "light": (LGBMRegressor, _LIGHT, "", False),
    "light-holes": (LGBMRegressor, _LIGHT, "", True),
    "light-zeros": (LGBMRegressor, {"zero_as_missing": True, **_LIGHT}, "", True),
    "light-unmissed": (LGBMRegressor, {"use_missing": False, **_LIGHT}, "", True),
    "light-deep": (LGBMRegressor, {**_LIGHT, "num_leaves": 60}, "", True),
    "light-two": (LGBMClassifier, _LIGHT, "two", True),
    "light-three": (LGBMClassifier, _LIGHT, "three", False),
    "light-holes-three": (LGBMClassifier, _LIGHT, "three", True),
    "light-forest": (
        LGBMRegressor,
        {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1, **_LIGHT},
        "",
        False,
    ),
    "light-dart": (LGBMRegressor, {"boosting_type": "dart", **_LIGHT}, "", False),
    "light-poisson": (LGBMRegressor, {"objective": "poisson", **_LIGHT}, "three", True),
    "light-stump": (LGBMRegressor, {**_LIGHT, "num_leaves": 2}, "", False),
    "light-categories": (LGBMRegressor, {"categorical_feature": [4], **_LIGHT}, "", False),
    "light-categories-holes": (
        LGBMClassifier,
        {"categorical_feature": [4], **_LIGHT},
        "three",
        True,
    ),
    "xg": (XGBRegressor, _XG, "", False),
    "xg-holes": (XGBRegressor, _XG, "", True),
    "xg-two": (XGBClassifier, _XG, "two", True),
    "xg-three": (XGBClassifier, _XG, "three", False),
    "xg-holes-three": (XGBClassifier, _XG, "three", True),
    "xg-dart": (XGBRegressor, {"booster": "dart", "rate_drop": 0.3, **_XG}, "", False),
    "xg-forest": (XGBRFRegressor, _XG, "", True),
    "xg-deep": (XGBRegressor, {**_XG, "max_depth": 8}, "", False),
    "xg-lossguide": (XGBRegressor, {"grow_policy": "lossguide", "max_leaves": 9, **_XG}, "", True),
    "xg-poisson": (XGBRegressor, {"objective": "count:poisson", **_XG}, "three", False),
    "xg-stump": (XGBRegressor, {**_XG, "max_depth": 1}, "", True),
}


def models() -> Iterator[str]:
    """Give the names of all models."""
    yield from MAKERS


def fitted(name: str) -> Model:
    """Return the model of this name, fitted, and rows."""
    kind, settings, target, holes = MAKERS[name]
    made = sample(len(name), 240)
    X = np.array(made.holes if holes else made.X)
    X[:, 4] = np.floor(np.abs(np.nan_to_num(made.X[:, 4], nan=0.0)) * 4)
    X[::9, 0] = 0.0
    settings = dict(settings)
    told = (
        {"categorical_feature": settings.pop("categorical_feature")}
        if "categorical_feature" in settings
        else {}
    )
    y = made.y + np.where(X[:, 4] % 3 == 1, 2.0, 0.0)
    return Model(kind(**settings).fit(X, _targets(y, target), **told), X[:24])
