"""What attribution costs, beside the libraries that have it and beside predicting.

    python -m bench attribution

A table by itself: no contestants and no report. All take turns on one thread, many short rounds of
each, by the processor time of the thread, and the least counts. Lines of shap are left out where
it is not installed. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.goal import Goal
from oven.explain import attribute

QUESTION = "Attribution against LightGBM's, shap's, and against predicting"
TREES, LEAVES, COLUMNS, ROWS = 100, 31, 20, 512
#: Rows of the background that trees are compared with.
BACKGROUND = 100
#: Words of a vocabulary and of a document, and documents.
WORDS, LENGTH, DOCUMENTS = 20_000, 40, 512
ROUNDS, SLICE_SECONDS = 12, 5e-3
Call = Callable[[], object]


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    for part in (_trees, _linear, _text, _unasked):
        yield from part()


def _trees() -> Iterator[Goal]:
    """The shape that the goals are about: 100 trees of 31 leaves over 20 columns."""
    import flour
    import oven

    fit, rows = boosted()
    plan = oven.bake(flour.from_lightgbm(fit, covers=True)).wait()
    block, one = np.ascontiguousarray(rows[:ROWS]), rows[:1].copy()
    booster = fit.booster_
    for name, data, limit in (("a block", block, 10.0), ("one row", one, 5.0)):
        calls: dict[str, Call] = {
            "ours": partial(attribute, plan, data, output="value"),
            "LightGBM": partial(booster.predict, data, pred_contrib=True, num_threads=1),
        }
        if find_spec("shap"):
            shap = import_module("shap")
            explainer = shap.TreeExplainer(fit, feature_perturbation="tree_path_dependent")
            calls["shap"] = partial(explainer.shap_values, data, check_additivity=False)
        took = turns(calls)
        micros = took["ours"] / len(data) * 1e6
        print(f"# trees, {name}: {micros:.1f} us a row", flush=True)
        for other in [*calls][1:]:
            faster = took[other] / took["ours"]
            yield Goal(f"trees, {name}: times as fast as {other}", faster, limit)
    compared = partial(attribute, plan, block[:32], output="value", background=rows[-BACKGROUND:])
    took = turns({"covers": partial(attribute, plan, block, output="value"), "compared": compared})
    each = (took["compared"] / 32) / (took["covers"] / ROWS)
    yield Goal(f"trees, against {BACKGROUND} rows: times by covers", each, 100.0, at_most=True)


def boosted(trees: int = TREES) -> tuple[Any, NDArray[np.float64]]:
    """A booster, and rows."""
    from lightgbm import LGBMRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, COLUMNS))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + X[:, 3:8].sum(axis=1) + rng.normal(size=5000) / 10
    return LGBMRegressor(n_estimators=trees, num_leaves=LEAVES, n_jobs=1, verbose=-1).fit(X, y), X


def _linear() -> Iterator[Goal]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(1)
    X = rng.normal(size=(4096, COLUMNS))
    fit = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, X[:, 0] + X[:, 1] > 0)
    yield from _beside("linear", fit, X)
    # Shares are as many numbers as the rows have, so they cannot cost less than writing these.
    product = turns({"product": partial(np.multiply, X, X[0])})["product"]
    print(f"# linear, a bare product of rows and weights: {product / len(X) * 1e6:.3f} us a row")


def _text() -> Iterator[Goal]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(2)
    words = [f"word{number}" for number in range(WORDS)]
    documents = [" ".join(rng.choice(words, LENGTH)) for _ in range(DOCUMENTS)]
    fit = make_pipeline(TfidfVectorizer(vocabulary=words), LogisticRegression())
    yield from _beside("text", fit.fit(documents, np.arange(DOCUMENTS) % 2), documents)


def _beside(name: str, fit: Any, rows: Any) -> Iterator[Goal]:
    """Attribution of a block beside predicting it."""
    import flour
    import oven

    plan = oven.bake(flour.from_sklearn(fit, sample=rows[:5])).wait()
    took = turns({"predict": partial(plan.run, rows), "attribute": partial(attribute, plan, rows)})
    for key, seconds in took.items():
        print(f"# {name}, {key}: {seconds / len(rows) * 1e6:.3f} us a row", flush=True)
    share = took["attribute"] / took["predict"]
    yield Goal(f"{name}, a block: times predicting", share, 1.3, at_most=True)


def _unasked() -> Iterator[Goal]:
    """A row that is not explained, of a plan that could be and of one that could not."""
    import flour
    import oven

    fit, rows = boosted(trees=2)  # of few trees: where in memory they are makes no difference
    row = rows[0].copy()
    without = oven.bake(flour.from_lightgbm(fit)).wait()
    able = oven.bake(flour.from_lightgbm(fit, covers=True)).wait()
    attribute(able, row, output="value")
    took = turns({"able": partial(able.entry(), row), "without": partial(without.entry(), row)})
    more = (took["able"] - took["without"]) * 1e9
    yield Goal("an answer that is not explained: nanoseconds more", more, 10.0, at_most=True)


def turns(calls: dict[str, Call]) -> dict[str, float]:
    """The seconds of each call at its best, all taking turns."""
    counts = {}
    for name, call in calls.items():
        _timed(call, 3)  # the first call compiles
        counts[name] = max(5, int(SLICE_SECONDS / _timed(call, 3)))
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], _timed(call, counts[name]))
    return best


def _timed(call: Call, count: int) -> float:
    start = time.thread_time_ns()
    for _ in range(count):
        call()
    return max(time.thread_time_ns() - start, 1) / 1e9 / count
