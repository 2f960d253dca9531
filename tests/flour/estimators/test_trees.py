"""Trees and ensembles of them, against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.linear_model import LinearRegression
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from tests.estimators import check

rng = np.random.default_rng(11)
X = rng.normal(size=(160, 6))
HOLES = np.where(rng.random(X.shape) < 0.2, np.nan, X)
Y = X @ rng.normal(size=6) + np.sin(3 * X[:, 0])
TWO = np.array(["no", "yes"])[(Y > 0).astype(int)]
THREE = np.digitize(Y, [-1.0, 1.0]) * 10 - 10

CLASSIFIERS = [
    DecisionTreeClassifier(max_depth=4),
    DecisionTreeClassifier(max_depth=1),
    ExtraTreeClassifier(random_state=0),
    RandomForestClassifier(7, random_state=0),
    ExtraTreesClassifier(5, random_state=0, max_depth=5),
    GradientBoostingClassifier(n_estimators=6, random_state=0),
    HistGradientBoostingClassifier(max_iter=6, min_samples_leaf=3),
]
REGRESSORS = [
    DecisionTreeRegressor(max_depth=4),
    ExtraTreeRegressor(random_state=0),
    RandomForestRegressor(7, random_state=0),
    ExtraTreesRegressor(5, random_state=0),
    GradientBoostingRegressor(n_estimators=6, random_state=0),
    GradientBoostingRegressor(n_estimators=3, init="zero", random_state=0),
    GradientBoostingRegressor(n_estimators=3, loss="huber", random_state=0),
    HistGradientBoostingRegressor(max_iter=6, min_samples_leaf=3),
]
NAN = ("DecisionTree", "RandomForest", "ExtraTree", "HistGradient")


def named(estimators: list[Any]) -> list[Any]:
    """Test ids from class names."""
    return [pytest.param(e, id=f"{type(e).__name__}{i}") for i, e in enumerate(estimators)]


@pytest.mark.parametrize("estimator", named([*CLASSIFIERS, *REGRESSORS]))
def test_every_estimator(estimator: Any) -> None:
    for y in (TWO, THREE, THREE > 0) if hasattr(estimator, "predict_proba") else (Y,):
        check(estimator.fit(X, y), X)


@pytest.mark.parametrize("estimator", named([*CLASSIFIERS, *REGRESSORS]))
def test_missing_values_go_where_they_were_learnt_to_go(estimator: Any) -> None:
    if not type(estimator).__name__.startswith(NAN):
        pytest.skip("this estimator refuses NaN")
    y = TWO if hasattr(estimator, "predict_proba") else Y
    check(estimator.fit(HOLES, y), HOLES)
    check(estimator.fit(X, y), HOLES)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(max_depth=4),
        RandomForestRegressor(4, random_state=0),
        DecisionTreeClassifier(max_depth=4),
        RandomForestClassifier(4, random_state=0),
    ],
    ids=lambda e: type(e).__name__,
)
def test_several_targets(estimator: Any) -> None:
    many = np.stack([THREE, THREE // 10, np.abs(THREE)], axis=1)
    check(estimator.fit(X, many), X)


@pytest.mark.parametrize("loss", ["poisson", "gamma", "absolute_error", "quantile"])
def test_losses_with_links(loss: str) -> None:
    more = {"quantile": 0.3} if loss == "quantile" else {}
    model = HistGradientBoostingRegressor(loss=loss, max_iter=4, min_samples_leaf=3, **more)
    check(model.fit(X, np.exp(Y / 3)), X)


def test_exponential_loss_and_an_init_of_zero() -> None:
    check(GradientBoostingClassifier(loss="exponential", n_estimators=4).fit(X, TWO), X)
    check(GradientBoostingClassifier(init="zero", n_estimators=4).fit(X, THREE), X)


def test_boosting_from_an_estimator_of_ones_own() -> None:
    # The data is narrowed to float32 first, so the regression's sums are float32 sums.
    model = GradientBoostingRegressor(n_estimators=3, init=LinearRegression(), random_state=0)
    check(model.fit(X, Y), X, tolerance=1e-6)


def test_isolation_forests() -> None:
    check(IsolationForest(n_estimators=9, random_state=0).fit(X), X)
    check(
        IsolationForest(n_estimators=5, random_state=0, max_features=0.5, contamination=0.2).fit(X),
        X,
    )
    check(IsolationForest(n_estimators=3, random_state=0, max_samples=1).fit(X), X)
    check(IsolationForest(n_estimators=3, random_state=0, max_features=1).fit(X), X)


def test_training_rows_exactly_on_the_offset_are_labelled_as_the_library_does() -> None:
    # With shares of outliers, the offset is a score of the training data; few depths are possible.
    rows = np.repeat(np.arange(11.0), 4)[:, None]
    for share in (0.05, 0.1, 0.3):
        model = IsolationForest(n_estimators=5, max_samples=3, contamination=share, random_state=0)
        check(model.fit(rows), rows)
    check(IsolationForest(max_samples=1, n_estimators=3, contamination=0.1).fit(rows), rows)


def test_values_at_thresholds_and_their_neighbours() -> None:
    tree = DecisionTreeRegressor().fit(X, Y)
    used = tree.tree_.threshold[tree.tree_.feature >= 0]
    near = np.concatenate([used, np.nextafter(used, np.inf), np.nextafter(used, -np.inf)])
    near = np.concatenate([near, near.astype(np.float32), [0.0, -0.0, 3e37, -3e37]])
    check(tree, np.tile(near[:, None], (1, 6)))


def test_one_leaf_and_deep_trees() -> None:
    check(DecisionTreeRegressor().fit(X, np.zeros(len(X))), X)
    ramp = np.arange(300.0)[:, None]
    deep = DecisionTreeRegressor(max_leaf_nodes=280, splitter="random", random_state=3)
    check(deep.fit(ramp, (ramp[:, 0] % 7) ** 2), ramp)


@pytest.mark.parametrize("classify", [True, False], ids=["classifier", "regressor"])
def test_categories_of_a_frame(classify: bool) -> None:  # noqa: FBT001 (a parameter)
    city = rng.choice(["Oslo", "Łódź", "Graz", "Cork"], 160)
    frame = pd.DataFrame({"a": X[:, 0], "city": pd.Categorical(city), "b": HOLES[:, 1]})
    target = (city == "Oslo") * 2.0 + X[:, 0]
    if classify:
        model = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3)
        check(model.fit(frame, target > 1), frame)
    else:
        model = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=3)
        check(model.fit(frame, target), frame)


def test_categories_by_number() -> None:
    codes = np.concatenate([X[:, :2], rng.integers(0, 9, size=(160, 1))], axis=1)
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features=[2], min_samples_leaf=2)
    model.fit(codes, Y + (codes[:, 2] % 3))
    unknown = codes.copy()
    unknown[:20, 2] = 77
    unknown[20:30, 2] = np.nan
    check(model, unknown, narrow=False)


def test_leaves_as_features() -> None:
    check(RandomTreesEmbedding(5, max_depth=3, random_state=0).fit(X), X)
