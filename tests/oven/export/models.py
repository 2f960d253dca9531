"""Models of the families that are exported, each with rows."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

import flour
import oven
from oven import Plan

COUNT = 3000
WORDS = ["good", "bad", "film", "the", "très", "ΑΒΓΣ", "don't", "naïve", "ﬁn", "𝒳y", "Straße"]


class Fitted(NamedTuple):
    """A fitted model as a plan, and rows for it."""

    plan: Plan
    rows: Any


@cache
def fitted(name: str) -> Fitted:
    """The model of this name."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(COUNT, 6))
    y = np.array(["no", "perhaps", "ça"])[np.digitize(x[:, 0] + x[:, 1] * x[:, 2], [-0.5, 0.5])]
    few = slice(0, 300)
    rows: Any = x
    if name in {"lightgbm", "xgboost"}:
        rows = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    if name == "categories":
        rows = np.where(np.arange(6) < 4, x, rng.integers(-1, 40, x.shape))
    if name == "text":
        rows = [" ".join(rng.choice(WORDS, rng.integers(0, 15))) for _ in range(COUNT)]
        rows[:3] = ["", "\0 \t\n", "x" * 5000]
    if name == "table":
        import pandas as pd

        city = rng.choice(np.array(["x", "y", "zé", None], object), COUNT)
        numbers = np.where(rng.random(COUNT) < 0.1, np.nan, x[:, 0])
        rows = pd.DataFrame({"age": numbers, "n items": rng.integers(0, 9, COUNT), "for": city})
    target = x[:, 0] if name in {"spline", "weighted", "xgboost"} else y
    more: dict[str, Any] = {}
    if name == "categories":
        few, more = slice(0, 1500), {"categorical_feature": [4, 5]}
        target = x[:, 0] + rows[:, 4] * 7 % 5 + rows[:, 5] % 3
    model = _models()[name]().fit(rows[few], target[few], **more)
    sample = rows[few] if name == "table" else None
    return Fitted(oven.bake(flour.from_sklearn(model, sample), background=False), rows)


def _models() -> dict[str, Any]:
    from lightgbm import LGBMClassifier, LGBMRegressor
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import (
        OneHotEncoder,
        PowerTransformer,
        SplineTransformer,
        StandardScaler,
    )
    from sklearn.svm import SVC
    from xgboost import XGBRegressor

    return {
        "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        "power": lambda: make_pipeline(PowerTransformer(), LogisticRegression()),
        "spline": lambda: make_pipeline(SplineTransformer(), Ridge()),
        "lightgbm": lambda: LGBMClassifier(n_estimators=20, verbose=-1),
        "categories": lambda: LGBMRegressor(n_estimators=20, verbose=-1, max_cat_to_onehot=1),
        "xgboost": lambda: XGBRegressor(n_estimators=20, max_depth=7),
        "forest": lambda: RandomForestClassifier(40, max_depth=9),
        "text": lambda: make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression()),
        "table": lambda: make_pipeline(
            ColumnTransformer(
                [
                    ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "n items"]),
                    ("c", OneHotEncoder(handle_unknown="ignore"), ["for"]),
                ]
            ),
            LogisticRegression(),
        ),
        "neighbours": KNeighborsClassifier,
        "weighted": lambda: KNeighborsRegressor(weights="distance"),
        "svm": SVC,
        "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((16, 8), max_iter=20)),
    }
