"""Neighbours, centroids and local outliers answer as the library does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    KNeighborsTransformer,
    LocalOutlierFactor,
    NearestCentroid,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
    RadiusNeighborsTransformer,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import flour
from flour.core.errors import FlourError
from tests.estimators import check

_rng = np.random.default_rng(7)
X = _rng.normal(size=(80, 4))
NEW = _rng.normal(size=(23, 4))
Y2 = np.where(X[:, 0] > 0, "yes", "no")
Y3 = np.digitize(X[:, 1], [-0.5, 0.5]) * 7 - 3
VALUE = X @ [1.0, -2.0, 0.5, 0.0] + _rng.normal(size=80)
METRICS = [
    {"metric": "euclidean"},
    {"metric": "manhattan"},
    {"metric": "chebyshev"},
    {"metric": "minkowski", "p": 3},
    {"metric": "minkowski", "p": 2, "metric_params": {"w": [1.0, 2.0, 0.5, 3.0]}},
    {"metric": "seuclidean", "metric_params": {"V": [1.0, 2.0, 0.5, 3.0]}},
    {"metric": "canberra"},
    {"metric": "braycurtis"},
    {"metric": "cosine"},
    {"metric": "l2"},
    {"metric": "l1"},
]


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree", "auto"])
def test_k_neighbours(algorithm: str, weights: str) -> None:
    narrow = algorithm in ("brute", "auto")
    fit = KNeighborsClassifier(5, algorithm=algorithm, weights=weights).fit(X, Y3)
    check(fit, NEW, narrow=narrow)
    fit = KNeighborsRegressor(4, algorithm=algorithm, weights=weights).fit(X, VALUE)
    check(fit, NEW, narrow=narrow)


@pytest.mark.parametrize("target", [Y2, Y3 > 0, Y3.astype(str)], ids=["two", "bool", "three"])
def test_labels(target: Any) -> None:
    check(KNeighborsClassifier(5).fit(X, target), NEW, narrow=False)


@pytest.mark.parametrize("how", METRICS, ids=str)
def test_metrics(how: dict[str, Any]) -> None:
    brute = "brute" if how["metric"] == "cosine" else "auto"
    fit = KNeighborsRegressor(3, weights="distance", algorithm=brute, **how).fit(X, VALUE)
    check(fit, NEW, tolerance=1e-11, narrow=False)
    if "w" not in how.get("metric_params", {}) and how["metric"] != "braycurtis":
        fit = KNeighborsRegressor(3, weights="distance", algorithm="brute", **how).fit(X, VALUE)
        check(fit, NEW, tolerance=1e-11, narrow=how["metric"] == "manhattan")


@pytest.mark.parametrize("rows", [30, 1000])
@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree"])
def test_of_points_equally_far_the_same_are_taken(algorithm: str, rows: int) -> None:
    """Every point has others at the same distance. Threads of brute force would split them."""
    with threadpool_limits(1):
        rng = np.random.default_rng(rows)
        points, new = rng.integers(0, 4, (rows, 5)) * 1.0, rng.integers(0, 4, (60, 5)) * 1.0
        values, labels = rng.normal(size=rows), rng.integers(0, 3, rows)
        for metric in ("euclidean", "manhattan", "chebyshev"):
            for count in (1, 20):
                how = {"algorithm": algorithm, "metric": metric, "leaf_size": 7}
                check(KNeighborsRegressor(count, **how).fit(points, values), new, narrow=False)
            check(KNeighborsClassifier(4, **how).fit(points, labels), new, narrow=False)
        how = {"algorithm": algorithm, "metric": "minkowski", "p": 3}
        check(KNeighborsRegressor(5, **how).fit(points, values), new, narrow=False)
        by_closeness = KNeighborsRegressor(5, weights="distance", algorithm=algorithm)
        check(by_closeness.fit(points, values), new, narrow=False)


@pytest.mark.parametrize(
    ("metric", "rows", "width", "leaf"),
    [
        *(("hamming", 40, 4, 3), ("hamming", 9, 2, 30), ("canberra", 300, 6, 20)),
        *(("braycurtis", 40, 4, 3), ("braycurtis", 300, 6, 20), ("braycurtis", 9, 2, 30)),
    ],
)
def test_of_points_equally_far_balls_take_the_same(
    metric: str, rows: int, width: int, leaf: int
) -> None:
    """Bray and Curtis's distances obey no triangle: a tree of them misses some that are nearer."""
    rng = np.random.default_rng(rows)
    points, new = rng.integers(0, 4, (rows, width)) * 1.0, rng.integers(0, 4, (50, width)) * 1.0
    how: dict[str, Any] = {"algorithm": "ball_tree", "metric": metric, "leaf_size": leaf}
    for count in (1, 4, 7):
        fit = KNeighborsRegressor(count, **how).fit(points, rng.normal(size=rows))
        check(fit, new, tolerance=1e-12, narrow=False)
    fit = KNeighborsClassifier(5, weights="distance", **how).fit(points, np.arange(rows) % 3)
    check(fit, new, tolerance=1e-12, narrow=False)


def test_hamming_ties_go_to_the_first() -> None:
    codes = _rng.permutation(64)[:40]
    bits = ((codes[:, None] >> np.arange(6)) & 1).astype(float)
    fit = RadiusNeighborsRegressor(0.4, metric="hamming").fit(bits, np.arange(40.0))
    check(fit, bits, narrow=False)


def test_several_targets() -> None:
    both = np.column_stack([Y3, X[:, 2] > 0])
    check(KNeighborsClassifier(3).fit(X, both), NEW)
    check(
        KNeighborsClassifier(3, weights="distance").fit(X, both.astype(str)), NEW, black=("Concat",)
    )
    values = np.column_stack([VALUE, VALUE**2])
    check(KNeighborsRegressor(3).fit(X, values), NEW)
    check(KNeighborsRegressor(3, weights="distance").fit(X, values), NEW)
    check(KNeighborsRegressor(3).fit(X, VALUE.round().astype(int)), NEW)


def test_training_rows_meet_themselves() -> None:
    fit = KNeighborsClassifier(4, algorithm="kd_tree", weights="distance").fit(X, Y3)
    check(fit, X)
    check(KNeighborsRegressor(4, algorithm="ball_tree", weights="distance").fit(X, VALUE), X)


def test_sparse_rows() -> None:
    holes = np.where(np.abs(X) < 0.6, 0.0, X)
    fit = KNeighborsRegressor(3).fit(csr_matrix(holes), VALUE)
    new = csr_matrix(np.where(np.abs(NEW) < 0.6, 0.0, NEW))
    check(fit, new, sample=new)
    check(fit, NEW)
    narrow = KNeighborsClassifier(3).fit(csr_matrix(holes.astype(np.float32)), Y3)
    check(narrow, new.astype(np.float32), sample=new.astype(np.float32))


def test_narrow_training_data() -> None:
    small = X.astype(np.float32)
    for algorithm in ("brute", "kd_tree"):
        check(KNeighborsClassifier(3, algorithm=algorithm).fit(small, Y2), NEW)
        fit = KNeighborsRegressor(3, algorithm=algorithm, weights="distance").fit(small, VALUE)
        check(fit, NEW)
        check(
            RadiusNeighborsRegressor(3.0, weights="distance", algorithm=algorithm).fit(
                small, VALUE
            ),
            NEW,
        )
    wide = KNeighborsRegressor(3).fit(X, VALUE.astype(np.float32))
    check(wide, NEW)


def test_whole_numbers_and_frames() -> None:
    grid = _rng.permutation(400)[:60]
    whole = np.column_stack([grid // 20, grid % 20])
    fit = KNeighborsRegressor(1).fit(whole, np.arange(60.0))
    check(fit, whole + 0.3)
    frame = pd.DataFrame(X, columns=list("abcd"))
    fit = make_pipeline(StandardScaler(), KNeighborsClassifier(3)).fit(frame, Y2)
    check(fit, pd.DataFrame(NEW, columns=list("abcd")))


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("algorithm", ["brute", "kd_tree"])
def test_radius(algorithm: str, weights: str) -> None:
    how = {"algorithm": algorithm, "weights": weights}
    check(RadiusNeighborsRegressor(3.5, **how).fit(X, VALUE), NEW)
    both = np.column_stack([VALUE, VALUE**2])
    check(RadiusNeighborsRegressor(3.5, **how).fit(X, both), NEW, narrow=False)
    far = np.concatenate([NEW, NEW + 40])
    for target, outlier in ((Y2, "no"), (Y3, 11), (Y3, 4)):
        fit = RadiusNeighborsClassifier(1.5, outlier_label=outlier, **how).fit(X, target)
        inside = np.linalg.norm(far[:, None] - X[None], axis=2).min(axis=1) < 1.5
        check(fit, far if outlier != 11 else far[inside], narrow=outlier == "no")
    if algorithm == "kd_tree" and weights == "distance":
        check(RadiusNeighborsRegressor(2.0, **how).fit(X, VALUE), X)


def test_radius_of_several_targets() -> None:
    both = np.column_stack([Y3, (X[:, 2] > 0).astype(int)])
    fit = RadiusNeighborsClassifier(3.0, outlier_label="most_frequent").fit(X, both)
    check(fit, np.concatenate([NEW, NEW + 40]))


@pytest.mark.filterwarnings("ignore:Outlier label")
@pytest.mark.parametrize("algorithm", ["brute", "kd_tree"])
def test_an_outlier_label_of_its_own(algorithm: str) -> None:
    fit = RadiusNeighborsClassifier(1.5, outlier_label=11, algorithm=algorithm).fit(X, Y3)
    program = flour.from_sklearn(fit)
    made = program.reference(NEW + 40)
    np.testing.assert_array_equal(made["label"], fit.predict(NEW + 40))
    np.testing.assert_array_equal(made["probabilities"], fit.predict_proba(NEW + 40))


def test_graphs() -> None:
    for mode in ("connectivity", "distance"):
        for algorithm in ("brute", "kd_tree"):
            check(
                KNeighborsTransformer(mode=mode, n_neighbors=3, algorithm=algorithm).fit(X),
                NEW,
                narrow=False,
            )
            how = {"mode": mode, "radius": 2.0, "algorithm": algorithm}
            check(RadiusNeighborsTransformer(**how).fit(X), NEW, narrow=algorithm == "brute")


@pytest.mark.parametrize("contamination", ["auto", 0.1])
def test_local_outliers(contamination: Any) -> None:
    for data in (X, X.astype(np.float32)):
        fit = LocalOutlierFactor(10, novelty=True, contamination=contamination).fit(data)
        check(fit, np.concatenate([NEW, NEW * 5]))


@pytest.mark.parametrize("target", [Y2, Y3], ids=["two", "three"])
def test_nearest_centroids(target: Any) -> None:
    check(NearestCentroid().fit(X, target), NEW)
    shrunken = NearestCentroid(priors="empirical", shrink_threshold=0.2)
    check(shrunken.fit(X, target), NEW, narrow=False)
    check(NearestCentroid(metric="manhattan").fit(X, target), NEW, narrow=False)
    fit = NearestCentroid(metric="manhattan", priors="empirical").fit(X, target)
    check(fit, NEW, narrow=False)


def test_a_column_that_never_varies_within_a_class() -> None:
    flat = X.copy()
    flat[:, 3] = Y2 == "yes"
    with pytest.warns(UserWarning, match="zero standard deviation"):
        fit = NearestCentroid(priors=[0.3, 0.7]).fit(flat, Y2)
    check(fit, NEW)


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 5))
def test_any_neighbourhood(seed: int, count: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    points, rows = rng.normal(size=(15, width)) * 10, rng.normal(size=(6, width)) * 10
    fit = KNeighborsRegressor(count, weights="distance", algorithm="kd_tree")
    check(fit.fit(points, rng.normal(size=15)), rows, narrow=False)


def test_what_has_no_exact_translation_is_refused() -> None:
    refused = [
        KNeighborsClassifier(metric=lambda a, b: abs(a - b).sum()).fit(X, Y2),
        KNeighborsRegressor(weights=lambda d: d).fit(X, VALUE),
        KNeighborsRegressor(metric="correlation", algorithm="brute").fit(X, VALUE),
        KNeighborsRegressor(metric="manhattan", algorithm="brute").fit(X.astype("f"), VALUE),
        KNeighborsRegressor(metric="braycurtis", algorithm="brute").fit(X, VALUE),
        RadiusNeighborsClassifier(2.0).fit(X, Y2),
        LocalOutlierFactor().fit(X),
    ]
    for estimator in refused:
        with pytest.raises(FlourError):
            flour.from_sklearn(estimator)
