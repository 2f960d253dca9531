"""Voting, stacking, bagging and boosting over children that are native themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from flour.core.errors import UnsupportedSetting
from tests.estimators import check

rng = np.random.default_rng(11)
X = rng.normal(size=(90, 4))
SCORE = X @ [1.0, -1.0, 0.5, 2.0] + 0.5 * rng.normal(size=90)
LABELS: dict[str, Any] = {
    "two": (SCORE > 0).astype(int),
    "three": np.digitize(SCORE, [-1, 1]) * 5 - 5,
    "strings": np.array(["low", "mid", "top"])[np.digitize(SCORE, [-1, 1])],
    "bools": SCORE > 0,
}
STORED = sparse.csr_matrix(np.where(rng.random((90, 4)) < 0.5, X, 0))


def children() -> list[tuple[str, Any]]:
    """Three classifiers that differ."""
    return [
        ("plain", LogisticRegression()),
        ("tight", LogisticRegression(C=0.01)),
        ("scaled", make_pipeline(StandardScaler(), LogisticRegression(C=0.1))),
    ]


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("weights", [None, [1, 2, 0.5]], ids=["even", "weighted"])
@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_voting(labels: str, weights: Any, voting: str) -> None:
    made = VotingClassifier(children(), voting=voting, weights=weights).fit(X, LABELS[labels])
    check(made, X)


def test_voting_leaves_out_what_was_dropped() -> None:
    made = VotingClassifier(children(), weights=[1, 2, 3]).set_params(tight="drop")
    check(made.fit(X, LABELS["three"]), X)
    made = VotingClassifier(children(), voting="soft", weights=[1, 2, 3], flatten_transform=False)
    check(made.set_params(plain="drop").fit(X, LABELS["three"]), X, skip=("features",))


def test_hard_votes_that_tie_go_to_the_first_class() -> None:
    two = [("a", LogisticRegression()), ("b", LogisticRegression(C=1e-6))]
    check(VotingClassifier(two).fit(X, LABELS["three"]), X)
    rare = VotingClassifier(two, weights=[0.5, 0.5]).fit(X[:, :2], LABELS["two"])
    check(rare, rng.normal(size=(300, 2)))


@pytest.mark.parametrize("weights", [None, [0.25, 3]], ids=["even", "weighted"])
def test_voting_regressors(weights: Any) -> None:
    pair = [("ridge", Ridge()), ("plain", LinearRegression())]
    check(VotingRegressor(pair, weights=weights).fit(X, SCORE), X)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("passthrough", [False, True])
def test_stacking(labels: str, passthrough: bool) -> None:  # noqa: FBT001 (a parameter)
    made = StackingClassifier(children(), LogisticRegression(), cv=2, passthrough=passthrough)
    check(made.fit(X, LABELS[labels]), X)


@pytest.mark.parametrize("method", ["predict_proba", "decision_function", "predict"])
@pytest.mark.parametrize("labels", ["two", "three"])
def test_stacking_methods(method: str, labels: str) -> None:
    made = StackingClassifier(children(), LogisticRegression(), cv=2, stack_method=method)
    check(made.fit(X, LABELS[labels]), X)


def test_stacking_keeps_sparse_data_sparse() -> None:
    pair = [("a", LogisticRegression()), ("b", LogisticRegression(C=0.1))]
    made = StackingClassifier(pair, LogisticRegression(), cv=2, passthrough=True)
    check(made.fit(STORED, LABELS["two"]), STORED, sample=STORED)


def test_stacking_on_a_frame_and_a_dropped_child() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    made = StackingClassifier(children(), LogisticRegression(), cv=2, passthrough=True)
    made.set_params(tight="drop").fit(frame, LABELS["three"])
    program = check(made, frame)
    # The library's voters refuse columns in another order; here they are found by name.
    shuffled = oven.bake(program).run(frame[["d", "a", "c", "b"]])
    for name, value in oven.bake(program).run(frame).items():
        np.testing.assert_array_equal(shuffled[name], value)


def test_stacking_children_that_were_fitted_before() -> None:
    fitted = [(name, child.fit(X, LABELS["three"])) for name, child in children()]
    made = StackingClassifier(fitted, LogisticRegression(), cv="prefit")
    check(made.fit(X, LABELS["three"]), X)
    texts = [(name, child.fit(X, LABELS["strings"])) for name, child in children()]
    made = StackingClassifier(texts, LogisticRegression(), cv="prefit")
    check(made.fit(X, LABELS["strings"]), X)


@pytest.mark.parametrize("passthrough", [False, True])
def test_stacking_regressors(passthrough: bool) -> None:  # noqa: FBT001 (a parameter)
    pair = [("ridge", Ridge()), ("plain", LinearRegression())]
    made = StackingRegressor(pair, Ridge(), cv=2, passthrough=passthrough)
    check(made.fit(X, SCORE), X)


def test_stacking_several_targets_is_refused() -> None:
    several = np.stack([LABELS["two"], SCORE > 1], axis=1).astype(int)
    from sklearn.multioutput import MultiOutputClassifier

    child = [("a", MultiOutputClassifier(LogisticRegression()))]
    made = StackingClassifier(child, MultiOutputClassifier(LogisticRegression()), cv=2)
    with pytest.raises(UnsupportedSetting):
        flour.from_sklearn(made.fit(X, several), sample=X)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("features", [1.0, 0.5])
def test_bagging(labels: str, features: float) -> None:
    made = BaggingClassifier(
        LogisticRegression(), n_estimators=3, max_features=features, random_state=1
    )
    check(made.fit(X, LABELS[labels]), X)


def test_bagging_children_that_only_vote_or_never_saw_a_class() -> None:
    votes = BaggingClassifier(RidgeClassifier(), n_estimators=4, random_state=0)
    check(votes.fit(X, LABELS["strings"]), X)
    rare = np.where(np.arange(90) < 1, 77, LABELS["three"])
    few = BaggingClassifier(KNeighborsClassifier(2), n_estimators=3, random_state=1).fit(X, rare)
    assert {len(child.classes_) for child in few.estimators_} == {3, 4}
    check(few, X)
    repeated = BaggingClassifier(
        LogisticRegression(), 3, max_features=0.75, bootstrap_features=True, random_state=0
    )
    check(repeated.fit(X, LABELS["two"]), X)
    check(repeated.fit(STORED, LABELS["two"]), STORED, sample=STORED)


@pytest.mark.parametrize("columns", [1, 2])
def test_bagging_regressors(columns: int) -> None:
    target = SCORE if columns == 1 else np.stack([SCORE, X[:, 0] ** 2], axis=1)
    made = BaggingRegressor(Ridge(), n_estimators=4, max_features=0.5, random_state=0)
    check(made.fit(X, target), X)


@pytest.mark.parametrize("labels", LABELS)
def test_boosted_classifiers(labels: str) -> None:
    made = AdaBoostClassifier(LogisticRegression(C=0.01), n_estimators=4, random_state=0)
    check(made.fit(X, LABELS[labels]), X)


@pytest.mark.parametrize("loss", ["linear", "square", "exponential"])
def test_boosted_regressors(loss: str) -> None:
    made = AdaBoostRegressor(Ridge(), n_estimators=5, loss=loss, random_state=0)
    check(made.fit(X, SCORE), X)
