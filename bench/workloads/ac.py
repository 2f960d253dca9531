"""AC: regression over 40 columns, the paper's most complex form, no two pipelines alike.

x -> { PCA | KMeans | tree featurizer | multi-class tree ensemble } -> concatenation -> trees

Branches come and go, widths, numbers of trees and depths vary, and the last step is a forest,
boosted trees or one tree, so sizes spread over three orders of magnitude as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.inputs import NUMBERS, Inputs
from bench.workload import Made, Spec

WIDTH = 40
_TRAINED = 1500


def make(spec: Spec) -> Made:
    """Rows are numbers that float32 holds exactly, so that every contestant reads the same."""
    rows = numbers(spec.seed, 1000, WIDTH)
    facts = {"answers": "value", "width": WIDTH}
    return Made(Inputs(NUMBERS, rows), _pipelines(spec), facts)


def numbers(seed: int, count: int, width: int) -> Any:
    """Normal numbers, rounded to float32."""
    drawn = np.random.default_rng(seed).normal(size=(count, width))
    return drawn.astype(np.float32).astype(np.float64)


def _pipelines(spec: Spec) -> Iterator[Any]:
    from sklearn.pipeline import Pipeline

    for number in range(spec.count):
        seed = spec.seed * 10_007 + number
        rng = np.random.default_rng(seed)
        rows = numbers(seed + 1, _TRAINED, WIDTH)
        one, two, three = rng.permutation(WIDTH)[:3]
        shape = np.exp(rows[:, one] / 2) + rows[:, two] * rows[:, three] + np.abs(rows[:, two])
        people = 20 * shape + rng.normal(size=len(rows))
        union = _featurizers(rng, spec.scale, seed)
        classes = np.digitize(people, np.quantile(people, [0.25, 0.5, 0.75]))
        features = union.fit_transform(rows, classes)
        yield Pipeline(
            [("features", union), ("trees", _last(rng, spec.scale, seed).fit(features, people))]
        )


def _featurizers(rng: np.random.Generator, scale: float, seed: int) -> Any:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.ensemble import RandomForestClassifier, RandomTreesEmbedding, VotingClassifier
    from sklearn.pipeline import FeatureUnion

    trees, depth = _size(rng, scale), int(rng.integers(3, 6))
    forest = RandomForestClassifier(trees, max_depth=int(rng.integers(4, 9)), random_state=seed)
    parts = [
        ("pca", PCA(int(rng.integers(4, 17)), random_state=seed)),
        ("kmeans", KMeans(int(rng.integers(3, 13)), n_init=1, random_state=seed)),
        ("leaves", RandomTreesEmbedding(max(2, trees // 2), max_depth=depth, random_state=seed)),
        # Voting is how scikit-learn hands a classifier's probabilities to the next step.
        ("classes", VotingClassifier([("forest", forest)], voting="soft")),
    ]
    return FeatureUnion([part for part in parts if rng.random() < 0.85] or parts[:1])


def _last(rng: np.random.Generator, scale: float, seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
    from sklearn.tree import DecisionTreeRegressor

    trees = _size(rng, scale)
    kind = rng.random()
    if kind < 0.45:
        deepest = None if scale >= 0.5 else 10
        return RandomForestRegressor(
            trees, max_depth=deepest, max_features=0.3, random_state=seed, n_jobs=1
        )
    if kind < 0.9:
        return GradientBoostingRegressor(
            n_estimators=2 * trees,
            max_depth=int(rng.integers(3, 7)),
            max_features=0.3,
            random_state=seed,
        )
    return DecisionTreeRegressor(max_depth=int(rng.integers(4, 12)), random_state=seed)


def _size(rng: np.random.Generator, scale: float) -> int:
    """A number of trees; small ensembles are more frequent than large ones."""
    most = max(8.0, 100.0 * min(1.0, 2 * scale))
    return int(np.exp(rng.uniform(np.log(4), np.log(most))))
