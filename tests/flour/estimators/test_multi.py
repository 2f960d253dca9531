"""Several targets, chains, and many classes out of two-class estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier

from tests.estimators import check

rng = np.random.default_rng(5)
X = rng.normal(size=(80, 4))
SCORE = X @ [1.0, -1.0, 0.5, 2.0] + 0.5 * rng.normal(size=80)
TWO = (SCORE > 0).astype(int)
FOUR = np.digitize(SCORE, [-2, 0, 2])
WORDS = np.array(["d", "a", "c", "b"])[FOUR]
TARGETS = np.stack([SCORE, X[:, 0] - X[:, 1] ** 2, -SCORE], axis=1)
FLAGS = (TARGETS > 0.3).astype(int)
STORED = sparse.csr_matrix(np.where(rng.random((80, 4)) < 0.5, X, 0))


def scaled(model: Any) -> Any:
    """The model behind a scaler."""
    return make_pipeline(StandardScaler(), model)


def test_several_regression_targets() -> None:
    check(MultiOutputRegressor(Ridge()).fit(X, TARGETS), X)
    check(MultiOutputRegressor(scaled(LinearRegression())).fit(X, TARGETS), X)


@pytest.mark.parametrize(
    "targets",
    [FLAGS, np.stack([FOUR, TWO - 1], axis=1), np.stack([WORDS, WORDS[::-1]], axis=1)],
    ids=["flags", "classes", "strings"],
)
def test_several_class_targets(targets: Any) -> None:
    check(
        MultiOutputClassifier(LogisticRegression()).fit(X, targets),
        X,
        black=("Concat", "AsVector") if targets.dtype.kind == "U" else (),
    )


def test_several_class_targets_without_probabilities() -> None:
    check(MultiOutputClassifier(RidgeClassifier()).fit(X, FLAGS), X)


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_regressor_chains(order: Any) -> None:
    check(RegressorChain(Ridge(), order=order).fit(X, TARGETS), X)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
@pytest.mark.parametrize("order", [None, [1, 2, 0]])
def test_classifier_chains(method: str, order: Any) -> None:
    made = ClassifierChain(LogisticRegression(), order=order, chain_method=method)
    check(made.fit(X, FLAGS), X)


def test_chains_on_sparse_data() -> None:
    check(ClassifierChain(LogisticRegression()).fit(STORED, FLAGS), STORED, sample=STORED)


@pytest.mark.parametrize("labels", [TWO, FOUR - 2, WORDS, SCORE > 0], ids=["2", "4", "str", "bool"])
@pytest.mark.parametrize("model", [LogisticRegression(), RidgeClassifier()], ids=["log", "ridge"])
@pytest.mark.parametrize("several", [OneVsRestClassifier, OneVsOneClassifier])
def test_one_against_the_rest_or_another(several: Any, labels: Any, model: Any) -> None:
    check(several(model).fit(X, labels), X)


def test_one_against_the_rest_with_several_labels_a_row_or_regressors() -> None:
    check(OneVsRestClassifier(LogisticRegression()).fit(X, FLAGS), X)
    check(OneVsRestClassifier(scaled(LogisticRegression())).fit(STORED.toarray(), FLAGS), X)
    check(OneVsRestClassifier(Ridge()).fit(X, FOUR), X)
    check(OneVsRestClassifier(Ridge()).fit(X, TWO), X)


def test_one_against_the_rest_with_a_label_that_never_changes() -> None:
    flags = FLAGS.copy()
    flags[:, 1] = 1
    with pytest.warns(UserWarning, match="present in all"):
        made = OneVsRestClassifier(LogisticRegression()).fit(X, flags)
    check(made, X)


@pytest.mark.parametrize("size", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("labels", [FOUR, WORDS], ids=["ints", "strings"])
def test_output_codes(size: float, labels: Any) -> None:
    made = OutputCodeClassifier(LogisticRegression(), code_size=size, random_state=0)
    check(made.fit(X, labels), X)


@pytest.mark.parametrize("seed", range(4))
def test_of_codes_at_one_distance_the_originals_is_taken(seed: int) -> None:
    """Trees answer few different probabilities, so that rounding decides."""
    whole, labels = X.round(0), np.arange(len(X)) % 3
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    made = OutputCodeClassifier(tree, code_size=1.0, random_state=seed).fit(whole, labels)
    for rows in (whole, whole.astype(np.float32)):
        check(made, rows)


def test_self_training() -> None:
    some = np.where(rng.random(80) < 0.4, -1, FOUR)
    check(SelfTrainingClassifier(LogisticRegression()).fit(X, some), X)
    check(SelfTrainingClassifier(scaled(LogisticRegression())).fit(X, some), X)
