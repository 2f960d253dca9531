"""Minimal changes: how many rows of several models are answered, rightly, and how soon.

The first row of a model reads its trees' thresholds, once: it is measured apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.goal import Goal

#: Rows that are asked of each model, of all that there are.
ASKED, ROWS, COLUMNS = 100, 3000, 20
#: Milliseconds for a row of a booster of 100 trees with 31 leaves.
SOON = 5.0


def measured() -> Iterator[Goal]:
    """Every change flips the answer of the model as it was trained; and its processor time."""
    import pretzel

    for name, fitted, rows in _models():
        model = pretzel.compile(fitted, sample=rows[:5]).wait()
        answers = fitted.predict(rows[:ASKED])
        times, found, right = [], 0, 0
        for row, answer in zip(rows[:ASKED], answers, strict=True):
            start = time.thread_time()
            change = model.counterfactual(row, want=1 - int(answer))
            times.append(1e3 * (time.thread_time() - start))
            if change.found:
                found += 1
                right += int(fitted.predict(np.asarray([change.row]))[0]) == 1 - int(answer)
        first, median, longest = times[0], float(np.median(times)), max(times[1:])
        print(f"{name}: {found} of {ASKED}, {median:.2f}, {longest:.1f}, the first {first:.1f} ms")
        yield Goal(f"{name}: changes that flip the original's answer", right / max(found, 1), 1.0)
        if name == "LightGBM":
            yield Goal("LightGBM 100 x 31: milliseconds for a row", median, SOON, at_most=True)
            yield Goal("LightGBM 100 x 31: of the slowest other one", longest, SOON, at_most=True)


def _models() -> Iterator[tuple[str, Any, Any]]:
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from xgboost import XGBClassifier

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, COLUMNS))
    truth = (rows[:, 0] + rows[:, 1] * rows[:, 2] + np.sin(2 * rows[:, 3]) > 0).astype(int)
    models = {
        "linear": make_pipeline(StandardScaler(), LogisticRegression()),
        "forest": RandomForestClassifier(50, max_depth=8, random_state=0),
        "XGBoost": XGBClassifier(n_estimators=50, max_depth=5),
        "LightGBM": LGBMClassifier(n_estimators=100, num_leaves=31, verbose=-1),
    }
    for name, model in models.items():
        yield name, model.fit(rows, truth), rows
