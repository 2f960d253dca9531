"""Cascades that are learned from rows: throughput and accuracy, on rows that no part has seen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.goal import Goal
from bench.workloads import sa

#: Rows that train the model, that teach and judge the cascade, and that measure it.
TRAINED, SHOWN, MEASURED = 4000, 12_000, 10_000
#: How much faster blocks are to be, and how much accuracy may be lost.
FASTER, LOST = 2.0, 0.001
TURNS = 5


def measured() -> Iterator[Goal]:
    """Two goals for each of four models: two of texts, two of numbers."""
    import oven
    from runtime import Runtime
    from runtime.shortcut import shortcut

    for name, model, rows, truth in _models():
        plan = oven.bake(model, background=False)
        with Runtime() as served:
            served.register("whole", plan)
            found = shortcut(plan, rows[TRAINED : TRAINED + SHOWN], loss=LOST)
            served.register("cascade", found.graph, background=False)
            print(f"{name}: {found}", flush=True)
            new, known = rows[TRAINED + SHOWN :], truth[TRAINED + SHOWN :]
            times: dict[str, list[float]] = {"whole": [], "cascade": []}
            right = {}
            for _ in range(TURNS):
                for each, taken in times.items():
                    start = time.process_time()
                    answers = served.predict(each, new)
                    taken.append(time.process_time() - start)
                    right[each] = float((answers["label"] == known).mean())
            faster = float(np.median(times["whole"]) / np.median(times["cascade"]))
        yield Goal(f"{name}: rows by a cascade, of those by the whole model", faster, FASTER)
        lost = 100 * (right["whole"] - right["cascade"])
        yield Goal(f"{name}: accuracy lost, in percent", lost, 100 * LOST, at_most=True)


def _models() -> Iterator[tuple[str, Any, Any, Any]]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    import flour

    rng = np.random.default_rng(0)
    texts, tones = _reviews(rng)
    for name, truth in (
        ("reviews", tones > 0),
        ("reviews of 3 kinds", np.digitize(tones, (-1, 2))),
    ):
        words, characters = TfidfVectorizer(), TfidfVectorizer(analyzer="char", ngram_range=(2, 5))
        linear = LogisticRegression(max_iter=500)
        model = make_pipeline(make_union(words, characters), linear)
        fitted = model.fit(texts[:TRAINED], truth[:TRAINED])
        yield name, flour.from_sklearn(fitted, sample=texts[:10]), texts, truth
    table = rng.normal(size=(TRAINED + SHOWN + MEASURED, 12))
    score = 2 * table[:, 0] + table[:, 1] * table[:, 2] + 2 * (table[:, 3] > 0)
    for name, bounds in (("forest", [1.0]), ("forest of 3 classes", [-1.0, 3.0])):
        model = RandomForestClassifier(300, min_samples_leaf=2, random_state=0, n_jobs=2)
        truth = np.digitize(score, bounds)
        fitted = model.fit(table[:TRAINED], truth[:TRAINED])
        yield name, flour.from_sklearn(fitted, sample=table[:10]), table, truth


def _reviews(rng: np.random.Generator) -> tuple[list[str], Any]:
    """Reviews of five sentences each, and how many more are good than bad."""
    lines = sa.labelled_reviews()
    tone = np.array([1 if label == "1" else -1 for label, _ in lines])
    drawn = rng.integers(0, len(lines), (TRAINED + SHOWN + MEASURED, 5))
    return [" ".join(lines[place][1] for place in each) for each in drawn], tone[drawn].sum(axis=1)
