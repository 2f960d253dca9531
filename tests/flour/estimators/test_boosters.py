"""The scikit-learn wrappers of LightGBM and XGBoost: alone, in pipelines, under others."""

from __future__ import annotations

import pickle
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingRegressor, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import oven
from flour import from_sklearn
from flour.core.errors import UnsupportedSetting
from flour.sklearn.file import read_as_data
from tests.boosters import GROWN, LIBRARIES, LIGHT, maker, sample
from tests.estimators import check

rng, X, HOLES, Y = sample(23, 150)
light = maker(lgb.LGBMRegressor, n_estimators=6, **LIGHT)
grown = maker(xgb.XGBRegressor, n_estimators=6, **GROWN)
NAMES = np.array(["top", "mid", "low"])[np.digitize(Y, [-1.0, 1.0])]
LABELS: dict[str, Any] = {
    "two": np.where(Y > 0, -7, 3),
    "bools": Y > 0,
    "three": np.digitize(Y, [-1.0, 1.0]) * 10 - 10,
    "strings": NAMES,
}
#: XGBoost's float32 numbers, compared in float64 epsilons scaled to float32.
NARROW = 1e-9


@pytest.mark.parametrize("labels", LABELS)
def test_classifiers_of_lightgbm(labels: str) -> None:
    check(light(lgb.LGBMClassifier).fit(HOLES, LABELS[labels]), HOLES)
    check(light(lgb.LGBMClassifier, boosting_type="dart").fit(X, LABELS[labels]), X)


@pytest.mark.parametrize("labels", ["two", "three"])
def test_classifiers_of_xgboost(labels: str) -> None:
    codes = np.unique(LABELS[labels], return_inverse=True)[1]
    for how in ({}, {"booster": "dart", "rate_drop": 0.5}, {"base_score": 0.3}):
        check(grown(xgb.XGBClassifier, **how).fit(HOLES, codes), HOLES, tolerance=NARROW)
    check(grown(xgb.XGBRFClassifier).fit(X, codes), X, tolerance=NARROW)


@pytest.mark.parametrize("objective", ["multi:softmax", "multi:softprob"])
def test_both_multiclass_objectives(objective: str) -> None:
    codes = np.digitize(Y, [-1.0, 1.0])
    check(grown(xgb.XGBClassifier, objective=objective).fit(X, codes), X, tolerance=NARROW)


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:hinge", "binary:logitraw"])
def test_binary_objectives(objective: str) -> None:
    check(grown(xgb.XGBClassifier, objective=objective).fit(X, Y > 0), X, tolerance=NARROW)


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_several_labels_in_xgboost(strategy: str) -> None:
    flags = np.stack([Y > 0, X[:, 4] > 0.3], axis=1).astype(int)
    made = grown(xgb.XGBClassifier, multi_strategy=strategy).fit(X, flags)
    check(made, X, tolerance=NARROW)


@pytest.mark.parametrize(
    "how",
    [
        {"objective": "reg:squarederror"},
        {"objective": "count:poisson"},
        {"objective": "reg:absoluteerror"},
        {"multi_strategy": "multi_output_tree"},
        {"multi_strategy": "one_output_per_tree"},
    ],
    ids=str,
)
def test_regressors_of_xgboost(how: dict[str, Any]) -> None:
    label = np.stack([Y, X[:, 4]], axis=1) if "multi_strategy" in how else np.abs(Y)
    check(grown(**how).fit(X, label), X, tolerance=NARROW)
    if "count:poisson" not in how.values():
        check(grown(xgb.XGBRFRegressor, **how).fit(X, label), X, tolerance=NARROW)


@pytest.mark.parametrize("how", [{}, {"linear_tree": True}, {"objective": "poisson"}], ids=str)
def test_regressors_of_lightgbm(how: dict[str, Any]) -> None:
    check(light(**how).fit(HOLES, np.abs(Y)), HOLES)


@pytest.mark.parametrize("kind", ["light", "boosted"])
def test_rankers(kind: str) -> None:
    relevance = np.digitize(Y, [-1.0, 1.0])
    if kind == "light":
        made = light(lgb.LGBMRanker).fit(X, relevance, group=[100, 50])
    else:
        made = grown(xgb.XGBRanker).fit(X, relevance, qid=np.repeat([0, 1], [100, 50]))
    for read in (made, read_as_data(pickle.dumps(made))):
        plan = oven.bake(from_sklearn(read))
        for rows in (X, X[:1], HOLES):
            np.testing.assert_allclose(plan.run(rows)["value"], made.predict(rows), rtol=1e-6)


@pytest.mark.parametrize("kind", [xgb.XGBRFRegressor, xgb.XGBRFClassifier])
def test_forests_of_xgboost_in_pickles(kind: Any) -> None:
    made = grown(kind).fit(X, Y if kind is xgb.XGBRFRegressor else Y > 0)
    read = from_sklearn(read_as_data(pickle.dumps(made)))
    assert read.digest == from_sklearn(made).digest


def test_training_that_stopped_early_answers_with_its_best_round() -> None:
    noise = np.random.default_rng(0).normal(size=len(Y))
    boosted = grown(n_estimators=60, learning_rate=1.0, early_stopping_rounds=3)
    boosted.fit(X, noise, eval_set=[(X[::-1], Y)], verbose=False)
    assert boosted.best_iteration < boosted.get_booster().num_boosted_rounds() - 1
    check(boosted, X, tolerance=NARROW)
    stopped = light(n_estimators=60, learning_rate=1.0)
    stopped.fit(
        X, noise, eval_X=X[::-1], eval_y=Y, callbacks=[lgb.early_stopping(3, verbose=False)]
    )
    assert stopped.best_iteration_ < 60
    check(stopped, X)


@pytest.mark.parametrize("library", [light, grown], ids=LIBRARIES)
def test_frames_by_name(library: Any) -> None:
    frame = pd.DataFrame(HOLES, columns=list("abcde"))
    check(library().fit(frame, Y), frame, tolerance=NARROW if library is grown else 1e-12)
    program = from_sklearn(library().fit(frame, Y))
    got, want = (program.reference(part)["value"] for part in (frame[list("edcba")], frame))
    np.testing.assert_array_equal(got, want)


def categories() -> pd.DataFrame:
    """A frame of numbers, strings, whole numbers and truths, most of them categories."""
    made = pd.DataFrame(
        {
            "size": HOLES[:, 0],
            "city": pd.Categorical(rng.choice(["Oslo", "Graz", "Cork", "Bern"], len(X))),
            "kind": pd.Categorical(rng.choice([10, 20, -3], len(X))),
            "flag": pd.Categorical(rng.choice([True, False], len(X))),
            "age": X[:, 1],
        }
    )
    made.loc[3:9, "city"] = None
    made.loc[12:15, "kind"] = None
    return made


def test_categories_of_frames_in_lightgbm() -> None:
    frame = categories()
    target = Y + 3 * (frame["city"] == "Oslo").to_numpy()
    how: dict[str, Any] = {"min_data_per_group": 2, "cat_smooth": 1.0}
    check(light(lgb.LGBMClassifier, **how).fit(frame, target > 0), frame)
    made = light(**how).fit(frame, target)
    check(made, frame)
    strange = frame.copy()
    strange["city"] = strange["city"].cat.set_categories(["Atlantis", "Graz", "Oslo", "Cork"])
    strange.loc[20:30, "city"] = "Atlantis"
    check(made, strange)


def test_categories_of_frames_in_xgboost() -> None:
    frame = categories().drop(columns="flag")
    target = Y + 3 * (frame["city"] == "Oslo").to_numpy()
    how: dict[str, Any] = {"enable_categorical": True}
    check(grown(**how).fit(frame, target), frame, tolerance=NARROW)
    check(grown(xgb.XGBClassifier, **how).fit(frame, target > 0), frame, tolerance=NARROW)
    check(grown(xgb.XGBRFClassifier, **how).fit(frame, target > 0), frame, tolerance=NARROW)


def test_categories_that_cannot_be_told_apart_are_refused() -> None:
    frame = categories()
    frame["city"] = frame["city"].cat.as_ordered()
    made = light().fit(frame, Y)
    with pytest.raises(UnsupportedSetting, match="which of the frame's columns"):
        from_sklearn(made)


@pytest.mark.parametrize("library", [light, grown], ids=LIBRARIES)
def test_behind_other_steps(library: Any) -> None:
    frame = pd.DataFrame({"a": HOLES[:, 0], "b": X[:, 1], "city": rng.choice(["x", "y"], len(X))})
    tolerance = NARROW if library is grown else 1e-12
    steps = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
            ("words", OrdinalEncoder(), ["city"]),
        ]
    )
    check(make_pipeline(steps, library()).fit(frame, Y), frame, tolerance=tolerance)
    sparsely = ColumnTransformer(
        [("numbers", "passthrough", ["b"]), ("words", OneHotEncoder(), ["city"])],
        sparse_threshold=1.0,
    )
    check(make_pipeline(sparsely, library()).fit(frame, Y), frame, tolerance=tolerance)


@pytest.mark.parametrize("library", [light, grown], ids=LIBRARIES)
def test_sparse_matrices(library: Any) -> None:
    stored = sparse.csr_matrix(np.where(rng.random(X.shape) < 0.5, X, 0))
    tolerance = NARROW if library is grown else 1e-12
    check(library().fit(stored, Y), stored, tolerance=tolerance)


# --- estimators over boosters; test_over_boosters.py has more -------------------------------------


def test_several_outputs_over_boosters() -> None:
    both = np.stack([Y, X[:, 4]], axis=1)
    check(MultiOutputRegressor(light()).fit(X, both), X)
    check(RegressorChain(light()).fit(X, both), X)
    check(MultiOutputRegressor(grown()).fit(X, both), X, tolerance=NARROW)


def test_xgboost_under_other_estimators() -> None:
    codes = (Y > 0).astype(int)
    voting = VotingClassifier([("a", grown(xgb.XGBClassifier))], voting="soft")
    check(voting.fit(X, codes), X, tolerance=1e-6)
    check(BaggingRegressor(grown(), 3, random_state=0).fit(X, Y), X, tolerance=1e-6)


@pytest.mark.parametrize("missing", [-999.0, 0.1, 0.0, np.inf])
def test_a_number_that_means_missing(missing: float) -> None:
    """The wrapper's own number is missing as float32, and NaN is missing all the same."""
    seen = np.where(np.isnan(HOLES), np.float32(missing) if missing < 1 else 5.0, HOLES)
    model = grown(missing=missing).fit(seen, Y)
    rows = np.where(rng.random(X.shape) < 0.2, rng.choice([missing, np.nan, -0.0], X.shape), seen)
    if np.isinf(missing):
        rows = np.where(np.isinf(rows), np.nan, rows)
    near = np.nextafter(rows, 0.0)  # not the number, but float32 does not tell
    for given in (rows, near, rows.astype(np.float32)):
        answers = oven.bake(from_sklearn(model)).run(given)["value"]
        np.testing.assert_array_equal(answers, model.predict(given))
    stored = sparse.csr_matrix(np.nan_to_num(seen, posinf=1.0))
    plan = oven.bake(from_sklearn(model, sample=stored[:2]))
    np.testing.assert_array_equal(plan.run(stored)["value"], model.predict(stored))


def test_a_number_that_means_missing_beside_categories_is_refused() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(NAMES)})
    model = grown(enable_categorical=True, missing=-1.0).fit(frame, Y)
    with pytest.raises(UnsupportedSetting, match="beside categories"):
        from_sklearn(model, sample=frame[:2])
