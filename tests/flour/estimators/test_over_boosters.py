"""Models over models of trees, several floors high, answer as their libraries do."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomTreesEmbedding,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import SelectFromModel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OrdinalEncoder, StandardScaler

import oven
from flour import from_sklearn
from tests.boosters import GROWN, LIBRARIES, LIGHT, maker, sample
from tests.estimators import check

rng, X, HOLES, Y = sample(5, 160)
light = maker(lgb.LGBMClassifier, n_estimators=5, **LIGHT)
grown = maker(xgb.XGBClassifier, n_estimators=5, **GROWN)
THREE = np.digitize(Y, [-1.0, 1.0])
FLAGS = np.stack([Y > 0, X[:, 4] > 0.3], axis=1).astype(int)
#: XGBoost's float32 numbers go through float64 arithmetic above them.
NARROW = 1e-6
EXACT = 1e-12


def forest(**how: Any) -> Any:
    """A small forest."""
    return RandomForestClassifier(**{"n_estimators": 3, "random_state": 0, **how})


RF: dict[str, Any] = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
CLASSIFIERS: dict[str, tuple[Any, float]] = {
    "calibrated xgboost": (CalibratedClassifierCV(grown(), cv=2), NARROW),
    "calibrated stacking": (
        CalibratedClassifierCV(
            StackingClassifier([("a", light()), ("b", forest())], LogisticRegression(), cv=2),
            cv=2,
            method="isotonic",
        ),
        EXACT,
    ),
    "stacking by a booster": (
        StackingClassifier(
            [("a", forest()), ("b", LogisticRegression())], light(), cv=2, passthrough=True
        ),
        EXACT,
    ),
    "stacking of both libraries": (
        StackingClassifier([("a", light()), ("b", grown())], LogisticRegression(), cv=2),
        NARROW,
    ),
    "votes": (VotingClassifier([("a", light()), ("b", forest()), ("c", grown())]), NARROW),
    "weighted votes": (
        VotingClassifier([("a", light()), ("b", forest())], voting="soft", weights=[1, 3]),
        EXACT,
    ),
    "one against the rest": (OneVsRestClassifier(light()), EXACT),
    "one against one": (OneVsOneClassifier(forest()), EXACT),
    "bags of xgboost": (BaggingClassifier(grown(), 2, random_state=0), NARROW),
    "boosted boosters": (AdaBoostClassifier(light(), n_estimators=2, random_state=0), EXACT),
    "forest of boosting": (light(**RF), EXACT),
    "dart": (light(boosting_type="dart"), EXACT),
    "linear leaves": (light(linear_tree=True), EXACT),
    "leaves as features": (
        make_pipeline(RandomTreesEmbedding(4, max_depth=3, random_state=0), LogisticRegression()),
        EXACT,
    ),
    "bins": (make_pipeline(KBinsDiscretizer(4, encode="ordinal"), light()), EXACT),
    "chosen by trees": (make_pipeline(SelectFromModel(forest()), light()), EXACT),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name: str) -> None:
    made, tolerance = CLASSIFIERS[name]
    check(made.fit(X, THREE), X, tolerance=tolerance)


@pytest.mark.parametrize("library", [light, grown], ids=LIBRARIES)
def test_several_labels(library: Any) -> None:
    tolerance = EXACT if library is light else NARROW
    check(MultiOutputClassifier(library()).fit(X, FLAGS), X, tolerance=tolerance)
    check(ClassifierChain(library()).fit(X, FLAGS), X, tolerance=tolerance)
    check(ClassifierChain(library(), order=[1, 0]).fit(X, FLAGS), X, tolerance=tolerance)


def test_regressors() -> None:
    first, second = light(lgb.LGBMRegressor), grown(xgb.XGBRegressor)
    stacked = StackingRegressor([("a", first), ("b", second)], Ridge(), cv=2, passthrough=True)
    check(stacked.fit(X, Y), X, tolerance=NARROW)
    check(VotingRegressor([("a", first), ("b", stacked)]).fit(X, Y), X, tolerance=NARROW)
    both = np.stack([Y, X[:, 4]], axis=1)
    check(RegressorChain(second, order=[1, 0]).fit(X, both), X, tolerance=NARROW)
    scaled = TransformedTargetRegressor(first, transformer=StandardScaler())
    check(scaled.fit(X, Y), X)


OF_LIGHTGBM = (
    "quantile huber fair mape gamma tweedie cross_entropy cross_entropy_lambda regression_l1"
)
OF_XGBOOST = (
    "reg:gamma reg:tweedie reg:logistic reg:pseudohubererror reg:squaredlogerror count:poisson"
)


@pytest.mark.parametrize("objective", OF_LIGHTGBM.split())
def test_objectives_of_lightgbm(objective: str) -> None:
    label = 1 / (1 + np.exp(-Y)) if "cross" in objective else np.abs(Y) + 0.1
    check(light(lgb.LGBMRegressor, objective=objective).fit(HOLES, label), HOLES)


@pytest.mark.parametrize("objective", OF_XGBOOST.split())
def test_objectives_of_xgboost(objective: str) -> None:
    label = 1 / (1 + np.exp(-Y)) if "logistic" in objective else np.abs(Y) + 0.1
    made = grown(xgb.XGBRegressor, objective=objective).fit(HOLES, label)
    check(made, HOLES, tolerance=NARROW)


@pytest.mark.parametrize("objective", ["rank:pairwise", "rank:ndcg", "rank:map"])
def test_rankings_of_xgboost(objective: str) -> None:
    relevant = (THREE > 0).astype(int)
    made = grown(xgb.XGBRanker, objective=objective).fit(X, relevant, qid=np.repeat([0, 1], 80))
    got = oven.bake(from_sklearn(made)).run(X)["value"]
    np.testing.assert_allclose(got, made.predict(X), rtol=1e-6)


@pytest.mark.parametrize("objective", ["lambdarank", "rank_xendcg"])
def test_rankings_of_lightgbm(objective: str) -> None:
    made = light(lgb.LGBMRanker, objective=objective).fit(X, THREE, group=[100, 60])
    got = oven.bake(from_sklearn(made)).run(X)["value"]
    np.testing.assert_allclose(got, made.predict(X), rtol=1e-12)


def mixed() -> pd.DataFrame:
    """A frame with holes, words and categories."""
    frame = pd.DataFrame({"a": HOLES[:, 0], "b": X[:, 1], "c": HOLES[:, 2]})
    frame["city"] = rng.choice(["Oslo", "Graz", "Cork"], len(X))
    frame["kind"] = pd.Categorical(rng.choice(["x", "y", "z"], len(X)))
    return frame


def columns() -> ColumnTransformer:
    """What such a frame is made of before trees see it."""
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
            ("bins", KBinsDiscretizer(4, encode="ordinal"), ["b"]),
            ("holes", "passthrough", ["c"]),
            ("words", OrdinalEncoder(), ["city"]),
        ]
    )


@pytest.mark.parametrize("kind", ["light", "grown", "hist"])
def test_frames_through_columns_into_towers(kind: str) -> None:
    frame = mixed().drop(columns="kind")
    leaf = {
        "light": light(),
        "grown": grown(),
        "hist": HistGradientBoostingClassifier(max_iter=4, categorical_features=[4]),
    }[kind]
    tolerance = NARROW if kind == "grown" else EXACT
    for top in (
        leaf,
        CalibratedClassifierCV(leaf, cv=2),
        VotingClassifier([("a", leaf), ("b", leaf)], voting="soft"),
    ):
        check(make_pipeline(columns(), top).fit(frame, THREE), frame, tolerance=tolerance)


def test_training_that_went_on_keeps_all_its_trees() -> None:
    first = light().fit(X, THREE)
    check(light().fit(X[::-1], THREE[::-1], init_model=first), X)
    known = grown().fit(X, THREE)
    more = grown().fit(X[::-1], THREE[::-1], xgb_model=known.get_booster())
    assert more.get_booster().num_boosted_rounds() == 10
    check(more, X, tolerance=NARROW)
