"""Random pipelines in blocks of every size: a row in a block beside the same row alone."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.goal import Goal

SIZES = (1, 2, 3, 5, 8, 10, 16, 32, 64, 100, 1000)
PROGRAMS = 100
#: A row in a block may take so many times as long as the row alone.
MOST = 1.05
TURNS = 60
#: A turn asks about so many rows of each size, or one block.
_ROWS = 1000
Call = Callable[[Any], Any]


def measured() -> Iterator[Goal]:
    """A goal for each pipeline: the size of block that takes longest for a row."""
    import flour
    import oven

    for seed in range(PROGRAMS):
        name, model, rows = random_pipeline(seed)
        plan = oven.bake(flour.from_sklearn(model), background=False)
        alone, took = _row_times(plan.entry(), rows)
        worst = max(took, key=lambda size: took[size])
        label = f"{seed} {name}, {alone:.3g} us alone, blocks of {worst}"
        yield Goal(label, took[worst] / alone, MOST, at_most=True)


def random_pipeline(seed: int) -> tuple[str, Any, NDArray[np.float64]]:
    """A fitted pipeline of up to two transformers and a predictor, and rows for it."""
    from sklearn.base import is_regressor
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(seed)
    width = int(rng.choice([2, 5, 10, 30, 60]))
    rows = rng.normal(size=(1000, width))
    target: NDArray[Any] = rows @ rng.normal(size=width)
    transformers, predictors = _transformers(rng), _predictors(rng)
    picked = rng.permutation(len(transformers))[: rng.integers(3)]
    parts = [*(transformers[each] for each in picked), predictors[seed % len(predictors)]]
    if not is_regressor(parts[-1]):
        target = np.digitize(target, [-1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some would be trained for longer
        model = make_pipeline(*parts).fit(rows[:400], target[:400])
    return ", ".join(type(each).__name__ for each in parts), model, rows


def _transformers(rng: np.random.Generator) -> list[Any]:
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem
    from sklearn.preprocessing import (
        KBinsDiscretizer,
        MinMaxScaler,
        Normalizer,
        QuantileTransformer,
        SplineTransformer,
        StandardScaler,
    )

    return [
        *(StandardScaler(), MinMaxScaler(), Normalizer(), PCA(2), SplineTransformer(4)),
        KBinsDiscretizer(int(rng.integers(2, 9)), encode="ordinal"),
        QuantileTransformer(n_quantiles=int(rng.integers(10, 200))),
        Nystroem(n_components=int(rng.integers(5, 60))),
    ]


def _predictors(rng: np.random.Generator) -> list[Any]:
    from sklearn.cluster import KMeans
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    many, deep = int(rng.integers(1, 100)), int(rng.integers(2, 12))
    return [
        *(LogisticRegression(), LinearRegression(), GaussianNB(), SVC()),
        *(DecisionTreeClassifier(max_depth=deep), KNeighborsClassifier(int(rng.integers(1, 9)))),
        RandomForestClassifier(many, max_depth=deep),
        ExtraTreesRegressor(many, max_depth=deep),
        HistGradientBoostingClassifier(max_iter=many, max_depth=deep),
        MLPClassifier((int(rng.integers(4, 100)),), max_iter=20),
        KMeans(int(rng.integers(2, 20)), n_init=1),
    ]


def _row_times(call: Call, rows: NDArray[np.float64]) -> tuple[float, dict[int, float]]:
    """Microseconds of a row alone and, by size, in a block: the least of turns of all."""
    most = len(rows)
    asked = {0: [*rows[:_ROWS]]}
    for size in SIZES:
        starts = range(0, most - size + 1, size)[: max(1, _ROWS // size)]
        asked[size] = [rows[start : start + size] for start in starts]
    took = dict.fromkeys(asked, np.inf)
    gc.disable()
    for _ in range(TURNS):
        for size, parts in asked.items():
            start = time.thread_time_ns()
            for part in parts:
                call(part)
            took[size] = min(
                took[size], ((time.thread_time_ns() - start) / 1e3) / len(parts) / max(size, 1)
            )
    gc.enable()
    return took.pop(0), took
